"""LASD: a loss on one view of an image and its consistency over three."""

from functools import partial
from typing import ClassVar

from spml_core import losses
from spml_core.methods import latex
from spml_core.methods.base import Method, Number
from spml_core.methods.display import WINE, Slider, published
from spml_core.methods.registry import register


@register("lasd")
class LASD(Method):
    """Leveraged asymmetric loss with disambiguation, and consistency over three views (LASD Eq. 5 to 8).

    L = `spml_core.losses.lasd` of the original image + alpha * `spml_core.losses.consistency` of all three views. The
    trainer supplies them: logits are (3, N, C), the original first. With (N, C) there is no consistency term.

    Args:
        lambda_plus: >= 0, weight of pseudo-positives (p > tau).
        lambda_minus: >= 0, weight of pseudo-negatives; None = (1 + lambda_plus (k - 1)) / (C - k), LASD Theorem 5.4.
        expected_positives: k in [1, C), true positives per image, for lambda_minus. The default 1 needs no knowledge
            that SPML does not have, and gives the 1/(C - 1) of `wan`.
        tau: in [0, 1], threshold of the pseudo-labels.
        gamma_pos, gamma_neg: >= 0, focusing.
        alpha: >= 0, weight of the consistency term; 0 needs one view only.

    The source does not specify the augmentations (here `spml_core.train.augment`), nor whether k is known. It sums over
    classes; here both terms are means over N*C, which keeps their ratio.
    """

    loss = staticmethod(losses.lasd)
    own: ClassVar = {
        "lambda_minus": None,
        "expected_positives": Number(1.0),
        "alpha": Number(0.7, 0),
    }
    label, color, line = "LASD", WINE, "-"
    presets = published(
        "LASD Table 4; k of Table 1 for Theorem 5.4",
        lambda_plus=[0.10, 0.03, 0.015, 0.005],
        tau=[0.90, 0.90, 0.95, 0.93],
        alpha=[0.70, 0.10, 0.15, 0.03],
        expected_positives=[1.46, 2.94, 1.89, 31.4],
    )
    controls: ClassVar = {
        "lambda_plus": Slider("weight λ₊", 0, 1, 0.01),
        "alpha": None,
    }

    def __init__(self, num_classes, num_examples=None, **hyperparameters):
        super().__init__(num_classes, num_examples, **hyperparameters)
        h = self.hyperparameters
        self.views, self.lambda_minus = 3 if h["alpha"] else 1, h["lambda_minus"]
        if self.lambda_minus is None:
            Number(0.0, 0).check("lambda_plus", h["lambda_plus"])
            self.lambda_minus = losses.leverage(h["lambda_plus"], h["expected_positives"], num_classes)

    def label_loss(self, step):
        return partial(self.loss, **self.constants() | {"lambda_minus": self.lambda_minus})

    def forward(self, logits, observed, step):
        if logits.ndim == 2:
            return super().forward(logits, observed, step)
        loss = super().forward(logits[0], observed, step)
        return loss + self.hyperparameters["alpha"] * losses.consistency(logits)

    def equation(self, step):
        texts = {
            "observed": "L_+",
            "missing": r"«lambda_plus»\,[p>«tau»]\,L_+ + «lambda_minus»\,[p\leq «tau»]\,L_-",
            "L_+": r"-(1-p)^{«gamma_pos»}\,\log p",
            "L_-": r"-p^{«gamma_neg»}\,\log(1-p)",
        }
        return latex.fill(texts, self.hyperparameters | {"lambda_minus": self.lambda_minus})
