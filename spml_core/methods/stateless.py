"""Methods that consist of a loss only, and two whose loss changes once."""

from functools import partial
from typing import ClassVar

from spml_core import losses
from spml_core.methods import display, latex
from spml_core.methods.base import LossMethod, Method, Number
from spml_core.methods.display import Options, Slider, published
from spml_core.methods.registry import register

HILL = (
    "Zhang et al., 2021, Sec. III and IV ({}); the same for every data set there (COCO, VOC 2007, NUS-WIDE)"
)


@register("bce")
class BCE(LossMethod):
    """Full-label binary cross-entropy: every label of every image is observed. The upper bound (EM Table 1)."""

    loss = staticmethod(losses.bce)
    observes = (-1, -1)
    label, color, line = "BCE (full labels)", display.BLACK, "-"
    equation = latex.equation()


@register("iun")
class IUN(LossMethod):
    """Ignore unobserved: one positive and, by an oracle, every true negative of an image (EM Table 1)."""

    loss = staticmethod(losses.iun)
    observes = (1, -1)
    label, color, line = "IUN", display.BLACK, ":"
    equation = latex.equation("0")


@register("iu")
class IU(LossMethod):
    """Ignore unobserved: one positive and one verified negative per image, and no other label (Cole et al., code).

    Unlike `iun`, it is not an oracle of all labels, but the negative is one label more than the other methods see.
    """

    loss = staticmethod(losses.iu)
    observes = (1, 1)
    label, color, line = "IU", display.BLACK, "-."
    equation = IUN.equation


@register("an")
class AN(LossMethod):
    """Assume negative: unobserved labels are negatives. The lower bound (Cole Eq. 2)."""

    loss = staticmethod(losses.an)
    label, color, line = "AN", display.VERMILION, "-"
    equation = latex.equation()


@register("an_ls")
class ANLS(LossMethod):
    """Assume negative with label smoothing (Cole 4.2; LASD A.2.2)."""

    loss = staticmethod(losses.an_ls)
    label, color, line = "AN-LS", display.VERMILION, "--"
    presets = published("EM App. B.2, 3", smoothing=0.1)
    equation = latex.equation(
        r"-«1 - smoothing»\,\log(1-p) - «smoothing»\,\log p",
        r"-«1 - smoothing»\,\log p - «smoothing»\,\log(1-p)",
    )


@register("n_ls")
class NLS(LossMethod):
    """Assume negative with label smoothing of the assumed negatives only (EM B.2)."""

    loss = staticmethod(losses.n_ls)
    label, color, line = "N-LS", display.VERMILION, ":"
    presets = published("EM App. B.2, 3", smoothing=[0.3, 0.1, 0.1, 0.1])
    equation = latex.equation(r"-«1 - smoothing»\,\log(1-p) - «smoothing»\,\log p")


@register("wan")
class WAN(LossMethod):
    """Weak assume negative: assumed negatives weighted by 1/(C - 1) (Cole Eq. 4)."""

    loss = staticmethod(losses.wan)
    label, color, line = "WAN", display.PURPLE, "-"
    equation = latex.equation(r"-«1 / (C - 1) if weight is None else weight»\,\log(1-p)")


@register("dw")
class DW(LossMethod):
    """Down-weighting: assumed negatives with a chosen weight (EM B.2)."""

    loss = staticmethod(losses.dw)
    label, color, line = "DW", display.VERMILION, "-."
    presets = published("EM App. B.2, 1", weight=[0.1, 0.1, 0.1, 0.02])
    equation = WAN.equation


@register("em")
class EM(LossMethod):
    """Entropy maximisation on unobserved labels (EM Eq. 3)."""

    loss = staticmethod(losses.em)
    label, color, line = "EM", display.GREEN, "-"
    presets = published("EM Table 6", alpha=[0.2, 0.1, 0.1, 0.01])
    equation = latex.equation(rf"«alpha»\,{latex.ENTROPY}")


@register("ent_min")
class EntMin(LossMethod):
    """Entropy minimisation on unobserved labels (EM B.2).

    It rarely learns: the observed positives push only upwards, and minimising entropy reinforces that, so that nearly
    all labels end at p = 1 (digits: test mAP below 55). EM Table 1 shows the same.
    """

    loss = staticmethod(losses.ent_min)
    label, color, line = "EntMin", display.GREEN, ":"
    presets = published("EM App. B.2, 4", alpha=[0.01, 0.9, 0.4, 0.4])
    equation = latex.equation(rf"-«alpha»\,{latex.ENTROPY}")


@register("epr")
class EPR(LossMethod):
    """Expected positive regularisation: the mean number of predicted positives is kept near k (Cole Eq. 6, 7)."""

    loss = staticmethod(losses.epr)
    label, color, line = "EPR", display.PINK, ":"
    requires = ("expected_positives",)
    presets = published("Cole et al., CVPR 2021 (k)", expected_positives=[1.5, 2.9, 1.9, 31.4])
    batchwise = True
    equation = latex.equation(
        "R",
        r"-\log p + R",
        R=r"«weight»\,\left(\frac{\overline{\sum_c p_c} - «expected_positives»}{«C»}\right)^2",
    )


@register("pr")
class PR(LossMethod):
    """Pairwise ranking: an observed positive above the other labels of its image (Cole et al., released code)."""

    loss = staticmethod(losses.pr)
    label, color, line = "PR", display.PURPLE, "-."
    no_curve = "it compares labels with each other"


@register("two_way")
class TwoWay(LossMethod):
    """Two-way multi-label loss: positives against all other labels, by class and by image (Kobayashi, CVPR 2023)."""

    loss = staticmethod(losses.two_way)
    label, color, line = "Two-way", display.WINE, ":"
    no_curve = "it compares labels with each other"
    presets = published("Kobayashi, CVPR 2023 (temperatures)", {}, t_pos=4.0, t_neg=1.0)


@register("pu_mlc")
class PUMLC(LossMethod):
    """PU-MLC: positive and unlabelled learning that lowers each class's mean prediction (Yuan et al., ICME 2024)."""

    loss = staticmethod(losses.pu_mlc)
    label, color, line = "PU-MLC", display.WINE, "-."
    no_curve = "it compares the images of a batch with each other"
    presets = published(
        "Yuan et al., ICME 2024", {}, alpha=[2.0, 1.0, None, None], gamma=[0.85, 0.55, None, None]
    )


@register("focal")
class Focal(LossMethod):
    """Focal loss, unobserved labels assumed negative (Hill Eq. 3; LASD A.2.2)."""

    loss = staticmethod(losses.focal)
    label, color, line = "Focal", display.GREY, "-"
    presets = published("EM App. B.2, 5", gamma=2.0, alpha=0.75)
    equation = latex.equation(
        r"-«1 if alpha is None else 1 - alpha»\,p^{«gamma»}\,\log(1-p)",
        r"-«1 if alpha is None else alpha»\,(1-p)^{«gamma»}\,\log p",
    )


@register("asl")
class ASL(LossMethod):
    """Asymmetric loss, unobserved labels assumed negative, without a probability margin by default (Hill Eq. 4)."""

    loss = staticmethod(losses.asl)
    label, color, line = "ASL", display.SKY, "-"
    presets = published(
        "EM App. B.2, 6", gamma_pos=0.0, gamma_neg=[2.0, 2.0, 2.0, 1.0], margin=[0.2, 0.2, 0.2, 0.0]
    )
    controls: ClassVar = {
        "margin": Slider("margin m on p", 0, 1, 0.01),
    }
    equation = latex.equation(
        r"-p_m^{«gamma_neg»}\,\log(1-p_m)", r"-(1-p)^{«gamma_pos»}\,\log p", p_m=r"\max(p - «margin», 0)"
    )


@register("asl_ps")
class ASLPS(LossMethod):
    """Asymmetric loss with probability shift: `asl` with margin 0.05 (LASD A.2.2)."""

    loss = staticmethod(losses.asl_ps)
    label, color, line = "ASL, margin", display.SKY, "--"
    presets = published("LASD App. A.2.2", gamma_pos=0.0, gamma_neg=4.0, margin=0.05)
    controls, equation = ASL.controls, ASL.equation


@register("hill")
class Hill(LossMethod):
    """Hill loss on unobserved labels, Focal margin on observed positives (Zhang et al., 2021, Eq. 5, 11)."""

    loss = staticmethod(losses.hill)
    label, color, line = "Hill", display.ORANGE, "-"
    presets = published(HILL.format("lambda, m, gamma"), {}, lam=1.5, margin=1.0, gamma=2.0)
    equation = latex.equation(**latex.FOCAL_MARGIN | {"missing": latex.HILL})


@register("focal_margin")
class FocalMargin(LossMethod):
    """Focal margin: Focal with the logit of observed positives shifted down (Hill Eq. 11, Table VI and VII)."""

    loss = staticmethod(losses.focal_margin)
    label, color, line, whole = "Focal margin", display.GREY, ":", False
    equation = latex.equation(
        **latex.FOCAL_MARGIN | {"missing": r"-p^{«gamma if gamma_neg is None else gamma_neg»}\,\log(1-p)"}
    )


@register("mse")
class MSE(LossMethod):
    """Squared error on all labels but observed positives, the part of Hill before its weight (Hill Table VI)."""

    loss = staticmethod(losses.mse)
    label, color, line, whole = "MSE", display.PINK, "-", False
    equation = latex.equation("p^2")


class _Correcting(Method):
    """A loss that corrects labels from epoch `first_epoch` on, and none before; the released code uses 2."""

    supplied = ("reduction", "correct")
    own: ClassVar = {"first_epoch": Number(2, 1)}
    controls: ClassVar = {"first_epoch": Slider("corrects from epoch", 1, 10, 1)}
    clocked = True

    def label_loss(self, step):
        return partial(self.loss, **self.constants(), correct=self.corrects(step))

    def corrects(self, step) -> bool:
        return step.epoch >= self.hyperparameters["first_epoch"]


@register("splc")
class SPLC(_Correcting):
    """Self-paced loss correction: from epoch 2 on, confident unobserved labels count as positive (Hill Eq. 9, 10)."""

    loss = staticmethod(losses.splc)
    label, color, line = "SPLC", display.BROWN, "--"
    presets = published(HILL.format("tau"), {}, tau=0.6)

    def equation(self, step):
        texts = dict(latex.BASES[self.hyperparameters["base"]])
        if self.corrects(step):
            texts["missing"] = latex.corrected(texts["observed"], texts["missing"])
        return latex.fill(texts, self.hyperparameters)


@register("fm_splc")
class FMSPLC(_Correcting):
    """Focal margin + SPLC as published: correction from epoch 2 on, focal negatives (Hill Eq. 10, 11)."""

    loss = staticmethod(losses.fm_splc)
    label, color, line = "FM+SPLC", display.BROWN, "-"
    presets = published(HILL.format("tau, m, gamma"), {}, tau=0.6, margin=1.0, gamma=2.0)
    controls: ClassVar = {
        "negative": Options("loss of negatives", ("focal", "hill")),
        "shift_corrected": Options("margin on corrected", (("no", False), ("yes", True))),
    }

    def equation(self, step):
        h, texts = self.hyperparameters, latex.FOCAL_MARGIN
        positive = texts["observed"] if h["shift_corrected"] else latex.FOCAL
        missing = latex.HILL if h["negative"] == "hill" else latex.FOCAL_NEGATIVE
        if self.corrects(step):
            missing = latex.corrected(positive, missing)
        return latex.fill(texts | {"missing": missing}, h)
