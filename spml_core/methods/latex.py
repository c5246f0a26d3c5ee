"""The equations of the methods in LaTeX, with the current numbers filled in."""

import re

FOCAL, FOCAL_NEGATIVE = r"-(1-p)^{«gamma»}\,\log p", r"-p^{«gamma»}\,\log(1-p)"
FOCAL_MARGIN = {
    "observed": r"-(1-p_m)^{«gamma»}\,\log p_m",
    "missing": FOCAL_NEGATIVE,
    "p_m": r"\sigma(z - «margin»)",
}
HILL, ENTROPY = r"(«lam» - p)\,p^2", r"(p\,\log p + (1-p)\,\log(1-p))"
LOGISTIC, GAUSSIAN = r"\sigma(«w»\,p + «b»)", r"\exp\left(-\frac{(p - «mu»)^2}{2\cdot «sigma»^2}\right)"
ROBUST, ROBUST_NEGATIVE = r"\frac{1 - p^{«q»}}{«q»}", r"\frac{1 - (1-p)^{«q3»}}{«q3»}"
GR = {  # GR Eq. 5
    "observed": ROBUST.replace("q", "q1"),
    "missing": r"v\,(\hat k\,L_2 + (1-\hat k)\,L_3)",
    r"\hat k": LOGISTIC,
    "v": GAUSSIAN,
    "L_2": ROBUST.replace("q", "q2"),
    "L_3": ROBUST_NEGATIVE,
}
BASES = {  # the base losses of SPLC and pseudo-labels, at their defaults
    "bce": {"observed": r"-\log p", "missing": r"-\log(1-p)"},
    "focal": {"observed": r"-(1-p)^{2}\,\log p", "missing": r"-p^{2}\,\log(1-p)"},
    "focal_margin": {
        "observed": r"-(1-p_m)^{2}\,\log p_m",
        "missing": r"-p^{2}\,\log(1-p)",
        "p_m": r"\sigma(z - 1)",
    },
    "asl": {"observed": r"-\log p", "missing": r"-p^{4}\,\log(1-p)"},
}
# Simplifications once the numbers are known: factors of 1, exponents 0 and 1 of robust terms, signs.
PLAINER = (
    (r"((\([^()]*\)|p_m|p)\^\{0\}|(?<![\d.])1)\\,", ""),
    (r"\\frac\{1 - (p|\(1-p\))\^\{0\}\}\{0\}", r"-\\log \1"),
    (r"\\frac\{(1 - (p|\(1-p\)))\^\{1\}\}\{1\}", r"\1"),
    (r"\+ -", "- "),
    ("- -", "+ "),
)


def number(value: float) -> str:
    """Return a number with four digits, or as a power of ten: TeX would set the e of 1e-05 as a variable."""
    if value == 0 or 1e-4 <= abs(value) < 1e5:
        return f"{value:.4g}"
    digits, exponent = f"{value:.0e}".split("e")
    power = rf"10^{{{int(exponent)}}}"
    return power if digits == "1" else rf"{digits}\cdot {power}"


def fill(texts: dict[str, str], values: dict) -> dict[str, str]:
    """Return equations with numbers in place of «expressions»; a `log_floor` above 0 is added inside logarithms."""
    found = {}
    for what, text in texts.items():
        text = re.sub("«(.*?)»", lambda match: number(eval(match[1], {}, values)), text)
        for pattern, plainer in PLAINER:
            text = re.sub(pattern, plainer, text)
        if floor := values.get("log_floor"):
            text = re.sub(r"\\log ?(?:(p)(?!_)|\((1-p)\))", rf"\\log(\1\2 + {number(floor)})", text)
        found[what] = text
    return found


def equation(missing: str = r"-\log(1-p)", observed: str = r"-\log p", **symbols: str):
    """Return the method `equation` for a class whose texts need only hyperparameters, C and the epoch."""

    def equation(self, step):
        texts = {"observed": observed, "missing": missing} | symbols
        return fill(texts, self.hyperparameters | {"C": self.num_classes, "epoch": step.epoch})

    return equation


def largest(share: str, fate: str):
    """Return the method `equation` for a class that treats a share of the missing labels differently."""
    of = r"\%\ \mathrm{of\ labels,\ missing,\ of\ largest\ loss}"
    return equation(rf"-\log(1-p);\ {fate}\ \mathrm{{for}}\ «100 * {share}»{of}")


def corrected(positive: str, missing: str) -> str:
    """Return the loss of missing labels that count as positive where p > tau."""
    return rf"[p>«tau»]\,({positive}) + [p\leq «tau»]\,({missing})"
