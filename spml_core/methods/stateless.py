"""Methods that are nothing but a loss."""

from spml_core import losses
from spml_core.methods.base import LossMethod, register


@register("bce")
class BCE(LossMethod):
    """Full-label binary cross-entropy: every label of every image is observed. The upper bound (EM Table 1)."""

    loss = staticmethod(losses.bce)
    observes = (-1, -1)


@register("an")
class AN(LossMethod):
    """Assume negative: unobserved labels are negatives. The lower bound (Cole Eq. 2)."""

    loss = staticmethod(losses.an)


@register("wan")
class WAN(LossMethod):
    """Weak assume negative: assumed negatives weighted by 1/(C - 1) (Cole Eq. 4)."""

    loss = staticmethod(losses.wan)


@register("em")
class EM(LossMethod):
    """Entropy maximisation on unobserved labels (EM Eq. 3)."""

    loss = staticmethod(losses.em)


@register("hill")
class Hill(LossMethod):
    """Hill loss on unobserved labels, Focal margin on observed positives (Zhang et al., 2021, Eq. 5, 11)."""

    loss = staticmethod(losses.hill)
