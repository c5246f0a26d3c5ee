"""The values of notebooks' parameters, from defaults, profiles and the command; and whether they are valid.

Parameters that notebooks share have the same name and type everywhere (tests/test_profiles.py lists them); a notebook
declares those it uses, with the values of its quick run as defaults, and a profile (`load`) sets them for all. In a
notebook that trains:

    use(venue, formats)
    fields = {"dataset": dataset, "root": root, "data": data, "epochs": epochs, "backbone": backbone} | training
    Experiment(**fields, method=method, params=params.get(method, {}), seed=seed)

Any further condition on a value is an `assert` in the notebook's parameters cell.
"""

import json
from collections.abc import Iterable, Mapping

from spml_core import words
from spml_core.headless.contract import Notebook, NotebookError, Parameter, find, reason
from spml_core.paths import locate

QUICK = "quick"  # the profile that needs no file: the notebooks' own defaults
DIGITS = "digits"  # the data set of the defaults


def load(name: str) -> dict[str, dict]:
    """Return notebook -> parameter -> value, from NAME.yaml beside the notebooks; "quick" has no file and sets nothing.

    The file maps `all` to parameters of every notebook that declares them, and notebooks' names to their own. Unless
    it sets another folder, figures go to figures/NAME, so that those of other profiles are not overwritten.

    Raises:
        NotebookError: there is no such profile, or it names a notebook or a parameter that does not exist.
        ValueError: the file is not YAML.
    """
    if name == QUICK:
        return {}
    folder = locate("notebooks")
    file = folder / f"{name}.yaml"
    if file not in (there := sorted(folder.glob("*.yaml"))):
        known = ", ".join(sorted({QUICK, *(path.stem for path in there)}))
        raise NotebookError(f"{name!r} is not a profile; known are: {known} (each a file in {folder})")
    content = words.read_yaml(file) or {}
    if not isinstance(content, dict) or not all(isinstance(v, dict | None) for v in content.values()):
        raise NotebookError(f"{file} must map `all` and names of notebooks to parameters and their values")
    declares = {notebook.name: notebook.parameters for notebook in find()}
    own = {key: values or {} for key, values in content.items()}
    every = own.pop("all", {})
    for key in own:
        if key not in declares:
            near = words.nearest(str(key), declares, cutoff=0.4) or list(declares)
            raise NotebookError(f"{file}: {key!r} is not a notebook; choose from: all, {', '.join(near)}")
        _check_declared(own[key], declares[key], key, f"{file}: ")
    _check_declared(every, {key for its in declares.values() for key in its}, "any notebook", f"{file}: ")
    every = {"figures_dir": f"figures/{name}"} | every
    return {
        notebook: {key: value for key, value in every.items() if key in its} | own.get(notebook, {})
        for notebook, its in declares.items()
    }


def _check_declared(names: Iterable[str], known: Iterable[str], by: str, start: str = "") -> None:
    """Raise `NotebookError` if one of `names` is not declared, with the name that is probably meant."""
    for name in names:
        if name not in known:
            hint = words.did_you_mean(name, known, 1, 0.4)
            raise NotebookError(
                f"{start}parameter {name!r} is not declared by {by}{hint and f'; {hint}'}\n"
                f"declared: {', '.join(sorted(known)) or 'nothing'}"
            )


def resolve(
    notebooks: Iterable[Notebook], given: Mapping[str, object], profile: Mapping[str, dict]
) -> dict[str, dict]:
    """Return notebook -> parameter -> value, from the defaults, the profile and the given values; later ones override.

    Each notebook takes those of the given parameters that it declares. If a profile or a command chooses another data
    set than digits, the defaults for digits do not apply: `data`, `training` and `backbones` are then those of the
    data set itself. If a command chooses methods but no `params`, the default params of the other methods do not
    apply.

    Raises:
        NotebookError: a parameter that no notebook declares, or a value of the wrong type.
    """
    declares = {notebook.name: notebook.parameters for notebook in notebooks}
    _check_declared(given, {key for its in declares.values() for key in its}, ", ".join(declares))
    resolved = {}
    for notebook, its in declares.items():
        values = {key: parameter.default for key, parameter in its.items()}
        for layer in (profile.get(notebook, {}), given):
            chosen = {key: _coerced(its[key], value, notebook) for key, value in layer.items() if key in its}
            if values.get("dataset") == DIGITS != chosen.get("dataset", DIGITS):
                values |= {key: value for key, value in _of_data_set(chosen["dataset"]).items() if key in its}
            values |= chosen
        if {"methods", "params"} <= its.keys() and "methods" in given and "params" not in given:
            chosen = values["methods"] or values["params"]
            values["params"] = {m: v for m, v in values["params"].items() if m in chosen}
        resolved[notebook] = values
    return resolved


def _coerced(parameter: Parameter, value, notebook: str):
    try:
        return parameter.coerce(value)
    except (ValueError, TypeError) as error:
        expected = f"{parameter.type} (default {json.dumps(parameter.default)})"
        raise NotebookError(
            f"parameter {parameter.name!r} of {notebook} must be {expected}, not {value!r}: {reason(error)}"
        ) from error


def _of_data_set(name: str) -> dict:
    """Return values of the parameters whose defaults suit only digits; `check` refuses an unknown data set."""
    from spml_core.runs import DEFAULTS

    own = {"data": {}, "training": {}}
    return own | {"backbones": [DEFAULTS[name]["backbone"]]} if name in DEFAULTS else own


def check(notebook: Notebook, values: Mapping[str, object]) -> None:
    """Check `values` against the notebook, data sets, methods and venues, before a kernel starts in vain.

    Raises:
        NotebookError: an assertion of the notebook does not hold, an unknown name, a missing folder, or values that
            `Experiment` refuses; defaults are not checked against these.
    """
    notebook.check(values)
    if values == {name: parameter.default for name, parameter in notebook.parameters.items()}:
        return
    from spml_core import data, figures, runs

    root, params = values.get("root"), values.get("params", {})
    try:
        if "venue" in values:
            figures.find_venue(values["venue"])
        if root is not None and not locate(root).is_dir():
            raise ValueError(f"parameter 'root': there is no folder {locate(root)}")
        if "dataset" in values:
            data.check(values["dataset"], values.get("data", {}) | ({} if root is None else {"root": root}))
        if "methods" in values:
            by_method = {method: params.get(method, {}) for method in values["methods"] or params}
            if stray := [method for method in params if method not in by_method]:
                raise ValueError(
                    f"parameter 'params' is for {stray[0]!r}, which is not among the methods {[*by_method]}"
                )
        else:
            by_method = {values["method"]: params} if "method" in values else {}
        names = [key for key in ("dataset", "root", "data", "epochs") if key in values]
        fields = {key: values[key] for key in names} | values.get("training", {})
        one = values.get("backbone")
        for backbone in values.get("backbones", [one]) if one is None else [one]:
            for method, own in by_method.items():
                runs.Experiment(method=method, params=own, **{"backbone": backbone} | fields).resolved()
    except (ValueError, TypeError) as error:
        raise NotebookError(f"{notebook.name}: {error}") from error
