"""The built-in data set: it is as documented, the same everywhere, and has no test scan in training."""

import copy
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from spml_core import analysis
from spml_core.data import DataError, labels, load
from spml_core.data.sets import digits


@pytest.fixture(scope="module")
def data():
    return load("digits")


def fresh(**options):
    """Load the data set anew, not from the cache."""
    digits._make.cache_clear()
    return load("digits", **options)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(digits, "SIZES", {"train": 40, "val": 20, "test": 30})


def test_sizes_types_and_range(data):
    assert {name: len(part) for name, part in data.parts.items()} == {
        "train": 4000,
        "val": 1000,
        "test": 2000,
    }
    assert data.classes == tuple("0123456789")
    for part in data.parts.values():
        assert part.inputs.shape == (len(part), 1, 32, 32) and part.inputs.dtype == torch.uint8
        assert part.full.shape == (len(part), 10) and part.full.dtype == np.int8
        assert part.inputs.min() == 0 and part.inputs.max() == 255
    ids = [name for part in data.parts.values() for name in part.ids]
    assert len(set(ids)) == len(ids) == 7000


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_one_to_three_digits(data, split):
    count = data.parts[split].full.sum(1)
    shares = np.bincount(count, minlength=4) / len(count)
    np.testing.assert_allclose(shares, [0, 0.6, 0.3, 0.1], atol=0.04)
    assert count.mean() == pytest.approx(1.5, abs=0.05)


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_classes_are_balanced(data, split):
    np.testing.assert_allclose(data.parts[split].full.mean(0), 0.15, atol=0.04)


@pytest.mark.parametrize("split", ["train", "val"])
def test_share_of_false_negatives(data, split):
    part = data.parts[split]
    observed = labels.single_positive(part.full, seed=0, protocol="per_image", ids=part.ids)
    assert 0.05 < part.full[observed == 0].mean() < 0.065


def test_ink_is_where_digits_are(data):
    """More digits give more ink; each is in a cell of its own, so a free cell holds only noise."""
    part = data.parts["train"]
    cells = part.inputs[:, 0].float().view(-1, 2, 16, 2, 16).mean((2, 4)).flatten(1)  # (N, 4)
    written = (cells > 30).sum(1).numpy()  # noise alone is 10 of 255 in the mean
    assert (written == part.full.sum(1)).mean() > 0.99


def test_no_image_twice(data):
    pixels = {part.inputs[n].numpy().tobytes() for part in data.parts.values() for n in range(len(part))}
    assert len(pixels) == 7000


def test_no_test_scan_in_training(monkeypatch, small):
    """Training and test scans are disjoint, and an image uses only scans of its own pool."""
    pools, draw = {}, digits._draw

    def spy(rng, scans, digit, pool, *others, **options):
        name, *_ = others
        pools[name] = set(pool.tolist())
        spoiled, same_rng = np.ones_like(scans), copy.deepcopy(rng)
        spoiled[pool] = scans[pool]
        part = draw(rng, scans, digit, pool, *others, **options)
        assert torch.equal(draw(same_rng, spoiled, digit, pool, *others, **options).inputs, part.inputs)
        return part

    monkeypatch.setattr(digits, "_draw", spy)
    fresh()
    assert set(pools) == {"train", "val", "test"}
    assert not pools["test"] & (pools["train"] | pools["val"])
    assert len(pools["test"]) == 597 and len(pools["train"] | pools["val"]) == 1200


def test_seed_decides(small):
    one, two, other = fresh(), fresh(seed=0), fresh(seed=1)
    assert one.fingerprint == two.fingerprint != other.fingerprint
    assert torch.equal(one.parts["val"].inputs, two.parts["val"].inputs)
    assert not torch.equal(one.parts["val"].inputs, other.parts["val"].inputs)


def test_global_random_state_is_neither_read_nor_changed(small):
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    one = fresh().fingerprint
    assert np.array_equal(before[0], np.random.get_state()[1])  # noqa: NPY002
    assert torch.equal(before[1], torch.get_rng_state())
    np.random.seed(2)  # noqa: NPY002
    assert fresh().fingerprint == one


def test_same_in_another_process(data):
    code = "from spml_core.data import load; print(load('digits').fingerprint)"
    environment = os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert other.stdout.strip() == data.fingerprint, other.stderr


@pytest.mark.parametrize(
    "name, options, texts",
    [
        ("digit", {}, ["'digit'", "did you mean 'digits'", "folder"]),
        ("coco", {}, ["'coco'", "digits, folder"]),
        ("digits", {"sed": 1}, ["sed", "seed"]),
        ("digits", {"root": "x"}, ["root", "seed"]),
        ("folder", {}, ["root"]),
        ("folder", {"root": "x", "min_image": 2}, ["min_image", "min_images"]),
    ],
)
def test_what_cannot_be_loaded(name, options, texts):
    with pytest.raises(DataError) as error:
        load(name, **options)
    for text in texts:
        assert text in str(error.value)


def test_an_option_may_have_any_name():
    with pytest.raises(DataError, match="no option name"):
        load("digits", **{"name": "x"})


def test_fewer_images():
    small = digits.load(train=30, val=20, test=10)
    assert [len(small.parts[name]) for name in ("train", "val", "test")] == [30, 20, 10]
    with pytest.raises(
        DataError, match="option val of data set 'digits' is 0: Input should be greater than 0"
    ):
        load("digits", val=0)


def test_paired_digits(small):
    """Every image with two digits or more has a pair, and without the option nothing changes."""
    plain, paired = digits.load(), digits.load(paired=1.0)
    assert paired.fingerprint != plain.fingerprint == digits.load(paired=0.0).fingerprint
    for name, part in paired.parts.items():
        pairs = part.full.reshape(-1, 5, 2).all(2).any(1)
        np.testing.assert_array_equal(pairs, part.full.sum(1) > 1)
        np.testing.assert_array_equal(part.full.sum(1), plain.parts[name].full.sum(1))
    with pytest.raises(
        DataError, match=r"option paired of data set 'digits' is 1.5: Input .* less than or equal to 1"
    ):
        load("digits", paired=1.5)


def test_correlation_of_paired_digits():
    full = digits.load(train=2000, val=1, test=1, paired=1.0).parts["train"].full
    phi = analysis.label_correlation(full)
    partners = phi[np.arange(10), np.arange(10) ^ 1]
    np.testing.assert_allclose(partners, 0.45, atol=0.09)
    alone = analysis.label_correlation(digits.load(train=2000, val=1, test=1).parts["train"].full)
    assert analysis.correlation_strength(alone) < 0.1


def test_other_counts(small):
    counts = [0.05, 0.15, 0.6, 0.2]
    full = load("digits", train=3000, counts=counts).parts["train"].full
    np.testing.assert_allclose(np.bincount(full.sum(1), minlength=5) / 3000, [0, *counts], atol=0.03)
    same = [load("digits", **options).parts["test"].inputs for options in ({}, {"counts": [0.6, 0.3, 0.1]})]
    assert (same[0] == same[1]).all()
    assert (load("digits", counts=[0.0, 1.0]).parts["val"].full.sum(1) == 2).all()


@pytest.mark.parametrize("counts", [[], [0.5, 0.4], [0.2] * 5, [1.5, -0.5]])
def test_counts_must_be_probabilities(counts):
    with pytest.raises(DataError, match="must be 1 to 4 probabilities with sum 1"):
        load("digits", counts=counts)


def test_nobodys_changes_reach_the_next_who_asks():
    first = digits.load(train=20, val=5, test=5)
    before = first.parts["train"].inputs.clone(), first.parts["train"].full.copy()
    first.parts["train"].inputs.zero_()
    first.parts["train"].full[:] = 0
    again = digits.load(train=20, val=5, test=5)  # from the first, not made anew
    assert torch.equal(again.parts["train"].inputs, before[0])
    assert np.array_equal(again.parts["train"].full, before[1])
    assert again.fingerprint == first.fingerprint
