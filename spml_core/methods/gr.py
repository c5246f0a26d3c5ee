"""GR: a loss whose pseudo-label and weight follow a schedule."""

import math
from functools import partial
from numbers import Real
from typing import ClassVar

from spml_core import losses
from spml_core.methods import latex
from spml_core.methods.base import Method, OneOf, Pair, Step
from spml_core.methods.display import BLUE, Options, published
from spml_core.methods.registry import register

SCHEDULES = ("code", "paper")


@register("gr")
class GR(Method):
    """Generalized robust loss with linearly scheduled pseudo-label and weight (GR Eq. 4 to 14).

    `w, b, mu, sigma` are (start, end) pairs; a single number stands for a constant. The defaults are the published
    start values with the end values of VOC (GR Table 6); `spml_core.losses.gr` states the deviations of the loss.

    Args:
        q3: a number as published, or a (start, end) pair that moves by epoch / num_epochs: the paper leaves a robust
            loss that varies during training to future work (its first limitation).
        schedule: "paper" moves all four by epoch / num_epochs (GR Eq. 9, 10, 12, 13). "code", the default because it
            made the published tables, moves w and b by (epoch - 1) / num_epochs, so that they never reach their end
            values, and mu and sigma by epoch / num_epochs.
        b0: start of b, instead of the start in `b`: a number, or "prior" = logit((k - 1) / (C - 1)), so that the
            pseudo-label starts as the share of false negatives among unobserved labels (GR Remark 1); None = as in `b`.
        expected_positives: k in (1, C), true positives per image; for "prior" only.
    """

    loss = staticmethod(losses.gr)
    own: ClassVar = {
        "w": Pair((0.0, 2.0)),
        "b": Pair((-2.0, -2.0)),
        "mu": Pair((0.5, 0.8)),
        "sigma": Pair((2.0, 0.5), 0, ends="(]"),
        "schedule": OneOf("code", SCHEDULES),
        "b0": None,
        "expected_positives": None,
    }
    clocked = True
    label, color, line = "GR", BLUE, "-"
    presets = published(
        "GR Table 6, 4.4 (q1); start values of the released code",
        dict(epochs=[8, 8, 10, 10], batch_size=[8, 16, 16, 8], lr=[1e-5, 1e-5, 1e-5, 5e-5]),
        w=[(0.0, 2.0), *[(0.0, 10.0)] * 3],
        b=[(-2.0, -2.0), *[(-2.0, -8.0)] * 3],
        mu=(0.5, 0.8),
        sigma=(2.0, 0.5),
        q1=0.01,
        q2=0.01,
        q3=[1.0, 1.0, 1.0, 1.5],
    )
    controls: ClassVar = {
        "schedule": Options("schedule", SCHEDULES),
        "expected_positives": None,  # of the start of b
    }

    def __init__(self, num_classes, num_examples=None, **hyperparameters):
        super().__init__(num_classes, num_examples, **hyperparameters)
        if isinstance(self.hyperparameters["q3"], list | tuple):
            self.hyperparameters["q3"] = Pair(1.0, 0).check("q3", self.hyperparameters["q3"])
        self.start_of_b = self._start_of_b()

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
        """Return w, b, mu, sigma at a step."""
        late = step.epoch / step.num_epochs
        early = late if self.hyperparameters["schedule"] == "paper" else (step.epoch - 1) / step.num_epochs
        moments = {"w": early, "b": early, "mu": late, "sigma": late}
        ends = {k: self.hyperparameters[k] for k in moments} | {
            "b": (self.start_of_b, self.hyperparameters["b"][1])
        }
        return {k: (1 - t) * ends[k][0] + t * ends[k][1] for k, t in moments.items()}

    def q3_at(self, step: Step) -> float:
        """Return q3 at a step."""
        q3, t = self.hyperparameters["q3"], step.epoch / step.num_epochs
        return (1 - t) * q3[0] + t * q3[1] if isinstance(q3, tuple) else q3

    def label_loss(self, step):
        return partial(self.loss, **self.constants() | self.at(step) | {"q3": self.q3_at(step)})

    def equation(self, step):
        return latex.fill(latex.GR, self.hyperparameters | self.at(step) | {"q3": self.q3_at(step)})

    def remark(self, step):
        if self.hyperparameters["schedule"] != "code":
            return ""
        epoch, epochs = step.epoch, step.num_epochs
        return (
            f"Schedule “code”, as in the released code: w and b have gone {epoch - 1}/{epochs} of the way to their end "
            f"values and never quite reach them; μ and σ have gone {epoch}/{epochs}. Schedule “paper”: all four have "
            f"gone {epoch}/{epochs}."
        )
