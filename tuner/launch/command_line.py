"""Identify processes of this machine by their command lines, because process ids are reused, and read their states."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_LONGEST_EXEC: Final = 5.0
"""Seconds that a new process may take to show its command line."""


def runs(pid: int | None, word: str | Path) -> bool:
    """Whether the command line of a process has this word."""
    try:
        return os.fsencode(word) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def wait_until_shown(pid: int, word: str | Path) -> None:
    """Wait until a new process shows its command line, which is empty while the kernel loads the program."""
    start = time.monotonic()
    while not runs(pid, word) and state_of(pid) not in {None, "Z", "X"} and time.monotonic() - start < _LONGEST_EXEC:
        time.sleep(0.001)


def state_of(pid: int) -> str | None:
    """Return the letter of a process's state; None if there is no such process."""
    return stat_field(pid, 0) or None


def stat_field(pid: int, field: int) -> str:
    """Return a field of /proc/PID/stat after the process name, or an empty string if unknown."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[field]
    return ""
