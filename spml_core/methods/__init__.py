"""Methods: a loss plus whatever it needs over time (schedules, pseudo-labels, label estimates).

    method = build("gr", num_classes=20, num_examples=4574, b=(-2, -8))
    value = method(logits, observed, Step(epoch=1, num_epochs=8, index=index))

A method is an `nn.Module`: its parameters join the optimizer, its buffers follow `.to(device)`, its state is saved in
the checkpoint. To add one, decorate a class with `@register("name")`; `build`, the command line, the notebooks and the
loss lab find it there, and read everything specific to it from the class: `base.Method` lists what a class may define.
The keyword arguments of its loss are its hyperparameters, with their defaults.
"""

from spml_core.methods import (
    gr,
    large_loss,
    lasd,
    mime,
    pseudo,
    regularised,
    role,
    smile,
    stateless,
    trainable,
    unified,
)
from spml_core.methods.base import LossMethod, Method, Step
from spml_core.methods.digest import source_digest
from spml_core.methods.display import DATASETS
from spml_core.methods.registry import (
    available,
    build,
    defaults,
    get,
    names,
    preset,
    preset_source,
    preset_training,
    register,
)

__all__ = [
    "DATASETS", "LossMethod", "Method", "Step", "available", "build", "defaults", "get", "names", "preset",
    "preset_source", "preset_training", "register", "source_digest",
]  # fmt: skip
