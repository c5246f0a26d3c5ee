"""Losses along lines and on grids. Computing and plotting are apart: the result is a file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from safetensors import safe_open
from safetensors.numpy import save_file
from torch import Tensor
from tqdm.auto import tqdm

from spml_core.landscape.directions import resolve
from spml_core.landscape.problem import Problem


@dataclass(frozen=True)
class Landscape:
    """Losses around a model.

    Attributes:
        alphas: (A,) steps along a direction; of a surface along the first.
        betas: (B,) steps along the second direction; None for lines.
        values: by loss; lines (directions, A), a surface (A, B) with `values[...][i, j]` at alphas[i], betas[j]. NaN is
            a hole: the loss was not finite there.
        meta: what was computed, as JSON: directions (seeds), batch_norm, images, where the weights come from, the
            losses at the centre.
    """

    alphas: np.ndarray
    betas: np.ndarray | None
    values: dict[str, np.ndarray]
    meta: dict

    def band(self, loss: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean, minimum and maximum over the directions of lines, (A,) each; holes are left out."""
        if self.betas is not None:
            raise ValueError("a band is over the directions of lines; this is a surface")
        rows = np.ma.masked_invalid(self.values[loss])
        return tuple(np.ma.filled(statistic(0), np.nan) for statistic in (rows.mean, rows.min, rows.max))

    def frame(self) -> pd.DataFrame:
        """A row a point: alpha, beta (surface) or direction (lines), and a column for each loss."""
        if self.betas is None:
            names = [str(d) for d in self.meta["directions"]]
            second, first = np.meshgrid(names, self.alphas, indexing="ij")
            columns = {"direction": second.ravel(), "alpha": first.ravel()}
        else:
            first, second = np.meshgrid(self.alphas, self.betas, indexing="ij")
            columns = {"alpha": first.ravel(), "beta": second.ravel()}
        return pd.DataFrame(columns | {name: value.ravel() for name, value in self.values.items()})

    @classmethod
    def load(cls, path: str | Path) -> Landscape:
        """Read a finished file.

        Raises:
            ValueError: some of its points are not computed yet.
        """
        meta, arrays = _read(Path(path))
        if not arrays["done"].all():
            raise ValueError(
                f"{path}: {arrays['done'].sum()} of {arrays['done'].size} points are there; ask for the rest by "
                "computing it again with this path"
            )
        return cls._of(meta, arrays)

    @classmethod
    def _of(cls, meta: dict, arrays: dict) -> Landscape:
        alphas = np.array(meta["alphas"])
        betas = None if meta["betas"] is None else np.array(meta["betas"])
        shape = (len(meta["directions"]), len(alphas)) if betas is None else (len(alphas), len(betas))
        return cls(
            alphas, betas, {name: arrays[f"loss/{name}"].reshape(shape) for name in meta["losses"]}, meta
        )


def line(
    problem: Problem,
    alphas,
    directions: Sequence = (0, 1, 2),
    *,
    path=None,
    executor=None,
    chunk=25,
    progress=True,
) -> Landscape:
    """Losses along straight lines through the model's weights (EM Fig. 5a).

    Args:
        alphas: (A,) steps; 1 is as far as the weights are large.
        directions: seeds of random directions, or directions as tensors by parameter name. Take three or more: one
            direction says little about a space of thousands, and the band over them is the figure's error.
        path, executor, chunk, progress: see `surface`.
    """
    alphas, number = _steps("alphas", alphas), len(directions)
    points = np.zeros((number, len(alphas), number))
    for d in range(number):
        points[d, :, d] = alphas
    meta = {"kind": "line", "alphas": alphas.tolist(), "betas": None}
    return _compute(problem, directions, points.reshape(-1, number), meta, path, executor, chunk, progress)


def surface(
    problem: Problem,
    alphas,
    betas=None,
    directions: Sequence = (0, 1),
    *,
    path: str | Path | None = None,
    executor=None,
    chunk: int = 25,
    progress: bool = True,
) -> Landscape:
    """Losses on a grid spanned by two directions (EM Fig. 5b, 5c).

    Args:
        alphas, betas: (A,), (B,) steps along the first and the second direction; betas None = alphas.
        directions: two seeds, or directions as tensors by parameter name. The same seeds for every method.
        path: file (.safetensors) that holds the result. It is written after each chunk, in one rename; computing
            again continues it, and a complete one is loaded.
        executor: any `concurrent.futures`-style executor, for large models; None = here.
        chunk: points computed between two writes, and given to the executor at once.

    Raises:
        ValueError: not two directions, steps that are not finite, or the file holds something else.
    """
    alphas = _steps("alphas", alphas)
    betas = alphas if betas is None else _steps("betas", betas)
    if len(directions) != 2:
        raise ValueError(f"a surface has two directions, got {len(directions)}")
    points = np.stack(np.meshgrid(alphas, betas, indexing="ij"), -1).reshape(-1, 2)
    meta = {"kind": "surface", "alphas": alphas.tolist(), "betas": betas.tolist()}
    return _compute(problem, directions, points, meta, path, executor, chunk, progress)


def _steps(name: str, values) -> np.ndarray:
    values = np.asarray(values, float)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise ValueError(f"{name} must be a list of finite steps, e.g. np.linspace(-1, 1, 51)")
    return values


def _compute(problem, directions, points, meta, path, executor, chunk, progress) -> Landscape:
    steps = resolve(problem.model, directions)
    centre = problem.copy().values()
    meta |= {
        "directions": [d if isinstance(d, int) else f"given {n}" for n, d in enumerate(directions)],
        "normalisation": "filter; tensors of one axis untouched",
        "batch_norm": problem.batch_norm,
        "losses": list(problem.losses),
        "num_images": len(problem.inputs),
        "note": problem.note,
        "fingerprint": _fingerprint(problem, steps, points),
    }
    arrays = {f"loss/{name}": np.full(len(points), np.nan) for name in problem.losses}
    arrays["done"] = np.zeros(len(points), np.uint8)
    path = None if path is None else Path(path)
    if path is not None and path.exists():
        before, arrays = _read(path)
        _check_same(path, before, meta, centre)
    meta["centre"] = {name: None if np.isnan(value) else value for name, value in centre.items()}

    todo = np.flatnonzero(arrays["done"] == 0)
    chunks = np.split(todo, range(chunk, len(todo), chunk)) if len(todo) else []
    work = partial(_values_at, problem, steps)
    results = (map if executor is None else executor.map)(work, [points[c] for c in chunks])
    bar = tqdm(
        total=len(points),
        initial=len(points) - len(todo),
        desc=f"loss {meta['kind']}",
        unit="point",
        leave=False,
        disable=None if progress else True,
    )
    with bar:
        for cells, values in zip(chunks, results, strict=True):
            for name in problem.losses:
                arrays[f"loss/{name}"][cells] = values[name]
            arrays["done"][cells] = 1
            if path is not None:
                _write(path, meta, arrays)
            bar.update(len(cells))
    return Landscape._of(meta, arrays)


@torch.no_grad()
def _values_at(problem: Problem, directions: list[dict[str, Tensor]], points: np.ndarray) -> dict[str, list]:
    """Losses at centre + sum of point[k] * directions[k], for each point (P, K).

    The weights of a copy are set in place: on a CPU torch.func.vmap over stacked weights takes two to four times as
    long a point (grouped convolutions, a working set beyond the caches), functional_call 3 % longer.
    """
    problem = problem.copy()
    weights = dict(problem.model.named_parameters())
    moved = {name for direction in directions for name in direction}
    centre = {name: weights[name].clone() for name in moved}
    found = {name: [] for name in problem.losses}
    for point in points:
        for name, start in centre.items():
            weights[name].copy_(start)
            for size, direction in zip(point, directions, strict=True):
                if size and name in direction:
                    weights[name].add_(direction[name], alpha=float(size))
        for name, value in problem.values().items():
            found[name].append(value)
    return found


def _fingerprint(problem: Problem, directions: list[dict[str, Tensor]], points: np.ndarray) -> str:
    """SHA-256 of weights, inputs, directions and points."""
    tensors = {f"model/{k}": v for k, v in problem.model.state_dict().items()} | {"inputs": problem.inputs}
    for n, direction in enumerate(directions):
        tensors |= {f"{n}/{k}": v for k, v in direction.items()}
    content = hashlib.sha256(points.tobytes())
    for name, tensor in sorted(tensors.items()):
        content.update(
            name.encode() + tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        )
    return content.hexdigest()


def _check_same(path: Path, before: dict, now: dict, centre: dict[str, float]) -> None:
    stored = before.pop("centre")
    keys = (
        "kind",
        "alphas",
        "betas",
        "directions",
        "batch_norm",
        "losses",
        "num_images",
        "note",
        "fingerprint",
    )
    differ = [key for key in keys if before[key] != json.loads(json.dumps(now[key]))]
    if not differ:
        # Losses are functions, known by their name alone: their values at the centre tell whether they are the same.
        for name, value in centre.items():
            if not np.isclose(
                value, np.nan if stored[name] is None else stored[name], 1e-4, 1e-7, equal_nan=True
            ):
                differ.append(f"value of {name!r} at the centre, {stored[name]} against {value}")
    if differ:
        what = ", ".join(differ).replace("fingerprint", "fingerprint (weights, images or directions)")
        raise ValueError(
            f"{path} holds another landscape; different: {what}. Delete it, or give another path."
        )


def _read(path: Path) -> tuple[dict, dict[str, np.ndarray]]:
    with safe_open(path, "numpy") as file:
        return json.loads(file.metadata()["landscape"]), {
            name: file.get_tensor(name)
            for name in file.keys()  # noqa: SIM118  the file is no dict
        }


def _write(path: Path, meta: dict, arrays: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    save_file(arrays, draft, metadata={"landscape": json.dumps(meta, allow_nan=False)})
    draft.replace(path)
