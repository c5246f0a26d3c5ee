"""The loss lab: how a loss acts on a missing and on an observed label, as a function of its hyperparameters."""

import html
import textwrap
import threading
from pathlib import Path

import ipywidgets as widgets
import numpy as np
from scipy.special import logit

from spml_core import figures, methods
from spml_core.explore import curves
from spml_core.explore.choosing import COLUMNS, overview
from spml_core.explore.curves import GRIDS, NUM_CLASSES, NUM_EPOCHS, Setting, draw
from spml_core.explore.hyperparameters import Hyperparameters
from spml_core.explore.panel import Panel, choice, make_room, slider, table
from spml_core.explore.training import Training
from spml_core.methods import Step
from spml_core.runs import Experiment, Run

BATCHWISE = "Computed for a batch with one observed positive per image and p spread evenly over the axis."
READOUT = {"label": "", "loss": "loss L", "gradient": "gradient ∂L/∂z"}


class LossLab(Panel):
    """The panel of the losses, to be shown as the last value of a cell.

    Args:
        method: the method shown at first, a registered name; "unified" composes a loss of k, v, L1, L2 and L3.
        runs_dir: folder of the runs that "Train on digits" trains; figures_dir: folder that "Export" writes to.
        params: initial hyperparameters, by the method's names.

    Raises:
        ValueError: unknown method or hyperparameter.

    Attributes:
        hyperparameters: the controls of the chosen method, by `hyperparameters.controls[name]`.
        runs: the runs trained here, in order.
    """

    def __init__(self, method: str = "gr", runs_dir: str = "runs", figures_dir: str = "figures", **params):
        curves.check(method)
        known = [n for n in methods.names() if not methods.get(n).no_curve and n != "unified"]
        named = sorted(((figures.label(n), n) for n in known), key=lambda pair: pair[0].lower())
        options = [("your own, in GR's frame", "unified"), *named]
        self.runs_dir, self.figures_dir, self.runs, self.training = runs_dir, figures_dir, [], None
        self._made = {}  # controls by method
        self._kept: Setting | None = None
        self.method = choice("loss", options, method)
        self.numbers = widgets.VBox()
        self.epoch = slider(f"epoch, of {NUM_EPOCHS}", NUM_EPOCHS, 1, NUM_EPOCHS, 1)
        self.axis = choice("horizontal axis", [("probability p", "p"), ("logit z", "z")])
        self.at = slider("values at p =", 0.9, 0.001, 0.999, 0.001)
        self.hold = widgets.ToggleButton(False, description="Hold", tooltip="keep this curve for comparison")
        self.equation, self.readout, self.note = widgets.HTMLMath(), widgets.HTML(), widgets.HTML()
        self.code = widgets.Textarea(rows=6, layout={"width": "100%", "display": "none"})
        self.reset = self.button("Reset", self._reset)
        self.copy = self.button("Copy as code", self._copy)
        self.export = self.button("Export", self._export)
        self.train = self.button("Train on digits", self._train)
        self.cancel = self.button("Cancel", lambda: self.training.cancel())
        self.name = widgets.Text("loss-lab", description="file name", style={"description_width": "5em"})
        self.cancel.disabled = True
        self.bar = widgets.IntProgress(0, 0, NUM_EPOCHS, layout={"visibility": "hidden"})
        self.status, self.table = widgets.HTML(), widgets.HTML()
        fig, self.axes = figures.detached(1, 2, height_to_width=0.75)
        controls = [
            *(self.method, self.numbers, self.epoch, self.axis, self.at),
            widgets.HBox([self.hold, self.reset]),
            widgets.HBox([self.copy, self.export]),
            self.name,
            widgets.HBox([self.train, self.cancel]),
        ]
        below = [self.equation, self.readout, self.note, self.code, self.bar, self.status, self.table]
        super().__init__(fig, controls, below)
        self._choose()
        self.hyperparameters.set(params)
        for widget in (self.method, self.axis, self.hold):
            widget.observe(self._begin_anew, "value")
        self.follow(self.epoch, self.at)

    # --- what is chosen ---

    @property
    def hyperparameters(self) -> Hyperparameters:
        return self._made[self.method.value]

    @property
    def setting(self) -> Setting:
        """The method, hyperparameters and epoch of the current curve."""
        return Setting(self.method.value, self.hyperparameters.params(), self.epoch.value)

    def experiment(self) -> Experiment:
        """The experiment that trains this loss on digits."""
        now = self.setting
        return Experiment(dataset="digits", method=now.method, params=now.changed, epochs=NUM_EPOCHS)

    def as_code(self) -> str:
        """The `build(...)` call that makes this method, its use, and its training."""
        name, changed = self.setting.method, self.setting.changed
        keeps = any(True for _ in methods.build(name, NUM_CLASSES, 1, **changed).buffers())
        given = "".join(f", {key}={value!r}" for key, value in changed.items())
        examples = ", num_examples=len(observed)" if keeps else ""
        index = ", index=index" if keeps else ""
        epoch = f"epoch={self.epoch.value}, num_epochs={NUM_EPOCHS}"
        return (
            "from spml_core.methods import Step, build\n"
            "from spml_core.runs import Experiment, run\n\n"
            f"method = build({name!r}, num_classes={NUM_CLASSES}{examples}{given})\n"
            f"loss = method(logits, observed, Step({epoch}{index}))\n\n"
            f"r = run(Experiment(dataset='digits', method={name!r}, epochs={NUM_EPOCHS}, params={changed!r}))\n"
        )

    # --- drawing ---

    def update(self):
        self.numbers.children = self.hyperparameters.shown()
        axis, p, now = self.axis.value, self.at.value, self.setting
        found = now.curve(np.append(GRIDS[axis], logit(p)))  # the point that is read out is one more image
        shown, point = found[:-1], found.iloc[-1]
        if not self._lines:
            self._start_axes(shown)
        for name, line in self._lines.items():
            line.set_data(shown[axis], shown[name])
        for line in [*self._lines.values(), *self._ghosts.values()]:
            make_room(line.axes, line.get_ydata())
        for line in self._marks:
            line.set_xdata([point[axis]] * 2)
        self._read_out(point)
        self.epoch.layout.display = None if methods.get(now.method).clocked else "none"
        built = methods.build(now.method, NUM_CLASSES, 1, **now.params)
        self.equation.value = curves.as_html(built, Step(now.epoch, NUM_EPOCHS))
        self.code.value = self.as_code()

    def _start_axes(self, shown):
        """Clear the axes, and draw the held curve and the current one."""
        for ax in self.axes:
            ax.clear()
            ax.set_ylim(0, 0.001)
        for legend in self.fig.legends[:]:
            legend.remove()
        self._lines, self._ghosts = self._draw(
            self.fig, self.axes, shown, lambda one: figures.label(one.method)
        )
        self._marks = [ax.axvline(0, color="0.4", lw=0.6, ls="--") for ax in self.axes]
        self.moves(*self._lines.values(), *self._marks)
        self.lay_out_anew()

    def _draw(self, fig, axes, shown, label) -> tuple[dict, dict]:
        """Draw the current curve over the held one, which is wide and pale; return the lines of both."""
        now, held, axis, ghosts = self.setting, self._kept, self.axis.value, {}
        if held is not None:
            pale = held.curve(GRIDS[axis])
            ghosts = draw(axes, pale, axis, held.method, f"held: {label(held)}", **curves.HELD)
        lines = draw(axes, shown, axis, now.method, label(now))
        fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
        return lines, ghosts

    def _read_out(self, point):
        rows = [
            (words, f"{point[kind]:.8f}", f"{point[kind + '_gradient']:.8f}")
            for kind, (_, words) in curves.KINDS.items()
        ]
        pull = point["missing_gradient"]
        fate = "lowers" if pull > 0 else "raises" if pull < 0 else "does not change"
        place = f"At p = {point['p']:.3f}, z = {point['z']:.4f}"
        note = f"{place}: a training step {fate} p of this missing label."
        self.readout.value = table(note, READOUT.items(), rows)
        notes = [] if self._kept is None else [f"Held (pale): {self._kept}. Current: {self.setting}."]
        if methods.get(self.method.value).batchwise:
            notes.append(BATCHWISE)
        self.note.value = f"<small>{'<br>'.join(map(html.escape, notes))}</small>"

    # --- what the controls do ---

    def _choose(self):
        """Show the controls of the chosen method, which keep their values, and clear the axes."""
        name = self.method.value
        if name not in self._made:
            self._made[name] = Hyperparameters(name)
            for widget in self._made[name].all():
                widget.observe(self.redraw, "value")
        self._lines = {}

    def _begin_anew(self, change):
        with self.errors_shown():
            if change["owner"] is self.hold:
                self._kept = self.setting if self.hold.value else None
                self.hold.description = "Release" if self.hold.value else "Hold"
            self._choose()
        self.redraw()

    def _reset(self):
        del self._made[self.method.value]
        self._choose()
        self.redraw()

    def _copy(self):
        self.code.layout.display = "none" if self.code.layout.display is None else None

    def _export(self):
        self.status.value = ""  # of an earlier export, in case this one fails
        shown = self.setting.curve(GRIDS[self.axis.value])
        fig, axes = figures.detached(1, 2, height_to_width=0.75)
        self._draw(fig, axes, shown, lambda one: textwrap.fill(str(one), 44))
        said = ", ".join([figures.label(self.method.value), *curves.listed(self.setting.params)])
        caption = f"Loss of one label and its gradient: {said}."
        if self._kept is not None:
            held = self._kept.curve(shown["z"]).drop(columns=["z", "p"])
            shown = shown.join(held.add_prefix("held "))
            caption = f"{caption} Held (pale): {self._kept}. Current: {self.setting}."
        context = f"one label, no training, epoch {self.epoch.value} of {NUM_EPOCHS}"
        figures.save_figure(fig, self.name.value, shown, self.figures_dir, caption, context)
        where = html.escape(str(Path(self.figures_dir) / f"{self.name.value}.pdf"))
        self.status.value = f"Written: <code>{where}</code>, with PNG, CSV and caption"

    # --- training ---

    def _train(self):
        self.training = Training(self.experiment(), self.runs_dir)
        self.train.disabled, self.cancel.disabled = True, False
        self.bar.value, self.bar.description, self.bar.layout.visibility = 0, "epoch 0", "visible"
        self.status.value = f"Training {figures.label(self.method.value)} on digits"
        self.watcher = threading.Thread(target=self._watch, args=(self.training,), daemon=True)
        self.watcher.start()

    def _watch(self, training: Training):
        """Show the progress of a training in the panel; runs in a thread."""
        last = "Training was interrupted; train again to resume it"
        try:
            with self.errors_shown():  # what is raised reaches the notebook by stderr, too
                for kind, what in training.events():
                    if kind == "epoch":
                        epoch = int(what["epoch"])
                        self.bar.value, self.bar.description = epoch, f"epoch {epoch}"
                        self.status.value = f"Validation mAP {what['val_map']:.1f} %"
                    elif kind == "failed":
                        last = "Training failed"
                        raise RuntimeError(f"training failed: {what}")
                    else:
                        last = self._finished(Run(what))
        finally:
            training.process.join()
            self.train.disabled, self.cancel.disabled = False, True
            self.bar.layout.visibility = "hidden"
            self.status.value = last

    def _finished(self, run: Run) -> str:
        """Add a run to the table; return the text of the status line."""
        self.runs = list(dict.fromkeys([*self.runs, run]))
        self.bar.value = NUM_EPOCHS
        rows = overview(self.runs)[COLUMNS]
        self.table.value = rows.to_html(index=False, border=0, float_format="{:.1f}".format, justify="left")
        found = run.summary["test_map"]
        return f"Finished: test mAP {found:.1f} %, stored in <code>{html.escape(run.path.name)}</code>"
