"""`spml search`."""

import json

import click

from spml_core.cli import text
from spml_core.paths import command
from spml_core.words import count


@click.command(cls=text.Command)
@click.argument("space")
@text.pairs(
    "changes", "-p", "--param", help="Set a fixed field of the experiments, e.g. -p data.min_images 20"
)
@click.option(
    "--name", help="Name of the search, instead of the one in the file; each name is a separate search."
)
@click.option(
    "--trials", type=click.IntRange(min=1), help="Number of trials, instead of the one in the file."
)
@click.option("--storage", metavar="URL", help="Database, for use on many machines. Default: a journal file.")
@text.jobs
@text.runs_dir
def search(space, changes, name, trials, storage, jobs, runs_dir):
    """Search hyperparameters: choose by validation mAP, report the test mAP of the choice.

    \b
    spml search digits-gr
    spml search my_search.yaml -p root my_photos --jobs 4
    spml search my_search.yaml --storage postgresql://me@host/base

    SPACE is a YAML file, or the name of one that comes with the package. With -p val_labels observed -p select ranking,
    trials are compared without clean labels. An interrupted search resumes. The best
    configuration (for spml train --preset) and a CSV file with all trials are written to RUNS_DIR/search.
    """
    from spml_core import search as library

    plan = library.read(space, changes, name)
    plan = plan.model_copy(update={} if trials is None else {"trials": trials})
    with text.executor(jobs) as executor:
        found = library.search(plan, executor, runs_dir, storage=storage)
    best = found.trials[found.trials["state"] == "complete"].head().drop(columns=["state", "error"])
    best["val_map"] = best["val_map"].map("{:.2f}".format)
    best = best.rename(columns={"val_map": found.space.measure})
    counts = ", ".join(f"{number} {kind}" for kind, number in found.counts.items())
    chosen = [(key, json.dumps(value)) for key, value in found.chosen.items()]
    options = [f"--seed {run.config['seed']}" for run in found.runs]
    options += [] if runs_dir == "runs" else [f"--runs-dir {runs_dir}"]
    lines = [
        f"{found.space.name}: {count(sum(found.counts.values()), 'trial')} ({counts}), all in "
        f"{found.preset.with_name(f'{found.space.name}.trials.csv')}; the best {len(best)}:",
        best.to_string(index=False, float_format="{:.4g}".format),
        f"\nchosen\n{text.table(chosen)}",
        f"{found.space.measure} {found.val_map:.2f} ({found.runs[0].summary['val_labels']} labels, "
        f"{count(found.space.seeds, 'seed')}), used to choose it",
        f"test mAP {text.mean_map(found.runs, 'test')} ({count(len(found.runs), 'seed')})",
        f"{command()} train --preset {found.preset} {' '.join(options)}{text.warned(found.runs)}",
    ]
    click.echo("\n".join(lines))
