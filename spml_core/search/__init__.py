"""Hyperparameter search with Optuna: a YAML file says what is fixed and what is tried."""

from spml_core import extra

with extra("notebooks"):
    from spml_core.search.space import Space, read
    from spml_core.search.study import SearchResult, search
