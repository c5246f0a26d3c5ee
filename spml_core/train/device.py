"""Device and precision of a training; settings of the whole process are restored afterwards."""

from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor


def precision_on(device: torch.device, wanted: str = "auto") -> str:
    """Return the precision that "auto" means on a device; any other value is returned unchanged."""
    if wanted != "auto":
        return wanted
    if device.type != "cuda":
        return "32-true"
    return "bf16-mixed" if torch.cuda.is_bf16_supported(including_emulation=False) else "16-mixed"


def autocast(device: torch.device, precision: str):
    dtype = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}.get(precision)
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype)


def by_pixel(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x


@contextmanager
def threads(number: int | None):
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def tf32(allowed: bool):
    if not torch.cuda.is_available():
        yield
        return
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def name_of(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
