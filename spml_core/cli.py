"""The command `spml`. Each command imports what it needs when it runs, so that `--help` stays instant."""

import sys

import click

from spml_core import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="spml")
def main():
    """Single-positive multi-label learning: draw the figures, train one experiment.

    \b
    spml figures                          every notebook -> figures/
    spml figures 06 -p seeds "[0]"        one notebook, one seed
    spml train --method gr                one experiment on the digits
    spml train --method an --method gr --seed 0 --seed 1
                                          four of them, and a table
    spml methods                          every loss there is; spml methods gr describes one
    """


@main.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("parameters", "-p", "--parameter", type=(str, str), multiple=True, metavar="NAME VALUE",
              help="Value of a notebook parameter, read as the type it declares; repeatable.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Notebooks at a time.")
@click.option("--force", is_flag=True, help="Execute notebooks that are up to date, too.")
@click.option(
    "--output-dir", default="runs/notebooks", show_default=True, help="Folder of the executed copies."
)
@click.option("--list", "listing", is_flag=True, help="Show notebooks and their parameters; execute nothing.")
def figures(names, parameters, jobs, force, output_dir, listing):
    """Execute notebooks without a screen and write their figures.

    NAME is a notebook's number, name or file; none means all. A notebook whose text, parameters, figures and
    spml_core are unchanged since its last success is skipped.

    \b
    spml figures                             all of them
    spml figures 06 07 --jobs 2              two, side by side
    spml figures 07 -p seeds "[0, 1]"        one with other parameters
    spml figures --list                      what there is to set
    spml figures -p figures_dir /tmp/paper   figures elsewhere

    Exits with 1 when a notebook failed, with 2 when a name or a value is wrong (then nothing was executed).
    """
    from spml_core import notebooks

    given = dict(parameters)
    if len(given) < len(parameters):
        raise click.UsageError("a parameter is given twice with -p")
    try:
        if listing:
            click.echo("\n\n".join(_describe(path) for path in notebooks.find(names)))
            return
        from spml_core import runner

        results = runner.run_notebooks(names, given, jobs=jobs, force=force, output_dir=output_dir)
    except notebooks.NotebookError as error:
        raise click.UsageError(str(error)) from error
    except KeyboardInterrupt:
        click.echo("interrupted; all kernels ended", err=True)
        sys.exit(130)
    rows = [(r.name, f"{r.seconds:.1f}", str(len(r.figures)), r.headline or "-", r.status) for r in results]
    click.echo("\n" + _table([("notebook", "seconds", "figures", "headline number", "status"), *rows]))
    failed = [result for result in results if result.status == "failed"]
    for result in failed:
        click.echo(f"\n{result.name}, {result.error}", err=True)
    if failed:
        click.echo(
            f"\n{len(failed)} of {len(results)} failed; the executed copies are in {output_dir}", err=True
        )
        sys.exit(1)


def _describe(path) -> str:
    from spml_core import notebooks

    rows = [(f"  {p.name}", p.type, f"{p.default!r}", p.help) for p in notebooks.parameters(path).values()]
    return f"{path.stem}  {notebooks.title(path)}\n{_table(rows)}"


def _table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows)
    return "\n".join("  ".join(row).rstrip() for row in cells)


@main.command()
@click.option("--dataset", default="digits", show_default=True, help="digits, or folder.")
@click.option("--root", type=click.Path(), help="Folder with a labels.csv, for --dataset folder.")
@click.option("data", "-d", "--data", type=(str, str), multiple=True, metavar="NAME VALUE",
              help="Option of the data set, e.g. -d min_images 100; repeatable.")  # fmt: skip
@click.option("methods", "--method", default=["gr"], show_default=True, multiple=True, help="Repeatable.")
@click.option("params", "-p", "--param", type=(str, str), multiple=True, metavar="NAME VALUE",
              help='Hyperparameter of the method, e.g. -p b "[-2, -8]"; repeatable.')  # fmt: skip
@click.option("seeds", "--seed", default=[0], show_default=True, type=int, multiple=True, help="Repeatable.")
@click.option("--mode", help="end_to_end, or linear on frozen features (the default for a folder).")
@click.option("--backbone", help="digits_cnn, or a timm model.")
@click.option("--epochs", type=click.IntRange(min=1), default=10, show_default=True)
@click.option("--batch-size", type=click.IntRange(min=1), help="Default: 64 digits, 16 folder.")
@click.option("--lr", type=float, help="Learning rate of Adam. Default: 3e-3 digits, 1e-3 folder.")
@click.option(
    "--stop-drop", type=float, help="Stop at this many mAP points below the best epoch; default never."
)
@click.option("--val-labels", type=click.Choice(["clean", "observed"]), default="clean", show_default=True,
              help="Validation labels that choose the epoch.")  # fmt: skip
@click.option("--runs-dir", default="runs", show_default=True, help="Folder of all runs.")
@click.option("--force", is_flag=True, help="Train again what exists.")
def train(methods, params, seeds, data, runs_dir, force, **fields):
    """Train experiments, or load those that exist, and print history and test mAP.

    \b
    spml train --method gr -p w "[0, 10]" -p b "[-2, -8]"
    spml train --method an --method gr --seed 0 --seed 1 --seed 2
    spml train --dataset folder --root my_photos --method gr -d min_images 20

    Each --param goes to every --method. A folder needs a labels.csv with the columns image,split,labels; labels are
    joined by ";".
    """
    from spml_core.runs import Experiment, run_all

    try:
        experiments = [
            Experiment(method=method, seed=seed, params=_values(params), data=_values(data), **fields)
            for method in methods
            for seed in seeds
        ]
        runs = run_all(experiments, root=runs_dir, fresh=force)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except FloatingPointError as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        click.echo("interrupted; finished runs are kept, the current one starts anew next time", err=True)
        sys.exit(130)
    for run in runs:
        click.echo(f"\n{run.path}")
        click.echo(run.history.round({"train_loss": 4, "val_map": 2, "seconds": 1}).to_string(index=False))
    click.echo(f"\n{_data(runs[0])}\n\n{_results(methods, runs, len(seeds))}")


def _data(run) -> str:
    """One line on what was trained on, so that a surprise is seen."""
    noted = run.summary["data"]
    images = ", ".join(f"{number} {split}" for split, number in noted["sizes"].items())
    line = f"{run.config['dataset']}: {images} images; {len(run.classes)} classes"
    if without := sum(noted.get("images_without_label", {}).values()):
        line += f"; {without} images without a label ({noted['unlabeled']})"
    if dropped := noted.get("classes_dropped"):
        line += f"; {dropped} classes below min_images={noted['min_images']} left out"
    return f"{line}; {run.config['backbone']}, {run.config['mode']}."


def _results(methods, runs, num_seeds: int) -> str:
    """A row a method: test mAP of the best validation epoch, mean and standard deviation over the seeds."""
    import statistics

    rows = [("method", "test mAP", "seeds", "best epochs", "undefined classes")]
    for n, method in enumerate(methods):
        own = [run.summary for run in runs[n * num_seeds : (n + 1) * num_seeds]]
        maps = [summary["test_map"] for summary in own]
        if None in maps:
            shown = "no test images"
        else:
            shown = f"{statistics.mean(maps):.2f}" + (
                f" ± {statistics.stdev(maps):.2f}" if len(maps) > 1 else ""
            )
        undefined = ", ".join(own[0]["test_undefined_classes"] or []) or "none"
        rows.append((method, shown, str(len(maps)), ",".join(str(s["best_epoch"]) for s in own), undefined))
    first = runs[0].summary
    return (
        f"{_table(rows)}\nAP: {first['definition']}. Epoch chosen on {first['val_labels']} validation labels."
    )


@main.command()
@click.argument("name", required=False)
def methods(name):
    """List the methods, or describe one.

    \b
    spml methods             a row a method
    spml methods gr          equation, parameters, published values, deviations
    """
    from spml_core import methods

    if name is None:
        click.echo(_table(list(methods.available().items())))
        return
    try:
        click.echo(_describe_method(name))
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _describe_method(name: str) -> str:
    import inspect

    from spml_core import losses, methods

    cls = methods.get(name)
    parts = [f"{name}: {inspect.getdoc(cls)}"]
    if loss := getattr(cls, "loss", getattr(losses, name, None)):  # where there is one, it has the equation
        parts.append(f"losses.{loss.__name__}: {inspect.getdoc(loss)}")
    rows = [(f"  {k}", repr(v)) for k, v in methods.defaults(name).items()]
    parts.append("Parameters and defaults\n" + (_table(rows) if rows else "  none"))
    published = methods.PRESETS.get(name)
    if published is None:
        parts.append("Published hyperparameters: none")
    else:
        datasets = list(published.params)
        rows = [("", *datasets)] + [
            (f"  {k}", *(str(published.params[d][k]) for d in datasets))
            for k in published.params[datasets[0]]
        ]
        parts.append(f"Published hyperparameters: {published.source}\n{_table(rows)}")
    return "\n\n".join(parts)


def _values(pairs: tuple[tuple[str, str], ...]) -> dict:
    """Command-line text as JSON where it is JSON ("[0, 1]", "1e-4", "false", "null"), else as text."""
    import json

    values = {}
    for name, text in pairs:
        try:
            values[name] = json.loads(text)
        except json.JSONDecodeError:
            values[name] = text
    return values
