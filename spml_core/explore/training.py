"""Train in a separate process: the panel stays responsive, and cancelling stops the training immediately."""

from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

from spml_core.paths import locate
from spml_core.runs import Experiment, executors, run


class Training:
    """A training that starts immediately. After it is cancelled, the same experiment resumes from its last epoch.

    Raises:
        ValueError: the experiment is invalid; raised before the process starts.
    """

    def __init__(self, experiment: Experiment, root: str | Path = "runs"):
        experiment.resolved()
        context = get_context("spawn")  # torch does not survive a fork
        self._messages, writer = context.Pipe(duplex=False)
        arguments = (experiment, str(locate(root)), writer)
        self.process = context.Process(target=_train, args=arguments, daemon=True)
        self.process.start()
        writer.close()  # so that the end of the process is the end of the pipe

    def events(self) -> Iterator[tuple[str, object]]:
        """Yield ("epoch", row of the history) after each epoch, then ("done", path of the run) or ("failed", text).

        A training that was cancelled or killed yields no final event.
        """
        with suppress(EOFError, OSError):
            while True:
                yield self._messages.recv()

    def cancel(self) -> None:
        """Kill the process and wait until it has ended. What the run has already written is kept."""
        self.process.kill()
        self.process.join()


def _train(experiment: Experiment, root: str, messages) -> None:
    executors.end_at_once()
    try:
        found = run(experiment, root, progress=False, on_epoch=lambda row: messages.send(("epoch", row)))
        messages.send(("done", str(found.path)))
    except Exception as error:
        messages.send(("failed", f"{type(error).__name__}: {error}"))
