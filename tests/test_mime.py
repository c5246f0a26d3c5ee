"""MIME: the divergence of its latent variables, its head, and the labels that become positives."""

import pytest
import torch

from spml_core import losses, models
from spml_core.methods import Step, build
from spml_core.runs import Experiment
from spml_core.train import Training, fit


def test_golden_value_and_gradients(golden_more):
    cases = [c for c in golden_more["cases"] if c["loss"] == "mime"]
    assert len(cases) == 2
    double = lambda values: torch.tensor(values, dtype=torch.float64)  # noqa: E731
    for case in cases:
        inputs = [double(v).requires_grad_() for v in (golden_more["logits"], case["mu"], case["std"])]
        logits, mu, std = inputs
        value = losses.an(logits, torch.tensor(case["observed"]), log_floor=1e-5)
        value = value + case["params"]["beta"] * losses.gaussian_divergence(mu, std)
        value.backward()
        assert value.item() == pytest.approx(case["value"], abs=1e-9)
        for found, name in zip(inputs, ("grad", "mu_grad", "std_grad"), strict=True):
            torch.testing.assert_close(found.grad, double(case[name]), atol=1e-9, rtol=0)


def test_divergence_of_a_standard_normal_is_zero():
    assert losses.gaussian_divergence(torch.zeros(2, 3), torch.ones(2, 3)) == 0


@pytest.mark.parametrize("mode, shape", [("linear", (6, 7)), ("end_to_end", (6, 1, 32, 32))])
def test_head(mode, shape):
    torch.manual_seed(0)
    inputs = torch.rand(shape)
    model = models.build("digits_cnn", mode, 4, inputs, head="latent")
    assert isinstance(model.head, models.Latent)
    first, second = model(inputs), model(inputs)
    assert first.shape == (6, 4) and not torch.equal(first, second)  # drawn
    divergence = model.head.auxiliary()
    assert divergence > 0 and divergence.requires_grad and model.head.auxiliary() is None  # once
    model.eval()
    assert torch.equal(model(inputs), model(inputs)) and model.head.auxiliary() is None


def test_likely_labels_become_positives_for_good():
    method = build("mime", 3, 2, warmup=1)
    observed, index = torch.tensor([[1, 0, 0], [0, 0, -1]]), torch.arange(2)
    sure = torch.tensor([[9.0, 9.0, 0.0], [0.0, 0.0, 9.0]])
    for epoch in (1, 2):
        assert method(sure, observed, Step(epoch, 5, index)) == losses.an(sure, observed)
    assert not method.positive.any()  # epoch 2 is the first whose end counts
    completed = torch.tensor([[1, 1, 0], [0, 0, -1]])
    for epoch, logits in ((3, -sure), (4, -sure), (5, sure)):
        assert method(logits, observed, Step(epoch, 5, index)) == losses.an(logits, completed)


def test_the_divergence_is_part_of_the_loss():
    torch.manual_seed(0)
    inputs, observed = torch.rand(12, 7), torch.eye(4, dtype=torch.int8).repeat(3, 1)

    def trained(beta):
        torch.manual_seed(0)
        model = models.build("", "linear", 4, inputs, head="latent")
        config = Training(epochs=20, batch_size=6, lr=0.01, accelerator="cpu")
        method = build("mime", 4, 12, beta=beta)
        fit(model, method, (inputs, observed), (inputs, observed.numpy()), config, progress=False)
        model.train()(inputs)
        return model.head.auxiliary().item()

    assert trained(10.0) < trained(0.0)


def test_the_method_asks_for_its_head():
    assert Experiment(method="mime").resolved().head == "latent"
    assert Experiment(method="gr").resolved().head == "linear"
    assert Experiment(method="gr", head="latent").resolved().head == "latent"
    with pytest.raises(ValueError, match="'mime' needs head='latent', got 'linear'"):
        Experiment(method="mime", head="linear").resolved()
