"""SHA-256 of files, kept on disk so that a large data set is read once."""

import hashlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from tqdm.contrib.concurrent import thread_map

from spml_core.paths import write_whole

SETTLED = 2 * 10**9  # nanoseconds after which a later edit shows in a file's times, on every file system
WORTH = 100 * 2**20  # digests are kept for more bytes of files than this; fewer are quickly read again


def digest(path: str | Path) -> str:
    """Return the SHA-256 of a file's content: a copy keeps it, unlike the time; an edit changes it, unlike the size."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digests(paths: Sequence[str | Path], cache_dir: str | Path) -> list[str]:
    """Return the `digest` of each file; those of large data sets are kept in `cache_dir`.

    A file is read again if its size or one of its times has changed, or if it was so new when it was last read that a
    later edit might show in neither.
    """
    paths = [Path(path) for path in paths]
    if not paths:
        return []
    root = os.path.commonpath([path.parent for path in paths])
    file = Path(cache_dir) / f"digests-{hashlib.sha256(root.encode()).hexdigest()[:16]}.json"
    try:
        kept = json.loads(file.read_text())
    except (OSError, ValueError):  # missing or incomplete: it is made again
        kept = {}
    now, states = time.time_ns(), {}
    for path in paths:
        found = path.stat()
        states[path] = [found.st_size, found.st_mtime_ns, found.st_ctime_ns]
    todo = [path for path in states if kept.get(str(path), [None])[:-1] != states[path]]
    bar = {"desc": "read images", "unit": " images", "leave": False, "disable": None}
    fresh = dict(zip(todo, thread_map(digest, todo, **bar), strict=True))
    settled = [path for path in todo if now - max(states[path][1:]) > SETTLED]
    if sum(states[path][0] for path in settled) > WORTH:
        kept |= {str(path): [*states[path], fresh[path]] for path in settled}
        write_whole(file, json.dumps(kept))
    return [fresh[path] if path in fresh else kept[str(path)][-1] for path in paths]
