"""Follow a job's log: iterations finished, progress of the current one, time of the last output."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tuner.logs.records import records

_MICROBATCH: Final = re.compile(
    r"microbatch\s+([0-9]{1,9})/\s*([0-9]{1,9}) of iteration\s+([0-9]{1,9}) \| elapsed \(s\): ([0-9.]{1,20})"
)

_SOURCES: Final = ("megatron", "pipeline engine", "wall-clock breakdown")
"""The records that a framework prints once an iteration."""

_CHUNK: Final = 1 << 20
"""Bytes to read at a time, and the most to keep of a line without an end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogProgress:
    """What a log shows of its job's progress."""

    iterations: int = 0
    """Number of the last iteration finished."""
    finished: float | None = None
    """When its line was read."""
    share: float | None = None
    """Fraction of the current iteration that is done."""
    moved: float | None = None
    """When the log last grew."""


@dataclass(slots=True)
class LogTail:
    """Reads what is new in a job's log."""

    path: Path
    progress: LogProgress = field(default_factory=LogProgress)
    _offset: int = 0
    _unfinished_line: bytes = b""

    def read(self, now: float) -> None:
        """Read up to the log's end; a log that does not exist changes nothing."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                while chunk := file.read(_CHUNK):
                    self._offset += len(chunk)
                    *lines, rest = (self._unfinished_line + chunk).split(b"\n")
                    self._unfinished_line = rest[-_CHUNK:]
                    self.progress = replace(self.progress, moved=now)
                    for line in lines:
                        self.progress = after_line(self.progress, line.decode(errors="replace"), now)
        except OSError:
            return


def after_line(progress: LogProgress, line: str, now: float) -> LogProgress:
    """Return the progress after a line of the log."""
    if "microbatch" in line and (found := _MICROBATCH.search(line)):
        microbatch, count, iteration = int(found[1]), int(found[2]), int(found[3])
        if iteration == progress.iterations + 1 and count:
            return replace(progress, share=min(1.0, microbatch / count))
        return progress
    for record in records(1, line):
        number = progress.iterations + 1 if record.counted else record.iteration.number
        if record.source in _SOURCES and number > progress.iterations:
            progress = replace(progress, iterations=number, finished=now, share=None)
    return progress


def size_of(path: Path) -> int:
    """Return the size of a file in bytes; 0 where it does not exist."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
