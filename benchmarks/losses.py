"""Speed and memory of the losses: `python -m benchmarks.losses`, or as a part of `make benchmark`.

Machines are noisy, so each time is a ratio to torch's binary_cross_entropy_with_logits in the same process, measured
one after the other: forward + backward, reduction "mean", float32, median of pairs.
"""

import statistics
import time

import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.profiler import ProfilerActivity, profile
from tqdm import tqdm

from spml_core import losses

SHAPES = ((256, 80), (1024, 567))  # a COCO batch, a large Open Images batch
GR = {"w": 2.0, "b": -2.0, "mu": 0.8, "sigma": 0.5}
LOSSES = [
    ("bce", {}),
    ("wan", {}),
    ("an_ls", {}),
    ("n_ls", {}),
    ("em", {}),
    ("ent_min", {}),
    ("epr", {"expected_positives": 2.9}),
    ("focal", {}),
    ("asl", {}),
    ("asl_ps", {}),
    ("focal_margin", {}),
    ("mse", {}),
    ("hill", {}),
    ("splc", {}),
    ("fm_splc", {}),
    ("gr", GR),
]


def main():
    print(
        f"\nLosses, forward + backward, relative to BCE with logits; torch threads {torch.get_num_threads()}"
    )
    for shape in SHAPES:
        for name, parameters in LOSSES:
            print(
                f"  {name:14}{shape[0]:5} x {shape[1]:<4} {ratio(getattr(losses, name), parameters, shape):5.2f} x"
            )
        compiled = torch.compile(losses.gr, dynamic=False)
        print(f"  {'gr, compiled':14}{shape[0]:5} x {shape[1]:<4} {ratio(compiled, GR, shape):5.2f} x")
        slower = ratio(released_gr, GR, shape, baseline=lambda z, s: losses.gr(z, s, **GR))
        print(f"  {'gr, released style':19}{shape[0]} x {shape[1]:<4} {slower:5.2f} times gr")
        tensors = peak_memory(losses.gr, GR, shape)
        print(f"  gr, peak memory beyond input and gradient: {tensors:.1f} tensors of the input's size")


def ratio(
    loss, parameters: dict, shape: tuple[int, int], pairs=60, baseline=binary_cross_entropy_with_logits
) -> float:
    """Median over pairs of (time of loss) / (time of baseline), measured one after the other."""
    logits, observed = batch(shape)

    def seconds(function, **options):
        logits.grad = None
        start = time.perf_counter()
        function(logits, observed, **options).backward()
        return time.perf_counter() - start

    def once():
        return seconds(loss, **parameters) / seconds(baseline)

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
