"""Cost of a loss landscape: `python -m benchmarks.landscape`, or as a part of `make benchmark`."""

import copy
import statistics
import time

import numpy as np
import torch
from torch.func import functional_call, vmap
from tqdm import tqdm

from spml_core import data, landscape, methods, models

IMAGES, GRID = 256, 25


def main():
    problem = digits_problem()
    threads = torch.get_num_threads()
    print(f"\nLoss landscape of digits_cnn, {IMAGES} images, two losses; torch threads {threads}")
    ratios = point_ratios(problem)
    print(f"  a point: {ratios['ours']:.2f} x a plain forward pass (target: at most 1.10 x)")
    print(
        f"    by functional_call {ratios['functional_call']:.2f} x, by vmap over 25 points {ratios['vmap']:.2f} x"
    )
    start = time.perf_counter()
    landscape.surface(problem, np.linspace(-1, 1, GRID))
    seconds = time.perf_counter() - start
    print(f"  {GRID} x {GRID} points: {seconds:.1f} s (target: at most 60 s on 2 cores)")
    start = time.perf_counter()
    landscape.curvature(problem, "full_bce")
    seconds = time.perf_counter() - start
    print(f"  top eigenvalue and trace: {seconds:.1f} s")


def digits_problem() -> landscape.Problem:
    """Return the problem of a network with its initial weights; the cost does not depend on them."""
    part = data.load("digits").parts["train"]
    torch.manual_seed(0)
    model = models.build("digits_cnn", "end_to_end", 10, part.inputs)
    full, index = torch.from_numpy(part.full[:IMAGES]), torch.arange(IMAGES)
    observed = full * (full.cumsum(1) == 1)
    own = landscape.MethodLoss(methods.build("gr", 10, len(part)), observed, index, 10)
    losses = {"own": own, "full_bce": landscape.FullBCE(full)}
    return landscape.Problem(model, part.inputs[:IMAGES], losses)


def point_ratios(problem: landscape.Problem, points: int = 25, pairs: int = 7) -> dict[str, float]:
    """Return the processor time of a point relative to a forward pass: medians over pairs, measured in alternation."""
    model = copy.deepcopy(problem.model).eval()
    centre = {name: weight.detach() for name, weight in model.named_parameters()}
    step = landscape.random_direction(model, 0)
    steps = np.linspace(-1, 1, points)

    def moved(alpha):
        return {n: w + alpha * step[n] if n in step else w for n, w in centre.items()}

    stacked = {n: torch.stack([moved(float(a))[n] for a in steps]) for n in centre}

    def plain():
        for _ in steps:
            model(problem.inputs)

    ways = {
        "ours": lambda: landscape.line(problem, steps, (0,)),
        "functional_call": lambda: [
            functional_call(model, moved(float(a)), (problem.inputs,)) for a in steps
        ],
        "vmap": lambda: vmap(lambda w: functional_call(model, w, (problem.inputs,)))(stacked),
    }

    def seconds(function):
        start = time.process_time()
        function()
        return time.process_time() - start

    with torch.no_grad():
        plain()
        return {
            name: statistics.median(
                seconds(way) / seconds(plain) for _ in tqdm(range(pairs), leave=False, disable=None)
            )
            for name, way in ways.items()
        }


if __name__ == "__main__":
    main()
