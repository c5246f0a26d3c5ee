"""What was computed around a run, kept in files: asked for again, it is read."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from spml_core.landscape.flatness import mean_rise, width
from spml_core.landscape.hessian import Curvature, curvature
from spml_core.landscape.problem import Problem, of_run
from spml_core.landscape.sweep import Landscape, line, surface
from spml_core.runs import Run
from spml_core.train.device import threads


class Around:
    """Landscapes and curvature around a run's best weights, in files named by the run and a key of what was asked.

    They are computed by as many threads as the run was trained by: small networks are no faster by all cores, and ten
    times slower where another process wants them, too.

    Args:
        run: a finished run.
        folder: where the files are kept.
        problem: options of `of_run`: num_images, seed, batch_norm, device, cache.
    """

    def __init__(self, run: Run, folder: str | Path, **problem):
        self.run, self.folder, self._options = run, Path(folder), problem

    @cached_property
    def problem(self) -> Problem:
        """Made when something has to be computed."""
        return of_run(self.run, **self._options)

    def line(self, alphas, directions=(0, 1, 2), **options) -> Landscape:
        """`landscape.line`; options: executor, chunk, progress."""
        return self._landscape(line, alphas, directions, options)

    def surface(self, alphas, directions=(0, 1), **options) -> Landscape:
        """`landscape.surface` on a square grid; options: executor, chunk, progress."""
        return self._landscape(surface, alphas, directions, options)

    def curvature(self, loss: str, *, progress: bool = True, **options) -> Curvature:
        """`landscape.curvature`; options: k, num_vectors, tol, seed."""
        path = self._path("curvature", "json", [loss, options])
        if not path.exists():
            with threads(self.run.config["threads"]):
                found = dataclasses.asdict(curvature(self.problem, loss, progress=progress, **options))
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f"{path.name}.{os.getpid()}.part")
            draft.write_text(json.dumps(found | {"top": found["top"].tolist()}, indent=1) + "\n")
            draft.replace(path)
        found = json.loads(path.read_text())
        return Curvature(**found | {"top": np.array(found["top"])})

    def flatness(
        self, alphas, directions=(0, 1, 2), *, radius=0.5, delta=0.1, progress=True, **options
    ) -> pd.DataFrame:
        """Measures of a minimum, a row a loss: loss, centre, rise, width, top, trace, trace_error.

        Args:
            alphas, directions: of the lines; rise and width are means over them.
            radius, delta: of `mean_rise` and `width`; a measure is NaN where a line does not go far enough for it.
            options: of `curvature`.
        """
        lines, rows = self.line(alphas, directions, progress=progress), []
        for loss, values in lines.values.items():
            found = self.curvature(loss, progress=progress, **options)
            rise = np.mean([mean_rise(lines.alphas, one, radius) for one in values])
            wide = np.mean([width(lines.alphas, one, delta) for one in values])
            centre = values[0, np.abs(lines.alphas).argmin()]
            rows.append((loss, centre, rise, wide, found.top[0], found.trace, found.trace_error))
        columns = ["loss", "centre", "rise", "width", "top", "trace", "trace_error"]
        return pd.DataFrame(rows, columns=columns)

    def _landscape(self, compute, alphas, directions, options) -> Landscape:
        if not all(isinstance(direction, int) for direction in directions):
            raise ValueError(
                f"directions are seeds here, got {directions}: give tensors to landscape.{compute.__name__}"
            )
        steps = np.asarray(alphas, float).tolist()
        path = self._path(compute.__name__, "safetensors", [steps, list(directions)])
        if path.exists():
            try:
                return Landscape.load(path)
            except ValueError:  # interrupted: the rest is computed
                pass
        with threads(self.run.config["threads"]):
            return compute(self.problem, alphas, directions=directions, path=path, **options)

    def _path(self, kind: str, ending: str, asked: list) -> Path:
        options = {k: v for k, v in self._options.items() if k not in ("device", "cache")}
        content = hashlib.sha256(json.dumps([options, asked], sort_keys=True).encode())
        content.update(
            (self.run.path / "model.safetensors").read_bytes()
        )  # trained anew, it is another minimum
        return self.folder / f"{self.run.path.name}-{kind}-{content.hexdigest()[:12]}.{ending}"
