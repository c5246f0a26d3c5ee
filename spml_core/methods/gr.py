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
        q3: a number as published, or a (start, end) pair that moves by epoch / num_epochs: a robust loss that varies
            during training is what the paper leaves for later (its first limitation).
        schedule: "paper" moves all four by epoch / num_epochs (GR Eq. 9, 10, 12, 13). "code", the default because it
            made the published tables, moves w and b by (epoch - 1) / num_epochs, so that they never reach their end
            values, and mu and sigma by epoch / num_epochs.
        b0: start of b, in place of b's own: a number, or "prior" = logit((k - 1) / (C - 1)), so that the pseudo-label
            starts as the share of false negatives among unobserved labels (GR Remark 1); None = b's own.
        expected_positives: k in (1, C), true positives an image; for "prior" only.
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
        q3: float | tuple[float, float] = 1.0,
        schedule: str = "code",
        b0: float | str | None = None,
        expected_positives: float | None = None,
        log_floor: float = 0.0,
    ):
        if schedule not in SCHEDULES:
            raise ValueError(f"unknown schedule {schedule!r}: use one of {', '.join(SCHEDULES)}")
        pairs = {"w": w, "b": b, "mu": mu, "sigma": sigma}
        pairs = {k: _pair(k, v) for k, v in pairs.items()}
        if not min(pairs["sigma"]) > 0:
            raise ValueError(f"sigma must be > 0 at both ends of its schedule, got {pairs['sigma']}")
        if isinstance(q3, list | tuple):
            q3 = _pair("q3", q3)
            if not min(q3) >= 0:
                raise ValueError(f"q3 must be >= 0 at both ends of its schedule, got {q3}")
        super().__init__(
            num_classes,
            num_examples,
            **pairs,
            q1=q1,
            q2=q2,
            q3=q3,
            schedule=schedule,
            b0=b0,
            expected_positives=expected_positives,
            log_floor=log_floor,
        )
        self.start_of_b = self._start_of_b()
        probe(self)

    def _start_of_b(self) -> float:
        b0, k = self.hyperparameters["b0"], self.hyperparameters["expected_positives"]
        if b0 is None:
            return self.hyperparameters["b"][0]
        if b0 != "prior":
            if not isinstance(b0, Real) or not math.isfinite(b0):
                raise ValueError(f'b0 must be a finite number, "prior" or None, got {b0!r}')
            return float(b0)
        if not isinstance(k, Real) or not 1 < k < self.num_classes:
            raise ValueError(
                f'b0="prior" needs expected_positives in (1, {self.num_classes}), the mean number of true labels of an '
                f"image, got {k!r}: estimate it from fully labelled images, e.g. full.sum(axis=1).mean()"
            )
        return math.log((k - 1) / (self.num_classes - k))

    def at(self, step: Step) -> dict[str, float]:
        """w, b, mu, sigma at a step."""
        late = step.epoch / step.num_epochs
        early = late if self.hyperparameters["schedule"] == "paper" else (step.epoch - 1) / step.num_epochs
        moments = {"w": early, "b": early, "mu": late, "sigma": late}
        ends = {k: self.hyperparameters[k] for k in moments} | {
            "b": (self.start_of_b, self.hyperparameters["b"][1])
        }
        return {k: (1 - t) * ends[k][0] + t * ends[k][1] for k, t in moments.items()}

    def q3_at(self, step: Step) -> float:
        """q3 at a step."""
        q3, t = self.hyperparameters["q3"], step.epoch / step.num_epochs
        return (1 - t) * q3[0] + t * q3[1] if isinstance(q3, tuple) else q3

    def forward(self, logits, observed, step):
        constants = {k: self.hyperparameters[k] for k in ("q1", "q2", "log_floor")}
        return losses.gr(logits, observed, **self.at(step), q3=self.q3_at(step), **constants)


def _pair(name: str, value) -> tuple[float, float]:
    pair = tuple(value) if isinstance(value, list | tuple) else (value, value)
    if len(pair) != 2 or not all(isinstance(v, Real) and math.isfinite(v) for v in pair):
        raise ValueError(
            f"{name} must be a (start, end) pair of finite numbers or one such number, got {value!r}"
        )
    return (float(pair[0]), float(pair[1]))
