"""Train with several processes: each computes the logits of its share of a batch, and all see the loss of the whole.

`fabric run` or `torchrun` starts the processes; lightning-fabric and torch.distributed do the work. The logits of all
shares are gathered with their gradient, and every process computes the loss and the method's state from the whole
batch. So whatever a method keeps about the data set (label estimates, recorded predictions, corrections) is the same
in every process, and the same as with a single process. `batch_size` is the size of the whole batch, however many
processes there are.

Exact up to rounding: every method, its state, weight decay, accumulation, weight averages, networks without batch norm.
Not exact: on CPUs, batch norm uses the statistics of each process's share (on GPUs it is synchronised), and if the
last batch does not divide evenly, a few images count twice in them. Random flips, views and dropout are drawn by each
process.
"""

import os

import torch
from torch import Tensor


def rank() -> int:
    return int(os.environ.get("RANK", 0))


def world_size() -> int:
    return int(os.environ.get("WORLD_SIZE", 1))


def fabric(accelerator: str = "auto", precision: str = "32-true"):
    """Return the `Fabric` of this process: one device, or its part of what `fabric run` or `torchrun` started."""
    from lightning_fabric import Fabric  # has PyTorch ask NVML for GPUs, see below

    if not torch.cuda.is_available():
        # An optimizer asks at every step, and the search for NVML on disk takes 2 to 5 % of a small training.
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "0"
    local = int(os.environ.get("LOCAL_WORLD_SIZE", world_size()))
    devices = {"accelerator": accelerator, "devices": local, "num_nodes": world_size() // local}
    found = Fabric(**devices, strategy="ddp" if world_size() > 1 else "auto", precision=precision)
    if world_size() > 1 and os.environ.get("LT_CLI_USED") != "1":  # `fabric run` has launched it already
        found.launch()
    return found


def start(accelerator: str = "auto") -> None:
    """Let the processes find each other, if there are several."""
    if world_size() > 1 and not torch.distributed.is_initialized():
        fabric(accelerator)


def share(index: Tensor) -> Tensor:
    """Return this process's part of a batch; all parts have the same length, so some rows may appear twice."""
    if world_size() == 1:
        return index
    length = -(-len(index) // world_size())
    return index[torch.arange(length * world_size()) % len(index)].chunk(world_size())[rank()]


def gather(logits: Tensor, num: int) -> Tensor:
    """Return the logits (..., N, C) of a whole batch of `num` rows from the shares of all processes.

    The gradient reaches this process's share, multiplied by the number of processes: the mean that DDP takes of the
    processes' gradients is then their sum, that of the whole batch.
    """
    if world_size() == 1:
        return logits
    shares = [torch.empty_like(logits) for _ in range(world_size())]
    torch.distributed.all_gather(shares, logits.detach().contiguous())
    if logits.requires_grad:
        logits.register_hook(lambda grad: grad * world_size())
    shares[rank()] = logits
    return torch.cat(shares, -2)[..., :num, :]


def gather_objects(item) -> list:
    """Return one item from each process, in their order."""
    if world_size() == 1:
        return [item]
    items = [None] * world_size()
    torch.distributed.all_gather_object(items, item)
    return items


def broadcast(item):
    """Return the item of the first process."""
    return gather_objects(item)[0]
