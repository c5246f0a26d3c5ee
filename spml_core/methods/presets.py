"""Published hyperparameters, by method and data set."""

from __future__ import annotations

from dataclasses import dataclass

DATASETS = ("voc2012", "coco2014", "nuswide", "cub200")


@dataclass(frozen=True)
class Published:
    """The values a paper gives for a method: `params` by data set, with the `source` they are from.

    `training` holds, by data set, what the same table says of epochs, batch size and learning rate.
    """

    source: str
    params: dict[str, dict]
    training: dict[str, dict]


def _by_dataset(**columns) -> dict[str, dict]:
    """{dataset: {name: value}} from one row of four values for each name, in the order of `DATASETS`."""
    return {d: {name: row[n] for name, row in columns.items()} for n, d in enumerate(DATASETS)}


def _same(**params) -> dict[str, dict]:
    return {d: dict(params) for d in DATASETS}


_GR = dict(
    q1=(0.01,) * 4, mu=((0.5, 0.8),) * 4, sigma=((2.0, 0.5),) * 4, q2=(0.01,) * 4, q3=(1.0, 1.0, 1.0, 1.5)
)
_GR_ENDS = dict(w=((0.0, 2.0), *((0.0, 10.0),) * 3), b=((-2.0, -2.0), *((-2.0, -8.0),) * 3))
_GR_TRAINING = _by_dataset(epochs=(8, 8, 10, 10), batch_size=(8, 16, 16, 8), lr=(1e-5, 1e-5, 1e-5, 5e-5))
_EM_ALPHA = (0.2, 0.1, 0.1, 0.01)
_K = _by_dataset(expected_positives=(1.5, 2.9, 1.9, 31.4))
_HILL = (
    "Zhang et al., 2021, Sec. III and IV ({}); the same for every data set there (COCO, VOC 2007, NUS-WIDE)"
)
_KIM = "Kim et al., CVPR 2022 (share of all labels: {} %)"

# method: (source, params, training)
_TABLE = {
    "gr": (
        "GR Table 6, 4.4 (q1); start values of the released code",
        _by_dataset(**_GR, **_GR_ENDS),
        _GR_TRAINING,
    ),
    "em": ("EM Table 6", _by_dataset(alpha=_EM_ALPHA), _same(epochs=10)),
    "em_apl": (
        "EM Table 6",
        _by_dataset(alpha=_EM_ALPHA, beta=(0.02, 0.9, 0.2, 0.4), theta=(0.9,) * 4, warmup=(5, 5, 4, 3)),
        _same(epochs=10),
    ),
    "dw": ("EM App. B.2, 1", _by_dataset(weight=(0.1, 0.1, 0.1, 0.02)), _same(epochs=10)),
    "l1r": ("EM App. B.2, 2", _by_dataset(strength=(1e-6, 1e-7, 1e-7, 1e-9)), _same(epochs=10)),
    "l2r": ("EM App. B.2, 2", _by_dataset(strength=(1e-6, 1e-7, 1e-6, 1e-8)), _same(epochs=10)),
    "an_ls": ("EM App. B.2, 3", _same(smoothing=0.1), _same(epochs=10)),
    "n_ls": ("EM App. B.2, 3", _by_dataset(smoothing=(0.3, 0.1, 0.1, 0.1)), _same(epochs=10)),
    "ent_min": ("EM App. B.2, 4", _by_dataset(alpha=(0.01, 0.9, 0.4, 0.4)), _same(epochs=10)),
    "focal": ("EM App. B.2, 5", _same(gamma=2.0, alpha=0.75), _same(epochs=10)),
    "asl": (
        "EM App. B.2, 6",
        _by_dataset(gamma_pos=(0.0,) * 4, gamma_neg=(2.0, 2.0, 2.0, 1.0), margin=(0.2, 0.2, 0.2, 0.0)),
        _same(epochs=10),
    ),
    "asl_ps": ("LASD App. A.2.2", _same(gamma_pos=0.0, gamma_neg=4.0, margin=0.05), _same(epochs=10)),
    "epr": ("Cole et al., CVPR 2021 (k)", _K, _same(epochs=10)),
    "role": ("Cole et al., CVPR 2021 (k)", _K, _same(epochs=10)),
    "lasd": (
        "LASD Table 4; k of Table 1 for Theorem 5.4",
        _by_dataset(
            lambda_plus=(0.10, 0.03, 0.015, 0.005),
            tau=(0.90, 0.90, 0.95, 0.93),
            alpha=(0.70, 0.10, 0.15, 0.03),
            expected_positives=(1.46, 2.94, 1.89, 31.4),
        ),
        _same(epochs=10),
    ),
    "hill": (_HILL.format("lambda, m, gamma"), _same(lam=1.5, margin=1.0, gamma=2.0), {}),
    "splc": (_HILL.format("tau"), _same(tau=0.6), {}),
    "fm_splc": (_HILL.format("tau, m, gamma"), _same(tau=0.6, margin=1.0, gamma=2.0), {}),
    "ll_r": (_KIM.format(0.5), _same(delta=0.005), _same(epochs=10)),
    "ll_ct": (_KIM.format(0.2), _same(delta=0.002), _same(epochs=10)),
    "ll_cp": (_KIM.format(0.1), _same(delta=0.001), _same(epochs=10)),
}
PRESETS = {name: Published(*row) for name, row in _TABLE.items()}


def preset(method: str, dataset: str) -> dict:
    """Published hyperparameters of a method on a data set, by our names: `build(method, ..., **preset(...))`.

    Args:
        method: a registered name.
        dataset: one of `DATASETS`.

    Raises:
        ValueError: there is none for this pair; lists what there is.
    """
    return dict(_published(method, dataset).params[dataset])


def preset_source(method: str, dataset: str) -> str:
    """Where `preset(method, dataset)` is from. Raises ValueError like `preset`."""
    return _published(method, dataset).source


def preset_training(method: str, dataset: str) -> dict:
    """Epochs, batch size and learning rate of the same source, as far as it gives them. Raises ValueError likewise."""
    return dict(_published(method, dataset).training.get(dataset, {}))


def _published(method: str, dataset: str) -> Published:
    if method not in PRESETS:
        raise ValueError(
            f"no published hyperparameters for method {method!r}; there are some for {', '.join(sorted(PRESETS))}"
        )
    if dataset not in PRESETS[method].params:
        raise ValueError(
            f"no published hyperparameters for method {method!r} on {dataset!r}; there are some on "
            f"{', '.join(PRESETS[method].params)}"
        )
    return PRESETS[method]
