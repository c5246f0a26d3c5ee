"""Draws of observed labels and splits: the published ones, and those that survive a missing image."""

import hashlib

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from spml_core.data import labels
from spml_core.data.labels import PROTOCOLS

quick = settings(deadline=None, derandomize=True, max_examples=60)
protocols = pytest.mark.parametrize("protocol", PROTOCOLS)


@st.composite
def truths(draw, at_least_one=True):
    """(N, C) int8 truth, with a positive in each row if asked for."""
    shape = draw(st.tuples(st.integers(1, 8), st.integers(1, 6)))
    full = draw(hnp.arrays(np.int8, shape, elements=st.integers(0, 1)))
    if at_least_one:
        full[np.arange(shape[0]), draw(hnp.arrays(int, shape[0], elements=st.integers(0, shape[1] - 1)))] = 1
    return full


def some_truth(num_images=50, num_classes=8, seed=0):
    full = np.random.default_rng(seed).random((num_images, num_classes)) < 0.4
    full[:, 0] |= ~full.any(1)
    return full.astype(np.int8)


# As published.


def test_golden_draws(golden):
    for case in golden["single_positive"]:
        for counts, expected in case["observed"].items():
            num_pos, num_neg = map(int, counts.split(","))
            got = labels.observe(case["labels"], num_pos, num_neg, seed=case["seed"])
            np.testing.assert_array_equal(got, expected, err_msg=counts)
        np.testing.assert_array_equal(
            labels.single_positive(case["labels"], seed=case["seed"]), case["observed"]["1,0"]
        )


def test_golden_splits(golden):
    for num_examples, case in golden["split"].items():
        parts = dict(zip(("train", "val"), labels.split(int(num_examples)), strict=True))
        for name, part in parts.items():
            assert len(part) == case[f"{name}_size"]
            assert part[:20].tolist() == case[name][:20]


# Properties of a draw.


@protocols
@quick
@given(full=truths(), seed=st.integers(0, 2**32 - 1))
def test_exactly_one_positive_and_it_is_true(protocol, full, seed):
    before = full.copy()
    observed = labels.single_positive(full, seed=seed, protocol=protocol)
    assert observed.dtype == np.int8 and observed.shape == full.shape
    assert (observed.sum(1) == 1).all() and ((observed == 0) | (observed == 1)).all()
    assert (full[observed == 1] == 1).all()
    np.testing.assert_array_equal(full, before)
    np.testing.assert_array_equal(observed, labels.single_positive(full, seed=seed, protocol=protocol))


@protocols
@quick
@given(full=truths(at_least_one=False), num_pos=st.integers(-1, 4), num_neg=st.integers(-1, 4))
def test_counts(protocol, full, num_pos, num_neg):
    observed = labels.observe(full, num_pos, num_neg, protocol=protocol)
    for value, truth, count in ((1, 1, num_pos), (-1, 0, num_neg)):
        there = (full == truth).sum(1)
        expected = there if count == -1 else np.minimum(count, there)
        np.testing.assert_array_equal((observed == value).sum(1), expected)
        assert (full[observed == value] == truth).all()


@protocols
@pytest.mark.parametrize("dtype", [bool, np.int64, np.uint8, np.float16, np.float64])
def test_type_of_the_truth_changes_nothing(protocol, dtype):
    full = some_truth()
    expected = labels.observe(full, 1, 1, protocol=protocol)
    np.testing.assert_array_equal(labels.observe(full.astype(dtype), 1, 1, protocol=protocol), expected)


@protocols
def test_seeds_differ(protocol):
    full = some_truth()
    draws = [labels.single_positive(full, seed=seed, protocol=protocol) for seed in (1200, 1201)]
    assert (draws[0] != draws[1]).any(1).mean() > 0.3


@protocols
def test_the_global_generator_is_neither_read_nor_moved(protocol):
    state = np.random.get_state()  # noqa: NPY002
    before = hashlib.sha256(repr(state).encode()).digest()
    labels.single_positive(some_truth(), protocol=protocol)
    labels.split(20)
    assert hashlib.sha256(repr(np.random.get_state()).encode()).digest() == before  # noqa: NPY002


# "per_image": one image says nothing about another.


@quick
@given(full=truths(at_least_one=False), data=st.data())
def test_removing_and_shuffling_images_changes_no_other(full, data):
    ids = [f"img{i:03}.jpg" for i in range(len(full))]
    kept = data.draw(st.permutations(range(len(full))))
    kept = kept[: data.draw(st.integers(1, len(full)))]
    for counts in ((1, 0), (2, 1)):
        whole = labels.observe(full, *counts, protocol="per_image", ids=ids)
        part = labels.observe(full[kept], *counts, protocol="per_image", ids=[ids[i] for i in kept])
        np.testing.assert_array_equal(part, whole[kept])


def test_a_missing_image_changes_later_rows_only_in_the_published_protocol():
    full, kept = some_truth(), np.delete(np.arange(50), 8)
    ids = np.array([f"{i}.jpg" for i in range(50)])
    changed = {
        protocol: (
            labels.single_positive(full, protocol=protocol, ids=ids)[kept]
            != labels.single_positive(full[kept], protocol=protocol, ids=ids[kept])
        ).any(1)
        for protocol in PROTOCOLS
    }
    assert changed["per_image"].sum() == 0
    assert changed["cole2021"][:8].sum() == 0 and changed["cole2021"][8:].sum() > 5


def test_more_positives_keep_those_already_shown():
    """What two positives show includes what one shows: a sweep over the number adds labels and takes none away."""
    full = some_truth()
    one, two, three = (labels.observe(full, k, protocol="per_image") for k in (1, 2, 3))
    assert (one <= two).all() and (two <= three).all()


def test_per_image_draw_is_frozen():
    """Published results hang on these draws: the same on every machine, every version."""
    observed = labels.single_positive(np.ones((6, 5)), seed=7, protocol="per_image", ids=list("abcdef"))
    expected = [
        min(range(5), key=lambda c: hashlib.sha256(f"7\0{name}\0{c}".encode()).digest()) for name in "abcdef"
    ]
    assert observed.argmax(1).tolist() == expected


def test_per_image_draw_is_uniform():
    positives = [0, 2, 3, 5]
    full = np.zeros((3000, 7), np.int8)
    full[:, positives] = 1
    ids = [f"COCO_train2014_{i:012}.jpg" for i in range(3000)]
    one = labels.single_positive(full, protocol="per_image", ids=ids)
    assert chisquare(one.sum(0)[positives]).pvalue > 0.01
    two = labels.observe(full, 2, protocol="per_image", ids=ids)
    _, pairs = np.unique(two, axis=0, return_counts=True)
    assert len(pairs) == 6 and chisquare(pairs).pvalue > 0.01
    other = labels.single_positive(full, seed=1201, protocol="per_image", ids=ids)
    _, both = np.unique(one.argmax(1) * 7 + other.argmax(1), return_counts=True)
    assert len(both) == 16 and chisquare(both).pvalue > 0.01  # two seeds are independent


# Errors name the place.


@protocols
def test_an_image_without_positives_is_named(protocol):
    full = [[1, 0, 0], [0, 1, 1], [0, 0, 0], [0, 0, 1]]
    with pytest.raises(ValueError, match=r"1 of 4 images .*row 2 \(cat\.jpg\)"):
        labels.single_positive(full, protocol=protocol, ids=["a.jpg", "b.jpg", "cat.jpg", "d.jpg"])
    with pytest.raises(ValueError, match=r"row 2[^(]*Drop"):
        labels.single_positive(full, protocol=protocol)
    assert labels.observe(full, protocol=protocol)[2].tolist() == [0, 0, 0]


def test_many_images_without_positives_stay_readable():
    with pytest.raises(ValueError, match="400 of 400") as error:
        labels.single_positive(np.zeros((400, 2)))
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("value", [float("nan"), 2, -1, 0.5])
def test_a_bad_label_is_named(value):
    full = np.ones((4, 3))
    full[2, 1] = value
    for draw in (labels.single_positive, labels.observe):
        with pytest.raises(ValueError, match=rf"row 2, class 1 holds {value}"):
            draw(full)


ARGUMENTS = [
    ({"full": [1, 0]}, r"shape \(2,\)"),
    ({"protocol": "per-image"}, "per-image.*cole2021, per_image"),
    ({"num_pos": -2}, "num_pos=-2"),
    ({"num_neg": -3}, "num_neg=-3"),
    ({"ids": ["a"]}, "1 ids for 2 rows"),
]


@pytest.mark.parametrize("bad, match", ARGUMENTS, ids=[next(iter(row[0])) for row in ARGUMENTS])
def test_bad_arguments(bad, match):
    with pytest.raises(ValueError, match=match):
        labels.observe(**{"full": [[1, 0], [0, 1]], **bad})


# Splits.


@quick
@given(n=st.integers(2, 300), fraction=st.floats(0.05, 0.95), seed=st.integers(0, 2**32 - 1))
def test_a_split_is_a_partition(n, fraction, seed):
    if not 0 < round(n * fraction) < n:
        with pytest.raises(ValueError, match="at least one"):
            labels.split(n, fraction, seed)
        return
    train, val = labels.split(n, fraction, seed)
    assert len(val) == round(n * fraction)
    assert sorted([*train, *val]) == list(range(n))
    assert (np.diff(train) > 0).all() and (np.diff(val) > 0).all()


@pytest.mark.parametrize("n, fraction", [(2, 0.2), (10, 0.0), (10, 1.0), (10, -0.2), (0, 0.2)])
def test_a_split_has_two_sides(n, fraction):
    with pytest.raises(ValueError, match=f"val_fraction={fraction} of {n}"):
        labels.split(n, fraction)


@pytest.mark.parametrize(("n", "val"), [(5717, 1143), (82_081, 16_416), (150_000, 30_000), (5994, 1199)])
def test_a_split_has_the_published_sizes(n, val):
    """Table 5 of GR Loss and of EM+APL; 0.2 x 5994 is 1198.8."""
    assert tuple(map(len, labels.split(n))) == (n - val, val)
