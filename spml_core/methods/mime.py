"""MIME: a latent variable for each class, kept near a standard normal, and labels that become positive for good."""

from typing import ClassVar

import torch

from spml_core import losses
from spml_core.methods import latex
from spml_core.methods.base import Auxiliary, Number
from spml_core.methods.display import SKY, Slider, published
from spml_core.methods.memory import Recording
from spml_core.methods.registry import register


@register("mime")
class MIME(Auxiliary, Recording):
    """Latent variables of classes, and unobserved labels that become positives when very likely (MIME, ICML 2023).

    The loss is `spml_core.losses.an` on observed and pseudo-labels, plus beta times the divergence of the latent
    variables from N(0, 1), which the head "latent" (`spml_core.models.Latent`) computes. From epoch `warmup` + 1 on,
    each unobserved label with p > threshold becomes a positive after the epoch, and stays one. A model with another
    head has no latent variables; only the labels change then.

    `positive`: buffer (num_examples, C), which labels have become positives.

    Args:
        beta: >= 0, strength of the divergence.
        warmup: >= 0, number of first epochs after which no label changes.
        threshold: in (0, 1), on p.

    Deviations: the released code adds 1e-5 inside the logarithms (`log_floor=1e-5`). It computes p in a separate pass
    over the (flipped) training images; here p is that of the training pass, with latent variables drawn, not their
    mean. One released version does not use the threshold, but takes the likeliest labels of each class, as many as an
    estimate of the class prior says; here the rule is the paper's.
    """

    loss = staticmethod(losses.an)
    own: ClassVar = {"beta": Number(1e-4, 0), "warmup": Number(2, 0), "threshold": Number(0.95, 0, 1, "()")}
    remembers: ClassVar = {**Recording.remembers, "positive": False}
    head = "latent"
    clocked = batchwise = True
    presets = published(
        "MIME, released code",
        {"epochs": 10, "batch_size": [32, 32, 16, 16], "lr": 1e-4},
        beta=1e-4, warmup=[2, 2, 2, 5], threshold=0.95,
    )  # fmt: skip
    label, color, line = "MIME", SKY, "-."
    controls: ClassVar = {
        "beta": None,
        "threshold": Slider("threshold on p", 0.5, 0.99, 0.01),
    }

    equation = latex.equation(**{
        r"\mathrm{relabelled}": r"\mathrm{as\ observed\ once}\ p>«threshold»\ "
        r"\mathrm{in\ an\ epoch\ from\ «warmup + 1»\ on}"
    })  # fmt: skip

    @torch.no_grad()
    def begin(self, step):
        if step.epoch > self.hyperparameters["warmup"] + 1:
            likely = (self.recorded > self.hyperparameters["threshold"]) & self.recorded.isfinite()
            self.positive |= likely

    def label_loss(self, step):
        """Return the loss of labels, without the divergence."""
        positive, constants = self.kept("positive", step), self.constants()
        return lambda z, s, **more: self.loss(z, losses.as_positive(s, positive), **constants, **more)

    def forward(self, logits, observed, step):
        loss = super().forward(logits, observed, step)
        divergence = self.auxiliary()
        return loss if divergence is None else loss + self.hyperparameters["beta"] * divergence
