"""Losses, trainer, label protocol and data sets for single-positive multi-label learning.

Importing this package loads none of its modules: import the one you need, for example ``from spml_core import losses``.
"""

from contextlib import contextmanager

__version__ = "0.1.0"


class MissingExtra(ModuleNotFoundError):
    """Raised if a package is missing that one of the extras in pyproject.toml installs."""


@contextmanager
def extra(name: str, pinned: bool = True):
    """Raise `MissingExtra`, which says how to install it, if imports in the block lack a package of the extra.

    Args:
        pinned: whether constraints.txt has the versions of its packages.
    """
    try:
        yield
    except MissingExtra:
        raise
    except ModuleNotFoundError as error:
        if (error.name or "spml_core").partition(".")[0] == "spml_core":
            raise
        raise MissingExtra(
            f"{error.name} is not installed. It belongs to the extra {name!r}: in a clone of the project, "
            f"pip install {'--constraint constraints.txt ' * pinned}'.[{name}]'",
            name=error.name,
        ) from error
