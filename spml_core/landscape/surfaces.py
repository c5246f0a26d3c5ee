"""Losses along lines and on grids. Computing is separate from plotting: the result is a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from safetensors import safe_open
from safetensors.numpy import save
from tqdm.auto import tqdm

from spml_core.landscape.directions import random_direction
from spml_core.landscape.problem import Problem
from spml_core.paths import write_whole

CHUNK = 25  # points computed between two writes


@dataclass(frozen=True)
class Landscape:
    """Losses around a model.

    Attributes:
        alphas: (A,) steps along a direction; for a surface, along the first.
        betas: (A,) steps along the second direction; None for lines.
        values: by loss; for lines (directions, A), for a surface (A, A) with `values[...][i, j]` at alphas[i],
            betas[j]. NaN is a hole: the loss was not finite there.
        meta: what was computed, as JSON: directions (seeds), batch_norm, number of images, where the weights come from,
            the losses at the centre.
    """

    alphas: np.ndarray
    betas: np.ndarray | None
    values: dict[str, np.ndarray]
    meta: dict

    def frame(self) -> pd.DataFrame:
        """Return one row per point: alpha, beta (surface) or direction (lines), and a column for each loss."""
        if self.betas is None:
            axes = {"direction": map(str, self.meta["directions"]), "alpha": self.alphas}
        else:
            axes = {"alpha": self.alphas, "beta": self.betas}
        points = pd.MultiIndex.from_product(axes.values(), names=axes).to_frame(index=False)
        return points.assign(**{name: value.ravel() for name, value in self.values.items()})

    def rise(self, loss: str) -> np.ndarray:
        """Return a loss minus its value at the trained weights; NaN is a hole."""
        return self.values[loss] - self.meta["centre"][loss]

    @classmethod
    def load(cls, path: str | Path) -> Landscape:
        """Return the landscape in a finished file.

        Raises:
            ValueError: some of its points are not computed yet.
        """
        meta, arrays = _read(path)
        if not arrays["done"].all():
            raise ValueError(
                f"{path}: {arrays['done'].sum()} of {arrays['done'].size} points are computed; for the rest, compute "
                "it again with this path"
            )
        return cls._of(meta, arrays)

    @classmethod
    def _of(cls, meta: dict, arrays: dict) -> Landscape:
        alphas, betas = (None if meta[name] is None else np.array(meta[name]) for name in ("alphas", "betas"))
        values = {name: arrays[f"loss/{name}"].reshape(-1, len(alphas)) for name in meta["losses"]}
        return cls(alphas, betas, values, meta)


def line(problem: Problem, alphas, directions=(0, 1, 2), path: Path | None = None) -> Landscape:
    """Return the losses along straight lines through the model's weights (EM Fig. 5a).

    Args:
        alphas: (A,) steps; 1 is a step as large as the weights.
        directions: seeds of random directions. Take three or more: one direction says little about a space of
            thousands, and the band over them is the figure's error.
        path: see `surface`.
    """
    points = np.concatenate([np.outer(alphas, unit) for unit in np.eye(len(directions))])
    return _compute(problem, "line", alphas, directions, points, path)


def surface(problem: Problem, alphas, directions=(0, 1), path: Path | None = None) -> Landscape:
    """Return the losses on a square grid spanned by two directions (EM Fig. 5b, 5c).

    Args:
        alphas: (A,) steps along each direction; 1 is a step as large as the weights.
        directions: two seeds, the same for every method.
        path: file (.safetensors) that holds the result. It is replaced every few points, atomically; computing again
            continues an incomplete file and loads a complete one.

    Raises:
        ValueError: not two directions, or the file holds something else.
    """
    if len(directions) != 2:
        raise ValueError(f"a surface has two directions, got {len(directions)}")
    points = np.stack(np.meshgrid(alphas, alphas, indexing="ij"), -1).reshape(-1, 2)
    return _compute(problem, "surface", alphas, directions, points, path)


def _compute(problem, kind, alphas, directions, points, path) -> Landscape:
    alphas = np.asarray(alphas, float).tolist()
    meta = {
        "kind": kind,
        "alphas": alphas,
        "betas": alphas if kind == "surface" else None,
        "directions": list(directions),
        "batch_norm": problem.batch_norm,
        "losses": list(problem.losses),
        "num_images": len(problem.inputs),
        "note": problem.note,
        "centre": {k: None if np.isnan(v) else v for k, v in problem.copy().values().items()},
    }
    meta = json.loads(json.dumps(meta))  # as it will be read
    arrays = {f"loss/{name}": np.full(len(points), np.nan) for name in problem.losses}
    arrays["done"] = np.zeros(len(points), np.uint8)
    if path is not None and path.exists():
        before, arrays = _read(path)
        _check_same(path, before, meta)

    todo = np.flatnonzero(arrays["done"] == 0)
    shown = {"desc": f"loss {kind}", "unit": "point", "leave": False, "disable": None}
    with tqdm(total=len(points), initial=len(points) - len(todo), **shown) as bar:
        for start in range(0, len(todo), CHUNK):
            cells = todo[start : start + CHUNK]
            for name, values in _values_at(problem, directions, points[cells]).items():
                arrays[f"loss/{name}"][cells] = values
            arrays["done"][cells] = 1
            if path is not None:
                write_whole(path, save(arrays, {"landscape": json.dumps(meta, allow_nan=False)}))
            bar.update(len(cells))
    return Landscape._of(meta, arrays)


@torch.no_grad()
def _values_at(problem: Problem, directions: Sequence[int], points: np.ndarray) -> dict[str, list]:
    """Return the losses at centre + sum of point[k] * directions[k], for each point (P, K).

    The weights of a copy are set in place: on a CPU torch.func.vmap over stacked weights takes two to four times as
    long per point (grouped convolutions, a working set beyond the caches), functional_call 3 % longer.
    """
    problem = problem.copy()
    steps = [random_direction(problem.model, seed) for seed in directions]
    weights = dict(problem.model.named_parameters())
    moved = {name: weights[name].clone() for name in steps[0]}
    found = []
    for point in points:
        for name, centre in moved.items():
            weights[name].copy_(centre)
            for size, step in zip(point, steps, strict=True):
                if size:
                    weights[name].add_(step[name], alpha=float(size))
        found.append(problem.values())
    return {name: [values[name] for values in found] for name in problem.losses}


def _check_same(path: Path, before: dict, now: dict) -> None:
    """Raise ValueError if a file holds another landscape: losses at the centre show other weights, images or losses."""
    differ = [key for key in now if key != "centre" and before.get(key) != now[key]]
    centres = [np.array(list(meta["centre"].values()), float) for meta in (now, before)]
    if not differ and not np.allclose(*centres, 1e-4, 1e-7, equal_nan=True):
        differ = ["losses at the centre (other weights, images or losses)"]
    if differ:
        raise ValueError(
            f"{path} holds another landscape; different: {', '.join(differ)}. Delete it, or give another path."
        )


def _read(path: str | Path) -> tuple[dict, dict[str, np.ndarray]]:
    with safe_open(path, "numpy") as file:
        names = file.keys()
        return json.loads(file.metadata()["landscape"]), {name: file.get_tensor(name) for name in names}
