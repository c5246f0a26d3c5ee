"""Losses, trainer, label protocol and data sets for single-positive multi-label learning.

Nothing happens on import: import the module you need, for example ``from spml_core import losses``.
"""

from contextlib import contextmanager

__version__ = "0.1.0"


class MissingExtra(ModuleNotFoundError):
    """A package is missing that one of the extras in pyproject.toml installs."""


@contextmanager
def extra(name: str):
    """Around imports: raise `MissingExtra`, which says how to install it, if a package of the extra is missing."""
    try:
        yield
    except MissingExtra:
        raise
    except ModuleNotFoundError as error:
        if (error.name or "spml_core").partition(".")[0] == "spml_core":
            raise
        raise MissingExtra(
            f"{error.name} is not installed. It belongs to the extra {name!r}: in a clone of the project, "
            f"pip install --constraint constraints.txt '.[{name}]'",
            name=error.name,
        ) from error
