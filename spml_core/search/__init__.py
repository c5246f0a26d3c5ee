"""Hyperparameter search with Optuna: a YAML file says what is fixed and what is tried."""

from spml_core import extra

with extra("notebooks"):
    from spml_core.search.space import Range, Space, read

__all__ = ["Found", "Range", "Space", "read", "search"]


def __getattr__(name: str):
    if name not in ("Found", "search"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from spml_core.search import study  # loads Optuna, which `spml train --preset` does without

    return getattr(study, name)
