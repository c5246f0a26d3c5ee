"""The equation of a method's loss on one label, in LaTeX, with the numbers that are in force at a step."""

from __future__ import annotations

from spml_core.methods import Method, Step

CROSS_ENTROPY = ("an", "bce", "l1r", "l2r")  # on one label; what the last two add is of a whole image


def equations(method: Method, step: Step) -> dict[str, str]:
    """What stands on the left, e.g. "missing" or r"\\hat k", and LaTeX of what stands on the right.

    Empty for a method whose equation nobody has written here, one that you have added.
    """
    h, name = method.hyperparameters, method.name
    floor = f" + {_plain(h['log_floor'])}" if h.get("log_floor") else ""
    true, false = rf"-\log(p{floor})" if floor else r"-\log p", rf"-\log(1-p{floor})"
    entropy = rf"p\,\log(p{floor}) + (1-p)\,\log(1-p{floor})" if floor else r"p\,\log p + (1-p)\,\log(1-p)"
    plain = {"observed": true, "missing": false}
    if name in ("gr", "gr_trainable"):
        now = h if name == "gr_trainable" else method.at(step)
        q3 = method.q3_at(step) if name == "gr" else h["q3"]
        return {
            "observed": _robust("p", h["q1"], floor),
            "missing": r"v\,(\hat k\,L_2 + (1-\hat k)\,L_3)",
            r"\hat k": _logistic(now["w"], now["b"]),
            "v": _gaussian(now["mu"], now["sigma"]),
            "L_2": _robust("p", h["q2"], floor),
            "L_3": _robust("(1-p)", q3, floor),
        }
    if name == "unified":
        return _unified(h)
    if name == "iun":
        return plain | {"missing": "0"}
    if name in ("wan", "dw"):
        weight = rf"\frac{{1}}{{{method.num_classes - 1}}}" if h["weight"] is None else _number(h["weight"])
        return plain | {"missing": rf"-{weight}\,\log(1-p{floor})"}
    if name in ("an_ls", "n_ls"):
        s, rest = _number(h["smoothing"]), _number(1 - h["smoothing"])
        missing = rf"-{rest}\,\log(1-p{floor}) - {s}\,\log(p{floor})"
        observed = rf"-{rest}\,\log(p{floor}) - {s}\,\log(1-p{floor})" if name == "an_ls" else true
        return {"observed": observed, "missing": missing}
    if name in ("em", "ent_min"):
        sign = "" if name == "em" else "-"
        return {"observed": true, "missing": rf"{sign}{_number(h['alpha'])}\,({entropy})"}
    if name == "epr":
        k = _number(h["expected_positives"])
        batch = rf"{_number(h['weight'])}\left(\frac{{\overline{{\sum_c p_c}} - {k}}}{{{method.num_classes}}}\right)^2"
        return {"observed": rf"{true} + R", "missing": "R", "R": batch}
    if name == "mse":
        return {"observed": true, "missing": "p^2"}
    if name in ("focal", "focal_margin", "hill", "asl", "asl_ps"):
        return _weighted(name, h)
    if name in ("splc", "fm_splc"):
        return _corrected(method, step)
    if name == "lasd":
        tau, gamma = _number(h["tau"]), (h["gamma_pos"], h["gamma_neg"])
        positive, negative = _focal("p", "(1-p)", gamma[0]), _focal("(1-p)", "p", gamma[1])
        return {
            "observed": "L_+",
            "missing": rf"{_number(h['lambda_plus'])}\,[p>{tau}]\,L_+ + {method.lambda_minus:.3g}\,[p\leq {tau}]\,L_-",
            "L_+": positive,
            "L_-": negative,
        }
    if name in ("ll_r", "ll_ct", "ll_cp"):
        share = h["delta"] if name == "ll_cp" else h["delta"] * (step.epoch - 1)
        fate = {
            "ll_r": "0",
            "ll_ct": true,
            "ll_cp": true + r"\ \mathrm{for\ good}",
        }[name]
        of = r"\%\ \mathrm{of\ labels,\ missing,\ of\ largest\ loss}"
        return plain | {"missing": rf"{false};\ {fate}\ \mathrm{{for}}\ {100 * share:.3g}{of}"}
    if name == "em_apl":
        beta = _number(h["beta"])
        soft = rf"-{beta}\,(s\,\log(p{floor}) + (1-s)\,\log(1-p{floor}))"
        return {
            "observed": true,
            "missing": rf"{_number(h['alpha'])}\,({entropy})",
            r"\mathrm{pseudo-label}\ s": soft,
        }
    if name == "en":
        return plain | {"missing": rf"{false}\ \mathrm{{among\ the\ least\ likely}};\ 0\ \mathrm{{else}}"}
    if name == "pseudo_label":
        tau = _number(h["tau"])
        plain = plain if h["base"] == "bce" else _base(h["base"])
        relabelled = rf"\mathrm{{as\ observed\ where}}\ p>{tau}\ \mathrm{{at\ the\ end\ of\ stage\ one}}"
        return plain | {r"\mathrm{relabelled}": relabelled}
    return plain if name in CROSS_ENTROPY else {}


def as_html(method: Method, step: Step) -> str:
    """For `ipywidgets.HTMLMath`, a line an equation."""
    left = {"observed": r"L_{\mathrm{observed}}", "missing": r"L_{\mathrm{missing}}"}
    told = equations(method, step)
    if not told:
        return f"<small>No equation of {method.name} is written in spml_core/explore/equations.py.</small>"
    lines = [rf"\({left.get(what, what)} = {text}\)" for what, text in told.items()]
    return "<br>".join(lines)


def remark(method: Method, step: Step) -> str:
    """Why the numbers of an equation are not yet the ends of their schedule; "" where there is nothing to say."""
    if method.hyperparameters.get("schedule") != "code":
        return ""
    epoch, epochs = step.epoch, step.num_epochs
    return (
        f"By the schedule “code”, w and b are at {epoch - 1}/{epochs} of their way from start to end, and stop "
        f"one epoch short of the end; μ and σ are at {epoch}/{epochs}, as are all four by “paper”."
    )


def _number(value: float) -> str:
    """Four digits, without an exponent that TeX would set as a product."""
    return f"{value:.4g}" if value == 0 or 1e-4 <= abs(value) < 1e5 else _plain(value)


def _plain(value: float) -> str:
    digits, exponent = f"{value:.0e}".split("e")
    return rf"{digits}\cdot 10^{{{int(exponent)}}}" if digits != "1" else rf"10^{{{int(exponent)}}}"


def _signed(value: float) -> str:
    return f"+ {_number(value)}" if value >= 0 else f"- {_number(-value)}"


def _logistic(w: float, b: float) -> str:
    return rf"\sigma({_number(w)}\,p {_signed(b)})"


def _gaussian(mu: float, sigma: float) -> str:
    return rf"\exp\left(-\frac{{(p {_signed(-mu)})^2}}{{2\cdot {_number(sigma)}^2}}\right)"


def _robust(x: str, q: float, floor: str = "") -> str:
    if q == 0:
        inside = x.strip("()")
        return rf"-\log({inside}{floor})"
    if q == 1:
        return f"1 - {x}"
    return rf"\frac{{1 - {x}^{{{_number(q)}}}}}{{{_number(q)}}}"


def _focal(claim: str, other: str, gamma: float) -> str:
    log = rf"\log{'' if claim.startswith('(') else ' '}{claim}"
    return f"-{log}" if gamma == 0 else rf"-{other}^{{{_number(gamma)}}}\,{log}"


def _margin(gamma: float, margin: float) -> str:
    """Focal margin on a label claimed true; `_shift` says what p_m is."""
    return _focal("p_m", "(1-p_m)", gamma) if margin else _focal("p", "(1-p)", gamma)


def _shift(margin: float) -> dict[str, str]:
    return {"p_m": rf"\sigma(z - {_number(margin)})"} if margin else {}


def _hill(lam: float) -> str:
    return rf"({_number(lam)} - p)\,p^2"


def _weighted(name: str, h: dict) -> dict[str, str]:
    """Losses whose missing labels are negatives, weighed by p."""
    if name == "focal":
        found = {
            "observed": _focal("p", "(1-p)", h["gamma"]),
            "missing": _focal("(1-p)", "p", h["gamma"]),
        }
        if h["alpha"] is None:
            return found
        weights = {"observed": h["alpha"], "missing": 1 - h["alpha"]}
        return {kind: rf"{_number(weights[kind])}\cdot({term})" for kind, term in found.items()}
    if name == "focal_margin":
        gamma = h["gamma"] if h["gamma_neg"] is None else h["gamma_neg"]
        found = {"observed": _margin(h["gamma"], h["margin"]), "missing": _focal("(1-p)", "p", gamma)}
        return found | _shift(h["margin"])
    if name == "hill":
        found = {"observed": _margin(h["gamma"], h["margin"]), "missing": _hill(h["lam"])}
        return found | _shift(h["margin"])
    found = {"observed": _focal("p", "(1-p)", h["gamma_pos"])}
    if not h["margin"]:
        return found | {"missing": _focal("(1-p)", "p", h["gamma_neg"])}
    found["missing"] = _focal("(1-p_m)", "p_m", h["gamma_neg"])
    return found | {"p_m": rf"\max(p - {_number(h['margin'])}, 0)"}


def _corrected(method: Method, step: Step) -> dict[str, str]:
    h = method.hyperparameters
    if method.name == "fm_splc":
        negative = _hill(h["lam"]) if h["negative"] == "hill" else _focal("(1-p)", "p", h["gamma"])
        found = {"observed": _margin(h["gamma"], h["margin"]), "missing": negative} | _shift(h["margin"])
        positive = found["observed"] if h["shift_corrected"] else _focal("p", "(1-p)", h["gamma"])
    else:
        found = _base(h["base"])
        positive = found["observed"]
    if step.epoch >= h["first_epoch"]:
        tau = _number(h["tau"])
        found["missing"] = rf"[p>{tau}]\,({positive}) + [p\leq {tau}]\,({found['missing']})"
    return found


def _base(base: str) -> dict[str, str]:
    """Of the losses that SPLC and pseudo-labels are put on, at their defaults."""
    if base == "bce":
        return {"observed": r"-\log p", "missing": r"-\log(1-p)"}
    own = {"focal": {"gamma": 2.0, "alpha": None}, "asl": {"gamma_pos": 0.0, "gamma_neg": 4.0, "margin": 0.0}}
    own["focal_margin"] = {"gamma": 2.0, "margin": 1.0, "gamma_neg": None}
    return _weighted(base, own[base])


def _unified(h: dict) -> dict[str, str]:
    def term(name: str, claim: str, other: str, q: float, margin: float) -> str:
        return {
            "cross_entropy": rf"-\log {claim}" if claim == "p" else rf"-\log{claim}",
            "robust": _robust(claim, q),
            "focal": _margin(h["gamma"], margin) if claim == "p" else _focal(claim, other, h["gamma"]),
            "squared": f"{other}^2",
            "hill": _hill(h["lam"]),
            "entropy": r"p\,\log p + (1-p)\,\log(1-p)",
        }[name]

    a = _number(h["annotation_rate"])
    k = {
        "zero": "0",
        "logistic": _logistic(h["w"], h["b"]),
        "threshold": rf"[p > {_number(h['tau'])}]",
        "annotation_rate": rf"\frac{{(1 - {a})\,p}}{{1 - {a}\,p}}",
    }[h["k_hat"]]
    v = {
        "constant": _number(h["weight"]),
        "gaussian": _gaussian(h["mu"], h["sigma"]),
        "threshold": rf"{_number(h['weight'])}\,[p \leq {_number(h['tau'])}]",
    }[h["v"]]
    found = {"observed": term(h["l1"], "p", "(1-p)", h["q1"], h["margin"])}
    if h["l1"] == "focal" or (h["l2"] == "focal" and h["k_hat"] != "zero"):
        found |= _shift(h["margin"])
    if h["k_hat"] == "zero":
        found |= {"missing": r"v\,L_3", "v": v}
    else:
        found |= {"missing": r"v\,(\hat k\,L_2 + (1-\hat k)\,L_3)", r"\hat k": k, "v": v}
        found["L_2"] = term(h["l2"], "p", "(1-p)", h["q2"], h["margin"])
    return found | {"L_3": term(h["l3"], "(1-p)", "p", h["q3"], 0.0)}
