"""`spml data labels`: observed labels as a file, drawn here or by others."""

import click

from spml_core.cli import text
from spml_core.paths import locate
from spml_core.words import count


@click.command(cls=text.Command)
@click.argument("name")
@text.root
@text.data
@text.drop
@click.option("--observe", default="[1, 0]", show_default=True,
              help="Positives and verified negatives of an image, or another scheme of data/README.md.")  # fmt: skip
@click.option("--seed", default=0, show_default=True)
@click.option("--protocol", type=click.Choice(["per_image", "cole2021"]), default="per_image", show_default=True,
              help="cole2021 with --seed 1200 gives the published draws.")  # fmt: skip
@click.option("source", "--import", type=click.Path(),
              help="Labels that others drew: a manifest, or of the training images an .npy matrix or a list of "
              "id,indices.")  # fmt: skip
@click.option("--convention", help="What -1 means in an .npy file: spml, em or partial.")
@click.option("--images", type=click.Path(), help="The .npy vector of image names beside an imported matrix.")
@click.option("--nan", type=click.Choice(["error", "unknown"]), default="error", show_default=True,
              help="NaN in an imported matrix.")  # fmt: skip
@click.option("--output", type=click.Path(), help="FILE.csv, a manifest of all splits.")
@click.option("--force", is_flag=True, help="Replace the output if it is there.")
def labels(
    name, root, data, drop, observe, seed, protocol, source, convention, images, nan, output, force
):  # fmt: skip
    """Draw the observed labels of data set NAME, or import them, and print what they hold.

    \b
    spml data labels digits --output single.csv
    spml data labels digits --drop 0.8 --seed 1 --output drop80.csv
    spml data labels folder --root my_photos --observe '{"weights": "inverse_frequency"}'
    spml data labels voc2012 --root VOC --import formatted_train_labels_obs.npy \\
         --images formatted_train_images.npy --convention spml --output voc-published.csv
    spml train --manifest voc-published.csv ...

    Without --output nothing is written: only label files are read, and there is no cache. What a file says of no
    validation image is drawn here, by --seed and --protocol. Relative paths start at the project folder, or at the
    working directory where spml is installed elsewhere.

    Exit code: 0, or 1 if the labels are not as they must be, or 2 for wrong usage.
    """
    from spml_core.data import observe as schemes

    if output and not output.endswith(".csv"):
        raise click.UsageError(f"--output {output}: the name of a manifest ends in .csv")
    if output and not force and locate(output).exists():
        raise click.UsageError(
            f"--output {locate(output)} is there already: give another name, or --force to replace it"
        )
    scheme = schemes.check(text.value(observe) if drop is None else {"drop": drop})
    classes, parts = schemes.truth(name, **text.label_options(data, root))
    observed, notes = schemes.draw(scheme, parts, classes, seed, protocol), {}
    if source:
        found, notes = _imported(source, convention, images, nan, classes, parts)
        notes |= {k: f"not in the file, drawn by {protocol}, seed {seed}" for k in observed if k not in found}
        observed |= found
    click.echo(_report(name, classes, parts, observed))
    for key, value in notes.items():
        click.echo(f"{key}: {value}")
    if output:
        file = locate(output)
        file.parent.mkdir(parents=True, exist_ok=True)
        click.echo(f"{file}: SHA-256 {schemes.write_manifest(file, parts, observed, classes)}")


def _imported(source, convention, images, nan, classes, parts):
    """Return observed labels for each split that a file speaks of, and what is to be said of the file."""
    from spml_core.data import DataError, manifest
    from spml_core.data import observe as schemes

    path = locate(source)
    if path.suffix == ".npy":
        if images is None:
            raise click.UsageError(
                "the rows of a matrix need names: --images FILE.npy, as published beside it"
            )
        observed, notes = manifest.read_matrix(path, convention, nan=nan)
        ids, notes = manifest.read_images(images), {f"imported {k}": v for k, v in notes.items()}
    elif not path.name.endswith(".gz") and manifest.is_manifest(path):
        scheme = schemes.check({"manifest": str(path)})
        return schemes.draw(scheme, parts, classes, 0, "per_image"), {"imported sha256": scheme["sha256"]}
    else:
        ids, observed = manifest.read_list(path, len(classes))
        notes = {"imported sha256": manifest.digest(path)}
    if observed.shape != (len(ids), len(classes)):
        raise DataError(
            f"{path} has {count(len(observed), 'row')} of {count(observed.shape[1], 'class')}: there are "
            f"{count(len(ids), 'name')} of images, and the data set has {count(len(classes), 'class')}"
        )
    result = {}
    for split, part in parts.items():
        # A published matrix holds all training images; which of them validate was decided later, by a split.
        if split == "train" or (split == "val" and set(part.ids) <= set(ids)):
            found = manifest.Manifest(tuple(ids), (split,) * len(ids), observed, tuple(classes), "")
            result[split] = schemes.agreeing(found.rows(part.ids, split), part, classes)
    return result, notes


def _report(name, classes, parts, observed) -> str:
    from spml_core.analysis.label_statistics import summary

    head = (
        "split",
        "images",
        "positives an image",
        "observed an image",
        "verified negatives",
        "false negatives",
    )
    rows = [head]
    for split, part in parts.items():
        numbers = summary(part.full, observed.get(split), part.known)
        shown = []
        if split in observed:
            negatives = (observed[split] == -1).sum() / len(part)
            share = numbers["false_negative_share"]
            missing = "none missing" if share != share else f"{100 * share:.2f} % of the missing labels"
            shown = [f"{numbers['mean_observed']:.4f}", f"{negatives:.2f}", missing]
        rows.append((split, f"{numbers['images']:,}", f"{numbers['mean_positives']:.4f}", *shown))
    return f"{name}: {count(len(classes), 'class')}\n{text.table(rows)}"
