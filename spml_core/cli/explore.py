"""`spml explore`."""

import sys

import click

ROOT = "SPML_PROJECT"  # the app's kernel starts in the package's folder, and is told where the project is


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--app", is_flag=True, help="The panels alone, as a page without code (Voilà).")
@click.argument("options", metavar="[OPTIONS OF JUPYTERLAB OR VOILÀ]...", nargs=-1, type=click.UNPROCESSED)
def explore(app, options):
    """Open JupyterLab on the notebooks, or the panels as an app.

    \b
    spml explore                        JupyterLab on notebooks/
    spml explore --app                  the panels alone
    spml explore --no-browser --port 8890
                                        options of JupyterLab (with --app: of Voilà) are handed on

    Both listen on this machine only (localhost), and ask for the token that stands in the address they print.
    """
    import os

    from spml_core.paths import project_root

    root = project_root()
    command = _app() if app else _lab(root)
    os.chdir(root)
    # In place of this process: Ctrl-C is the server's, which ends its kernels.
    os.execve(sys.executable, [sys.executable, "-m", *command, *options], os.environ | {ROOT: str(root)})


def _lab(root) -> list[str]:
    from spml_core.headless.contract import NotebookError, find
    from spml_core.paths import command

    try:
        first = find()[0]
    except NotebookError as error:
        raise click.UsageError(f"{error}; `{command()} explore --app` needs none") from error
    page = f"--LabApp.default_url=/lab/tree/{first.path.relative_to(root).as_posix()}"
    return ["jupyterlab", f"--ServerApp.root_dir={root}", page, "--ServerApp.ip=localhost"]


def _app() -> list[str]:
    from importlib.util import find_spec

    if find_spec("voila") is None:
        raise click.ClickException("--app needs Voilà: pip install 'spml-core[explore]'")
    from spml_core.explore.app import PAGE

    return ["voila", str(PAGE), "--Voila.auto_token=True", "--Voila.ip=localhost"]
