"""The landscape viewer: two stored surfaces of the loss on one scale, turned, and cut along a line."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import ipywidgets as widgets
import numpy as np
from matplotlib.ticker import MaxNLocator

from spml_core import figures
from spml_core.explore.choosing import NothingToShow, changes, name_of
from spml_core.explore.panel import Panel, choice, slider
from spml_core.landscape import Landscape
from spml_core.paths import command, locate
from spml_core.runs.record import Run

MESH = 25  # points of the drawn mesh along a side, whatever was computed; a cut has them all
LOSSES = {"own": "the method's own loss", "full_bce": "full-label BCE"}
CUTS = [("along direction 1", 0), ("along direction 2", 1)]
VIEW = {"projection": "3d", "computed_zorder": False}


@dataclass(frozen=True)
class Surface:
    """A stored surface and what it is of: `name` is e.g. "GR, seed 0 (digits)"."""

    name: str
    label: str
    method: str
    landscape: Landscape

    def rise(self, loss: str) -> np.ndarray:
        """(A, B) loss above its value at the trained weights; NaN is a hole."""
        return self.landscape.values[loss] - self.landscape.meta["centre"][loss]


def landscape_viewer(
    folder: str | Path = "runs/landscapes",
    *,
    surfaces: Mapping[str, Landscape] | None = None,
    loss: str = "own",
    elevation: float = 30,
    azimuth: float = -60,
) -> LandscapeViewer:
    """The panel of loss surfaces (EM Fig. 5), to be shown as the last value of a cell.

    Drawn is the rise of the loss above its value at the trained weights, both surfaces on one scale, and beside them a
    cut through both at the marked line. Computing is for `spml_core.landscape`; here files are read.

    Args:
        folder: of `landscape.Around`; every finished surface in it is offered.
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
    """The finished surfaces of a folder, by file; those still being computed are left out.

    Names of surfaces that would be called the same go on with what differs: settings, images, batch norm, steps.
    """
    found, told = [], []
    for file in sorted(locate(folder).glob("*-surface-*.safetensors")):
        try:
            landscape = Landscape.load(file)
        except ValueError:  # not finished
            continue
        note = landscape.meta["note"]
        method = note.get("method", "")
        label = figures.METHOD_LABELS.get(method, method)
        found.append(Surface("", label, method, landscape))
        told.append((*_what(file, label, note), landscape))
    return [dataclasses.replace(one, name=name) for one, name in zip(found, _told_apart(told), strict=True)]


def _what(file: Path, label: str, note: dict) -> tuple[str, list[str], str]:
    """E.g. "GR, seed 0 (digits)", its settings, and an id, of the run beside the folder or as the file says."""
    run = Run(file.parent.parent / note.get("run", file.stem))
    key = f"{run.path.name.rpartition('-')[2]}, {file.stem.rpartition('-')[2]}"
    if (run.path / "config.json").exists():
        return f"{name_of(run)} ({run.config['dataset']})", changes(run), key
    params = [f"{k}={tuple(v) if isinstance(v, list) else v}" for k, v in note.get("params", {}).items()]
    if parts := re.fullmatch(r"(.+)-[^-]+-s(\d+)-[^-]+", run.path.name):
        return f"{label}, seed {parts[2]} ({parts[1]})", params, key
    return f"{label}, {run.path.name}", params, key


def _told_apart(surfaces: list[tuple[str, list[str], str, Landscape]]) -> list[str]:
    """A name for each, as long as it has to be."""
    details = []
    for name, settings, _, landscape in surfaces:
        steps = f"{len(landscape.alphas)} × {len(landscape.betas)} steps"
        kind = [f"{landscape.meta['num_images']} images", f"batch norm {landscape.meta['batch_norm']}", steps]
        details.append((name, [*settings, *kind]))
    names = []
    for name, own in details:
        common = set.intersection(*(set(other) for called, other in details if called == name))
        names.append(", ".join([name, *(one for one in own if one not in common)]))
    return [
        f"{name}, {key}" if names.count(name) > 1 else name
        for name, (_, _, key, _) in zip(names, surfaces, strict=True)
    ]


def _named(name: str, landscape: Landscape) -> Surface:
    if landscape.betas is None:
        raise ValueError(f"{name!r} are lines, the landscape viewer shows surfaces: see landscape.surface")
    method = name if name in figures.METHOD_LABELS else landscape.meta.get("note", {}).get("method", "")
    label = figures.METHOD_LABELS.get(name, name)
    return Surface(label, label, method, landscape)


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
        common = self._common()
        if loss not in common:
            raise ValueError(f"loss {loss!r} is not in both surfaces: use one of {', '.join(common)}")
        self.loss = choice("loss", [(LOSSES.get(one, one), one) for one in common], loss)
        self.elevation = slider("elevation (degrees)", elevation, 0, 90, 1)
        self.azimuth = slider("azimuth (degrees)", azimuth, -180, 180, 1)
        self.direction = choice("cut", CUTS)
        self.at = slider("at step across", 0, -1, 1, 0.01)
        self.readout = widgets.HTML()
        self._shown = self._view = None
        fig, _ = figures.detached(height_to_width=0.4)
        fig.clear()
        self.axes = [fig.add_subplot(1, 3, n, **VIEW) for n in (1, 2)]
        self.cut = fig.add_subplot(1, 3, 3)
        turned = [self.elevation, self.azimuth, self.direction, self.at]
        super().__init__(fig, [self.first, self.second, self.loss, *turned], [self.readout])
        for widget in (self.first, self.second):
            widget.observe(self._changed_pair, "value")
        self._reach()
        self.follow(self.loss, *turned)

    @property
    def pair(self) -> list[Surface]:
        return [self.surfaces[self.first.value], self.surfaces[self.second.value]]

    def along(self, surface: Surface) -> tuple[np.ndarray, np.ndarray, float]:
        """The cut through a surface: steps along it, the rise there, and where exactly: the grid's nearest line."""
        steps = [surface.landscape.alphas, surface.landscape.betas]
        heights, direction = surface.rise(self.loss.value), self.direction.value
        across = steps[1 - direction]
        n = int(np.abs(across - self.at.value).argmin())
        return steps[direction], heights.take(n, axis=1 - direction), float(across[n])

    # --- drawing ---

    def update(self):
        pair, key = self.pair, (self.first.value, self.second.value, self.loss.value)
        if key != self._shown:
            self._start_axes(pair)
            self._shown, self._view = key, None
        cuts = [self.along(surface) for surface in pair]
        self._turn((self.elevation.value, self.azimuth.value))
        for trace, curve, (steps, rise, at) in zip(self._traces, self._curves, cuts, strict=True):
            level = np.full_like(steps, at)
            plane = (steps, level) if self.direction.value == 0 else (level, steps)
            trace.set_data_3d(*plane, np.where(np.isfinite(rise), rise, np.nan))
            curve.set_data(steps, rise)
        self._show_range([rise for _, rise, _ in cuts])
        self._read_out(pair, cuts)

    def _turn(self, view: tuple[float, float]) -> None:
        """Look from there. While a view changes the surfaces alone are drawn; else they stay, and the cuts are."""
        turning = view != self._view
        for ax in self.axes:
            if turning:
                ax.view_init(*view)
            if ax.get_animated() != turning:
                ax.set_animated(turning)
                self.fig.stale = True
        self._view = view

    def _start_axes(self, pair):
        loss = self.loss.value
        top = max(np.nanmax(surface.rise(loss)) for surface in pair)
        low = min(0.0, *(np.nanmin(surface.rise(loss)) for surface in pair))
        top = top if top > low else low + 1
        self._traces, self._curves = [], []
        self.cut.clear()
        for ax, surface, color, line in zip(self.axes, pair, self.colors(pair), ("-", "--"), strict=True):
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
            (curve,) = self.cut.plot([], [], color=color, ls=line, label=surface.label)
            self._traces.append(trace)
            self._curves.append(curve)
        reach = max(np.abs(steps).max() for s in pair for steps in (s.landscape.alphas, s.landscape.betas))
        self.cut.set_xlim(-reach, reach)
        self._range = (0.0, 0.0)
        self.cut.set(xlabel="step along the cut", ylabel="rise of the loss")
        self.cut.legend(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, ncols=2, fontsize="small")
        self.moves(*self._traces, *self._curves)
        self.lay_out_anew()

    def _show_range(self, rises):
        """Let the cut's axis hold both curves; it grows while a slider moves and never shrinks: cuts compare."""
        low = min(self._range[0], *map(np.nanmin, rises))
        high = max(self._range[1], *map(np.nanmax, rises))
        if (low, high) != self._range:
            self._range = low, high
            bounds = -_rounded_up(-low), _rounded_up(high) or 1.0
            room = 0.03 * (bounds[1] - bounds[0])
            if (ends := (bounds[0] - room, bounds[1] + room)) != self.cut.get_ylim():
                self.cut.set_ylim(*ends)

    @staticmethod
    def colors(pair: list[Surface]) -> list[str]:
        """Those of the methods; grey for the second of two of one method."""
        found = [figures.style(surface.method)["color"] for surface in pair]
        return [*dict.fromkeys(found), "0.5"][:2]

    def _read_out(self, pair, cuts):
        head = (
            "<tr><th></th><th>cut at</th><th>highest</th><th>lowest</th><th>at the trained weights</th></tr>"
        )
        rows = ""
        for surface, (_, rise, at) in zip(pair, cuts, strict=True):
            centre = surface.landscape.meta["centre"][self.loss.value]
            values = {
                "at": f"{at:+.3f}",
                "highest": f"{np.nanmax(rise):.8f}",
                "lowest": f"{np.nanmin(rise):.8f}",
            }
            values["centre"] = f"{centre:.8f}"
            cells = "".join(f"<td data-value='{key}'>{text}</td>" for key, text in values.items())
            rows += f"<tr><td data-value='surface'>{html.escape(surface.name)}</td>{cells}</tr>"
        self.readout.value = (
            f"<table style='border-spacing: 1em 0; text-align: left; font-size: 90%'>{head}{rows}</table>"
            "<small>Highest and lowest rise along the cut; the last column is the loss that they rise above. "
            "One scale of height for both.</small>"
        )

    # --- what the controls do ---

    def _common(self) -> list[str]:
        first, second = (surface.landscape.values for surface in self.pair)
        return [loss for loss in first if loss in second]

    def _changed_pair(self, _):
        with self.told(), self.at_once():
            common = self._common()
            if not common:
                raise ValueError(f"{self.pair[0].name} and {self.pair[1].name} have no loss in common")
            options, before = [(LOSSES.get(one, one), one) for one in common], self.loss.value
            if options != list(self.loss.options):
                self.loss.options = options
                self.loss.value = before if before in common else common[0]
            self._reach()

    def _reach(self):
        """Let the cut reach to the edge of what was computed."""
        steps = [s for surface in self.pair for s in (surface.landscape.alphas, surface.landscape.betas)]
        low, high = min(s.min() for s in steps), max(s.max() for s in steps)
        self.at.max = max(high, self.at.max)  # first wider, for a slider is never turned round
        self.at.min = min(low, self.at.min)
        self.at.min, self.at.max = low, high
        self.at.step = float(np.diff(self.pair[0].landscape.alphas)[0]) if len(steps[0]) > 1 else 0.01


def _rounded_up(value: float) -> float:
    """To 1, 1.5, 2, 3, 5 or 7 times a power of ten; 0 for 0 and what is below."""
    if value <= 0:
        return 0.0
    unit = 10.0 ** np.floor(np.log10(value))
    return float(next(n for n in (1, 1.5, 2, 3, 5, 7, 10) if value <= n * unit) * unit)
