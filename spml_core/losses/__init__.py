"""Losses for single-positive and partial multi-label learning: pure functions on logits.

Shared by every function here:

Args:
    logits: (N, C) real, any float type; half precision is computed in float32.
    observed: (N, C) of any type in {1, 0, -1}: 1 confirmed positive, 0 unobserved, -1 verified negative. A verified
        negative gets the loss's own negative term at full weight: -log(1 - p) unless a docstring says otherwise.
    log_floor: in [0, 1], added inside each logarithm as the authors' released code does, e.g. log(p + 1e-5); powers
        stay exact. The default 0 is exact. A floor reproduces the published numbers, and also their gradient, which
        vanishes for confident mistakes.
    reduction: "mean" over N*C, "sum", or "none" for (N, C).

Returns:
    Tensor in float32 (float64 for float64 logits): a scalar, or (N, C) with reduction "none".

Raises:
    ValueError: logits or labels are not tensors, shapes or devices differ, logits are not floating point, or a
        hyperparameter is out of range.

Throughout, z is a logit and p = sigmoid(z). No code branches on a tensor's value, so everything runs on
`device="meta"`. The papers: GR = Chen et al., IJCAI 2024; EM = Zhou et al., ECCV 2022; Cole = Cole et al., CVPR 2021;
Hill = Zhang et al., 2021 (arXiv 2112.07368); LASD = "Leveraged asymmetric loss with disambiguation", under review.
"""

# Each module lists in its `__all__` what this package re-exports.
from spml_core.losses import terms
from spml_core.losses.common import REDUCTIONS, as_positive, compiled
from spml_core.losses.comparing import *
from spml_core.losses.enhancement import *
from spml_core.losses.focal import *
from spml_core.losses.lasd import *
from spml_core.losses.negative import *
from spml_core.losses.pseudo import *
from spml_core.losses.robust import *
from spml_core.losses.unknown import *
