"""The landscape viewer: two stored surfaces of the loss on one scale, rotated, and sliced along a line."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import ipywidgets as widgets
import numpy as np
from matplotlib.ticker import MaxNLocator

from spml_core import figures
from spml_core.explore.choosing import NothingToShow
from spml_core.explore.panel import LEGEND, Panel, choice, colors, make_room, slider, table
from spml_core.landscape import Landscape
from spml_core.paths import command, locate

MESH = 25  # points of the drawn mesh along a side, whatever was computed; a slice has them all
LOSSES = {"own": "the method's own loss", "full_bce": "full-label BCE"}
SLICES = [("along direction 1", 0), ("along direction 2", 1)]
VIEW = {"projection": "3d", "computed_zorder": False}
COLUMNS = {
    "surface": "",
    "of": "details",
    "at": "slice at",
    "highest": "highest rise",
    "lowest": "lowest rise",
    "centre": "loss at the trained weights",
}


def stored(folder: str | Path) -> dict[str, Landscape]:
    """Return the finished surfaces of a folder, by method, run and key."""
    found = {}
    for file in sorted(locate(folder).glob("*-surface-*.safetensors")):
        with suppress(ValueError):  # not finished
            landscape = Landscape.load(file)
            found[f"{figures.label(_method(landscape))}: {file.stem.replace('-surface', '')}"] = landscape
    return found


def _method(landscape: Landscape) -> str:
    return landscape.meta["note"].get("method", "")


def _details(landscape: Landscape) -> str:
    """Return what distinguishes surfaces of the same method: hyperparameters, images, batch norm, steps."""
    meta = landscape.meta
    params = [f"{k}={v}" for k, v in meta["note"].get("params", {}).items()]
    kind = [f"{meta['num_images']} images", f"batch norm {meta['batch_norm']}"]
    return ", ".join([*params, *kind, f"{len(landscape.alphas)} × {len(landscape.betas)} steps"])


class LandscapeViewer(Panel):
    """The panel of loss surfaces (EM Fig. 5), to be shown as the last value of a cell.

    It shows how far the loss rises above its value at the trained weights, for two surfaces on one scale, and beside
    them a slice through both at the marked line. It reads files; `spml_core.landscape` computes them.

    Args:
        folder: folder of stored landscapes; every finished surface in it can be chosen.
        surfaces: surfaces by name, instead of a folder; the first two are shown.

    Raises:
        NothingToShow: there is no finished surface.
        ValueError: one of `surfaces` holds lines instead of a surface.
    """

    def __init__(
        self, folder: str | Path = "runs/landscapes", *, surfaces: Mapping[str, Landscape] | None = None
    ):
        self.surfaces = stored(folder) if surfaces is None else dict(surfaces)
        if not self.surfaces:
            raise NothingToShow(
                f"there are no loss surfaces in {folder} yet: notebook 08 computes some ({command()} figures 08)"
            )
        for name, one in self.surfaces.items():
            if one.betas is None:
                raise ValueError(
                    f"{name!r} holds lines, but the landscape viewer shows surfaces: use landscape.surface"
                )
        names = [(figures.label(name), name) for name in self.surfaces]
        self.first, self.second = choice("left", names), choice("right", names, names[:2][-1][1])
        values = [one.values for one in self.surfaces.values()]
        common = [name for name in values[0] if all(name in others for others in values)]
        self.loss = choice("loss", [(LOSSES.get(name, name), name) for name in common])
        self.elevation = slider("elevation (degrees)", 30, 0, 90, 1)
        self.azimuth = slider("azimuth (degrees)", -60, -180, 180, 1)
        self.direction = choice("slice", SLICES)
        steps = [steps for one in self.surfaces.values() for steps in (one.alphas, one.betas)]
        self.reach = max(np.abs(each).max() for each in steps)
        self.at = slider("position of the slice", 0.0, -self.reach, self.reach, 0.01)
        self.at.step = min(np.diff(each).min() for each in steps)
        self.readout = widgets.HTML()
        self._shown = None
        fig, _ = figures.detached(height_to_width=0.4)
        fig.clear()
        self.axes = [fig.add_subplot(1, 3, n, **VIEW) for n in (1, 2)]
        self.slice = fig.add_subplot(1, 3, 3)
        controls = [self.first, self.second, self.loss, self.elevation, self.azimuth, self.direction, self.at]
        super().__init__(fig, controls, [self.readout])
        self.follow(*controls)

    @property
    def pair(self) -> list[Landscape]:
        """The two surfaces that are shown."""
        return [self.surfaces[self.first.value], self.surfaces[self.second.value]]

    def along(self, surface: Landscape) -> tuple[np.ndarray, np.ndarray, float]:
        """Return the slice through a surface: steps along it, the rise there, and the step across (of the grid)."""
        steps = [surface.alphas, surface.betas]
        direction = self.direction.value
        across = steps[1 - direction]
        n = int(np.abs(across - self.at.value).argmin())
        return steps[direction], surface.rise(self.loss.value).take(n, axis=1 - direction), float(across[n])

    def update(self):
        names, loss = (self.first.value, self.second.value), self.loss.value
        if (*names, loss) != self._shown:
            self._draw_surfaces(names)
            self._shown = (*names, loss)
        for ax in self.axes:
            if (view := (self.elevation.value, self.azimuth.value)) != (ax.elev, ax.azim):
                ax.view_init(*view)
                self.fig.stale = True
        rows = []
        for name, surface, trace, curve in zip(names, self.pair, self._traces, self._curves, strict=True):
            steps, rise, at = self.along(surface)
            level = np.full_like(steps, at)
            trace.set_data_3d(*((steps, level) if self.direction.value == 0 else (level, steps)), rise)
            curve.set_data(steps, rise)
            make_room(self.slice, rise)
            ends = np.nanmax(rise), np.nanmin(rise)
            rows.append([name, _details(surface), f"{at:+.3f}", *ends, surface.meta["centre"][loss]])
        note = (
            "Highest and lowest rise along the slice, measured from the loss in the last column. "
            "Both surfaces share one scale of height."
        )
        self.readout.value = table(note, COLUMNS.items(), rows)

    def _draw_surfaces(self, names):
        rises = [surface.rise(self.loss.value) for surface in self.pair]
        low, top = min(0.0, *map(np.nanmin, rises)), max(map(np.nanmax, rises))
        top = top if top > low else low + 1
        self._traces, self._curves = [], []
        self.slice.clear()
        hues = colors([_method(surface) for surface in self.pair])
        looks = zip(self.axes, names, self.pair, rises, hues, ("-", "--"), strict=True)
        for ax, name, surface, rise, color, line in looks:
            label = figures.label(name).partition(":")[0]
            ax.clear()
            x, y = np.meshgrid(surface.alphas, surface.betas, indexing="ij")
            look = {"cmap": "viridis_r", "vmin": low, "vmax": top, "lw": 0, "alpha": 0.9}
            ax.plot_surface(x, y, rise, rcount=MESH, ccount=MESH, **look)
            (trace,) = ax.plot([], [], [], color=color, lw=1.8, ls=line, zorder=5)
            ax.set(zlim=(low, top), xlabel="direction 1", ylabel="direction 2")
            ax.set_title(label, y=1.06)  # a fixed place: looking for one takes a tenth of the time
            for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
                axis.set_major_locator(MaxNLocator(3))
                axis.labelpad = -8
            ax.tick_params(labelsize="xx-small", pad=-4)
            (curve,) = self.slice.plot([], [], color=color, ls=line, label=label)
            self._traces.append(trace)
            self._curves.append(curve)
        self.slice.set(xlim=(-self.reach, self.reach), ylim=(0, 0.001))
        self.slice.set(xlabel="step along the slice", ylabel="rise of the loss")
        self.slice.legend(ncols=2, **LEGEND)
        self.moves(*self._traces, *self._curves)
        self.lay_out_anew()
