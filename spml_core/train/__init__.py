"""The trainer: `fit` trains a model with a method, keeps the best epoch, and resumes exactly after an interruption."""

from spml_core import extra

with extra("notebooks"):
    from spml_core.train.config import Training
    from spml_core.train.loop import Abandoned, fit
    from spml_core.train.predict import predict
    from spml_core.train.state import Trainer, score
