"""`make benchmark`: processor time and ratios. Machines are noisy, so each ratio is taken within one process."""

import json
import os
import platform
import statistics
import tempfile
import time

import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from tqdm import tqdm

from spml_core import losses
from spml_core.runs import Experiment, run, versions

SHAPES = ((256, 80), (1024, 567))  # a COCO batch, a large Open Images batch
GR = {"w": 2.0, "b": -2.0, "mu": 0.8, "sigma": 0.5}


def main():
    name = platform.processor() or platform.machine()
    print(f"{name}, {os.cpu_count()} cores, torch threads {torch.get_num_threads()}, GPU: not measured")
    print(json.dumps(versions()))
    print("\nLoss forward + backward, time relative to binary_cross_entropy_with_logits (median of 30 pairs)")
    for shape in SHAPES:
        for loss, parameters in (("bce", {}), ("an", {}), ("wan", {}), ("em", {}), ("hill", {}), ("gr", GR)):
            ratio = loss_ratio(getattr(losses, loss), parameters, shape)
            print(f"  {loss:5} {shape[0]:5} x {shape[1]:<4} {ratio:5.2f} x")

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


def loss_ratio(loss, parameters: dict, shape: tuple[int, int], pairs: int = 30) -> float:
    """Median over pairs of (time of loss) / (time of BCE with logits), measured one after the other."""
    torch.manual_seed(0)
    logits = torch.randn(shape, requires_grad=True)
    observed = (torch.rand(shape) < 1 / shape[1]).float()

    def seconds(function, **options):
        logits.grad = None
        start = time.perf_counter()
        function(logits, observed, **options).backward()
        return time.perf_counter() - start

    def ratio():
        return seconds(loss, **parameters) / seconds(binary_cross_entropy_with_logits)

    for _ in range(5):
        ratio()
    return statistics.median(ratio() for _ in tqdm(range(pairs), leave=False, disable=None))


if __name__ == "__main__":
    main()
