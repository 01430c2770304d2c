"""Jobs of other processes in the same folder, so that only one job of a study runs on a machine at a time."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tuner.core.atomic_write import read_object
from tuner.launch.command_line import runs

NOTE: Final = "keeper.json"
"""The file that names a job's supervisor, for the next tuner."""


@contextmanager
def one_at_a_time(jobs: Path) -> Iterator[None]:
    """Hold an exclusive lock while looking for free nodes and starting a job."""
    folder = os.open(jobs, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def nodes_in_use(jobs: Path, own: Collection[Path]) -> int:
    """Return the nodes of other jobs in this folder on this host."""
    others = [file.parent for file in jobs.glob(f"*/{NOTE}") if file.parent not in own]
    return sum(_nodes_of(folder) for folder in others if not (folder / "ended.json").is_file())


def _nodes_of(folder: Path) -> int:
    note = read_object(folder / NOTE)
    if note.get("host") != socket.gethostname() or not runs(note.get("keeper"), folder):
        return 0
    return int(note.get("nodes", 1))
