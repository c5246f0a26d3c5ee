"""Backbones and heads. Every model takes the data set's raw inputs and returns logits (N, C)."""

from __future__ import annotations

import difflib

import torch
from torch import Tensor, nn

MODES = {"linear": 2, "end_to_end": 4}  # and the number of axes of their inputs


class Standardize(nn.Module):
    """(x - mean) / std by channel or feature, measured on the training inputs and saved with the weights.

    Takes (N, channels, H, W) uint8 or float images, or (N, D) features; returns float32.
    """

    def __init__(self, inputs: Tensor):
        super().__init__()
        axes = [axis for axis in range(inputs.ndim) if axis != 1]
        # A slice is enough for the statistics of images and keeps the float copy small.
        sample = inputs[:1000].float() if inputs.ndim == 4 else inputs.float()
        # With correction=0 a single row has a deviation of 0, not NaN.
        std, mean = torch.std_mean(sample, axes, correction=0, keepdim=True)
        self.register_buffer("mean", mean)
        self.register_buffer("std", std.clamp_min(1e-6))  # a constant feature becomes 0, not inf

    def forward(self, x: Tensor) -> Tensor:
        return (x.float() - self.mean) / self.std


def digits_cnn(num_classes: int, in_channels: int = 1) -> nn.Module:
    """Convolutions of 16, 32, 32, 32 channels (5x5, then 3x3) and a global maximum: 24,000 weights, 32x32 images."""
    layers, channels = [], [in_channels, 16, 32, 32, 32]
    for n, (kernel, stride) in enumerate([(5, 2), (3, 2), (3, 1), (3, 1)]):
        conv = nn.Conv2d(channels[n], channels[n + 1], kernel, stride, padding=kernel // 2, bias=False)
        layers += [conv, nn.BatchNorm2d(channels[n + 1]), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(channels[-1], num_classes))


def build(backbone: str, mode: str, num_classes: int, train_inputs: Tensor) -> nn.Module:
    """The model of an experiment.

    Args:
        backbone: "digits_cnn" or any timm model name; in mode "linear" it made the features and is not needed here.
        mode: "linear" (one linear layer on frozen features) or "end_to_end" (backbone from scratch, on images).
        train_inputs: the training inputs, for the statistics of `Standardize` and the number of channels.

    Raises:
        ValueError: unknown mode or backbone, or inputs that do not fit the mode.
    """
    check(backbone, mode)
    if train_inputs.ndim != MODES[mode]:
        kind = "features (N, D)" if mode == "linear" else "images (N, channels, H, W)"
        raise ValueError(f"mode {mode!r} needs {kind}, got inputs of shape {tuple(train_inputs.shape)}")
    standardize = Standardize(train_inputs)
    if mode == "linear":
        return nn.Sequential(standardize, nn.Linear(train_inputs.shape[1], num_classes))
    if backbone == "digits_cnn":
        return nn.Sequential(standardize, digits_cnn(num_classes, train_inputs.shape[1]))
    import timm

    return nn.Sequential(
        standardize, timm.create_model(backbone, num_classes=num_classes, in_chans=train_inputs.shape[1])
    )


def check(backbone: str, mode: str) -> None:
    """Raise ValueError for an unknown mode, or an unknown backbone of mode "end_to_end" (with the nearest names)."""
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}: use one of {', '.join(MODES)}")
    if mode == "linear" or backbone == "digits_cnn":  # what `features` cannot make it names itself
        return
    import timm  # seconds of import, needed here only

    if not timm.is_model(backbone):
        near = difflib.get_close_matches(backbone, timm.list_models(), n=3, cutoff=0.5)
        raise ValueError(f"unknown backbone {backbone!r}: use 'digits_cnn' or a timm model{_like(near)}")


def _like(names: list[str]) -> str:
    return f", like {', '.join(map(repr, names))}" if names else ""
