"""`spml methods`."""

import inspect
import pkgutil
import sys

import click

from spml_core.cli import text


@click.command(cls=text.Command)
@click.argument("name", required=False)
@click.argument("loss", required=False)
def methods(name, loss):
    """List the methods, describe one, or check a loss.

    \b
    spml methods                         one row per method
    spml methods gr                      equation, hyperparameters, published values, deviations
    spml methods check gr                run the checks that every loss must pass
    spml methods check MODULE:FUNCTION   the same for your own loss

    MODULE can be in the working directory. FUNCTION has the signature loss(logits, observed, reduction="mean"). It
    receives floating-point logits (N, C) and int8 labels (N, C): 1, 0 or -1 (verified negative). Wrap a loss that needs
    other labels, e.g. loss(logits, observed.clamp(min=0).to(logits.dtype)).

    Exit code: 0; 1 if a check failed; 2 for wrong usage.
    """
    from spml_core import methods

    if name == "check":
        _check(loss)
    elif loss is not None:
        raise click.UsageError(f"give one name at a time; to check a loss: spml methods check {loss}")
    else:
        click.echo(_described(name) if name else text.table(list(methods.available().items())))


def _check(loss: str | None) -> None:
    """Print the results of the checks of a loss; exit with 1 if one failed."""
    from spml_core.methods.checks import CHECKS, findings

    if loss is None:
        raise click.UsageError("give a method's name, or MODULE:FUNCTION: spml methods check gr")
    found = []
    for finding in findings(_imported(loss) if ":" in loss else loss):
        found.append(finding)
        verdict = "passed" if finding.passed else "FAILED"
        click.echo(f"{finding.check:{max(map(len, CHECKS))}}  {verdict}  {finding.found}".rstrip())
    passed = sum(f.passed for f in found)
    rest = "" if len(found) == len(CHECKS) else "; the other checks were not run"
    click.echo(f"{loss}: {passed} of {len(found)} checks passed{rest}")
    sys.exit(passed < len(found))


def _imported(name: str):
    """Return the function of "module:function", or an instance of a class without arguments."""
    sys.path.insert(0, "")
    try:
        found = pkgutil.resolve_name(name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"cannot import {name!r}: {error}") from error
    finally:
        sys.path.remove("")
    if inspect.isclass(found):
        try:
            found = found()
        except TypeError as error:
            raise ValueError(f"{name!r} is a class. Name an instance of it instead: {error}") from error
    if not callable(found):
        raise ValueError(f"{name!r} is of type {type(found).__name__}, not a function")
    return found


def _described(name: str) -> str:
    from spml_core import losses, methods

    text.refuse_head(name)
    cls = methods.get(name)
    parts = [f"{name}: {inspect.getdoc(cls)}"]
    if loss := cls.loss or getattr(losses, name, None):  # its docstring has the equation
        parts.append(f"losses.{loss.__name__}: {inspect.getdoc(loss)}")
    rows = [(f"  {k}", repr(v)) for k, v in cls.defaults().items()]
    parts.append("Hyperparameters and defaults\n" + (text.table(rows) if rows else "  none"))
    if cls.requires:
        parts.append(f"Required: {', '.join(cls.requires)}")
    if getattr(cls, "head", None):
        parts.append(f"Head: {cls.head}")
    if cls.presets is None:
        parts.append("Published hyperparameters: none")
    else:
        published = cls.presets.params
        names = next(iter(published.values()))
        rows = [("", *published)] + [(f"  {k}", *(str(its[k]) for its in published.values())) for k in names]
        parts.append(f"Published hyperparameters: {cls.presets.source}\n{text.table(rows)}")
    return "\n\n".join(parts)
