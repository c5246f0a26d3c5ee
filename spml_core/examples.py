"""Example images with what models predict for them (EM Fig. 11; Hill Fig. 6, 9): which to show, how to draw them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from scipy.special import expit

from spml_core import figures, models, train
from spml_core.data import Dataset
from spml_core.runs import Run

# What a label is, and how its bar looks; `positive` is a true label where nothing is annotated.
KINDS = {
    "annotated": {"color": figures.POSITIVE},
    "positive": {"color": figures.POSITIVE},
    "missing": {"facecolor": "white", "edgecolor": figures.POSITIVE, "hatch": "/////"},
    "negative": {"color": "0.75"},
}
KIND_LABELS = {
    "annotated": "annotated positive",
    "positive": "positive",
    "missing": "missing positive",
    "negative": "negative",
}
WRONG = "#D55E00"


def choose(full, observed=None, *, num_images: int, seed: int = 0) -> np.ndarray:
    """Rows to show, by a rule that has seen no prediction: the first of a random order of the images that qualify.

    Args:
        full: (N, C) truth in {1, 0}.
        observed: (N, C) in {1, 0, -1}: an image qualifies if a positive is missing. None: if it has two positives.
        num_images: how many; fewer if fewer qualify. More of them begin with the same ones.

    Raises:
        ValueError: no image qualifies.
    """
    full = np.asarray(full)
    positive = full == 1
    fits = positive.sum(1) >= 2 if observed is None else (positive & (np.asarray(observed) == 0)).any(1)
    if not fits.any():
        raise ValueError(f"none of {len(full)} images has a missing positive: there is nothing to find")
    order = np.random.default_rng(seed).permutation(len(full))
    return order[fits[order]][:num_images]


def predict(run: Run, dataset: Dataset, split: str, rows: Sequence[int]) -> np.ndarray:
    """Probabilities (n, C) of the best epoch's model for some images; a run keeps those of val and test only."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config, classes = run.config, len(dataset.classes)
    model = models.build(config["backbone"], config["mode"], classes, dataset.parts["train"].inputs)
    model.load_state_dict(run.weights())
    inputs = dataset.parts[split].inputs[torch.as_tensor(np.array(rows))]
    return expit(train.predict(model.to(device), inputs, device).astype(float))


def summary(probs, full, observed) -> dict[str, float]:
    """Of missing positives: `mean` probability, share `found` (above 0.5), and share `first`, above all negatives.

    Args:
        probs, full, observed: (n, C). The negatives are those of the same image; equal scores do not count as above.

    Raises:
        ValueError: no positive is missing.
    """
    probs, positive = np.asarray(probs), np.asarray(full) == 1
    missing = positive & (np.asarray(observed) == 0)
    if not missing.any():
        raise ValueError("no positive is missing: there is nothing to find")
    above = probs > np.where(positive, -np.inf, probs).max(1, keepdims=True)
    rates = {"mean": probs, "found": probs > 0.5, "first": above}
    return {name: float(values[missing].mean()) for name, values in rates.items()}


def table(
    probs: Mapping[str, np.ndarray],
    full,
    observed=None,
    *,
    images: Sequence[str],
    classes: Sequence[str],
    labels: int = 6,
    threshold: float = 0.5,
) -> pd.DataFrame:
    """The bars of some images: all true labels and those negatives that the models, on average, find likeliest.

    Args:
        probs: (n, C) by method.
        full, observed: (n, C); without `observed` nothing is annotated.
        images: n names.
        labels: bars an image, more if it has more true labels.

    Returns:
        A row a bar: image, method, class, kind (annotated, missing, positive or negative), prob, right (whether p is
        on the right side of `threshold`). Labels of an image are in the order in which they are drawn.
    """
    full, mean = np.asarray(full), np.mean(list(probs.values()), axis=0)
    annotated = np.zeros(full.shape, bool) if observed is None else np.asarray(observed) == 1
    true = "positive" if observed is None else "missing"
    rows = []
    for n, image in enumerate(images):
        order = np.lexsort((-mean[n], -full[n], ~annotated[n]))  # the last key counts first
        for method, p in probs.items():
            for c in order[: max(labels, int(full[n].sum()))]:
                kind = "annotated" if annotated[n, c] else true if full[n, c] else "negative"
                right = bool((p[n, c] > threshold) == (full[n, c] == 1))
                rows.append((image, method, classes[c], kind, p[n, c], right))
    return pd.DataFrame(rows, columns=["image", "method", "class", "kind", "prob", "right"])


def draw(bars: pd.DataFrame, pictures: Sequence[np.ndarray], threshold: float = 0.5) -> Figure:
    """A row an image: the picture, then for each method a bar a label; a cross marks what is wrong.

    Args:
        bars: of `table`.
        pictures: (height, width) or (height, width, 3) uint8, in the order of the images.
    """
    images, methods = (list(dict.fromkeys(bars[name])) for name in ("image", "method"))
    fig, axes = figures.subplots(len(images), 1 + len(methods), **grid(len(methods)))
    draw_rows(axes, bars, pictures, threshold)
    kinds = [kind for kind in KINDS if (bars["kind"] == kind).any()]
    handles = legend(kinds)
    fig.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return fig


def grid(num_methods: int) -> dict:
    """Options of `figures.subplots` for rows of `draw_rows`."""
    size = {"width": "text", "height_to_width": 0.17 * (1 + num_methods), "squeeze": False}
    return size | {"width_ratios": [0.7, *[1] * num_methods]}


def draw_rows(
    axes: np.ndarray, bars: pd.DataFrame, pictures: Sequence[np.ndarray], threshold: float = 0.5
) -> None:
    """What `draw` draws, into axes (images, 1 + methods) that are there."""
    images, methods = (list(dict.fromkeys(bars[name])) for name in ("image", "method"))
    for row, image, picture in zip(axes, images, pictures, strict=True):
        row[0].imshow(picture, cmap="gray_r" if picture.ndim == 2 else None, vmin=0, vmax=255)
        row[0].set_axis_off()
        for ax, method in zip(row[1:], methods, strict=True):
            own = bars[(bars["image"] == image) & (bars["method"] == method)].reset_index()
            for n, bar in own.iterrows():
                ax.barh(n, bar["prob"], 0.75, lw=0.6, **KINDS[bar["kind"]])
            wrong = own.index[~own["right"]]
            ax.plot([1.08] * len(wrong), wrong, "x", color=WRONG, ms=3.5, mew=1.2)
            ax.axvline(threshold, ls=":", lw=0.7, color="0.3")
            shown = own["class"] if ax is row[1] else [""] * len(own)
            ax.set(xlim=(0, 1.15), xticks=[0, 0.5, 1], yticks=range(len(own)), yticklabels=shown)
            ax.xaxis.set_major_formatter("{x:g}")
            ax.tick_params(axis="y", length=0)
            ax.tick_params(axis="x", labelbottom=image == images[-1])
            ax.invert_yaxis()
    for ax, method in zip(axes[0, 1:], methods, strict=True):
        ax.set_title(figures.METHOD_LABELS.get(method, method))
    for ax in axes[-1, 1:]:
        ax.set_xlabel("predicted probability $p$")


def legend(kinds: Sequence[str] = tuple(KINDS)) -> list:
    """Handles that explain the bars of these kinds, and the cross."""
    handles = [Patch(label=KIND_LABELS[kind], **KINDS[kind]) for kind in kinds]
    return [*handles, Line2D([], [], ls="", marker="x", color=WRONG, ms=3.5, mew=1.2, label="wrong side")]
