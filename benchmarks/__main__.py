"""`make benchmark`: processor time and ratios. Machines are noisy, so each ratio is taken within one process."""

import argparse
import json
import os
import platform
import tempfile
import time

import torch

from benchmarks import data, landscape, losses, metrics
from spml_core.runs import Experiment, run, versions


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", help="a folder of photographs with labels.csv, to measure decoding on")
    root = parser.parse_args().root  # make benchmark ARGS="--root ..."
    name = platform.processor() or platform.machine()
    print(f"{name}, {os.cpu_count()} cores, torch threads {torch.get_num_threads()}, GPU: not measured")
    print(json.dumps(versions()))
    losses.main()
    metrics.main()
    landscape.main()

    print("\nOne digits experiment, 10 epochs (4,000 images, 4 convolutions), on the CPU")
    with tempfile.TemporaryDirectory() as folder:
        experiment = Experiment(dataset="digits", method="gr", accelerator="cpu")
        start = time.process_time(), time.perf_counter()
        result = run(experiment, root=folder)
        spent = time.process_time() - start[0], time.perf_counter() - start[1]
        begin = time.perf_counter()
        run(experiment, root=folder)
        again = time.perf_counter() - begin
        print(
            f"  {spent[0]:.1f} s of processor time, {spent[1]:.1f} s, test mAP {result.summary['test_map']:.1f}"
        )
        print(f"  asked for again: {again:.1f} s")
    data.report(root)


if __name__ == "__main__":
    main()
