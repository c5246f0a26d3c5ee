"""SMILE: its losses against released values, its divergence, its head, and the role of the encoder."""

import pytest
import torch

from spml_core import losses, models
from spml_core.methods import Step, build
from spml_core.runs import Experiment


def double(values):
    return torch.tensor(values, dtype=torch.float64)


def test_golden_value_and_gradients(golden_more):
    (case,) = (c for c in golden_more["cases"] if c["loss"] == "smile")
    names = ("mu", "std", "alpha", "beta")
    logits, degree = (
        double(golden_more["logits"]).requires_grad_(),
        double(case["distribution"]).requires_grad_(),
    )
    mu, std, alpha, beta = rest = [double(case[name]).requires_grad_() for name in names]
    observed = torch.tensor(case["observed"])
    joint = losses.smile_joint(
        logits, torch.logit(degree), observed, theta=case["params"]["theta"], log_floor=1e-5
    )
    value = joint + 1e-5 * (losses.gaussian_divergence(mu, std) + losses.beta_divergence(alpha, beta))
    value.backward()
    assert value.item() == pytest.approx(case["value"], abs=1e-9)
    torch.testing.assert_close(logits.grad, double(case["grad"]), atol=1e-9, rtol=0)
    torch.testing.assert_close(degree.grad, double(case["distribution_grad"]), atol=1e-9, rtol=0)
    for tensor, name in zip(rest, names, strict=True):
        torch.testing.assert_close(tensor.grad, double(case[f"{name}_grad"]), atol=1e-9, rtol=0)


@pytest.mark.parametrize("degree, value", [(0.5, 0.241563), (0.3, 0.883887), (0.02, 45.053761)])
def test_divergence_of_a_beta_distribution(degree, value):
    alpha = double([degree]) + 1e-6  # the reference values have 1e-6 added to both parameters
    assert losses.beta_divergence(alpha, 1 + 2e-6 - alpha).item() == pytest.approx(value, abs=1e-6)
    assert losses.beta_divergence(torch.ones(2), torch.ones(2)) == 0


def test_targets():
    z, enhanced = torch.tensor([[0.3, -1.0, 2.0]]), torch.tensor([[1.0, 0.5, -0.5]])
    p, d, observed = torch.sigmoid(z), torch.sigmoid(enhanced), torch.tensor([[1, 0, -1]])
    t = torch.tensor([[0.75 + 0.25 * d[0, 0], 0.75 * p[0, 1] + 0.25 * d[0, 1], 0.0]])
    expected = torch.tensor([[1.0, 0.5, 1.0]]) * -(t * p.log() + (1 - t) * (1 - p).log())
    found = losses.smile(z, enhanced, observed, mix=0.25, reduction="none")
    torch.testing.assert_close(found, expected)
    enhanced.requires_grad_()
    assert not losses.smile(z, enhanced, observed).requires_grad


@pytest.mark.parametrize("mode, shape", [("linear", (6, 7)), ("end_to_end", (6, 1, 32, 32))])
def test_head(mode, shape):
    torch.manual_seed(0)
    inputs = torch.rand(shape)
    model = models.build("digits_cnn", mode, 4, inputs, head="enhancing")
    assert isinstance(model.head, models.Enhancing)
    logits = model(inputs)
    enhanced, decoded, unlike = model.head.auxiliary()
    assert logits.shape == enhanced.shape == decoded.shape == (6, 4) and unlike > 0
    assert model.head.auxiliary() is None  # once
    torch.autograd.grad(enhanced.sum() + unlike, list(model.head.hidden.parameters()))
    model(inputs[:1])  # a batch of one image is its own neighbour
    assert all(torch.isfinite(part).all() for part in model.head.auxiliary())
    model.eval()(inputs)
    assert model.head.auxiliary() is None


def test_similar_images_share_their_labels():
    torch.manual_seed(0)
    groups = torch.arange(8) // 4
    inputs = torch.eye(2)[groups] * 5 + 0.1 * torch.rand(8, 2)
    observed = torch.zeros(8, 3, dtype=torch.int8)
    observed[torch.arange(8), groups] = 1
    observed[0] = torch.tensor([0, 0, 1])  # its neighbours have label 0
    model, method = models.build("", "linear", 3, inputs, head="enhancing"), build("smile", 3, 8, delta=0)
    method.start(model, observed)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(200):
        optimizer.zero_grad()
        method(model(inputs), observed, Step(1, 1, torch.arange(8))).backward()
        optimizer.step()
    model(inputs)
    degree = torch.sigmoid(model.head.auxiliary()[0])
    assert degree[0, 0] > 0.5 > degree[0, 1]


@pytest.mark.parametrize("name", ["smile", "smile_joint"])
def test_the_method_asks_for_its_head(name):
    assert Experiment(method=name).resolved().head == "enhancing"
