"""`spml figures`."""

import sys

import click

from spml_core.cli.text import table


@click.command()
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
    click.echo("\n" + table([("notebook", "seconds", "figures", "headline number", "status"), *rows]))
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
    return f"{path.stem}  {notebooks.title(path)}\n{table(rows)}"
