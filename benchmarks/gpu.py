"""What a GPU gains, and whether everything works there: at most six minutes.

    python -m benchmarks.gpu [--root path/to/voc_subset]
    python -m benchmarks.gpu --tiny        the same at a small size, which a CPU does in a minute

Each part runs in a process of its own, within its share of the time. Every number is written as it comes, so nothing
is lost when a part fails, or all of it is stopped. Without --root the images are made up.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
import torch
from PIL import Image

from benchmarks import data, losses, resume, trainer
from spml_core.cli.text import table
from spml_core.paths import locate, write_whole
from spml_core.runs import run, versions
from spml_core.runs.record import finished

TOTAL = 360  # seconds
PATIENCE = 5  # how many times as long the small sizes may take, on a CPU that does other work
SPAWN = get_context("spawn")  # CUDA does not survive a fork
ALONE = {"precision": "32-true", "channels_last": False}
BF16 = {"precision": "bf16-mixed"}
VARIANTS = {
    "fit, float32": ALONE | {"tf32": False},
    "fit, TF32": ALONE,
    "fit, bf16": BF16 | {"channels_last": False},
    "fit, bf16, channels_last": BF16,
    "fit, bf16, channels_last, compile": BF16 | {"compile": True},
}
COMPILED = ("gr", "em", "hill")


class Work(NamedTuple):
    """The inputs of each part: the device, whether everything is small, images, and a temporary folder."""

    device: str
    tiny: bool
    paths: list[Path]
    folder: Path


Rows = Iterator[tuple[str, float | str, str]]  # what was measured, its value and unit


def loss_functions(work: Work) -> Rows:
    shape, pairs = ((64, 80), 3) if work.tiny else ((4096, 9605), 20)
    for name in losses.PURE:
        yield from loss_function(name, losses.on_labels(name, shape, work.device), shape, pairs, work.device)
    for name in COMPILED[:1] if work.tiny else COMPILED:
        loss = losses.losses.compiled(losses.on_labels(name, shape, work.device))
        yield from loss_function(f"{name}, compiled", loss, shape, pairs, work.device)


def loss_function(name: str, loss, shape, pairs: int, device: str) -> Rows:
    of = f"{name}, {shape[0]} x {shape[1]}"
    try:
        spent = losses.times(loss, shape, pairs, device)
        yield of, 1000 * statistics.median(own for own, _ in spent), "ms"
        yield of, statistics.median(own / other for own, other in spent), "x BCE with logits"
        yield of, losses.peak_memory(loss, shape, device), "tensors beyond input and gradient"
    except RuntimeError as error:  # out of memory, say: the others can still be measured
        yield of, f"{type(error).__name__}: {str(error).splitlines()[0]}", ""


def loading(work: Work) -> Rows:
    found = data.speeds(work.paths, 64 if work.tiny else 224, work.device)
    prepared, decoded = (min(column) for column in zip(*found["pairs"], strict=True))
    yield "prepared pixels", len(work.paths) / prepared, "images a second"
    yield "decoded from files", len(work.paths) / decoded, "images a second"


def epoch_on_features(work: Work) -> Rows:
    file, images = work.folder / "features.npy", 2_000 if work.tiny else data.IMAGES
    data.write_features(file, images)
    found = data.train(file, work.device)
    yield f"epoch of {images} x {data.WIDTH}, {data.CLASSES} classes", min(found["seconds"]), "s"
    yield "peak memory of the process", found["peak"] / 2**20, "GiB"
    if work.device == "cuda":
        yield "peak memory of the GPU", torch.cuda.max_memory_allocated() / 2**30, "GiB"


def one_process(work: Work) -> Rows:
    """Compare DDP with a single process to the same training without it."""
    alone = run(resume.experiment("gr", work.device), root=work.folder / "alone", progress=False)
    yield "test mAP, alone", alone.summary["test_map"], "%"
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "1",
        "--no-python",
    ]
    program = "import sys; from benchmarks import gpu; gpu.train_by_ddp(*sys.argv[1:])"
    # lightning-fabric wraps a single process only if its own launcher asks for a strategy.
    asked = {"LT_CLI_USED": "1", "LT_ACCELERATOR": work.device, "LT_DEVICES": "1", "LT_STRATEGY": "ddp"}
    command = [*launcher, sys.executable, "-c", program, work.device, str(work.folder / "ddp")]
    printed = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True)
    if printed.returncode:
        raise RuntimeError(printed.stderr[-2000:])
    backend, test_map = printed.stdout.split()[-2:]
    yield f"test mAP, DDP by {backend}", float(test_map), "%"


def train_by_ddp(device: str, folder: str) -> None:
    trained = run(resume.experiment("gr", device), root=folder, progress=False)
    print(torch.distributed.get_backend(), trained.summary["test_map"])


def resuming(work: Work) -> Rows:
    wanted = resume.experiment("gr", work.device)
    whole = run(wanted, root=work.folder / "whole", progress=False)
    yield "test mAP, undisturbed", whole.summary["test_map"], "%"
    root = work.folder / "killed"
    code = resume.trained(wanted, root, ("step", resume.STEPS // 2), "spawn")
    if code != -signal.SIGKILL or finished(root):
        raise RuntimeError(f"the training was to be killed half way; exit code {code}")
    yield (
        "test mAP, killed half way and resumed",
        run(wanted, root=root, progress=False).summary["test_map"],
        "%",
    )


def training(work: Work) -> Rows:
    paths, size, network = (
        (work.paths[:8], 64, "test_resnet") if work.tiny else (work.paths[:256], 448, "resnet50")
    )
    device = torch.device(work.device)
    baseline = None
    for name, seconds in trainer.against_released(paths, size, 3, device, VARIANTS, network):
        baseline = baseline or seconds
        yield name, 1 / seconds, f"images a second, {network} at {size}"
        yield name, baseline / seconds, "x released style"


PARTS = {  # function, seconds at most
    "losses": (loss_functions, 80),
    "loading": (loading, 40),
    "features": (epoch_on_features, 50),
    "DDP": (one_process, 50),
    "resume": (resuming, 50),
    "trainer": (training, 150),
}


def measure(part: str, work: Work, seconds: float) -> Iterator[dict]:
    """Yield the rows of a part, and its error if there is one."""
    receiver, sender = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=send, args=(part, work, sender))
    process.start()
    sender.close()
    end = time.monotonic() + seconds
    try:
        while receiver.poll(max(end - time.monotonic(), 0)):
            yield receiver.recv()
        yield {"error": f"stopped after its {seconds:.0f} s"}
    except EOFError:  # it is done
        process.join()
        if process.exitcode:
            yield {"error": f"ended with exit code {process.exitcode}"}
    finally:
        if process.is_alive():
            with suppress(ProcessLookupError):  # it has not begun
                # torchrun ends what it started; SIGKILL would leave that behind.
                os.killpg(process.pid, signal.SIGTERM)
            process.join(5)
            process.kill()


def send(part: str, work: Work, sender) -> None:
    os.setsid()
    try:
        for what, value, unit in PARTS[part][0](work):
            sender.send({"what": what, "value": value, "unit": unit})
    except Exception:
        sender.send({"error": traceback.format_exc()})


def make_up(folder: Path, images: int) -> list[Path]:
    """Write images of 500 x 375 pixels: coarse noise, which JPEG compresses about as well as photographs."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for n in range(images):
        coarse = Image.fromarray(rng.integers(0, 256, (47, 63, 3), np.uint8))
        coarse.resize((500, 375), Image.Resampling.BICUBIC).save(folder / f"{n}.jpg")
    return sorted(folder.glob("*.jpg"))


@click.command(help=__doc__)
@click.option("--root", type=click.Path(exists=True, file_okay=False), help="Folder with photographs (JPEG).")
@click.option("--tiny", is_flag=True, help="Small sizes.")
@click.option("--output", default="runs/gpu.json", show_default=True, type=click.Path(dir_okay=False))
def main(root, tiny, output):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not tiny:
        raise click.ClickException("there is no GPU; --tiny does all of it at a small size")
    os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # torch's profiler says nothing of use
    file, start, patience = locate(output), time.monotonic(), PATIENCE if tiny else 1
    file.parent.mkdir(parents=True, exist_ok=True)
    name = torch.cuda.get_device_name() if device == "cuda" else trainer.cpu_name()
    said = {"device": name, "cores": os.cpu_count(), "tiny": tiny, "versions": versions(), "parts": {}}
    with tempfile.TemporaryDirectory() as folder:
        number = 16 if tiny else 1024
        paths = trainer.photographs(root, number) if root else make_up(Path(folder) / "images", number)
        for part, (_, most) in PARTS.items():
            (own := Path(folder) / part).mkdir()
            begun, kept = time.monotonic(), {"rows": [], "error": None, "seconds": None}
            said["parts"][part] = kept
            left = min(patience * most, patience * TOTAL - (begun - start))
            for row in measure(part, Work(device, tiny, paths, own), left):
                if "error" in row:
                    kept["error"] = row["error"]
                else:
                    kept["rows"].append(row)
                write_whole(file, json.dumps(said, indent=1))
            kept["seconds"] = round(time.monotonic() - begun, 1)
            write_whole(file, json.dumps(said, indent=1))
            click.echo(f"{part}: {kept['seconds']} s{', failed' if kept['error'] else ''}", err=True)
    click.echo(report(said))
    sys.exit(any(kept["error"] for kept in said["parts"].values()))


def report(said: dict) -> str:
    rows = [("part", "what", "value", "unit")]
    for part, kept in said["parts"].items():
        for row in kept["rows"]:
            value = row["value"] if isinstance(row["value"], str) else f"{row['value']:.4g}"
            rows.append((part, row["what"], value, row["unit"]))
        if kept["error"]:
            rows.append((part, "FAILED", kept["error"].strip().splitlines()[-1], ""))
    return f"{said['device']}, {said['cores']} cores\n\n{table(rows)}"


if __name__ == "__main__":
    main()
