"""Test every loss over one table: a new loss is added by its equation and its rows."""

import math
import shutil
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch.overrides import TorchFunctionMode

from spml_core import losses, methods
from spml_core.losses import terms
from spml_core.methods import Step, build, checks

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


def paper_iun(p, s, num_classes, log_floor=0.0):
    """EM 4.1: unobserved labels are ignored."""
    return paper_an(p, s, num_classes, log_floor) if s else 0.0


def paper_dw(p, s, num_classes, weight=0.1, log_floor=0.0):
    """EM B.2."""
    return paper_wan(p, s, num_classes, weight, log_floor)


def paper_an_ls(p, s, num_classes, smoothing=0.1, log_floor=0.0):
    """LASD appendix A.2.2 with eps / 2 = smoothing."""
    target = {1: 1 - smoothing, 0: smoothing, -1: 0}[s]
    return -target * math.log(p + log_floor) - (1 - target) * math.log(1 - p + log_floor)


def paper_n_ls(p, s, num_classes, smoothing=0.1, log_floor=0.0):
    """EM 4.1: smoothing of assumed negative labels only."""
    return paper_an_ls(p, s, num_classes, smoothing if s == 0 else 0.0, log_floor)


def paper_ent_min(p, s, num_classes, alpha=0.01, log_floor=0.0):
    return paper_em(p, s, num_classes, -alpha, log_floor)


def paper_focal(p, s, num_classes, gamma=2.0, alpha=None):
    """Hill Eq. 3."""
    loss = -((1 - p) ** gamma) * math.log(p) if s == 1 else -(p**gamma) * math.log(1 - p)
    return loss * (1 if alpha is None else alpha if s == 1 else 1 - alpha)


def paper_asl(p, s, num_classes, gamma_pos=0.0, gamma_neg=4.0, margin=0.0):
    """LASD appendix A.2.2."""
    if s == 1:
        return -((1 - p) ** gamma_pos) * math.log(p)
    p_m = max(p - margin, 0)
    return -(p_m**gamma_neg) * math.log(1 - p_m)


def paper_asl_ps(p, s, num_classes, margin=0.05, **params):
    return paper_asl(p, s, num_classes, margin=margin, **params)


def shifted(p, margin):
    return 1 / (1 + math.exp(-(math.log(p / (1 - p)) - margin)))


def paper_focal_margin(p, s, num_classes, margin=1.0, gamma=2.0, gamma_neg=None):
    """Hill Eq. 11 (positives), Eq. 3 (negatives)."""
    negatives = gamma if gamma_neg is None else gamma_neg
    return paper_focal(shifted(p, margin) if s == 1 else p, s, num_classes, gamma if s == 1 else negatives)


def paper_mse(p, s, num_classes):
    """Hill III-C, Table VI."""
    return -math.log(p) if s == 1 else p**2


def paper_splc(p, s, num_classes, tau=0.6, base="bce"):
    """Hill Eq. 9, 10."""
    papers = {"bce": paper_an, "focal": paper_focal, "asl": paper_asl, "focal_margin": paper_focal_margin}
    return papers[base](p, 1 if s == 0 and p > tau else s, num_classes)


def paper_fm_splc(
    p, s, num_classes, tau=0.6, margin=1.0, gamma=2.0, negative="focal", lam=1.5, shift_corrected=False
):
    """Hill Eq. 10, 11; GR Eq. 25."""
    if s == 1 or (s == 0 and p > tau):
        return paper_focal(shifted(p, margin) if s == 1 or shift_corrected else p, 1, num_classes, gamma)
    return (lam - p) * p**2 if negative == "hill" else paper_focal(p, 0, num_classes, gamma)


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
    return paper_focal_margin(p, s, num_classes, margin, gamma)


def paper_lasd(p, s, num_classes, lambda_minus, lambda_plus=0.1, tau=0.9):
    """LASD Eq. 4 to 6."""
    if s == 1 or (s == 0 and p > tau):
        return -math.log(p) * (1 if s else lambda_plus)
    return -(p**4) * math.log(1 - p) * (1 if s else lambda_minus)


def paper_epr(p, s, num_classes, expected_positives, weight=1.0, log_floor=0.0):
    """LASD appendix A.2.2; its regulariser R_k has a test of its own, and weight 0 in the slow loop."""
    return paper_iun(p, s, num_classes, log_floor)


# Of a whole batch, p and s are lists of rows, and the value is the mean.


def log_sum_exp(values):
    return math.log(sum(map(math.exp, values))) if values else -math.inf


def paper_pr(p, s):
    """Cole et al., released code."""
    total = sum(
        max(0, 1 - positive + other)
        for row, labels in zip(p, s, strict=True)
        for positive, label in zip(row, labels, strict=True)
        for other, unobserved in zip(row, labels, strict=True)
        if label == 1 and unobserved != 1
    )
    return total / (len(p) * len(p[0]))


def paper_two_way(p, s, t_pos=4.0, t_neg=1.0):
    """Kobayashi, CVPR 2023."""

    def over(groups):
        margins = []
        for group in groups:
            logits = [(math.log(q / (1 - q)), label) for q, label in group]
            if any(label == 1 for _, label in logits):
                rest = log_sum_exp([z / t_neg for z, label in logits if label != 1])
                margins.append(
                    t_neg * rest + t_pos * log_sum_exp([-z / t_pos for z, label in logits if label == 1])
                )
        return sum(math.log1p(math.exp(m)) for m in margins) / max(len(margins), 1)

    images = [list(zip(*row, strict=True)) for row in zip(p, s, strict=True)]
    return over(images) + over(zip(*images, strict=True))


def paper_pu_mlc(p, s, alpha=2.0, gamma=0.85):
    """Yuan et al., ICME 2024."""
    total = 0.0
    for column, labels in zip(zip(*p, strict=True), zip(*s, strict=True), strict=True):
        z = [math.log(q / (1 - q)) for q in column]
        tau = min(1, alpha * statistics.pstdev(z))
        q = [1 / (1 + math.exp(-value / tau)) for value in z]
        total += statistics.mean(q) ** gamma * math.log(statistics.mean(q))
        observed = [-math.log(value) for value, label in zip(q, labels, strict=True) if label == 1]
        total += statistics.mean(observed) if observed else 0
    return total


@dataclass(frozen=True)
class Row:
    """One row of the table; `gradcheck` holds parameters for which the loss has no stopped gradient."""

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
NO_TAU = {"alpha": 1e30, "gamma": 0.0}

TABLE = [
    Row("bce", paper_an),
    Row("iun", paper_iun),
    Row("iun", paper_iun, {"log_floor": 1e-5}),
    Row("iu", paper_iun),
    Row("dw", paper_dw),
    Row("dw", paper_dw, {"weight": 0.02, "log_floor": 1e-5}),
    Row("an_ls", paper_an_ls),
    Row("an_ls", paper_an_ls, {"smoothing": 0.3, "log_floor": 1e-5}),
    Row("n_ls", paper_n_ls),
    Row("n_ls", paper_n_ls, {"smoothing": 0.3, "log_floor": 1e-5}),
    Row("ent_min", paper_ent_min),
    Row("ent_min", paper_ent_min, {"alpha": 0.9, "log_floor": 1e-5}),
    Row("epr", paper_epr, {"expected_positives": 1.0}),
    Row("epr", paper_epr, {"expected_positives": 1.0, "log_floor": 1e-5}),
    Row("focal", paper_focal),
    Row("focal", paper_focal, {"gamma": 0.5, "alpha": 0.75}),
    Row("asl", paper_asl),
    Row("asl", paper_asl, {"gamma_pos": 1.0, "gamma_neg": 0.5}),
    Row("asl", paper_asl, {"gamma_pos": 0.5, "gamma_neg": 0.5, "margin": 0.2}),
    Row("asl_ps", paper_asl_ps),
    Row("focal_margin", paper_focal_margin),
    Row("focal_margin", paper_focal_margin, {"gamma_neg": 0.0}),
    Row("mse", paper_mse),
    *(Row("splc", paper_splc, {"base": base}) for base in ("bce", "focal", "asl", "focal_margin")),
    Row("fm_splc", paper_fm_splc),
    Row("fm_splc", paper_fm_splc, {"tau": 0.3, "negative": "hill", "shift_corrected": True}),
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
    Row("lasd", paper_lasd, {"lambda_minus": 0.25}),
    Row("hill", paper_hill),
    Row("hill", paper_hill, {"margin": 0.0, "gamma": 0.5, "lam": 1.7}),
    Row("hill", paper_hill, {"gamma": 0.0}),
]
OF_A_BATCH = [  # losses that compare labels with each other
    Row("pr", paper_pr),
    Row("two_way", paper_two_way),
    Row("two_way", paper_two_way, {"t_pos": 2.0, "t_neg": 0.5}),
    Row("pu_mlc", paper_pu_mlc, gradcheck=NO_TAU),
    Row("pu_mlc", paper_pu_mlc, {"alpha": 0.2, "gamma": 0.55}, gradcheck=NO_TAU),
]
NAMES = sorted({row.name for row in TABLE})


def parametrized(rows):
    name = lambda row: "-".join([row.name, *(f"{k}={v}" for k, v in row.params.items())])  # noqa: E731
    return pytest.mark.parametrize("row", rows, ids=name)


each_row, each_of_all = parametrized(TABLE), parametrized(TABLE + OF_A_BATCH)
each_of_a_batch = parametrized(OF_A_BATCH)
each_loss = pytest.mark.parametrize(
    "row", [next(r for r in TABLE if r.name == name) for name in NAMES], ids=NAMES
)


def batch(num_images=5, num_classes=4, dtype=torch.float64, seed=0, values=(1, 0, -1)):
    """Return logits of usual size, and labels that take every value."""
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
    missing = {*stateless, "splc", "fm_splc", "gr"} - {row.name for row in TABLE + OF_A_BATCH}
    assert not missing, f"add a Row with the paper's equation to TABLE in this file for: {', '.join(missing)}"


# What the papers and the authors' code say.


@pytest.mark.parametrize("name", ["an", "an_ls", "wan", "em", "epr", "asl", "gr", "hill", "fm_splc"])
@pytest.mark.parametrize("through", ["function", "method"])
def test_golden_value_and_gradient(golden, name, through):
    logits = torch.tensor(golden["logits"], dtype=torch.float64)
    observed = torch.tensor(golden["observed"])
    cases = [c for c in golden["cases"] if c["loss"] == name]
    assert cases
    for case in cases:
        if through == "function":
            constants = {k: v[0] if isinstance(v, list) else v for k, v in case["params"].items()}
            if name == "fm_splc":
                constants["correct"] = case["epoch"] > 1
            value, grad = value_and_grad(getattr(losses, name), logits, observed, **constants)
        else:
            method = build(name, num_classes=9, num_examples=6, **case["params"])
            step = Step(case["epoch"], case["num_epochs"], torch.arange(6))
            value, grad = value_and_grad(method, logits, observed, step=step)
        assert value.item() == pytest.approx(case["value"], abs=1e-9), case["params"]
        torch.testing.assert_close(grad, torch.tensor(case["grad"], dtype=torch.float64), atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", sorted({"iu"} | {row.name for row in OF_A_BATCH}))
def test_golden_value_and_gradient_of_a_batch(golden_more, name):
    logits = torch.tensor(golden_more["logits"], dtype=torch.float64)
    cases = [c for c in golden_more["cases"] if c["loss"] == name]
    assert cases
    near = 1e-6 if name == "pu_mlc" else 1e-9  # the released code has an epsilon in its logarithms
    for case in cases:
        observed = torch.tensor(case["observed"])
        params = case["params"] | ({"log_floor": 1e-5} if name == "iu" else {})
        method = build(name, num_classes=9, num_examples=6, **params)
        for value, grad in (
            value_and_grad(getattr(losses, name), logits, observed, **params),
            value_and_grad(method, logits, observed, step=STEP),
        ):
            assert value.item() == pytest.approx(case["value"], abs=near)
            torch.testing.assert_close(
                grad, torch.tensor(case["grad"], dtype=torch.float64), atol=near, rtol=0
            )


@each_of_a_batch
def test_slow_loop_over_a_batch(row):
    logits, observed = batch(6, 5)
    observed[:, 3] = observed[:, 3].clamp(max=0)  # a class without an observed positive
    for y in (observed, observed.clamp(min=0), torch.ones(6, 5), torch.zeros(6, 5)):
        p = torch.sigmoid(logits)
        expected = row.paper(p.tolist(), y.tolist(), **row.params)
        assert row(logits, y).item() == pytest.approx(expected, rel=1e-10, abs=1e-12)


@each_row
def test_slow_loop_from_the_paper(row):
    logits, observed = batch(6, 5)
    more = {"weight": 0.0} if row.name == "epr" else {}
    loss = row(logits, observed, reduction="none", **more)
    for n, c in torch.cartesian_prod(torch.arange(6), torch.arange(5)):
        p = 1 / (1 + math.exp(-logits[n, c].item()))
        expected = row.paper(p, observed[n, c].item(), 5, **row.params)
        assert loss[n, c].item() == pytest.approx(expected, rel=1e-10, abs=1e-12)


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


@pytest.mark.parametrize("loss, params", [("em", {"alpha": 1.0}), ("hill", {"lam": 1.5})])
def test_gr_equations_31_and_33(loss, params):
    z = torch.linspace(-8, 8, 65, dtype=torch.float64)[:, None]
    _, grad = value_and_grad(getattr(losses, loss), z, torch.zeros_like(z), reduction="sum", **params)
    p = torch.sigmoid(z)
    expected = torch.log(p / (1 - p)) * p * (1 - p) if loss == "em" else 3 * p**2 * (1 - p) ** 2
    torch.testing.assert_close(grad, expected, rtol=1e-6, atol=1e-9)


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
    ("dw is wan", "dw", {"weight": 0.3}, "wan", {"weight": 0.3}),
    ("iun is wan without negatives", "iun", {}, "wan", {"weight": 0.0}),
    ("an_ls 0 is an", "an_ls", {"smoothing": 0.0}, "an", {}),
    ("n_ls 0 is an", "n_ls", {"smoothing": 0.0}, "an", {}),
    ("focal 0 is bce", "focal", {"gamma": 0.0}, "bce", {}),
    ("asl 0 0 0 is bce", "asl", {"gamma_pos": 0.0, "gamma_neg": 0.0, "margin": 0.0}, "bce", {}),
    ("asl with equal gammas is focal", "asl", {"gamma_pos": 2.0, "gamma_neg": 2.0}, "focal", {}),
    ("asl with hardly a margin is asl", "asl", {"margin": 1e-12}, "asl", {}),
    ("asl_ps is asl with margin", "asl_ps", {}, "asl", {"margin": 0.05}),
    ("focal margin of equal gammas", "focal_margin", {"gamma_neg": 2.0}, "focal_margin", {}),
    ("focal margin 0 is focal", "focal_margin", {"margin": 0.0}, "focal", {}),
    ("splc tau 1 is bce", "splc", {"tau": 1.0}, "bce", {}),
    ("splc tau 1 is focal", "splc", {"tau": 1.0, "base": "focal"}, "focal", {}),
    ("splc tau 1 is asl", "splc", {"tau": 1.0, "base": "asl"}, "asl", {}),
    ("splc tau 1 is focal margin", "splc", {"tau": 1.0, "base": "focal_margin"}, "focal_margin", {}),
    ("fm_splc tau 1 is focal margin", "fm_splc", {"tau": 1.0}, "focal_margin", {}),
    ("fm_splc tau 1 with hill is hill", "fm_splc", {"tau": 1.0, "negative": "hill"}, "hill", {}),
    ("uncorrected splc is its base", "splc", {"tau": 0.1, "correct": False}, "bce", {}),
    ("fm_splc of Eq. 10", "fm_splc", {"shift_corrected": True}, "splc", {"base": "focal_margin"}),
    ("ent_min is em turned round", "ent_min", {"alpha": 0.0}, "em", {"alpha": 0.0}),
    ("epr without its penalty is iun", "epr", {"expected_positives": 1.0, "weight": 0.0}, "iun", {}),
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


# GR Table 1: each loss is the frame of Eq. 5 with its own k, v and terms.


def falsely(term, **params):
    return lambda z: term(-z, **params)


def truly(term, margin=0.0, **params):
    return lambda z: term(z - margin, **params)


CE = truly(terms.cross_entropy), falsely(terms.cross_entropy)
FM = truly(terms.focal_term, margin=1.0, gamma=2.0)


def above(tau, yes, no):
    return lambda p: torch.where(p > tau, yes, no)


def robust(q1, q2, q3):
    return truly(terms.robust_term, q=q1), truly(terms.robust_term, q=q2), falsely(terms.robust_term, q=q3)


UNIFIED = [  # name, parameters, then k, v, L1, L2, L3
    ("an", {}, 0, 1, CE[0], None, CE[1]),
    ("iun", {}, 0, 0, *CE, CE[1]),
    ("wan", {}, 0, 1 / 4, CE[0], None, CE[1]),
    ("em", {"alpha": 0.3}, 1, 0.3, CE[0], terms.negative_entropy, CE[1]),
    ("ent_min", {"alpha": 0.3}, 1, -0.3, CE[0], terms.negative_entropy, CE[1]),
    ("an_ls", {"smoothing": 0.0}, 0, 1, CE[0], CE[0], CE[1]),
    ("n_ls", {"smoothing": 0.2}, 0.2, 1, CE[0], *CE),
    ("focal", {}, 0, 1, truly(terms.focal_term, gamma=2), None, falsely(terms.focal_term, gamma=2)),
    ("mse", {}, 0, 1, CE[0], None, terms.squared_error),
    ("hill", {}, 0, 1, FM, None, terms.hill_term),  # Table 1 prints -log p for L1
    ("splc", {}, above(0.6, 1.0, 0.0), 1, CE[0], *CE),
    ("fm_splc", {"negative": "hill", "shift_corrected": True}, above(0.6, 1.0, 0.0), 1, FM, FM, terms.hill_term),
    (  # what the authors released: Table 1 simplifies its second and third term
        "fm_splc", {}, above(0.6, 1.0, 0.0), 1,
        FM, truly(terms.focal_term, gamma=2), falsely(terms.focal_term, gamma=2),
    ),
    (
        "gr", GR_VOC,
        lambda p: torch.sigmoid(2.0 * p - 2.0), lambda p: torch.exp(-((p - 0.8) ** 2) / (2 * 0.5**2)),
        *robust(0.01, 0.01, 1.0),
    ),
    (
        "gr", GR_STEEP,
        lambda p: torch.sigmoid(10.0 * p - 8.0), lambda p: torch.exp(-((p - 0.8) ** 2) / (2 * 0.5**2)),
        *robust(0.0, 0.5, 0.7),
    ),
]  # fmt: skip


@pytest.mark.parametrize("name, params, k, v, l1, l2, l3", UNIFIED)
def test_a_loss_is_an_instance_of_the_frame(name, params, k, v, l1, l2, l3):
    logits, observed = batch(6, 5)
    for got, expected in zip(
        value_and_grad(losses.unified, logits, observed, k_hat=k, v=v, l1=l1, l2=l2, l3=l3, reduction="none"),
        value_and_grad(getattr(losses, name), logits, observed, **params, reduction="none"),
        strict=True,
    ):
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)


def test_hill_of_table_1_has_plain_positives():
    logits, observed = batch(6, 5)
    table = losses.unified(logits, observed, 0, 1, CE[0], None, terms.hill_term, reduction="none")
    direct, bce = (f(logits, observed, reduction="none") for f in (losses.hill, losses.bce))
    torch.testing.assert_close(table, torch.where(observed > 0, bce, direct))
    assert (table - direct)[observed > 0].abs().min() > 1e-3


def test_en_of_table_1():
    """Verelst et al.: an unobserved label counts as negative where p <= tau and not at all elsewhere."""
    logits, observed = batch(6, 5)
    negative = (observed == 0) & (torch.sigmoid(logits) <= 0.4)
    table = losses.unified(logits, observed, 0, above(0.4, 0.0, 1.0), CE[0], *CE, reduction="none")
    expected = losses.iun(logits, torch.where(negative, -1, observed), reduction="none")
    torch.testing.assert_close(table, expected)
    direct = losses.en(logits, observed, negative=negative, reduction="none")
    torch.testing.assert_close(table, direct)


def test_em_apl_of_table_1():
    """EM Eq. 6-8: entropy where p > tau; elsewhere cross-entropy to a recorded soft label, weighted by beta."""
    logits, observed = batch(6, 5)
    soft = torch.where((observed == 0) & (torch.sigmoid(logits) <= 0.4), 0.1, 0.0).double()

    def towards_soft(z):
        return soft * CE[0](z) + (1 - soft) * CE[1](z)

    table = losses.unified(
        logits, observed, above(0.4, 1.0, 0.0), above(0.4, 0.2, 0.7),
        CE[0], terms.negative_entropy, towards_soft, reduction="none",
    )  # fmt: skip
    direct = losses.em_apl(logits, observed, pseudo_negative=soft, alpha=0.2, beta=0.7, reduction="none")
    torch.testing.assert_close(table, direct)


def test_unified_takes_tensors_and_stops_the_gradient_of_p():
    logits, observed = batch(6, 5)
    k = torch.rand(5, dtype=torch.float64)
    for got, expected in zip(
        value_and_grad(losses.unified, logits, observed, k_hat=k, v=0.5, l1=CE[0], l2=CE[0], l3=CE[1]),
        value_and_grad(
            losses.unified,
            logits,
            observed,
            k_hat=lambda p: 0 * p + k,
            v=lambda p: 0.5,
            l1=CE[0],
            l2=CE[0],
            l3=CE[1],
        ),
        strict=True,
    ):
        torch.testing.assert_close(got, expected)
    _, grad = value_and_grad(
        losses.unified, logits, observed, k_hat=0, v=lambda p: p, l1=CE[0], l2=None, l3=CE[1]
    )
    _, unweighted = value_and_grad(losses.an, logits, observed)
    torch.testing.assert_close(grad, torch.where(observed == 0, torch.sigmoid(logits), 1.0) * unweighted)


# What autograd, torch.func and torch.compile make of them.


@each_of_all
def test_gradgradcheck(row):
    logits, observed = batch(3, 4)
    torch.autograd.gradgradcheck(lambda z: row(z, observed, **row.gradcheck), logits.requires_grad_())


@each_loss
def test_function_transforms(row):
    """torch.func: one gradient an image, as influence functions and per-example clipping need it, and a Hessian."""
    logits, observed = batch(6, 5)

    def loss(z, s):
        return row(z, s, reduction="sum", **({"weight": 0.2} if row.name == "wan" else {}))

    if row.name != "epr":  # whose penalty is of a batch
        each = torch.func.vmap(torch.func.grad(loss))(logits, observed)
        torch.testing.assert_close(each, value_and_grad(loss, logits, observed)[1])
    hessian = torch.func.hessian(loss)(logits, observed)
    torch.testing.assert_close(
        hessian, torch.autograd.functional.hessian(lambda z: loss(z, observed), logits)
    )


@each_loss
def test_no_gradient_asked_for(row):
    logits, observed = batch(6, 5)
    value, _ = value_and_grad(row, logits, observed)
    with torch.no_grad():
        assert torch.equal(row(logits.requires_grad_(), observed), value)


compiles = pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile needs a C++ compiler on a CPU")


@pytest.mark.slow
@compiles
def test_compiled():
    """Compiled losses equal eager ones, with gradients, also far out, where the compiler chooses its own arithmetic."""
    one_of_each_kind = ("an", "asl_ps", "em", "fm_splc", "gr", "hill", "lasd")
    rows = [next(r for r in TABLE if r.name == name) for name in one_of_each_kind]
    logits, observed = batch(64, 20, torch.float32)
    logits[0, :5] = torch.tensor([0.0, 1e4, -1e4, 100.0, -100.0])

    def every(z, s):
        return torch.stack([row(z[i], s, reduction="none") for i, row in enumerate(rows)])

    several = logits.expand(len(rows), -1, -1)
    for got, expected in zip(
        value_and_grad(losses.compiled(every), several, observed),
        value_and_grad(every, several, observed),
        strict=True,
    ):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
    assert losses.compiled(losses.gr).__name__ == "gr"


@pytest.mark.slow
@compiles
def test_a_schedule_compiles_twice():
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(losses.gr, backend=counter)
    logits, observed = batch(8, 5, torch.float32)
    method = build("gr", num_classes=5, w=(0.0, 10.0), b=(-2.0, -8.0))
    for epoch in range(1, 11):
        moment = method.at(Step(epoch, 10))
        torch.testing.assert_close(
            compiled(logits, observed, **moment), losses.gr(logits, observed, **moment)
        )
    assert counter.frame_count <= 2  # with these numbers, and with any


LOGITS = torch.cat([torch.linspace(-105, 105, 100_001), torch.tensor([0.0, 1e-30, 1e4, -1e4])]).double()


def log_sigmoid(z):
    """Return the log sigmoid with more digits than float64 has."""
    z = z.numpy().astype(np.longdouble)
    return np.minimum(z, 0) - np.log1p(np.exp(-np.abs(z)))


@pytest.mark.parametrize("dtype, near", [(torch.float32, 2e-7), (torch.float64, 4e-16)])
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=[pytest.mark.slow, compiles])])
def test_the_logarithm_is_exact_to_the_last_bits(dtype, near, compiled):
    function = torch.compile(terms.log_prob, dynamic=False) if compiled else terms.log_prob
    z = LOGITS.to(dtype, copy=True).requires_grad_()
    value = function(z)
    value.sum().backward()
    exact = log_sigmoid(z.detach())
    error = np.abs(value.detach().numpy() - exact) / np.maximum(-exact, torch.finfo(dtype).tiny)
    assert error.max() <= near
    slope = np.exp(log_sigmoid(-z.detach()))
    assert np.abs(z.grad.numpy() - slope).max() <= near
    assert z.grad[z == 0].tolist() == [0.5]  # an untrained network's


@pytest.mark.parametrize("dtype, near", [(torch.float32, 2.5e-7), (torch.float64, 5e-16)])
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=[pytest.mark.slow, compiles])])
def test_the_power_is_exact_to_the_last_bits(dtype, near, compiled):
    function = torch.compile(terms.power_drop, dynamic=False) if compiled else terms.power_drop
    x = -torch.logspace(-8, 2, 100_001, dtype=torch.float64).to(dtype).requires_grad_()
    for q in (0.01, 0.7):
        value = function(x, q)
        (slope,) = torch.autograd.grad(value.sum(), x)
        scaled = (q * x.detach()).numpy().astype(np.longdouble)
        torch.testing.assert_close(
            value.double(), torch.tensor(np.expm1(scaled).astype(float)), rtol=near, atol=0
        )
        torch.testing.assert_close(
            slope.double(), torch.tensor((q * np.exp(scaled)).astype(float)), rtol=1e-5, atol=near
        )


def test_gr_with_trainable_constants():
    """A tensor among w, b, mu, sigma has its own gradient and changes nothing else."""
    logits, observed = batch(6, 5)
    w = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    value, grad = value_and_grad(losses.gr, logits, observed, **{**GR_VOC, "w": w})
    for got, expected in zip(
        (value, grad), value_and_grad(losses.gr, logits, observed, **GR_VOC), strict=True
    ):
        torch.testing.assert_close(got, expected)
    step = 1e-6
    up, down = (losses.gr(logits, observed, **{**GR_VOC, "w": 2.0 + d}) for d in (step, -step))
    assert w.grad.item() == pytest.approx((up - down).item() / (2 * step), rel=1e-6)


# The parts that are not a loss by themselves.


def test_expected_positives_penalty():
    """LASD A.2.2: by hand, three classes and two images with 1.5 and 0.5 predicted positives."""
    half = torch.zeros(2, 3, dtype=torch.float64)
    half[1] = torch.tensor([0.0, -math.inf, -math.inf])
    assert losses.expected_positives_penalty(half, 2.0).item() == pytest.approx(
        ((1.5 + 0.5) / 2 - 2) ** 2 / 9
    )
    logits, observed = batch(6, 5)
    loss = losses.epr(logits, observed, expected_positives=1.5, weight=0.3)
    expected = losses.iun(logits, observed) + 0.3 * losses.expected_positives_penalty(logits, 1.5)
    torch.testing.assert_close(loss, expected)
    losses.epr(logits[:1], observed[:1], expected_positives=1.5)  # a batch of one image


@pytest.mark.parametrize("k", [None, 0, -1.0, 4.5, math.nan])
@pytest.mark.parametrize("through", ["function", "build"])
def test_expected_positives_belong_to_the_data(k, through):
    with pytest.raises(ValueError, match=r"expected_positives must be in \(0, 4\].*estimate"):
        if through == "build":
            build("epr", num_classes=4, expected_positives=k)
        else:
            losses.epr(*batch(), expected_positives=k)


def test_lp_norm():
    parameters = [torch.tensor([[3.0, -4.0]]), torch.tensor(-2.0)]
    assert losses.lp_norm(parameters, 1).item() == 9
    assert losses.lp_norm(iter(parameters), 2).item() == 29
    for bad, match in ((parameters, "1 or 2, got 3"), ([], "no tensors")):
        with pytest.raises(ValueError, match=match):
            losses.lp_norm(bad, 3 if bad else 1)


@pytest.mark.parametrize("name", ["splc", "fm_splc"])
def test_correction_starts_at_its_epoch(name):
    """Hill, "How to determine the certain time": after the first epoch."""
    logits, observed = batch(6, 5)
    off, on = (getattr(losses, name)(logits, observed, correct=c) for c in (False, True))
    assert off != on
    for first, starts in ((2, {"": 2}), (1, {"first_epoch": 1}), (4, {"first_epoch": 4})):
        method = build(name, num_classes=5, **{k: v for k, v in starts.items() if k})
        values = [method(logits, observed, Step(epoch, 5)) for epoch in range(1, 6)]
        assert values == [off] * (first - 1) + [on] * (6 - first)
    with pytest.raises(ValueError, match=r"first_epoch must be a whole number in \[1"):
        build(name, num_classes=5, first_epoch=0)


def test_correction_leaves_verified_negatives_and_takes_no_gradient():
    logits = torch.full((1, 3), 5.0, dtype=torch.float64)
    observed = torch.tensor([[1, 0, -1]])
    _, grad = value_and_grad(losses.splc, logits, observed, reduction="sum")
    p = torch.sigmoid(logits[0, 0])
    torch.testing.assert_close(grad, torch.stack([p - 1, p - 1, p])[None])


def test_asl_margin_discards_easy_negatives():
    logits = torch.logit(torch.tensor([[0.04, 0.051, 0.3]], dtype=torch.float64))
    value, grad = value_and_grad(losses.asl_ps, logits, torch.zeros(1, 3), reduction="none")
    assert value[0, 0] == grad[0, 0] == 0
    assert (value[0, 1:] > 0).all() and (grad[0, 1:] > 0).all()


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


# What `spml methods check` asks of a loss, the wall clock apart.


@each_of_all
@pytest.mark.parametrize("name", [name for name in checks.CHECKS if name != "speed"])
def test_checks(row, name):
    (finding,) = checks.check(row, [name])
    assert finding.passed, finding.found


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
    if row.name == "epr":  # its regulariser sees the batch as a whole
        assert value.isnan().all() and grad.isnan().all()
        return
    where = torch.zeros(5, 4, dtype=torch.bool)
    where[1, 2] = True
    assert torch.equal(value.isnan(), where)
    assert grad[~where].isfinite().all()


# What an entry may depend on.


@each_of_all
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
    """A verified negative is not treated like an unknown label."""
    logits = torch.linspace(-20, 20, 41, dtype=torch.float64)[:, None].expand(-1, 2)
    value, grad = value_and_grad(row, logits, torch.full((41, 2), -1), reduction="none")
    lowest = -math.log1p(row.params.get("log_floor", 0.0))
    margin = row.params.get("margin", 0.05 if row.name == "asl_ps" else 0.0) if "asl" in row.name else 0.0
    pays = torch.sigmoid(logits) > margin  # ASL lets negatives below its margin be
    assert (grad >= 0).all() and (grad[pays] > 0).all() and (value >= lowest).all()
    assert (value.diff(dim=0)[pays[1:]] > 0).all()


@each_row
def test_observed_positive_pushes_up(row):
    logits = torch.linspace(-20, 20, 41, dtype=torch.float64)[:, None].expand(-1, 2)
    params = {"gamma": 0.0} if row.name == "hill" else {}  # Focal margin fades on both sides of its peak
    if row.name == "an_ls":
        logits = logits[logits[:, 0] < 0]  # beyond 1 - smoothing a smoothed label pulls back
    if row.name == "epr":
        params = {"weight": 0.0}
    _, grad = value_and_grad(row, logits, torch.ones(len(logits), 2), **params)
    assert (grad < 0).all()


@each_of_all
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
@pytest.mark.parametrize("label", [1, 0, -1])
def test_batches_of_one_kind_of_label(row, label):
    """All observed, none observed: the same entries as in a mixed batch."""
    if row.name == "epr":
        row = Row("iun", paper_iun, {"log_floor": row.params.get("log_floor", 0.0)})
    logits, observed = batch(6, 4)
    mixed = row(logits, observed, reduction="none")
    value, grad = value_and_grad(row, logits, torch.full((6, 4), label), reduction="none")
    assert value.isfinite().all() and grad.isfinite().all()
    torch.testing.assert_close(value[observed == label], mixed[observed == label])


@each_of_all
def test_memory_layout_changes_nothing(row):
    logits, observed = batch(6, 4)
    strided = torch.stack([logits, -logits], dim=2)[:, :, 0]
    transposed = observed.T.contiguous().T
    assert not strided.is_contiguous() and not transposed.is_contiguous()
    torch.testing.assert_close(row(strided, transposed), row(logits, observed))


# Where it runs.


class Calls(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.add(func.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", methods.names())
def test_autocast(name):
    """CUDA autocast refuses cross-entropy of probabilities; on a CPU, the test looks for the call instead."""
    logits, observed = batch(dtype=torch.bfloat16)
    needs = {n: {"expected_positives": 1.5} for n in ("epr", "en", "role")}
    method = build(name, num_classes=4, num_examples=5, **needs.get(name, {}))
    step = Step(1, 10, torch.arange(5))
    with torch.autocast("cpu", torch.bfloat16), Calls() as calls:
        value, grad = value_and_grad(method, logits, observed, step=step)
    assert value.dtype == torch.float32 and grad.isfinite().all()
    assert "backward" in calls.names
    assert not calls.names & {"binary_cross_entropy", "item", "tolist"}
    torch.testing.assert_close(value, method(logits, observed, step), rtol=1e-6, atol=1e-6)


# Errors name what they found.

INPUTS = [
    ("shape", lambda z, s: (z, s.T), r"\(5, 4\).*\(4, 5\)"),
    ("broadcastable shape", lambda z, s: (z, s[:1]), r"\(5, 4\).*\(1, 4\)"),
    ("other classes", lambda z, s: (z, s[:, :2]), r"\(5, 4\).*\(5, 2\)"),
    ("one image without its axis", lambda z, s: (z[0], s[0]), r"logits must be \(N, C\).*\(4,\)"),
    ("views", lambda z, s: (z[None], s[None]), r"logits must be \(N, C\).*\(1, 5, 4\)"),
    ("device", lambda z, s: (z, s.to("meta")), "cpu.*meta"),
    ("integer logits", lambda z, s: (z.long(), s), "int64"),
    ("labels as an array", lambda z, s: (z, s.numpy()), "observed is a ndarray"),
    ("labels as a list", lambda z, s: (z, s.tolist()), "observed is a list"),
    ("soft labels", lambda z, s: (z, 0.9 * s), "soft labels.*em_apl.*got 0.89"),
    ("NaN in labels", lambda z, s: (z, torch.where(s == 0, math.nan, s.float())), "got nan"),
    ("infinite label", lambda z, s: (z, torch.where(s == 0, math.inf, s.float())), "got inf"),
]


@each_loss
@pytest.mark.parametrize("_, spoil, match", INPUTS, ids=[row[0] for row in INPUTS])
def test_bad_input(row, _, spoil, match):
    with pytest.raises(ValueError, match=match):
        row(*spoil(*batch()))


def test_integer_labels_are_not_looked_at():
    logits, observed = batch()
    with Calls() as calls:
        losses.gr(logits, observed.to(torch.int8), **GR_VOC)
    assert not calls.names & {"equal", "sign", "item", "__bool__"}


SECOND = ("em_apl", "en", "pseudo_label", "role")


@pytest.mark.parametrize("name", SECOND)
def test_labels_of_another_width(name):
    logits, observed = batch()
    inputs = (logits, logits[:, :2], observed) if name == "role" else (logits, observed, observed[:, :2] > 0)
    with pytest.raises(ValueError, match=r"\(5, 4\).*\(5, 2\) differ in shape"):
        getattr(losses, name)(*inputs, **({"expected_positives": 2.0} if name == "role" else {}))


@pytest.mark.parametrize(
    "bad, match",
    [
        ({"w": (0, 2)}, r"w must be a number.*got \(0, 2\).*belongs to the method"),
        ({"sigma": [2.0, 0.5]}, r"sigma must be a number.*belongs to the method"),
        ({"mu": "0.5"}, "mu must be a number"),
        ({"b": None}, "b must be a number"),
        ({"b": torch.zeros(7)}, r"b of shape \(7,\) does not broadcast to the logits \(5, 4\)"),
        ({"q2": (0.1, 0.2)}, "q2 must be a number"),
    ],
)
def test_gr_says_what_its_numbers_are(bad, match):
    with pytest.raises(ValueError, match=match):
        losses.gr(*batch(), **{**GR_VOC, **bad})


def test_consistency_wants_views():
    with pytest.raises(ValueError, match=r"\(views, N, C\), got shape \(5, 4\)"):
        losses.consistency(batch()[0])


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
    ("dw", {"weight": 1.5}),
    ("an_ls", {"smoothing": -0.1}),
    ("n_ls", {"smoothing": 1.1}),
    ("ent_min", {"alpha": -0.1}),
    ("focal", {"gamma": -1.0}),
    ("focal", {"alpha": 1.5}),
    ("asl", {"gamma_pos": -1.0}),
    ("asl", {"gamma_neg": math.inf}),
    ("asl_ps", {"margin": 1.5}),
    ("splc", {"tau": 1.5}),
    ("splc", {"base": "mse"}),
    ("fm_splc", {"tau": -0.1}),
    ("fm_splc", {"margin": -1.0}),
    ("fm_splc", {"negative": "asl"}),
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
