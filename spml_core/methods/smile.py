"""SMILE: an encoder of images and their neighbours enhances the labels from which the classifier learns."""

from typing import ClassVar

import torch

from spml_core import losses
from spml_core.methods.base import Auxiliary, Number
from spml_core.methods.display import GREY, LINES
from spml_core.methods.registry import register

# The divergence of Beta(d, 1 - d) grows as 1 / d, its gradient as 1 / d^2, so the logit of d is clamped to this range.
ENDS = (-7.0, 7.0)


def divergence(enhanced: torch.Tensor) -> torch.Tensor:
    """Return the mean divergence of Beta(d, 1 - d) from Beta(1, 1), from the logits (N, C) of d."""
    e = enhanced.to(torch.promote_types(enhanced.dtype, torch.float32)).clamp(*ENDS)
    return losses.beta_divergence(torch.sigmoid(e), torch.sigmoid(-e))


@register("smile")
class SMILE(Auxiliary):
    """Label enhancement: targets from the labels of similar images (SMILE, NeurIPS 2022).

    The head "enhancing" (`spml_core.models.Enhancing`) estimates how far each label describes an image, d, from the
    features of the image and of its nearest neighbours. The loss is `spml_core.losses.smile` for the classifier, and
    for the encoder AN(d) + gamma (MSE of decoded features + AN of decoded labels + MSE of their products against the
    graph) + delta KL(Beta(d, 1 - d) to Beta(1, 1)). With another head, d = p.

    Args:
        mix: in [0, 1], share of the enhanced labels in the target.
        rate: >= 0, weight of an unobserved label; None = 1 / (C - 1).
        gamma: >= 0, weight of the decoder's terms.
        delta: >= 0, weight of the divergence.

    Deviations: the graph joins the images of a batch, not of the training set, so nothing has to be stored or
    refreshed. The encoder sees the features, but its gradient does not reach the backbone. The divergence is the true
    one (`spml_core.losses.beta_divergence`), with the logit of d clamped to [-7, 7]. The default of mix is that of the
    released code for the features of Corel5k; none is published for photographs.
    """

    own: ClassVar = {
        "mix": Number(0.1, 0, 1),
        "rate": None,
        "gamma": Number(1e-3, 0),
        "delta": Number(1.0, 0),
    }
    head = "enhancing"
    label, color, line = "SMILE", GREY, "-."
    no_curve = "its targets are those of similar images"

    def forward(self, logits, observed, step):
        h = self.hyperparameters
        target = {"mix": h["mix"], "rate": h["rate"]}
        said = self.auxiliary()
        if said is None:
            return losses.smile(logits, logits, observed, **target)
        enhanced, decoded, unlike = said
        return (
            losses.smile(logits, enhanced, observed, **target)
            + losses.an(enhanced, observed)
            + h["gamma"] * (unlike + losses.an(decoded, observed))
            + h["delta"] * divergence(enhanced)
        )


@register("smile_joint")
class JointSMILE(Auxiliary):
    """SMILE as released with MIME: classifier and encoder share one loss, `spml_core.losses.smile_joint`.

    Args:
        theta: >= 0, weight of the observed labels.
        strength: >= 0, weight of the divergence of Beta(d, 1 - d) from Beta(1, 1).

    Deviation: the head is that of `smile`, which has no Gaussian latent variable.
    """

    own: ClassVar = {"theta": Number(1.0, 0), "strength": Number(1e-5, 0)}
    head = "enhancing"
    label, color, line, whole = "SMILE (joint)", GREY, LINES[-1], False
    no_curve = SMILE.no_curve

    def forward(self, logits, observed, step):
        enhanced, *_ = self.auxiliary() or (logits.detach(),)
        h = self.hyperparameters
        joint = losses.smile_joint(logits, enhanced, observed, theta=h["theta"])
        return joint + h["strength"] * divergence(enhanced)
