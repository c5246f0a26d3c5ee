"""`spml explore`."""

import os
import sys
from importlib.util import find_spec

import click

from spml_core.cli import text
from spml_core.paths import project_root

ROOT = "SPML_PROJECT"  # tells the app's kernel, which starts in the package's folder, where the project is


@click.command(cls=text.Command, context_settings={"ignore_unknown_options": True})
@click.option("--app", is_flag=True, help="Show only the panels, as a page without code (Voilà).")
@click.argument("options", metavar="[OPTIONS OF JUPYTERLAB OR VOILÀ]...", nargs=-1, type=click.UNPROCESSED)
def explore(app, options):
    """Open the notebooks in JupyterLab, or the panels as an app.

    \b
    spml explore                        open notebooks/ in JupyterLab
    spml explore --app                  only the panels
    spml explore --no-browser --port 8890
                                        pass options to JupyterLab (with --app: to Voilà)

    Both listen on this machine only (localhost). They ask for a token, which is part of the address they print.
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
    # The server replaces this process, so that it receives Ctrl-C and ends its kernels.
    os.execve(sys.executable, [sys.executable, "-m", *command, *options], os.environ | {ROOT: str(root)})
