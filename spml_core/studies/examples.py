"""Example images with what models predict for them (EM Fig. 11; Hill Fig. 6, 9): which to show, how to draw them."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from scipy.special import expit

from spml_core import figures, train
from spml_core.analysis.missing import of_one_shape
from spml_core.data import Dataset
from spml_core.runs import Run

# What a label is, and how its bar looks; `positive` is a true label where nothing is annotated.
KINDS = {
    "annotated": {"label": "annotated positive", "fc": figures.POSITIVE, "ec": figures.POSITIVE},
    "positive": {"label": "positive", "fc": figures.POSITIVE, "ec": figures.POSITIVE},
    "missing": {"label": "missing positive", "fc": "white", "ec": figures.POSITIVE, "hatch": "/////"},
    "negative": {"label": "negative", "fc": "0.75", "ec": "0.75"},
}
WRONG = "#D55E00"
ABREAST = 6  # methods side by side


def choose(full, observed=None, *, num_images: int, seed: int = 0) -> np.ndarray:
    """Return the rows to show, chosen without looking at predictions: the first qualifying images in a random order.

    Args:
        full: (N, C) truth in {1, 0}.
        observed: (N, C) in {1, 0, -1}: an image qualifies if a positive is missing. None: if it has two positives.
        num_images: how many; fewer if fewer qualify. A larger number begins with the same images.

    Raises:
        ValueError: no image qualifies.
    """
    positive = np.asarray(full) == 1
    fits = positive.sum(1) >= 2 if observed is None else (positive & (np.asarray(observed) == 0)).any(1)
    if not fits.any():
        raise ValueError(f"none of {len(positive)} images has a missing positive: there is nothing to find")
    order = np.random.default_rng(seed).permutation(len(positive))
    return order[fits[order]][:num_images]


def predict(run: Run, dataset: Dataset, split: str, rows: Sequence[int]) -> np.ndarray:
    """Return probabilities (n, C) of the best epoch's model for some images; a run keeps only those of val and test."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = dataset.parts[split].inputs[torch.as_tensor(np.array(rows))]
    return expit(train.predict(run.model(raw=False).to(device), inputs, device).astype(float))


def summary(probs, full, observed, known=None) -> dict[str, float]:
    """Return the `mean` probability of missing positives, and the shares `found` (above 0.5) and `first`.

    `first` are those above all negatives of their image; ties do not count.

    Args:
        probs, full, observed: (n, C).
        known: (n, C) bool, where the truth is known; the rest is left out. None = everywhere.
    """
    probs, full, observed, known = of_one_shape(known, probs=probs, full=full, observed=observed)
    missing = known & (full == 1) & (observed == 0)
    above = probs > np.where(known & (full == 0), probs, -np.inf).max(1, keepdims=True)
    rates = {"mean": probs, "found": probs > 0.5, "first": above}
    return {name: float(values[missing].mean()) for name, values in rates.items()}


def table(
    probs: Mapping[str, np.ndarray],
    full,
    observed=None,
    known=None,
    *,
    images: Sequence[str],
    classes: Sequence[str],
    labels: int = 6,
    threshold: float = 0.5,
) -> pd.DataFrame:
    """Return the bars of some images: all true labels, and the negatives that models find most likely on average.

    Args:
        probs: (n, C) by method.
        full, observed: (n, C); without `observed` nothing is annotated.
        known: (n, C) bool, where the truth is known; the rest gets no bar. None = everywhere.
        images: n names.
        labels: bars per image, more if it has more true labels.

    Returns:
        One row per bar: image, method, class, kind (annotated, missing, positive or negative), prob, right (whether p
            is on the right side of `threshold`). Labels of an image are in the order in which they are drawn.
    """
    full, mean = np.asarray(full), np.mean(list(probs.values()), axis=0)
    annotated = np.zeros(full.shape, bool) if observed is None else np.asarray(observed) == 1
    known = np.ones(full.shape, bool) if known is None else np.asarray(known)
    true = "positive" if observed is None else "missing"
    rows = []
    for n, image in enumerate(images):
        order = np.lexsort((-mean[n], -full[n], ~annotated[n]))  # the last key counts first
        order = order[known[n, order]]
        for method, p in probs.items():
            for c in order[: max(labels, int(full[n].sum()))]:
                kind = "annotated" if annotated[n, c] else true if full[n, c] else "negative"
                right = bool((p[n, c] > threshold) == (full[n, c] == 1))
                rows.append((image, method, classes[c], kind, p[n, c], right))
    return pd.DataFrame(rows, columns=["image", "method", "class", "kind", "prob", "right"])


def draw(bars: pd.DataFrame, pictures: Sequence[np.ndarray]) -> Figure:
    """Draw one row per image: the picture, then for each method one bar per label; a cross marks what is wrong.

    More than six methods are split into several blocks of rows.

    Args:
        bars: from `table`.
        pictures: (height, width) or (height, width, 3) uint8, in the order of the images.
    """
    methods = list(dict.fromkeys(bars["method"]))
    blocks = -(-len(methods) // ABREAST)
    columns = -(-len(methods) // blocks)
    size = {"width": "text", "height_to_width": 0.17 * (1 + columns), "squeeze": False}
    widths = [0.7, *[1] * columns]
    fig, axes = figures.subplots(blocks * len(pictures), 1 + columns, **size, width_ratios=widths)
    for n, block in enumerate(np.split(axes, blocks)):
        several = methods[n * columns : (n + 1) * columns]
        draw_rows(block, bars[bars["method"].isin(several)], pictures)
    handles = legend([kind for kind in KINDS if (bars["kind"] == kind).any()])
    fig.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return fig


def legend(kinds: Sequence[str]) -> list:
    """Return legend handles for the bars of these kinds, and for the cross."""
    handles = [Patch(**KINDS[kind]) for kind in kinds]
    return [*handles, Line2D([], [], ls="", marker="x", color=WRONG, ms=3.5, mew=1.2, label="wrong side")]


def draw_rows(
    axes: np.ndarray,
    bars: pd.DataFrame,
    pictures: Sequence[np.ndarray],
    threshold=0.5,
    room: int | None = None,
) -> None:
    """Draw each image as `draw` does, into a row of existing axes; axes that are not needed become empty.

    Args:
        axes: (images or more, 1 + methods or more).
        room: bars for which each axis has room; None = those of its image.
    """
    images = list(dict.fromkeys(bars["image"]))
    for ax in axes.flat:
        ax.clear()
        ax.set_axis_off()
    for row, image, picture in zip(axes, images, pictures, strict=False):
        row[0].imshow(picture, cmap="gray_r", vmin=0, vmax=255)
        of_image = bars[bars["image"] == image].groupby("method", sort=False)
        for ax, (method, own) in zip(row[1:], of_image, strict=False):
            ax.set_axis_on()
            drawn = ax.barh(range(len(own)), own["prob"], 0.75, lw=0.6)
            for bar, kind in zip(drawn, own["kind"], strict=True):
                bar.set(**KINDS[kind])
            wrong = np.flatnonzero(~own["right"])
            ax.plot([1.08] * len(wrong), wrong, "x", color=WRONG, ms=3.5, mew=1.2)
            ax.axvline(threshold, ls=":", lw=0.7, color="0.3")
            names = own["class"] if ax is row[1] else [""] * len(own)
            ax.set(xlim=(0, 1.15), xticks=[0, 0.5, 1], ylim=((room or len(own)) - 0.5, -0.5))
            ax.set_yticks(range(len(own)), names)
            ax.spines["bottom"].set_bounds(0, 1)  # right of 1 there are only crosses
            ax.xaxis.set_major_formatter("{x:g}")
            ax.tick_params(axis="y", length=0)
            if image == images[0]:
                ax.set_title(figures.label(method))
            last = image == images[-1]
            ax.tick_params(axis="x", labelbottom=last)
            ax.set_xlabel("predicted probability $p$" if last else "")
