"""The trainer: `fit` trains a model with a method, keeps the best epoch, and resumes exactly after an interruption."""

from spml_core.train.config import ACCELERATORS, PRECISIONS, Training
from spml_core.train.loop import Abandoned, Fitted, fit
from spml_core.train.predict import predict
from spml_core.train.state import Names

__all__ = ["ACCELERATORS", "PRECISIONS", "Abandoned", "Fitted", "Names", "Training", "fit", "predict"]
