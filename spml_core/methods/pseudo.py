"""Pseudo-labels that are chosen once per epoch, or once per run, from recorded predictions."""

import math
from fractions import Fraction
from functools import partial
from typing import ClassVar

import torch

from spml_core import losses
from spml_core.losses.common import prepare
from spml_core.losses.pseudo import lowest
from spml_core.methods import latex
from spml_core.methods.base import Number, OneOf
from spml_core.methods.display import BROWN, GREEN, GREY, Options, Slider, published
from spml_core.methods.memory import Memory, Recording
from spml_core.methods.registry import register


@register("em_apl")
class EMAPL(Recording):
    """Entropy maximisation with asymmetric pseudo-labels: more and more soft negatives after a warm-up (EM Eq. 3, 6-8).

    `spml_core.losses.em_apl` with pseudo-labels by EM Algorithm 1. The first `warmup` epochs are `em`. At the first
    step of each later epoch, theta / (num_epochs - warmup) of the unobserved labels of each class become negatives:
    those with the lowest probability in the previous epoch, which stays their soft label to the end. There are no
    positive pseudo-labels unless `positive` asks for them.

    `pseudo_negative`: buffer (num_examples, C), recorded soft labels, 0 where none. `pseudo_positive`: the same for
    positives, where `positive` > 0.

    Args:
        alpha: >= 0, strength of the entropy.
        beta: >= 0, weight of the pseudo-labels.
        theta: in (0, 1], share of the unobserved labels that are negative at the end.
        warmup: T_w >= 1, epochs without pseudo-labels, below num_epochs.
        soft: False gives pseudo-labels the hard label 0, or 1 for positives (EM Table 3).
        positive: in [0, 1], share of the unobserved labels that are positive at the end, those with the highest
            probability, chosen and weighted like negatives. EM Table 3 tries 0.1 and finds it worse than 0.

    Deviations: the released code predicts in a separate pass over the training set; here the predictions of the
    training pass are recorded. It rounds the number of labels down in each epoch; here the sum over epochs is rounded
    down. It assigns nothing if the training set is a single batch. Logarithms: `log_floor=1e-5`.
    """

    loss = staticmethod(losses.em_apl)
    own: ClassVar = {
        "theta": Number(0.9, 0, 1, "(]"),
        "warmup": Number(5, 1),
        "soft": OneOf(True, (True, False)),
        "positive": Number(0.0, 0, 1),
    }
    remembers: ClassVar = {**Recording.remembers, "pseudo_negative": 0.0}
    clocked = batchwise = True
    label, color, line = "EM+APL", GREEN, "--"
    presets = published(
        "EM Table 6",
        alpha=[0.2, 0.1, 0.1, 0.01],
        beta=[0.02, 0.9, 0.2, 0.4],
        theta=0.9,
        warmup=[5, 5, 4, 3],
    )
    controls: ClassVar = {
        "beta": Slider("weight β of pseudo-labels", 0, 1, 0.01),
        "theta": Slider("final share θ of negatives", 0.01, 1, 0.01),
        "positive": Slider("final share of positives", 0, 1, 0.01),
        "soft": Options("pseudo-labels", (("soft", True), ("hard", False))),
    }
    equation = latex.equation(
        rf"«alpha»\,{latex.ENTROPY}",
        **{r"\mathrm{pseudo-label}\ s": r"-«beta»\,(s\,\log p + (1-s)\,\log(1-p))"},
    )

    def __init__(self, num_classes, num_examples=None, **hyperparameters):
        super().__init__(num_classes, num_examples, **hyperparameters)
        if self.hyperparameters["positive"]:
            self.remember("pseudo_positive", 0.0)

    def check(self, num_epochs):
        warmup = self.hyperparameters["warmup"]
        if warmup >= num_epochs:
            raise ValueError(
                f"em_apl never leaves its warm-up: warmup={warmup} must be below the number of epochs, {num_epochs}"
            )

    def label_loss(self, step):
        pseudo = self.kept("pseudo_negative", step)
        if self.hyperparameters["positive"]:
            pseudo = pseudo + self.kept("pseudo_positive", step)  # no label is both
        return partial(self.loss, pseudo_negative=pseudo, **self.constants())

    @torch.no_grad()
    def begin(self, step):
        """Raise the share of negatives, and of positives if any, to what is due at this epoch."""
        warmup = self.hyperparameters["warmup"]
        if step.epoch <= warmup:
            return
        done = Fraction(step.epoch - warmup, step.num_epochs - warmup)
        kinds = [("pseudo_negative", self.hyperparameters["theta"], 1, 0.0)]
        if self.hyperparameters["positive"]:
            kinds.append(("pseudo_positive", self.hyperparameters["positive"], -1, 1.0))
        tiny = torch.finfo(self.recorded.dtype).tiny  # 0 means "none"
        soft = self.recorded.clamp_min(tiny)
        taken = sum(getattr(self, name) for name, *_ in kinds) > 0
        for name, most, sign, hard in kinds:
            labels = getattr(self, name)
            share = (Fraction(str(float(most))) * done).limit_denominator(10**6)
            due = self.recorded.isfinite().sum(0) * share.numerator // share.denominator  # exact, in integers
            new = lowest((sign * self.recorded).masked_fill(taken, torch.inf), due - (labels > 0).sum(0))
            taken = taken | new
            value = soft if self.hyperparameters["soft"] else torch.full_like(soft, max(hard, tiny))
            labels.copy_(torch.where(new, value, labels))


@register("en")
class EN(Memory):
    """Expected negative: the least likely labels of each class are negatives, the others are ignored (GR Eq. 20).

    At the first step of each epoch, the N - N_c images with the lowest running average of p become negatives of class c
    (Verelst et al., 2023, as GR App. B describes it); the loss is `spml_core.losses.en`.

    `average`: buffer (num_examples, C), running average of p, infinite for observed positives, minus infinite for
    verified negatives, NaN for examples not seen yet. `negative`: buffer (num_examples, C) bool.

    Args:
        expected_positives: k, true positives per image; N_c = k * observed positives of class c. Required.
        decay: in [0, 1), weight of the past in the average, which is updated once per epoch.
        warmup: >= 1, epochs in which every unobserved label is a negative (`an`).

    The source does not specify how N_c is estimated (this estimate is right if every image shows one of its k positives
    at random), the decay, or the first epoch, which has no average yet.
    """

    loss = staticmethod(losses.en)
    own: ClassVar = {
        "expected_positives": None,
        "decay": Number(0.5, 0, 1, "[)"),
        "warmup": Number(1, 1),
    }
    remembers: ClassVar = {"average": float("nan"), "negative": True}
    clocked = batchwise = True
    label, color, line = "EN", GREY, "--"
    requires = ("expected_positives",)
    controls: ClassVar = {
        "decay": Slider("decay of the average", 0, 0.99, 0.01),
    }
    equation = latex.equation(r"-\log(1-p)\ \mathrm{among\ the\ least\ likely};\ 0\ \mathrm{else}")

    def __init__(self, num_classes, num_examples=None, **hyperparameters):
        super().__init__(num_classes, num_examples, **hyperparameters)
        k = self.hyperparameters["expected_positives"]
        losses.expected_positives_penalty(torch.zeros(1, num_classes), k)  # checks it

    def label_loss(self, step):
        return partial(self.loss, negative=self.kept("negative", step), **self.constants())

    @torch.no_grad()
    def begin(self, step):
        """Choose the negatives of this epoch."""
        if step.epoch <= self.hyperparameters["warmup"]:
            return
        seen = ~self.average.isnan()
        positives = (self.average == torch.inf).sum(0)
        expected = (self.hyperparameters["expected_positives"] * positives).round().long()  # N_c
        verified = (self.average == -torch.inf).sum(0)  # negatives already
        self.negative.copy_(~seen | lowest(self.average, seen.sum(0) - expected - verified))

    @torch.no_grad()
    def record(self, index, logits, observed, step):
        z, labels = prepare(logits, observed)
        p, past = torch.sigmoid(z).to(self.average.dtype), self.average.index_select(0, index)
        past = past.nan_to_num(math.nan, 0.0, 0.0)  # NaN stays; infinity would become NaN below
        average = torch.where(past.isnan(), p, torch.lerp(p, past, self.hyperparameters["decay"]))
        # + 1/0 for an observed positive, - 1/0 for a verified negative, + 0/1 for an unobserved label
        self.average[index] = torch.addcdiv(average, labels, 1 - labels.abs()).to(self.average.dtype)


@register("pseudo_label")
class PseudoLabel(Recording):
    """Pseudo-label: train on assumed negatives, label what exceeds a threshold, train again (Hill 4.1; Lee, 2013).

    Stage one is `an`, or another base. At its end every unobserved label with p > tau becomes a positive, and the
    trainer resets the model to its initial weights; stage two is the same loss on those labels. The best epoch is one
    of stage two.

    `pseudo_positive`: buffer (num_examples, C) bool.

    Args:
        tau: in (0, 1), threshold on p. The source gives none; 0.6 is that of SPLC, with which it is compared there.
        first: in (0, 1), share of the epochs that stage one gets. The source trains twice in full: to do the same,
            double the epochs.
        base: "bce" (`an`), "focal", "asl" or "focal_margin" (Hill Table VII).

    Deviation: the predictions are those recorded in the last epoch of stage one, not those of a separate pass.
    """

    loss = staticmethod(losses.pseudo_label)
    own: ClassVar = {"tau": Number(0.6, 0, 1, "()"), "first": Number(0.5, 0, 1, "()")}
    remembers: ClassVar = {**Recording.remembers, "pseudo_positive": False}
    clocked = True
    label, color, line = "Pseudo-label", BROWN, ":"
    controls: ClassVar = {
        "tau": Slider("threshold τ on p", 0.01, 0.99, 0.01),
        "first": Slider("share of stage one", 0.05, 0.95, 0.05),
        "log_floor": None,  # of one of the four bases
    }

    def check(self, num_epochs):
        if num_epochs < 2:
            raise ValueError(f"pseudo_label trains twice: it needs at least 2 epochs, got {num_epochs}")

    def restart_epoch(self, num_epochs):
        return 1 + min(max(round(self.hyperparameters["first"] * num_epochs), 1), num_epochs - 1)

    def begin(self, step):
        """Label what exceeds the threshold, once."""
        if step.epoch == self.restart_epoch(step.num_epochs):
            tau = self.hyperparameters["tau"]
            self.pseudo_positive.copy_(self.recorded.isfinite() & (self.recorded > tau))

    def label_loss(self, step):
        return partial(self.loss, pseudo_positive=self.kept("pseudo_positive", step), **self.constants())

    def equation(self, step):
        relabelled = r"\mathrm{as\ observed\ where}\ p>«tau»\ \mathrm{at\ the\ end\ of\ stage\ one}"
        texts = latex.BASES[self.hyperparameters["base"]] | {r"\mathrm{relabelled}": relabelled}
        return latex.fill(texts, self.hyperparameters)
