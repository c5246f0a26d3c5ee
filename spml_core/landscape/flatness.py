"""How flat a minimum is, from a line or a surface. Exact for a quadratic loss whose minimum is the centre."""

from __future__ import annotations

import numpy as np
from scipy.interpolate import RectBivariateSpline, RegularGridInterpolator, make_interp_spline

ANGLES = 64  # at which a circle is sampled


def width(alphas, values, delta: float) -> float:
    """Length of the interval around 0 in which the loss stays within `delta` of its value at 0.

    Between two steps the square root of the rise is interpolated, which is straight for a quadratic.

    Args:
        alphas: (A,) increasing, with 0 among them.
        values: (A,) losses.
        delta: > 0.

    Returns:
        The width in units of alpha; NaN if the loss does not rise by delta on both sides before the line ends or meets
        a hole: then look further out.
    """
    if not delta > 0:
        raise ValueError(f"delta must be > 0, got {delta}")
    alphas, values, centre = _line(alphas, values)
    rise = values - values[centre]
    right = _crossing(alphas[centre:], rise[centre:], delta)
    left = _crossing(-alphas[centre::-1], rise[centre::-1], delta)
    return left + right


def _crossing(steps: np.ndarray, rise: np.ndarray, delta: float) -> float:
    above = np.flatnonzero(~(rise <= delta))  # a hole ends the search too
    if not len(above) or np.isnan(rise[above[0]]):
        return np.nan
    n = above[0]
    low, high = np.sqrt(np.maximum(rise[n - 1 : n + 1], 0))
    share = (np.sqrt(delta) - low) / (high - low)
    return float(steps[n - 1] + share * (steps[n] - steps[n - 1]))


def mean_rise(alphas, values, radius: float, betas=None) -> float:
    """Mean rise of the loss at a distance from the centre: over both sides of a line, or a circle on a surface.

    Interpolated by cubic splines; linearly where there are holes, since a spline would spread them.

    Args:
        alphas, betas: the steps, increasing; betas None = `values` is a line.
        values: (A,) or (A, B).
        radius: > 0, within the steps.

    Returns:
        The rise; NaN if a hole lies on the way round, where the loss rose beyond all bounds.

    Raises:
        ValueError: the radius leaves the steps, or there is no value at the centre.
    """
    axes = [np.asarray(alphas, float)] if betas is None else [np.asarray(a, float) for a in (alphas, betas)]
    values = np.asarray(values, float)
    inside = min(min(-axis[0], axis[-1]) for axis in axes)
    if not 0 < radius <= inside:
        raise ValueError(
            f"radius must be in (0, {inside:g}], as far as the steps go on every side; got {radius}"
        )
    angle = np.arange(ANGLES) * 2 * np.pi / ANGLES
    points = radius * (
        np.array([[-1.0], [1.0]]) if betas is None else np.stack([np.cos(angle), np.sin(angle)], 1)
    )
    # Rounding must not carry a point past the last step.
    points = np.clip(points, [axis[0] for axis in axes], [axis[-1] for axis in axes])
    found = _interpolate(axes, values, np.vstack([points, np.zeros(len(axes))]))
    around, centre = found[:-1], found[-1]
    if np.isnan(centre):
        raise ValueError("the loss at the centre is a hole: there is no rise from it")
    return float(around.mean() - centre)


def _interpolate(axes: list[np.ndarray], values: np.ndarray, points: np.ndarray) -> np.ndarray:
    if not np.isfinite(values).all() or min(values.shape) < 4:
        return RegularGridInterpolator(axes, values)(points)
    if values.ndim == 1:
        return make_interp_spline(axes[0], values)(points[:, 0])
    return RectBivariateSpline(*axes, values).ev(*points.T)


def _line(alphas, values) -> tuple[np.ndarray, np.ndarray, int]:
    alphas, values = np.asarray(alphas, float), np.asarray(values, float)
    if alphas.shape != values.shape or alphas.ndim != 1 or not (np.diff(alphas) > 0).all():
        raise ValueError(f"alphas {alphas.shape} must increase and fit the values {values.shape} of one line")
    centre = int(np.abs(alphas).argmin())
    if abs(alphas[centre]) > 1e-9 or np.isnan(values[centre]):
        raise ValueError("the line needs a finite loss at alpha = 0: take an odd number of steps, e.g. 51")
    return alphas, values, centre
