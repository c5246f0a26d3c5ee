"""Landscapes are exact on a quadratic, resumable, leave no trace in the model; a method's loss is frozen in time."""

import copy
import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from spml_core import data, landscape, methods
from spml_core.methods import Step
from spml_core.runs import Experiment, run

STEPS = np.linspace(-1, 1, 9)


class Weights(nn.Module):
    """A model whose logits are its weights."""

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(torch.as_tensor(weight, dtype=torch.float64))

    def forward(self, x):
        return self.weight.reshape(1, -1).expand(len(x), -1)


class Quadratic:
    """(z - centre) H (z - centre) / 2 + 3, for the logits z of the first row."""

    def __init__(self, hessian, centre):
        self.hessian, self.centre = torch.as_tensor(hessian), torch.as_tensor(centre).flatten()

    def __call__(self, logits, rows):
        offset = logits[0] - self.centre
        return offset @ self.hessian @ offset / 2 + 3


def quadratic(shape=(2, 3), seed=0):
    """Return a problem at its minimum, and its Hessian."""
    rng = np.random.default_rng(seed)
    size = int(np.prod(shape))
    root, weight = rng.normal(size=(size, size)), rng.normal(size=shape)
    hessian = root @ root.T / size
    return landscape.Problem(
        Weights(weight), torch.zeros(4, 1), {"loss": Quadratic(hessian, weight)}
    ), hessian


def flat(direction):
    return np.concatenate([d.numpy().ravel() for d in direction.values()])


def network(seed=0):
    torch.manual_seed(seed)
    layers = (
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
    )
    model = nn.Sequential(*layers, nn.Linear(4, 3))
    model(torch.randn(32, 1, 8, 8))  # for the running statistics
    return model


def image_problem(**options):
    torch.manual_seed(1)
    full = (torch.rand(20, 3) < 0.4).float()
    return landscape.Problem(
        network(), torch.randn(20, 1, 8, 8), {"full_bce": landscape.FullBCE(full)}, **options
    )


# Directions.


def test_filters_keep_their_norm_and_vectors_stay():
    model = network()
    direction = landscape.random_direction(model, 0)
    assert list(direction) == ["0.weight", "5.weight"]  # no bias, no batch normalisation
    for name, step in direction.items():
        weight = dict(model.named_parameters())[name].detach()
        torch.testing.assert_close(step.flatten(1).norm(dim=1), weight.flatten(1).norm(dim=1))


def test_one_seed_is_one_noise_for_every_model():
    one, other = (landscape.random_direction(network(s), 7) for s in (0, 1))
    for name in one:
        units = [d[name].flatten(1) / d[name].flatten(1).norm(dim=1, keepdim=True) for d in (one, other)]
        torch.testing.assert_close(*units)
    assert not torch.equal(one["0.weight"], landscape.random_direction(network(), 8)["0.weight"])
    model, before = network(), torch.get_rng_state()
    landscape.random_direction(model, 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_filter_of_zeros_stays_zero():
    model = nn.Linear(3, 2, bias=False)
    nn.init.zeros_(model.weight)
    assert (landscape.random_direction(model, 0)["weight"] == 0).all()
    with pytest.raises(ValueError, match="no weight of two or more axes"):
        landscape.random_direction(nn.BatchNorm1d(3), 0)


def test_a_surface_has_two_directions():
    with pytest.raises(ValueError, match="two directions, got 3"):
        landscape.surface(quadratic()[0], STEPS, directions=(0, 1, 2))


# A quadratic: everything is known.


def test_lines_of_a_quadratic_are_exact():
    problem, hessian = quadratic()
    line = landscape.line(problem, STEPS)
    assert line.values["loss"].shape == (3, 9) and line.betas is None
    for seed, row in enumerate(line.values["loss"]):
        d = flat(landscape.random_direction(problem.model, seed))
        np.testing.assert_allclose(row, 3 + STEPS**2 * (d @ hessian @ d) / 2, rtol=1e-12)
        expected = 2 * np.sqrt(2 * 0.1 / (d @ hessian @ d))
        assert landscape.width(STEPS, row, 0.1) == pytest.approx(expected, rel=1e-9)
        assert landscape.mean_rise(STEPS, row, 0.6) == pytest.approx(0.6**2 * (d @ hessian @ d) / 2)
    table = line.frame()
    assert (
        len(table) == 27
        and table.query("direction == '1'")["loss"].tolist() == line.values["loss"][1].tolist()
    )


def test_surface_of_a_quadratic_is_exact(monkeypatch):
    monkeypatch.setattr(landscape.surfaces, "CHUNK", 7)
    problem, hessian = quadratic()
    surface = landscape.surface(problem, STEPS, (3, 4))
    a, b = (flat(landscape.random_direction(problem.model, seed)) for seed in (3, 4))
    points = STEPS[:, None, None] * a + STEPS[None, :, None] * b
    expected = 3 + np.einsum("abi,ij,abj->ab", points, hessian, points) / 2
    np.testing.assert_allclose(surface.values["loss"], expected, rtol=1e-12)
    row = surface.frame().loc[9 * 2 + 3, ["alpha", "beta", "loss"]].tolist()
    assert row == pytest.approx([STEPS[2], STEPS[3], expected[2, 3]])


def test_curvature_of_a_quadratic_is_exact():
    problem, hessian = quadratic()
    found = landscape.curvature(problem, "loss")
    assert found.top == pytest.approx(np.linalg.eigvalsh(hessian)[-1], rel=1e-10)
    assert found.trace == pytest.approx(np.trace(hessian)) and found.trace_error == 0


def test_curvature_of_many_parameters():
    problem, hessian = quadratic((20, 20))
    found = landscape.curvature(problem, "loss", num_vectors=64, tol=1e-6)
    assert found.top == pytest.approx(np.linalg.eigvalsh(hessian)[-1], rel=1e-5)
    assert abs(found.trace - np.trace(hessian)) < 4 * found.trace_error
    assert 0 < found.trace_error < 0.1 * found.trace
    assert found.trace == landscape.curvature(problem, "loss", num_vectors=64, tol=1e-6).trace
    diagonal = Quadratic(np.diag(np.arange(1.0, 401)), problem.model.weight.detach())
    found = landscape.curvature(landscape.Problem(problem.model, problem.inputs, {"loss": diagonal}), "loss")
    assert (found.top, found.trace) == pytest.approx((400, 400 * 401 / 2), rel=1e-3)
    assert found.trace_error == pytest.approx(0, abs=1e-6)  # sign vectors see a diagonal exactly


# Flatness.


def test_width_needs_a_rise_on_both_sides():
    rise = STEPS**2
    assert landscape.width(STEPS, rise, 0.25) == pytest.approx(1)
    assert np.isnan(landscape.width(STEPS, rise, 1.5))
    assert np.isnan(landscape.width(STEPS, np.where(STEPS > 0, rise, 0), 0.25))
    hole = np.where(STEPS == 0.5, np.nan, rise)
    assert np.isnan(landscape.width(STEPS, hole, 0.5)) and landscape.width(STEPS, hole, 0.05) > 0


def test_mean_rise_with_a_hole():
    rise = STEPS**2
    rise[0] = np.nan  # beyond the radius
    assert landscape.mean_rise(STEPS, rise, 0.5) == pytest.approx(0.25, abs=0.02)
    rise[6] = np.nan
    assert np.isnan(landscape.mean_rise(STEPS, rise, 0.5))


@pytest.mark.parametrize(
    "function, arguments, match",
    [
        ("width", (STEPS + 0.1, STEPS, 0.1), "finite loss at alpha = 0"),
        ("mean_rise", (STEPS, STEPS, 1.1), r"radius must be in \(0, 1\]"),
    ],
)
def test_bad_flatness(function, arguments, match):
    with pytest.raises(ValueError, match=match):
        getattr(landscape, function)(*arguments)


# The model is left as it was.


@pytest.mark.parametrize("batch_norm", ["frozen", "recalibrated"])
def test_weights_are_bit_equal_afterwards(batch_norm):
    problem = image_problem(batch_norm=batch_norm, batch_size=8)
    problem.model.train()
    before = copy.deepcopy(problem.model.state_dict())
    landscape.line(problem, STEPS, (0,))
    landscape.surface(problem, STEPS[::4])
    landscape.curvature(problem, "full_bce")
    assert problem.model.training
    for name, tensor in problem.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_the_centre_is_the_model():
    problem = image_problem(batch_size=8)
    logits = problem.model.eval()(problem.inputs).detach()
    expected = float(problem.losses["full_bce"](logits, torch.arange(20)))
    line = landscape.line(problem, STEPS, (0,))
    assert line.values["full_bce"][0, 4] == pytest.approx(expected, rel=1e-6)
    assert line.meta["centre"]["full_bce"] == pytest.approx(expected, rel=1e-6)
    assert np.ptp(line.values["full_bce"]) > 0.01


def test_recalibrated_batch_norm():
    problem = image_problem(batch_norm="recalibrated")
    found = problem.copy().values()["full_bce"]
    moments = problem.model[0](problem.inputs).detach()
    other = copy.deepcopy(problem.model)
    other[1].running_mean.copy_(moments.mean((0, 2, 3)))
    other[1].running_var.copy_(moments.var((0, 2, 3)))
    by_hand = landscape.Problem(other, problem.inputs, problem.losses).copy().values()["full_bce"]
    assert found == pytest.approx(by_hand, rel=1e-5)
    assert found != pytest.approx(image_problem().copy().values()["full_bce"], rel=1e-3)
    with pytest.raises(ValueError, match=r"unknown batch_norm 'none'.*frozen, recalibrated"):
        image_problem(batch_norm="none")


def test_curvature_of_a_network():
    """Against torch's own Hessian, in two batches of unequal size."""
    problem = image_problem(batch_size=12)
    weights = {name: p.detach() for name, p in problem.model.eval().named_parameters()}
    sizes = [w.numel() for w in weights.values()]

    def loss(vector):
        parts = vector.split(sizes)
        moved = {n: part.view_as(w) for (n, w), part in zip(weights.items(), parts, strict=True)}
        logits = torch.func.functional_call(problem.model, moved, problem.inputs)
        return problem.losses["full_bce"](logits, torch.arange(20))

    vector = torch.cat([w.flatten() for w in weights.values()])
    expected = torch.autograd.functional.hessian(loss, vector)
    found = landscape.curvature(problem, "full_bce")
    assert found.top == pytest.approx(float(torch.linalg.eigvalsh(expected)[-1]), rel=1e-3)
    assert found.trace == pytest.approx(float(expected.trace()), rel=1e-3)


# Holes.


def test_what_is_not_finite_is_a_hole():
    problem, _ = quadratic()
    start = problem.model.weight.detach().flatten()

    def cliff(logits, rows):
        return torch.where(logits[0, 0] > start[0] + 0.3, torch.inf, torch.ones(()))

    problem = landscape.Problem(problem.model, problem.inputs, {"cliff": cliff})
    line = landscape.line(problem, STEPS, (0, 1))
    for seed, values in enumerate(line.values["cliff"]):
        moved = STEPS * float(landscape.random_direction(problem.model, seed)["weight"][0, 0])
        assert np.isnan(values).tolist() == (moved > 0.3).tolist()
    assert np.isnan(line.values["cliff"]).any() and line.frame()["cliff"].dropna().eq(1).all()


# Files.


class Counted(Quadratic):
    """A loss that counts its calls and stops the program at one of them."""

    calls, stop = 0, -1

    def __call__(self, logits, rows):
        type(self).calls += 1
        if type(self).calls == type(self).stop:
            raise KeyboardInterrupt
        return super().__call__(logits, rows)


@pytest.fixture
def counted():
    problem, hessian = quadratic()
    Counted.calls, Counted.stop = 0, -1
    loss = Counted(hessian, problem.model.weight.detach())
    return landscape.Problem(problem.model, problem.inputs, {"loss": loss}, note={"run": "here"})


def test_an_interrupted_surface_goes_on(counted, tmp_path, monkeypatch):
    monkeypatch.setattr(landscape.surfaces, "CHUNK", 10)
    path = tmp_path / "deeper" / "surface.safetensors"
    expected = landscape.surface(counted, STEPS).values["loss"]
    Counted.calls, Counted.stop = 0, 36  # the centre and 35 points
    with pytest.raises(KeyboardInterrupt):
        landscape.surface(counted, STEPS, path=path)
    with pytest.raises(ValueError, match="30 of 81 points are computed"):
        landscape.Landscape.load(path)
    Counted.calls, Counted.stop = 0, -1
    result = landscape.surface(counted, STEPS, path=path)
    assert Counted.calls == 1 + 81 - 30
    np.testing.assert_array_equal(result.values["loss"], expected)
    Counted.calls = 0
    landscape.surface(counted, STEPS, path=path)
    assert Counted.calls == 1  # the centre alone
    loaded = landscape.Landscape.load(path)
    np.testing.assert_array_equal(loaded.values["loss"], expected)
    assert loaded.meta == result.meta and loaded.meta["note"] == {"run": "here"}
    assert loaded.meta["directions"] == [0, 1] and loaded.meta["kind"] == "surface"
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_file_of_something_else_is_refused(counted, tmp_path):
    path = tmp_path / "line.safetensors"
    landscape.line(counted, STEPS, path=path)
    content = path.read_bytes()
    with pytest.raises(ValueError, match="different: alphas"):
        landscape.line(counted, STEPS / 2, path=path)
    other = landscape.Problem(Weights(np.ones((2, 3))), counted.inputs, counted.losses, note=counted.note)
    with pytest.raises(ValueError, match=r"different: losses at the centre.*Delete"):
        landscape.line(other, STEPS, path=path)
    shifted = Counted(counted.losses["loss"].hessian, counted.losses["loss"].centre + 1)
    changed = landscape.Problem(counted.model, counted.inputs, {"loss": shifted}, note=counted.note)
    with pytest.raises(ValueError, match="different: losses at the centre"):
        landscape.line(changed, STEPS, path=path)
    assert path.read_bytes() == content
    landscape.line(counted, STEPS, path=tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == content


# Losses of methods.


def observed_labels(seed=0):
    torch.manual_seed(seed)
    full = (torch.rand(20, 3) < 0.5).float()
    full[:, 0] = 1 - full[:, 1:].amax(1)
    return full, full * (full.cumsum(1) == 1)


@pytest.mark.parametrize("name", methods.names())
def test_a_method_is_frozen(name):
    params = (
        {"expected_positives": 1.5} if methods.defaults(name).get("expected_positives", 0) is None else {}
    )
    params = {} if name == "gr" else params
    method = methods.build(name, 3, 30, **params)
    _, observed = observed_labels()
    index, logits = torch.arange(5, 25), 3 * torch.randn(20, 3)
    for epoch in range(1, 9):  # it has seen something
        for rows in (slice(0, 10), slice(10, 20)):
            with torch.no_grad():
                method(logits[rows], observed[rows], Step(epoch, 10, index[rows]))
    before = copy.deepcopy(method.state_dict())
    loss = landscape.MethodLoss(method, observed, index, 10)
    values = [float(loss(z, torch.arange(20)).detach()) for z in (logits, -logits, logits)]
    assert np.isfinite(values).all() and values[0] == values[2] != values[1]
    for key, value in method.state_dict().items():
        if not key.endswith("extra_state"):
            torch.testing.assert_close(value, before[key], equal_nan=True, rtol=0, atol=0)

    problem = landscape.Problem(nn.Linear(3, 3), torch.randn(20, 3), {"own": loss})
    found = landscape.curvature(problem, "own")
    weights = {n: p.detach() for n, p in problem.model.named_parameters()}

    def at(vector):
        moved = {"weight": vector[:9].view(3, 3), "bias": vector[9:]}
        return loss(torch.func.functional_call(problem.model, moved, problem.inputs), torch.arange(20))

    expected = torch.autograd.functional.hessian(at, torch.cat([w.flatten() for w in weights.values()]))
    assert found.trace == pytest.approx(float(expected.trace()), rel=1e-3, abs=1e-5)


def test_gr_stands_at_the_end_of_its_schedule():
    method = methods.build("gr", 3, 20, schedule="paper")
    _, observed = observed_labels()
    loss, logits = landscape.MethodLoss(method, observed, torch.arange(20), 10), torch.randn(20, 3)
    rows = torch.tensor([3, 7])
    expected = method(logits[rows], observed[rows], Step(10, 10))
    assert loss(logits[rows], rows) == expected != method(logits[rows], observed[rows], Step(5, 10))


def test_full_bce_of_known_labels():
    full, _ = observed_labels()
    logits, rows = torch.randn(4, 3), torch.tensor([2, 3, 5, 7])
    plain = landscape.FullBCE(full)(logits, rows)
    torch.testing.assert_close(plain, binary_cross_entropy_with_logits(logits, full[rows]))
    known = torch.rand(20, 3) < 0.5
    mask = known[rows]
    expected = binary_cross_entropy_with_logits(logits[mask], full[rows][mask])
    torch.testing.assert_close(landscape.FullBCE(full, known)(logits, rows), expected)


# Runs.


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return run(Experiment(method="gr", epochs=1), root=tmp_path_factory.mktemp("runs"), progress=False)


def test_the_problem_of_a_run(trained):
    problem = landscape.of_run(trained, num_images=64)
    assert problem.inputs.shape == (64, 1, 32, 32) and list(problem.losses) == ["own", "full_bce"]
    weights = trained.weights()
    assert all(torch.equal(v, weights[k]) for k, v in problem.model.state_dict().items())
    part = data.load("digits").parts["train"]
    index = np.sort(np.random.default_rng(0).choice(4000, 64, replace=False))
    assert torch.equal(problem.inputs, part.inputs[index])
    with torch.no_grad():
        logits = problem.model(problem.inputs)
    method = methods.build("gr", 10, 4000, **trained.config["params"])
    observed = torch.from_numpy(trained.labels("train").observed[index])
    expected = {
        "own": float(method(logits, observed, Step(1, 1))),
        "full_bce": float(
            binary_cross_entropy_with_logits(logits, torch.from_numpy(part.full[index]).float())
        ),
    }
    assert problem.copy().values() == pytest.approx(expected, rel=1e-5)
    assert problem.note["run"] == trained.path.name
    line = landscape.line(problem, [-0.5, 0, 0.5], (0,))
    assert line.values["full_bce"].min() == line.values["full_bce"][0, 1]  # it was trained to be low here


def test_a_run_whose_data_have_changed(trained, tmp_path):
    copied = type(trained)(tmp_path)
    for file in trained.path.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    summary = trained.summary
    summary["data"]["fingerprint"] = "other"
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(ValueError, match="data set 'digits' has changed"):
        landscape.of_run(copied)
