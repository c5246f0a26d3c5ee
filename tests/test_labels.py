"""Draws of observed labels and splits: the published ones, and those that do not depend on other images."""

import hashlib
import itertools

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, chisquare

from spml_core.data import labels, manifest
from spml_core.data.labels import PROTOCOLS

quick = settings(deadline=None, derandomize=True, max_examples=60)
protocols = pytest.mark.parametrize("protocol", PROTOCOLS)


@st.composite
def truths(draw, at_least_one=True):
    """Return (N, C) int8 truth, on request with a positive in each row."""
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


# Missing ratios, biased draws, unknown labels.

KINDS = {
    "one": lambda full, ids, **o: labels.single_positive(full, 3, "per_image", ids, **o),
    "two and a negative": lambda full, ids, **o: labels.observe(full, 2, 1, 3, "per_image", ids, **o),
    "drop": lambda full, ids, **o: labels.drop(full, 0.5, 3, ids=ids, **o),
    "biased": lambda full, ids, **o: labels.biased(full, np.arange(1, full.shape[1] + 1), 1, 3, ids, **o),
}
kinds = pytest.mark.parametrize("draw", KINDS.values(), ids=list(KINDS))


@pytest.mark.parametrize(
    "ratio, expected",
    [  # floor(n (1 - r)) + 1 for n = 0..6, but never more than n
        (0, [0, 1, 2, 3, 4, 5, 6]),
        (0.2, [0, 1, 2, 3, 4, 5, 5]),
        (0.5, [0, 1, 2, 2, 3, 3, 4]),
        (0.8, [0, 1, 1, 1, 1, 2, 2]),  # 5 (1 - 0.8) is one, though 0.9999999999999998 in floating point
        (1, [0, 1, 1, 1, 1, 1, 1]),
    ],
)
@protocols
def test_a_missing_ratio_keeps_what_the_paper_says(protocol, ratio, expected):
    full = np.tril(np.ones((7, 7), np.int8), -1)  # row n has n positives
    dropped = labels.drop(full, ratio, protocol=protocol)
    assert dropped.sum(1).tolist() == expected == labels.num_kept(range(7), ratio).tolist()
    assert (dropped <= full).all() and dropped.dtype == np.int8


@protocols
def test_missing_ratio_one_is_the_single_positive_draw(protocol):
    full = some_truth()
    expected = labels.single_positive(full, 7, protocol)
    np.testing.assert_array_equal(labels.drop(full, 1, 7, protocol), expected)


def test_a_larger_missing_ratio_keeps_part_of_a_smaller_one():
    full = some_truth()
    kept = [labels.drop(full, ratio) for ratio in (0, 0.3, 0.5, 0.8, 1)]
    np.testing.assert_array_equal(kept[0], full)
    for more, fewer in itertools.pairwise(kept):
        assert (fewer <= more).all()


@pytest.mark.parametrize("ratio", [-0.1, 1.1, float("nan"), 75])
def test_a_missing_ratio_is_a_share(ratio):
    with pytest.raises(ValueError, match=f"ratio={ratio}.*between 0 and 1"):
        labels.drop(some_truth(), ratio)


@quick
@given(full=truths(at_least_one=False), num_pos=st.integers(-1, 4), weight=st.floats(1e-3, 1e3))
def test_equal_weights_give_the_unbiased_draw(full, num_pos, weight):
    biased = labels.biased(full, [weight] * full.shape[1], num_pos, seed=5)
    np.testing.assert_array_equal(biased, labels.observe(full, num_pos, seed=5, protocol="per_image"))


def test_a_biased_draw_follows_its_weights():
    weights = np.array([1.0, 9.0, 4.0, 6.0])
    full = np.ones((4000, 4), np.int8)
    full[:, 1] = 0
    first = labels.biased(full, weights)
    expected = 4000 * np.array([1, 4, 6]) / 11
    assert chisquare(first.sum(0)[[0, 2, 3]], expected).pvalue > 0.01 and not first[:, 1].any()
    np.testing.assert_array_equal(first, labels.biased(full, 10 * weights))
    # Two without replacement: P({0, 2}) = 1/11 * 4/10 + 4/11 * 1/7, and so on.
    two = labels.biased(full, weights, 2)
    pairs = {
        (a, b): weights[a] * weights[b] / 11 * (1 / (11 - weights[a]) + 1 / (11 - weights[b]))
        for a, b in ((0, 2), (0, 3), (2, 3))
    }
    counts = [(two[:, a] & two[:, b]).sum() for a, b in pairs]
    assert chisquare(counts, 4000 * np.array(list(pairs.values()))).pvalue > 0.01


def test_presets_of_weights_favour_common_or_rare_classes():
    full = np.ones((600, 3), np.int8)
    full[100:, 1] = 0  # class 1 is rare, class 2 is nowhere
    full[:, 2] = 0
    assert labels.class_weights(full, "frequency").tolist() == [600, 100, 1]
    assert labels.class_weights(full, "inverse_frequency").tolist() == [1 / 600, 1 / 100, 1]
    shown = {name: labels.biased(full, name)[:100, 1].mean() for name in labels.WEIGHTS}
    assert 0.05 < shown["frequency"] < 0.25 and 0.75 < shown["inverse_frequency"] < 0.95


BAD_WEIGHTS = [
    ([1, 2], r"shape \(2,\); expected \(3,\)"),
    ([1, 0, 2], r"weights\[1\] = 0"),
    ([1, 2, float("inf")], r"weights\[2\] = inf"),
    ("common", "'common'.*frequency, inverse_frequency"),
]


@pytest.mark.parametrize("weights, match", BAD_WEIGHTS)
def test_bad_weights(weights, match):
    with pytest.raises(ValueError, match=match):
        labels.biased([[1, 1, 0]], weights)


@kinds
def test_an_unknown_label_is_never_shown(draw):
    full, known = some_truth(400), np.random.default_rng(1).random((400, 8)) < 0.6
    full = full * known
    full[:, 0], known[:, 0] = 1, True
    ids = list(range(400))
    observed = draw(full, ids, known=known)
    assert not observed[~known].any()
    # Its positives are drawn as if the unknown ones were negatives.
    np.testing.assert_array_equal(observed == 1, draw(full, ids) == 1)


@protocols
def test_all_negatives_are_all_known_negatives(protocol):
    full, known = np.array([[1, 0, 0]]), np.array([[True, True, False]])
    assert labels.observe(full, -1, -1, protocol=protocol, known=known).tolist() == [[1, -1, 0]]


BAD_KNOWN = [
    ([[True, False]], "row 0, class 1 is positive in full but not known"),
    ([[True]], r"shape \(1, 1\)"),
    ([[1, 1]], "int64"),
]


@pytest.mark.parametrize("known, match", BAD_KNOWN)
def test_a_bad_mask_is_refused(known, match):
    for draw in (labels.observe, lambda full, known: labels.drop(full, 0.5, known=known)):
        with pytest.raises(ValueError, match=match):
            draw([[1, 1]], known=known)


# "per_image": one image says nothing about another.


@kinds
def test_fifty_images_without_one_and_in_another_order(draw):
    full, ids = some_truth(), np.array([f"COCO_train2014_{n:012}.jpg" for n in range(50)])
    whole = draw(full, ids)
    for lost in range(50):
        kept = np.delete(np.arange(50), lost)
        np.testing.assert_array_equal(draw(full[kept], ids[kept]), whole[kept])
    order = np.random.default_rng(0).permutation(50)
    np.testing.assert_array_equal(draw(full[order], ids[order]), whole[order])


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
    """Two shown positives include the one shown alone: a sweep over the number adds labels and removes none."""
    full = some_truth()
    one, two, three = (labels.observe(full, k, protocol="per_image") for k in (1, 2, 3))
    assert (one <= two).all() and (two <= three).all()


def test_per_image_draw_is_frozen():
    """Published results depend on these draws: they are the same on every machine and in every version."""
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


def test_the_draw_does_not_depend_on_how_many_images_are_ranked_at_once(monkeypatch):
    full = some_truth(200)
    expected = labels.observe(full, 1, 2, protocol="per_image")
    monkeypatch.setattr(labels, "CHUNK", 7)
    np.testing.assert_array_equal(labels.observe(full, 1, 2, protocol="per_image"), expected)


def test_two_positives_and_negatives_are_those_of_the_lowest_hashes():
    full = some_truth(20)
    observed = labels.observe(full, 2, 3, 11, "per_image", ids=[f"i{n}" for n in range(20)])
    for n, truth in enumerate(full):
        for value, count in ((1, 2), (0, 3)):
            ranked = sorted(
                np.flatnonzero(truth == value),
                key=lambda c: hashlib.sha256(f"11\0i{n}\0{c}".encode()).digest(),
            )
            assert np.flatnonzero(observed[n] == (1 if value else -1)).tolist() == sorted(ranked[:count])


# The published COCO lists.

LISTS = {"full": 0, "0.75left": 0.5, "0.4left": 0.8, "singlelabel": 1}  # what is left, and the paper's r


@pytest.fixture(scope="module")
def coco(shared):
    folder = shared / "data" / "coco_labels"
    return {name: manifest.read_list(folder / f"coco2014_train_{name}.csv.gz", 80) for name in LISTS}


def test_coco_lists_have_the_published_numbers(coco):
    """Hill/SPLC Table II, "samples", "labels" and "avg. label/img"."""
    published = {"full": 241_035, "0.75left": 181_422, "0.4left": 96_251, "singlelabel": 82_081}
    means = {"full": 2.94, "0.75left": 2.2, "0.4left": 1.2, "singlelabel": 1.0}
    ids, full = coco["full"]
    assert len(set(ids)) == len(ids) == 82_081
    for name, (its_ids, found) in coco.items():
        assert its_ids == ids and (found <= full).all()
        assert found.sum() == published[name]
        digits = len(str(means[name]).partition(".")[2])
        assert round(found.sum(1).mean(), digits) == means[name]


@protocols
def test_our_draws_of_coco_have_the_same_statistics(coco, protocol):
    ids, full = coco["full"]
    for name, ratio in LISTS.items():
        published, ours = coco[name][1], labels.drop(full, ratio, 0, protocol, ids)
        np.testing.assert_array_equal(ours.sum(1), published.sum(1))  # the same number in every image
        if 0 < ratio < 1:
            assert 0.1 < (ours != published).any(1).mean() < 0.9  # though not the same labels
        # Both draw uniformly: class by class, they are off the expected number by chance only.
        chance = full * (published.sum(1) / full.sum(1))[:, None]
        for kept in (published, ours) if ratio else ():
            squared = (kept.sum(0) - chance.sum(0)) ** 2 / (chance * (1 - chance)).sum(0)
            assert chi2.sf(squared.sum(), 80) > 0.001


# Errors name the place.


@protocols
def test_an_image_without_positives_is_named(protocol):
    full = [[1, 0, 0], [0, 1, 1], [0, 0, 0], [0, 0, 1]]
    with pytest.raises(ValueError, match=r"1 of 4 images .*row 2 \(cat\.jpg\)"):
        labels.single_positive(full, protocol=protocol, ids=["a.jpg", "b.jpg", "cat.jpg", "d.jpg"])
    with pytest.raises(ValueError, match=r"row 2[^(]*Drop"):
        labels.single_positive(full, protocol=protocol)
    assert labels.observe(full, protocol=protocol)[2].tolist() == [0, 0, 0]


def test_an_image_without_positives_is_kept_where_one_says_so():
    full = [[1, 0, 0], [0, 1, 1], [0, 0, 0], [0, 0, 1]]
    for observed in (labels.observe(full), labels.drop(full, 0.5), labels.biased(full, [1, 1, 1])):
        assert observed[2].tolist() == [0, 0, 0]


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
