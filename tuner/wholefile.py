"""Files that are written whole or stay as they were."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

RUNNABLE = 0o755


def write_whole(path: Path, content: str | bytes, *, runnable: bool = False) -> None:
    """Write by a temporary name that is renamed; `OSError` leaves nothing behind."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        if runnable:
            temporary.chmod(RUNNABLE)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
