"""A new loss is one function and one class of three lines; everything that shows methods finds it."""

import re

import pytest
import torch
from click.testing import CliRunner

from spml_core import figures, losses, methods
from spml_core.cli import main
from spml_core.explore import loss_lab
from spml_core.methods import LossMethod, Method, Step, build, register, registry
from spml_core.studies import comparison


def bent(
    logits,
    observed,
    *,
    slope2=2.0,
    hard=False,
    form="a",
    times=3,
    span=(0.0, 1.5),
    tiny=1.5e-6,
    alpha=5.0,
    log_floor=0.003,
    strange=None,
    reduction="mean",
):
    """A loss with hyperparameters that no other loss has."""
    if form not in ("a", "b"):
        raise ValueError(f"form is a or b, got {form!r}")
    scale = slope2 * times * (1 + tiny) * alpha + span[1] - hard * (form == "b")
    return scale * losses.an(logits, observed, log_floor=log_floor, reduction=reduction)


@pytest.fixture(autouse=True)
def mine(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))

    @register("mine")
    class Mine(LossMethod):
        """A loss of this test."""

        loss = staticmethod(bent)

    return Mine


def test_it_can_be_trained():
    assert build("mine", 5).hyperparameters["span"] == (0.0, 1.5)
    assert build("mine", 5, slope2=1.0)(torch.zeros(2, 5), torch.eye(2, 5), Step(1, 1)) > 0
    assert len(methods.source_digest("mine")) == 64


def test_the_loss_lab_has_its_controls():
    lab = loss_lab("mine", slope2=0.5)
    controls = lab.hyperparameters.controls
    assert set(controls) == set(methods.defaults("mine")) - {"strange"} and len(controls["span"]) == 2
    assert lab.setting.changed == {"slope2": 0.5}
    assert lab.setting.params | {"strange": None} == methods.defaults("mine") | {"slope2": 0.5}
    assert "mine has no equation" in lab.equation.value and lab.epoch.layout.display == "none"
    (hard,), (form,), (times,), (_, end) = (controls[name] for name in ("hard", "form", "times", "span"))
    before = lab.picture.value
    hard.value, form.value, times.value, end.value = True, "b", 4, 2.0
    assert lab.picture.value != before and not lab.trouble.value
    assert lab.setting.changed == {
        "slope2": 0.5, "hard": True, "form": "b", "times": 4, "span": (0.0, 2.0),
    }  # fmt: skip
    with pytest.raises(ValueError, match="form is a or b"):
        form.value = "c"
    assert "form is a or b" in lab.trouble.value
    lab.reset.click()
    assert lab.setting.changed == {} and ("mine", "mine") in lab.method.options
    assert "build('mine', num_classes=10)" in lab.as_code()


def test_the_command_lists_and_describes_it():
    spml = lambda *arguments: CliRunner().invoke(main, ["methods", *arguments])  # noqa: E731
    assert re.search("^mine +A loss of this test.$", spml().output, re.MULTILINE)
    described = spml("mine").output
    for part in ("that no other loss has", "slope2", "(0.0, 1.5)", "hyperparameters: none"):
        assert part in described


def test_benchmarks_and_figures_take_it():
    assert "mine" in comparison.names() and comparison.label("mine") == "mine"
    assert comparison.parameters(["mine", "an"], "voc2012") == {"mine": {}, "an": {}}
    looks = [(figures.color(name), figures.style(name)["linestyle"]) for name in methods.names()]
    assert len(set(looks)) == len(looks) and figures.label("mine") == "mine"
    with pytest.raises(ValueError, match="no published hyperparameters for method 'mine'"):
        methods.preset("mine", "voc2012")


def test_what_it_says_of_itself_is_used():
    @register("told")
    class Told(methods.get("gr")):
        """GR for this test."""

        label, color, line = "Mine, told", "#123456", ":"
        requires = ("temperature", "expected_positives")

        def __init__(self, num_classes, num_examples=None, *, temperature: float | None = None, **others):
            super().__init__(num_classes, num_examples, temperature=temperature, **others)

        def equation(self, step):
            return {"missing": "42"}

    assert figures.style("told") == {"label": "Mine, told", "color": "#123456", "linestyle": ":"}
    assert comparison.parameters(["told"], "voc2012") == {"told": {}}
    lab = loss_lab("told", b=(-2, -8))
    assert "= 42" in lab.equation.value and lab.setting.params["b"] == (-2.0, -8.0)
    assert lab.setting.params["temperature"] == 1.0
    assert "Required: temperature" in CliRunner().invoke(main, ["methods", "told"]).output


def test_a_variant_does_not_pass_for_what_it_is_a_variant_of():
    @register("variant")
    class Variant(methods.get("em")):
        """EM doubled, for this test."""

        def label_loss(self, step):
            return lambda *args, **kwargs: 2 * super(Variant, self).label_loss(step)(*args, **kwargs)

    assert figures.label("variant") == "variant" and Variant.presets is None
    assert build("variant", 10).equation(Step(1, 10)) == {}
    assert figures.style("variant")["color"] != "0.4"
    assert loss_lab("variant", alpha=0.3).setting.params["alpha"] == 0.3  # the controls are those of EM


def test_a_method_without_a_loss_of_single_labels_has_no_curve():
    @register("whole")
    class Whole(Method):
        """Of a whole batch, for this test."""

        def forward(self, logits, observed, step):
            return logits.mean() ** 2

    assert build("whole", 3)(torch.ones(2, 3), torch.ones(2, 3), Step(1, 1)) == 1
    with pytest.raises(ValueError, match=r"whole has no curve over p: it has no `label_loss\(step\)`"):
        loss_lab("whole")
    assert "whole" not in [name for _, name in loss_lab("an").method.options]


@pytest.mark.parametrize("value", ["False", "maybe", 1, None])
def test_a_switch_is_true_or_false(value):
    with pytest.raises(ValueError, match="shift_corrected of method 'fm_splc' must be True or False"):
        methods.build("fm_splc", 5, shift_corrected=value)


def test_a_number_is_not_a_switch():
    with pytest.raises(ValueError, match="weight of method 'dw' must not be True or False"):
        methods.build("dw", 5, weight=True)
