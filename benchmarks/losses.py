"""Speed and memory of the losses: `python -m benchmarks.losses`, or as a part of `make benchmark`.

Machines are noisy, so each time is a ratio to torch's binary_cross_entropy_with_logits in the same process, measured
one after the other: forward + backward, reduction "mean", float32, median of pairs. One thread is timed by the
processor's clock, which other programs disturb little; several by the wall's, since they spin while they wait.
"""

import os
import platform
import statistics
import time

import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.profiler import ProfilerActivity, profile
from tqdm import tqdm

from spml_core import losses, methods

SHAPES = ((256, 80), (1024, 567))  # a COCO batch, a large Open Images batch
GR = {"w": 2.0, "b": -2.0, "mu": 0.8, "sigma": 0.5}
PARTS = ("focal_margin", "mse")  # losses that are no method
REQUIRED = {name: {"expected_positives": 2.9} for name in ("en", "epr", "role")}
EPOCH, EPOCHS = 6, 10  # Large Loss rejects the more labels the later it is
TARGET, TARGET_GR, TARGET_COMPILED, TARGET_RELEASED = 5, 3.5, 1.75, 7


def main():
    print(
        f"\nLosses and methods, forward + backward, relative to BCE with logits; epoch {EPOCH} of {EPOCHS}; torch "
        f"threads {torch.get_num_threads()}; {platform.machine()}, load {os.getloadavg()[0]:.1f}"
    )
    print(f"targets: gr {TARGET_GR}, gr compiled {TARGET_COMPILED}, every other {TARGET}, all at most")
    for shape in SHAPES:
        measured = {name: ratio(*trained(name, shape), shape) for name in methods.names()}
        measured |= {name: ratio(getattr(losses, name), {}, shape) for name in PARTS}
        # LASD compares three views: as many logits are the fair baseline, those of one view what a step costs more
        loss, options = trained("lasd", shape)
        measured["lasd"] = ratio(loss, options, shape, views=3, baseline_views=3)
        for name, times in measured.items():
            print(f"  {name:14}{shape[0]:5} x {shape[1]:<4} {times:5.2f} x")
        views = ratio(loss, options, shape, views=3)
        print(f"  (lasd: three views against BCE of three, as the others; against BCE of one {views:.2f} x)")
        frame = measured.pop(
            "unified"
        )  # any parts, differentiated by autograd: no loss of its own, and not judged
        print(
            f"  (unified is GR's frame for any parts, {frame:.2f} x: what a loss gains by a formula of its own)"
        )
        slow = [n for n, times in measured.items() if times > (TARGET_GR if n == "gr" else TARGET)]
        print(f"  {len(slow)} of {len(measured)} above their target: {', '.join(slow) or 'none'}")
        whole = torch.compile(losses.gr, dynamic=False)
        for name, function in (
            ("losses.compiled(gr)", losses.compiled(losses.gr)),
            ("torch.compile(gr)", whole),
        ):
            print(f"  {name:20}{shape[0]:5} x {shape[1]:<4} {ratio(function, GR, shape):5.2f} x")
        slower = ratio(released_gr, GR, shape, baseline=lambda z, s: losses.gr(z, s, **GR))
        print(
            f"  {'gr, released style':19}{shape[0]} x {shape[1]:<4} {slower:5.2f} times gr (target: at least "
            f"{TARGET_RELEASED} at {SHAPES[1][0]} x {SHAPES[1][1]})"
        )
        tensors = peak_memory(losses.gr, GR, shape)
        print(
            f"  gr, peak memory beyond input and gradient: {tensors:.1f} tensors of its size (target: at most 4)"
        )


def trained(name: str, shape: tuple[int, int]):
    """A method in the middle of a training as a function of logits and labels, and what else to call it with."""
    num_examples, num_classes = shape
    method = methods.build(name, num_classes, num_examples, **REQUIRED.get(name, {}))
    method.start(torch.nn.Linear(1, num_classes), batch(shape)[1])
    return method, {"step": methods.Step(EPOCH, EPOCHS, torch.arange(num_examples))}


def ratio(
    loss,
    parameters: dict,
    shape: tuple[int, int],
    pairs=60,
    baseline=binary_cross_entropy_with_logits,
    views=1,
    baseline_views=1,
) -> float:
    """Median over pairs of (time of loss) / (time of baseline), measured one after the other.

    With views, the loss gets logits (views, N, C), the baseline `baseline_views` of them as further images.
    """
    logits, observed = batch(shape)
    several = torch.stack([logits.detach()] * views).requires_grad_() if views > 1 else logits
    base = logits.detach().repeat(baseline_views, 1).requires_grad_()
    claimed = observed.repeat(baseline_views, 1)
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter

    def seconds(function, z, labels, **options):
        z.grad = None
        start = clock()
        function(z, labels, **options).backward()
        return clock() - start

    def once():
        return seconds(loss, several, observed, **parameters) / seconds(baseline, base, claimed)

    for _ in range(5):
        once()
    return statistics.median(once() for _ in tqdm(range(pairs), leave=False, disable=None))


def batch(shape: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Random logits, and one observed positive an image on average."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=generator).requires_grad_()
    return logits, (torch.rand(shape, generator=generator) < 1 / shape[1]).float()


def peak_memory(loss, parameters: dict, shape: tuple[int, int]) -> float:
    """Peak of forward + backward beyond input and gradient, in tensors of the input's size.

    The profiler reports each allocation and release of torch's CPU memory; tracemalloc sees Python's alone.
    """
    logits, observed = batch(shape)
    loss(logits, observed, **parameters).backward()
    logits.grad = None
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        loss(logits, observed, **parameters).backward()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak / (logits.numel() * logits.element_size()) - 1


def released_gr(logits, observed, *, w, b, mu, sigma, q2=0.01, q3=1.0):
    """GR in the style of the field's released code: probabilities, powers of them, a boolean mask at each use."""
    p = torch.sigmoid(logits)
    loss = torch.zeros_like(p)
    k = (1 / (1 + torch.exp(-(w * p + b)))).detach()
    v = torch.exp(-((p - mu) ** 2) / (2 * sigma**2)).detach()
    loss[observed == 1] = -torch.log(p[observed == 1] + 1e-7)
    loss[observed == 0] = v[observed == 0] * (
        k[observed == 0] * (1 - torch.pow(p[observed == 0], q2)) / q2
        + (1 - k[observed == 0]) * (1 - torch.pow(1 - p[observed == 0], q3)) / q3
    )
    return loss.mean()


if __name__ == "__main__":
    main()
