"""Shared by the commands: options, parsing of values, one-line errors, tables."""

import json
import os
import sys
import warnings
from contextlib import nullcontext, suppress
from itertools import zip_longest
from pathlib import Path

import click

from spml_core import MissingExtra
from spml_core.paths import locate


class Command(click.Command):
    """A command that turns expected errors into one line and an exit code.

    2 for wrong usage, 1 for invalid data and failed training, 130 for Ctrl-C.
    """

    def invoke(self, context):
        try:
            return super().invoke(context)
        except KeyboardInterrupt:
            click.echo("interrupted; run the same command again to resume", err=True)
            sys.exit(130)
        except BrokenPipeError:
            raise  # whoever read the output has enough, as in `spml methods | head`; click ends without a word
        except MissingExtra as error:
            raise click.ClickException(str(error)) from error
        except (ValueError, OSError, RuntimeError) as error:
            from spml_core.data import DataError, OptionError
            from spml_core.runs.executors import WorkLost

            if isinstance(error, OptionError) or not isinstance(error, DataError | OSError | RuntimeError):
                raise click.UsageError(str(error), context) from error
            if isinstance(error, RuntimeError) and not isinstance(error, WorkLost):
                raise  # not expected
            raise click.ClickException(str(error)) from error


def value(text: str):
    """Return JSON where it is JSON ("[0, 1]", "1e-4", "false", "null"), else the text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def pairs(*names: str, help: str, read=value):
    """Return an option of NAME VALUE pairs, which may be repeated: a dictionary of what `read` makes of the values."""

    def by_name(_context, _option, given: tuple[tuple[str, str], ...]) -> dict:
        if len(dict(given)) < len(given):
            raise click.BadParameter("a name is given twice")
        return {name: read(text) for name, text in given}

    return click.option(
        *names,
        type=(str, str),
        multiple=True,
        metavar="NAME VALUE",
        callback=by_name,
        help=f"{help}; repeatable.",
    )


root = click.option("--root", type=click.Path(), help="Folder of the data set; required for all but digits.")
data = pairs("data", "-d", "--data", help="Set an option of the data set, e.g. -d min_images 100")
drop = click.option(
    "--drop",
    type=click.FloatRange(0, 1),
    metavar="RATIO",
    help="Share of an image's positives to drop, 0 to 1. At least one is kept: of n, min(n, floor(n (1 - RATIO)) + 1) "
    "remain. Of 5 positives, 0 leaves 5, 0.5 leaves 3, 0.8 leaves 2, 1 leaves 1. Hill/SPLC uses 0.5, 0.8 and 1.",
)
runs_dir = click.option("--runs-dir", default="runs", show_default=True, help="Folder of the runs.")
jobs = click.option(
    "--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Number of parallel processes."
)


def options(data: dict, root: str | None) -> dict:
    """Return the options of a data set, with its folder among them."""
    return data if root is None else data | {"root": root}


def refuse_head(name: str) -> None:
    """Raise click.UsageError if what should be a method is a head, as BoostLU is."""
    from spml_core.models import HEADS

    if name in HEADS:
        raise click.UsageError(f"{name!r} is a head, not a method: spml train --method an -o head {name}")


def arguments(data: dict, root: str | None) -> list[str]:
    """Return the arguments of a command that set these options of a data set."""
    options = [] if root is None else ["--root", root]
    for name, value in data.items():
        options += ["-d", name, value if isinstance(value, str) else json.dumps(value)]
    return options


def new_csv(output: str, force: bool, holds: str = "") -> Path:
    """Return the file that --output names; refuse another suffix, and a file that exists, unless `force` is set."""
    file = locate(output)
    if file.suffix != ".csv":
        raise click.UsageError(f"--output {output}: the name must end in .csv")
    if file.exists() and not force:
        hint = "give another name, or --force to overwrite it"
        raise click.UsageError(f"--output {file} already exists{holds}: {hint}")
    return file


def executor(jobs: int):
    """Return a context with a process pool for several jobs, or with None for one."""
    from spml_core.runs import executors

    return executors.processes(jobs) if jobs > 1 else nullcontext()


def table(rows: list[tuple[str, ...]]) -> str:
    """Return the rows as text in aligned columns; rows may be shorter than others."""
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    lines = ("  ".join(map(str.ljust, row, widths)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def mean_map(runs, split: str) -> str:
    """Return mean and standard deviation of a split's mAP over the seeds."""
    from spml_core.figures import mean_sd

    maps = [run.summary[f"{split}_map"] for run in runs]
    return "undefined" if None in maps else mean_sd(maps, 2)


def warned(runs) -> str:
    """Return one line per warning that a training learned nothing."""
    return "".join(
        f"\nwarning: {run.path.name}: {text}" for run in runs for text in run.summary.get("warnings", [])
    )


def plain_warnings(context) -> None:
    """While a command runs, show each warning as one line of text, without its line of code."""
    before = warnings.formatwarning
    context.call_on_close(lambda: setattr(warnings, "formatwarning", before))
    warnings.formatwarning = lambda message, *_args, **_kwargs: f"Warning: {message}\n"


def bars_without_a_width() -> None:
    """Draw progress bars 80 columns wide if the terminal does not know its width, as in some containers."""
    with suppress(OSError):
        if os.get_terminal_size(2).columns == 0:
            os.environ.setdefault("TQDM_NCOLS", "80")
            os.environ.setdefault("TQDM_NROWS", "24")
