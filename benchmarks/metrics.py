"""Speed of mean average precision, and memory of what must hold ten million scores: `python -m benchmarks.metrics`."""

import statistics
import time
import tracemalloc

import numpy as np
from sklearn.metrics import average_precision_score
from tqdm import tqdm

from spml_core import analysis, metrics

COCO = (40_137, 80)  # images and classes of COCO's validation set
POSITIVES = 0.036  # share of positives there


def main():
    scores, full = coco_like()
    print(
        f"\nmAP of {COCO[0]:,} x {COCO[1]} float32 scores, processor time relative to a loop over scikit-learn"
    )
    ratio, difference = against_scikit_learn(scores, full)
    print(f"  {ratio:.2f} x (target: at most 0.20 x), largest difference of a class {difference:.0e} (1e-6)")
    print("\nTen million float32 scores (40 MB): peak memory beyond the arguments, seconds")
    for name, function in large().items():
        peak, seconds = memory(function)
        print(f"  {name:36} {peak / 2**20:5.0f} MB (target: at most 256 MB), {seconds:.1f} s")


def coco_like() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    full = (rng.random(COCO) < POSITIVES).astype(np.int8)
    return rng.normal(2 * full).astype(np.float32), full


def against_scikit_learn(scores, full, pairs: int = 5) -> tuple[float, float]:
    """Return the median over pairs of the ratio of times, and the largest difference between the two."""
    ratios, difference = [], 0.0
    for _ in tqdm(range(pairs), leave=False, disable=None):
        start = time.process_time()
        ours = metrics.average_precision(scores, full).per_class
        middle = time.process_time()
        theirs = [average_precision_score(full[:, c], scores[:, c]) for c in range(full.shape[1])]
        ratios.append((middle - start) / (time.process_time() - middle))
        difference = max(difference, float(np.abs(ours - theirs).max()))
    return statistics.median(ratios), difference


def large() -> dict:
    rng = np.random.default_rng(0)
    probs = rng.random((100_000, 100), dtype=np.float32)
    full, observed = (rng.random(probs.shape, dtype=np.float32) < 0.05).astype(np.int8), np.zeros(1, np.int8)
    observed = np.broadcast_to(observed, probs.shape)
    return {
        "bucket_false_negatives": lambda: analysis.bucket_false_negatives(probs, observed, full),
        "wasserstein, half and half": lambda: analysis.wasserstein(probs[:50_000], probs[50_000:]),
        "reliability": lambda: analysis.reliability(probs, full),
    }


def memory(function) -> tuple[int, float]:
    """Return the peak bytes that numpy allocates during the call, and its seconds (tracing slows it a little)."""
    tracemalloc.start()
    start = time.perf_counter()
    function()
    seconds, peak = time.perf_counter() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak, seconds


if __name__ == "__main__":
    main()
