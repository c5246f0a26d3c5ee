"""`spml methods`."""

import click

from spml_core.cli.text import table


@click.command()
@click.argument("name", required=False)
@click.argument("loss", required=False)
@click.pass_context
def methods(context, name, loss):
    """List the methods, describe one, or check a loss.

    \b
    spml methods                         a row a method
    spml methods gr                      equation, parameters, published values, deviations
    spml methods check gr                what every loss must stand
    spml methods check MODULE:FUNCTION   the same, for a loss of your own

    The module is found from this folder, the function is loss(logits, observed, reduction="mean"). A check that fails
    makes the exit code 1.
    """
    from spml_core import methods

    if name == "check":
        context.exit(_check(loss))
    if loss is not None:
        raise click.UsageError(f"one name at a time, or: spml methods check {loss}")
    if name is None:
        click.echo(table(list(methods.available().items())))
        return
    try:
        click.echo(_describe_method(name))
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _check(loss: str | None) -> int:
    """Print what the checks find of a loss; returns the exit code."""
    from spml_core.methods.checks import check

    if loss is None:
        raise click.UsageError("give a method's name, or MODULE:FUNCTION: spml methods check gr")
    try:
        findings = check(_imported(loss) if ":" in loss else loss)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    click.echo(table([(f.check, "passed" if f.passed else "FAILED", f.found) for f in findings]))
    failed = [f.check for f in findings if not f.passed]
    click.echo(f"{loss}: {len(findings) - len(failed)} of {len(findings)} checks passed")
    return int(bool(failed))


def _imported(name: str):
    """Return the function of "module:function", or an instance of a class without arguments.

    Raises:
        ValueError: there is none.
    """
    import importlib
    import inspect
    import sys

    module, function = name.split(":", 1)
    sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"cannot import {name!r}: {error}") from error
    finally:
        sys.path.remove("")
    found = found() if inspect.isclass(found) else found
    if not callable(found):
        raise ValueError(f"{name!r} is a {type(found).__name__}, no function")
    return found


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
