"""Landscapes and curvature around a run, computed once and stored in files."""

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from spml_core.landscape.flatness import Curvature, curvature, mean_rise, width
from spml_core.landscape.problem import Problem, of_run
from spml_core.landscape.surfaces import Landscape, line, surface
from spml_core.paths import write_whole
from spml_core.runs import Run
from spml_core.train.device import threads


class Neighbourhood:
    """Landscapes and curvature around a run's best weights, in files named after the run and a key of the request.

    They are computed with as many threads as the run was trained with: with all cores, small networks are no faster,
    and ten times slower if another process uses the cores too.

    Args:
        run: a finished run.
        folder: where the files are stored.
        problem: options of `of_run`: num_images, batch_norm, device.
    """

    def __init__(self, run: Run, folder: str | Path, **problem):
        self.run, self.folder, self._options = run, Path(folder), problem

    @cached_property
    def problem(self) -> Problem:
        """The problem of the run, built when something has to be computed."""
        return of_run(self.run, **self._options)

    def line(self, alphas, directions=(0, 1, 2)) -> Landscape:
        """Return `landscape.line`."""
        return self._landscape(line, alphas, directions)

    def surface(self, alphas, directions=(0, 1)) -> Landscape:
        """Return `landscape.surface`."""
        return self._landscape(surface, alphas, directions)

    def curvature(self, loss: str, **options) -> Curvature:
        """Return `landscape.curvature`; options: num_vectors, tol."""
        path = self._path("hessian", "json", [loss, options])
        if not path.exists():
            with threads(self.run.config["threads"]):
                found = curvature(self.problem, loss, **options)
            write_whole(path, json.dumps(asdict(found), indent=1))
        return Curvature(**json.loads(path.read_text()))

    def flatness(self, alphas, directions=(0, 1, 2), *, radius=0.5, delta=0.1, **options) -> pd.DataFrame:
        """Return measures of a minimum, one row per loss: loss, centre, rise, width, top, trace, trace_error.

        Args:
            alphas, directions: of the lines; rise and width are means over them.
            radius, delta: of `mean_rise` and `width`; a measure is NaN if a line is too short for it.
            options: of `curvature`.
        """
        lines, rows = self.line(alphas, directions), []
        for loss, values in lines.values.items():
            found = self.curvature(loss, **options)
            row = {"loss": loss, "centre": values[0, np.abs(lines.alphas).argmin()]}
            row["rise"] = np.mean([mean_rise(lines.alphas, one, radius) for one in values])
            row["width"] = np.mean([width(lines.alphas, one, delta) for one in values])
            rows.append(row | {"top": found.top, "trace": found.trace, "trace_error": found.trace_error})
        return pd.DataFrame(rows)

    def _landscape(self, compute, alphas, directions) -> Landscape:
        steps = np.asarray(alphas, float).tolist()
        path = self._path(compute.__name__, "safetensors", [steps, list(directions)])
        with suppress(FileNotFoundError, ValueError):  # ValueError: interrupted, the rest is computed
            return Landscape.load(path)
        with threads(self.run.config["threads"]):
            return compute(self.problem, alphas, directions, path)

    def _path(self, kind: str, ending: str, asked: list) -> Path:
        options = {k: v for k, v in self._options.items() if k != "device"}
        content = hashlib.sha256(json.dumps([options, asked], sort_keys=True).encode())
        # A run that is trained again has another minimum.
        content.update((self.run.path / "model.safetensors").read_bytes())
        return self.folder / f"{self.run.path.name}-{kind}-{content.hexdigest()[:12]}.{ending}"
