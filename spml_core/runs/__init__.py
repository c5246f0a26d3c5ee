"""Experiments and the runs they leave on disk: `run(Experiment(...))` loads a run, or trains it."""

from spml_core import extra

with extra("notebooks"):
    from spml_core.runs.experiment import FORMAT, Experiment
    from spml_core.runs.export import export
    from spml_core.runs.protocols import DEFAULTS, protocol
    from spml_core.runs.record import Labels, Run, find, table, versions
    from spml_core.runs.run import run, run_all
