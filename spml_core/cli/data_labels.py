"""`spml data labels`: draw observed labels, or import those drawn by others, and write them to a file."""

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
              help="Positives and verified negatives per image, or another scheme of data/README.md.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Seed of the label draw.")
@click.option("--protocol", type=click.Choice(["per_image", "cole2021"]), default="per_image", show_default=True,
              help="Protocol of the label draw; cole2021 with --seed 1200 gives the published draws.")  # fmt: skip
@click.option("source", "--import", type=click.Path(),
              help="Read labels drawn by others: a manifest, or for the training images alone an .npy matrix or "
              "Hill/SPLC's list (lines of an image id and the indices of its classes).")  # fmt: skip
@click.option(
    "--convention",
    help="Meaning of -1 in an .npy file: spml (verified negative), em (soft pseudo-label) or partial (unobserved).",
)
@click.option(
    "--images", type=click.Path(), help="The .npy vector with the image names of an imported matrix."
)
@click.option("--nan", type=click.Choice(["error", "unknown"]), default="error", show_default=True,
              help="How to treat NaN in an imported matrix.")  # fmt: skip
@click.option("answers", "--merge", type=click.Path(), metavar="FILE.csv",
              help="Add the answers of an annotator to the training images' labels: columns image,class,present, where "
              "present is 1, 0 or empty; see spml data suggest.")  # fmt: skip
@click.option("--output", type=click.Path(), help="Write a manifest of all splits to FILE.csv.")
@click.option("--force", is_flag=True, help="Overwrite the output if it exists.")
def labels(
    name, root, data, drop, observe, seed, protocol, source, convention, images, nan, answers, output, force
):  # fmt: skip
    """Draw or import the observed labels of the data set NAME, and print a summary.

    \b
    spml data labels digits --output single.csv
    spml data labels digits --drop 0.8 --seed 1 --output drop80.csv
    spml data labels folder --root my_photos --observe '{"weights": "inverse_frequency"}'
    spml data labels voc2012 --root VOC --import formatted_train_labels_obs.npy \\
         --images formatted_train_images.npy --convention spml --output voc-published.csv
    spml train --manifest voc-published.csv ...
    spml data labels digits --import single.csv --merge suggestions.csv --output more.csv

    Only label files are read. Without --output, nothing is written, not even to a cache. If an imported file has no
    labels for the validation images, they are drawn with --seed and --protocol. Relative paths start at the project
    folder, or at the working directory if spml is installed outside it.

    Exit code: 0; 1 for invalid labels; 2 for wrong usage.
    """
    from spml_core.data import manifest
    from spml_core.data import observe as schemes

    file = output and text.new_csv(output, force)
    scheme = schemes.check(text.value(observe) if drop is None else {"drop": drop})
    classes, parts = schemes.truth(name, **text.options(data, root))
    observed, notes = schemes.draw(scheme, parts, classes, seed, protocol), {}
    if source:
        found, notes = _imported(source, convention, images, nan, classes, parts)
        notes |= {k: f"not in the file, drawn by {protocol}, seed {seed}" for k in observed if k not in found}
        observed |= found
    if answers:
        train = parts["train"]
        merged, new = manifest.merge(answers, train.ids, observed["train"], classes)
        observed["train"] = schemes.require_agreement(merged, train, classes)
        added = f"{count(new['positive'], 'positive')} and {count(new['negative'], 'verified negative')}"
        notes |= {"merged": added}
    click.echo(_report(name, classes, parts, observed))
    for key, value in notes.items():
        click.echo(f"{key}: {value}")
    if file:
        click.echo(f"{file}: SHA-256 {schemes.write_manifest(file, parts, observed, classes)}")


def _imported(source, convention, images, nan, classes, parts):
    """Return the observed labels of each split that a file covers, and notes on the file."""
    from spml_core.data import DataError, manifest
    from spml_core.data import observe as schemes

    path = locate(source)
    if path.suffix == ".npy":
        if images is None:
            raise click.UsageError(
                "a matrix does not name its images: add --images FILE.npy, which is published with it"
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
            f"{path} has {count(len(observed), 'row')} and {count(observed.shape[1], 'column')}, but there are "
            f"{count(len(ids), 'image name')} and {count(len(classes), 'class')}"
        )
    result = {}
    for split, part in parts.items():
        # A published matrix holds all training images; the validation images were split off later.
        if split == "train" or (split == "val" and set(part.ids) <= set(ids)):
            found = manifest.Manifest(tuple(ids), (split,) * len(ids), observed)
            result[split] = schemes.require_agreement(found.rows(part.ids, split), part, classes)
    return result, notes


def _report(name, classes, parts, observed) -> str:
    from spml_core.analysis.label_statistics import summary

    columns = ("images", "positives per image", "observed per image", "verified negatives", "false negatives")
    rows = [("split", *columns)]
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
