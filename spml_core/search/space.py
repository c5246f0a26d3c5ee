"""What a hyperparameter search tries: a YAML file, read and checked before any work.

name: birds
experiment: {dataset: folder, root: my_photos, method: em}
space:
  lr: {low: 1e-4, high: 1e-1, log: true}
  params.alpha: [0.02, 0.1, 0.2]
trials: 40
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import random
import re
from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, model_validator

from spml_core import methods, words
from spml_core.paths import locate
from spml_core.runs import Experiment

SHIPPED = Path(__file__).parent / "spaces"
_FIELDS = [f.name for f in dataclasses.fields(Experiment) if f.name != "seed"]


class Range(BaseModel):
    """Numbers from `low` to `high`, drawn uniformly, with `log` uniformly in their logarithm."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    low: float
    high: float
    log: bool = False

    @model_validator(mode="after")
    def _check(self):
        if not self.low < self.high or (self.log and self.low <= 0):
            got = f"low {self.low:g}, high {self.high:g}, log {str(self.log).lower()}"
            raise ValueError(f"low must be below high, and above 0 with log; got {got}")
        return self


class Space(BaseModel):
    """What a file says.

    Args:
        name: of the study and its files; the name of the file if it says nothing.
        experiment: fields of `Experiment` that are the same in all trials.
        space: what is tried. A key names a field, or with dots a part of one ("params.alpha", "params.w.1": the end of
            a pair); its value is a list of choices or {low, high, log}. Choices that belong together are a list of
            mappings from such keys to values, under any name.
        sampler: "grid" tries every combination; "tpe" (Bergstra et al., NeurIPS 2011) learns from earlier trials.
        trials: how many; None = 40, or all of a grid. Fewer than all are a random part of it, always the same.
        seeds: runs of a trial, with the seeds 0, 1, ...; their mean validation mAP counts.
        test_seeds: runs of the chosen configuration, whose test mAP is reported.
        pruner: "median" stops a trial whose best validation mAP is below the median of the others at that epoch, from
            the sixth trial on; "none" trains all to the end.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str = Field(pattern=r"^[\w.-]+$")
    experiment: dict[str, Any] = {}
    space: dict[str, Range | list] = Field(min_length=1)
    sampler: Literal["grid", "tpe"] = "tpe"
    trials: PositiveInt | None = None
    seeds: PositiveInt = 1
    test_seeds: PositiveInt = 3
    pruner: Literal["median", "none"] = "median"

    @model_validator(mode="after")
    def _check(self):
        for name, domain in self.space.items():
            if domain == []:
                raise ValueError(f"{name} of the space has no choices")
            if self.sampler == "grid" and isinstance(domain, Range):
                raise ValueError(
                    f"{name} of the space is a range, which a grid cannot list: name values, or use tpe"
                )
        for chosen in self.probes():
            _check_names(self.fields(chosen))
        return self

    @property
    def budget(self) -> int:
        """Trials to be made."""
        if self.sampler == "tpe":
            return self.trials or 40
        return min(self.trials or len(self.combinations()), len(self.combinations()))

    def combinations(self) -> list[dict]:
        """Of a grid: every combination, in an order that is random and always the same."""
        names, domains = zip(*self.space.items(), strict=True)
        every = [dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*domains)]
        random.Random(0).shuffle(every)
        return every

    def probes(self) -> list[dict]:
        """Configurations among which each choice and each end of a range occurs."""
        ends = {n: [d.low, d.high] if isinstance(d, Range) else d for n, d in self.space.items()}
        first = {name: values[0] for name, values in ends.items()}
        return [first] + [first | {name: value} for name, values in ends.items() for value in values[1:]]

    def fields(self, chosen: dict) -> dict:
        """Of an experiment, with `chosen` values of the space; what the file fixes is left as it is."""
        fields = copy.deepcopy(self.experiment)
        for name, value in chosen.items():
            for path, part in value.items() if isinstance(value, dict) else [(name, value)]:
                put(fields, path, copy.deepcopy(part))
        fields.setdefault("tuned_on", f"val, {fields.get('val_labels', 'clean')}")
        return fields

    def suggest(self, trial) -> dict:
        """The values that Optuna chooses for a trial."""
        for name, domain in self.space.items():
            if isinstance(domain, Range):
                trial.suggest_float(name, domain.low, domain.high, log=domain.log)
            else:
                trial.suggest_categorical(name, [label(value) for value in domain])
        return self.values(trial.params)

    def values(self, params: dict) -> dict:
        """The values that a trial's `params` stand for."""
        labels = {
            name: {label(value): value for value in domain}
            for name, domain in self.space.items()
            if isinstance(domain, list)
        }
        return {name: labels[name][value] if name in labels else value for name, value in params.items()}

    def check(self) -> None:
        """Raise ValueError if a choice cannot be trained, as far as can be said without the data."""
        for chosen in self.probes():
            try:
                Experiment(**self.fields(chosen)).resolved()
            except ValueError as error:
                raise ValueError(f"search {self.name!r} cannot try {json.dumps(chosen)}: {error}") from error


def read(file: str | Path, changes: dict | None = None, name: str | None = None) -> Space:
    """Read a search file, or one of those that come with the package, by its name.

    Args:
        changes: fixed fields of the experiment to set otherwise; dots name parts ("data.min_images").
        name: of the search, in place of what the file says: its trials stand apart from those of another name.

    Raises:
        ValueError: no such file, not the form expected, or a value that cannot be; says what there is.
    """
    path = locate(file)
    if not path.is_file():
        path = SHIPPED / f"{file}.yaml"
    if not path.is_file():
        near = _near(str(file), shipped())
        raise ValueError(f"no search file {file}{near} Those of the package are {_listed(shipped())}")
    content = load_yaml(path)
    if "space" not in content and set(content) & set(_FIELDS) and not set(content) - set(_FIELDS):
        raise ValueError(
            f"{path} is a preset, the fields of one experiment: `spml train --preset {file}`. A search file puts them "
            "under `experiment:` and says under `space:` what is tried"
        )
    content = {"name": path.stem} | content | ({} if name is None else {"name": name})
    for field, value in (changes or {}).items():
        put(content, f"experiment.{field}", value)
    try:
        return Space(**content)
    except ValidationError as error:
        said = dict.fromkeys(_told(e, content) for e in error.errors())
        raise ValueError(f"{path}: {'; '.join(text for text in said if text)}") from None


def _told(error: dict, content: dict) -> str:
    """One of pydantic's errors in the words of the file: field, what is wrong, what is allowed, the nearest name."""
    kind, got = error["type"], error["input"]
    where = [str(part) for part in error["loc"] if "Range" not in str(part) and part != "list[any]"]
    place = ".".join(where[:2])
    if where[:1] == ["space"] and len(where) > 1:  # choices or a range: pydantic says why it is neither
        domain = content["space"].get(where[1])
        if not isinstance(domain, dict):
            return f"{place} is {domain!r}: give a list of choices, or {{low: 1e-4, high: 1e-1, log: true}}"
        if "list[any]" in error["loc"]:
            return ""
    known = tuple(Range.model_fields) if len(where) == 3 else tuple(Space.model_fields)
    match kind:
        case "extra_forbidden":
            of = place if len(where) == 3 else "a search"
            return f"no field {where[-1]!r} of {of}{_near(where[-1], known)} There are {_listed(known)}"
        case "missing":
            return f"{place if len(where) == 3 else 'the file'} does not say {where[-1]!r}"
        case "literal_error":
            known = get_args(Space.model_fields[where[-1]].annotation)
            return f"{place} is {got!r}{_near(str(got), known)} Use {' or '.join(known)}"
        case "dict_type":
            example = "{lr: [1e-3, 1e-4]}" if where == ["space"] else "{lr: 1e-3}"
            return f"{place} is {got!r}: give names and values, such as {example}"
        case "string_pattern_mismatch" | "string_type":
            return f"{place} is {got!r}: use letters, digits, dots, - and _"
        case "too_short":
            return "space is empty: name what is tried, such as {lr: [1e-3, 1e-4]}"
        case "value_error":
            return f"{place}: {error['ctx']['error']}".removeprefix(": ")
        case _ if kind.startswith(("int", "greater")):
            return f"{place} is {got!r}: give a whole number, at least 1"
        case _ if kind.startswith(("float", "bool", "finite")):
            return f"{'.'.join(where)} is {got!r}: give {'true or false' if kind.startswith('bool') else 'a number'}"
    return f"{place}: {error['msg']}"


def _near(name: str, known) -> str:
    """The nearest names, if any is near: the end of a sentence in any case."""
    hint = words.did_you_mean(name, known, 2, 0.6)
    return f": {hint}" if hint else "."


def _listed(names) -> str:
    return ", ".join(names)


def shipped() -> list[str]:
    """Names of the search files of the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def load_yaml(path: Path) -> dict:
    """A mapping; numbers such as 1e-4 are numbers (in YAML 1.1 they would be text).

    Raises:
        ValueError: not YAML, or no mapping.
    """
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}" if mark else ""
        raise ValueError(f"{path} is not YAML{where}: {error.problem or error.context}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        wrong = "is empty" if content is None else "is no mapping"
        raise ValueError(f"{path} {wrong}: it must hold lines `name: value`")
    return content


def write_preset(path: Path, fields: dict, comment: str) -> None:
    """Write fields of an experiment, all but the seed, for `read_preset` and `spml train --preset`."""
    plain = yaml.safe_dump(json.loads(json.dumps(fields)), sort_keys=False)
    path.write_text(f"# {comment}\n{plain}", encoding="utf-8")


def read_preset(file: str | Path) -> dict:
    """Fields of an experiment from a YAML file. Raises ValueError: no such file, not YAML, or an unknown field."""
    path = locate(file)
    if not path.is_file():
        raise ValueError(f"no preset {path}: `spml search` writes one as runs/search/<name>.best.yaml")
    fields = load_yaml(path)
    if "space" in fields:
        raise ValueError(
            f"{path} is a search file: `spml search {file}` makes its trials and writes the best configuration as a "
            "preset, runs/search/<name>.best.yaml"
        )
    try:
        _check_names(fields)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return fields


def _check_names(fields: dict) -> None:
    for name in fields:
        if name == "seed":
            raise ValueError(
                "'seed' is not for a file: the command says it (spml train --seed), a search counts its `seeds`"
            )
        if name not in _FIELDS:
            own = fields.get("method")
            if own in methods.names() and name in methods.defaults(own):
                raise ValueError(f"{name!r} is a parameter of {own}: write 'params.{name}'")
            raise ValueError(
                f"no field {name!r} of an experiment{_near(name, _FIELDS)} There are {_listed(_FIELDS)}"
            )


class _Loader(yaml.SafeLoader):
    pass


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def label(value):
    """A choice as Optuna stores it: a plain value, or JSON."""
    return value if value is None or isinstance(value, bool | int | float | str) else json.dumps(value)


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
        raise ValueError(f"no place {path!r} in {json.dumps(fields, default=str)}") from None
