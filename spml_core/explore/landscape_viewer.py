"""The landscape viewer: two stored surfaces of the loss on one scale, rotated, and sliced along a line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import ipywidgets as widgets
import numpy as np
from matplotlib.ticker import MaxNLocator

from spml_core import figures, methods
from spml_core.explore.choosing import NothingToShow, changes, name_of
from spml_core.explore.panel import Panel, choice, colors, offer, slider, table
from spml_core.landscape import Landscape
from spml_core.paths import command, locate
from spml_core.runs.record import Run

MESH = 25  # points of the drawn mesh along a side, whatever was computed; a slice has them all
LOSSES = {"own": "the method's own loss", "full_bce": "full-label BCE"}
SLICES = [("along direction 1", 0), ("along direction 2", 1)]
VIEW = {"projection": "3d", "computed_zorder": False}
COLUMNS = {
    "surface": "",
    "at": "slice at",
    "highest": "highest",
    "lowest": "lowest",
    "centre": "at the trained weights",
}


@dataclass(frozen=True)
class Surface:
    """A stored surface, and what it is of.

    Attributes:
        name: e.g. "GR, seed 0 (digits)". label: what its picture is called.
        details, key: what tells it from others of the same name.
    """

    name: str
    label: str
    method: str
    landscape: Landscape
    details: tuple[str, ...] = ()
    key: str = ""

    def rise(self, loss: str) -> np.ndarray:
        """(A, B) loss above its value at the trained weights; NaN is a hole."""
        return self.landscape.rise(loss)


def landscape_viewer(
    folder: str | Path = "runs/landscapes",
    *,
    surfaces: Mapping[str, Landscape] | None = None,
    loss: str = "own",
    elevation: float = 30,
    azimuth: float = -60,
) -> LandscapeViewer:
    """Return the panel of loss surfaces (EM Fig. 5), to be shown as the last value of a cell.

    It shows how far the loss rises above its value at the trained weights, for two surfaces on one scale, and beside
    them a slice through both at the marked line. It reads files; `spml_core.landscape` computes them.

    Args:
        folder: of stored landscapes; every finished surface in it is offered.
        surfaces: these, by name, instead of a folder; the first two are shown. A name that is a method has its colour.
        loss: at first; "own", "full_bce", or another one that both surfaces have.
        elevation, azimuth: at first, degrees.

    Raises:
        NothingToShow: there is no finished surface.
        ValueError: a surface is of lines, or no loss is common to both.
    """
    found = stored(folder) if surfaces is None else [_named(*item) for item in surfaces.items()]
    if not found:
        raise NothingToShow(
            f"no surface of a loss is stored in {folder} yet: notebook 08 computes some ({command()} figures 08)"
        )
    return LandscapeViewer(found, loss, elevation, azimuth)


def stored(folder: str | Path) -> list[Surface]:
    """Return the finished surfaces of a folder, by file.

    The names of surfaces that would be called the same end in what differs: settings, images, batch norm, steps.
    """
    found = []
    for file in sorted(locate(folder).glob("*-surface-*.safetensors")):
        with suppress(ValueError):  # not finished
            found.append(_of_file(file, Landscape.load(file)))
    distinct = []
    for surface in found:
        alike = [set(other.details) for other in found if other.name == surface.name]
        own = [detail for detail in surface.details if detail not in set.intersection(*alike)]
        distinct.append(replace(surface, name=", ".join([surface.name, *own])))
    names = [surface.name for surface in distinct]
    return [replace(s, name=f"{s.name}, {s.key}") if names.count(s.name) > 1 else s for s in distinct]


def _of_file(file: Path, landscape: Landscape) -> Surface:
    """Name a surface by its run, or, where there is no such run beside the folder, by what the file says."""
    note, steps = landscape.meta["note"], f"{len(landscape.alphas)} × {len(landscape.betas)} steps"
    method, run = note.get("method", ""), Run(file.parent.parent / note.get("run", file.stem))
    label = figures.label(method)
    name = f"{label}, {run.path.name}"
    settings = [f"{k}={tuple(v) if isinstance(v, list) else v}" for k, v in note.get("params", {}).items()]
    if (run.path / "config.json").exists():
        name, settings = f"{name_of(run)} ({run.config['dataset']})", changes(run)
    elif parts := re.fullmatch(r"(.+)-[^-]+-s(\d+)-[^-]+", run.path.name):
        name = f"{label}, seed {parts[2]} ({parts[1]})"
    kind = [f"{landscape.meta['num_images']} images", f"batch norm {landscape.meta['batch_norm']}", steps]
    key = f"{run.path.name.rpartition('-')[2]}, {file.stem.rpartition('-')[2]}"
    return Surface(name, label, method, landscape, (*settings, *kind), key)


def _named(name: str, landscape: Landscape) -> Surface:
    if landscape.betas is None:
        raise ValueError(f"{name!r} are lines, the landscape viewer shows surfaces: see landscape.surface")
    method = name if name in methods.names() else landscape.meta.get("note", {}).get("method", "")
    return Surface(figures.label(name), figures.label(name), method, landscape)


class LandscapeViewer(Panel):
    """See `landscape_viewer`.

    Attributes:
        pair: the two surfaces that are shown.
    """

    def __init__(self, surfaces, loss, elevation, azimuth):
        self.surfaces = surfaces
        names = [(surface.name, n) for n, surface in enumerate(surfaces)]
        self.first = choice("left", names, 0)
        self.second = choice("right", names, min(1, len(surfaces) - 1))
        common = dict(map(reversed, self._common()))
        if loss not in common:
            raise ValueError(f"loss {loss!r} is not in both surfaces: use one of {', '.join(common)}")
        self.loss = choice("loss", self._common(), loss)
        self.elevation = slider("elevation (degrees)", elevation, 0, 90, 1)
        self.azimuth = slider("azimuth (degrees)", azimuth, -180, 180, 1)
        self.direction = choice("slice", SLICES)
        self.at = slider("at step across", 0, -1, 1, 0.01)
        self.readout = widgets.HTML()
        self._shown = None
        fig, _ = figures.detached(height_to_width=0.4)
        fig.clear()
        self.axes = [fig.add_subplot(1, 3, n, **VIEW) for n in (1, 2)]
        self.slice = fig.add_subplot(1, 3, 3)
        view = [self.elevation, self.azimuth, self.direction, self.at]
        super().__init__(fig, [self.first, self.second, self.loss, *view], [self.readout])
        for widget in (self.first, self.second):
            widget.observe(self._changed_pair, "value")
        self._reach()
        self.follow(self.loss, *view)

    @property
    def pair(self) -> list[Surface]:
        return [self.surfaces[self.first.value], self.surfaces[self.second.value]]

    def along(self, surface: Surface) -> tuple[np.ndarray, np.ndarray, float]:
        """Return the slice through a surface: steps along it, the rise there, and the step across (of the grid)."""
        steps = [surface.landscape.alphas, surface.landscape.betas]
        direction = self.direction.value
        across = steps[1 - direction]
        n = int(np.abs(across - self.at.value).argmin())
        return steps[direction], surface.rise(self.loss.value).take(n, axis=1 - direction), float(across[n])

    # --- drawing ---

    def update(self):
        pair = self.pair
        if (shown := (*pair, self.loss.value)) != self._shown:
            self._draw_surfaces(pair)
            self._shown = shown
        for ax in self.axes:
            if (view := (self.elevation.value, self.azimuth.value)) != (ax.elev, ax.azim):
                ax.view_init(*view)
                self.fig.stale = True
        rows = []
        for surface, trace, curve in zip(pair, self._traces, self._curves, strict=True):
            steps, rise, at = self.along(surface)
            level = np.full_like(steps, at)
            trace.set_data_3d(*((steps, level) if self.direction.value == 0 else (level, steps)), rise)
            curve.set_data(steps, rise)
            self._make_room(rise)
            centre = surface.landscape.meta["centre"][self.loss.value]
            rows.append([surface.name, f"{at:+.3f}", np.nanmax(rise), np.nanmin(rise), centre])
        note = (
            "Highest and lowest rise along the slice; the last column is the loss that they rise above. "
            "Both surfaces share one scale of height."
        )
        self.readout.value = table(note, COLUMNS.items(), rows)

    def _draw_surfaces(self, pair):
        loss = self.loss.value
        rises = [surface.rise(loss) for surface in pair]
        low, top = min(0.0, *map(np.nanmin, rises)), max(map(np.nanmax, rises))
        top = top if top > low else low + 1
        self._traces, self._curves = [], []
        self.slice.clear()
        hues = colors([surface.method for surface in pair])
        for ax, surface, color, line in zip(self.axes, pair, hues, ("-", "--"), strict=True):
            ax.clear()
            x, y = np.meshgrid(surface.landscape.alphas, surface.landscape.betas, indexing="ij")
            look = {"cmap": "viridis_r", "vmin": low, "vmax": top, "lw": 0, "alpha": 0.9}
            ax.plot_surface(x, y, surface.rise(loss), rcount=MESH, ccount=MESH, **look)
            (trace,) = ax.plot([], [], [], color=color, lw=1.8, ls=line, zorder=5)
            ax.set(zlim=(low, top), xlabel="direction 1", ylabel="direction 2")
            ax.set_title(surface.label, y=1.06)  # a fixed place: looking for one takes a tenth of the time
            for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
                axis.set_major_locator(MaxNLocator(3))
                axis.labelpad = -8
            ax.tick_params(labelsize="xx-small", pad=-4)
            (curve,) = self.slice.plot([], [], color=color, ls=line, label=surface.label)
            self._traces.append(trace)
            self._curves.append(curve)
        reach = max(np.abs(steps).max() for s in pair for steps in (s.landscape.alphas, s.landscape.betas))
        self.slice.set(
            xlim=(-reach, reach), ylim=(0, 0.001), xlabel="step along the slice", ylabel="rise of the loss"
        )
        self.slice.legend(
            loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, ncols=2, fontsize="small"
        )
        self.moves(*self._traces, *self._curves)
        self.lay_out_anew()

    def _make_room(self, rise: np.ndarray):
        """Let the axis of the slices hold a curve; it never shrinks, so that slices can be compared."""
        low, high = self.slice.get_ylim()
        if not low <= np.nanmin(rise) <= np.nanmax(rise) <= high:
            ends = min(low, np.nanmin(rise)), max(high, np.nanmax(rise))
            self.slice.set_ylim(MaxNLocator(6).tick_values(*ends)[[0, -1]])

    # --- what the controls do ---

    def _common(self) -> list[tuple[str, str]]:
        """Return (words, name) of the losses that both surfaces have."""
        first, second = (surface.landscape.values for surface in self.pair)
        return [(LOSSES.get(loss, loss), loss) for loss in first if loss in second]

    def _changed_pair(self, _):
        with self.told(), self.at_once():
            if not (common := self._common()):
                raise ValueError(f"{self.pair[0].name} and {self.pair[1].name} have no loss in common")
            offer(self.loss, common)
            self._reach()

    def _reach(self):
        """Let the slice reach to the edge of what was computed."""
        steps = [s for surface in self.pair for s in (surface.landscape.alphas, surface.landscape.betas)]
        low, high = min(s.min() for s in steps), max(s.max() for s in steps)
        self.at.max = max(high, self.at.max)  # wider before narrower: the minimum must stay below the maximum
        self.at.min = low
        self.at.max = high
        self.at.step = float(np.diff(self.pair[0].landscape.alphas)[0]) if len(steps[0]) > 1 else 0.01
