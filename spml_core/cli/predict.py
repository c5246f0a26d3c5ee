"""`spml predict` and `spml export`: from a run to predictions, or to a file for other programs."""

import sys

import click

from spml_core.cli import text
from spml_core.words import count, some


@click.command(cls=text.Command)
@click.argument("run")
@click.argument("images", nargs=-1, required=True)
@click.option("--output", type=click.Path(), required=True, help="Write the predictions to FILE.csv.")
@click.option("--top", type=click.IntRange(min=1), metavar="K", help="Write the K most probable classes.")
@click.option("--labels", is_flag=True, help="Write the labels whose probability is above the threshold.")
@click.option(
    "--threshold",
    metavar="P",
    help="Threshold of --labels, 0 to 1; or validation, for one per class that maximises F1 on the validation images. "
    "Default: 0.5.",
)
@click.option("--jobs", type=click.IntRange(min=1), help="Number of threads. Default: the number of cores.")
@text.runs_dir
@click.option("--force", is_flag=True, help="Overwrite the output if it exists.")
def predict(run, images, output, top, labels, threshold, jobs, runs_dir, force):
    """Predict the labels of IMAGES with the network of RUN, and write a CSV file.

    \b
    spml predict folder-gr my_photos/images --output predictions.csv
    spml predict folder-gr my_photos/images --output top3.csv --top 3
    spml predict folder-gr my_photos/images --output labels.csv --labels --threshold validation

    RUN is the folder of a run, or its name or the beginning of it. IMAGES are image files, folders (all images below
    them), or .txt files with one path per line. Relative paths start at the project folder, or at the working directory
    if that is not inside the project. Images are decoded as in training.

    The columns are image and the probability of each class. With --top, they are image, label_1, probability_1, and so
    on; with --labels, image and labels, joined by ";". If interrupted, run the same command again to resume. Files that
    cannot be read are listed in OUTPUT.errors.csv, and the others are predicted.

    Exit code: 0; 1 if a file cannot be read; 2 for wrong usage, such as a missing folder; 130 if interrupted.
    """
    from spml_core.data.files.table import bullets
    from spml_core.runs import find, predictions

    file = text.new_csv(output, force)
    if top is not None and labels:
        raise click.UsageError("--top and --labels are mutually exclusive")
    if threshold is not None and not labels:
        raise click.UsageError("--threshold is for --labels")
    found = find(run, runs_dir)
    if threshold == "validation":
        threshold = predictions.thresholds(found)
    elif labels:
        threshold = _number(threshold or "0.5")
    names = predictions.images(images)
    faults = predictions.write(found, names, file, top=top, threshold=threshold, jobs=jobs)
    done = len(names) - len(faults)
    click.echo(f"{file}: {count(done, 'image')}, {count(len(found.classes), 'class')} of {found.path.name}")
    if faults:
        counted = some(len(faults), len(names), "image", "cannot", "cannot")
        listed = bullets(f"{name}: {reason}" for name, reason in faults)
        click.echo(f"{counted} be read (all in {file.with_suffix('.errors.csv')}):{listed}", err=True)
    sys.exit(bool(faults))


@click.command(cls=text.Command)
@click.argument("run")
@click.option(
    "--format",
    type=click.Choice(["onnx", "torch"]),
    help="onnx, for ONNX Runtime and others; torch, for torch.export.load. Default: by OUTPUT's ending, else onnx.",
)
@click.option(
    "--output",
    type=click.Path(),
    help="FILE.onnx or FILE.pt2. Default: model.onnx or model.pt2 in the run's folder.",
)
@text.runs_dir
def export(run, format, output, runs_dir):
    """Export the network of RUN as one file, from images to probabilities, and compare it with the run.

    \b
    spml export folder-gr --output model.onnx
    spml export folder-gr --output model.pt2

    RUN is the folder of a run, or its name or the beginning of it. The file takes uint8 images (N, channels, size,
    size) for any N. Class names and the rule for resizing are in its metadata. ONNX needs the extra "export".
    """
    from spml_core import runs

    file, worst = runs.export(runs.find(run, runs_dir), output, format)
    click.echo(f"{file}: probabilities differ from the run's by at most {worst:.1g} on generated images")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.UsageError(f"--threshold {text}: give a number from 0 to 1, or validation") from None
