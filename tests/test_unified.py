"""The method `unified`: every loss it contains, and what it refuses."""

import json
import math

import pytest
import torch

from spml_core import losses, methods
from spml_core.methods import Step, build
from spml_core.methods.unified import PARTS

AN = {"k_hat": "zero", "v": "constant", "l1": "cross_entropy", "l3": "cross_entropy"}
FOCAL = {**AN, "l1": "focal", "l3": "focal", "margin": 0.0}
SAME = {
    "an": (losses.an, {}, AN),
    "dw": (losses.dw, {"weight": 0.3}, AN | {"weight": 0.3}),
    "em": (losses.em, {"alpha": 0.4}, AN | {"weight": 0.4, "l3": "entropy"}),
    "mse": (losses.mse, {}, AN | {"l3": "squared"}),
    "focal": (losses.focal, {"gamma": 3.0}, FOCAL | {"gamma": 3.0}),
    "focal_margin": (losses.focal_margin, {"margin": 2.0}, FOCAL | {"margin": 2.0}),
    "hill": (losses.hill, {"lam": 1.7}, FOCAL | {"margin": 1.0, "l3": "hill", "lam": 1.7}),
    "splc": (losses.splc, {"tau": 0.4}, AN | {"k_hat": "threshold", "l2": "cross_entropy", "tau": 0.4}),
    "gr": (
        losses.gr,
        {"w": 10.0, "b": -8.0, "mu": 0.7, "sigma": 0.4, "q1": 0.1, "q2": 0.3, "q3": 1.5},
        {"w": 10.0, "b": -8.0, "mu": 0.7, "sigma": 0.4, "q1": 0.1, "q2": 0.3, "q3": 1.5},
    ),
}


def logits_and_labels(values=(1, 0)):
    logits = torch.linspace(-6, 6, 60, dtype=torch.float64).reshape(12, 5).requires_grad_()
    return logits, torch.tensor(values)[torch.arange(60) % len(values)].reshape(12, 5)


@pytest.mark.parametrize("name", SAME)
def test_contains(name):
    loss, params, parts = SAME[name]
    logits, observed = logits_and_labels()
    method = build("unified", 5, **parts)
    ours, theirs = method(logits, observed, Step(3, 10)), loss(logits, observed, **params)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    slopes = [torch.autograd.grad(value, logits)[0] for value in (ours, theirs)]
    torch.testing.assert_close(*slopes, rtol=1e-9, atol=1e-12)


def test_eq_6_and_the_threshold_weight_by_hand():
    parts = {"k_hat": "annotation_rate", "annotation_rate": 0.6, "v": "threshold", "weight": 2.0, "tau": 0.7}
    method = build("unified", 1, **parts, l2="squared", l3="squared")
    for z in (-1.0, 0.5, 2.0):
        p = 1 / (1 + math.exp(-z))
        k = 0.4 * p / (1 - 0.6 * p)
        expected = (2.0 if p <= 0.7 else 0.0) * (k * (1 - p) ** 2 + (1 - k) * p**2)
        value = method(torch.tensor([[z]], dtype=torch.float64), torch.zeros(1, 1), Step(1, 1))
        assert value.item() == pytest.approx(expected, rel=1e-12)


def test_a_verified_negative_gets_l3():
    method = build("unified", 5, l3="hill", lam=2.0)
    logits, observed = logits_and_labels((-1,))
    p = torch.sigmoid(logits)
    torch.testing.assert_close(method(logits, observed, Step(1, 1)), ((2.0 - p) * p**2).mean())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("part", PARTS)
def test_every_part_is_finite_far_out(part, dtype):
    for choice in PARTS[part]:
        logits = torch.tensor([[-1e4, -30.0, 0.0, 30.0, 1e4]] * 3, dtype=dtype, requires_grad=True)
        observed = torch.tensor([[1], [0], [-1]]).expand(3, 5)
        value = build("unified", 5, **{part: choice})(logits, observed, Step(1, 1))
        value.backward()
        assert value.isfinite() and logits.grad.isfinite().all(), choice


@pytest.mark.parametrize(
    "params, match",
    [
        ({"k_hat": "half"}, "unknown k_hat 'half': use one of zero, logistic"),
        ({"l1": "entropy"}, "unknown l1 'entropy'"),
        ({"l2": "hill"}, "unknown l2 'hill'"),
        ({"sigma": 0.0}, "sigma must be a number in"),
        ({"tau": 1.5}, "tau must be a number in"),
        ({"q2": -1.0}, "q2 must be a number in"),
        ({"w": math.inf}, "w must be a number in"),
    ],
)
def test_refuses(params, match):
    with pytest.raises(ValueError, match=match):
        build("unified", 5, **params)


def test_hyperparameters_are_json():
    method = build("unified", 5)
    assert json.loads(json.dumps(method.hyperparameters)) == methods.defaults("unified")
