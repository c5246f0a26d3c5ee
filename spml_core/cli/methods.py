"""`spml methods`."""

import click

from spml_core.cli.text import table


@click.command()
@click.argument("name", required=False)
def methods(name):
    """List the methods, or describe one.

    \b
    spml methods             a row a method
    spml methods gr          equation, parameters, published values, deviations
    """
    from spml_core import methods

    if name is None:
        click.echo(table(list(methods.available().items())))
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
    if loss := cls.loss or getattr(losses, name, None):  # where there is one, it has the equation
        parts.append(f"losses.{loss.__name__}: {inspect.getdoc(loss)}")
    rows = [(f"  {k}", repr(v)) for k, v in cls.defaults().items()]
    parts.append("Parameters and defaults\n" + (table(rows) if rows else "  none"))
    if cls.requires:
        parts.append(f"Must be given: {', '.join(cls.requires)}")
    if cls.presets is None:
        parts.append("Published hyperparameters: none")
    else:
        by_dataset = cls.presets.params
        rows = [("", *by_dataset)]
        rows += [
            (f"  {k}", *(str(its[k]) for its in by_dataset.values())) for k in next(iter(by_dataset.values()))
        ]
        parts.append(f"Published hyperparameters: {cls.presets.source}\n{table(rows)}")
    return "\n\n".join(parts)
