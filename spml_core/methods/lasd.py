"""LASD: a loss on one view of an image and its consistency over three."""

from __future__ import annotations

import math

from spml_core import losses
from spml_core.methods.base import Method, Step, probe, register
from spml_core.methods.memory import check_number


@register("lasd")
class LASD(Method):
    """Leveraged asymmetric loss with disambiguation, and consistency over three views (LASD Eq. 5 to 8).

    L = `spml_core.losses.lasd` of the original image + alpha * `spml_core.losses.consistency` of all three views. The
    trainer supplies them: logits are (3, N, C), the original first. With (N, C) there is no consistency term.

    Args:
        lambda_plus: >= 0, weight of pseudo-positives (p > tau).
        lambda_minus: >= 0, weight of pseudo-negatives; None = (1 + lambda_plus (k - 1)) / (C - k), LASD Theorem 5.4.
        expected_positives: k in [1, C), true positives an image, for lambda_minus. The default 1 asks for nothing that
            SPML does not know, and gives the 1/(C - 1) of `wan`.
        tau: in [0, 1], threshold of the pseudo-labels.
        gamma_pos, gamma_neg: >= 0, focusing.
        alpha: >= 0, weight of the consistency term; 0 asks for one view only.

    The source leaves open the augmentations (ours: `spml_core.train.augment`), and whether k is known; it sums over
    classes, we take the mean over N*C of both terms, which keeps their ratio.
    """

    def __init__(
        self,
        num_classes,
        num_examples=None,
        *,
        lambda_plus: float = 0.1,
        lambda_minus: float | None = None,
        expected_positives: float = 1.0,
        tau: float = 0.9,
        gamma_pos: float = 0.0,
        gamma_neg: float = 4.0,
        alpha: float = 0.7,
    ):
        check_number("alpha", alpha, 0, math.inf, "[)")
        super().__init__(
            num_classes,
            num_examples,
            lambda_plus=lambda_plus,
            lambda_minus=lambda_minus,
            expected_positives=expected_positives,
            tau=tau,
            gamma_pos=gamma_pos,
            gamma_neg=gamma_neg,
            alpha=alpha,
        )
        self.views = 3 if alpha else 1
        if lambda_minus is None:
            check_number("lambda_plus", lambda_plus, 0, math.inf, "[)")
            lambda_minus = losses.leverage(lambda_plus, expected_positives, num_classes)
        self.lambda_minus = lambda_minus
        probe(self)

    def forward(self, logits, observed, step: Step):
        options = {k: self.hyperparameters[k] for k in ("lambda_plus", "tau", "gamma_pos", "gamma_neg")}
        options["lambda_minus"] = self.lambda_minus
        if logits.ndim == 2:
            return losses.lasd(logits, observed, **options)
        loss = losses.lasd(logits[0], observed, **options)
        return loss + self.hyperparameters["alpha"] * losses.consistency(logits)
