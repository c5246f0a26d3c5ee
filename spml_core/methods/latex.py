"""LaTeX of the terms that the equations of the methods share, with numbers in their places."""

from __future__ import annotations


def number(value: float) -> str:
    """Return four digits, without an exponent that TeX would set as a product."""
    if value == 0 or 1e-4 <= abs(value) < 1e5:
        return f"{value:.4g}"
    digits, exponent = f"{value:.0e}".split("e")
    power = rf"10^{{{int(exponent)}}}"
    return power if digits == "1" else rf"{digits}\cdot {power}"


def signed(value: float) -> str:
    return f"+ {number(value)}" if value >= 0 else f"- {number(-value)}"


def log(claim: str, floor: float = 0.0) -> str:
    """Return the logarithm of "p" or "1-p"."""
    if floor:
        return rf"\log({claim} + {number(floor)})"
    return rf"\log {claim}" if claim.isalpha() else rf"\log({claim})"


def cross_entropy(method, step=None) -> dict[str, str]:
    """Return the equation of a method whose missing labels are negatives."""
    return base("bce", method.hyperparameters.get("log_floor", 0.0))


def smoothed(claim: str, other: str, smoothing: float, floor: float) -> str:
    """Return the cross-entropy of a claim of which a share is moved to the other side."""
    return rf"-{number(1 - smoothing)}\,{log(claim, floor)} - {number(smoothing)}\,{log(other, floor)}"


def entropy(method, sign: str) -> str:
    """Return the negative entropy of p, weighed by alpha."""
    alpha, floor = method.hyperparameters["alpha"], method.hyperparameters["log_floor"]
    return rf"{sign}{number(alpha)}\,(p\,{log('p', floor)} + (1-p)\,{log('1-p', floor)})"


def logistic(w: float, b: float) -> str:
    return rf"\sigma({number(w)}\,p {signed(b)})"


def gaussian(mu: float, sigma: float) -> str:
    return rf"\exp\left(-\frac{{(p {signed(-mu)})^2}}{{2\cdot {number(sigma)}^2}}\right)"


def robust(x: str, q: float, floor: float = 0.0) -> str:
    if q == 0:
        return f"-{log(x.strip('()'), floor)}"
    return f"1 - {x}" if q == 1 else rf"\frac{{1 - {x}^{{{number(q)}}}}}{{{number(q)}}}"


def focal(claim: str, other: str, gamma: float) -> str:
    """Return the focal loss of a claim "p" and its complement "(1-p)", or the other way round."""
    text = rf"\log{'' if claim.startswith('(') else ' '}{claim}"
    return f"-{text}" if gamma == 0 else rf"-{other}^{{{number(gamma)}}}\,{text}"


def focal_negative(gamma: float) -> str:
    return focal("(1-p)", "p", gamma)


def margin(gamma: float, m: float) -> str:
    """Return the focal loss of a label claimed true, its logit shifted by m; `shift` says what p_m is."""
    return focal("p_m", "(1-p_m)", gamma) if m else focal("p", "(1-p)", gamma)


def shift(m: float) -> dict[str, str]:
    return {"p_m": rf"\sigma(z - {number(m)})"} if m else {}


def with_margin(gamma: float, m: float, missing: str) -> dict[str, str]:
    """Return the equation of a loss with Focal margin on observed positives."""
    return {"observed": margin(gamma, m), "missing": missing} | shift(m)


def hill(lam: float) -> str:
    return rf"({number(lam)} - p)\,p^2"


def asl(gamma_pos: float, gamma_neg: float, m: float) -> dict[str, str]:
    observed = focal("p", "(1-p)", gamma_pos)
    if not m:
        return {"observed": observed, "missing": focal_negative(gamma_neg)}
    missing = focal("(1-p_m)", "p_m", gamma_neg)
    return {"observed": observed, "missing": missing, "p_m": rf"\max(p - {number(m)}, 0)"}


def base(name: str, floor: float = 0.0) -> dict[str, str]:
    """Return the equation of a loss that SPLC and pseudo-labels are put on, at its defaults."""
    return {
        "bce": {"observed": f"-{log('p', floor)}", "missing": f"-{log('1-p', floor)}"},
        "focal": with_margin(2.0, 0.0, focal_negative(2.0)),
        "focal_margin": with_margin(2.0, 1.0, focal_negative(2.0)),
        "asl": asl(0.0, 4.0, 0.0),
    }[name]


def corrected(method, positive: str, missing: str, now: bool) -> dict[str, str]:
    """Return the equation of missing labels that count as positive where p > tau, from some moment on."""
    tau = number(method.hyperparameters["tau"])
    both = rf"[p>{tau}]\,({positive}) + [p\leq {tau}]\,({missing})"
    return {"missing": both if now else missing}


def gr(method, w: float, b: float, mu: float, sigma: float, q3: float) -> dict[str, str]:
    """Return the equation of GR (Eq. 5) with these numbers in k and v."""
    h, floor = method.hyperparameters, method.hyperparameters["log_floor"]
    return {
        "observed": robust("p", h["q1"], floor),
        "missing": r"v\,(\hat k\,L_2 + (1-\hat k)\,L_3)",
        r"\hat k": logistic(w, b),
        "v": gaussian(mu, sigma),
        "L_2": robust("p", h["q2"], floor),
        "L_3": robust("(1-p)", q3, floor),
    }


def largest(method, times: int, fate: str) -> dict[str, str]:
    """Return the equation of a method for which a share, `times` delta, of missing labels has another fate."""
    plain, share = cross_entropy(method), times * method.hyperparameters["delta"]
    of = r"\%\ \mathrm{of\ labels,\ missing,\ of\ largest\ loss}"
    return plain | {"missing": rf"{plain['missing']};\ {fate}\ \mathrm{{for}}\ {100 * share:.3g}{of}"}
