"""`spml figures`."""

import sys

import click

from spml_core.cli import text


@click.command(cls=text.Command)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--profile", default="quick", show_default=True, metavar="PROFILE",
              help="quick (the notebooks' defaults), paper, smoke, or any notebooks/PROFILE.yaml.")  # fmt: skip
@text.pairs("parameters", "-p", "--parameter", read=str,
            help="Set a notebook parameter; the value is read as the declared type")  # fmt: skip
@text.jobs
@click.option("--force", is_flag=True, help="Also execute notebooks that are up to date.")
@click.option("--list", "listing", is_flag=True,
              help="List notebooks with their state, figures and parameters; execute nothing.")  # fmt: skip
@click.option(
    "--gallery", "galleries", is_flag=True, help="Write index.html beside the figures; execute nothing."
)
@click.option("--summary", "summarised", multiple=True, is_flag=False, flag_value="figures", metavar="[FOLDER]",
              help="Print the results of the notebooks as Markdown, from the JSON files in FOLDER (default: figures); "
              "repeatable, one column for each; execute nothing.")  # fmt: skip
def figures(names, profile, parameters, jobs, force, listing, galleries, summarised):
    """Execute notebooks headless; write their figures and a gallery, index.html.

    NAME is a notebook's number, name or file; the default is all notebooks. A notebook is skipped if its text,
    parameters, figures and spml_core are unchanged since its last success. Executed copies go to runs/notebooks or, if
    figures_dir is set, to its folder "notebooks".

    \b
    spml figures                             run all notebooks
    spml figures 06 07 --jobs 2              run two in parallel
    spml figures 07 -p seeds "[0, 1]"        run one with other parameters
    spml figures --profile paper -p root /data/voc2012
                                             use the papers' data and training, write figures/paper
    spml figures -p dataset folder -p root my_photos -p figures_dir figures/mine
                                             run all notebooks that load data, on your images
    spml figures --list                      list notebooks, their state and parameters
    spml figures --summary figures --summary figures/mine
                                             print the results on both data sets as Markdown

    -p overrides the profile, and applies to each chosen notebook that declares the parameter.

    Exit code: 0; 1 if a notebook failed; 2 if a name or a value is wrong (nothing is executed then).
    """
    from spml_core.headless import planning, runner, summary

    if summarised:
        click.echo(summary.markdown([summary.read(folder) for folder in summarised]))
        return
    chosen = {"names": names, "parameters": parameters, "profile": profile}
    if listing:
        click.echo("\n\n".join(map(_described, planning.plan(**chosen))))
    elif galleries:
        click.echo("\n".join(map(str, runner.write_galleries(planning.plan(**chosen)))))
    else:
        _report(runner.run_notebooks(**chosen, jobs=jobs, force=force))


def _report(results) -> None:
    """Print the result of each notebook and claim, and the errors; exit with 1 if a notebook failed."""
    from spml_core.figures.claims import decided, tally

    rows = [("notebook", "seconds", "figures", "tables", "claims", "headline number", "status")]
    claims = [("verdict", "in", "claim: evidence, differences over the seeds with 95 % intervals")]
    for result in results:
        promised = (str(len(result.planned.notebook.promised(kind))) for kind in ("figure", "table"))
        headline = "-"
        for key, value in list(result.numbers.items())[:1]:
            headline = f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
        seconds, verdicts = f"{result.seconds:.1f}", tally(result.claims) or "-"
        rows.append((result.name, seconds, *promised, verdicts, headline, result.status))
        claims += [(c["verdict"], result.name[:2], f"{c['claim']}: {c['evidence']}") for c in result.claims]
    click.echo(f"\n{text.table(rows)}")
    if claims[1:]:
        every = [claim for result in results for claim in result.claims]
        click.echo(f"\n{text.table(claims)}\n\n{decided(every)}")
    failed = [result for result in results if result.status == "failed"]
    for result in failed:
        click.echo(f"\n{result.name}, {result.error}", err=True)
    if failed:
        copies = ", ".join(dict.fromkeys(str(result.planned.output.parent) for result in failed))
        click.echo(f"\n{len(failed)} of {len(results)} failed; the executed copies are in {copies}", err=True)
        sys.exit(1)
    for folder in dict.fromkeys(result.planned.folder for result in results):
        click.echo(f"\ngallery: {folder / 'index.html'}")


def _described(planned) -> str:
    """Return a notebook's title, state, figures, tables and parameters."""
    notebook, seconds = planned.notebook, planned.last_seconds
    last = "" if seconds is None else f", last run {seconds:g} s"
    lines = [f"{planned.name}  {notebook.title}", f"  state: {planned.state}{last}"]
    for kind in ("figure", "table"):
        if names := notebook.promised(kind):
            lines.append(f"  {kind}s: {', '.join(names)}")
    declared = notebook.parameters.values()
    rows = [(f"  {p.name}", p.type, repr(planned.values[p.name]), p.help) for p in declared]
    return "\n".join([*lines, text.table(rows)])
