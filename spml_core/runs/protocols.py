"""How to train on each data set by default, and how each paper trained: fields of an `Experiment`.

    Experiment(method="gr", dataset="voc2012", params=preset("gr", "voc2012"), **protocol("gr", "voc2012"))

`methods.preset` holds the hyperparameters of the methods and `methods.preset_training` the epochs, batch size and
learning rate of the same tables; this module holds the rest: network, images, optimizer, schedule, and the
rule that chooses the epoch.
"""

import copy

from spml_core import words
from spml_core.methods import DATASETS, preset_training

# All papers: ResNet-50 with the ImageNet weights of torchvision, images resized to 448x448, Adam.
_NETWORK = {"mode": "end_to_end", "backbone": "resnet50.tv_in1k", "pretrained": True, "flip": True}
_SHARED = _NETWORK | {"data": {"size": 448}, "protocol": "cole2021", "head_lr_factor": 1.0}


def _as_gr(dataset: str) -> dict:
    """Return the settings of GR's Table 6, whose batch size and learning rate were chosen on validation data."""
    return _NETWORK | {name: preset_training("gr", dataset)[name] for name in ("batch_size", "lr")}


_SMALL = {"pretrained": False, "flip": False, "threads": 1}
DEFAULTS = {
    "digits": _SMALL | {"mode": "end_to_end", "backbone": "digits_cnn", "batch_size": 64, "lr": 3e-3},
    "folder": _SMALL | {"mode": "linear", "backbone": "tf_efficientnet_lite0", "batch_size": 16, "lr": 1e-3},
    **{name: _as_gr(name) for name in DATASETS},
    "openimages": _as_gr("coco2014"),  # in no table: the settings of COCO, the other large data set
}

# name: (source, fields)
PROTOCOLS = {
    "role": (
        "Cole et al., CVPR 2021, as described in EM 4.1 and LASD 5.1: 10 epochs, batch size from {8, 16}, learning "
        "rate from {1e-2, 1e-3, 1e-4, 1e-5} by validation mAP. LinearInit is `linear_epochs` before the others, with a "
        "learning rate of its own",
        {"epochs": 10, "val_labels": "clean"},
    ),
    "em": (
        "EM 4.1: as Cole et al., and stopped when validation mAP falls",
        {"epochs": 10, "stop_drop": 0.0, "val_labels": "clean"},
    ),
    "gr": (
        "GR 4.1 and Table 6; released code: head at 10 times the learning rate, stopped at more than 2 points below "
        "the best, validation on observed labels. Its switch `linear_init` is off here",
        {"head_lr_factor": 10.0, "stop_drop": 2.0, "val_labels": "observed"},
    ),
    "hill": (
        "Hill and SPLC IV-A: Adam, weight decay 1e-4, one cycle up to 1e-4, running average; its decay 0.9997 is that "
        "of ASL's released code. The number of epochs is not stated: set `epochs`; the schedule has the same length. "
        "Of their augmentation (Cutout, RandAugment in ASL's code) only flips are implemented",
        {"lr": 1e-4, "weight_decay": 1e-4, "schedule": "one_cycle", "ema": 0.9997, "val_labels": "clean"},
    ),
    "lasd": (
        "LASD 5.1: end to end for ten epochs, batch size from {8, 16} and learning rate from {1e-2, 1e-3, 1e-4, 1e-5} "
        "by validation mAP; three views per image are the method's (`lasd` with alpha > 0)",
        {"epochs": 10, "val_labels": "clean"},
    ),
}


def protocol(name: str, dataset: str | None = None) -> dict:
    """Return fields of an `Experiment`, with batch size, epochs and learning rate where the source gives them.

    Args:
        name: of `PROTOCOLS`.
        dataset: one of `methods.DATASETS`, or None for what all of them share.

    Raises:
        ValueError: unknown name or data set, with the nearest ones.
    """
    words.check_name("protocol of a paper", name, PROTOCOLS)
    _, fields = PROTOCOLS[name]
    fields = copy.deepcopy(_SHARED | fields)
    if dataset is None:
        return fields
    words.check_name("published data set", dataset, DATASETS)
    return preset_training(name, dataset) | fields


def source(name: str) -> str:
    """Return where a protocol is from, and what the source leaves open."""
    words.check_name("protocol of a paper", name, PROTOCOLS)
    return PROTOCOLS[name][0]
