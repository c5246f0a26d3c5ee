"""The search space of a hyperparameter search: a YAML file, read and checked before any work.

For example:

    name: birds
    experiment: {dataset: folder, root: my_photos, method: em}
    space:
      lr: {low: 1e-4, high: 1e-1, log: true}
      params.alpha: [0.02, 0.1, 0.2]
    trials: 40
"""

import copy
import dataclasses
import json
import math
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from optuna.distributions import FloatDistribution
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, model_validator

from spml_core import methods
from spml_core.paths import locate
from spml_core.runs import Experiment
from spml_core.words import check_name, did_you_mean, read_yaml

SHIPPED = Path(__file__).parent / "spaces"
_FIELDS = [f.name for f in dataclasses.fields(Experiment) if f.name != "seed"]


class Space(BaseModel):
    """The content of a search file.

    Args:
        name: name of the study and its files; default: the name of the file.
        experiment: fields of `Experiment` that are the same in all trials.
        space: what is tried. A key names a field, or with dots a part of one ("params.alpha", "params.w.1": the end of
            a pair); its value is a list of choices, or a range {low, high, log}, drawn uniformly, or with log on a log
            scale. Choices that belong together are mappings from such keys to values, under any name.
        sampler: "grid" tries every combination; "tpe" (Bergstra et al., NeurIPS 2011) learns from earlier trials.
        trials: number of trials; None = 40, or the whole grid. Fewer take a random part of the grid, always the same.
        seeds: runs per trial, with the seeds 0, 1, ...; their mean validation mAP counts.
        test_seeds: runs of the chosen configuration, whose test mAP is reported.
        pruner: "median" stops a trial whose best validation mAP is below the median of the others at that epoch, from
            the sixth trial on; "none" trains all to the end.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str = Field(pattern=r"^[\w.-]+$")
    experiment: dict[str, Any] = {}
    space: dict[str, Annotated[list, Field(min_length=1)] | dict] = Field(min_length=1)
    sampler: Literal["grid", "tpe"] = "tpe"
    trials: PositiveInt | None = None
    seeds: PositiveInt = 1
    test_seeds: PositiveInt = 3
    pruner: Literal["median", "none"] = "median"

    @model_validator(mode="after")
    def _check(self):
        for name, domain in self.space.items():
            if isinstance(domain, dict):
                if self.sampler == "grid":
                    raise ValueError(
                        f"{name} of the space is a range, which a grid cannot list: list values, or use tpe"
                    )
                try:
                    FloatDistribution(**domain)
                except (TypeError, ValueError) as error:
                    raise ValueError(
                        f"{name} of the space is {domain}, not a range {{low, high, log}}: {error}"
                    ) from error
        for chosen in self.probes():
            fields = self.fields(chosen)
            check_names(fields)
            if fields.get("select") != self.experiment.get("select"):
                raise ValueError(
                    "select compares the trials, so it cannot be searched: fix it in the experiment"
                )
            try:
                Experiment(**fields).resolved()
            except ValueError as error:
                raise ValueError(f"search {self.name!r} cannot try {json.dumps(chosen)}: {error}") from error
        return self

    @property
    def budget(self) -> int:
        """The number of trials to run."""
        if self.sampler == "tpe":
            return self.trials or 40
        combinations = math.prod(map(len, self.choices.values()))
        return min(self.trials or combinations, combinations)

    @property
    def rule(self) -> str:
        """The rule that compares trials, see `Experiment.select`."""
        return self.experiment.get("select", "map")

    @property
    def measure(self) -> str:
        """What trials are compared by, in words."""
        return "validation mAP" if self.rule == "map" else f"validation {self.rule}"

    @property
    def choices(self) -> dict[str, dict]:
        """The choices by name and by what Optuna stores for each: a plain value, or JSON."""
        return {
            name: {v if isinstance(v, bool | int | float | str | None) else json.dumps(v): v for v in domain}
            for name, domain in self.space.items()
            if isinstance(domain, list)
        }

    def probes(self) -> list[dict]:
        """Return configurations in which each choice and each end of a range occurs at least once."""
        ends = {n: [d["low"], d["high"]] if isinstance(d, dict) else d for n, d in self.space.items()}
        first = {name: values[0] for name, values in ends.items()}
        return [first] + [first | {name: value} for name, values in ends.items() for value in values[1:]]

    def fields(self, chosen: dict) -> dict:
        """Return fields of an experiment with `chosen` values of the space; what the file fixes is left as it is."""
        fields = copy.deepcopy(self.experiment)
        for name, value in chosen.items():
            for path, part in value.items() if isinstance(value, dict) else [(name, value)]:
                put(fields, path, copy.deepcopy(part))
        fields.setdefault("tuned_on", f"val, {fields.get('val_labels', 'clean')}")
        return fields

    def suggest(self, trial) -> dict:
        """Return the values that Optuna chooses for a trial."""
        for name, domain in self.space.items():
            if isinstance(domain, dict):
                trial.suggest_float(name, **domain)
            else:
                trial.suggest_categorical(name, list(self.choices[name]))
        return self.values(trial.params)

    def values(self, params: dict) -> dict:
        """Return the values that a trial's `params` stand for."""
        choices = self.choices
        return {name: choices[name][value] if name in choices else value for name, value in params.items()}


def read(file: str | Path, changes: dict | None = None, name: str | None = None) -> Space:
    """Read a search file, or one that comes with the package, by its name.

    Args:
        changes: fixed fields of the experiment to override; dots name parts ("data.min_images").
        name: name of the search, instead of the one in the file; searches of different names share no trials.

    Raises:
        ValueError: no such file, not the expected form, or an invalid value; lists what is known.
    """
    path = locate(file)
    if not path.is_file():
        check_name("search file", str(file), shipped())
        path = SHIPPED / f"{file}.yaml"
    content = _mapping(path)
    content = {"name": path.stem} | content | ({} if name is None else {"name": name})
    for field, value in (changes or {}).items():
        put(content, f"experiment.{field}", value)
    try:
        return Space(**content)
    except ValidationError as error:
        raise ValueError(f"{path}: {'; '.join(map(_reason, error.errors()))}") from None


def _reason(error: dict) -> str:
    """Return one of pydantic's errors with the place in the file, and its value."""
    place, kind = ".".join(map(str, error["loc"][:2])), error["type"]  # not the branch of a union
    if kind == "extra_forbidden":
        hint = did_you_mean(place, Space.model_fields, 2, 0.6)
        return f"no field {place!r} of a search{f': {hint}' if hint else '.'} Known: {', '.join(Space.model_fields)}"
    value = "" if kind in ("missing", "value_error") else f" is {error['input']!r}"
    return f"{place}{value}: {error['msg'].removeprefix('Value error, ')}".removeprefix(": ")


def shipped() -> list[str]:
    """Return the names of the search files of the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def _mapping(path: Path) -> dict:
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a mapping: it must hold lines `name: value`")
    return content


def write_preset(path: Path, fields: dict, comment: str) -> None:
    """Write fields of an experiment, all but the seed, for `read_preset` and `spml train --preset`."""
    plain = yaml.safe_dump(json.loads(json.dumps(fields)), sort_keys=False)
    path.write_text(f"# {comment}\n{plain}", encoding="utf-8")


def read_preset(file: str | Path) -> dict:
    """Return fields of an experiment from a YAML file. Raise ValueError: no such file, not YAML, unknown field."""
    path = locate(file)
    if not path.is_file():
        raise ValueError(f"no preset {path}: `spml search` writes one as runs/search/<name>.best.yaml")
    fields = _mapping(path)
    try:
        check_names(fields)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return fields


def check_names(fields: dict) -> None:
    """Raise ValueError if a name is not a field of `Experiment`, with what is probably meant."""
    for name in fields.keys() - _FIELDS:
        if name == "seed":
            raise ValueError(
                "'seed' does not belong in a file: pass it to the command (spml train --seed), or set the `seeds` of "
                "a search"
            )
        own = fields.get("method")
        if own in methods.names() and name in methods.defaults(own):
            raise ValueError(f"{name!r} is a parameter of {own}: write 'params.{name}'")
        check_name("field of an experiment", name, _FIELDS)


def put(fields: dict, path: str, value) -> None:
    """Set `path` ("params.w.1") in nested mappings and lists.

    Raises:
        ValueError: a part of the path is neither.
    """
    *parents, last = path.split(".")
    place: Any = fields
    try:
        for name in parents:
            place = place[int(name)] if isinstance(place, list) else place.setdefault(name, {})
        place[int(last) if isinstance(place, list) else last] = value
    except (AttributeError, IndexError, TypeError, ValueError):
        raise ValueError(f"no field {path!r} in {json.dumps(fields, default=str)}") from None
