"""Curvature at the minimum: largest eigenvalues and trace of the Hessian."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import nn
from tqdm.auto import tqdm

from spml_core.landscape.problem import Problem

DENSE = 256  # up to so many parameters the whole Hessian is computed
AT_ONCE = 8  # vectors of the trace that share the passes through the network: two thirds of the time on a CPU
BASIS = 10  # Lanczos vectors before accuracy is looked at; half of the 20 of ARPACK are spent past 0.01


@dataclass(frozen=True)
class Curvature:
    """Of one loss, with respect to all trainable parameters.

    Attributes:
        top: (k,) the largest eigenvalues, descending.
        trace: of the Hessian.
        trace_error: its standard error; 0 where it is exact, NaN from a single vector.
        num_parameters: P, so that trace / P is the mean eigenvalue.
        products: how many Hessian-vector products it took.
    """

    top: np.ndarray
    trace: float
    trace_error: float
    num_parameters: int
    products: int


def curvature(
    problem: Problem,
    loss: str | None = None,
    *,
    k: int = 1,
    num_vectors: int = 16,
    tol: float = 1e-3,
    seed: int = 0,
    progress: bool = True,
) -> Curvature:
    """Largest eigenvalues (Lanczos) and trace (Hutchinson) of a loss's Hessian, batch normalisation frozen.

    A method's loss stops the gradient through k and v, through pseudo-labels and the like; the Hessian is that of the
    loss in which these are constants with the values they have here. Unlike a landscape it covers biases and
    normalisation too, and it depends on the scale of the weights, which batch normalisation leaves free.

    Args:
        loss: name of one of the problem's losses; None = the only one.
        k: how many eigenvalues.
        num_vectors: random sign vectors for the trace.
        tol: relative accuracy of the eigenvalues.

    Raises:
        ValueError: unknown loss, more eigenvalues than parameters, or no vectors.
    """
    from curvlinops import HessianLinearOperator

    names = list(problem.losses)
    if (loss is None and len(names) > 1) or (loss is not None and loss not in names):
        raise ValueError(f"name the loss: one of {', '.join(names)}; got {loss!r}")
    problem = problem.copy()
    parameters = [p for p in problem.model.parameters() if p.requires_grad]
    size = sum(p.numel() for p in parameters)
    if not 1 <= k <= size:
        raise ValueError(f"k must be in [1, {size}], the number of parameters; got {k}")
    if num_vectors < 1:
        raise ValueError(f"num_vectors must be at least 1, for an estimate of the trace; got {num_vectors}")
    mean = _Mean(problem.losses[loss or names[0]])
    rows = torch.arange(len(problem.inputs), device=problem.inputs.device)

    def of_batches(batch_size: int) -> HessianLinearOperator:
        batches = [(problem.inputs[part], part) for part in rows.split(batch_size)]
        fixed = {"check_deterministic": False, "num_data": len(rows)}
        return HessianLinearOperator(problem.model, mean, parameters, batches, **fixed)

    hessian = of_batches(problem.batch_size)
    several = of_batches(max(problem.batch_size // AT_ONCE, 1))  # for as many vectors, in the same memory
    rng = np.random.default_rng(seed)
    kind = {"dtype": parameters[0].dtype, "device": parameters[0].device}
    with tqdm(desc="curvature", unit="product", leave=False, disable=None if progress else True) as bar:

        def times(vectors: np.ndarray, hessian: HessianLinearOperator = hessian) -> np.ndarray:
            bar.update(vectors.shape[1] if vectors.ndim == 2 else 1)
            return (hessian @ torch.as_tensor(vectors, **kind)).double().cpu().numpy()

        if size <= DENSE:
            matrix = times(np.eye(size))
            eigenvalues = np.linalg.eigvalsh((matrix + matrix.T) / 2)[::-1]
            return Curvature(eigenvalues[:k], float(np.trace(matrix)), 0.0, size, size)
        products = 0

        def count(vector: np.ndarray) -> np.ndarray:
            nonlocal products
            products += 1
            return times(vector.reshape(-1))

        operator = LinearOperator((size, size), matvec=count, dtype=np.float64)
        start, basis = rng.normal(size=size), min(size, max(BASIS, 2 * k + 1))
        top = eigsh(operator, k, which="LA", v0=start, ncv=basis, tol=tol, return_eigenvectors=False)
        signs = rng.choice([-1.0, 1.0], (num_vectors, size))
        samples = []
        for part in np.split(signs, range(AT_ONCE, num_vectors, AT_ONCE)):
            samples.extend((part * times(part.T, several).T).sum(1))
        products += num_vectors
    error = np.std(samples, ddof=1) / np.sqrt(num_vectors) if num_vectors > 1 else np.nan
    return Curvature(np.sort(top)[::-1], float(np.mean(samples)), float(error), size, products)


class _Mean(nn.Module):
    """A loss as curvlinops takes it: a module with the reduction it stands for."""

    reduction = "mean"

    def __init__(self, loss):
        super().__init__()
        self.loss = loss

    def forward(self, logits, rows):
        return self.loss(logits, rows)
