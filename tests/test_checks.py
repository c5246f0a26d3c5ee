"""`spml methods check`: a faulty loss fails, a correct one passes."""

import time

import pytest
import torch
from click.testing import CliRunner

from spml_core import losses, methods
from spml_core.cli import main
from spml_core.methods import checks

SOUND = """
import torch
from spml_core import losses

def sound(logits, observed, *, reduction="mean"):
    return losses.an(logits, observed, reduction=reduction)

def logarithm_of_zero(logits, observed, *, reduction="mean"):
    p = torch.sigmoid(logits.float())
    return losses.common.reduce(-torch.where(observed > 0, p, 1 - p).log(), reduction)

def unreduced(logits, observed):
    return losses.an(logits, observed, reduction="none")

class Module(torch.nn.Module):
    def forward(self, logits, observed, reduction="mean"):
        return losses.an(logits, observed, reduction=reduction)

class Plain(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, logits, observed):
        return self.weight * losses.an(logits, observed)

plain = Plain(1.0)
builtin = torch.add

def empty_handed(logits, observed):
    assert logits.dtype == observed.dtype

number = 3
"""


def failed(loss):
    return {f.check for f in checks.check(loss, [n for n in checks.CHECKS if n != "speed"]) if not f.passed}


def found(loss, name):
    """Return what one check finds; "" if it passes."""
    (finding,) = checks.check(loss, [name])
    return "" if finding.passed else finding.found


@pytest.mark.parametrize("name", methods.names())
def test_registered_methods_pass(name):
    assert not failed(name)


def test_nan_is_found():
    def naive(logits, observed, *, reduction="mean"):
        p = torch.sigmoid(logits.double() if logits.dtype == torch.float64 else logits.float())
        return losses.common.reduce(-torch.where(observed > 0, p, 1 - p).log(), reduction)

    found = {f.check: f for f in checks.check(naive, ["extreme logits", "finite differences"])}
    assert not found["extreme logits"].passed and "float32" in found["extreme logits"].found
    assert found["finite differences"].passed


def test_float32_inside_is_no_fault():
    def single(logits, observed, *, reduction="mean"):
        return losses.an(logits.float(), observed, reduction=reduction)

    assert not failed(single)

    def ordered(logits, observed):
        return losses.an(logits.float(), observed, reduction="none")[0].mean()

    assert "off by" in found(ordered, "order of images")


def test_overflow_of_a_difference_is_found():
    def pairs(logits, observed):
        z = logits.float()
        mask = (observed[:, :, None] < observed[:, None, :]).float()
        return ((z[:, :, None] - z[:, None, :]).exp() * mask).sum().log1p()

    assert "not finite" in found(pairs, "extreme logits")


def test_a_loss_that_is_not_finite_and_its_logit_are_named():
    def logarithm(logits, observed):
        p = logits.float().sigmoid()
        return -torch.where(observed == 1, p.log(), (1 - p).log()).mean()

    assert "entries of the value are not finite, first at logit" in found(logarithm, "extreme logits")


def test_a_boolean_index_is_named():
    def selected(logits, observed):
        return torch.nn.functional.softplus(-logits[observed == 1].float()).mean()

    assert "it needs values, by a boolean index" in found(selected, "meta device")


def test_any_exception_refuses_an_unknown_reduction():
    def refusing(logits, observed, *, reduction="mean"):
        if reduction == "average":
            raise NotImplementedError(reduction)
        return losses.an(logits, observed, reduction=reduction)

    assert not found(refusing, "reduction")


def test_work_in_place_is_found():
    def in_place(logits, observed, *, reduction="mean"):
        logits.mul_(2)
        return losses.an(logits, observed, reduction=reduction)

    assert failed(in_place) == {"repeated call"}
    assert "changes the logits" in found(in_place, "repeated call")


def test_verified_negative_pushed_up_is_found():
    def squared(logits, observed, *, reduction="mean"):
        z, y = losses.common.prepare(logits, observed)
        return losses.common.reduce(torch.nn.functional.softplus(-z * y.abs()), reduction)

    assert failed(squared) == {"verified negatives"}


def test_a_loss_that_cannot_be_called_is_one_row():
    (finding,) = checks.check(lambda logits, observed: (logits.mean(), None))
    assert "returns a tuple" in finding.found
    (finding,) = checks.check(lambda observed, logits: torch.sigmoid(observed * 1.0).detach().mean())
    assert "has no gradient" in finding.found

    def fails(logits, observed):
        raise RuntimeError("many words " * 100)

    (finding,) = checks.check(fails)
    assert "RuntimeError" in finding.found and len(finding.found) < 250


def test_missing_reduction_is_found():
    def unreduced(logits, observed):
        return losses.an(logits, observed, reduction="none")

    assert failed(unreduced) == {"reduction"}
    (finding,) = checks.check(unreduced, ["reduction"])
    assert "(16, 80)" in finding.found

    def without(logits, observed):
        return losses.an(logits, observed)

    assert "has no argument reduction" in checks.check(without, ["reduction"])[0].found

    def a_sum(logits, observed, *, reduction="mean"):
        return losses.an(logits, observed, reduction="sum" if reduction == "mean" else reduction)

    assert failed(a_sum) == {"reduction"}


def test_dependence_on_the_order_of_a_batch_is_found():
    def ordered(logits, observed, *, reduction="mean"):
        entries = losses.an(logits, observed, reduction="none")
        weights = torch.arange(1, len(entries) + 1, device=entries.device)[:, None]
        return losses.common.reduce(entries * weights, reduction)

    assert failed(ordered) == {"order of images"}

    def by_class(logits, observed, *, reduction="mean"):
        entries = losses.an(logits, observed, reduction="none")
        return losses.common.reduce(entries.cumsum(1), reduction)

    assert failed(by_class) == {"order of classes"}


def test_wrong_gradient_is_found():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, z):
            ctx.save_for_backward(z)
            return z**2

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0]

    def wrong(logits, observed, *, reduction="mean"):
        z, _ = losses.common.prepare(logits, observed)
        return losses.common.reduce(Wrong.apply(z), reduction)

    assert failed(wrong) == {"finite differences"}


def test_what_carries_no_gradient_is_held_in_finite_differences():
    def weighted(logits, observed, *, reduction="mean"):
        entries = losses.an(logits, observed, reduction="none")
        with torch.no_grad():
            weight = torch.sigmoid(logits.to(entries.dtype)) ** 2
        return losses.common.reduce(entries * weight * entries.detach(), reduction)

    assert checks.check(weighted, ["finite differences"])[0].passed


def test_slow_losses_are_found(monkeypatch):
    monkeypatch.setattr(checks, "SLOWEST", 1e-3)
    (finding,) = checks.check(losses.an, ["speed"])
    assert not finding.passed and "limit 0.001" in finding.found


@pytest.fixture
def spml(tmp_path, monkeypatch):
    (tmp_path / "losses_of_mine.py").write_text(SOUND)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checks, "SLOWEST", 1000)
    return lambda *arguments: CliRunner().invoke(main, ["methods", *arguments])


def test_command(spml):
    start = time.process_time()
    result = spml("check", "losses_of_mine:sound")
    assert result.exit_code == 0 and "17 of 17 checks passed" in result.output, result.output
    assert time.process_time() - start < 10
    result = spml("check", "losses_of_mine:logarithm_of_zero")
    assert result.exit_code == 1 and "extreme logits" in result.output and "FAILED" in result.output
    assert spml("check", "losses_of_mine:unreduced").exit_code == 1
    assert spml("check", "losses_of_mine:Module").exit_code == 0
    for name, message in (("plain", "has no argument reduction"), ("builtin", "returns shape (16, 80)")):
        output = spml("check", f"losses_of_mine:{name}").output
        assert message in output and "of 17 checks passed" in output
    result = spml("check", "losses_of_mine:empty_handed")
    assert (
        result.exit_code == 1 and "assert logits.dtype == observed.dtype (losses_of_mine.py" in result.output
    )
    assert "0 of 1 checks passed; the other checks were not run" in result.output


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["check"], "MODULE:FUNCTION"),
        (["check", "grr"], "did you mean"),
        (["check", "losses_of_mine:nobody"], "nobody"),
        (["check", "no_such_module:f"], "no_such_module"),
        (["check", "losses_of_mine:number"], "is of type int, not a function"),
        (["check", "losses_of_mine:Plain"], "Name an instance"),
        (["gr", "em"], "one name at a time"),
    ],
)
def test_command_says_what_is_wrong(spml, arguments, message):
    result = spml(*arguments)
    assert result.exit_code == 2 and message in result.output
