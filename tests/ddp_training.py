"""Trainings that `test_ddp.py` starts with one process and two: `python ddp_training.py FOLDER [run or resume]`."""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from spml_core import train
from spml_core.data.sets import digits
from spml_core.methods import build, names
from spml_core.runs import Experiment, Run, run  # noqa: F401
from spml_core.train import Training, distributed, fit

NUM, WIDTH, CLASSES = 23, 6, 4  # neither 23 nor its batches of 5 divide by two
NEEDED = {name: {"expected_positives": 1.5} for name in ("role", "epr", "en")} | {
    "ll_cp": {"delta": 0.1},
    "em_apl": {"warmup": 1},
    "lasd": {"alpha": 0.0},  # its views are drawn by each process
}
OPTIONS = {
    "accumulated": {"accumulate": 2},
    "averaged": {"ema": 0.8, "schedule": "one_cycle", "weight_decay": 0.01},
    "head first": {"linear_init": 1, "head_lr_factor": 10},
}


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = nn.Linear(WIDTH, 8), nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(torch.tanh(self.backbone(x)))


def rows():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(NUM, WIDTH, generator=generator)
    observed = torch.zeros(NUM, CLASSES, dtype=torch.int8)
    observed[torch.arange(NUM), torch.randint(CLASSES, (NUM,), generator=generator)] = 1
    return inputs, observed


def trained(method: str, folder: Path | None = None, **options):
    torch.manual_seed(0)
    inputs, observed = rows()
    config = Training(
        **{"epochs": 3, "batch_size": 5, "lr": 0.01, "accelerator": "cpu", "threads": 1, **options}
    )
    place = folder
    built = build(method, CLASSES, NUM, **NEEDED.get(method, {}))
    val = (inputs, observed.numpy())
    return fit(Small(), built, (inputs, observed), val, config, checkpoints=place, progress=False)


def tensors(fitted) -> dict[str, torch.Tensor]:
    parts = {"model": fitted.model.state_dict(), "method": fitted.method.state_dict()}
    found = {f"{part}.{name}": value for part, state in parts.items() for name, value in state.items()}
    found["losses"] = torch.tensor([row["train_loss"] for row in fitted.history[1:]])
    return found | {"logits": torch.from_numpy(fitted.val_logits[-1])}


def everything() -> dict[str, dict[str, torch.Tensor]]:
    found = {name: tensors(trained(name)) for name in names()}
    return found | {title: tensors(trained("gr", **options)) for title, options in OPTIONS.items()}


def small_run(root: Path):
    """Make a whole run from every process, and then load it."""
    digits.SIZES.update({"train": 60, "val": 30, "test": 31})
    wanted = Experiment(
        method="role", params={"expected_positives": 1.5}, epochs=2, batch_size=20, accelerator="cpu"
    )
    found = [run(wanted, root=root, progress=False) for _ in range(2)]
    assert found[0].path == found[1].path
    return found[0]


class Stop(BaseException):
    pass


def interrupted(folder: Path):
    """Interrupt a training in its second epoch, then resume it."""
    step = train.Trainer.step

    def stopping(work):
        if work.epoch == 2:
            raise Stop
        step(work)

    train.Trainer.step = stopping
    try:
        trained("role", folder / "checkpoints")
    except Stop:
        train.Trainer.step = step
    return trained("role", folder / "checkpoints")


if __name__ == "__main__":
    folder, what = Path(sys.argv[1]), sys.argv[2:]
    if what == ["run"]:
        small_run(folder / "runs")
    else:
        found = {"resumed": tensors(interrupted(folder))} if what == ["resume"] else everything()
        for name, state in found.items():
            if distributed.rank() == 0:
                save_file({k: v.contiguous() for k, v in state.items()}, folder / f"{name}.safetensors")
