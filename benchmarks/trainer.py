"""How much the trainer costs, and what it gains.

    python -m benchmarks.trainer [--root path/to/corel5k] [--size 448] [--images 16]

1. `fit` against a bare loop (same model, data in memory, `digits`), in one process, alternating.
2. A loop in the style of the field's released code (decode with PIL for each sample, sigmoid and boolean masks, copies
   to the host in each step, float32, NCHW) against `fit` on prepared pixels: ResNet-50, photographs.

With a GPU the second part runs there too; without one it says so. The device's name stands beside each number.
"""

from __future__ import annotations

import copy
import os
import platform
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import torch
from PIL import Image
from torch.nn.functional import binary_cross_entropy_with_logits

from spml_core import data, metrics, models, train
from spml_core.data import labels
from spml_core.data.files import decoding
from spml_core.methods import build
from spml_core.train.config import Training
from spml_core.train.device import name_of


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


# --- the loop alone ---


def bare(model, inputs, observed, val, epochs: int, batch_size: int) -> None:
    """Train by a minimal loop: no check, no schedule, no method, no choice of an epoch; validation as in `fit`."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, fused=True)
    order = torch.Generator().manual_seed(0)
    model.train()
    for _ in range(epochs):
        for index in torch.randperm(len(inputs), generator=order).split(batch_size):
            loss = binary_cross_entropy_with_logits(model(inputs[index]), (observed[index] == 1).float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        metrics.average_precision(train.predict(model, val[0], torch.device("cpu")), val[1])
        model.train()


def overhead(repeats: int) -> None:
    dataset = data.load("digits")
    part = dataset.parts["train"]
    observed = torch.from_numpy(labels.single_positive(part.full, seed=0, protocol="per_image", ids=part.ids))
    model = models.build("digits_cnn", "end_to_end", 10, part.inputs).to(memory_format=torch.channels_last)
    few = torch.zeros(1, 1, 32, 32, dtype=torch.uint8), np.eye(1, 10, dtype=np.int8)  # of one image
    config = Training(epochs=4, batch_size=64, accelerator="cpu", threads=1)
    torch.set_num_threads(1)

    def fitted():
        train.fit(copy.deepcopy(model), build("an", 10), (part.inputs, observed), few, config, progress=False)

    spent = {"bare": [], "fit": []}
    for _ in range(repeats):
        for name, work in (
            ("bare", lambda: bare(copy.deepcopy(model), part.inputs, observed, few, 4, 64)),
            ("fit", fitted),
        ):
            start = time.process_time()
            work()
            spent[name].append(time.process_time() - start)
    best = {name: min(times) for name, times in spent.items()}
    pairs = statistics.median(f / b for f, b in zip(spent["fit"], spent["bare"], strict=True))
    print(
        f"\nThe loop, digits, 4 epochs of 63 batches; {cpu_name()}, 1 thread, processor time, {repeats} pairs"
    )
    least = best["fit"] / best["bare"] - 1
    print(
        f"  bare {best['bare']:.2f} s, fit {best['fit']:.2f} s: {least:+.1%} (least), {pairs - 1:+.1%} (median)"
    )


# --- against the released style ---


def released(model, paths, observed, val, epochs: int, batch_size: int, device, on_epoch) -> None:
    """Train as the field's released code does: each sample decoded anew, everything in float32 and NCHW.

    It validates before training and after each epoch on what `fit` does, so that both do the same work, and calls
    `on_epoch` then.
    """
    size = val.shape[-1]

    @torch.no_grad()
    def validate():
        model.eval()
        torch.sigmoid(model(((val.float() / 255 - mean) / std).to(device))).cpu()
        model.train()

    mean, std = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (mean, std))
    optimizer, seen = torch.optim.Adam(model.parameters(), lr=1e-5), np.zeros((len(paths), observed.shape[1]))
    validate()
    for _ in range(epochs):
        for index in torch.randperm(len(paths)).split(batch_size):
            batch = []
            for n in index.tolist():
                with Image.open(paths[n]) as image:
                    pixels = np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR))
                x = torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255
                x = x.flip(2) if torch.rand(()) < 0.5 else x
                batch.append((x - mean) / std)
            x, target = torch.stack(batch).to(device), observed[index].to(device)
            optimizer.zero_grad()
            probs = torch.sigmoid(model(x))
            terms = torch.zeros_like(probs)
            terms[target == 1] = -torch.log(probs[target == 1] + 1e-5)
            terms[target == 0] = -torch.log(1 - probs[target == 0] + 1e-5)
            loss = terms.mean()
            loss.backward()
            optimizer.step()
            seen[index.numpy()] = probs.detach().cpu().numpy()
            loss.item()
        validate()
        on_epoch(None)


VARIANTS = {"fit": {}}  # fields of `Training`, beside the defaults


def against_released(
    paths, size: int, epochs: int, device: torch.device, variants=VARIANTS, network: str = "resnet50"
) -> Iterator[tuple[str, float]]:
    """Yield (name, seconds per image) of the released style, and of `fit` with each of `variants`.

    It is the least over the epochs after the first, in which kernels are chosen and compiled. The images of `fit` are
    decoded before, as a prepared cache is made once for all runs.
    """
    import timm

    num, batch_size = len(paths), min(8, len(paths))
    rng = np.random.default_rng(0)
    observed = torch.zeros(num, 44, dtype=torch.int8)
    observed[torch.arange(num), torch.from_numpy(rng.integers(44, size=num))] = 1
    inputs = decoding.read(paths, size)
    network = timm.create_model(network, num_classes=44)
    ours = models.Network(models.Standardize(inputs), network, "fc")
    few = inputs[:1], np.eye(1, 44, dtype=np.int8)
    # On a CPU the processor's time, which other programs disturb least; all loops use the same threads.
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    fixed = {"epochs": epochs, "batch_size": batch_size, "lr": 1e-5, "flip": True, "accelerator": device.type}

    def seconds(work) -> float:
        ends = []
        work(lambda row: ends.append(clock()))  # an epoch ends with a read of the device
        return min(np.diff(ends)) / num

    def theirs(on_epoch):
        model = copy.deepcopy(network).to(device)
        released(model, paths, observed, few[0], epochs, batch_size, device, on_epoch)

    yield "released style", seconds(theirs)
    for name, own in variants.items():
        config = Training(**fixed | own)
        data = (inputs, observed), few, config
        yield (
            name,
            seconds(
                lambda on_epoch, data=data: train.fit(
                    copy.deepcopy(ours), build("an", 44), *data, progress=False, on_epoch=on_epoch
                )
            ),
        )


def photographs(root: str | Path, num: int) -> list[Path]:
    paths = sorted(Path(root).rglob("*.jpg"))[:num]
    if len(paths) < num:
        raise click.ClickException(f"{root} has {len(paths)} JPEGs, {num} are needed")
    return paths


def report(paths: list[Path], size: int, epochs: int, device: torch.device) -> None:
    where = name_of(device) if device.type == "cuda" else f"{cpu_name()}, {torch.get_num_threads()} threads"
    print(f"\nReleased style against fit, ResNet-50, {len(paths)} photographs at {size}, batch 8; {where}")
    (_, theirs), (_, ours) = against_released(paths, size, epochs, device)
    print(f"  {theirs:.3f} s and {ours:.3f} s an image: {theirs / ours:.2f}x")


@click.command(help=__doc__)
@click.option("--root", type=click.Path(exists=True, file_okay=False), help="Folder with photographs (JPEG).")
@click.option("--size", default=448, show_default=True)
@click.option("--images", "num", default=16, show_default=True)
@click.option("--repeats", default=6, show_default=True)
def main(root, size, num, repeats):
    threads = torch.get_num_threads()
    overhead(repeats)
    torch.set_num_threads(threads)
    if root is None:
        print("\nReleased style against fit: not run, it needs --root with photographs")
        return
    report(photographs(root, num), size, 2, torch.device("cpu"))
    if torch.cuda.is_available():
        report(photographs(root, max(num, 256)), size, 4, torch.device("cuda"))
    else:
        print(f"\nThe GPU part was not run: this machine ({os.cpu_count()} cores) has none.")


if __name__ == "__main__":
    main()
