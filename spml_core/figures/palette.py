"""One look for each method, the same in every figure; safe for colour-blind readers.

Related methods share a colour and differ in line and marker. Two methods drawn with the same line differ in colour by
a CIE distance of at least 10, also for readers without red or green cones (tests/test_palette.py).
"""

import seaborn as sns

_COLORS = [*sns.color_palette("colorblind", 10).as_hex(), "#000000", "#882255"]
POSITIVE, NEGATIVE = _COLORS[0], _COLORS[1]
_MARKERS = {"-": "o", "--": "s", ":": "^", "-.": "D"}

# method: label, colour, line
_LOOKS = {
    "bce": ("BCE (full labels)", 10, "-"),
    "iun": ("IUN", 10, ":"),
    "gr": ("GR", 0, "-"),
    "gr_trainable": ("GR, trainable", 0, "--"),
    "an": ("AN", 3, "-"),
    "an_ls": ("AN-LS", 3, "--"),
    "n_ls": ("N-LS", 3, ":"),
    "dw": ("DW", 3, "-."),
    "wan": ("WAN", 4, "-"),
    "l1r": ("L1R", 4, "--"),
    "l2r": ("L2R", 4, ":"),
    "em": ("EM", 2, "-"),
    "em_apl": ("EM+APL", 2, "--"),
    "ent_min": ("EntMin", 2, ":"),
    "hill": ("Hill", 1, "-"),
    "ll_r": ("LL-R", 1, "--"),
    "ll_ct": ("LL-Ct", 1, ":"),
    "ll_cp": ("LL-Cp", 1, "-."),
    "fm_splc": ("FM+SPLC", 5, "-"),
    "splc": ("SPLC", 5, "--"),
    "pseudo_label": ("Pseudo-label", 5, ":"),
    "focal": ("Focal", 7, "-"),
    "en": ("EN", 7, "--"),
    "asl": ("ASL", 9, "-"),
    "asl_ps": ("ASL, margin", 9, "--"),
    "focal_margin": ("Focal margin", 7, ":"),
    "mse": ("MSE", 6, "-"),
    "role": ("ROLE", 6, "--"),
    "epr": ("EPR", 6, ":"),
    "lasd": ("LASD", 11, "-"),
    "unified": ("Unified frame", 11, "--"),
}
METHOD_LABELS = {method: label for method, (label, _, _) in _LOOKS.items()}
METHOD_COLORS = {method: _COLORS[color] for method, (_, color, _) in _LOOKS.items()}
METHOD_LINES = {method: line for method, (_, _, line) in _LOOKS.items()}
METHOD_MARKERS = {method: _MARKERS[line] for method, line in METHOD_LINES.items()}


def label(method: str) -> str:
    """What figures and tables call a method; the registered name of one without a label."""
    return METHOD_LABELS.get(method, method)


def color(method: str) -> str:
    """The colour of a method, for matplotlib."""
    return METHOD_COLORS.get(method, "0.4")


def style(method: str, *, marker: bool = False) -> dict:
    """Label, colour and line of a method for `ax.plot(x, y, **style("gr"))`; with `marker`, its marker as well.

    A method without a look of its own, one that you have added, is grey under its registered name.
    """
    look = {
        "label": METHOD_LABELS.get(method, method),
        "color": METHOD_COLORS.get(method, "0.4"),
        "linestyle": METHOD_LINES.get(method, "-"),
    }
    return look | ({"marker": METHOD_MARKERS.get(method, "x")} if marker else {})
