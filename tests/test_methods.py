"""The registry, GR's schedules, and what changes a method's digest."""

import importlib
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import spml_core
from spml_core import losses, methods
from spml_core.methods import LossMethod, Method, Step, build, register, source_digest
from spml_core.methods import registry as registered
from spml_core.methods.gr import GR

STATELESS = (
    "bce",
    "iun",
    "an",
    "an_ls",
    "n_ls",
    "wan",
    "dw",
    "em",
    "ent_min",
    "focal",
    "asl",
    "asl_ps",
    "hill",
)
MAIN = (*STATELESS, "splc", "fm_splc", "gr")  # `epr` has a parameter without a default


@pytest.fixture
def registry(monkeypatch):
    """Replace the registry by a copy, so that what a test registers is gone afterwards."""
    monkeypatch.setattr(registered, "_REGISTRY", dict(registered._REGISTRY))
    return registered._REGISTRY


def batch(num_images=4, num_classes=5):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(num_images, num_classes, generator=generator, dtype=torch.float64)
    return logits, torch.eye(num_images, num_classes)


# The registry.


def test_names():
    assert set(MAIN) <= set(methods.names()) == set(methods.available())
    assert methods.names() == sorted(methods.names())
    for name, sentence in methods.available().items():
        assert methods.get(name).name == name
        assert len(sentence) > 20 and sentence != Method.__doc__.split("\n")[0], name


@pytest.mark.parametrize("name", MAIN)
def test_a_name_built_at_run_time_is_the_same_method(name):
    assembled = "".join(list(name))
    logits, observed = batch()
    one, other = (build(n, num_classes=5)(logits, observed, Step(1, 2)) for n in (name, assembled))
    assert type(build(assembled, 5)) is methods.get(name) and torch.equal(one, other)


@pytest.mark.parametrize(
    "name, nearest", [("hil", "hill"), ("GR", "gr"), ("AN-LS", "an_ls"), ("w_an", "wan"), ("grr", "gr")]
)
def test_unknown_name_lists_the_nearest(name, nearest):
    with pytest.raises(ValueError, match=f"unknown method '{name}': did you mean .*'{nearest}'.*Known: an, "):
        build(name, num_classes=5)


def test_unknown_hyperparameter_lists_those_there_are():
    with pytest.raises(ValueError, match=r"'em' has no hyperparameter aplha.*alpha=0\.2.*log_floor"):
        build("em", num_classes=5, aplha=0.1)
    with pytest.raises(ValueError, match="no hyperparameter reduction"):
        build("an", num_classes=5, reduction="sum")


def test_a_user_defined_method(registry):
    @register("half_an")
    class Half(Method):
        """Half of assume negative, for this test."""

        def __init__(self, num_classes, num_examples=None, *, share: float = 0.5):
            super().__init__(num_classes, num_examples, share=share)

        def forward(self, logits, observed, step):
            return self.hyperparameters["share"] * losses.an(logits, observed)

    logits, observed = batch()
    value = build("half" + "_an", num_classes=5, share=0.25)(logits, observed, Step(1, 1))
    torch.testing.assert_close(value, 0.25 * losses.an(logits, observed))
    assert methods.defaults("half_an") == {"share": 0.5}
    assert methods.available()["half_an"].startswith("Half of assume negative")
    assert source_digest("half_an") != source_digest("an")


def test_registering_twice(registry):
    def define(name, qualname, module):
        body = {"__qualname__": qualname, "__module__": module, "__doc__": "A method of this test."}
        return register(name)(type(qualname, (Method,), body))

    first = define("a_new_one", "Mine", "a_notebook")
    again = define("a_new_one", "Mine", "a_notebook")  # a cell that runs twice
    assert registry["a_new_one"] is again is not first
    for name, qualname, module in [
        ("a_new_one", "Other", "a_notebook"),
        ("a_new_one", "Mine", "another_module"),
        ("gr", "GR", "a_notebook"),  # the same class name must not replace the built-in one
    ]:
        with pytest.raises(ValueError, match=f"'{name}' is taken by"):
            define(name, qualname, module)
    assert registry["a_new_one"] is again and registry["gr"] is GR


# What `build` makes, and what it refuses before any forward pass.


@pytest.mark.parametrize("name", MAIN)
def test_build(name):
    method = build(name, num_classes=5, num_examples=4)
    assert isinstance(method, torch.nn.Module)
    assert (method.num_classes, method.num_examples) == (5, 4)
    assert json.loads(json.dumps(method.hyperparameters)).keys() == methods.defaults(name).keys()
    assert not list(method.parameters()) and not method.state_dict()
    logits, observed = batch()
    for index in (None, torch.arange(4)):
        value = method(logits, observed, Step(1, 3, index))
        assert value.ndim == 0 and value.isfinite()
    assert method.observes == {"bce": (-1, -1), "iun": (1, -1)}.get(name, (1, 0))


@pytest.mark.parametrize("name", STATELESS)
def test_a_stateless_method_is_its_loss(name):
    logits, observed = batch()
    expected = getattr(losses, name)(logits, observed)
    assert issubclass(methods.get(name), LossMethod)
    for step in (Step(1, 9), Step(9, 9)):
        assert torch.equal(build(name, num_classes=5)(logits, observed, step), expected)


@pytest.mark.parametrize("num_classes", [0, -1])
def test_no_classes(num_classes):
    for name in MAIN:
        with pytest.raises(ValueError, match=f"num_classes must be >= 1, got {num_classes}"):
            build(name, num_classes=num_classes)


def test_wan_weight_needs_two_classes():
    with pytest.raises(ValueError, match="at least 2 classes"):
        build("wan", num_classes=1)
    build("wan", num_classes=1, weight=0.5)


@pytest.mark.parametrize("epoch, num_epochs", [(0, 5), (6, 5), (-1, 5), (1, 0)])
def test_epochs_count_from_one(epoch, num_epochs):
    with pytest.raises(ValueError, match=f"num_epochs={num_epochs}, got {epoch}"):
        Step(epoch, num_epochs)


# GR over time.

# By hand from GR Eq. 9, 10, 12, 13 with T = 8; "code" is one epoch late in w and b.
SCHEDULE = [
    ("paper", 1, {"w": 1.25, "b": -2.75, "mu": 0.5375, "sigma": 1.8125}),
    ("paper", 4, {"w": 5.0, "b": -5.0, "mu": 0.65, "sigma": 1.25}),
    ("paper", 8, {"w": 10.0, "b": -8.0, "mu": 0.8, "sigma": 0.5}),
    ("code", 1, {"w": 0.0, "b": -2.0, "mu": 0.5375, "sigma": 1.8125}),
    ("code", 4, {"w": 3.75, "b": -4.25, "mu": 0.65, "sigma": 1.25}),
    ("code", 8, {"w": 8.75, "b": -7.25, "mu": 0.8, "sigma": 0.5}),
]
PAIRS = {"w": (0, 10), "b": (-2, -8), "mu": (0.5, 0.8), "sigma": (2, 0.5)}


@pytest.mark.parametrize("schedule, epoch, moment", SCHEDULE)
def test_gr_schedule(schedule, epoch, moment):
    method = build("gr", num_classes=5, schedule=schedule, **PAIRS)
    step = Step(epoch, 8)
    assert method.at(step) == pytest.approx(moment, abs=1e-12)
    logits, observed = batch()
    torch.testing.assert_close(method(logits, observed, step), losses.gr(logits, observed, **moment))


@pytest.mark.parametrize("schedule", ["code", "paper"])
def test_gr_q3_that_varies(schedule):
    method = build("gr", num_classes=5, q3=[0.2, 1.0], schedule=schedule)
    assert [method.q3_at(Step(epoch, 4)) for epoch in (1, 2, 4)] == pytest.approx([0.4, 0.6, 1.0])
    logits, observed = batch()
    fixed = build("gr", num_classes=5, q3=0.6, schedule=schedule)
    assert torch.equal(method(logits, observed, Step(2, 4)), fixed(logits, observed, Step(2, 4)))


def test_gr_defaults_to_the_code_that_made_the_tables():
    assert methods.defaults("gr")["schedule"] == "code"
    assert build("gr", 5).at(Step(1, 10)) == pytest.approx({"w": 0, "b": -2, "mu": 0.53, "sigma": 1.85})


@pytest.mark.parametrize(
    "number, pair",
    [(3, (3, 3)), (0.5, [0.5, 0.5]), (np.float32(0.5), (0.5, 0.5)), (np.int64(2), (2, 2)), ([1, 2], (1, 2))],
)
def test_gr_a_number_is_a_constant_pair(number, pair):
    for name in ("w", "b", "mu", "sigma"):
        one, other = (build("gr", 5, **{name: value}) for value in (number, pair))
        assert one.hyperparameters == other.hyperparameters
        json.dumps(one.hyperparameters)
        assert one.at(Step(2, 3)) == other.at(Step(2, 3))


BAD_GR = [
    {"sigma": 0},
    {"sigma": (2.0, -0.5)},
    {"sigma": (-0.5, 1.0)},  # positive from the middle of the training on
    {"sigma": math.nan},
    {"sigma": (2.0, math.inf)},  # 0 * inf at the first epoch
    {"w": math.nan},
    {"w": (1, 2, 3)},
    {"w": "02"},
    {"w": None},
    {"b": (-math.inf, -2)},
    {"mu": (0.5, math.nan)},
    {"mu": ("0.5", "0.8")},
    {"schedule": "papr"},
    {"q3": (0.5, -0.1)},
    {"q3": (0.1, 0.5, 1.0)},
]


@pytest.mark.parametrize("bad", BAD_GR, ids=str)
def test_gr_bad_values_are_errors_at_once(bad):
    (name,) = bad
    with pytest.raises(ValueError, match=name):
        build("gr", num_classes=5, **bad)


# The identity of a method.

EDITS = [  # file, text, its replacement, the methods whose digest changes
    ("losses/terms.py", "return (lam - p) * p**2", "return (lam - p) * p**3", {"hill", "fm_splc"}),
    ("losses/unknown.py", "alpha: float = 0.2, log_floor", "alpha: float = 0.3, log_floor", {"em"}),
    (
        "losses/unknown.py",
        "(known - alpha * (1 - known))",
        "(known - 2 * alpha * (1 - known))",
        {"em", "ent_min"},
    ),
    ("losses/negative.py", "weigh(y, weight)", "2 * weigh(y, weight)", {"wan", "iun", "dw"}),
    ("losses/terms.py", "x^q - 1 for x <= 1", "Another docstring", set()),
    ("losses/terms.py", "def power_drop(", "# A comment.\ndef power_drop(", set()),
    ("losses/terms.py", "torch.expm1(q * log_x)", "2 * torch.expm1(q * log_x)", {"gr"}),
    ("losses/robust.py", "return v * torch.lerp(", "return 2 * v * torch.lerp(", {"gr"}),
    ("losses/common.py", "total = loss.sum()", "total = 2 * loss.sum()", set(MAIN)),
    ("methods/gr.py", "late = step.epoch / step.num_epochs", "late = 1.0", {"gr"}),
    ("methods/stateless.py", "observes = (-1, -1)", "observes = (1, -1)", {"bce"}),
    ("methods/stateless.py", "step.epoch >= self", "step.epoch > self", {"splc", "fm_splc"}),
    ("methods/stateless.py", "Entropy maximisation on unobserved", "Maximum entropy on unobserved", set()),
    # What is for show is no part of it.
    ("methods/stateless.py", '"Hill", display.ORANGE, "-"', '"Hill (2021)", display.BLACK, ":"', set()),
    ("methods/stateless.py", "alpha=[0.2, 0.1, 0.1, 0.01]", "alpha=[0.3, 0.1, 0.1, 0.01]", set()),
    (
        "methods/stateless.py",
        '"margin": Slider("margin m on p", 0, 1',
        '"margin": Slider("margin", 0, 2',
        set(),
    ),
    ("methods/stateless.py", '(rf"«alpha»\\,{latex.ENTROPY}")', '("0")', set()),
    (
        "methods/gr.py",
        "return latex.fill(latex.GR, self.hyperparameters",
        "return latex.fill(latex.GR, {} | self.hyperparameters",
        set(),
    ),
    ("methods/latex.py", r"- p)\,p^2", r"- p)\,p^{2}", set()),
    ("methods/gr.py", "w and b have gone", "both have gone", set()),
    # What a method requires of a number is.
    ("methods/gr.py", '"sigma": Pair((2.0, 0.5)', '"sigma": Pair((1.0, 0.5)', {"gr"}),
]


def copied_digests(folder: Path, file: str = "", text: str = "", replacement: str = "") -> dict:
    """Return the digests of all methods in an edited copy of the two packages, imported as part of `copied`."""
    package = folder / "copied"
    original = Path(spml_core.__file__).parent
    sources = [
        p for part in ("__init__", "words", "losses/*", "methods/*") for p in original.glob(f"{part}.py")
    ]
    for source in sources:
        name = source.relative_to(original)
        content = source.read_text()
        if name.as_posix() == file:
            assert content.count(text) == 1, f"{text!r} is no longer unique in {file}: adapt the test"
            content = content.replace(text, replacement)
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(content.replace("spml_core", "copied"))
    sys.path.insert(0, str(folder))
    try:
        copy = importlib.import_module("copied.methods")
        return {name: copy.source_digest(name) for name in MAIN}
    finally:
        sys.path.remove(str(folder))
        for module in [m for m in sys.modules if m.split(".")[0] == "copied"]:
            del sys.modules[module]


@pytest.fixture(scope="module")
def unedited(tmp_path_factory):
    return copied_digests(tmp_path_factory.mktemp("unedited"))


@pytest.mark.parametrize("file, text, replacement, changed", EDITS)
def test_digest_follows_the_code_that_runs(tmp_path, unedited, file, text, replacement, changed):
    edited = copied_digests(tmp_path, file, text, replacement)
    assert {name for name in MAIN if edited[name] != unedited[name]} == changed


def test_digests_are_distinct_and_stable():
    digests = {name: source_digest(name) for name in methods.names()}
    assert len(set(digests.values())) == len(digests)
    assert digests == {name: source_digest(name) for name in methods.names()}
    assert all(len(d) == 64 for d in digests.values())


LOSS = """
from spml_core import losses
from spml_core.methods import LossMethod

def scaled(logits, observed, *, factor=2.0, reduction="mean"):
    return factor * losses.an(logits, observed, reduction=reduction)

class Scaled(LossMethod):
    \"""A method of a notebook.\"""

    loss = staticmethod(scaled)
    color = "red"
"""


@pytest.mark.parametrize(
    "text, replacement, same",
    [
        ('"red"', '"blue"', True),
        ("A method", "The method", True),
        ("factor * losses", "factor**2 * losses", False),
    ],
)
def test_digest_of_a_method_of_ones_own(tmp_path, registry, monkeypatch, text, replacement, same):
    """The loss is defined beside the class, in a user's module or notebook."""
    monkeypatch.syspath_prepend(tmp_path)
    digests = []
    for n, code in enumerate([LOSS, LOSS.replace(text, replacement)]):
        (tmp_path / f"own{n}.py").write_text(code)
        module = importlib.import_module(f"own{n}")
        module.Scaled.__module__ = module.scaled.__module__ = "own"
        monkeypatch.setitem(sys.modules, "own", module)
        register("scaled")(module.Scaled)
        digests.append(source_digest("scaled"))
    assert (digests[0] == digests[1]) is same
    for n in range(2):
        del sys.modules[f"own{n}"]


OTHER_FILES = {
    "own_weights": "def weight(factor):\n    return 2 * factor\n",
    "own_losses": """
import own_weights
from spml_core import losses

def scaled(logits, observed, *, factor=2.0, reduction="mean"):
    return own_weights.weight(factor) * losses.an(logits, observed, reduction=reduction)
""",
    "own_method": """
from own_losses import scaled
from spml_core.methods import LossMethod, register

@register("scaled")
class Scaled(LossMethod):
    loss = staticmethod(scaled)
""",
}


def test_digest_of_a_method_whose_code_is_in_several_files(tmp_path, registry, monkeypatch):
    def digest(changed=""):
        folder = tmp_path / (changed or "first")
        folder.mkdir()
        for name, code in OTHER_FILES.items():
            monkeypatch.delitem(sys.modules, name, raising=False)
            (folder / f"{name}.py").write_text(
                code.replace("factor", "strength") if name == changed else code
            )
        with monkeypatch.context() as context:
            context.syspath_prepend(folder)
            importlib.import_module("own_method")
        return source_digest("scaled")

    digests = [digest(), digest("own_losses"), digest("own_weights")]
    for name in OTHER_FILES:
        del sys.modules[name]
    assert len(set(digests)) == 3


# What a method is given wrongly.


def test_another_number_of_classes_is_an_error():
    logits, observed = torch.zeros(4, 12), torch.zeros(4, 12)
    for name, params in {"gr": {}, "em": {}, "role": {"expected_positives": 2.0}, "ll_cp": {}}.items():
        method, step = build(name, 20, 4, **params), Step(1, 2, torch.arange(4))
        with pytest.raises(ValueError, match=rf"'{name}' was built for num_classes=20, logits are \(4, 12\)"):
            method(logits, observed, step)
        with pytest.raises(ValueError, match=r"logits \(4, 20\) and observed \(4, 2\) differ in shape"):
            method(torch.zeros(4, 20), torch.zeros(4, 2), step)
        with pytest.raises(ValueError, match=r"logits \(4, 20\) and observed \(3, 20\) differ in shape"):
            method(torch.zeros(4, 20), torch.zeros(3, 20), step)


@pytest.mark.parametrize(
    "name, bad",
    [
        ("em", {"alpha": (0, 1)}),
        ("dw", {"weight": [0.1, 0.2]}),
        ("em_apl", {"warmup": (1, 2)}),
        ("ll_r", {"delta": (0, 1)}),
        ("lasd", {"expected_positives": (1, 2)}),
        ("gr_trainable", {"w": (0, 2)}),
        ("unified", {"q1": (0, 1)}),
        ("gr", {"q1": (0, 1)}),
        ("gr", {"sigma": (2, 1, 0.5)}),
        ("splc", {"first_epoch": "2"}),
    ],
)
def test_a_pair_where_a_number_is_meant(name, bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be a"):
        build(name, 5, 4, **bad)
