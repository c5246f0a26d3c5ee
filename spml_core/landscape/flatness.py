"""How flat a minimum is: width and rise of a line, and the curvature of the loss at the minimum.

All are exact for a quadratic loss whose minimum is the centre, except for the estimated trace of a large Hessian.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from scipy import stats
from scipy.interpolate import make_interp_spline
from scipy.sparse.linalg import eigsh
from torch import nn
from tqdm.auto import tqdm

from spml_core.landscape.problem import Problem

DENSE = 256  # up to this many parameters, the whole Hessian is computed
BASIS = 6  # Lanczos vectors before the accuracy is checked: an error of 1e-6 in a trained network's top eigenvalue
TOGETHER = 2  # random vectors per product: a third less time than one by one, and more would only take memory


def width(alphas, values, delta: float) -> float:
    """Return the length of the interval around 0 in which the loss stays within `delta` of its value at 0.

    Between two steps the square root of the rise is interpolated, which is linear for a quadratic.

    Args:
        alphas: (A,) increasing, with 0 among them.
        values: (A,) losses.
        delta: > 0.

    Returns:
        The width in units of alpha; NaN if the loss does not rise by delta on both sides before the line ends or meets
        a hole: take a longer line then.
    """
    alphas, values = np.asarray(alphas, float), np.asarray(values, float)
    centre = int(np.abs(alphas).argmin())
    if abs(alphas[centre]) > 1e-9 or np.isnan(values[centre]):
        raise ValueError("the line needs a finite loss at alpha = 0: take an odd number of steps, e.g. 51")
    rise = values - values[centre]
    right = _crossing(alphas[centre:], rise[centre:], delta)
    return right + _crossing(-alphas[centre::-1], rise[centre::-1], delta)


def _crossing(steps: np.ndarray, rise: np.ndarray, delta: float) -> float:
    above = np.flatnonzero(~(rise <= delta))  # a hole ends the search too
    if not len(above) or np.isnan(rise[above[0]]):
        return np.nan
    ends = slice(above[0] - 1, above[0] + 1)
    return float(np.interp(np.sqrt(delta), np.sqrt(np.maximum(rise[ends], 0)), steps[ends]))


def mean_rise(alphas, values, radius: float) -> float:
    """Return the mean rise of the loss at a distance from the centre, on both sides of a line.

    Interpolated by a cubic spline; linearly where there are holes, since a spline would spread them.

    Args:
        alphas: (A,) the steps, increasing.
        values: (A,) losses.
        radius: > 0, within the steps.

    Returns:
        The rise; NaN if a hole lies at the centre or on the way, where the loss rose beyond all bounds.

    Raises:
        ValueError: the radius is not within the steps.
    """
    alphas, values = np.asarray(alphas, float), np.asarray(values, float)
    inside = min(-alphas[0], alphas[-1])
    if not 0 < radius <= inside:
        raise ValueError(
            f"radius must be in (0, {inside:g}], which the steps cover on both sides; got {radius}"
        )
    smooth = np.isfinite(values).all() and len(values) >= 4
    curve = make_interp_spline(alphas, values) if smooth else partial(np.interp, xp=alphas, fp=values)
    low, centre, high = curve([-radius, 0, radius])
    return float((low + high) / 2 - centre)


@dataclass(frozen=True)
class Curvature:
    """Curvature of one loss, with respect to all trainable parameters.

    Attributes:
        top: the largest eigenvalue.
        trace: of the Hessian.
        trace_error: its standard error; 0 where it is exact, NaN from a single vector.
    """

    top: float
    trace: float
    trace_error: float


def curvature(problem: Problem, loss: str, *, num_vectors: int = 16, tol: float = 1e-3) -> Curvature:
    """Return the largest eigenvalue (Lanczos) and the trace (Hutchinson) of a loss's Hessian, batch norm frozen.

    A method's loss stops the gradient through k and v, through pseudo-labels and similar values; the Hessian is that of
    the loss in which these are constants with their current values. Unlike a landscape, it covers biases and
    normalisation too, and it depends on the scale of the weights, which batch normalisation leaves free.

    Args:
        loss: name of one of the problem's losses.
        num_vectors: random sign vectors for the trace, always the same.
        tol: relative accuracy of the eigenvalue.
    """
    from curvlinops import HessianLinearOperator

    problem = problem.copy()
    parameters = [p for p in problem.model.parameters() if p.requires_grad]
    size = sum(p.numel() for p in parameters)
    rows = torch.arange(len(problem.inputs), device=problem.inputs.device)
    batches = [(problem.inputs[part], part) for part in rows.split(problem.batch_size)]
    mean = _Mean(problem.losses[loss])
    fixed = {"check_deterministic": False, "num_data": len(rows)}
    hessian = HessianLinearOperator(problem.model, mean, parameters, batches, **fixed)
    with tqdm(desc="curvature", unit="pass", leave=False, disable=None) as bar:

        def show(*_) -> None:
            bar.update()

        problem.model.register_forward_hook(show)
        if size <= DENSE:
            matrix = (hessian @ torch.eye(size, dtype=hessian.dtype, device=hessian.device)).double()
            eigenvalues = torch.linalg.eigvalsh((matrix + matrix.T) / 2)
            return Curvature(float(eigenvalues.max()), float(matrix.trace()), 0.0)
        start = np.random.default_rng(0).normal(size=size)
        options = {"v0": start, "ncv": BASIS, "tol": tol, "return_eigenvectors": False}
        (top,) = eigsh(hessian.to_scipy(), 1, which="LA", **options)
        signs = torch.from_numpy(np.random.default_rng(0).choice([-1, 1], (num_vectors, size)))
        samples = []  # one per vector, since their spread is the error of the mean
        for some in signs.to(hessian.device, hessian.dtype).split(TOGETHER):
            samples += ((hessian @ some.T) * some.T).sum(0).tolist()
    return Curvature(float(top), float(np.mean(samples)), float(stats.sem(samples)))


class _Mean(nn.Module):
    """A loss in the form that curvlinops expects: a module with its reduction."""

    reduction = "mean"

    def __init__(self, loss):
        super().__init__()
        self.loss = loss

    def forward(self, logits, rows):
        return self.loss(logits, rows)
