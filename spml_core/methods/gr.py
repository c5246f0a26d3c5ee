"""GR: a loss whose pseudo-label and weight follow a schedule."""

import math
from numbers import Real

from spml_core import losses
from spml_core.methods.base import Method, Step, probe, register

SCHEDULES = ("code", "paper")


@register("gr")
class GR(Method):
    """Generalized robust loss with linearly scheduled pseudo-label and weight (GR Eq. 4 to 14).

    `w, b, mu, sigma` are (start, end) pairs; a single number stands for a constant. The defaults are the published
    start values with the end values of VOC (GR Table 6); `spml_core.losses.gr` states the deviations of the loss.

    Args:
        schedule: "paper" moves all four by epoch / num_epochs (GR Eq. 9, 10, 12, 13). "code", the default because it
            made the published tables, moves w and b by (epoch - 1) / num_epochs, so that they never reach their end
            values, and mu and sigma by epoch / num_epochs.
    """

    def __init__(
        self,
        num_classes,
        num_examples=None,
        *,
        w: tuple[float, float] = (0.0, 2.0),
        b: tuple[float, float] = (-2.0, -2.0),
        mu: tuple[float, float] = (0.5, 0.8),
        sigma: tuple[float, float] = (2.0, 0.5),
        q1: float = 0.01,
        q2: float = 0.01,
        q3: float = 1.0,
        schedule: str = "code",
        log_floor: float = 0.0,
    ):
        if schedule not in SCHEDULES:
            raise ValueError(f"unknown schedule {schedule!r}: use one of {', '.join(SCHEDULES)}")
        pairs = {"w": w, "b": b, "mu": mu, "sigma": sigma}
        pairs = {k: _pair(k, v) for k, v in pairs.items()}
        if not min(pairs["sigma"]) > 0:
            raise ValueError(f"sigma must be > 0 at both ends of its schedule, got {pairs['sigma']}")
        super().__init__(
            num_classes, num_examples, **pairs, q1=q1, q2=q2, q3=q3, schedule=schedule, log_floor=log_floor
        )
        probe(self)

    def at(self, step: Step) -> dict[str, float]:
        """w, b, mu, sigma at a step."""
        late = step.epoch / step.num_epochs
        early = late if self.hyperparameters["schedule"] == "paper" else (step.epoch - 1) / step.num_epochs
        moments = {"w": early, "b": early, "mu": late, "sigma": late}
        return {
            k: (1 - t) * self.hyperparameters[k][0] + t * self.hyperparameters[k][1]
            for k, t in moments.items()
        }

    def forward(self, logits, observed, step):
        constants = {k: self.hyperparameters[k] for k in ("q1", "q2", "q3", "log_floor")}
        return losses.gr(logits, observed, **self.at(step), **constants)


def _pair(name: str, value) -> tuple[float, float]:
    pair = tuple(value) if isinstance(value, list | tuple) else (value, value)
    if len(pair) != 2 or not all(isinstance(v, Real) and math.isfinite(v) for v in pair):
        raise ValueError(
            f"{name} must be a (start, end) pair of finite numbers or one such number, got {value!r}"
        )
    return (float(pair[0]), float(pair[1]))
