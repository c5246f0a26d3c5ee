"""Checkpoints of a training in progress: complete or absent, the last two kept, and nothing in them can run code."""

import hashlib
import os
import pickle
import warnings
from pathlib import Path

import torch

KEEP = 2


def files(folder: Path) -> list[Path]:
    """Return the checkpoints of one training, newest first, named `epoch-<number>-<SHA-256 of the content>.pt`.

    A file whose writing was interrupted has another name and is not among them.
    """
    return sorted(folder.glob("epoch-*.pt"), reverse=True)


def save(folder: Path, epoch: int, state: dict) -> None:
    """Write the state after `epoch` and delete all but the last two.

    The file appears under its name in one rename, after its content has reached the disk.

    Args:
        state: tensors, numbers, texts, None, and lists, tuples and dicts of these, which a safe load reads back.

    Raises:
        OSError: the checkpoint cannot be written, e.g. the disk is full; older ones are intact.
    """
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / "unfinished.tmp"
    try:
        with open(unfinished, "w+b") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
            path = folder / f"epoch-{epoch:06d}-{_digest(file)}.pt"
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)  # there only if it could not be written
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)  # makes the rename last
    finally:
        os.close(handle)
    for old in files(folder)[KEEP:]:
        old.unlink()


def latest(folder: Path) -> Path | None:
    """Return the newest intact checkpoint; warn about each newer one that is damaged."""
    for path in files(folder):
        with open(path, "rb") as file:
            if path.stem.rpartition("-")[2] == _digest(file):
                return path
        warnings.warn(f"checkpoint {path} is damaged: using the previous one", stacklevel=2)
    return None


def load(path: Path) -> dict:
    """Read a checkpoint onto the CPU.

    Raises:
        ValueError: the file holds more than tensors and plain values; nothing in it was executed.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(
            f"{path} is not a checkpoint of this project: it is damaged, or holds objects whose loading would run code "
            f"({str(error).splitlines()[0]}). Delete it to train from the start."
        ) from error


def _digest(file) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()
