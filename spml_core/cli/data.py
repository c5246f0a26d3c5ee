"""`spml data`: what concerns a data set before anything is trained."""

import sys

import click

from spml_core.cli.data_labels import labels
from spml_core.cli.text import ROOT, label_options, table, values
from spml_core.words import count

# Of `decoding.decode`; RGB needs no word.
TREATMENT = {
    "L": "grey: the value in all three channels",
    "1": "bilevel: black and white",
    "LA": "grey with transparency: laid over white",
    "La": "grey with transparency: laid over white",
    "P": "palette: its colours; transparent ones over white",
    "PA": "palette with transparency: laid over white",
    "RGBA": "transparency: laid over white",
    "RGBa": "transparency: laid over white",
    "CMYK": "converted without colour profile",
    "YCbCr": "converted to RGB",
    "LAB": "converted to RGB",
    "HSV": "converted to RGB",
    "I;16": "16 bits: scaled to 8",
    "I": "32 bits: scaled to 8 if within 0..65535",
    "F": "floating point: refused",
}
ROTATED, ANIMATED = "turned as EXIF says", "first frame is read"


@click.group()
def data():
    """Check a data set, decode its images once, draw and exchange observed labels.

    Relative paths start at the project folder, or at the working directory where spml is installed elsewhere.
    """


data.add_command(labels)


def of_data_set(command):
    """The options by which every subcommand finds a data set."""
    pairs = {"type": (str, str), "multiple": True, "metavar": "NAME VALUE"}
    for add in (
        click.option(
            "--runs-dir",
            default="runs",
            show_default=True,
            help="Folder of audits and of the cache, as of spml train.",
        ),
        click.option(
            "options", "-d", "--data", help="Option of the data set, as for spml train; repeatable.", **pairs
        ),
        click.option("--root", type=click.Path(), required=True, help=ROOT),
        click.argument("name"),
    ):
        command = add(command)
    return command


@data.command()
@of_data_set
@click.option(
    "json_file",
    "--json",
    type=click.Path(dir_okay=False),
    help="File of the full report. Default: in RUNS_DIR/audit, named after the data set.",
)
def check(name, root, options, runs_dir, json_file):
    """Audit the data set NAME before training.

    Reads and decodes every image that training uses: missing, empty, truncated, unreadable and extra files, copies
    within and across splits, images without labels, unknown labels, classes without positives or negatives, names of
    classes that are probably one, numbers of images other than published, colour modes and what becomes of them. A
    summary on the screen, all names in a JSON file.

    Exit code: 0 if fit for training, perhaps with notes; 1 if training would stop or be wrong; 2 for wrong usage: no
    such data set, option or folder.

    \b
    spml data check folder --root my_photos
    spml data check voc2012 --root VOCdevkit -d difficult ignore
    """
    import json

    from spml_core.data.audit import audit
    from spml_core.paths import locate

    report = audit(_read(name, root, options))
    file = locate(json_file or f"{runs_dir}/audit/{report['name']}.json")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(report, indent=1) + "\n")
    click.echo(f"{_screen(report)}\n{file}")
    sys.exit(not report["ok"])


@data.command()
@of_data_set
@click.option(
    "--size",
    type=click.IntRange(min=1),
    help="Side of the images, pixels. Default: what training reads, 224 for a folder, 448 for the others.",
)
def prepare(name, root, options, runs_dir, size):
    """Decode the images of the data set NAME once, for training at the speed of the disk.

    Writes RUNS_DIR/cache/pixels-SIZE-*.npy, 3 * SIZE * SIZE bytes an image. Training at that size finds it by the
    content of the images. An interrupted run resumes when it is started again.

    Exit code: 0 if all is prepared; 1 if images or labels are not as they must be, or the disk is full; 2 for wrong
    usage; 130 if interrupted.

    \b
    spml data prepare coco2014 --root coco                   82,081 + 40,137 images at 448: 74 GB
    spml data prepare folder --root my_photos                at 224, as spml train reads a folder
    spml data prepare folder --root my_photos --size 448     then spml train ... -d size 448
    """
    import time

    from spml_core.data import DataError
    from spml_core.data.files import pixels
    from spml_core.data.files.store import in_words
    from spml_core.paths import locate

    if "size" in (given := values(options)):
        raise click.UsageError(f"the size is an option of its own here: --size {given['size']}")
    listing = _read(name, root, options)
    size = listing.size if size is None else size
    problems, _ = listing.file_problems()
    if problems:  # known at once, before anything is decoded
        raise click.ClickException("\n".join([*problems, "`spml data check` reports everything else."]))
    paths = listing.files()
    start = time.time()
    try:
        file = pixels.prepare(paths, size, locate(runs_dir) / "cache")
    except (DataError, OSError) as error:  # such as a full disk
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        click.echo("interrupted; the same command resumes", err=True)
        sys.exit(130)
    size_on_disk = f"{count(len(paths), 'image')} of {size}x{size} pixels, {in_words(file.stat().st_size)}"
    if file.stat().st_mtime < start:
        click.echo(f"{size_on_disk}: already prepared\n{file}")
    else:
        seconds = time.time() - start
        click.echo(f"{size_on_disk}, in {seconds:.1f} s: {len(paths) / seconds:,.0f} a second\n{file}")
    for text in listing.problems:
        click.echo(f"Before training: {text}")
    click.echo(f"To train from it: {_training(name, root, options, runs_dir, size, listing.size)}")


def _read(name: str, root: str, options: tuple):
    from spml_core.data import DataError, OptionError, read

    try:
        return read(name, root=root, **label_options(options))
    except OptionError as error:
        raise click.UsageError(str(error)) from error
    except DataError as error:
        raise click.ClickException(str(error)) from error


def _training(name: str, root: str, options: tuple, runs_dir: str, size: int, default: int) -> str:
    """The command that reads what was prepared."""
    import shlex

    words = ["spml", "train", "--dataset", name, "--root", root]
    for pair in options if size == default else (*options, ("size", str(size))):
        words += ["-d", *pair]
    return shlex.join(words + (["--runs-dir", runs_dir] if runs_dir != "runs" else []))


def _screen(report) -> str:
    """The report in a few lines; the lists of files are in its JSON."""
    counts = ", ".join(f"{number:,} {split}" for split, number in report["images"].items())
    noun = "image" if sum(report["images"].values()) == 1 else "images"
    name, at = report["name"], report["lines"]
    lines = [f"{name}: {counts} {noun}; {count(report['classes'], 'class')}", ""]
    rows = [("kind", "images", "first")]
    for kind, found in (report["problems"] | {"extra": report["extra"]}).items():
        rows.append((kind, str(len(found)), found[0] if found else ""))
    groups = (("duplicates", report["duplicates"]), ("across splits", report["across_splits"]))
    for kind, found in groups:
        first = " = ".join(f"{path} ({split})" for split, path in found[0]) if found else ""
        rows.append((kind, str(sum(map(len, found))), first))
    for split, ids in report["unlabeled"].items():
        line = f" (labels.csv line {at[ids[0]]})" if ids and ids[0] in at else ""
        rows.append((f"no label, {split}", str(len(ids)), f"{ids[0]}{line}" if ids else ""))
    lines += [table(rows), ""]
    rows = [("classes", *report["no_positives"])]
    for text, found in (("no positive", report["no_positives"]), ("no negative", report["no_negatives"])):
        rows.append((text, *(str(len(names)) for names in found.values())))
    if any(report["unknown"].values()):
        rows.append(("unknown labels", *(f"{number:,}" for number in report["unknown"].values())))
    lines += [table(rows), "", table(_modes(report)), ""]
    sizes = report["sizes"].items()
    shown = [f"{side} {low} to {high} (median {middle})" for side, (low, middle, high) in sizes]
    lines += [f"sizes: {', '.join(shown)} pixels", ""] if shown else []
    lines += [f"wrong: {text}" for text in report["wrong"]] + [f"note:  {text}" for text in report["odd"]]
    verdict = "training on this would be wrong" if report["wrong"] else "fit for training"
    return "\n".join([*lines, f"{name} is {verdict}." if report["ok"] else f"{name}: {verdict}."])


def _modes(report) -> list[tuple[str, str, str]]:
    rows = [("mode", "images", "what is done")]
    for mode, number in report["modes"].items():
        kind = "I;16" if mode.startswith("I;16") else mode
        rows.append((mode, str(number), TREATMENT.get(kind, "" if mode == "RGB" else "converted to RGB")))
    for name, found, done in (
        ("rotated", report["rotated"], ROTATED),
        ("animated", report["animated"], ANIMATED),
    ):
        if found:
            rows.append((name, str(len(found)), done))
    return rows
