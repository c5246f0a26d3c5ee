"""`spml figures`."""

import sys

import click

from spml_core.cli.text import table


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--profile", default="quick", show_default=True, metavar="PROFILE",
              help="quick, the notebooks' defaults; paper; smoke; or any notebooks/PROFILE.yaml.")  # fmt: skip
@click.option("parameters", "-p", "--parameter", type=(str, str), multiple=True, metavar="NAME VALUE",
              help="Value of a notebook parameter, read as the type it declares; repeatable.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Notebooks at a time.")
@click.option("--force", is_flag=True, help="Execute notebooks that are up to date, too.")
@click.option("--output-dir", help="Folder of the executed copies.  [default: runs/notebooks, or the folder "
              '"notebooks" inside another figures_dir]')  # fmt: skip
@click.option("--list", "listing", is_flag=True,
              help="Show notebooks, their state, figures and parameters; execute nothing.")  # fmt: skip
@click.option(
    "--gallery", "only_gallery", is_flag=True, help="Write index.html beside the figures; execute nothing."
)
@click.option("--summary", "summarised", multiple=True, is_flag=False, flag_value="figures", metavar="[FOLDER]",
              help="Print as Markdown what the notebooks found, from the JSON files in FOLDER (figures); repeatable, a "
              "column for each; execute nothing.")  # fmt: skip
def figures(names, profile, parameters, jobs, force, output_dir, listing, only_gallery, summarised):
    """Execute notebooks without a screen and write their figures, and index.html, the gallery of them.

    NAME is a notebook's number, name or file; none means all. A notebook whose text, parameters, figures and
    spml_core are unchanged since its last success is skipped.

    \b
    spml figures                             all of them
    spml figures 06 07 --jobs 2              two, side by side
    spml figures 07 -p seeds "[0, 1]"        one with other parameters
    spml figures --profile paper -p root /data/voc2012
                                             the papers' data and training, into figures/paper
    spml figures -p dataset folder -p root my_photos -p figures_dir figures/mine
                                             all that have a data set, on yours
    spml figures --list                      what there is, what is up to date, what to set
    spml figures --summary figures --summary figures/mine
                                             what was found, on both data sets, as Markdown

    -p goes before the profile, and to each chosen notebook that declares the parameter.
    Exits with 1 when a notebook failed, with 2 when a name or a value is wrong (then nothing was executed).
    """
    from spml_core.headless.contract import NotebookError

    given = dict(parameters)
    if len(given) < len(parameters):
        raise click.UsageError("a parameter is given twice with -p")
    chosen = {"names": names, "parameters": given, "output_dir": output_dir, "profile": profile}
    try:
        from spml_core.headless import planning, runner

        if summarised:
            from spml_core.headless import summary

            click.echo(summary.markdown([summary.read(folder) for folder in summarised]))
            return
        if listing:
            click.echo("\n\n".join(map(_describe, planning.plan(**chosen))))
            return
        if only_gallery:
            for page in runner.write_galleries(planning.plan(**chosen)):
                click.echo(page)
            return
        results = runner.run_notebooks(**chosen, jobs=jobs, force=force)
    except NotebookError as error:
        raise click.UsageError(str(error)) from error
    except KeyboardInterrupt:
        click.echo("interrupted; all kernels ended", err=True)
        sys.exit(130)
    _report(results)


def _report(results) -> None:
    """What became of each notebook, of each claim, and why anything failed; exits with 1 if anything did."""
    from spml_core.figures.claims import decided, tally

    head = ("notebook", "seconds", "figures", "tables", "claims", "headline number", "status")
    rows = [
        (r.name, f"{r.seconds:.1f}", *(str(len(r.planned.notebook.promised(kind))) for kind in ("figure", "table")),
         tally(r.claims) or "-", _headline(r.numbers), r.status)
        for r in results
    ]  # fmt: skip
    click.echo("\n" + table([head, *rows]))
    claims = [(result.name[:2], claim) for result in results for claim in result.claims]
    if claims:
        head = ("verdict", "in", "claim: evidence, differences over the seeds with 95 % intervals")
        rows = [(c["verdict"], number, f"{c['claim']}: {c['evidence']}") for number, c in claims]
        click.echo("\n" + table([head, *rows]))
        click.echo("\n" + decided(claim for _, claim in claims))
    failed = [result for result in results if result.status == "failed"]
    for result in failed:
        click.echo(f"\n{result.name}, {result.error}", err=True)
    if failed:
        copies = ", ".join(dict.fromkeys(str(result.planned.output.parent) for result in failed))
        click.echo(f"\n{len(failed)} of {len(results)} failed; the executed copies are in {copies}", err=True)
        sys.exit(1)
    for folder in dict.fromkeys(result.planned.folder for result in results):
        click.echo(f"\ngallery: {folder / 'index.html'}")


def _headline(numbers: dict) -> str:
    for key, value in numbers.items():
        return f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
    return "-"


def _describe(planned) -> str:
    """A notebook's title, state, figures, tables and parameters."""
    notebook, seconds = planned.notebook, planned.last_seconds
    lines = [
        f"{planned.name}  {notebook.title}",
        f"  state: {planned.state}" + ("" if seconds is None else f", last run {seconds:g} s"),
    ]
    for kind in ("figure", "table"):
        if names := notebook.promised(kind):
            lines.append(f"  {kind}s: {', '.join(names)}")
    rows = [
        (f"  {p.name}", p.type, repr(planned.values[p.name]), p.help) for p in notebook.parameters.values()
    ]
    return "\n".join([*lines, table(rows)])
