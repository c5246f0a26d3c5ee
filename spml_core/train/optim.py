"""Optimizers: parameter groups, learning-rate schedule, gradient scaling, running average."""

import warnings

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from spml_core.methods import Method

PCT_START = 0.2  # of one_cycle, as in the released code of ASL and of Hill and SPLC


def optimizers(model: nn.Module, method: Method, config, device: torch.device) -> list[torch.optim.Optimizer]:
    """Return Adam over the model (`head` at its own rate) and the method's parameters, then the method's own optimizer.

    Biases, normalisation (as in the released code of Hill and SPLC) and the method's parameters have no weight decay.
    """
    head = {*model.head.parameters()} if config.head_lr_factor != 1 else set()
    groups: dict[tuple, list] = {}
    for p in model.parameters():
        lr = config.lr * (config.head_lr_factor if p in head else 1)
        groups.setdefault((lr, config.weight_decay if p.ndim > 1 else 0.0), []).append(p)
    groups = [{"params": p, "lr": lr, "weight_decay": decay} for (lr, decay), p in groups.items()]
    # With the fused kernel, the host need not read the gradients, not even with a scaler.
    groups += method.param_groups(config.lr)
    adam = torch.optim.Adam(groups, lr=config.lr, fused=device.type in ("cpu", "cuda"))
    own = method.own_optimizer(config.lr)
    return [adam] if own is None else [adam, own]


def schedule(adam: torch.optim.Optimizer, name: str, steps: int):
    """Return None for "constant"; for "one_cycle" a scheduler to be stepped exactly `steps` times.

    One cycle (Smith & Topin, 2019; Hill and SPLC, Sec. IV-A): the rate rises to `lr` over the first fifth and falls
    to nearly 0. Its length is that of the training, so a training that stops early never sees its end.
    """
    if name == "constant":
        return None
    rates = [group["lr"] for group in adam.param_groups]
    return torch.optim.lr_scheduler.OneCycleLR(adam, rates, total_steps=steps, pct_start=PCT_START)


def average(model: nn.Module, decay: float | None) -> AveragedModel | None:
    """Return a running average of weights and buffers over the steps, a <- decay a + (1 - decay) w (Hill and SPLC,
    IV-A)."""
    if decay is None:
        return None
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=True)


def warn_of_skipped(adam: torch.optim.Optimizer, taken_before: int, steps: int, epoch: int) -> int:
    """Warn if a scaler skipped many of an epoch's steps; return how many Adam has taken in all.

    At the start, a scaler finds its scale by skipping some steps and halving it each time, which is normal.
    """
    taken = max((int(state["step"]) for state in adam.state.values()), default=0)
    skipped = steps - (taken - taken_before)
    if skipped > max(3, steps // 20, 0 if taken_before else 16):  # it starts at 2**16
        warnings.warn(
            f"fp16: {skipped} of {steps} steps of epoch {epoch} were skipped because gradients overflowed: use "
            'precision="bf16-mixed" or "32-true", or a lower lr',
            stacklevel=3,
        )
    return taken
