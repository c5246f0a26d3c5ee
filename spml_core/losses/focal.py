"""Losses that weigh a label by how sure the model is: Hill and its parts."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from spml_core.losses.common import assemble, check_range, prepare


def hill(
    logits: Tensor,
    observed: Tensor,
    *,
    lam: float = 1.5,
    margin: float = 1.0,
    gamma: float = 2.0,
    reduction: str = "mean",
) -> Tensor:
    """Hill: a negative loss whose gradient fades for confident positives, with Focal margin on observed positives.

    L = -(1 - p_m)^gamma log p_m with p_m = sigmoid(z - margin) for observed positives, (lam - p) p^2 for all other
    labels, verified negatives included. Source: Zhang et al., 2021, Eq. 11 (positives), Eq. 5 (negatives).
    Deviation: none found; GR Table 1 prints -log p for its positives, which is neither.

    Args:
        lam: >= 1.5 keeps the negative term increasing in p on [0, 1]; 1.5 makes its gradient vanish at p = 1.
        margin: m >= 0, shift of the logit; larger focuses on semi-hard positives.
        gamma: >= 0, focusing.
    """
    z, observed = prepare(logits, observed)
    check_range("lam", lam, 1, math.inf)
    check_range("margin", margin, 0, math.inf)
    check_range("gamma", gamma, 0, math.inf)
    p, shifted = torch.sigmoid(z), z - margin
    positive = -torch.exp(gamma * logsigmoid(-shifted)) * logsigmoid(shifted)
    negative = (lam - p) * p**2
    return assemble(observed, positive, negative, negative, reduction)
