"""`spml data labels`: observed labels as a file, drawn here or by others."""

from pathlib import Path

import click

from spml_core.cli.text import DROP, ROOT, label_options, table
from spml_core.paths import locate
from spml_core.words import count


@click.command()
@click.argument("name")
@click.option("--root", type=click.Path(), help=f"{ROOT} All but digits need it.")
@click.option("options", "-d", "--data", type=(str, str), multiple=True, metavar="NAME VALUE",
              help="Option of the data set, as for spml train; repeatable.")  # fmt: skip
@click.option(
    "--num-pos", type=click.IntRange(min=-1), help="Positives an image shows, -1 = all. Default: 1."
)
@click.option("--num-neg", type=click.IntRange(min=-1), help="Verified negatives, -1 = all. Default: 0.")
@click.option(
    "--drop",
    type=click.FloatRange(0, 1),
    metavar="RATIO",
    help=DROP,
)
@click.option("--weights", type=click.Choice(["frequency", "inverse_frequency"]),
              help="Draw common, or rare, classes more often.")  # fmt: skip
@click.option("--seed", default=0, show_default=True)
@click.option("--protocol", type=click.Choice(["per_image", "cole2021"]), default="per_image", show_default=True,
              help="cole2021 with --seed 1200 gives the published draws.")  # fmt: skip
@click.option("source", "--import", type=click.Path(),
              help="Labels that others drew: a manifest, an .npy matrix, or a list of id,indices.")  # fmt: skip
@click.option("--convention", help="What -1 means in an .npy file, read or written: spml, em or partial.")
@click.option("--images", type=click.Path(),
              help="The .npy vector of image names beside an imported matrix.")  # fmt: skip
@click.option("--nan", type=click.Choice(["error", "unknown"]), default="error", show_default=True,
              help="NaN in an imported matrix.")  # fmt: skip
@click.option("--split", type=click.Choice(["train", "val"]), default="train", show_default=True,
              help="Which images an .npy file holds.")  # fmt: skip
@click.option("--output", type=click.Path(),
              help="FILE.csv: a manifest of all splits. FILE.npy: a matrix, and FILE_images.npy.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace the output if it is there.")
def labels(name, root, options, source, convention, images, nan, split, output, force, **draw):
    """Draw the observed labels of data set NAME, or import them, and print what they hold.

    \b
    spml data labels digits --output single.csv
    spml data labels digits --drop 0.8 --seed 1 --output drop80.csv
    spml data labels folder --root my_photos --weights inverse_frequency
    spml data labels voc2012 --root VOC --import formatted_train_labels_obs.npy \\
         --images formatted_train_images.npy --convention spml --output voc-published.csv
    spml train --manifest voc-published.csv ...

    Without --output nothing is written: only label files are read, and there is no cache. What a file says of no
    validation image is drawn here, by --seed and --protocol. Relative paths start at the project folder, or at the
    working directory where spml is installed elsewhere.

    Exit code: 0, or 1 if the label files of the data set are not as they must be, or 2 for wrong usage.
    """
    from spml_core.data import manifest
    from spml_core.data.observe import draw as draw_labels

    try:
        options = label_options(options) | ({} if root is None else {"root": root})
        if output and Path(output).suffix not in (".csv", ".npy"):
            raise ValueError(f"--output {output}: the name ends in .csv (manifest) or .npy (matrix)")
        if output and not force and locate(output).exists():
            raise ValueError(
                f"--output {locate(output)} is there already: give another name, or --force to replace it"
            )
        if output and output.endswith(".npy"):
            manifest.to_convention([[0]], convention or "spml")  # raises if there is no such convention
        observe = _observe(**draw)
        classes, parts = _truth(name, options)
        observed, notes = {}, {}
        if source:
            observed, notes = _imported(source, convention, images, nan, split, classes, parts)
        drawn = draw_labels(observe, parts, classes, draw["seed"], draw["protocol"])
        if source:
            how = f"not in the file, drawn by {draw['protocol']}, seed {draw['seed']}"
            notes |= {k: how for k in drawn if k not in observed}
        observed = drawn | observed
        click.echo(_report(name, classes, parts, observed))
        for key, value in notes.items():
            click.echo(f"{key}: {value}")
        if output:
            _write(output, convention or "spml", split, parts, observed, classes)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _truth(name: str, options: dict):
    """Return classes and truth; bad data are not wrong usage."""
    from spml_core.data import DataError, OptionError
    from spml_core.data.observe import truth

    try:
        return truth(name, **options)
    except OptionError:
        raise
    except DataError as error:
        raise click.ClickException(str(error)) from error


def _observe(num_pos, num_neg, drop, weights, **_):
    from spml_core.data.observe import check

    if drop is not None:
        if (num_pos, num_neg, weights) != (None, None, None):
            raise ValueError(
                "--drop says by itself how many positives stay: leave out --num-pos, --num-neg, --weights"
            )
        return check({"drop": drop})
    num_pos = 1 if num_pos is None else num_pos
    if weights is not None:
        if num_neg:
            raise ValueError("--weights draws positives only: leave out --num-neg")
        return check({"num_pos": num_pos, "weights": weights})
    return check((num_pos, num_neg or 0))


def _imported(source, convention, images, nan, split, classes, parts):
    """Return observed labels for each split that a file speaks of, and what is to be said of the file."""
    from spml_core.data import DataError, manifest
    from spml_core.data.observe import agreeing, check, draw

    path = locate(source)
    if path.suffix != ".npy" and not path.name.endswith(".gz") and manifest.is_manifest(path):
        checked = check({"manifest": str(path)})
        return draw(checked, parts, classes, 0, "per_image"), {"imported sha256": checked["sha256"]}
    part = parts[split]
    if path.suffix == ".npy":
        observed, notes = manifest.read_matrix(path, convention, nan=nan)
        notes = {f"imported {k}": v for k, v in notes.items()}
        ids = None if images is None else manifest.read_images(images)
    else:
        ids, observed = manifest.read_list(path, len(classes))
        notes = {"imported sha256": manifest.digest(path)}
    if observed.shape[1] != len(classes):
        raise DataError(f"{path} has {count(observed.shape[1], 'class')}, the data set {len(classes)}")
    if ids is None:
        if len(observed) != len(part):
            raise DataError(
                f"{path} has {len(observed)} rows, the data set {len(part)} {split} images. Give the names of the "
                "rows: --images FILE."
            )
        ids = part.ids
        notes["rows"] = f"taken in the order of the data set's {split} images (no --images given)"
    if len(ids) != len(observed):
        raise DataError(f"{images} names {len(ids)} images, {path} has {len(observed)} rows")
    result = {}
    for other, its in parts.items():
        # A published matrix holds all training images; which of them validate was decided later, by a split.
        if other == split or (other == "val" and set(its.ids) <= set(ids)):
            found = manifest.Manifest(tuple(ids), (other,) * len(ids), observed, tuple(classes), "")
            result[other] = agreeing(found.rows(its.ids, other), its, classes)
    return result, notes


def _report(name, classes, parts, observed) -> str:
    from spml_core.analysis.label_statistics import summary

    rows = [
        (
            "split",
            "images",
            "positives an image",
            "observed an image",
            "verified negatives",
            "false negatives",
        )
    ]
    for split, part in parts.items():
        numbers = summary(part.full, observed.get(split), part.known)
        row = (split, f"{numbers['images']:,}", f"{numbers['mean_positives']:.4f}")
        if split in observed:
            negatives = (observed[split] == -1).sum() / len(part)
            share = numbers["false_negative_share"]
            shown = "none missing" if share != share else f"{100 * share:.2f} % of the missing labels"
            row += (f"{numbers['mean_observed']:.4f}", f"{negatives:.2f}", shown)
        else:
            row += ("", "", "")
        rows.append(row)
    return f"{name}: {count(len(classes), 'class')}\n{table(rows)}"


def _write(output, convention, split, parts, observed, classes) -> None:
    import numpy as np

    from spml_core.data import manifest
    from spml_core.data.observe import write_manifest

    path = locate(output)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        click.echo(f"{path}: SHA-256 {write_manifest(path, parts, observed, classes)}")
        return
    names = path.with_name(f"{path.stem}_images.npy")
    np.save(path, manifest.to_convention(observed[split], convention))
    np.save(names, np.array(parts[split].ids, str))
    click.echo(f"{path} ({split}, convention {convention}): SHA-256 {manifest.digest(path)}")
    click.echo(f"{names}: SHA-256 {manifest.digest(names)}")
