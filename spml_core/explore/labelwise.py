"""The loss of one label, as a method has it at a step of training: its value and its gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from spml_core import losses
from spml_core.methods import Method, Step, build

NUM_CLASSES = 10  # those of digits
# ROLE's loss compares the classifier to a table of estimates that training has to learn first.
WITHOUT_CURVE = ("role",)


def label_loss(method: Method, step: Step) -> Callable[..., Tensor]:
    """`f(logits, observed, reduction=...)`, whose mean is what `method(logits, observed, step)` has just returned.

    Methods that decide on labels by what they have seen need that call first, and the same batch. Regularisers of
    the model's weights (l1r, l2r) and of other views (lasd) are no part of a label's loss.

    Raises:
        ValueError: the loss of this method is none of single labels.
    """
    h, name = method.hyperparameters, method.name
    if name in WITHOUT_CURVE:
        raise ValueError(
            f"the loss of {name} depends on estimates that training learns: it has no curve over p"
        )
    constants = {k: h[k] for k in ("q1", "q2", "q3", "log_floor", "alpha", "beta", "base") if k in h}
    index = step.index
    if name == "gr":
        return partial(losses.gr, **constants | method.at(step) | {"q3": method.q3_at(step)})
    if name == "gr_trainable":
        learned = {"w": method.w, "b": method.b, "mu": method.mu, "sigma": method.log_sigma.exp()}
        return partial(losses.gr, **constants, **{k: v.detach() for k, v in learned.items()})
    if name == "unified":
        return method.loss
    if name in ("splc", "fm_splc"):
        fixed = {k: v for k, v in h.items() if k != "first_epoch"}
        return partial(method.loss, **fixed, correct=step.epoch >= h["first_epoch"])
    if name == "lasd":
        fixed = {k: h[k] for k in ("lambda_plus", "tau", "gamma_pos", "gamma_neg")}
        return partial(losses.lasd, **fixed, lambda_minus=method.lambda_minus)
    if name in ("l1r", "l2r"):
        return partial(losses.an, **constants)
    if name in ("ll_r", "ll_ct"):
        chosen = getattr(losses, name)
        return lambda z, s, reduction="mean": chosen(z, s, k=method.count(z, step), reduction=reduction)
    if name == "ll_cp":
        corrected = method.corrected.index_select(0, index)
        return lambda z, s, reduction="mean": losses.an(
            z, losses.as_positive(s, corrected), reduction=reduction
        )
    if name == "em_apl":
        pseudo = method.pseudo_negative.index_select(0, index)
        if h["positive"]:
            pseudo = pseudo + method.pseudo_positive.index_select(0, index)
        return lambda z, s, reduction="mean": losses.em_apl(z, s, pseudo, **constants, reduction=reduction)
    if name == "en":
        negative = method.negative.index_select(0, index)
        return lambda z, s, reduction="mean": losses.en(z, s, negative, **constants, reduction=reduction)
    if name == "pseudo_label":
        positive = method.pseudo_positive.index_select(0, index)
        return lambda z, s, reduction="mean": losses.pseudo_label(
            z, s, positive, **constants, reduction=reduction
        )
    return partial(method.loss, **h)


@dataclass(frozen=True)
class Curve:
    """Value and gradient by the logit, (N,) each, of the loss of a missing and of an observed label."""

    missing: np.ndarray
    missing_gradient: np.ndarray
    observed: np.ndarray
    observed_gradient: np.ndarray


def curve(name: str, logits: np.ndarray, epoch: int = 1, num_epochs: int = 10, **params) -> Curve:
    """What a method's loss says of a label with these logits, in float64.

    The logits are those of N images, the same for each of ten classes, of which one is observed, a positive; the images
    take turns in which. That matters to methods that look at more than one label: those that rank labels see
    these, and those that remember have seen them unchanged in all epochs before.

    Args:
        logits: (N,).
        params: hyperparameters of the method.

    Raises:
        ValueError: as `methods.build`; or the loss is none of single labels.
    """
    z = torch.as_tensor(logits, dtype=torch.float64)[:, None].repeat(1, NUM_CLASSES).requires_grad_()
    index = torch.arange(len(z))
    shown, hidden = index % NUM_CLASSES, (index + 1) % NUM_CLASSES
    observed = torch.zeros_like(z, requires_grad=False)
    observed[index, shown] = 1
    method = build(name, NUM_CLASSES, len(z), **params)
    step = Step(epoch, num_epochs, index)
    if name not in WITHOUT_CURVE:
        with torch.no_grad():
            for earlier in range(1, epoch + 1) if any(True for _ in method.buffers()) else ():
                method(z, observed, Step(earlier, num_epochs, index))
    value = label_loss(method, step)(z, observed, reduction="none")
    (gradient,) = torch.autograd.grad(value.sum(), z)
    found = [part.detach()[index, which].numpy() for which in (hidden, shown) for part in (value, gradient)]
    return Curve(*found)
