"""Locks across all machines that share a disk: files in the hidden folder `.locks` of a folder of runs."""

from pathlib import Path

from filelock import FileLock


def exclusive(root: Path, name: str, timeout: float = -1) -> FileLock:
    """Return the lock `name`, to be held in a `with` block. The system releases the locks of killed processes.

    Args:
        timeout: seconds, after which `filelock.Timeout` is raised; -1 waits forever.
    """
    return FileLock(root / ".locks" / f"{name}.lock", timeout=timeout)
