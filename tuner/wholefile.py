"""Files that are written whole or stay as they were."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

RUNNABLE = 0o755


def write_whole(path: Path, content: str | bytes, *, runnable: bool = False) -> None:
    """Write by a temporary name that is renamed; `OSError` leaves nothing behind.

    A file that is there keeps its permissions, a link goes on leading to it; what is no file, such as a pipe or
    /dev/null, is written into and stays what it is.
    """
    path = Path(os.path.realpath(path))
    data = content.encode() if isinstance(content, str) else content
    there = path.stat() if path.exists() else None
    if there is not None and not stat.S_ISREG(there.st_mode):
        path.write_bytes(data)
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        if there is not None or runnable:
            temporary.chmod(RUNNABLE if there is None else stat.S_IMODE(there.st_mode))
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
