"""The loss lab: what a loss does to a missing and to an observed label, while its numbers change."""

from __future__ import annotations

import html
import math
import pprint
import textwrap
import threading
from pathlib import Path

import ipywidgets as widgets
import numpy as np
import pandas as pd

from spml_core import figures, methods
from spml_core.explore import curves
from spml_core.explore.choosing import changes
from spml_core.explore.curves import (
    CURVES,
    GRIDS,
    NUM_CLASSES,
    Curve,
    Held,
    P,
    Setting,
    draw,
    draw_held,
    listed,
)
from spml_core.explore.hyperparameters import Hyperparameters
from spml_core.explore.panel import Panel, choice, slider
from spml_core.explore.training import Training
from spml_core.methods import Step
from spml_core.runs import record
from spml_core.runs.experiment import Experiment
from spml_core.runs.record import Run

NUM_EPOCHS = 10  # of a training on digits


def loss_lab(method: str = "gr", runs_dir: str = "runs", figures_dir: str = "figures", **params) -> LossLab:
    """The panel of the losses, to be shown as the last value of a cell.

    Args:
        method: where it begins: a registered name; "unified" composes one of k, v, L1, L2 and L3.
        runs_dir: folder of what "Train on digits" trains; figures_dir: of what "Export" writes.
        params: hyperparameters to begin with, by the method's names.

    Raises:
        ValueError: unknown method or hyperparameter.
    """
    return LossLab(method, runs_dir, figures_dir, **params)


class LossLab(Panel):
    """See `loss_lab`.

    Attributes:
        hyperparameters: the controls of the chosen method, by `hyperparameters.controls[name]`.
        runs: trained here, in this order.
    """

    def __init__(self, method: str, runs_dir: str, figures_dir: str, **params):
        curves.check(method)
        known = [
            (figures.label(n), n) for n in methods.names() if not methods.get(n).no_curve and n != "unified"
        ]
        options = [("your own, in GR's frame", "unified"), *sorted(known, key=lambda item: item[0].lower())]
        self.runs_dir, self.figures_dir, self.runs, self.training = runs_dir, figures_dir, [], None
        self._made = {}  # controls by method
        self._kept: Held | None = None
        self._lines, self._ghosts = {}, []  # without lines, the axes are made anew
        self.method = choice("loss", options, method)
        self.numbers = widgets.VBox()
        self.epoch = slider(f"epoch, of {NUM_EPOCHS}", NUM_EPOCHS, 1, NUM_EPOCHS, 1, whole=True)
        self.axis = choice("drawn over", [("probability p", "p"), ("logit z", "z")])
        self.show = choice("show", curves.SHOW)
        self.at = slider("read out at p =", 0.9, 0.001, 0.999, 0.001)
        self.hold = widgets.ToggleButton(False, description="Hold", tooltip="keep this curve to compare with")
        self.reset = widgets.Button(description="Reset", tooltip="the published or default numbers")
        self.equation, self.readout, self.note = widgets.HTMLMath(), widgets.HTML(), widgets.HTML()
        self.code = widgets.Textarea(rows=6, layout=widgets.Layout(width="100%", display="none"))
        self.copy, self.export, self.train, self.cancel = (
            widgets.Button(description=text)
            for text in ("Copy as code", "Export", "Train on digits", "Cancel")
        )
        self.name = widgets.Text("loss-lab", description="file name", style={"description_width": "5em"})
        self.cancel.disabled = True
        self.bar = widgets.IntProgress(
            0, 0, NUM_EPOCHS, description="epoch 0", layout={"visibility": "hidden"}
        )
        self.told_to_user, self.table = widgets.HTML(), widgets.HTML()
        fig, self.axes = figures.detached(1, 2, height_to_width=0.75)
        choices = [self.method, self.numbers, self.epoch, self.axis, self.show, self.at]
        buttons = [
            widgets.HBox([self.hold, self.reset]),
            widgets.HBox([self.copy, self.export]),
            self.name,
            widgets.HBox([self.train, self.cancel]),
        ]
        below = [self.equation, self.readout, self.note, self.code, self.bar, self.told_to_user, self.table]
        super().__init__(fig, [*choices, *buttons], below)
        self._choose()
        self._set(params)
        self.method.observe(self._changed_method, "value")
        self.hold.observe(self._changed_hold, "value")
        actions = {self.reset: self._reset, self.copy: self._copy, self.export: self._export}
        for button, action in (actions | {self.train: self._train, self.cancel: self._cancel}).items():
            self.on_click(button, action)
        self.follow(self.epoch, self.axis, self.show, self.at)

    # --- what is chosen ---

    @property
    def hyperparameters(self) -> Hyperparameters:
        return self._made[self.method.value]

    def params(self) -> dict:
        """Hyperparameters that the controls show."""
        return self.hyperparameters.params()

    @property
    def setting(self) -> Setting:
        """What the curve is of."""
        return Setting(self.method.value, self.params(), self.hyperparameters.changed(), self.epoch.value)

    def experiment(self) -> Experiment:
        """The training of this loss on digits."""
        return Experiment(
            dataset="digits",
            method=self.method.value,
            params=self.hyperparameters.changed(),
            epochs=NUM_EPOCHS,
        )

    def as_code(self) -> str:
        """The `build(...)` call that makes this method, its use, and its training."""
        name = self.method.value
        keeps = any(True for _ in methods.build(name, 10, 1, **self.params()).buffers())
        given = "".join(f", {key}={value!r}" for key, value in self.hyperparameters.changed().items())
        examples = ", num_examples=len(observed)" if keeps else ""
        index = ", index=index" if keeps else ""
        epoch = f"epoch={self.epoch.value}, num_epochs={NUM_EPOCHS}"
        return (
            "from spml_core.methods import Step, build\n"
            "from spml_core.runs import Experiment, run\n\n"
            f"method = build({name!r}, num_classes={NUM_CLASSES}{examples}{given})\n"
            f"loss = method(logits, observed, Step({epoch}{index}))\n\n"
            f"r = run(Experiment(dataset='digits', method={name!r}, epochs={NUM_EPOCHS}, "
            f"params={pprint.pformat(self.hyperparameters.changed(), width=10**6, sort_dicts=False)}))\n"
        )

    def curve(self, logits: np.ndarray) -> Curve:
        return curves.compute(self.method.value, logits, self.epoch.value, NUM_EPOCHS, **self.params())

    # --- drawing ---

    def update(self):
        axis, p = self.axis.value, self.at.value
        grid, z = GRIDS[axis], math.log(p / (1 - p))
        found = self.curve(np.append(grid, z))  # the point that is read out is one more image
        x, curve = (P if axis == "p" else grid), found.part(slice(-1))
        if not self._lines:
            self._start_axes(x, curve)
        for name, line in self._lines.items():
            line.set_data(x, getattr(curve, name))
        for line in self._marks:
            line.set_xdata([p if axis == "p" else z] * 2)
        self._show_range(curve)
        self._read_out(p, z, found.part(-1))
        self.epoch.layout.display = None if methods.get(self.method.value).clocked else "none"
        built = methods.build(self.method.value, NUM_CLASSES, 1, **self.params())
        text = curves.as_html(built, Step(self.epoch.value, NUM_EPOCHS))
        if text != self.equation.value:
            self.equation.value = text
        if self.code.layout.display is None:
            self.code.value = self.as_code()

    def _start_axes(self, x, curve):
        """Empty axes, the curve that is held, the curve."""
        axis, self._ghosts = self.axis.value, []
        for ax in self.axes:
            ax.clear()
        for legend in self.fig.legends[:]:
            legend.remove()
        if self._kept is not None:
            self._ghosts = [*draw_held(self.axes, self._kept, axis, self.show.value).items()]
        self._lines = draw(self.axes, x, curve, self.method.value, axis, self.show.value)
        self._marks = [ax.axvline(0, color="0.4", lw=0.6, ls="--") for ax in self.axes]
        self.moves(*self._lines.values(), *self._marks)
        self._range = [(0.0, 0.0)] * 2
        handles, labels = self.axes[0].get_legend_handles_labels()
        self.fig.legend(handles, labels, loc="outside upper center", ncols=2)
        self.lay_out_anew()

    def _show_range(self, curve):
        """Axes that hold all there is; they grow while a slider moves and never shrink, so that curves compare."""
        for n, (ax, suffix) in enumerate(zip(self.axes, ("", "_gradient"), strict=True)):
            kinds = [kind for kind in ("missing", "observed") if kind + suffix in self._lines]
            values = [getattr(curve, kind + suffix) for kind in kinds]
            values += [
                line.get_ydata() for name, line in self._ghosts if name.endswith("gradient") == bool(n)
            ]
            low = min(self._range[n][0], *(v.min() for v in values))
            high = max(self._range[n][1], *(v.max() for v in values))
            if (low, high) != self._range[n]:
                self._range[n] = low, high
                room = 0.05 * (high - low) or 0.05
                ax.set_ylim(low - room, high + room)

    def _read_out(self, p: float, z: float, point: Curve):
        head = f"<tr><th>at p = {p:.3f}, z = {z:.4f}</th><th>loss L</th><th>gradient ∂L/∂z</th></tr>"
        rows = "".join(
            f"<tr><td>{words}</td><td data-value='{kind}'>{getattr(point, kind):.8f}</td>"
            f"<td data-value='{kind}_gradient'>{getattr(point, kind + '_gradient'):.8f}</td></tr>"
            for kind, words in (("missing", "missing label"), ("observed", "observed positive"))
        )
        pull = point.missing_gradient
        fate = "lowers p of" if pull > 0 else "raises p of" if pull < 0 else "leaves"
        self.readout.value = (
            f"<table style='border-spacing: 1em 0; text-align: left'>{head}{rows}</table>"
            f"A training step {fate} this missing label."
        )
        notes = [] if self._kept is None else [html.escape(self._kept.beside(self.setting))]
        if methods.get(self.method.value).batchwise:
            notes.append(
                "Of a batch with one observed positive in each image, p spread evenly over the axis."
            )
        self.note.value = f"<small>{'<br>'.join(notes)}</small>" if notes else ""

    # --- what the controls do ---

    def _choose(self):
        """Show the controls of the chosen method, which keep their values."""
        name = self.method.value
        if name not in self._made:
            self._made[name] = Hyperparameters(name)
            for widget in self._made[name].all():
                widget.observe(self._changed_number, "value")
        self.numbers.children = self.hyperparameters.shown()
        self._lines = {}

    def _set(self, values: dict):
        self.hyperparameters.set(values)
        self.numbers.children = self.hyperparameters.shown()

    def _changed_number(self, change):
        with self.told():
            if (shown := self.hyperparameters.shown()) != list(self.numbers.children):
                self.numbers.children = shown
        self.redraw()

    def _changed_method(self, _):
        with self.told():
            self._choose()
        self.redraw()

    def _changed_hold(self, change):
        with self.told():
            grid = GRIDS[self.axis.value]
            self._kept = Held(self.setting, grid, self.curve(grid)) if change["new"] else None
            self._lines = {}
            self.hold.description = "Held: let go" if change["new"] else "Hold"
        self.redraw()

    def _changed(self, change):
        if change["owner"] in (self.axis, self.show):
            self._lines = {}
        super()._changed(change)

    def _reset(self):
        with self.at_once():
            controls, defaults = self.hyperparameters.controls, self.hyperparameters.defaults
            self._set({k: v for k, v in defaults.items() if k in controls and v is not None})
            self._lines = {}

    def _copy(self):
        self.code.layout.display = "none" if self.code.layout.display is None else None
        self.code.value = self.as_code()

    def _export(self):
        self.told_to_user.value = ""  # of an earlier one, should this one fail
        axis, method = self.axis.value, self.method.value
        x = P if axis == "p" else GRIDS[axis]
        curve = self.curve(GRIDS[axis])
        fig, axes = figures.detached(1, 2, height_to_width=0.75)
        data = pd.DataFrame({axis: x} | {name: getattr(curve, name) for name in CURVES})
        said = listed(self.params())
        caption = f"Loss of one label and its gradient, {figures.label(method)}{f': {said}' if said else ''}."
        held_lines, held, now = {}, "", ""
        if self._kept is not None:
            held_lines = draw_held(axes, self._kept, axis, self.show.value)
            held, now = self._kept.setting.differs(self.setting)
            for key in CURVES:
                data[f"held {key}"] = np.interp(x, self._kept.x(axis), getattr(self._kept.curve, key))
            caption = f"{caption} {self._kept.beside(self.setting)}"
        lines = draw(axes, x, curve, method, axis, self.show.value)
        for drawn, apart in ((held_lines, held), (lines, now)):
            for line in drawn.values():
                line.set_label("\n".join([line.get_label(), *textwrap.wrap(apart, 44)]))
        fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
        context = f"one label, no training, epoch {self.epoch.value} of {NUM_EPOCHS}"
        figures.save_figure(fig, self.name.value, data, self.figures_dir, caption, context)
        where = Path(self.figures_dir) / f"{self.name.value}.pdf"
        self.told_to_user.value = (
            f"Written: <code>{html.escape(str(where))}</code>, with PNG, CSV and caption"
        )

    # --- training ---

    def _train(self):
        self.training = Training(self.experiment(), self.runs_dir)
        self.train.disabled, self.cancel.disabled = True, False
        self.bar.value, self.bar.description, self.bar.layout.visibility = 0, "epoch 0", "visible"
        self.told_to_user.value = f"Training {figures.label(self.method.value)} on digits"
        self.watcher = threading.Thread(target=self._watch, args=(self.training,), daemon=True)
        self.watcher.start()

    def _watch(self, training: Training):
        """In a thread: what the training says, into the panel."""
        last = "ended before it was finished; train again and it goes on"
        try:
            for kind, what in training.events():
                if kind == "epoch":
                    self.bar.value, self.bar.description = int(what["epoch"]), f"epoch {int(what['epoch'])}"
                    self.told_to_user.value = f"Validation mAP {what['val_map']:.1f} %"
                elif kind == "failed":
                    last = "failed"
                    raise RuntimeError(f"the training failed: {what}")
                else:
                    self._finished(Run(what))
                    last = ""
        except Exception as error:
            self.complain(error)
            raise  # a thread's traceback reaches the notebook by stderr
        finally:
            self.train.disabled, self.cancel.disabled = False, True
            self.bar.layout.visibility = "hidden"
            if last:
                self.told_to_user.value = f"The training {last}"

    def _finished(self, run: Run):
        if run.path not in [known.path for known in self.runs]:
            self.runs.append(run)
        self.bar.value = NUM_EPOCHS
        found = run.summary["test_map"]
        self.told_to_user.value = (
            f"Trained: test mAP {found:.1f} %, in <code>{html.escape(run.path.name)}</code>"
        )
        table = record.table(self.runs)
        table["parameters"] = [", ".join(changes(one)) or "default" for one in self.runs]
        columns = ["method", "parameters", "seed", "val_map", "test_map", "best_epoch"]
        shown = table[columns].to_html(index=False, border=0, float_format="{:.1f}".format, justify="left")
        self.table.value = shown.replace("<table", "<table style='border-spacing: 1em 0'", 1)

    def _cancel(self):
        self.training.cancel()
