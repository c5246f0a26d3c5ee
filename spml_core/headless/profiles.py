"""The values of notebooks' parameters: defaults, profiles, what a command gives; and whether they can be.

Parameters that notebooks share have the same name and type everywhere (`SHARED`); a notebook declares those it uses,
with its quick run as default, and a profile (`load`) sets them for all. In a notebook that trains:

    use(venue, formats)
    fields = {"dataset": dataset, "root": root, "data": data, "epochs": epochs, "backbone": backbone} | training
    Experiment(**fields, method=method, params=params.get(method, {}), seed=seed)
"""

import json
from collections.abc import Mapping
from pathlib import Path

from spml_core import words
from spml_core.headless import contract as notebooks
from spml_core.headless.contract import NotebookError, Parameter
from spml_core.paths import locate

SHARED = {  # name: how it is annotated; what it is
    "dataset": ("str",),  # a name of `spml_core.data`
    "root": ("str | None",),  # folder of the data set; None for digits
    "data": ("dict",),  # further options of the data set's loader, e.g. {"train": 300, "val": 100} for digits
    "method": ("str",),  # a registered name
    "methods": ("list[str]",),  # several; the baseline first; none = all, where a notebook takes all
    "params": ("dict", "dict[str, dict]"),  # hyperparameters that are not the default: of `method`; by method
    "seeds": ("list[int]",),  # one run each
    "epochs": ("int",),  # length of training
    "backbone": ("str | None",),  # None = the data set's own
    "training": ("dict",),  # further fields of `Experiment`: mode, batch_size, lr, val_labels, ...
    "venue": ("str",),  # `figures.use`: sizes and fonts
    "formats": ("list[str]",),  # `figures.use`: written besides PDF and PNG
    "runs_dir": ("str",),  # where runs are kept, relative to the project
    "figures_dir": ("str",),  # where figures go
}
QUICK = "quick"  # the profile that needs no file: the notebooks' own defaults


def load(name: str, notebooks_dir: str | Path | None = None) -> dict[str, dict]:
    """Notebook -> parameter -> value, from the file NAME.yaml beside the notebooks; "quick" has none and sets nothing.

    The file maps `all` to parameters of every notebook that declares them, and notebooks' names to their own. Unless
    it says otherwise, the figures go to figures/NAME, so that no other profile's are overwritten.

    Raises:
        NotebookError: there is no such profile, or it names a notebook or a parameter that does not exist.
    """
    if name == QUICK:
        return {}
    folder = locate("notebooks" if notebooks_dir is None else notebooks_dir)
    known = sorted({QUICK, *(path.stem for path in folder.glob("*.yaml"))})
    if name not in known:
        raise NotebookError(
            f"{name!r} is no profile; there are: {', '.join(known)} (each a file in {folder})"
        )
    file = folder / f"{name}.yaml"
    try:
        content = words.read_yaml(file) or {}
    except ValueError as error:
        raise NotebookError(str(error)) from error
    wanted = {key: values or {} for key, values in content.items()} if isinstance(content, dict) else None
    if wanted is None or not all(isinstance(values, dict) for values in wanted.values()):
        raise NotebookError(f"{file} must map `all` and names of notebooks to parameters and their values")
    every, own = wanted.pop("all", {}), wanted
    declares = {path.stem: notebooks.parameters(path) for path in notebooks.find((), folder)}
    if unknown := [key for key in own if key not in declares]:
        near = words.nearest(str(unknown[0]), declares) or list(declares)
        raise NotebookError(f"{file}: {unknown[0]!r} is no notebook; choose from: all, {', '.join(near)}")
    anywhere = list(dict.fromkeys(key for its in declares.values() for key in its))
    checks = [("any notebook", every, anywhere), *((n, values, declares[n]) for n, values in own.items())]
    for where, values, known in checks:
        if unknown := [key for key in values if key not in known]:
            near = words.nearest(str(unknown[0]), known)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise NotebookError(f"{file}: parameter {unknown[0]!r} is not declared by {where}{hint}")
    every = {"figures_dir": f"figures/{name}"} | every
    return {
        notebook: {key: value for key, value in every.items() if key in its} | own.get(notebook, {})
        for notebook, its in declares.items()
    }


def resolve(
    known: dict[str, dict[str, Parameter]],
    given: Mapping[str, object],
    profile: Mapping[str, dict] | None = None,
    strict: bool = True,
) -> dict[str, dict]:
    """Notebook -> parameter -> value, from the defaults, the profile and what was given; the last one counts.

    Args:
        strict: every notebook must declare all that is given; otherwise one is enough, and the others go without.

    Who chooses other methods, but no `params`, goes without the default params of those left out.
    """
    for key in given:
        without = [notebook for notebook, its in known.items() if key not in its]
        if without and (strict or len(without) == len(known)):
            near = words.nearest(key, known[without[0]])
            having = [notebook for notebook in known if notebook not in without]
            raise NotebookError(
                f"parameter {key!r} is not declared by {', '.join(without)}"
                + (f"; did you mean {near[0]!r}?" if near else "")
                + f"\ndeclared by: {', '.join(having) or 'no chosen notebook'}"
                + f"\n{without[0]} declares: {', '.join(known[without[0]]) or 'nothing'}"
            )
    resolved = {}
    for notebook, its in known.items():
        resolved[notebook] = {key: parameter.default for key, parameter in its.items()}
        for key, value in (dict((profile or {}).get(notebook, {})) | dict(given)).items():
            if key not in its:
                continue
            try:
                resolved[notebook][key] = its[key].coerce(value)
            except (ValueError, TypeError) as error:
                expected = f"{its[key].type} (default {json.dumps(its[key].default)})"
                raise NotebookError(
                    f"parameter {key!r} of {notebook} must be {expected}, not {value!r}: {notebooks.reason(error)}"
                ) from error
        if {"methods", "params"} <= its.keys() and "methods" in given and "params" not in given:
            chosen, params = resolved[notebook]["methods"], resolved[notebook]["params"]
            resolved[notebook]["params"] = {m: v for m, v in params.items() if m in chosen or not chosen}
    return resolved


def check(notebook: str, known: Mapping[str, Parameter], values: Mapping[str, object]) -> None:
    """Ask data sets, methods and venues whether there is what `values` name, so that no kernel starts in vain.

    Raises:
        NotebookError: an unknown name, a missing folder, or what `Experiment` refuses; defaults are not asked.
    """
    if all(values[key] == known[key].default for key in SHARED.keys() & known.keys()):
        return
    from spml_core import data, figures, runs

    try:
        if "venue" in values:
            figures.find_venue(values["venue"])
        if values.get("seeds") == []:
            raise ValueError("parameter 'seeds' must hold at least one seed")
        if values.get("root") is not None and not locate(values["root"]).is_dir():
            raise ValueError(f"parameter 'root': there is no folder {locate(values['root'])}")
        if "dataset" in values:
            root = {} if values.get("root") is None else {"root": values["root"]}
            data.check(values["dataset"], values.get("data", {}) | root)
        several, params = "methods" in values, values.get("params", {})
        chosen = values.get("methods", [values["method"]] if "method" in values else [])
        if several and not chosen:  # all
            chosen = list(params)
        if several and (stray := [method for method in params if method not in chosen]):
            raise ValueError(
                f"parameter 'params' is for {stray[0]!r}, which is not among the methods {chosen}"
            )
        names = [key for key in ("dataset", "root", "data", "epochs", "backbone") if key in values]
        fields = {key: values[key] for key in names} | values.get("training", {})
        for method in chosen:
            runs.Experiment(
                method=method, params=params.get(method, {}) if several else params, **fields
            ).resolved()
    except (ValueError, TypeError) as error:
        raise NotebookError(f"{notebook}: {error}") from error
