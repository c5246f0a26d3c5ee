"""One look for each method, the same in every figure; safe for colour-blind readers.

Label, colour and line are attributes of a method's class. Related methods share a colour and differ in line and marker.
Two methods drawn with the same line differ in colour by a CIE distance of at least 10, also for readers without red or
green cones (tests/test_palette.py).
"""

from spml_core.methods import Method, get, names
from spml_core.methods.display import BLUE, ORANGE

POSITIVE, NEGATIVE = BLUE, ORANGE
_MARKERS = {"-": "o", "--": "s", ":": "^", "-.": "D"}


def _shown(method: str) -> type[Method]:
    """Return the class of a registered method; for others, such as a paper's or another notebook's, a plain one."""
    return get(method) if method in names() else Method


def label(method: str) -> str:
    """Return the label of a method in figures and tables; its name if it is not registered."""
    return _shown(method).label or method


def color(method: str) -> str:
    """Return the colour of a method, for matplotlib; grey if it is not registered."""
    return _shown(method).color


def style(method: str, *, marker: bool = False) -> dict:
    """Return label, colour and line of a method for `ax.plot(x, y, **style("gr"))`; with `marker`, its marker too."""
    shown = _shown(method)
    look = {"label": label(method), "color": shown.color, "linestyle": shown.line}
    return look | ({"marker": _MARKERS.get(shown.line, "x")} if marker else {})
