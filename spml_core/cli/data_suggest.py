"""`spml data suggest`: which labels of the training images an annotator should look at."""

import shlex

import click

from spml_core.cli import text
from spml_core.paths import command, locate
from spml_core.words import count

THUMBNAIL = 128  # pixels, longest side


@click.command(cls=text.Command)
@click.argument("run")
@click.option("--root", type=click.Path(), help="Folder of the data set, if it has moved since the training.")
@click.option("--folds", type=click.IntRange(min=2), default=5, show_default=True,
              help="Number of trainings; each predicts the images that it has not seen.")  # fmt: skip
@click.option("--missing", type=click.IntRange(min=0), default=1000, show_default=True,
              help="Number of unobserved labels to suggest.")  # fmt: skip
@click.option("--doubtful", type=click.IntRange(min=0), default=100, show_default=True,
              help="Number of observed labels to question.")  # fmt: skip
@click.option("--output", type=click.Path(), help="FILE.csv. Default: RUNS_DIR/suggestions/RUN.csv.")
@text.runs_dir
@text.jobs
@click.option("--force", is_flag=True, help="Overwrite the output if it exists, with the answers in it.")
def suggest(run, root, folds, missing, doubtful, output, runs_dir, jobs, force):
    """Suggest missing labels that are probably positive, and observed labels that are probably wrong.

    \b
    spml data suggest digits-gr-s0
    spml data suggest runs/folder-wan-s0-0a1b2c3d4e5f --folds 10 --output suggestions.csv
    spml data labels folder --root my_photos --import runs/folder-wan-s0-0a1b2c3d4e5f/labels.csv \\
         --merge suggestions.csv --output more.csv

    The suggestions are for the training images of RUN, which is the folder of a run, or its name or the beginning of
    it. Its settings and labels are used for one training per fold, each without the images of that fold. These are
    ordinary runs: they are kept, and an interrupted one resumes if you run the same command again.

    Writes a CSV file, and beside it an HTML page with thumbnails. Both list the missing labels with the highest
    probability, then the observed labels that the prediction contradicts most. Fill the column present, in the page or
    in the file: 1 if the class is in the image, 0 if it is not. Prints the
    command that adds the answers to the observed labels.

    Exit code: 0; 1 for invalid images or labels, or if training failed; 2 for wrong usage; 130 if interrupted.
    """
    from spml_core.data.files.pictures import pictures
    from spml_core.headless import suggestions as page
    from spml_core.runs import find
    from spml_core.studies import suggestions

    found = find(run, runs_dir)
    output = output or str(locate(runs_dir) / "suggestions" / f"{found.path.name}.csv")
    file = text.new_csv(output, force, ", perhaps with answers")
    with text.executor(jobs) as executor:
        labels = suggestions.out_of_fold(found, folds, root, executor, locate(runs_dir))
    table, images = suggestions.ranked(labels, missing, doubtful), found.ids("train")
    rows, classes = table["row"].tolist(), found.classes
    named = table.assign(
        image=[images[n] for n in rows], present="", **{"class": [classes[c] for c in table["column"]]}
    )
    named = named[["kind", "image", "class", "observed", "probability", "present"]].round({"probability": 4})
    others = [", ".join(classes[c] for c in (labels.observed[n] == 1).nonzero()[0]) for n in rows]
    config, root = found.config, root or found.config["root"]
    options = config["data"] | ({} if root is None else {"root": root})
    merge = [command(), "data", "labels", config["dataset"], *text.arguments(config["data"], root)]
    merge += ["--import", str(found.path / "labels.csv"), "--merge", str(file), "--output", "more.csv"]
    distinct = named["image"].unique()
    seen = dict(zip(distinct, pictures(distinct, config["dataset"], THUMBNAIL, **options), strict=True))
    shown = [seen[image] for image in named["image"]]
    written = page.write(file, named, others, shown, found.path.name, shlex.join(merge))
    number = table["kind"].value_counts()
    counts = ", ".join(count(number.get(kind, 0), f"{kind} label") for kind in suggestions.KINDS)
    click.echo(f"{counts} suggested, of {count(len(images), 'training image')}\n{file}\n{written}")
    click.echo(f"To add the answers: {shlex.join(merge)}")
