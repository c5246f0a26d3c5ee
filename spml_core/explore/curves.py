"""Drawing the curves of a loss, and telling one that is held from the one beside it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spml_core import figures
from spml_core.explore import labelwise

P = np.linspace(0.0025, 0.9975, 399)
GRIDS = {"p": np.log(P / (1 - P)), "z": np.linspace(-10, 10, 401)}  # logits, equidistant on the axis
AXES = {"p": ("predicted probability $p$", (0, 1)), "z": ("logit $z$", (-10, 10))}
HELD = {"linewidth": 2.5, "alpha": 0.35}
# Methods whose curve moves with the epoch; all others are the same in each.
CLOCKED = ("em_apl", "en", "fm_splc", "gr", "ll_cp", "ll_ct", "ll_r", "pseudo_label", "splc")
SHOW = [("both", "both"), ("missing label only", "missing"), ("observed positive only", "observed")]
CURVES = ("missing", "observed", "missing_gradient", "observed_gradient")


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
            return told(self.changed) or "defaults", told(other.changed) or "defaults"
        pair = [one.params | ({"epoch": one.epoch} if one.method in CLOCKED else {}) for one in (self, other)]
        only = lambda one, two: told({k: v for k, v in one.items() if two.get(k) != v})  # noqa: E731
        return only(*pair), only(*reversed(pair))


@dataclass(frozen=True)
class Held:
    """A curve that stays, over the logits at which it was computed."""

    setting: Setting
    logits: np.ndarray
    curve: labelwise.Curve

    def x(self, axis: str) -> np.ndarray:
        """Where the curve is known, on this axis."""
        return 1 / (1 + np.exp(-self.logits)) if axis == "p" else self.logits

    def beside(self, other: Setting) -> str:
        """E.g. "Held, pale: GR, b = (-2.0, -2.0). Beside it: b = (-2.0, -8.0)." """
        name, (held, now) = words(self.setting.method), self.setting.differs(other)
        now = now if other.method == self.setting.method else f"{words(other.method)}, {now}"
        return f"Held, pale: {name}, {held}. Beside it: {now}." if held or now else f"Held, pale: {name}."


def draw(
    axes, x: np.ndarray, curve: labelwise.Curve, method: str, axis: str = "p", show: str = "both"
) -> dict:
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


def words(method: str) -> str:
    return figures.METHOD_LABELS.get(method, method)


def told(params: dict) -> str:
    return ", ".join(f"{name} = {value}" for name, value in params.items())


def cut(curve: labelwise.Curve, part) -> labelwise.Curve:
    return labelwise.Curve(*(values[part] for values in vars(curve).values()))
