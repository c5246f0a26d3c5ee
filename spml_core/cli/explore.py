"""`spml explore`."""

import os
import sys
from importlib.util import find_spec

import click

from spml_core.cli import text
from spml_core.paths import project_root

ROOT = "SPML_PROJECT"  # the app's kernel starts in the package's folder, and is told where the project is


@click.command(cls=text.Command, context_settings={"ignore_unknown_options": True})
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
    root = project_root()
    if app:
        if find_spec("voila") is None:
            raise click.ClickException("--app needs Voilà: pip install 'spml-core[explore]'")
        from spml_core.explore.app import PAGE

        command = ["voila", str(PAGE), "--Voila.auto_token=True", "--Voila.ip=localhost"]
    else:
        from spml_core.headless.contract import find

        page = f"--LabApp.default_url=/lab/tree/{find()[0].path.relative_to(root).as_posix()}"
        command = ["jupyterlab", f"--ServerApp.root_dir={root}", page, "--ServerApp.ip=localhost"]
    os.chdir(root)
    # In place of this process: Ctrl-C is the server's, which ends its kernels.
    os.execve(sys.executable, [sys.executable, "-m", *command, *options], os.environ | {ROOT: str(root)})
