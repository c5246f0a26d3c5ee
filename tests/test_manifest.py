"""Manifests, the conventions of others, and experiments that train on either."""

import gzip
import hashlib
from pathlib import Path

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spml_core.data import DataError, labels, manifest

ROOT = Path(__file__).parents[1]
TRACKED = ROOT / "data" / "draws" / "digits-single-positive-seed0.csv"
quick = settings(deadline=None, derandomize=True, max_examples=60)
POS, UNK, NEG = 1, 0, -1


# Manifests.


def test_a_manifest_is_these_bytes(tmp_path):
    file = tmp_path / "m.csv"
    observed = [[POS, NEG, UNK], [UNK, UNK, UNK], [POS, POS, NEG]]
    sha = manifest.write(file, ["a.jpg", "b,1.jpg", "c.jpg"], ["train", "test", "val"], observed, "xyz")
    expected = b'image,split,positive,negative\na.jpg,train,x,y\n"b,1.jpg",test,,\nc.jpg,val,x;y,z\n'
    assert file.read_bytes() == expected and sha == hashlib.sha256(expected).hexdigest()
    found = manifest.read(file, "xyz")
    assert found.ids == ("a.jpg", "b,1.jpg", "c.jpg") and found.splits == ("train", "test", "val")
    assert found.observed.tolist() == observed and sha == manifest.digest(file)


names = st.text(st.characters(codec="utf-8", exclude_characters=";\r\n\0"), min_size=1).filter(
    lambda s: s == s.strip()
)


@quick
@given(
    observed=hnp.arrays(
        np.int8, st.tuples(st.integers(1, 5), st.integers(1, 4)), elements=st.integers(-1, 1)
    ),
    data=st.data(),
)
def test_what_is_written_is_read(tmp_path_factory, observed, data):
    rows, columns = observed.shape
    classes = data.draw(st.lists(names, min_size=columns, max_size=columns, unique=True))
    ids = data.draw(st.lists(names, min_size=rows, max_size=rows, unique=True))
    splits = data.draw(st.lists(st.sampled_from(manifest.SPLITS), min_size=rows, max_size=rows))
    file = tmp_path_factory.mktemp("m") / "m.csv"
    sha = manifest.write(file, ids, splits, observed, classes)
    found = manifest.read(file, classes)
    np.testing.assert_array_equal(found.observed, observed)
    assert (found.ids, found.splits, manifest.digest(file)) == (tuple(ids), tuple(splits), sha)


BAD_WRITES = [
    ({"observed": [[1, 0], [0, 2]]}, "row 1, column 1 holds 2"),
    ({"classes": ["x;y", "z"]}, "'x;y'"),
    ({"classes": ["x", " z"]}, "' z'"),
]


@pytest.mark.parametrize("bad, match", BAD_WRITES)
def test_what_cannot_be_read_back_is_not_written(tmp_path, bad, match):
    good = {
        "ids": ["a", "b"],
        "splits": ["train", "val"],
        "observed": [[1, 0], [0, 1]],
        "classes": ["x", "z"],
    }
    with pytest.raises(DataError, match=match):
        manifest.write(tmp_path / "m.csv", **good | bad)
    assert not list(tmp_path.iterdir())


HEADER = "image,split,positive,negative\n"
BAD_FILES = [
    ("", "nothing"),
    ("image,split,labels\na,train,x\n", "image,split,labels.*Expected a manifest"),
    (HEADER + "a,train,x\n", "line 2: 3 fields instead of 4"),
    (HEADER + "a,train,x,\nb,train,,\na,val,x,\n", "line 4: image a is already in line 2"),
    (HEADER + "a,dev,x,\n", "line 2: unknown split 'dev'"),
    (HEADER + "a,train,x,\nb,train,cat,\n", "line 3: 'cat' is not one of the 2 classes"),
    (HEADER + "a,train,x;y,y\n", "line 2: 'y' is both positive and negative"),
    (b"\xff\xfe\x00", "cannot be read"),
]


@pytest.mark.parametrize("content, match", BAD_FILES)
def test_a_bad_manifest_is_refused_by_line(tmp_path, content, match):
    file = tmp_path / "m.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=match):
        manifest.read(file, ["x", "y"])


def test_no_such_file(tmp_path):
    for read in (
        manifest.read_matrix,
        manifest.read_images,
        manifest.digest,
        lambda file: manifest.read(file, ["x"]),
        lambda file: manifest.read_list(file, 3),
    ):
        with pytest.raises(DataError, match=r"there is no file .*none.npy"):
            read(tmp_path / "none.npy")


def test_rows_are_found_by_image_and_split(tmp_path):
    manifest.write(
        tmp_path / "m.csv", ["a", "b", "c"], ["train", "train", "val"], np.eye(3, dtype=int), "xyz"
    )
    read = manifest.read(tmp_path / "m.csv", "xyz")
    assert read.rows(["b", "a"], "train").tolist() == [[0, 1, 0], [1, 0, 0]]
    with pytest.raises(DataError, match="2 of 3 train images are not in the manifest: d, e"):
        read.rows(["a", "d", "e"], "train")
    with pytest.raises(DataError, match="image c is in split 'train', but the manifest has it in 'val'"):
        read.rows(["a", "c"], "train")


# Conventions: -1, 0 and soft values mean different things in different repositories.


@quick
@given(
    observed=hnp.arrays(
        np.int8, st.tuples(st.integers(1, 5), st.integers(1, 5)), elements=st.integers(-1, 1)
    ),
    convention=st.sampled_from(list(manifest.CONVENTIONS)),
)
def test_each_convention_gives_back_what_it_was_given(observed, convention):
    found, notes = manifest.from_convention(manifest.to_convention(observed, convention), convention)
    np.testing.assert_array_equal(found, observed)
    assert found.dtype == np.int8 and notes == {"convention": convention, "nan": 0, "soft": 0}


def test_what_each_convention_writes():
    row = [[POS, UNK, NEG]]
    assert manifest.to_convention(row, "spml").tolist() == [[1, 0, -1]]
    assert manifest.to_convention(row, "partial").tolist() == [[1, -1, 0]]
    em = manifest.to_convention(row, "em")
    assert em[0, :2].tolist() == [1, 0] and -1e-5 < em[0, 2] < 0  # a soft pseudo-label of nearly 0, never -1
    assert manifest.from_convention(em.astype(np.float64), "em")[0].tolist() == row


def test_minus_one_needs_a_convention():
    for values in ([[1, 0, -1]], [[1.0, 0.0, -0.3]]):
        with pytest.raises(
            DataError, match=r"row 0, column 2 holds -\S+, .*(\n.*)*spml .*\n.*em .*\n.*partial"
        ):
            manifest.from_convention(values)
    observed, notes = manifest.from_convention(np.array([[True, False]]))
    assert observed.tolist() == [[1, 0]] and notes["convention"] == "spml"


def test_soft_pseudo_labels_are_unobserved_and_counted():
    observed, notes = manifest.from_convention([[1, 0, -0.2, -1.0]], "em")
    assert observed.tolist() == [[1, 0, 0, 0]] and notes["soft"] == 2


@pytest.mark.parametrize("convention", manifest.CONVENTIONS)
def test_nan_is_unobserved_only_if_one_says_so(convention):
    values = np.array([[1, 0], [1, np.nan]])
    with pytest.raises(DataError, match=r"1 of 4 labels is NaN, the first in row 1, column 1.*nan='unknown'"):
        manifest.from_convention(values, convention)
    observed, notes = manifest.from_convention(values, convention, nan="unknown")
    assert observed[1].tolist() == [1, 0] and notes["nan"] == 1


BAD_VALUES = [
    ([[1, 2]], "spml", "row 0, column 1 holds 2"),
    ([[1], [0.5]], "partial", "row 1, column 0 holds 0.5"),
    ([[1, -1.5]], "em", "row 0, column 1 holds -1.5"),
    ([[1, 0.5]], "em", "row 0, column 1 holds 0.5"),
    ([[1, 0]], "hill", "unknown convention 'hill'.*(\n.*)*partial"),
    ([1, 0], "spml", r"\(2,\)"),
    ([["a"]], "spml", "<U1"),
]


@pytest.mark.parametrize("values, convention, match", BAD_VALUES)
def test_bad_values(values, convention, match):
    with pytest.raises(DataError, match=match):
        manifest.from_convention(values, convention)
    with pytest.raises(DataError, match="unknown convention 'x'"):
        manifest.to_convention([[1, 0]], "x")


def test_a_published_matrix_is_read_and_its_hash_noted(tmp_path, golden):
    case = golden["single_positive"][0]
    published = np.array(case["observed"]["1,1"], np.float64)  # as Cole et al. save it
    file = tmp_path / "formatted_train_labels_obs.npy"
    np.save(file, published)
    np.save(tmp_path / "formatted_train_images.npy", np.array(["a.jpg", "b.jpg"]))
    observed, notes = manifest.read_matrix(file, "spml")
    np.testing.assert_array_equal(observed, labels.observe(case["labels"], 1, 1, seed=case["seed"]))
    assert notes["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert manifest.read_images(tmp_path / "formatted_train_images.npy") == ["a.jpg", "b.jpg"]
    with pytest.raises(DataError, match=r"labels_obs.npy: row \d+, column \d+ holds -1"):
        manifest.read_matrix(file)
    with pytest.raises(DataError, match="expected a vector of file names"):
        manifest.read_images(file)


def test_a_pickle_is_never_opened(tmp_path):
    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "sprung",))

    file = tmp_path / "x.npy"
    np.save(file, np.array([Trap()], object), allow_pickle=True)
    for read in (lambda f: manifest.read_matrix(f, "spml"), manifest.read_images):
        with pytest.raises(DataError, match="pickle"):
            read(file)
    assert not (tmp_path / "sprung").exists()


def test_label_lists(tmp_path):
    file = tmp_path / "list.csv.gz"
    file.write_bytes(gzip.compress(b"480023,0 2\n50518,\n"))
    ids, found = manifest.read_list(file, 3)
    assert ids == ["480023", "50518"] and found.tolist() == [[1, 0, 1], [0, 0, 0]]
    for line in ("1,0 3", "1", "1,x", "1,-1"):
        file.write_bytes(gzip.compress(f"480023,0\n{line}\n".encode()))
        with pytest.raises(DataError, match=f"line 2: '{line}'"):
            manifest.read_list(file, 3)
    file.write_bytes(b"not gzip")
    with pytest.raises(DataError, match="cannot be read"):
        manifest.read_list(file, 3)
