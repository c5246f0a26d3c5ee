"""Methods that are nothing but a loss, and two whose loss changes once."""

from spml_core import losses
from spml_core.methods.base import LossMethod, Method, probe, register


@register("bce")
class BCE(LossMethod):
    """Full-label binary cross-entropy: every label of every image is observed. The upper bound (EM Table 1)."""

    loss = staticmethod(losses.bce)
    observes = (-1, -1)


@register("iun")
class IUN(LossMethod):
    """Ignore unobserved: one positive and, by an oracle, every true negative of an image (EM Table 1)."""

    loss = staticmethod(losses.iun)
    observes = (1, -1)


@register("an")
class AN(LossMethod):
    """Assume negative: unobserved labels are negatives. The lower bound (Cole Eq. 2)."""

    loss = staticmethod(losses.an)


@register("an_ls")
class ANLS(LossMethod):
    """Assume negative with label smoothing (Cole 4.2; LASD A.2.2)."""

    loss = staticmethod(losses.an_ls)


@register("n_ls")
class NLS(LossMethod):
    """Assume negative with label smoothing of the assumed negatives only (EM B.2)."""

    loss = staticmethod(losses.n_ls)


@register("wan")
class WAN(LossMethod):
    """Weak assume negative: assumed negatives weighted by 1/(C - 1) (Cole Eq. 4)."""

    loss = staticmethod(losses.wan)


@register("dw")
class DW(LossMethod):
    """Down-weighting: assumed negatives by a chosen weight (EM B.2)."""

    loss = staticmethod(losses.dw)


@register("em")
class EM(LossMethod):
    """Entropy maximisation on unobserved labels (EM Eq. 3)."""

    loss = staticmethod(losses.em)


@register("ent_min")
class EntMin(LossMethod):
    """Entropy minimisation on unobserved labels (EM B.2).

    It seldom learns: the only push is towards positive, and certainty keeps what it began, so that nearly all labels
    end at p = 1 (digits: test mAP below 55). EM Table 1 reports as much.
    """

    loss = staticmethod(losses.ent_min)


@register("epr")
class EPR(LossMethod):
    """Expected positive regularisation: the mean number of predicted positives is held to k (Cole Eq. 6, 7)."""

    loss = staticmethod(losses.epr)


@register("focal")
class Focal(LossMethod):
    """Focal loss, unobserved labels assumed negative (Hill Eq. 3; LASD A.2.2)."""

    loss = staticmethod(losses.focal)


@register("asl")
class ASL(LossMethod):
    """Asymmetric loss, unobserved labels assumed negative, without probability margin unless given (Hill Eq. 4)."""

    loss = staticmethod(losses.asl)


@register("asl_ps")
class ASLPS(LossMethod):
    """Asymmetric loss with probability shift: `asl` with margin 0.05 (LASD A.2.2)."""

    loss = staticmethod(losses.asl_ps)


@register("hill")
class Hill(LossMethod):
    """Hill loss on unobserved labels, Focal margin on observed positives (Zhang et al., 2021, Eq. 5, 11)."""

    loss = staticmethod(losses.hill)


@register("focal_margin")
class FocalMargin(LossMethod):
    """Focal margin: Focal with the logit of observed positives shifted down (Hill Eq. 11, Table VI and VII)."""

    loss = staticmethod(losses.focal_margin)


@register("mse")
class MSE(LossMethod):
    """Squared error on all labels but observed positives, the part of Hill before its weight (Hill Table VI)."""

    loss = staticmethod(losses.mse)


class _Correcting(Method):
    """A loss that corrects labels from epoch `first_epoch` on, and none before; the released code says 2."""

    def __init__(self, num_classes, num_examples, *, first_epoch, **constants):
        if isinstance(first_epoch, str | None) or not first_epoch >= 1:
            raise ValueError(f"first_epoch must be >= 1 (epochs count from 1), got {first_epoch!r}")
        super().__init__(num_classes, num_examples, first_epoch=first_epoch, **constants)
        probe(self)

    def forward(self, logits, observed, step):
        constants = {k: v for k, v in self.hyperparameters.items() if k != "first_epoch"}
        correct = step.epoch >= self.hyperparameters["first_epoch"]
        return self.loss(logits, observed, **constants, correct=correct)


@register("splc")
class SPLC(_Correcting):
    """Self-paced loss correction: from epoch 2 on, confident unobserved labels count as positive (Hill Eq. 9, 10)."""

    loss = staticmethod(losses.splc)

    def __init__(
        self, num_classes, num_examples=None, *, tau: float = 0.6, base: str = "bce", first_epoch: int = 2
    ):
        super().__init__(num_classes, num_examples, tau=tau, base=base, first_epoch=first_epoch)


@register("fm_splc")
class FMSPLC(_Correcting):
    """Focal margin + SPLC as published: correction from epoch 2 on, focal negatives (Hill Eq. 10, 11)."""

    loss = staticmethod(losses.fm_splc)

    def __init__(
        self,
        num_classes,
        num_examples=None,
        *,
        tau: float = 0.6,
        margin: float = 1.0,
        gamma: float = 2.0,
        negative: str = "focal",
        lam: float = 1.5,
        shift_corrected: bool = False,
        first_epoch: int = 2,
    ):
        super().__init__(
            num_classes,
            num_examples,
            tau=tau,
            margin=margin,
            gamma=gamma,
            negative=negative,
            lam=lam,
            shift_corrected=shift_corrected,
            first_epoch=first_epoch,
        )
