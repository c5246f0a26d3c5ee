"""One process at a time, on all machines that share a disk: files in the hidden folder `.locks` of a folder of runs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock


@contextmanager
def exclusive(root: Path, name: str, timeout: float = -1) -> Iterator[None]:
    """Hold the lock `name`. A file that a killed process left behind is no lock: the system releases those of the dead.

    Args:
        timeout: seconds; -1 waits as long as it takes.

    Raises:
        filelock.Timeout: another process holds it.
    """
    with FileLock(root / ".locks" / f"{name}.lock", timeout=timeout) as lock:
        try:
            yield
        finally:
            if os.name == "posix":  # whoever waited for a file that is gone looks for it again
                Path(lock.lock_file).unlink(missing_ok=True)
