"""The wording of reports."""

import pytest

from spml_core import words


@pytest.mark.parametrize(
    "number, noun, text",
    [
        (0, "image", "0 images"),
        (1, "image", "1 image"),
        (2000, "image", "2,000 images"),
        (1, "class", "1 class"),
        (2, "class", "2 classes"),
        (2, "copy", "2 copies"),
        (2, "day", "2 days"),
        (2, "epoch", "2 epochs"),
        (2, "batch", "2 batches"),
        (3, "image file", "3 image files"),
    ],
)
def test_numbers_and_nouns_agree(number, noun, text):
    assert words.count(number, noun) == text


def test_the_verb_agrees_with_what_is_counted():
    assert words.some(1, 28, "image") == "1 of 28 images is"
    assert words.some(2, 28, "image", "has", "have") == "2 of 28 images have"
    assert words.some(1, 1, "image") == "1 of 1 image is"


def test_long_lists_say_how_many_more():
    assert words.listed(list("abcde")) == "a, b, c, d, e"
    assert words.listed(list("abcdefg")) == "a, b, c, d, e and 2 more"


@pytest.mark.parametrize(
    "name, near",
    [("GR", ["gr"]), ("Fm-SPLC", ["fm_splc"]), ("hil", ["hill"]), ("zzz", [])],
)
def test_the_name_that_is_meant(name, near):
    assert words.nearest(name, ["gr", "gr_trainable", "fm_splc", "hill", "an"], 1) == near
    assert words.did_you_mean(name, ["gr", "fm_splc", "hill"], 1) == (
        f"did you mean {near[0]!r}?" if near else ""
    )


@pytest.mark.parametrize(
    "name, near",
    [
        ("learning_rate", ["lr"]),
        ("bs", ["batch_size"]),
        ("size", ["batch_size"]),
        ("seed", ["seeds"]),
        ("zzz", []),
    ],
)
def test_short_and_long_names_are_the_same(name, near):
    assert words.nearest(name, ["lr", "batch_size", "seeds"], 1, 0.6) == near


def test_yaml_with_the_numbers_that_people_write(tmp_path):
    assert words.read_yaml("[1e-4, 1.5E3, -.5e1, 1e, an]") == [1e-4, 1500.0, -5.0, "1e", "an"]
    assert words.read_yaml("{gr: {w: [0, 2]}, x: null}") == {"gr": {"w": [0, 2]}, "x": None}
    file = tmp_path / "a.yaml"
    file.write_text("lr: 1e-3\nmethods: [an\n")
    with pytest.raises(ValueError, match=r"a\.yaml is not YAML, line 3: "):
        words.read_yaml(file)
    file.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ValueError, match=r"a\.yaml is not YAML: "):
        words.read_yaml(file)
