"""Methods are distinguishable, also for colour-blind readers."""

from itertools import combinations

import matplotlib as mpl
import numpy as np
import pytest

from spml_core import figures, methods
from spml_core.figures import palette
from spml_core.methods import display, registry

# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB
VISION = {
    "full": np.eye(3),
    "without green cones": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
    ),
    "without red cones": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(color, vision):
    """Return the CIELAB (D65) coordinates of a colour as seen with this colour vision."""
    rgb = np.array(mpl.colors.to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ (VISION[vision] @ linear).clip(0, 1) / TO_XYZ.sum(1)
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_lab_of_known_colours():
    assert lab("white", "full") == pytest.approx([100, 0, 0], abs=0.1)
    assert lab("#ff0000", "full") == pytest.approx([53.2, 80.1, 67.2], abs=0.2)
    red, green = lab("#c04000", "without green cones"), lab("#708000", "without green cones")
    assert np.linalg.norm(red - green) < np.linalg.norm(lab("#c04000", "full") - lab("#708000", "full")) / 3


def test_every_method_has_its_look():
    looks = [(figures.color(name), figures.style(name)["linestyle"]) for name in methods.names()]
    assert len(set(looks)) == len({figures.label(name) for name in methods.names()}) == len(looks)


def test_methods_without_a_look_are_given_one(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    before = {name: figures.style(name) for name in methods.names()}
    for n in range(8):
        methods.register(f"mine{n}")(type(f"Mine{n}", (methods.get("gr"),), {}))
    test_every_method_has_its_look()
    assert before == {name: figures.style(name) for name in before}
    published = {method["color"] for method in before.values()}
    assert not published & {figures.color(f"mine{n}") for n in range(8)}
    look = figures.style("mine3")
    assert look["label"] == "mine3" and figures.color("mine3") == look["color"]
    methods.register("mine3")(type("Mine3", (methods.get("gr"),), {}))  # a cell that runs twice
    assert figures.style("mine3") == look
    _, ax = figures.subplots()
    ax.plot([0, 1], **figures.style("mine3", marker=True))


@pytest.mark.parametrize("vision", VISION)
def test_methods_with_the_same_line_differ_in_colour(vision):
    seen = {name: lab(figures.color(name), vision) for name in methods.names()}
    for one, other in combinations(seen, 2):
        if figures.style(one)["linestyle"] == figures.style(other)["linestyle"]:
            assert np.linalg.norm(seen[one] - seen[other]) >= 10, (one, other)
    for one, other in combinations(display.COLORS + display.NEW_COLORS, 2):
        assert np.linalg.norm(lab(one, vision) - lab(other, vision)) >= 10, (one, other)
    assert np.linalg.norm(lab(palette.POSITIVE, vision) - lab(palette.NEGATIVE, vision)) >= 40


def test_style_is_what_plot_takes():
    _, ax = figures.subplots()
    (line,) = ax.plot([0, 1], **palette.style("em_apl", marker=True))
    assert (line.get_label(), line.get_linestyle(), line.get_marker()) == ("EM+APL", "--", "s")
    (line,) = ax.plot([0, 1], **palette.style("mine"))
    assert (line.get_label(), line.get_color(), line.get_marker()) == ("mine", "0.4", "None")
