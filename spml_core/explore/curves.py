"""Compute, draw and describe the curve of a loss over one label."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from scipy.special import expit, logit

from spml_core import figures, methods
from spml_core.methods import Method, Step

NUM_CLASSES, NUM_EPOCHS = 10, 10  # those of digits

# Equidistant on the axis.
GRIDS = {"p": logit(np.linspace(0.0025, 0.9975, 399)), "z": np.linspace(-10, 10, 401)}
AXES = {"p": ("predicted probability $p$", (0, 1)), "z": ("logit $z$", (-10, 10))}
KINDS = {"missing": ("-", "missing label"), "observed": (":", "observed positive")}
HELD = {"linewidth": 2.5, "alpha": 0.35}


@dataclass(frozen=True)
class Setting:
    """What a curve shows: a method, its hyperparameters, and an epoch, of ten."""

    method: str
    params: dict
    epoch: int

    @property
    def changed(self) -> dict:
        """The hyperparameters that differ from the defaults."""
        usual = methods.defaults(self.method)
        return {name: value for name, value in self.params.items() if value != usual[name]}

    def __str__(self):
        """E.g. "GR, b = (-2.0, -8.0), epoch = 10"; the epoch where it matters."""
        clocked = {"epoch": self.epoch} if methods.get(self.method).clocked else {}
        return ", ".join([figures.label(self.method), *listed(self.changed | clocked)])

    def curve(self, logits: np.ndarray) -> pd.DataFrame:
        """Return loss and gradient of a label with these logits, in float64.

        The logits are those of N images and are the same for each of ten classes. Each image has one observed positive,
        and its class changes from image to image. This matters for methods that look at more than one label: methods
        that rank labels see all ten, and methods with a memory have seen them unchanged in all earlier epochs.

        Args:
            logits: (N,).

        Returns:
            One row per logit: z, p, and the loss of a missing and of an observed label with its gradient by the logit
            (missing, missing_gradient, observed, observed_gradient).

        Raises:
            ValueError: as `methods.build`; or the loss is not a function of single labels.
        """
        check(self.method)
        z = torch.as_tensor(logits, dtype=torch.float64)[:, None].repeat(1, NUM_CLASSES).requires_grad_()
        index = torch.arange(len(z))
        columns = {"missing": (index + 1) % NUM_CLASSES, "observed": index % NUM_CLASSES}
        observed = torch.zeros_like(z, requires_grad=False)
        observed[index, columns["observed"]] = 1
        method = methods.build(self.method, NUM_CLASSES, len(z), **self.params)
        with torch.no_grad():
            for earlier in range(1, self.epoch + 1) if any(True for _ in method.buffers()) else ():
                method(z, observed, Step(earlier, NUM_EPOCHS, index))
        value = method.label_loss(Step(self.epoch, NUM_EPOCHS, index))(z, observed, reduction="none")
        (gradient,) = torch.autograd.grad(value.sum(), z)
        found = {"z": logits, "p": expit(logits)}
        for kind, column in columns.items():
            found[kind] = value.detach()[index, column]
            found[f"{kind}_gradient"] = gradient[index, column]
        return pd.DataFrame(found)


def check(name: str) -> None:
    """Raise ValueError if a method's loss is not a function of single labels, or if there is no such method."""
    if reason := methods.get(name).no_curve:
        raise ValueError(f"the loss of {name} has no curve over p: {reason}")


def as_html(method: Method, step: Step) -> str:
    """Return a method's equation for `ipywidgets.HTMLMath`, one line per equation."""
    left = {"observed": r"L_{\mathrm{observed}}", "missing": r"L_{\mathrm{missing}}"}
    equation, remark = method.equation(step), method.remark(step)
    if not equation:
        return f"<small>{method.name} has no equation; its class can define one as `equation(step)`.</small>"
    lines = [rf"\({left.get(what, what)} = {text}\)" for what, text in equation.items()]
    return "<br>".join(lines + [f"<small>{remark}</small>"] * bool(remark))


def draw(axes, table: pd.DataFrame, axis: str, method: str, label: str, **look) -> dict:
    """Draw loss (left) and gradient (right) of `Setting.curve` over an axis, "p" or "z"; return the lines by column."""
    lines = {}
    for ax, suffix in zip(axes, ("", "_gradient"), strict=True):
        for kind, (style, words) in KINDS.items():
            options = {"color": figures.color(method), "label": f"{label}, {words}"} | look
            (lines[kind + suffix],) = ax.plot(table[axis], table[kind + suffix], style, **options)
        ax.axhline(0, color="0.6", lw=0.6, zorder=0)
        ax.set(xlabel=AXES[axis][0], xlim=AXES[axis][1])
    axes[0].set(ylabel="loss $L$")
    axes[1].set(ylabel=r"gradient $\partial L/\partial z$")
    return lines


def listed(params: dict) -> list[str]:
    """Return e.g. ["w = 1.0", "b = -2.0"]."""
    return [f"{name} = {value}" for name, value in params.items()]
