"""Every loss over one table: add a loss by adding its equation and its rows."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from torch.overrides import TorchFunctionMode

from spml_core import losses, methods
from spml_core.methods import Step, build

STEP = Step(epoch=1, num_epochs=1)  # every pair of the table is constant, so any step will do


# One entry by the equation of its paper: probabilities and math.*, no tensor. s is 1, 0 or -1. A verified negative gets
# the negative term at full weight, by the project's convention. `floor` is what released code adds inside a logarithm.


def paper_an(p, s, num_classes, log_floor=0.0):
    """EM Eq. 1."""
    return -math.log(p + log_floor) if s == 1 else -math.log(1 - p + log_floor)


def paper_wan(p, s, num_classes, weight=None, log_floor=0.0):
    """LASD appendix A.2.2, with Cole's weight."""
    if weight is None:
        weight = 1 / (num_classes - 1)
    return paper_an(p, s, num_classes, log_floor) * (weight if s == 0 else 1)


def paper_em(p, s, num_classes, alpha=0.2, log_floor=0.0):
    """EM Eq. 3, with the entropy of Eq. 4."""
    if s != 0:
        return paper_an(p, s, num_classes, log_floor)
    entropy = -(p * math.log(p + log_floor) + (1 - p) * math.log(1 - p + log_floor))
    return -alpha * entropy


def paper_gr(p, s, num_classes, w, b, mu, sigma, q1=0.01, q2=0.01, q3=1.0, log_floor=0.0):
    """GR Eq. 5, 7, 11, 14."""

    def robust(x, q):
        return (1 - x**q) / q if q else -math.log(x + log_floor)

    if s == 1:
        return robust(p, q1)
    if s == -1:
        return robust(1 - p, q3)
    k = 1 / (1 + math.exp(-(w * p + b)))
    v = math.exp(-((p - mu) ** 2) / (2 * sigma**2))
    return v * (k * robust(p, q2) + (1 - k) * robust(1 - p, q3))


def paper_hill(p, s, num_classes, lam=1.5, margin=1.0, gamma=2.0):
    """Hill Eq. 11 (positives), Eq. 5 (negatives)."""
    if s != 1:
        return (lam - p) * p**2
    z = math.log(p / (1 - p))
    p_m = 1 / (1 + math.exp(-(z - margin)))
    return -((1 - p_m) ** gamma) * math.log(p_m)


@dataclass(frozen=True)
class Row:
    """`gradcheck` holds the parameters under which no stopped gradient hides in the loss."""

    name: str
    paper: Callable
    params: dict = field(default_factory=dict)
    gradcheck: dict = field(default_factory=dict)

    def __call__(self, logits, observed, **more):
        return getattr(losses, self.name)(logits, observed, **{**self.params, **more})


GR_START = {"w": 0.0, "b": -2.0, "mu": 0.5, "sigma": 2.0}
GR_VOC = {"w": 2.0, "b": -2.0, "mu": 0.8, "sigma": 0.5}
GR_STEEP = {"w": 10.0, "b": -8.0, "mu": 0.8, "sigma": 0.5, "q1": 0.0, "q2": 0.5, "q3": 0.7}
CONSTANT_K_V = {"w": 0.0, "sigma": 1e30}

TABLE = [
    Row("bce", paper_an),
    Row("an", paper_an),
    Row("an", paper_an, {"log_floor": 1e-5}),
    Row("wan", paper_wan),
    Row("wan", paper_wan, {"weight": 0.3, "log_floor": 1e-5}),
    Row("wan", paper_wan, {"weight": 0.0}),
    Row("em", paper_em),
    Row("em", paper_em, {"alpha": 1.5, "log_floor": 1e-5}),
    Row("gr", paper_gr, GR_START, gradcheck=CONSTANT_K_V),
    Row("gr", paper_gr, GR_VOC, gradcheck=CONSTANT_K_V),
    Row("gr", paper_gr, {**GR_STEEP, "log_floor": 1e-7}, gradcheck=CONSTANT_K_V),
    Row("gr", paper_gr, {**GR_VOC, "q2": 0.0, "q3": 1.5}, gradcheck=CONSTANT_K_V),
    Row("hill", paper_hill),
    Row("hill", paper_hill, {"margin": 0.0, "gamma": 0.5, "lam": 1.7}),
    Row("hill", paper_hill, {"gamma": 0.0}),
]
NAMES = sorted({row.name for row in TABLE})
each_row = pytest.mark.parametrize(
    "row", TABLE, ids=lambda row: "-".join([row.name, *(f"{k}={v}" for k, v in row.params.items())])
)
each_loss = pytest.mark.parametrize(
    "row", [next(r for r in TABLE if r.name == name) for name in NAMES], ids=NAMES
)


def batch(num_images=5, num_classes=4, dtype=torch.float64, seed=0, values=(1, 0, -1)):
    """Logits of a usual size and labels that take every value."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(num_images, num_classes, generator=generator, dtype=torch.float64)
    observed = torch.arange(num_images * num_classes).reshape(num_images, num_classes) % len(values)
    return logits.to(dtype), torch.tensor(values)[observed]


def value_and_grad(loss, logits, observed, **more):
    logits = logits.detach().clone().requires_grad_()
    value = loss(logits, observed, **more)
    value.sum().backward()
    return value.detach(), logits.grad


def test_the_table_has_every_registered_loss():
    stateless = [n for n in methods.names() if issubclass(methods.get(n), methods.LossMethod)]
    assert set(stateless) <= set(NAMES)


# What the papers and the authors' code say.


@pytest.mark.parametrize("name", ["an", "wan", "em", "gr", "hill"])
@pytest.mark.parametrize("through", ["function", "method"])
def test_golden_value_and_gradient(golden, name, through):
    logits = torch.tensor(golden["logits"], dtype=torch.float64)
    observed = torch.tensor(golden["observed"])
    cases = [c for c in golden["cases"] if c["loss"] == name]
    assert cases
    for case in cases:
        if through == "function":
            constants = {k: v[0] if isinstance(v, list) else v for k, v in case["params"].items()}
            value, grad = value_and_grad(getattr(losses, name), logits, observed, **constants)
        else:
            method = build(name, num_classes=9, num_examples=6, **case["params"])
            step = Step(case["epoch"], case["num_epochs"], torch.arange(6))
            value, grad = value_and_grad(method, logits, observed, step=step)
        assert value.item() == pytest.approx(case["value"], abs=1e-9), case["params"]
        torch.testing.assert_close(grad, torch.tensor(case["grad"], dtype=torch.float64), atol=1e-9, rtol=0)


@each_row
def test_slow_loop_from_the_paper(row):
    logits, observed = batch(6, 5)
    loss = row(logits, observed, reduction="none")
    for n, c in torch.cartesian_prod(torch.arange(6), torch.arange(5)):
        p = 1 / (1 + math.exp(-logits[n, c].item()))
        expected = row.paper(p, observed[n, c].item(), 5, **row.params)
        assert loss[n, c].item() == pytest.approx(expected, rel=1e-10, abs=1e-12)


@each_row
def test_gradcheck(row):
    logits, observed = batch(3, 4)
    torch.autograd.gradcheck(
        lambda z: row(z, observed, **row.gradcheck), logits.requires_grad_(), atol=1e-7, rtol=1e-5
    )


@pytest.mark.parametrize("params", [GR_START, GR_VOC, {**GR_STEEP, "q3": 1.5}])
def test_gr_gradient_is_equation_18(params):
    """GR Eq. 18 times v: no gradient flows through k and v."""
    params = {"q1": 0.01, "q2": 0.01, "q3": 1.0, **params}
    z = torch.linspace(-8, 8, 65, dtype=torch.float64)[:, None]
    _, grad = value_and_grad(losses.gr, z, torch.zeros_like(z), reduction="sum", **params)
    p = 1 / (1 + torch.exp(-z))
    k = 1 / (1 + torch.exp(-(params["w"] * p + params["b"])))
    v = torch.exp(-((p - params["mu"]) ** 2) / (2 * params["sigma"] ** 2))
    g = (1 - k) * (1 - p) ** params["q3"] * p - k * p ** params["q2"] * (1 - p)
    torch.testing.assert_close(grad, v * g, rtol=1e-10, atol=1e-14)


def test_em_gradient_is_equation_5():
    z = torch.linspace(-8, 8, 65, dtype=torch.float64)[:, None]
    _, grad = value_and_grad(losses.em, z, torch.zeros_like(z), alpha=0.3, reduction="sum")
    e = torch.exp(-z)
    torch.testing.assert_close(grad, -0.3 * e * torch.log(e) / (1 + e) ** 2, rtol=1e-10, atol=1e-14)


def test_hill_negative_is_steepest_at_one_half():
    """Hill chooses lambda = 1.5 so that the second derivative in the logit vanishes at p = 0.5."""
    z = torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(losses.hill(z, torch.zeros(1, 1), lam=1.5), z, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), z)
    assert second.item() == pytest.approx(0, abs=1e-15)


# GR with k = 0 or 1, v = 1 and q towards 0. b and sigma may be infinite at one moment, not in a schedule.
FLAT = {"w": 0.0, "mu": 0.5, "sigma": math.inf, "q1": 0.0, "q2": 0.0}
LIMITS = [
    ("wan weight 1 is an", "wan", {"weight": 1.0}, "an", {}),
    ("bce is an", "bce", {}, "an", {}),
    ("em without entropy is wan without negatives", "em", {"alpha": 0.0}, "wan", {"weight": 0.0}),
    ("gr k=0 v=1 q=0 is an", "gr", {**FLAT, "b": -math.inf, "q3": 0.0}, "an", {}),
    ("gr k=0 v=1 q to 0 is an", "gr", {**FLAT, "b": -math.inf, "q1": 1e-9, "q3": 1e-9}, "an", {}),
]


@pytest.mark.parametrize("_, name, params, other, others", LIMITS, ids=[row[0] for row in LIMITS])
def test_limits(_, name, params, other, others):
    logits, observed = batch(6, 5)
    for got, expected in zip(
        value_and_grad(getattr(losses, name), logits, observed, **params),
        value_and_grad(getattr(losses, other), logits, observed, **others),
        strict=True,
    ):
        torch.testing.assert_close(got, expected, rtol=1e-7, atol=1e-12)


def test_hill_without_margin_is_focal_on_positives_and_mse_like_on_negatives():
    logits, _ = batch()
    p = torch.sigmoid(logits)
    positive = losses.hill(logits, torch.ones(5, 4), margin=0.0, gamma=0.0, reduction="none")
    torch.testing.assert_close(positive, -torch.log(p))
    negative = losses.hill(logits, torch.zeros(5, 4), margin=0.0, reduction="none")
    torch.testing.assert_close(negative, 1.5 * p**2 - p**3)


def test_gr_with_q_1_is_mean_absolute_error():
    logits, _ = batch()
    loss = losses.gr(logits, torch.ones(5, 4), **{**GR_VOC, "q1": 1.0}, reduction="none")
    torch.testing.assert_close(loss, 1 - torch.sigmoid(logits))


# Numbers that break a loss computed from probabilities.


@each_row
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_extreme_logits(row, dtype):
    sizes = torch.tensor([0, 1e-4, 17, 18, 20, 40, 80, 90, 104, 110, 120, 1e3, 1e4])
    logits = torch.cat([sizes, -sizes]).to(dtype)[:, None].expand(-1, 3).contiguous()
    observed = torch.tensor([1, 0, -1]).expand_as(logits)
    value, grad = value_and_grad(row, logits, observed, reduction="none")
    assert value.dtype == torch.float32 and grad.dtype == dtype
    assert value.isfinite().all() and grad.isfinite().all()
    exact, slope = value_and_grad(row, logits.double(), observed, reduction="none")
    torch.testing.assert_close(value.double(), exact, rtol=1e-4, atol=1e-5)
    near = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1e-2}[dtype]
    torch.testing.assert_close(grad.double(), slope, rtol=near, atol=1e-5)


@each_row
@pytest.mark.parametrize("target", [1, 0, -1])
def test_half_precision_equals_double(row, target):
    logits = torch.tensor([[40.0, -40.0, 18.0, -18.0]], dtype=torch.float16)
    observed = torch.full((1, 4), target)
    for got, expected in zip(
        value_and_grad(row, logits, observed, reduction="none"),
        value_and_grad(row, logits.double(), observed, reduction="none"),
        strict=True,
    ):
        torch.testing.assert_close(got.double(), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("target, logits", [(1, [-40.0, -18.0]), (0, [40.0, 18.0])])
def test_confident_mistake_costs_its_logit(target, logits):
    logits = torch.tensor([logits], dtype=torch.float16)
    observed = torch.full((1, 2), target)
    for name in ("bce", "an"):
        value, grad = value_and_grad(getattr(losses, name), logits, observed, reduction="none")
        assert value.tolist() == [[40.0, 18.0]]
        assert grad.abs().tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize(
    "log_floor, expected", [(0.0, [-0.99995, -0.99999, -1.0]), (1e-5, [-0.819, -0.381, -0.030])]
)
def test_log_floor_kills_the_gradient_of_confident_mistakes(log_floor, expected):
    logits = torch.tensor([[-10.0, -12.0, -15.0]])
    for name in ("bce", "an", "wan", "em"):
        _, grad = value_and_grad(
            getattr(losses, name), logits, torch.ones(1, 3), log_floor=log_floor, reduction="sum"
        )
        digits = 5e-6 if log_floor == 0 else 5e-4
        torch.testing.assert_close(grad, torch.tensor([expected]), rtol=0, atol=digits)


NAIVE_NAN = [  # each gave NaN from probabilities: 0 * log(0), or the infinite slope of p^q at 0
    ("hill", {}, torch.float32, [-90.0, -110.0]),
    ("hill", {}, torch.float16, [-17.0, -20.0]),
    ("hill", {"gamma": 0.5}, torch.float32, [-120.0, 120.0]),
    ("em", {}, torch.float32, [-90.0, -110.0]),
    ("gr", {**GR_VOC, "q2": 0.01}, torch.float32, [-104.0]),
    ("gr", {**GR_VOC, "q3": 0.5}, torch.float32, [17.0]),
]


@pytest.mark.parametrize("name, params, dtype, logits", NAIVE_NAN)
@pytest.mark.parametrize("target", [1, 0])
def test_no_nan_from_the_branch_not_taken(name, params, dtype, logits, target):
    logits = torch.tensor([logits], dtype=dtype)
    value, grad = value_and_grad(getattr(losses, name), logits, torch.full(logits.shape, target), **params)
    assert value.isfinite() and grad.isfinite().all()


@each_row
def test_a_nan_logit_stays_where_it_is(row):
    logits, observed = batch()
    logits[1, 2] = math.nan
    value, grad = value_and_grad(row, logits, observed, reduction="none")
    where = torch.zeros(5, 4, dtype=torch.bool)
    where[1, 2] = True
    assert torch.equal(value.isnan(), where)
    assert grad[~where].isfinite().all()


# What an entry may depend on.


@each_row
def test_permutation(row):
    logits, observed = batch(6, 5)
    loss = row(logits, observed, reduction="none")
    images, classes = torch.randperm(6), torch.randperm(5)
    shuffled = row(logits[images][:, classes], observed[images][:, classes], reduction="none")
    torch.testing.assert_close(shuffled, loss[images][:, classes], rtol=1e-12, atol=1e-15)


@each_row
def test_reductions(row):
    logits, observed = batch(16, 80, torch.float32)
    none = row(logits, observed, reduction="none")
    assert none.shape == (16, 80)
    torch.testing.assert_close(row(logits, observed), none.mean())
    torch.testing.assert_close(row(logits, observed, reduction="sum"), 1280 * row(logits, observed))


@each_row
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.float16, torch.float32])
def test_label_type_changes_nothing(row, dtype):
    logits, observed = batch(4, 3, values=(1, 0))
    for got, expected in zip(
        value_and_grad(row, logits, observed.to(dtype)),
        value_and_grad(row, logits, observed.double()),
        strict=True,
    ):
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


@each_row
def test_verified_negative_pushes_down(row):
    """Whatever stands in for an unknown label, a verified negative is not one."""
    logits = torch.linspace(-20, 20, 41, dtype=torch.float64)[:, None].expand(-1, 2)
    value, grad = value_and_grad(row, logits, torch.full((41, 2), -1), reduction="none")
    lowest = -math.log1p(row.params.get("log_floor", 0.0))
    assert (grad > 0).all() and (value >= lowest).all() and (value.diff(dim=0) > 0).all()


@each_row
def test_observed_positive_pushes_up(row):
    logits = torch.linspace(-20, 20, 41, dtype=torch.float64)[:, None].expand(-1, 2)
    params = {"gamma": 0.0} if row.name == "hill" else {}  # Focal margin fades on both sides of its peak
    _, grad = value_and_grad(row, logits, torch.ones(41, 2), **params)
    assert (grad < 0).all()


@each_row
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1)])
def test_one_image_or_one_class(row, shape):
    logits, observed = batch(*shape)
    if row.name == "wan" and shape[1] == 1 and "weight" not in row.params:
        with pytest.raises(ValueError, match=r"at least 2 classes.*weight="):
            row(logits, observed)
        return
    value, grad = value_and_grad(row, logits, observed)
    assert value.isfinite() and value.ndim == 0 and grad.isfinite().all()


@each_row
def test_memory_layout_changes_nothing(row):
    logits, observed = batch(6, 4)
    strided = torch.stack([logits, -logits], dim=2)[:, :, 0]
    transposed = observed.T.contiguous().T
    assert not strided.is_contiguous() and not transposed.is_contiguous()
    torch.testing.assert_close(row(strided, transposed), row(logits, observed))


# Where it runs.


@each_row
def test_meta_device(row):
    logits = torch.empty(4, 3, device="meta", requires_grad=True)
    value = row(logits, torch.empty(4, 3, device="meta", dtype=torch.int8))
    value.backward()
    assert value.device.type == "meta" and logits.grad.shape == (4, 3)


class Calls(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.add(func.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", methods.names())
def test_autocast(name):
    """CUDA autocast refuses cross-entropy of probabilities; a CPU cannot show that, but can look for the call."""
    logits, observed = batch(dtype=torch.bfloat16)
    method = build(name, num_classes=4, num_examples=5)
    step = Step(1, 1, torch.arange(5))
    with torch.autocast("cpu", torch.bfloat16), Calls() as calls:
        value, grad = value_and_grad(method, logits, observed, step=step)
    assert value.dtype == torch.float32 and grad.isfinite().all()
    assert "backward" in calls.names
    assert not calls.names & {"binary_cross_entropy", "item", "tolist", "__bool__"}
    torch.testing.assert_close(value, method(logits, observed, step), rtol=1e-6, atol=1e-6)


# Errors name what they found.

INPUTS = [
    ("shape", lambda z, s: (z, s.T), r"\(5, 4\).*\(4, 5\)"),
    ("broadcastable shape", lambda z, s: (z, s[:1]), r"\(5, 4\).*\(1, 4\)"),
    ("device", lambda z, s: (z, s.to("meta")), "cpu.*meta"),
    ("integer logits", lambda z, s: (z.long(), s), "int64"),
    ("labels as an array", lambda z, s: (z, s.numpy()), "observed is a ndarray"),
    ("labels as a list", lambda z, s: (z, s.tolist()), "observed is a list"),
]


@each_loss
@pytest.mark.parametrize("_, spoil, match", INPUTS, ids=[row[0] for row in INPUTS])
def test_bad_input(row, _, spoil, match):
    with pytest.raises(ValueError, match=match):
        row(*spoil(*batch()))


@each_loss
@pytest.mark.parametrize("reduction", ["avg", "", "MEAN"])
def test_unknown_reduction(row, reduction):
    with pytest.raises(ValueError, match=f"reduction '{reduction}'.*mean, sum, none"):
        row(*batch(), reduction=reduction)


BAD_VALUES = [
    ("an", {"log_floor": -1e-5}),
    ("bce", {"log_floor": 2.0}),
    ("wan", {"weight": -0.1}),
    ("wan", {"weight": 1.1}),
    ("wan", {"weight": math.nan}),
    ("em", {"alpha": -0.1}),
    ("em", {"alpha": math.inf}),
    ("em", {"log_floor": math.nan}),
    ("gr", {"sigma": 0.0}),
    ("gr", {"sigma": -1.0}),
    ("gr", {"sigma": math.nan}),
    ("gr", {"q1": -0.01}),
    ("gr", {"q2": math.nan}),
    ("gr", {"q3": math.inf}),
    ("hill", {"lam": 0.5}),
    ("hill", {"margin": -1.0}),
    ("hill", {"gamma": -1.0}),
    ("hill", {"gamma": math.inf}),
]


@pytest.mark.parametrize("name, bad", BAD_VALUES)
@pytest.mark.parametrize("through", ["function", "build"])
def test_hyperparameter_out_of_range(name, bad, through):
    ((parameter, value),) = bad.items()
    with pytest.raises(ValueError, match=rf"{parameter} must be .*{value}"):
        if through == "build":
            build(name, num_classes=4, **bad)
        else:
            getattr(losses, name)(*batch(), **{**(GR_VOC if name == "gr" else {}), **bad})
