"""`spml data`: commands that prepare a data set before training."""

import json
import shlex
import sys
import time

import click

from spml_core.cli import text
from spml_core.cli.data_labels import labels
from spml_core.cli.data_suggest import suggest
from spml_core.paths import command, locate, write_whole
from spml_core.words import count

TREATMENT = {  # what `decoding.decode` does; other colour modes are converted to RGB
    "RGB": "",
    "I;16": "16 bits: scaled to 8",
    "I": "32 bits: scaled to 8 if within 0..65535",
    "F": "floating point: refused",
    "rotated": "rotated as EXIF says",
    "animated": "the first frame is read",
}


@click.group()
def data():
    """Check a data set, decode its images once, draw or import observed labels, suggest missing ones.

    Relative paths start at the project folder, or at the working directory if that is not inside the project.
    """


data.add_command(labels)
data.add_command(suggest)


@data.command(cls=text.Command)
@click.argument("name")
@text.root
@text.data
@text.runs_dir
def check(name, root, data, runs_dir):
    """Check the data set NAME before training.

    Reads and decodes every image that training uses. Reports missing, empty, truncated, unreadable and extra files,
    copies within and across splits, images without labels, unknown labels, classes without positives or negatives,
    class names that probably mean the same class, numbers of images that differ from the published ones, and colour
    modes with their conversion. Prints a summary and writes all names to a JSON file in RUNS_DIR/audit.

    Exit code: 0 if the data set is fit for training, perhaps with notes; 1 if training would stop or be wrong; 2 for
    wrong usage, such as an unknown data set, option or folder.

    \b
    spml data check folder --root my_photos
    spml data check voc2012 --root VOCdevkit -d difficult ignore
    """
    from spml_core.data import read
    from spml_core.data.audit import audit

    report = audit(read(name, **text.options(data, root)))
    file = locate(runs_dir) / "audit" / f"{report['name']}.json"
    write_whole(file, json.dumps(report, indent=1) + "\n")
    click.echo(f"{_screen(report)}\n{file}")
    sys.exit(not report["ok"])


@data.command(cls=text.Command)
@click.argument("name")
@text.root
@text.data
@text.runs_dir
@click.option(
    "--size",
    type=click.IntRange(min=1),
    help="Side length of the images in pixels. Default: the size that training reads, 224 for a folder, else 448.",
)
def prepare(name, root, data, runs_dir, size):
    """Decode the images of the data set NAME once, so that training only reads them from disk.

    Writes RUNS_DIR/cache/pixels-SIZE-*.npy, with 3 * SIZE * SIZE bytes per image. Training at that size finds the file
    by the content of the images. If interrupted, run the same command again to resume.

    Exit code: 0 if all images are prepared; 1 for invalid images or labels, or a full disk; 2 for wrong usage; 130 if
    interrupted.

    \b
    spml data prepare coco2014 --root coco                   82,081 + 40,137 images at 448: 74 GB
    spml data prepare folder --root my_photos                at 224, as spml train reads a folder
    spml data prepare folder --root my_photos --size 448     then spml train ... -d size 448
    """
    from spml_core.data import DataError, read
    from spml_core.data.files import pixels
    from spml_core.data.files.store import in_words

    if "size" in data:
        raise click.UsageError(f"this command has its own option for the size: --size {data['size']}")
    listing = read(name, **text.options(data, root))
    size = size or listing.size
    problems, _ = listing.file_problems()
    if problems:  # known at once, before anything is decoded
        raise DataError("\n".join([*problems, "`spml data check` reports everything else."]))
    paths, start = listing.files(), time.time()
    file = pixels.prepare(paths, size, locate(runs_dir) / "cache")
    seconds = time.time() - start
    made = file.stat().st_mtime >= start
    took = f"in {seconds:.1f} s: {len(paths) / seconds:,.0f} per second" if made else "already prepared"
    disk = in_words(file.stat().st_size)
    click.echo(f"{count(len(paths), 'image')} of {size}x{size} pixels, {disk}, {took}\n{file}")
    for problem in listing.problems:
        click.echo(f"Before training: {problem}")
    data |= {} if size == listing.size else {"size": size}
    training = [command(), "train", "--dataset", name, *text.arguments(data, root)]
    training += [] if runs_dir == "runs" else ["--runs-dir", runs_dir]
    click.echo(f"To train from it: {shlex.join(training)}")


def _screen(report: dict) -> str:
    """Return the report in a few lines; its JSON has the lists of files."""
    name, at = report["name"], report["lines"]
    found = report["problems"] | {"extra": report["extra"]}
    for kind, groups in (("copies", report["duplicates"]), ("copies across splits", report["across_splits"])):
        found[kind] = [" = ".join(f"{path} ({split})" for split, path in group) for group in groups]
    for split, ids in report["unlabeled"].items():
        found[f"no label, {split}"] = [f"{i} (line {at[i]})" if i in at else i for i in ids]
    for kind in ("positives", "negatives"):
        found |= {f"classes without {kind}, {k}": names for k, names in report[f"no_{kind}"].items()}
    rows = [("finding", "count", "first example, or treatment")]
    rows += [(kind, str(len(each)), *each[:1]) for kind, each in found.items()]
    rows += [(f"unknown labels, {k}", f"{number:,}") for k, number in report["unknown"].items() if number]
    modes = report["modes"] | {kind: len(report[kind]) for kind in ("rotated", "animated") if report[kind]}
    for mode, number in modes.items():
        kind = "I;16" if mode.startswith("I;16") else mode
        done = TREATMENT.get(kind, "converted to RGB, transparency drawn on white")
        rows.append((mode, str(number), done))
    splits = ", ".join(f"{number:,} {split}" for split, number in report["images"].items())
    noun = "image" if sum(report["images"].values()) == 1 else "images"
    sizes = [f"{side} {a} to {c} (median {b})" for side, (a, b, c) in report["sizes"].items()]
    lines = [f"{name}: {splits} {noun}; {count(report['classes'], 'class')}", text.table(rows)]
    lines += [f"sizes: {', '.join(sizes)} pixels"] if sizes else []
    lines += [f"wrong: {said}" for said in report["wrong"]] + [f"note:  {said}" for said in report["odd"]]
    verdict = "fit for training" if report["ok"] else "training on it would be wrong"
    return "\n".join([*lines, f"{name}: {verdict}."])
