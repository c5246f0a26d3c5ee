"""Methods with a state: what they change and when, what they save, and agreement with the authors' numbers."""

import copy
import importlib
import json
import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from spml_core import losses, methods, metrics
from spml_core.methods import Method, Step, build
from spml_core.runs import Experiment
from spml_core.train import Training, fit
from spml_core.train.augment import augment, stack_views

NEEDED = {"role": {"expected_positives": 2.0}, "en": {"expected_positives": 2.0}}
LARGE_LOSS = ("ll_r", "ll_ct", "ll_cp")
REMEMBERS = ("ll_cp", "em_apl", "en", "pseudo_label", "role")
OWN = (*LARGE_LOSS, "em_apl", "en", "pseudo_label", "role", "l1r", "l2r", "lasd", "gr_trainable")
DESIGN = """bce iun an an_ls n_ls wan dw l1r l2r ent_min focal asl asl_ps epr role ll_r ll_ct ll_cp en em em_apl
    hill splc fm_splc pseudo_label lasd gr gr_trainable"""

every = pytest.mark.parametrize("name", OWN)


def make(name, num_classes=5, num_examples=6, **params):
    return build(name, num_classes, num_examples, **NEEDED.get(name, {}), **params)


def batch(num=6, classes=5, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(num, classes, generator=generator, dtype=torch.float64).to(dtype)
    observed = torch.zeros(num, classes, dtype=torch.int8)
    observed[torch.arange(num), torch.randint(classes, (num,), generator=generator)] = 1
    return logits, observed


def value_and_grad(method, logits, observed, step):
    logits = logits.detach().clone().requires_grad_()
    value = method(logits, observed, step)
    return value, torch.autograd.grad(value, logits)[0]


def epochs(method, logits, observed, last, num_epochs=10, first=1):
    """Run epochs of one batch, which holds the whole training set."""
    for epoch in range(first, last + 1):
        value = method(logits, observed, Step(epoch, num_epochs, torch.arange(len(logits))))
    return value


# --- the registry and the authors' numbers ---


def test_every_name_of_the_design_is_registered():
    assert set(DESIGN.split()) <= set(methods.names())


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("name", [*LARGE_LOSS, "em_apl", "role"])
def test_golden_rows(golden, name, double):
    logits = torch.tensor(golden["logits"], dtype=torch.float64)
    cases = [c for c in golden["cases"] if c["loss"] == name]
    assert cases
    for case in cases:
        method = build(name, num_classes=9, num_examples=6, **case["params"])
        method = method.double() if double else method  # its state in float32 is precise enough, too
        for state in ("pseudo_negative", "estimator"):
            if state in case:
                getattr(method, state).data.copy_(torch.tensor(case[state], dtype=torch.float64))
        step = Step(case["epoch"], case["num_epochs"], torch.arange(6))
        z = logits.clone().requires_grad_()
        value = method(z, torch.tensor(golden["observed"]), step)
        value.backward()
        assert value.item() == pytest.approx(case["value"], abs=1e-9)
        expected = {"grad": z.grad, "estimator_grad": getattr(method, "estimator", z).grad}
        for key, found in expected.items():
            if key in case:
                wanted = torch.tensor(case[key], dtype=torch.float64)
                torch.testing.assert_close(found.double(), wanted, atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    "name, module, function",
    [
        ("ll_cp", "spml_core.methods.large_loss", "count_of"),
        ("em_apl", "spml_core.methods.pseudo", "lowest"),
        ("em_apl", "spml_core.losses.unknown", "soft_cross_entropy"),
        ("role", "spml_core.losses.unknown", "_penalty"),
    ],
)
def test_all_code_that_decides_is_in_the_digest(monkeypatch, name, module, function):
    def other(*args):
        return args

    module = importlib.import_module(module)
    other.__module__ = getattr(module, function).__module__
    before = methods.source_digest(name), methods.source_digest("an")
    monkeypatch.setattr(module, function, other)
    assert methods.source_digest(name) != before[0] and methods.source_digest("an") == before[1]


# --- Large Loss ---


def changed(method, logits, observed, step):
    """Return the entries whose gradient is not that of `an`."""
    _, grad = value_and_grad(method, logits, observed, step)
    _, plain = value_and_grad(build("an", logits.shape[1]), logits, observed, step)
    return (grad - plain).abs() > 1e-6


@pytest.mark.parametrize("name", LARGE_LOSS)
def test_ties_change_exactly_as_many_as_asked(name):
    logits, observed = torch.zeros(4, 5), torch.eye(4, 5)
    step = Step(2, 10, torch.arange(4))
    mask = changed(build(name, 5, 4, delta=0.1), logits, observed, step)
    assert mask.sum() == 2
    assert mask.nonzero().tolist() == [[0, 1], [0, 2]]  # by position
    assert losses.large_losses(logits, observed, k=2).sum() == 2


@pytest.mark.parametrize("name", LARGE_LOSS)
def test_large_loss_at_the_edges(name):
    every = Step(2, 10, torch.arange(2))
    logits = torch.randn(2, 3)
    assert not changed(build(name, 3, 2, delta=0.5), logits, torch.ones(2, 3), every).any()
    observed = torch.tensor([[1, 0, -1], [1, 1, 0]])
    mask = changed(build(name, 3, 2, delta=1.0), logits, observed, every)
    assert torch.equal(mask, observed == 0)  # k = 6 of 2 unobserved labels: clipped
    assert not changed(build(name, 3, 2, delta=1.0), logits, observed, Step(1, 10, torch.arange(2))).any()
    assert not changed(build(name, 3, 2, delta=0.0), logits, observed, every).any()


@pytest.mark.parametrize("epoch, expected", [(1, 0), (2, 3), (3, 6), (4, 9), (11, 30)])
def test_the_rate_grows_with_the_epoch(epoch, expected):
    logits, observed = torch.randn(6, 5, generator=torch.Generator().manual_seed(1)), torch.zeros(6, 5)
    step = Step(epoch, 20, torch.arange(6))
    for name in ("ll_r", "ll_ct"):
        assert changed(build(name, 5, delta=0.1), logits, observed, step).sum() == expected
    found = changed(build("ll_cp", 5, 6, delta=0.1), logits, observed, step).sum()
    assert found == (3 if epoch > 1 else 0)


def test_a_rate_is_a_decimal_number():
    # 3 * 0.1 * 20 is 6.000000000000001 in binary, and its ceiling 7.
    logits = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    assert changed(build("ll_r", 5, delta=0.1), logits, torch.zeros(4, 5), Step(4, 9)).sum() == 6


def test_large_losses_are_the_largest():
    logits, observed = batch(20, 7)
    observed[0, :3] = -1
    found = losses.large_losses(logits, observed, k=9)
    loss = torch.nn.functional.softplus(logits).masked_fill(observed != 0, -1)
    assert set(loss[found].tolist()) == set(loss.flatten().sort(descending=True).values[:9].tolist())
    assert losses.large_losses(torch.full((2, 2), math.nan), torch.zeros(2, 2), k=3).sum() == 0
    with pytest.raises(ValueError, match="k must be a whole number"):
        losses.large_losses(logits, observed, k=-1)


@pytest.mark.parametrize(
    ("k", "rows"), [(1, 5), (7, 5), (20, 5), (34, 5), (35, 5), (1, 99), (20, 99), (43, 99)]
)
def test_large_losses_are_exactly_k(k, rows):
    logits, observed = batch(rows, 7)
    logits = logits.round()  # ties
    logits[1, :3] = torch.tensor([-torch.inf, torch.inf, -torch.inf])
    found = losses.large_losses(logits, observed, k=k)
    assert found.sum() == min(k, ((observed == 0) & (logits > -torch.inf)).sum())
    order = torch.where(observed == 0, logits, -torch.inf).flatten().argsort(descending=True, stable=True)
    assert found.flatten()[order[: found.sum()]].all()
    traced = torch.func.vmap(lambda z, s: losses.large_losses(z, s, k=k))(logits[None], observed[None])[0]
    assert torch.equal(found, traced)


def test_ll_r_ignores_and_ll_ct_corrects():
    logits, observed = torch.tensor([[3.0, -1.0, 0.5]]), torch.tensor([[0, 0, 1]])
    rejected = losses.ll_r(logits, observed, k=1, reduction="none")
    corrected = losses.ll_ct(logits, observed, k=1, reduction="none")
    plain = losses.an(logits, observed, reduction="none")
    assert rejected[0, 0] == 0 and torch.equal(rejected[0, 1:], plain[0, 1:])
    torch.testing.assert_close(corrected[0, 0], torch.nn.functional.softplus(torch.tensor(-3.0)))
    assert torch.equal(corrected[0, 1:], plain[0, 1:])


def test_corrections_are_permanent():
    method = build("ll_cp", 5, 6, delta=0.1)
    logits, observed = batch()
    before = method.corrected.clone()
    for epoch in range(1, 6):
        method(logits, observed, Step(epoch, 10, torch.arange(6)))
        assert method.corrected.sum() == 3 * (epoch - 1)
        assert (before & ~method.corrected).sum() == 0
        before = method.corrected.clone()
    assert not (method.corrected & (observed == 1)).any()
    _, grad = value_and_grad(method, -10 * torch.ones(6, 5), observed, Step(1, 10, torch.arange(6)))
    assert torch.equal(grad < 0, method.corrected | (observed == 1))  # pushed up, however unlikely by now


# --- EM + APL ---


def test_apl_begins_after_the_warm_up_and_grows():
    method = build("em_apl", 5, 20, theta=0.9, warmup=2)
    logits, observed = batch(20, 5, seed=3)
    unobserved = (observed == 0).sum(0)
    counts = []
    for epoch in range(1, 6):
        before = method.pseudo_negative.clone()
        epochs(method, logits, observed, epoch, 5, first=epoch)
        kept = before > 0
        assert torch.equal(method.pseudo_negative[kept], before[kept])
        counts.append((method.pseudo_negative > 0).sum(0))
    expected = [torch.zeros_like(unobserved)] * 2 + [unobserved * 9 * n // 30 for n in (1, 2, 3)]
    assert all(torch.equal(a, b) for a, b in zip(counts, expected, strict=True))
    assert not (method.pseudo_negative > 0)[observed == 1].any()


def test_apl_takes_the_lowest_and_keeps_their_probability():
    method = build("em_apl", 1, 5, theta=0.5, warmup=1)
    logits = torch.tensor([[2.0], [-3.0], [0.0], [-1.0], [-9.0]])
    observed = torch.tensor([[0], [0], [0], [0], [1]])  # the lowest is observed
    epochs(method, logits, observed, 2, 2)
    expected = torch.where(torch.tensor([0, 1, 0, 1, 0])[:, None] == 1, torch.sigmoid(logits), 0)
    torch.testing.assert_close(method.pseudo_negative, expected)


def test_a_training_set_of_one_small_batch_gets_pseudo_labels():
    method = build("em_apl", 3, 3, theta=0.9, warmup=1)  # 0.3 of 2 or 3 labels an epoch: less than one
    epochs(method, *batch(3, 3), 4, 4)
    assert (method.pseudo_negative > 0).sum() >= 3


def test_a_certain_negative_is_not_taken_for_none():
    method = build("em_apl", 2, 3, warmup=1)
    epochs(method, torch.full((3, 2), -1e4), torch.zeros(3, 2), 2, 2)
    assert (method.pseudo_negative > 0).any()


def test_apl_without_room_is_an_error_before_training(tmp_path):
    for warmup, num_epochs in ((5, 5), (7, 5)):
        with pytest.raises(ValueError, match=rf"warmup={warmup} must be below the number of epochs, 5"):
            Experiment(method="em_apl", params={"warmup": warmup}, epochs=num_epochs).resolved()
        with pytest.raises(ValueError, match="warmup"):
            build("em_apl", 5, 6, warmup=warmup)(*batch(), Step(1, num_epochs, torch.arange(6)))
    with pytest.raises(ValueError, match="trains twice"):
        Experiment(method="pseudo_label", epochs=1).resolved()
    assert not list(tmp_path.iterdir())


def test_a_verified_negative_is_pushed_down_whatever_was_recorded():
    observed = torch.tensor([[-1, 0, 1]])
    for name in OWN:
        method = build(name, 3, 1, **NEEDED.get(name, {}))
        _, grad = value_and_grad(
            method, torch.tensor([[0.3, 0.1, 0.2]]), observed, Step(1, 10, torch.tensor([0]))
        )
        assert grad[0, 0] > 0 and grad[0, 2] < 0, name
    method = build("em_apl", 3, 1)
    method.pseudo_negative.fill_(0.9)
    _, grad = value_and_grad(method, torch.zeros(1, 3), observed, Step(1, 10, torch.tensor([0])))
    torch.testing.assert_close(grad[0, 0], torch.tensor(0.5 / 3))


def test_em_apl_written_from_the_equation():
    logits, observed = batch(20, 5)
    observed[:, 0] = -1
    soft = torch.rand(20, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    soft = soft * (soft > 0.5)
    found = losses.em_apl(logits, observed, soft, alpha=0.3, beta=0.7, log_floor=0.01, reduction="none")
    for z, label, s, value in zip(
        logits.flatten(), observed.flatten(), soft.flatten(), found.flatten(), strict=True
    ):
        p = 1 / (1 + math.exp(-z))
        plus, minus = math.log(p + 0.01), math.log(1 - p + 0.01)
        unknown = -0.7 * (s * plus + (1 - s) * minus) if s > 0 else 0.3 * (p * plus + (1 - p) * minus)
        assert value.item() == pytest.approx(float({1: -plus, -1: -minus, 0: unknown}[int(label)]), rel=1e-9)


# --- EN ---


def test_en_takes_the_lowest_but_the_expected_positives():
    method = build("en", 2, 6, expected_positives=2)
    logits = torch.tensor([3.0, 2.0, -1.0, 0.0, -5.0, -2.0])[:, None].repeat(1, 2)
    # Class 0: N_c = 2, so 4 of 6 are negatives, one of them verified. Class 1: N_c = 0, all are.
    observed = torch.tensor([[0, 0], [0, 0], [0, 0], [0, 0], [1, 0], [-1, 0]])
    epochs(method, logits, observed, 1)
    assert method.negative.all()  # the first epoch is `an`
    epochs(method, logits, observed, 2, first=2)
    assert method.negative[:, 0].tolist() == [False, True, True, True, False, False]
    assert method.negative[:, 1].all()
    _, grad = value_and_grad(method, logits, observed, Step(2, 10, torch.arange(6)))
    assert (grad[:, 0] == 0).tolist() == [True, False, False, False, False, False]


def test_en_averages_over_epochs():
    method = build("en", 2, 3, expected_positives=1, decay=0.25)
    first, second = batch(3, 2)[0], batch(3, 2, seed=1)[0]
    observed = torch.zeros(3, 2)
    for epoch, logits in ((1, first), (2, second)):
        epochs(method, logits, observed, epoch, first=epoch)
    expected = 0.25 * first.sigmoid() + 0.75 * second.sigmoid()
    torch.testing.assert_close(method.average.double(), expected, atol=1e-6, rtol=0)


def test_apl_with_hard_labels_chooses_the_same_and_forgets_their_probability():
    logits, observed = batch(20, 5, seed=3)
    soft, hard = (build("em_apl", 5, 20, warmup=1, soft=soft) for soft in (True, False))
    for method in (soft, hard):
        epochs(method, logits, observed, 3, 3)
    assert torch.equal(soft.pseudo_negative > 0, hard.pseudo_negative > 0)
    assert 0 < hard.pseudo_negative.max() < 1e-30  # 0 means none
    certain = torch.where(
        hard.pseudo_negative > 0, -1, observed
    )  # a verified negative weighs 1 instead of beta
    parts = [losses.em(logits, labels, alpha=0.2, reduction="none") for labels in (observed, certain)]
    expected = torch.where(hard.pseudo_negative > 0, 0.02 * parts[1], parts[0]).mean()
    torch.testing.assert_close(hard(logits, observed, Step(3, 3, torch.arange(20))), expected)


def test_apl_with_positives_takes_the_highest_and_no_label_twice():
    method = build("em_apl", 1, 11, theta=0.9, positive=0.1, warmup=1)
    logits = torch.linspace(-3, 3, 11)[:, None]
    observed = torch.zeros(11, 1, dtype=torch.int8)
    observed[10] = 1  # the highest is observed
    epochs(method, logits, observed, 2, 2)
    positive, negative = method.pseudo_positive > 0, method.pseudo_negative > 0
    assert positive.flatten().nonzero().tolist() == [[9]] and not (positive & negative).any()
    assert negative.sum() == 9
    torch.testing.assert_close(method.pseudo_positive[9], torch.sigmoid(logits[9]))
    without = build("em_apl", 1, 11, theta=0.9, warmup=1)
    assert not hasattr(without, "pseudo_positive")


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.9])
def test_en_keeps_known_labels_out_of_the_average(decay):
    method = build("en", 5, 6, expected_positives=2, decay=decay)
    logits, observed = batch()
    observed[0, observed[0] == 0] = -1
    for epoch in range(1, 5):
        epochs(method, logits, observed, epoch, first=epoch)
        known = torch.where(observed > 0, torch.inf, torch.where(observed < 0, -torch.inf, logits.sigmoid()))
        torch.testing.assert_close(method.average.double(), known, atol=1e-6, rtol=0)


# --- pseudo-label ---


@pytest.mark.parametrize("base", ["focal", "asl", "focal_margin"])
def test_pseudo_label_on_another_base(base):
    method = build("pseudo_label", 5, 6, base=base)
    logits, observed = batch()
    epochs(method, logits, observed, 3, 4, first=2)
    found = method(logits, observed, Step(4, 4, torch.arange(6)))
    labels = torch.where(method.pseudo_positive, 1, observed)
    torch.testing.assert_close(found, getattr(losses, base)(logits, labels))
    assert method.pseudo_positive.any()


def test_pseudo_label_labels_once():
    method = build("pseudo_label", 5, 6, tau=0.6)
    logits, observed = batch()
    epochs(method, logits, observed, 2, 4)
    assert not method.pseudo_positive.any() and method.restart_epoch(4) == 3
    epochs(method, logits, observed, 3, 4, first=3)
    expected = (logits.sigmoid() > 0.6) & (observed == 0)
    assert torch.equal(method.pseudo_positive, expected) and expected.any()
    epochs(method, -logits, observed, 4, 4, first=4)
    assert torch.equal(method.pseudo_positive, expected)
    complete = (expected | (observed == 1)).float()
    value = method(logits, observed, Step(4, 4, torch.arange(6)))
    torch.testing.assert_close(value, losses.bce(logits, complete))


@pytest.mark.parametrize("num_epochs", [2, 3, 10])
@pytest.mark.parametrize("first", [0.01, 0.5, 0.99])
def test_both_stages_have_an_epoch(num_epochs, first):
    assert 2 <= build("pseudo_label", 2, 1, first=first).restart_epoch(num_epochs) <= num_epochs


# --- ROLE ---


def test_role_starts_as_the_paper_says():
    torch.manual_seed(0)
    method = build("role", 5, 1000, expected_positives=2)
    observed = batch(1000, 5)[1]
    observed[:, 4] = -1
    method.start(nn.Linear(1, 1), observed)
    estimate = torch.sigmoid(method.estimator.detach())
    torch.testing.assert_close(estimate[observed == 1], torch.full_like(estimate[observed == 1], 0.995))
    torch.testing.assert_close(estimate[observed == -1], torch.full_like(estimate[observed == -1], 0.005))
    free = method.estimator.detach()[observed == 0]
    bound = math.log(0.6 / 0.4)
    assert 0.98 * bound < free.max() < bound and -bound < free.min() < -0.98 * bound
    assert abs(free.mean()) < 0.05
    assert [g["lr"] for g in method.param_groups(0.01)] == [pytest.approx(0.1)]


def test_role_written_from_the_equation():
    method = build("role", 5, 6, expected_positives=2).double()
    logits, observed = batch()
    p, q, k, c = logits.sigmoid(), method.estimator.detach().sigmoid(), 2, 5

    def part(f, y):
        cross = -(y * f.log() + (1 - y) * (1 - f).log())
        return (cross - (observed == 1) * f.log()).mean() + ((f.sum(1).mean() - k) / c) ** 2

    expected = (part(p, q) + part(q, p)) / 2
    found = method(logits, observed, Step(1, 1, torch.arange(6)))
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("k, match", [(None, "estimate"), (0, "0"), (-1, "-1"), (6, "6"), ("2", "'2'")])
@pytest.mark.parametrize("name", ["role", "en"])
def test_expected_positives_is_not_guessed(name, k, match):
    with pytest.raises(ValueError, match=rf"expected_positives must be in \(0, 5\].*{match}"):
        build(name, 5, 6, expected_positives=k)


# --- l1r, l2r ---


@pytest.mark.parametrize("name, power", [("l1r", 1), ("l2r", 2)])
def test_regularisation_is_of_the_models_weights(name, power):
    torch.manual_seed(0)
    model, (logits, observed) = nn.Linear(3, 2), batch()
    model.bias.requires_grad_(False)
    method = build(name, 5, strength=0.5)
    method.start(model, observed)
    value = method(logits, observed, Step(1, 1))
    expected = losses.an(logits, observed) + 0.5 * (model.weight.abs() ** power).sum()
    torch.testing.assert_close(value, expected.double())
    value.backward()
    assert model.weight.grad.abs().min() > 0
    assert not list(method.parameters()) and not method.state_dict()


# --- LASD ---


def test_lasd_is_asl_where_it_should_be():
    logits, observed = batch()
    params = dict(lambda_plus=1.0, lambda_minus=1.0, tau=1.0, gamma_pos=1.0, gamma_neg=4.0)
    torch.testing.assert_close(
        losses.lasd(logits, observed, **params), losses.asl(logits, observed, gamma_pos=1.0, gamma_neg=4.0)
    )
    params = dict(lambda_plus=0.3, lambda_minus=0.25, tau=1.0, gamma_pos=0.0, gamma_neg=0.0)
    torch.testing.assert_close(
        losses.lasd(logits, observed, **params), losses.wan(logits, observed, weight=0.25)
    )


def test_lasd_written_from_the_equation():
    logits, observed = batch(20, 5)
    logits = 3 * logits
    found = losses.lasd(logits, observed, lambda_plus=0.2, lambda_minus=0.1, tau=0.7, reduction="none")
    for z, label, value in zip(logits.flatten(), observed.flatten(), found.flatten(), strict=True):
        p = 1 / (1 + math.exp(-z))
        plus, minus = -math.log(p), -(p**4) * math.log(1 - p)
        expected = plus if label == 1 else 0.2 * plus if p > 0.7 else 0.1 * minus
        assert value.item() == pytest.approx(expected, rel=1e-9)


def test_lambda_minus_is_that_of_the_theorem():
    assert build("lasd", 20, lambda_plus=0.1, expected_positives=1.46).lambda_minus == pytest.approx(
        (1 + 0.1 * 0.46) / (20 - 1.46)
    )
    assert build("lasd", 20).lambda_minus == pytest.approx(1 / 19)
    assert build("lasd", 20, lambda_minus=0.3).lambda_minus == 0.3
    for k in (0.5, 20, 25):
        with pytest.raises(ValueError, match=r"expected_positives must be in \[1, 20\)"):
            build("lasd", 20, expected_positives=k)


def test_consistency_is_over_three_pairs():
    views = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p = views.sigmoid()
    expected = sum(((p[a] - p[b]) ** 2).sum() for a, b in ((0, 1), (0, 2), (1, 2))) / 8
    torch.testing.assert_close(losses.consistency(views), expected)
    observed = torch.eye(4, 2)
    method = build("lasd", 2, alpha=0.5)
    plain = method(views[0], observed, Step(1, 1))
    torch.testing.assert_close(method(views, observed, Step(1, 1)), plain + 0.5 * expected)
    assert method.views == 3 and build("lasd", 2, alpha=0).views == 1
    assert losses.consistency(views[:1]) == 0
    torch.testing.assert_close(losses.consistency(views[:2]), ((p[0] - p[1]) ** 2).mean())


def test_views_are_small_changes():
    def views(batch, seed=0):
        return stack_views(batch, 3, torch.Generator().manual_seed(seed))

    images = torch.zeros(5, 1, 32, 32, dtype=torch.uint8)
    images[:, :, 10:22, 8:14] = 200
    for rows in (images, torch.randn(5, 7)):
        found = views(rows)
        assert found.shape == (15, *rows.shape[1:]) and found.is_floating_point()
        assert torch.equal(found[:5], rows.float())
        assert torch.equal(found, views(rows)) and not torch.equal(found, views(rows, seed=1))
        assert not torch.equal(found[5:10], found[10:])
        correlation = torch.corrcoef(torch.stack([found[5:10].flatten(), found[:5].flatten()]))[0, 1]
        assert 0.6 < correlation < 0.999
    assert stack_views(images, 1, torch.Generator()) is images


def test_a_shift_is_at_most_a_sixteenth():
    images = torch.zeros(200, 1, 32, 32)
    images[:, :, 16, 16] = 1e6  # so bright that the noise does not matter
    found = augment(images, torch.Generator().manual_seed(0)).flatten(1).argmax(1)
    rows, columns = found // 32, found % 32
    for where in (rows, columns):
        assert 13 <= where.min() <= 15 and 17 <= where.max() <= 19


# --- gr_trainable ---


def test_gr_trainable_starts_as_gr_and_learns():
    logits, observed = batch()
    method = build("gr_trainable", 5).double()
    start = losses.gr(logits, observed, w=0.0, b=-2.0, mu=0.5, sigma=2.0)
    value = method(logits, observed, Step(1, 1))
    torch.testing.assert_close(value, start)
    assert method.param_groups(0.1) == []
    optimizer = method.own_optimizer(0.1)
    assert isinstance(optimizer, torch.optim.SGD)
    value.backward()
    optimizer.step()
    assert all((p.grad != 0).all() and p.shape == (5,) for p in method.parameters())
    assert method(logits, observed, Step(1, 1)) < value


def test_gr_trainable_gradient_is_numerically_right():
    logits, observed = batch(3, 5)

    def value(w, b, mu, sigma):
        return losses.gr(logits, observed, w=w, b=b, mu=mu, sigma=sigma)

    starts = [torch.full((5,), v, dtype=torch.float64, requires_grad=True) for v in (1.0, -2.0, 0.5, 0.7)]
    torch.autograd.gradcheck(value, starts)


# --- GR from the prior ---


def test_b0_of_the_prior():
    method = build("gr", 20, b=(-2, -8), b0="prior", expected_positives=1.46)
    share = 0.46 / 19  # false negatives among the 19 unobserved labels of an image
    assert method.at(Step(1, 8))["b"] == pytest.approx(math.log(share / (1 - share)))
    assert build("gr", 20, b0=-3.5).at(Step(1, 8))["b"] == -3.5
    assert build("gr", 20).at(Step(1, 8))["b"] == -2
    assert build("gr", 20, b=(-2, -8), b0=-4, schedule="paper").at(Step(8, 8))["b"] == -8
    for k in (None, 1, 20, "2"):
        with pytest.raises(ValueError, match=r'b0="prior" needs expected_positives in \(1, 20\)'):
            build("gr", 20, b0="prior", expected_positives=k)
    with pytest.raises(ValueError, match="b0 must be a finite number"):
        build("gr", 20, b0="first")


# --- all of them ---


@every
def test_order_of_rows_changes_nothing(name):
    logits, observed = batch()
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    torch.manual_seed(0)
    one = make(name)
    other = copy.deepcopy(one)
    for epoch in range(1, 8):
        a = one(logits, observed, Step(epoch, 7, torch.arange(6)))
        b = other(logits[order], observed[order], Step(epoch, 7, order))
        torch.testing.assert_close(a, b)
    for key, value in one.state_dict().items():
        torch.testing.assert_close(value, other.state_dict()[key], equal_nan=True)


@pytest.mark.parametrize(
    "name", [n for n in OWN if n not in ("role", "gr_trainable")]
)  # which stop gradients
@pytest.mark.parametrize("log_floor", [0.0, 0.1])
def test_gradient_is_numerically_right(name, log_floor):
    floor = {"log_floor": log_floor} if "log_floor" in methods.defaults(name) else {}
    logits, observed = batch()
    observed[0, :2] = torch.tensor([-1, 0])
    method, step = make(name, **floor).double(), Step(6, 10, torch.arange(6))
    epochs(method, logits, observed, 6)

    def value(z):
        return copy.deepcopy(method)(z, observed, step)

    torch.autograd.gradcheck(value, logits.clone().requires_grad_())
    torch.autograd.gradgradcheck(value, logits.clone().requires_grad_())


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_extreme_logits(name, dtype):
    method = make(name)
    logits, observed = batch(dtype=dtype)
    logits = logits.sign() * torch.tensor([1e4, 100, 40, 17, 1]).to(dtype)
    for epoch in (1, 2, 6, 7):
        value, grad = value_and_grad(method, logits, observed, Step(epoch, 10, torch.arange(6)))
        assert value.isfinite() and grad.isfinite().all() and value.dtype == torch.float32
        if parameters := list(method.parameters()):
            value = method(logits, observed, Step(epoch, 10, torch.arange(6)))
            assert all(g.isfinite().all() for g in torch.autograd.grad(value, parameters))


@every
@pytest.mark.parametrize("shape", [(1, 5), (4, 1), (1, 1), (6, 5)])
@pytest.mark.parametrize("label", [1, 0, -1])
def test_all_rows_alike(name, shape, label):
    """All observed, none observed, all negative; one image, one class."""
    if shape[1] == 1 and name == "lasd":
        with pytest.raises(ValueError, match="expected_positives must be in"):
            build("lasd", 1)
        params = {"lambda_minus": 0.5}
    else:
        params = {"expected_positives": 1.0} if name in NEEDED else {}
    method = build(name, shape[1], shape[0], **params)
    logits, observed = batch(*shape)[0], torch.full(shape, label)
    for epoch in range(1, 8):
        value, grad = value_and_grad(method, logits, observed, Step(epoch, 7, torch.arange(shape[0])))
        assert value.isfinite() and grad.isfinite().all()
    if name != "role":  # which holds the number of positives to k, whatever was observed
        assert (grad * label <= 0).all() and (label == 0 or (grad != 0).all())


@every
def test_meta_device(name):
    method = make(name).to("meta")
    logits = torch.empty(6, 5, device="meta", requires_grad=True)
    observed = torch.empty(6, 5, dtype=torch.int8, device="meta")
    for epoch in (1, 2, 6):
        value = method(logits, observed, Step(epoch, 10, torch.empty(6, dtype=torch.long, device="meta")))
        value.backward()
    assert logits.grad.shape == (6, 5)


@every
def test_autocast(name):
    model, method = nn.Linear(4, 5), make(name)
    method.start(model, batch()[1])
    for epoch in (1, 2, 6):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(torch.randn(6, 4))
            value = method(logits, batch()[1], Step(epoch, 10, torch.arange(6)))
        assert logits.dtype == torch.bfloat16 and value.dtype == torch.float32
        value.backward()
    assert model.weight.grad.isfinite().all()


@every
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.float16, torch.float32])
def test_label_type_changes_nothing(name, dtype):
    logits, observed = batch()
    torch.manual_seed(0)
    one = make(name)
    other = copy.deepcopy(one)
    for epoch in (1, 2, 6):
        step = Step(epoch, 10, torch.arange(6))
        torch.testing.assert_close(one(logits, observed, step), other(logits, observed.to(dtype), step))


@pytest.mark.parametrize("name", REMEMBERS)
def test_state_moves_with_the_state_dict(name):
    logits, observed = batch(6, 5)
    torch.manual_seed(0)
    straight = make(name)
    stopped = copy.deepcopy(straight)
    epochs(straight, logits, observed, 8, 8)
    epochs(stopped, logits, observed, 5, 8)
    resumed = make(name)
    resumed.load_state_dict(stopped.state_dict())
    epochs(resumed, logits, observed, 8, 8, first=6)
    one, other = (method(logits, observed, Step(8, 8, torch.arange(6))) for method in (straight, resumed))
    assert torch.equal(one, other)
    for key, tensor in straight.state_dict().items():
        torch.testing.assert_close(tensor, resumed.state_dict()[key], equal_nan=True, atol=0, rtol=0)


@pytest.mark.parametrize("name", REMEMBERS)
def test_missing_index_or_size_is_an_error(name):
    logits, observed = batch()
    with pytest.raises(ValueError, match=f"method '{name}' keeps something .* give num_examples"):
        build(name, 5, **NEEDED.get(name, {}))
    for index in (None, torch.arange(3)):
        with pytest.raises(ValueError, match=r"give Step\(index=...\)"):
            make(name)(logits, observed, Step(2, 10, index))


@pytest.mark.parametrize(
    "index, fault",
    [
        (torch.tensor([0, 1, 2, 3, 4, 6]), "rows 0 to 6, of a method built for num_examples=6"),
        (torch.tensor([0, 1, 2, 3, 4, -1]), "rows -1 to 4"),
        (torch.arange(6.0), "numbers of type torch.float32"),
        (torch.arange(6) > 2, "numbers of type torch.bool"),
        (torch.arange(6)[:, None], r"\(6, 1\) for 6 images"),
        (list(range(6)), "a list, no tensor"),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", REMEMBERS)
def test_a_wrong_index_is_an_error(name, index, fault):
    logits, observed = batch()
    method = make(name)
    before = copy.deepcopy(method.state_dict())
    with pytest.raises(ValueError, match=rf"method '{name}' finds its state by index.*got {fault}"):
        method(logits, observed, Step(2, 10, index))
    for key, value in method.state_dict().items():
        torch.testing.assert_close(value, before[key], equal_nan=True)


@pytest.mark.parametrize(
    "name, bad",
    [
        ("ll_r", {"delta": -0.1}),
        ("ll_ct", {"delta": 1.5}),
        ("ll_cp", {"delta": "0.1"}),
        ("em_apl", {"alpha": -1}),
        ("em_apl", {"beta": math.inf}),
        ("em_apl", {"theta": 0}),
        ("em_apl", {"theta": 1.1}),
        ("em_apl", {"warmup": 0}),
        ("em_apl", {"warmup": 1.5}),
        ("em_apl", {"log_floor": 2}),
        ("en", {"decay": 1.0}),
        ("en", {"warmup": 0}),
        ("em_apl", {"soft": 1}),
        ("em_apl", {"positive": 1.5}),
        ("pseudo_label", {"base": "mse"}),
        ("pseudo_label", {"base": "focal", "log_floor": 1e-5}),
        ("pseudo_label", {"tau": 1}),
        ("pseudo_label", {"first": 0}),
        ("role", {"lr_factor": 0}),
        ("l1r", {"strength": -1}),
        ("l2r", {"strength": math.nan}),
        ("lasd", {"tau": 2}),
        ("lasd", {"lambda_plus": -1}),
        ("lasd", {"lambda_minus": -1}),
        ("lasd", {"gamma_neg": -1}),
        ("lasd", {"alpha": None}),
        ("gr_trainable", {"sigma": 0}),
        ("gr_trainable", {"w": math.inf}),
        ("gr_trainable", {"q2": -1}),
    ],
)
def test_hyperparameter_out_of_range(name, bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        make(name, **bad)


@every
def test_hyperparameters_are_json(name):
    method = make(name)
    assert json.loads(json.dumps(method.hyperparameters)).keys() == methods.defaults(name).keys()


# --- in the trainer ---


class Log(Method):
    """Wraps a method; writes down which labels it changes, epoch by epoch."""

    def __init__(self, inner, attribute):
        super().__init__(inner.num_classes, inner.num_examples)
        self.inner, self.attribute, self.events = inner, attribute, {}

    def forward(self, logits, observed, step):
        value = self.inner(logits, observed, step)
        self.events.setdefault(step.epoch, []).append(int((getattr(self.inner, self.attribute) > 0).sum()))
        return value


@pytest.fixture
def rows():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(12, 6, generator=generator)
    return inputs, batch(12, 4)[1]


def train(rows, method, epochs=3, **options):
    torch.manual_seed(0)
    model = nn.Linear(6, 4)
    config = Training(accelerator="cpu", **{"epochs": epochs, "batch_size": 4, "lr": 0.05, **options})
    full = (rows[1] == 1).numpy().astype("int8")
    return fit(model, method, rows, (rows[0], full), config, progress=False)


@pytest.mark.parametrize(
    "name, params, attribute, expected",
    [
        ("ll_cp", {"delta": 0.1}, "corrected", {1: [0, 0, 0], 2: [2, 4, 6], 3: [8, 10, 12]}),
        ("em_apl", {"warmup": 1, "theta": 0.5}, "pseudo_negative", {1: [0] * 3, 2: [8] * 3, 3: [17] * 3}),
    ],
)
def test_event_log(rows, name, params, attribute, expected):
    log = Log(build(name, 4, 12, **params), attribute)
    train(rows, log)
    if name == "em_apl":  # by class: a quarter, then a half of the unobserved labels, rounded down
        unobserved = (rows[1] == 0).sum(0)
        expected = {1: [0] * 3, 2: [int((unobserved // 4).sum())] * 3, 3: [int((unobserved // 2).sum())] * 3}
    assert log.events == expected


def test_event_log_of_pseudo_label(rows):
    inner = build("pseudo_label", 4, 12, first=0.34, tau=0.3)
    log = Log(inner, "pseudo_positive")
    train(rows, log)
    assert log.events[1] == [0] * 3 and log.events[2] == log.events[3] and log.events[2][0] > 0


def test_stage_two_begins_at_the_initial_weights(rows):
    seen = []

    class Watch(type(build("pseudo_label", 4, 12))):
        def start(self, model, observed):
            self.model = (model,)

        def forward(self, logits, observed, step):
            seen.append((step.epoch, self.model[0].weight.detach().clone()))
            return super().forward(logits, observed, step)

    result = train(rows, Watch(4, 12), epochs=4, stop_drop=0.0)
    first = {epoch: next(w for e, w in seen if e == epoch) for epoch in (1, 2, 3)}
    assert torch.equal(first[1], first[3]) and not torch.equal(first[1], first[2])
    assert result.best_epoch >= 3


def test_estimates_learn_ten_times_as_fast(rows):
    torch.manual_seed(1)
    method = build("role", 4, 12, expected_positives=2)
    observed, free = rows[1] == 1, method.estimator.detach().clone()
    train(rows, method, epochs=1, batch_size=12, lr=0.01)
    moved = (method.estimator.detach() - free).abs()[~observed]
    torch.testing.assert_close(
        moved, torch.full_like(moved, 0.1), atol=1e-3, rtol=0
    )  # Adam's first step is lr


def test_own_optimizer_is_stepped(rows):
    method = build("gr_trainable", 4)
    train(rows, method, epochs=1)
    assert (method.b != -2).all() and (method.w != 0).all()


def test_three_views_reach_the_method(rows):
    shapes = []

    class Spy(type(build("lasd", 4))):
        def forward(self, logits, observed, step):
            shapes.append((tuple(logits.shape), tuple(observed.shape)))
            return super().forward(logits, observed, step)

    spies = Spy(4), Spy(4)
    shapes.clear()  # what the constructors tried
    one, two = (train(rows, spy, batch_size=5) for spy in spies)
    assert shapes[:3] == [((3, 5, 4), (5, 4)), ((3, 5, 4), (5, 4)), ((3, 2, 4), (2, 4))]
    assert torch.equal(one.model.weight, two.model.weight)


@every
def test_same_seed_same_state(rows, name):
    results = []
    for _ in range(2):
        torch.manual_seed(3)
        results.append(train(rows, make(name, 4, 12), epochs=6))
    one, two = results
    assert torch.equal(one.model.weight, two.model.weight)
    for key, value in one.method.state_dict().items():
        torch.testing.assert_close(value, two.method.state_dict()[key], equal_nan=True, atol=0, rtol=0)


def test_the_state_is_that_of_the_best_epoch(rows, monkeypatch):
    scores = iter([0.1, 0.2, 0.9, 0.3])
    monkeypatch.setattr(metrics, "average_precision", lambda *a: SimpleNamespace(mean=next(scores)))
    result = train(rows, build("ll_cp", 4, 12, delta=0.1))
    assert result.best_epoch == 2 and result.method.corrected.sum() == 6
