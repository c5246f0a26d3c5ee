"""`spml search`."""

import sys

import click

from spml_core.cli.text import table, values, warned


@click.command()
@click.argument("space")
@click.option("changes", "-p", "--param", type=(str, str), multiple=True, metavar="NAME VALUE",
              help="Fixed field of the experiments, e.g. -p data.min_images 20; repeatable.")  # fmt: skip
@click.option(
    "--name", help="Of the search, in place of what the file says: searches of another name stand apart."
)
@click.option("--trials", type=click.IntRange(min=1), help="In place of what the file says.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Processes.")
@click.option("--storage", metavar="URL", help="Database for many machines. Default: a journal file.")
@click.option("--runs-dir", default="runs", show_default=True, help="Folder of all runs.")
def search(space, changes, name, trials, jobs, storage, runs_dir):
    """Try hyperparameters, choose by validation mAP, report the test mAP of the best.

    \b
    spml search digits-gr
    spml search my_search.yaml -p root my_photos --jobs 4
    spml search my_search.yaml --storage postgresql://me@host/base

    SPACE is a YAML file, or the name of one that comes with the package. A search that was stopped resumes. The best
    configuration is written to RUNS_DIR/search, for spml train --preset, and beside it all trials as CSV.
    """
    from contextlib import nullcontext

    from spml_core import search as library
    from spml_core.runs import executors

    try:
        plan = library.read(space, values(changes), name)
        plan = plan.model_copy(update={} if trials is None else {"trials": trials})
        with executors.processes(jobs) if jobs > 1 else nullcontext() as executor:
            found = library.search(plan, executor, runs_dir, storage=storage)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except (RuntimeError, OSError, executors.RunFailures) as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        click.echo("interrupted: finished trials and epochs are kept; the same command resumes", err=True)
        sys.exit(130)
    click.echo(_report(found, runs_dir))


def _report(found, runs_dir: str) -> str:
    import json
    import statistics

    from spml_core.paths import command
    from spml_core.words import count

    counts = ", ".join(f"{number} {kind}" for kind, number in found.counts.items())
    first, maps = found.runs[0].summary, [run.summary["test_map"] for run in found.runs]
    shown = "no test images" if None in maps else f"{statistics.mean(maps):.2f}"
    if None not in maps and len(maps) > 1:
        shown += f" ± {statistics.stdev(maps):.2f}"
    rows = [(name, json.dumps(value)) for name, value in found.chosen.items()]
    best = found.trials[found.trials["state"] == "complete"].head().drop(columns=["state", "error"])
    best = best.assign(val_map=best["val_map"].map("{:.2f}".format)).rename(
        columns={"val_map": "validation mAP"}
    )
    seeds = "".join(f" --seed {run.config['seed']}" for run in found.runs)
    file = found.preset.with_name(f"{found.space.name}.trials.csv")
    trials = f"{count(sum(found.counts.values()), 'trial')} ({counts})"
    return (
        f"{found.space.name}: {trials}, all in {file}; the best {len(best)}:\n"
        f"{best.to_string(index=False, float_format='{:.4g}'.format)}\n\nchosen\n{table(rows)}\n"
        f"validation mAP {found.val_map:.2f} ({first['val_labels']} labels, {count(found.space.seeds, 'seed')}), by "
        f"which it was chosen\ntest mAP {shown} ({count(len(maps), 'seed')})\n"
        f"{command()} train --preset {found.preset}{seeds}{'' if runs_dir == 'runs' else f' --runs-dir {runs_dir}'}"
        + (f"\n{doubts}" if (doubts := warned(found.runs)) else "")
    )
