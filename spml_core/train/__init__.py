"""The trainer: `fit` trains a model with a method, keeps the best epoch, and resumes exactly after an interruption."""

from spml_core import extra

with extra("notebooks"):
    from spml_core.train.config import PRECISIONS, Training
    from spml_core.train.loop import Abandoned, fit
    from spml_core.train.predict import predict
    from spml_core.train.state import Names, Trainer

__all__ = ["PRECISIONS", "Abandoned", "Names", "Trainer", "Training", "fit", "predict"]
