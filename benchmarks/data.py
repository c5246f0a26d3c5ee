"""Speed and memory of data: `python -m benchmarks.data --root path/to/corel5k`, or as a part of `make benchmark`.

1. A linear head on frozen features of COCO's size (82,081 x 1,280, synthetic, on a memory map), with GR and Adam.
2. Loading alone, at batch 16, against torch's DataLoader, which asks for one row at a time and collates them: of a
   TensorDataset with features, observed labels and index; and of a data set like those of released code, which gives
   each image's features, observed and full labels in float32, and index by name.
3. An epoch from prepared pixels against decoding the files, for a folder of images.
4. Predicting 200 of these images with frozen features, as `spml predict` does, against decoding them alone.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from functools import partial
from pathlib import Path

import click
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset
from tqdm import tqdm

from spml_core import data, methods, models
from spml_core.data.files import decoding, features, loading, pixels, store
from spml_core.data.files.digests import digests
from spml_core.train import Training, fit
from spml_core.train.predict import predict_files

IMAGES, WIDTH, CLASSES = (
    82_081,
    1_280,
    80,
)  # annotated COCO 2014 train images; features of tf_efficientnet_lite0
EPOCHS, VAL = 3, 1_000
SIZE, ROUNDS = 224, 3
PREDICTED = 200  # images


def write_features(file: Path, images: int = IMAGES) -> None:
    rng = np.random.default_rng(0)
    features = np.lib.format.open_memmap(file, "w+", np.float32, (images, WIDTH))
    for rows in tqdm(np.array_split(np.arange(images), 40), "write features", leave=False, disable=None):
        features[rows] = rng.standard_normal((len(rows), WIDTH), np.float32)


def mapped(file: Path) -> torch.Tensor:
    return store.mapped(file)


def train(file: str | Path, accelerator: str = "cpu") -> dict:
    """Return the seconds of each epoch, and the peak of the process's memory (Linux: KiB)."""
    import resource

    inputs = mapped(file)
    rng = np.random.default_rng(1)
    observed = np.zeros((len(inputs), CLASSES), np.int8)
    observed[np.arange(len(inputs)), rng.integers(0, CLASSES, len(inputs))] = 1
    model = models.build("", "linear", CLASSES, inputs)
    method = methods.build("gr", CLASSES, len(inputs))
    fields = {"epochs": EPOCHS, "batch_size": 256, "lr": 1e-3, "threads": 1}  # threads as in `runs`
    config = Training(**fields, accelerator=accelerator)
    val = (inputs[:VAL], observed[:VAL])
    fitted = fit(model, method, (inputs, torch.from_numpy(observed)), val, config, progress=False)
    spent = [row["seconds"] for row in fitted.history[1:]]
    return {"seconds": spent, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}


def report_training(file: Path) -> None:
    """Report a training in a process of its own, so that the peak is that of training and nothing else."""
    command = [
        sys.executable,
        "-c",
        "import json, sys; from benchmarks import data; print(json.dumps(data.train(sys.argv[1])))",
        str(file),
    ]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    result = json.loads(printed)
    spent, peak = result["seconds"], result["peak"]
    size = file.stat().st_size / 2**30
    print(f"  training, batch 256: {min(spent):.1f} to {max(spent):.1f} s an epoch (target: at most 5)")
    print(
        f"  peak memory {peak / 2**20:.2f} GiB, of which features {size:.2f} (target: at most features + 1)"
    )


class ByName(Dataset):
    def __init__(self, inputs: torch.Tensor, labels: torch.Tensor):
        self.inputs, self.labels = inputs, labels

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, n: int) -> dict:
        labels = self.labels[n].float()
        return {"image": self.inputs[n], "observed": labels, "full": labels.clone(), "index": n}


def report_loading(file: Path) -> None:
    inputs, observed = mapped(file), torch.zeros(IMAGES, CLASSES, dtype=torch.int8)

    def ours() -> None:
        deque(loading.batches(inputs, torch.randperm(IMAGES).split(16), "cpu", observed), 0)

    for name, rows in (
        ("TensorDataset", TensorDataset(inputs, observed, torch.arange(IMAGES))),
        ("rows by name", ByName(inputs, observed)),
    ):
        loader = DataLoader(rows, batch_size=16, shuffle=True)
        ours()  # the first pass maps the file
        for threads in sorted({1, os.cpu_count()}):
            torch.set_num_threads(threads)  # half of the time is copying, which a second core shares
            pairs = [(seconds(ours), seconds(partial(deque, loader, 0))) for _ in range(ROUNDS)]
            own, other = (min(column) for column in zip(*pairs, strict=True))
            print(
                f"  loading alone, batch 16, torch threads {threads}: {own:.3f} s; {name}, row by row: {other:.2f} s, "
                f"{ratio(pairs):.1f} times that"
            )


def seconds(function) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def ratio(pairs: list[tuple[float, float]]) -> float:
    return statistics.median(other / own for own, other in pairs)


def speeds(paths: list[Path], size: int, device: str = "cpu") -> dict:
    """Return seconds: `prepare`, `first`, the epoch that reads the disk, and `pairs` of (prepared, decoding) epochs."""
    with tempfile.TemporaryDirectory() as cache:
        start = time.perf_counter()
        file = pixels.prepare(paths, size, cache)
        prepare = time.perf_counter() - start
        with open(file, "rb") as content:  # written, not mapped: it leaves the memory
            os.posix_fadvise(content.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        prepared, _ = pixels.find(digests(paths, cache), size, cache)
        files = decoding.Files(paths, size)

        def epoch(inputs) -> float:
            order = torch.randperm(len(inputs)).split(16)
            return seconds(partial(deque, loading.batches(inputs, order, device), 0))  # read and forget

        first = epoch(prepared)
        pairs = [(epoch(prepared), epoch(files)) for _ in range(ROUNDS)]
    return {"prepare": prepare, "first": first, "pairs": pairs}


def report_pixels(root: str | None) -> None:
    if root is None:
        print("\nPrepared pixels: skipped, since no folder of images is given (--root path/to/corel5k)")
        return
    paths = data.read("folder", root=root, unlabeled="drop").paths
    found = speeds(paths, SIZE)
    own, other = (min(column) for column in zip(*found["pairs"], strict=True))
    print(f"\nPrepared pixels, {len(paths):,} images at {SIZE}, batch 16, {os.cpu_count()} cores")
    first = f"first epoch, from the disk, {found['first']:.2f} s"
    print(f"  prepare {found['prepare']:.1f} s; {first}; then {own:.2f} s an epoch")
    print(f"  decoding {other:.2f} s an epoch: {ratio(found['pairs']):.0f} x the prepared ones (target: 5)")
    report_predictions(paths)


def report_predictions(paths: list[Path]) -> None:
    import resource

    names, jobs, peaks = [*map(str, paths[:PREDICTED])], os.cpu_count(), []
    head = models.build("", "linear", CLASSES, torch.zeros(2, WIDTH))
    model = torch.nn.Sequential(features.Extractor("tf_efficientnet_lite0", SIZE), head)
    files = decoding.Files(names, SIZE)

    def predict() -> None:
        for _ in predict_files(model, names, tuple(files.shape[1:]), jobs):
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10)  # MiB

    def decode() -> None:
        deque(loading.batches(files, torch.arange(len(names)).split(64), "cpu"), 0)

    predict()
    first, *_, last = peaks[len(peaks) // 5 :]  # threads and caches are there
    pairs = [(seconds(predict), seconds(decode)) for _ in range(ROUNDS)]
    own, other = (min(column) for column in zip(*pairs, strict=True))
    print(f"\nPredictions, {len(names):,} images at {SIZE}, frozen features, {jobs} threads")
    print(
        f"  {len(names) / own:.0f} images per second, decoding alone {len(names) / other:.0f}: {ratio(pairs):.2f} of it"
    )
    print(f"  peak memory {first:.0f} MiB after a fifth of the images, {last:.0f} MiB after all")


def report(root: str | None = None) -> None:
    print(f"\nFrozen features, {IMAGES:,} x {WIDTH:,}, {CLASSES} classes, on a memory map")
    with tempfile.TemporaryDirectory() as folder:
        torch.set_num_threads(1)
        file = Path(folder) / "features.npy"
        write_features(file)
        report_training(file)
        report_loading(file)
    report_pixels(root)


@click.command(help=__doc__)
@click.option("--root", type=click.Path(exists=True, file_okay=False), help="Folder with labels.csv.")
def main(root):
    report(root)


if __name__ == "__main__":
    main()
