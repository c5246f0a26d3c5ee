"""Checkpoints of a training under way: whole or absent, the last two kept, and nothing in them can run code."""

from __future__ import annotations

import errno
import hashlib
import os
import pickle
import shutil
import warnings
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

KEEP = 2


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one training, files `epoch-<number>-<SHA-256 of the content>.pt` in a folder of their own."""

    folder: Path

    def files(self) -> list[Path]:
        """What there is, newest first; a file whose writing was interrupted has another name and is none of them."""
        return sorted(self.folder.glob("epoch-*.pt"), reverse=True)

    def save(self, epoch: int, state: dict) -> Path:
        """Write the state after `epoch` and delete all but the last two.

        The file appears under its name in one rename, after its content has reached the disk.

        Args:
            state: tensors, numbers, texts, None, and lists, tuples and dicts of these; numpy becomes plain.

        Raises:
            TypeError: something else is in `state`, which a safe load would refuse.
            OSError: it cannot be written, e.g. the disk is full; the older ones are intact.
        """
        state = _plain(state, "state")
        make(self.folder)
        unfinished = self.folder / "unfinished.tmp"
        try:
            with open(unfinished, "w+b") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
                path = self.folder / f"epoch-{epoch:06d}-{_digest(file)}.pt"
            unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        _sync(self.folder)
        for old in self.files()[KEEP:]:
            old.unlink()
        return path

    def latest(self) -> Path | None:
        """The newest file that is whole; warns of each newer one that is not."""
        for path in self.files():
            try:
                with open(path, "rb") as file:
                    if path.stem.rpartition("-")[2] == _digest(file):
                        return path
                reason = "its content is not what was written"
            except OSError as error:
                reason = str(error)
            warnings.warn(f"checkpoint {path} is damaged ({reason}): taking the one before", stacklevel=2)
        return None

    def load(self) -> tuple[Path, dict] | None:
        """The newest state that is whole and safe, with its file; None if there is none."""
        path = self.latest()
        return None if path is None else (path, load(path))


def load(path: str | Path) -> dict:
    """Read a checkpoint onto the CPU.

    Raises:
        ValueError: the file holds more than tensors and plain values; nothing in it was executed.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(
            f"{path} is no checkpoint of this project: it is damaged, or holds objects whose loading would run code "
            f"({str(error).splitlines()[0]}). Delete it to train from the start."
        ) from error


def make(folder: Path) -> None:
    """Make a folder and its parents, also while another process removes those that are empty."""
    for _ in range(100):
        with suppress(FileNotFoundError):
            return folder.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)


def check_space(folder: Path, needed: int) -> None:
    """Raise OSError if `needed` bytes do not fit on the disk of `folder`, which need not be there yet."""
    free = shutil.disk_usage(next(place for place in (folder, *folder.parents) if place.exists())).free
    if free < needed:
        raise OSError(
            errno.ENOSPC,
            f"about {needed / 1e6:.0f} MB are needed for checkpoints and results, {free / 1e6:.0f} MB are free: make "
            "room, or choose another folder for runs (root=..., spml train --runs-dir)",
            str(folder),
        )


def size_of(tensors: Iterable[Tensor]) -> int:
    """Bytes."""
    return sum(t.numel() * t.element_size() for t in tensors)


def _plain(value, where: str):
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    if isinstance(value, dict):
        return {k: _plain(v, f"{where}[{k!r}]") for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_plain(v, f"{where}[{n}]") for n, v in enumerate(value))
    if value is None or isinstance(value, Tensor | str | bool | int | float):
        return value
    raise TypeError(
        f"{where} is a {type(value).__name__}, which no safe load reads back: keep tensors, numbers, texts, lists and "
        "dicts in the state of a method (see get_extra_state)"
    )


def _digest(file) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(folder: Path) -> None:
    """Make a rename last; there are systems whose folders cannot be opened, where it is up to them."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
