"""Compiled extensions of torch and DeepSpeed: a folder for a study's jobs, and stale locks.

While torch compiles an extension, its folder has a file `lock`. A killed process leaves the file, and every later
process that needs the extension waits for it forever.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

FOLDER: Final = "TORCH_EXTENSIONS_DIR"
"""The variable that names the folder of all extensions."""

LONG_COMPILE_SECONDS: Final = 900.0
"""A lock older than this is stale even if another machine made it: the slowest extension compiles in minutes."""


def default_folder() -> Path:
    """Return the folder into which this user's processes compile."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get(FOLDER) or cache / "torch_extensions")


def stale_locks(folder: Path, *, older_than: float = 0.0) -> list[Path]:
    """Return locks in a folder that are older than so many seconds and not open in any process of this machine."""
    locks = []
    for path in (*folder.glob("*/lock"), *folder.glob("*/*/lock")):
        with suppress(OSError):
            found = path.stat()
            if time.time() - found.st_mtime >= older_than:
                locks.append((path, (found.st_dev, found.st_ino)))
    used = _open_files() if locks else set()
    return sorted(path for path, identity in locks if identity not in used)


def own_folder(folder: Path) -> dict[str, str]:
    """Return the variable that makes jobs compile into a folder without stale locks; none if the user has set it."""
    if FOLDER in os.environ:
        return {}
    for lock in stale_locks(folder):
        lock.unlink(missing_ok=True)
    return {FOLDER: str(folder.absolute())}


def _open_files() -> set[tuple[int, int]]:
    """Return device and inode of each file that a process of this user has open."""
    found = set()
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            status = descriptor.stat()
            found.add((status.st_dev, status.st_ino))
    return found
