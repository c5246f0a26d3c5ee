"""Kernels that execute notebooks, with this interpreter and sockets that cannot clash, and show every message."""

import logging
import tempfile

from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpecManager
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine

from spml_core.paths import project_root

# ipykernel puts its inline backend into MPLBACKEND, which each child process of a notebook inherits and may
# not be able to import; a value from our own environment would even replace it. So only matplotlib's setting changes.
KERNEL_START = (
    "import os; os.environ.pop('MPLBACKEND', None); "
    "import matplotlib; matplotlib.use('module://matplotlib_inline.backend_inline')"
)
START_SECONDS = 120  # on a busy machine, starting a kernel may take long


class _Client(PapermillNotebookClient):
    def process_message(self, msg, cell, cell_index):
        self.execution.on_message(msg["msg_type"], msg["content"])
        return super().process_message(msg, cell, cell_index)


class Engine(NBClientEngine):
    """papermill's engine; it reports to `run` by `manager`, `on_cell` and `on_message`."""

    @classmethod
    def execute_managed_notebook(cls, nb_man, kernel_name, *, run, **_):
        nb_man.nb.metadata["kernelspec"] = {
            "name": kernel_name,
            "display_name": "Python 3",
            "language": "python",
        }
        with tempfile.TemporaryDirectory(prefix="spml-") as folder:
            run.manager = AsyncKernelManager(
                kernel_name=kernel_name,
                # Without folders to search, it is this interpreter, whatever kernels the user has installed.
                kernel_spec_manager=KernelSpecManager(kernel_dirs=[]),
                # Files as sockets: TCP ports are picked before they are taken, and parallel starts clash.
                transport="ipc",
                ip=f"{folder}/kernel",
            )
            client = _Client(
                nb_man,
                km=run.manager,
                log=logging.getLogger("papermill"),
                startup_timeout=START_SECONDS,
                iopub_timeout=60,  # on a busy machine outputs lag behind by more than the default 4 s
                coalesce_streams=True,  # a progress bar is one output, not hundreds
                # papermill's own `cwd` changes the directory of the whole process, which threads share
                resources={"metadata": {"path": str(project_root())}},
                extra_arguments=[f"--InteractiveShellApp.exec_lines={KERNEL_START}"],
                on_cell_start=run.on_cell,
            )
            client.execution = run
            client.owns_km = True  # end the kernel with the notebook
            client.execute()
