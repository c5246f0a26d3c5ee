"""Export a run's network as one file for other programs: ONNX, or a program of `torch.export`."""

import json
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from spml_core import __version__, extra, words
from spml_core.data.files import decoding
from spml_core.paths import locate

FORMATS = {"onnx": ".onnx", "torch": ".pt2"}  # and how its files end
OPSET = 20  # of ONNX
LIMIT = 1e-4  # largest difference of a probability between the file and the run
CHECKED = 16  # images with which they are compared


def export(
    run, file: str | Path | None = None, format: Literal["onnx", "torch"] | None = None
) -> tuple[Path, float]:
    """Write a run's network from images to probabilities, and compare it with the run on 16 generated images.

    The input `images` is (N, channels, size, size) uint8, RGB or grey, for any N from 1; the output `probabilities` is
    (N, C) float32. The metadata are JSON: classes, how files were resized, channels, size, run, format and versions.
    In ONNX, each is an entry of `metadata_props`; a program of torch has them in the extra file "metadata.json".

    Args:
        file: None = `model.onnx` or `model.pt2` in the run's folder. An existing file is replaced.
        format: "onnx" (opset 20; needs the extra `export`), or "torch", for `torch.export.load`. None = as `file` ends;
            ONNX without `file`.

    Returns:
        The file, and the largest difference of a probability.

    Raises:
        ValueError: unknown format, or a file that does not end as this format's files do.
        MissingExtra: the extra `export` is not installed.
        RuntimeError: a probability differs by more than 1e-4; then no file is written.
    """
    if format is None:
        format = "torch" if str(file).endswith(FORMATS["torch"]) else "onnx"
    words.check_name("format", format, FORMATS)
    file = run.path / f"model{FORMATS[format]}" if file is None else locate(file)
    if file.suffix != FORMATS[format]:
        expected = " or ".join(f"{suffix} ({name})" for name, suffix in FORMATS.items())
        raise ValueError(f"cannot write format {format!r} to {file}: the name must end in {expected}")
    if format == "onnx":
        with extra("export"):
            import onnxruntime  # noqa: F401
            import onnxscript  # noqa: F401, torch.onnx needs it
    channels, size, _ = run.image_shape
    # Contiguous weights: torch.export warns of others.
    model = nn.Sequential(run.model(), nn.Sigmoid()).to(memory_format=torch.contiguous_format)
    # Few large pixels: noise would look alike to a network.
    coarse = torch.randint(256, (CHECKED, channels, 4, 4), generator=torch.Generator().manual_seed(0))
    samples = nn.functional.interpolate(coarse.float(), size=(size, size)).to(torch.uint8)
    metadata = {
        "classes": run.classes,
        "resize": decoding.RULE,
        "channels": "RGB" if channels == 3 else "grey",
        "size": size,
        "input": "images, uint8, 0 to 255",
        "output": "probabilities, one column per class",
        "run": run.path.name,
        "versions": {"spml-core": __version__, "torch": torch.__version__},
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=file.parent) as folder, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of torch and onnxscript, about themselves
        batch = {0: torch.export.Dim("batch")}
        program = torch.export.export(model, (samples[:2],), dynamic_shapes=(batch,))
        for node in program.graph.nodes:  # it has the paths of this machine's source files
            node.meta.pop("stack_trace", None)
        draft = Path(folder) / file.name
        found = (_onnx if format == "onnx" else _torch)(program, samples, metadata, draft)
        expected = torch.cat([model(part) for part in samples.split(1)]).numpy()
        worst = float(np.abs(found - expected).max())
        if not worst <= LIMIT:
            raise RuntimeError(
                f"the exported probabilities differ from those of {run.path.name} by {worst:.1g}, more than "
                f"{LIMIT:g}: nothing was written. Try the other format."
            )
        draft.replace(file)
    return file, worst


def _onnx(program, samples: Tensor, metadata: dict, file: Path) -> np.ndarray:
    """Write the file, and return what it gives for the samples."""
    import onnxruntime

    names = {"input_names": ["images"], "output_names": ["probabilities"]}
    made = torch.onnx.export(
        program, (samples[:2],), dynamo=True, opset_version=OPSET, verbose=False, **names
    )
    found = {name: value if isinstance(value, str) else json.dumps(value) for name, value in metadata.items()}
    made.model.metadata_props.update(found | {"opset": str(OPSET)})
    made.save(file, external_data=False)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    (first,), (rest,) = (session.run(None, {"images": part.numpy()}) for part in (samples[:1], samples[1:]))
    return np.concatenate([first, rest])


def _torch(program, samples: Tensor, metadata: dict, file: Path) -> np.ndarray:
    """Write the file, and return what it gives for the samples."""
    torch.export.save(program, file, extra_files={"metadata.json": json.dumps(metadata)})
    model = torch.export.load(file).module()
    return torch.cat([model(samples[:1]), model(samples[1:])]).numpy()
