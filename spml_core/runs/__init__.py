"""Experiments and the runs they leave on disk: `run(Experiment(...))` loads a run, or trains it."""

from spml_core.runs.experiment import DEFAULTS, FORMAT, Experiment
from spml_core.runs.protocols import protocol
from spml_core.runs.record import Labels, Run, table, versions
from spml_core.runs.run import run, run_all

__all__ = [
    "DEFAULTS",
    "FORMAT",
    "Experiment",
    "Labels",
    "Run",
    "protocol",
    "run",
    "run_all",
    "table",
    "versions",
]
