"""Speed and memory of the losses: `python -m benchmarks.losses`, or as a part of `make benchmark`.

Machines are noisy, so each time is a ratio to torch's binary_cross_entropy_with_logits in the same process, measured
one after the other: forward + backward, reduction "mean", float32, median of pairs. One thread is timed by the
processor's clock, which other programs disturb little; several by the wall's, since they spin while they wait.
Labels are int8, as in the trainer.
"""

import os
import platform
import statistics
import time

import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.profiler import ProfilerActivity, profile
from tqdm import tqdm

from spml_core import losses
from spml_core.methods.checks import warm_allocator

SHAPES = ((256, 80), (1024, 567))  # a COCO batch, a large Open Images batch
GR = {"w": 2.0, "b": -2.0, "mu": 0.8, "sigma": 0.5}
REQUIRED = {"gr": GR, "epr": {"expected_positives": 2.9}, "lasd": {"lambda_minus": 0.02}}
PURE = (
    "an", "an_ls", "asl", "asl_ps", "bce", "dw", "em", "en", "em_apl", "ent_min", "epr", "fm_splc", "focal",
    "focal_margin", "gr", "hill", "iu", "iun", "lasd", "ll_ct", "ll_r", "mse", "n_ls", "pr", "pseudo_label",
    "pu_mlc", "role", "splc", "two_way", "wan",
)  # fmt: skip
EAGER, COMPILED = 6, 2  # at most, of every loss
GR_EAGER, GR_COMPILED = 3.5, {SHAPES[0]: 1.4, SHAPES[1]: 1.1}


def main():
    print(
        f"\nLosses, forward + backward, relative to BCE with logits; torch threads {torch.get_num_threads()}; "
        f"{platform.machine()}, load {os.getloadavg()[0]:.1f}"
    )
    for shape in SHAPES:
        print(f"{shape[0]} x {shape[1]}{'eager':>19}{'target':>8}{'compiled':>10}{'target':>8}")
        late = []
        for name in PURE:
            targets = (GR_EAGER, GR_COMPILED[shape]) if name == "gr" else (EAGER, COMPILED)
            torch._dynamo.reset()
            loss = on_labels(name, shape)
            times = ratio(loss, shape), ratio(losses.compiled(loss), shape)
            print(f"  {name:14}{times[0]:12.2f}{targets[0]:8}{times[1]:10.2f}{targets[1]:8}")
            late += [name for t, target in zip(times, targets, strict=True) if t > target]
        print(f"  above a target: {', '.join(dict.fromkeys(late)) or 'none'}")
        print(
            f"  gr, peak memory beyond input and gradient: {peak_memory(on_labels('gr', shape), shape):.1f} tensors"
        )


def on_labels(name: str, shape: tuple[int, int], device: str = "cpu"):
    """Return a loss as a function of logits and labels, with all else that it needs."""
    loss, options = getattr(losses, name), REQUIRED.get(name, {})
    some = torch.rand(shape, generator=torch.Generator(device).manual_seed(1), device=device) < 0.2
    if name == "role":
        estimates = torch.zeros(shape, device=device, requires_grad=True)
        return lambda z, y: loss(z, estimates, y, expected_positives=2.9)
    if name in ("en", "pseudo_label"):
        return lambda z, y: loss(z, y, some)
    if name == "em_apl":
        return lambda z, y: loss(z, y, 0.1 * some)
    if name in ("ll_r", "ll_ct"):
        options = {"k": some.numel() // 50}
    return lambda z, y: loss(z, y, **options)


def ratio(loss, shape: tuple[int, int]) -> float:
    """Return the median over pairs of (time of loss) / (time of BCE with logits), measured in alternation."""
    return statistics.median(own / other for own, other in times(loss, shape))


def times(loss, shape: tuple[int, int], pairs=60, device: str = "cpu") -> list[tuple[float, float]]:
    """Return pairs of seconds, of a loss and of BCE with logits."""
    logits, observed = batch(shape, device)
    one_thread = device == "cpu" and torch.get_num_threads() == 1

    def clock() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.process_time() if one_thread else time.perf_counter()

    def seconds(function, labels):
        logits.grad = None
        start = clock()
        function(logits, labels).backward()
        return clock() - start

    def once():
        return seconds(loss, observed), seconds(binary_cross_entropy_with_logits, claimed)

    claimed = observed.float()
    warm_allocator()
    for _ in range(5):
        once()
    return [once() for _ in tqdm(range(pairs), leave=False, disable=None)]


def batch(shape: tuple[int, int], device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    """Return random logits, and one observed positive per image on average."""
    options = {"generator": torch.Generator(device).manual_seed(0), "device": device}
    logits = torch.randn(shape, **options).requires_grad_()
    return logits, (torch.rand(shape, **options) < 1 / shape[1]).to(torch.int8)


def peak_memory(loss, shape: tuple[int, int], device: str = "cpu") -> float:
    """Return the peak of forward + backward beyond input and gradient, in tensors of the input's size.

    The profiler reports each allocation and release of torch's CPU memory; tracemalloc sees only Python's.
    """
    logits, observed = batch(shape, device)
    loss(logits, observed).backward()
    logits.grad = None
    if device == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        loss(logits, observed).backward()
        return (torch.cuda.max_memory_allocated() - before) / logits.nbytes - 1
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        loss(logits, observed).backward()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak / (logits.numel() * logits.element_size()) - 1


if __name__ == "__main__":
    main()
