"""The curve of a loss over one label: computing it, drawing it, and telling a held one from the one beside it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from spml_core import figures, methods
from spml_core.methods import Method, Step

NUM_CLASSES = 10  # those of digits

P = np.linspace(0.0025, 0.9975, 399)
GRIDS = {"p": np.log(P / (1 - P)), "z": np.linspace(-10, 10, 401)}  # logits, equidistant on the axis
AXES = {"p": ("predicted probability $p$", (0, 1)), "z": ("logit $z$", (-10, 10))}
HELD = {"linewidth": 2.5, "alpha": 0.35}
SHOW = [("both", "both"), ("missing label only", "missing"), ("observed positive only", "observed")]
CURVES = ("missing", "observed", "missing_gradient", "observed_gradient")


@dataclass(frozen=True)
class Curve:
    """Value and gradient by the logit, (N,) each, of the loss of a missing and of an observed label."""

    missing: np.ndarray
    missing_gradient: np.ndarray
    observed: np.ndarray
    observed_gradient: np.ndarray

    def part(self, which) -> Curve:
        """Return the values at some of the logits."""
        return Curve(*(values[which] for values in vars(self).values()))


def compute(name: str, logits: np.ndarray, epoch: int = 1, num_epochs: int = 10, **params) -> Curve:
    """Return what a method's loss says of a label with these logits, in float64.

    The logits are those of N images, the same for each of ten classes, of which one is observed, a positive; the images
    take turns in which. That matters to methods that look at more than one label: those that rank labels see
    these, and those that remember have seen them unchanged in all epochs before.

    Args:
        logits: (N,).
        params: hyperparameters of the method.

    Raises:
        ValueError: as `methods.build`; or the loss is none of single labels.
    """
    check(name)
    z = torch.as_tensor(logits, dtype=torch.float64)[:, None].repeat(1, NUM_CLASSES).requires_grad_()
    index = torch.arange(len(z))
    shown, hidden = index % NUM_CLASSES, (index + 1) % NUM_CLASSES
    observed = torch.zeros_like(z, requires_grad=False)
    observed[index, shown] = 1
    method = methods.build(name, NUM_CLASSES, len(z), **params)
    with torch.no_grad():
        for earlier in range(1, epoch + 1) if any(True for _ in method.buffers()) else ():
            method(z, observed, Step(earlier, num_epochs, index))
    value = method.label_loss(Step(epoch, num_epochs, index))(z, observed, reduction="none")
    (gradient,) = torch.autograd.grad(value.sum(), z)
    found = [part.detach()[index, which].numpy() for which in (hidden, shown) for part in (value, gradient)]
    return Curve(*found)


def check(name: str) -> None:
    """Raise ValueError if the loss of a method is none of single labels, or there is no such method."""
    if reason := methods.get(name).no_curve:
        raise ValueError(f"the loss of {name} has no curve over p: {reason}")


def as_html(method: Method, step: Step) -> str:
    """Return a method's equation for `ipywidgets.HTMLMath`, one line per equation."""
    left = {"observed": r"L_{\mathrm{observed}}", "missing": r"L_{\mathrm{missing}}"}
    equation, remark = method.equation(step), method.remark(step)
    if not equation:
        return f"<small>{method.name} has no equation: its class may give one, `equation(step)`.</small>"
    lines = [rf"\({left.get(what, what)} = {text}\)" for what, text in equation.items()]
    return "<br>".join(lines + [f"<small>{remark}</small>"] * bool(remark))


@dataclass(frozen=True)
class Setting:
    """What a curve is of. `changed`: those of the hyperparameters `params` that are not the default."""

    method: str
    params: dict
    changed: dict
    epoch: int

    def differs(self, other: Setting) -> tuple[str, str]:
        """In what the two differ, as (this one, the other); "" in nothing."""
        if self.method != other.method:
            return listed(self.changed) or "defaults", listed(other.changed) or "defaults"
        clocked = methods.get(self.method).clocked
        pair = [one.params | ({"epoch": one.epoch} if clocked else {}) for one in (self, other)]
        only = lambda one, two: listed({k: v for k, v in one.items() if two.get(k) != v})  # noqa: E731
        return only(*pair), only(*reversed(pair))


@dataclass(frozen=True)
class Held:
    """A curve that stays, over the logits at which it was computed."""

    setting: Setting
    logits: np.ndarray
    curve: Curve

    def x(self, axis: str) -> np.ndarray:
        """Where the curve is known, on this axis."""
        return 1 / (1 + np.exp(-self.logits)) if axis == "p" else self.logits

    def beside(self, other: Setting) -> str:
        """E.g. "Held, pale: GR, b = (-2.0, -2.0). Beside it: b = (-2.0, -8.0)." """
        name, (held, now) = figures.label(self.setting.method), self.setting.differs(other)
        now = now if other.method == self.setting.method else f"{figures.label(other.method)}, {now}"
        return f"Held, pale: {name}, {held}. Beside it: {now}." if held or now else f"Held, pale: {name}."


def draw(axes, x: np.ndarray, curve: Curve, method: str, axis: str = "p", show: str = "both") -> dict:
    """Loss (left) and gradient (right) of a missing and of an observed label; returns the lines by name.

    Args:
        show: "both", or one of them: "missing", "observed".
    """
    look = figures.style(method)
    kinds = {kind: line for kind, line in {"missing": "-", "observed": ":"}.items() if show in (kind, "both")}
    lines = {}
    for ax, suffix in zip(axes, ("", "_gradient"), strict=True):
        for kind, line in kinds.items():
            name = kind + suffix
            (lines[name],) = ax.plot(
                x, getattr(curve, name), line, color=look["color"], label=_label(look["label"], kind)
            )
        ax.axhline(0, color="0.6", lw=0.6, zorder=0)
        ax.set(xlabel=AXES[axis][0], xlim=AXES[axis][1])
    axes[0].set(ylabel="loss $L$")
    axes[1].set(ylabel=r"gradient $\partial L/\partial z$")
    return lines


def _label(method: str, kind: str) -> str:
    return f"{method}, {'a missing label' if kind == 'missing' else 'an observed positive'}"


def draw_held(axes, held: Held, axis: str = "p", show: str = "both") -> dict:
    """`draw` a curve that is held, wide and pale."""
    lines = draw(axes, held.x(axis), held.curve, held.setting.method, axis, show)
    for line in lines.values():
        line.set(**HELD, label=f"held: {line.get_label()}")
    return lines


def listed(params: dict) -> str:
    """Return e.g. "w = 1.0, b = -2.0"."""
    return ", ".join(f"{name} = {value}" for name, value in params.items())
