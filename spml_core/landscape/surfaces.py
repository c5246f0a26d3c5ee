"""Losses along lines and on grids. Computing and plotting are apart: the result is a file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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

    def frame(self) -> pd.DataFrame:
        """Return one row per point: alpha, beta (surface) or direction (lines), and a column for each loss."""
        if self.betas is None:
            axes = {"direction": [str(d) for d in self.meta["directions"]], "alpha": self.alphas}
        else:
            axes = {"alpha": self.alphas, "beta": self.betas}
        points = pd.MultiIndex.from_product(axes.values(), names=axes).to_frame(index=False)
        return points.assign(**{name: value.ravel() for name, value in self.values.items()})

    def rise(self, loss: str) -> np.ndarray:
        """Return a loss above its value at the trained weights; NaN is a hole."""
        return self.values[loss] - self.meta["centre"][loss]

    @classmethod
    def load(cls, path: str | Path) -> Landscape:
        """Read a finished file.

        Raises:
            ValueError: some of its points are not computed yet.
        """
        meta, arrays = _read(path)
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
        values = {name: arrays[f"loss/{name}"].reshape(shape) for name in meta["losses"]}
        return cls(alphas, betas, values, meta)


def line(problem: Problem, alphas, directions: Sequence = (0, 1, 2), **options) -> Landscape:
    """Return the losses along straight lines through the model's weights (EM Fig. 5a).

    Args:
        alphas: (A,) steps; 1 is as far as the weights are large.
        directions: seeds of random directions, or directions as tensors by parameter name. Take three or more: one
            direction says little about a space of thousands, and the band over them is the figure's error.
        options: path, executor, chunk, progress: see `surface`.
    """
    alphas = _steps("alphas", alphas)
    points = np.concatenate([np.outer(alphas, unit) for unit in np.eye(len(directions))])
    meta = {"kind": "line", "alphas": alphas.tolist(), "betas": None}
    return _compute(problem, directions, points, meta, **options)


def surface(problem: Problem, alphas, betas=None, directions: Sequence = (0, 1), **options) -> Landscape:
    """Return the losses on a grid spanned by two directions (EM Fig. 5b, 5c).

    Args:
        alphas, betas: (A,), (B,) steps along the first and the second direction; betas None = alphas.
        directions: two seeds, or directions as tensors by parameter name. The same seeds for every method.
        path: file (.safetensors) that holds the result. It is written after each chunk, in one rename; computing
            again continues it, and a complete one is loaded.
        executor: any `concurrent.futures`-style executor, for large models; None = here.
        chunk: points computed between two writes, and given to the executor at once; 25 by default.
        progress: show a bar, where there is a terminal or a notebook; True by default.

    Raises:
        ValueError: not two directions, steps that are not finite, or the file holds something else.
    """
    alphas = _steps("alphas", alphas)
    betas = alphas if betas is None else _steps("betas", betas)
    if len(directions) != 2:
        raise ValueError(f"a surface has two directions, got {len(directions)}")
    points = np.stack(np.meshgrid(alphas, betas, indexing="ij"), -1).reshape(-1, 2)
    meta = {"kind": "surface", "alphas": alphas.tolist(), "betas": betas.tolist()}
    return _compute(problem, directions, points, meta, **options)


def _steps(name: str, values) -> np.ndarray:
    values = np.asarray(values, float)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise ValueError(f"{name} must be a list of finite steps, e.g. np.linspace(-1, 1, 51)")
    return values


def _compute(
    problem, directions, points, meta, path=None, executor=None, chunk=25, progress=True
) -> Landscape:
    steps = resolve(problem.model, directions)
    meta |= {
        "directions": [d if isinstance(d, int) else f"given {n}" for n, d in enumerate(directions)],
        "normalisation": "filter; tensors of one axis untouched",
        "batch_norm": problem.batch_norm,
        "losses": list(problem.losses),
        "num_images": len(problem.inputs),
        "note": problem.note,
        "fingerprint": _fingerprint(problem, steps, points),
        "centre": {k: None if np.isnan(v) else v for k, v in problem.copy().values().items()},
    }
    meta = json.loads(json.dumps(meta))  # as it will be read
    arrays = {f"loss/{name}": np.full(len(points), np.nan) for name in problem.losses}
    arrays["done"] = np.zeros(len(points), np.uint8)
    path = None if path is None else Path(path)
    if path is not None and path.exists():
        before, arrays = _read(path)
        _check_same(path, before, meta)

    todo = np.flatnonzero(arrays["done"] == 0)
    chunks = [todo[n : n + chunk] for n in range(0, len(todo), chunk)]
    work = partial(_values_at, problem, steps)
    results = (map if executor is None else executor.map)(work, [points[cells] for cells in chunks])
    shown = {"desc": f"loss {meta['kind']}", "unit": "point", "leave": False}
    disabled = None if progress else True
    with tqdm(total=len(points), initial=len(points) - len(todo), disable=disabled, **shown) as bar:
        for cells, values in zip(chunks, results, strict=True):
            for name in problem.losses:
                arrays[f"loss/{name}"][cells] = values[name]
            arrays["done"][cells] = 1
            if path is not None:
                with replacing(path) as draft:
                    save_file(arrays, draft, {"landscape": json.dumps(meta, allow_nan=False)})
            bar.update(len(cells))
    return Landscape._of(meta, arrays)


@torch.no_grad()
def _values_at(problem: Problem, directions: list[dict[str, Tensor]], points: np.ndarray) -> dict[str, list]:
    """Return the losses at centre + sum of point[k] * directions[k], for each point (P, K).

    The weights of a copy are set in place: on a CPU torch.func.vmap over stacked weights takes two to four times as
    long a point (grouped convolutions, a working set beyond the caches), functional_call 3 % longer.
    """
    problem = problem.copy()
    weights = dict(problem.model.named_parameters())
    moved = {name: weights[name].clone() for direction in directions for name in direction}
    found = []
    for point in points:
        for name, centre in moved.items():
            weights[name].copy_(centre)
            for size, direction in zip(point, directions, strict=True):
                if size and name in direction:
                    weights[name].add_(direction[name], alpha=float(size))
        found.append(problem.values())
    return {name: [values[name] for values in found] for name in problem.losses}


def _fingerprint(problem: Problem, directions: list[dict[str, Tensor]], points: np.ndarray) -> str:
    """Return the SHA-256 of weights, inputs, directions and points."""
    tensors = {f"model/{k}": v for k, v in problem.model.state_dict().items()} | {"inputs": problem.inputs}
    tensors |= {f"{n}/{k}": v for n, direction in enumerate(directions) for k, v in direction.items()}
    content = hashlib.sha256(points.tobytes())
    for name, tensor in sorted(tensors.items()):
        flat = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
        content.update(name.encode() + flat.numpy().tobytes())
    return content.hexdigest()


def _check_same(path: Path, before: dict, now: dict) -> None:
    differ = [key for key in now if key != "centre" and before.get(key) != now[key]]
    if not differ:
        # Losses are functions, known by their name alone: their values at the centre tell whether they are the same.
        differ = [
            f"value of {name!r} at the centre, {stored} against {now['centre'][name]}"
            for name, stored in before["centre"].items()
            if not np.isclose(*np.array([now["centre"][name], stored], float), 1e-4, 1e-7, equal_nan=True)
        ]
    if differ:
        what = ", ".join(differ).replace("fingerprint", "fingerprint (weights, images or directions)")
        raise ValueError(
            f"{path} holds another landscape; different: {what}. Delete it, or give another path."
        )


def _read(path: str | Path) -> tuple[dict, dict[str, np.ndarray]]:
    with safe_open(path, "numpy") as file:
        names = file.keys()
        return json.loads(file.metadata()["landscape"]), {name: file.get_tensor(name) for name in names}


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give the path of a draft, which takes the place of `path` in one rename when it is written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    yield draft
    draft.replace(path)
