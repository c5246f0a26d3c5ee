"""Load data sets: `load("digits")`, `load("coco2014", root=...)`; labels are drawn by `spml_core.data.labels`.

Importing this package or its `labels` needs only torch and numpy; everything else is imported where it is used.
"""

import warnings
from collections.abc import Mapping
from importlib import import_module
from inspect import Parameter, signature

from spml_core import extra, words
from spml_core.data.dataset import DataError, Dataset, OptionError, Part

DATASETS = ("digits", "folder", "voc2012", "coco2014", "nuswide", "cub200", "openimages")


def load(name: str, /, *, val_is_train: bool = False, fold: list[int] | None = None, **options) -> Dataset:
    """Load a data set by name.

    Args:
        val_is_train: see `Dataset.with_train_as_val`.
        fold: [fold, folds]: hold out one fold of the training images, in place of the test images
            (`folds.hold_out`).
        options: arguments of `data.sets.<name>.read` and `assemble.assemble`; for `digits`, of its `load`.

    Raises:
        OptionError: unknown name (with the nearest ones) or unknown option.
        DataError: something is wrong with the files.
    """
    if has_files(name):
        from spml_core.data.assemble import assemble

        listing = read(name, **options)
        if name == "folder":  # for published data sets, `spml data check` reports them
            for text in listing.odd:
                warnings.warn(text, stacklevel=2)
        dataset = assemble(listing, **_taken_by(assemble, options))
    else:
        check(name, options)
        dataset = _module(name).load(**options)
    if fold is not None:
        from spml_core.data.folds import hold_out

        if len(fold) != 2:
            raise OptionError(f"option fold={fold}: expected [fold, folds], such as [0, 5]")
        dataset = hold_out(dataset, *fold)
    return dataset.with_train_as_val() if val_is_train else dataset


def read(name: str, /, **options):
    """Return the content of an image data set's label files, a `listing.Listing`.

    Args:
        options: as for `load`; those that are not about label files have no effect.

    Raises:
        OptionError: unknown name or option, or `digits` (which is generated, not read).
        DataError: something is wrong with the label files.
    """
    if not has_files(name):
        raise OptionError(f"data set {name!r} is generated when it is loaded: it has no files")
    check(name, options)
    function = _module(name).read
    return function(**_taken_by(function, options))


def has_files(name: str) -> bool:
    """Return whether the data set is read from files (and so has `read`), rather than generated."""
    return hasattr(_module(name), "read")


def check(name: str, options) -> None:
    """Raise `OptionError` for an unknown data set, an option it does not have, or a required option that is missing."""
    check_options(name, options)
    if required := required_options(name, options):
        how = f"spml train: --{required[0]} PATH; spml figures: -p {required[0]} PATH"
        raise OptionError(f"data set {name!r} needs {required[0]} ({how}).")


def required_options(name: str, options) -> list[str]:
    """Return the required options of data set `name` that are missing from `options`."""
    declared = _declared(name).items()
    return [k for k, parameter in declared if parameter.default is parameter.empty and k not in options]


def check_options(name: str, options) -> None:
    """Raise `OptionError` for an option that the data set does not have, or a value that is not of its type.

    Types are strict: text is not a number, and "no" is not false. A type may be a choice or a range of values.
    """
    with extra("notebooks"):
        from pydantic import TypeAdapter, ValidationError

    declared = _declared(name)
    if unknown := sorted(set(options) - set(declared)):
        hint = words.did_you_mean(unknown[0], declared, 1, 0.6)
        raise OptionError(
            f"data set {name!r} has no option {', '.join(unknown)}. It has: {', '.join(declared)}"
            f"{f'; {hint}' if hint else '.'}"
        )
    for option, value in options.items():
        try:
            TypeAdapter(declared[option].annotation).validate_python(value, strict=True)
        except ValidationError as error:
            reason = error.errors()[0]["msg"].replace("an instance of Sequence", "a list")
            raise OptionError(
                f"option {option} of data set {name!r} is {value!r}: {reason} "
                f"(spml train: -d {option} VALUE, where a value is true, false, null, a number, [a, list] or a word)."
            ) from None


def _module(name: str):
    """Return the module of a data set, or raise `OptionError` with the nearest names if there is none."""
    words.check_name("data set", name, DATASETS, OptionError)
    with extra("notebooks"):
        return import_module(f"spml_core.data.sets.{name}")


def _declared(name: str) -> dict[str, Parameter]:
    """Return the options that `load` takes for this data set, with their types."""
    if has_files(name):
        from spml_core.data.assemble import assemble

        takes = [_module(name).read, assemble, load]
    else:
        takes = [_module(name).load, load]
    found = {k: v for takes in takes for k, v in signature(takes, eval_str=True).parameters.items()}
    return {k: v for k, v in found.items() if k not in ("name", "options", "listing")}


def _taken_by(function, options: Mapping) -> dict:
    """Return the options that are arguments of a function."""
    return {name: value for name, value in options.items() if name in signature(function).parameters}
