"""Checks that every loss must pass, be it a registered method or a function of logits and observed labels.

for finding in check(losses.gr, ...):
    print(finding.check, finding.passed, finding.found)
"""

from __future__ import annotations

import copy
import inspect
import statistics
import textwrap
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.overrides import TorchFunctionMode

from spml_core.losses.common import REDUCTIONS
from spml_core.methods.base import Method, Step
from spml_core.methods.registry import get

EPOCHS, SEEN = 10, (1, 5, 9, 10)  # number of epochs, and those in which a method sees the batch
SLOWEST, SHAPE = 8, (1024, 567)  # times BCE, on a large Open Images batch
NOISE = 1.25  # a measured time fails only this far above the limit, so that the verdict does not flip
SIZES = (0, 1e-4, 17, 18, 20, 40, 80, 90, 104, 110, 120, 1e3, 1e4)
NEAR = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1e-2}


class Finding(NamedTuple):
    """The result of one check: its name, whether it passed, and what was found."""

    check: str
    passed: bool
    found: str


class Failed(Exception):
    """Raised when a check does not pass; the message says what was found."""


def check(loss: str | Callable[..., Tensor], only: Iterable[str] | None = None) -> list[Finding]:
    """Return what each check found.

    Args:
        loss: a registered name; or `loss(logits, observed, reduction="mean")`, like those of `spml_core.losses`. It
            receives floating-point logits (N, C) and int8 labels (N, C): 1, 0 or -1.
        only: names of `CHECKS`; None = all.
    """
    return list(findings(loss, only))


def findings(loss: str | Callable[..., Tensor], only: Iterable[str] | None = None) -> Iterator[Finding]:
    """Yield the findings of `check` one by one. If "call" fails, nothing comes after it."""
    subject = Subject(loss)
    for name in CHECKS if only is None else only:
        yield (finding := _finding(name, subject))
        if name == "call" and not finding.passed:
            return


def _finding(name: str, subject: Subject) -> Finding:
    try:
        with torch.enable_grad():  # a loss that raises may leave gradients switched off
            return Finding(name, True, CHECKS[name](subject) or "")
    except Failed as failure:
        return Finding(name, False, str(failure))
    except Exception as error:  # a loss under test may raise anything
        return Finding(name, False, _raised(error))


def _raised(error: Exception) -> str:
    """Return an exception as one short line; one without a text is shown by its line of code."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = str(error) or f"{place.line} ({Path(place.filename).name}, line {place.lineno})"
    return f"{type(error).__name__}: {textwrap.shorten(text, 120, placeholder=' ...')}"


class Subject:
    """A method in its last epoch, after seeing the same batch in earlier ones; a function becomes a plain method.

    If it compares views, all but the first have logits of half the size. Required hyperparameters are set to 1.5.
    """

    def __init__(self, loss: str | Callable[..., Tensor]):
        self.named = isinstance(loss, str)
        self.cls = get(loss) if self.named else type("Mine", (Method,), {"loss": staticmethod(_signed(loss))})
        self.required = dict.fromkeys(self.cls.requires, 1.5)

    def ready(self, logits: Tensor, observed: Tensor, images=None, classes=None) -> _Last:
        """Return the method as a function of logits, observed labels and, by keyword, the reduction.

        Args:
            images, classes: their order in the batch; the state of the method is put into the same order.
        """
        device = logits.device
        num, width = observed.shape
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            method = self.cls(width, num, **self.required)
        if classes is not None:
            with torch.no_grad():
                for state in [*method.parameters(), *method.buffers()]:
                    if state.ndim and state.shape[-1] == width:
                        state.copy_(state[..., classes].clone())
        method.to(device)
        index = (torch.arange(num) if images is None else images).to(device)
        *earlier, last = (_Last(method, Step(epoch, EPOCHS, index)) for epoch in SEEN)
        if device.type != "meta" and self.named:
            with torch.no_grad():
                for seen in earlier:
                    seen(logits, observed)
        return last


def _signed(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the loss as a function whose signature says whether it has a reduction."""
    loss = loss.forward if isinstance(loss, torch.nn.Module) else loss
    try:
        inspect.signature(loss)
    except ValueError:
        return lambda logits, observed: loss(logits, observed)
    return loss


class _Last(NamedTuple):
    """A method at one step."""

    method: Method
    step: Step

    def __call__(self, z: Tensor, y: Tensor, reduction: str | None = None) -> Tensor:
        views = self.method.views
        first = z if reduction is None else z.clone()
        value = self.method(first if views == 1 else torch.stack([z, *[z / 2] * (views - 1)]), y, self.step)
        return value if reduction is None else self.method.label_loss(self.step)(z, y, reduction=reduction)

    def reduces(self) -> bool:
        if not self.method.has_label_loss():
            return False
        parameters = inspect.signature(self.method.label_loss(self.step)).parameters.values()
        return any(p.name == "reduction" or p.kind is p.VAR_KEYWORD for p in parameters)


def _batch(num_images=6, num_classes=5, dtype=torch.float64) -> tuple[Tensor, Tensor]:
    """Return logits of typical size, and labels with one or two positives per image and a few verified negatives."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(num_images, num_classes, generator=generator, dtype=torch.float64)
    place = (2 * torch.arange(num_images)[:, None] + torch.arange(num_classes)) % 7
    return logits.to(dtype), (place % 6 == 0).to(torch.int8) - (place == 3).to(torch.int8)


def _value_and_grad(subject, logits: Tensor, observed: Tensor, **order) -> tuple[Tensor, Tensor]:
    """Return the loss of a batch, whatever shape it has, and the gradient of its mean."""
    logits = logits.detach().clone().requires_grad_()
    loss = subject.ready(logits.detach().clone(), observed.clone(), **order)
    value = loss(logits.clone(), observed.clone())  # copies, for a loss that works in place
    if not isinstance(value, Tensor):
        raise Failed(f"returns a {type(value).__name__}: return the loss alone, a tensor")
    if not value.requires_grad:
        raise Failed("the loss has no gradient with respect to the logits: is it computed without autograd?")
    (grad,) = torch.autograd.grad(value.float().mean() if value.ndim else value, logits)
    return value.detach(), grad


def _finite(subject, logits: Tensor, observed: Tensor) -> None:
    value, grad = _value_and_grad(subject, logits, observed)
    for name, found in (("value", value), ("gradient", grad)):
        if bad := int((~found.isfinite()).sum()):
            places = (~(found if found.shape == logits.shape else grad).isfinite()).nonzero()
            where = ""
            if len(places):
                n, c = places[0].tolist()
                where = f", first at logit {logits[n, c].item():g} with label {int(observed[n, c])}"
            raise Failed(
                f"{str(logits.dtype).removeprefix('torch.')}: {bad} of {found.numel()} entries of the {name} "
                f"are not finite{where}"
            )


def _near(what: str, got: Tensor, expected: Tensor, rtol: float, atol: float) -> float:
    """Return the largest difference. Raises Failed if one exceeds `atol` + `rtol` times the expected value."""
    difference = (got.double() - expected.double()).abs()
    if not (difference <= atol + rtol * expected.double().abs()).all():
        raise Failed(f"{what}: off by up to {difference.max():.2g}")
    return difference.max().item() if difference.numel() else 0.0


def _call(subject) -> None:
    """Call the loss once, so that one cause is one row."""
    logits, observed = _batch(dtype=torch.float32)
    try:
        _value_and_grad(subject, logits, observed)
    except Failed:
        raise
    except Exception as error:
        given = "float32 logits and int8 labels 1, 0, -1, both (6, 5)"
        raise Failed(f"{_raised(error)}; it was called with {given}") from error


def _extreme_logits(subject) -> str:
    """Rows of three equal logits, and rows that mix extremes of either sign: differences of logits are extreme too."""
    sizes = torch.tensor(SIZES)
    for dtype in NEAR:
        for signs in ([1, 1, 1], [1, -1, 0]):
            logits = (torch.cat([sizes, -sizes])[:, None] * torch.tensor(signs)).to(dtype)
            for labels in ([1, 0, -1], [1, 0, 0]):
                _finite(subject, logits, torch.tensor(labels, dtype=torch.int8).repeat(len(logits), 1))
    return "finite up to |z| = 1e4 in float32, float16, bfloat16"


def _half_precision(subject) -> str:
    """Compare the loss in three dtypes with that of the same numbers in float64."""
    for dtype, near in NEAR.items():
        logits, observed = _batch(dtype=dtype)
        value, grad = _value_and_grad(subject, logits, observed)
        if value.dtype != torch.float32:
            raise Failed(f"{dtype} logits give {value.dtype}: compute the loss in float32")
        exact, slope = _value_and_grad(subject, logits.double(), observed)
        name = str(dtype).removeprefix("torch.")
        _near(f"value in {name}", value, exact, 1e-4, 1e-5)
        _near(f"gradient in {name}", grad, slope, near, near * slope.abs().max().item())
    return "equal to float64 of the same logits"


def _odd_batches() -> dict[str, list[tuple[Tensor, Tensor]]]:
    """Return the batches on which a loss must be finite, by the name of the check."""
    logits, observed = _batch()
    many, theirs = _batch(12, 8)
    return {
        "one image": [_batch(1)],
        "no positive": [(logits, torch.zeros_like(observed))],
        "all positive": [(logits, torch.ones_like(observed))],
        "all verified negative": [(logits, -torch.ones_like(observed))],
        "constant logits": [(torch.full(logits.shape, value), observed) for value in (0.0, -3.0, 100.0)],
        "ties": [((many / 3).round().float(), theirs)],
    }


def _finite_on(subject, batches: list[tuple[Tensor, Tensor]]) -> None:
    for batch in batches:
        _finite(subject, *batch)


def _permutation(subject, axis: int) -> None:
    logits, observed = _batch()
    value, grad = _value_and_grad(subject, logits, observed)
    order = torch.randperm(logits.shape[axis], generator=torch.Generator().manual_seed(1))
    moved = [t.index_select(axis, order) for t in (logits, observed)]
    other, other_grad = _value_and_grad(subject, *moved, **{("images", "classes")[axis]: order})
    if value.ndim:
        value, other = value.mean(), other.mean()
    rtol, atol = (1e-9, 1e-12) if value.dtype == torch.float64 else (1e-5, 1e-6)
    grad = grad.index_select(axis, order)
    _near("value", other, value, rtol, atol)
    _near("gradient", other_grad, grad, rtol, atol * max(1, grad.abs().max().item()))


def _repeated_call(subject) -> None:
    logits, observed = _batch()
    first, again = (_value_and_grad(subject, logits, observed) for _ in range(2))
    if not all(torch.equal(a, b) for a, b in zip(first, again, strict=True)):
        raise Failed("the same batch gives a different value or gradient the second time")
    given = logits.clone(), observed.clone()
    subject.ready(*given)(*given)
    for name, before, after in zip(("logits", "labels"), (logits, observed), given, strict=True):
        if not torch.equal(before, after):
            raise Failed(f"it changes the {name} passed to it")


def _verified_negatives(subject) -> str:
    """A verified negative with p >= 1/2 must not be made more likely."""
    logits, observed = _batch()
    verified = observed == -1
    _, grad = _value_and_grad(subject, torch.where(verified, logits.abs(), logits), observed)
    if (grad[verified] < -1e-9).any():
        raise Failed(f"a verified negative (-1) is pushed up: gradient {grad[verified].min():.2g}")
    return "never pushed up"


def _reduction(subject) -> str:
    logits, observed = _batch(16, 80, torch.float32)
    loss = subject.ready(logits, observed)
    value = loss(logits.clone(), observed)
    if value.ndim:
        raise Failed(f"returns shape {tuple(value.shape)}: reduce it to a scalar, the mean over N*C")
    if not loss.reduces():
        if not subject.named:
            raise Failed(f"its signature has no argument reduction, one of {', '.join(REDUCTIONS)}")
        return "a scalar; no label-by-label form"
    # A method may change its state at each call, so each call gets a copy of the same state.
    mean, total, none = (copy.deepcopy(loss)(logits.clone(), observed, reduction=r) for r in REDUCTIONS)
    if none.shape != logits.shape:
        raise Failed(f'reduction="none" has shape {tuple(none.shape)}, not {tuple(logits.shape)}')
    _near('"mean" is not the mean of "none"', mean, none.mean(), 1e-5, 1e-7)
    _near('"sum" is not N*C times "mean"', total, none.numel() * mean, 1e-4, 1e-4)
    if not subject.named:
        _near('"mean" is not the default', value, mean, 1e-6, 1e-9)
    try:
        loss(logits, observed, reduction="average")
    except Exception:  # of any type
        return "mean, sum and none agree"
    raise Failed('reduction="average" raises no error')


class _Held(TorchFunctionMode):
    """Replays what a first pass computed without gradient, so that finite differences see what autograd sees."""

    STOPS = ("detach", "item", "tolist", "__float__", "__bool__")

    def __init__(self):
        super().__init__()
        self.kept, self.next = [], None

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        stops = name in self.STOPS or func is torch.Tensor.data.__get__ or not torch.is_grad_enabled()
        in_place = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
        if not stops or in_place or "grad_enabled" in name:
            return func(*args, **(kwargs or {}))
        if self.next is None:
            self.kept.append(func(*args, **(kwargs or {})))
            return self.kept[-1]
        self.next += 1
        return self.kept[self.next - 1]


def _finite_differences(subject) -> str:
    """Compare the gradient with central differences in which everything without gradient is held fixed."""
    logits, observed = _batch()
    loss = subject.ready(logits, observed)
    held = _Held()

    def value(z: Tensor) -> Tensor:
        call = copy.deepcopy(loss)
        with held:
            found = call(z.clone(), observed)
        return found.mean() if found.ndim else found

    z = logits.clone().requires_grad_()
    center = value(z)
    (grad,) = torch.autograd.grad(center, z)
    # The rounding of a float32 value, divided by the step, must stay below the tolerance.
    fine = center.dtype == torch.float64
    step, rtol, atol, least = (1e-6, 1e-5, 1e-6, 1) if fine else (1e-2, 1e-2, 3e-3, 0)
    slopes = torch.zeros_like(logits)
    for n, c in torch.cartesian_prod(*map(torch.arange, logits.shape)).tolist():
        sides = []
        for sign in (1, -1):
            held.next = 0
            z = logits.clone()
            z[n, c] += sign * step
            sides.append(value(z.requires_grad_()).item())
        slopes[n, c] = (sides[0] - sides[1]) / (2 * step)
    worst = _near("gradient", grad, slopes, rtol, atol * max(least, slopes.abs().max().item()))
    return f"within {worst:.1g} of central differences"


def _meta_device(subject) -> None:
    logits = torch.empty(4, 3, device="meta", requires_grad=True)
    observed = torch.empty(4, 3, device="meta", dtype=torch.int8)
    try:
        value = subject.ready(logits, observed)(logits.clone(), observed)
        value.sum().backward()
    except NotImplementedError as error:
        raise Failed(f"it needs values, by a boolean index, .item() or the like: {_raised(error)}") from error
    if value.device.type != "meta" or logits.grad.shape != (4, 3):
        raise Failed("the value or the gradient is on another device")


def warm_allocator() -> None:
    """Make the C library keep freed memory, as it does in a longer training, instead of fetching it anew each time."""
    torch.empty(6_000_000)  # 24 MB, freed at once: glibc then keeps blocks up to this size


def _speed(subject) -> str:
    warm_allocator()
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(SHAPE, generator=generator).requires_grad_()
    observed = (torch.rand(SHAPE, generator=generator) < 1 / SHAPE[1]).to(torch.int8)
    claimed = observed.float()
    loss = subject.ready(logits.detach(), observed)
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter

    def seconds(function, labels) -> float:
        logits.grad = None
        given = logits.clone()
        start = clock()
        function(given, labels).mean().backward()
        return clock() - start

    limit, ratios = SLOWEST * subject.cls.views, []
    for _ in range(9):
        ratios.append(seconds(loss, observed) / seconds(binary_cross_entropy_with_logits, claimed))
        if len(ratios) == 2 and min(ratios) > 4 * limit:
            break
    times = statistics.median(ratios) / subject.cls.views
    found = f"{times:.2f} times BCE at {SHAPE[0]} x {SHAPE[1]}, limit {SLOWEST} and {NOISE - 1:.0%} for noise"
    if times > SLOWEST * NOISE:
        raise Failed(found)
    return found


CHECKS: dict[str, Callable] = {
    "call": _call,
    "extreme logits": _extreme_logits,
    **{name: partial(_finite_on, batches=batches) for name, batches in _odd_batches().items()},
    "order of images": partial(_permutation, axis=0),
    "order of classes": partial(_permutation, axis=1),
    "repeated call": _repeated_call,
    "verified negatives": _verified_negatives,
    "reduction": _reduction,
    "finite differences": _finite_differences,
    "half precision": _half_precision,
    "meta device": _meta_device,
    "speed": _speed,
}
