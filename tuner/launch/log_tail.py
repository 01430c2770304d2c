"""A job's log as it grows: how many iterations are done, how far the one under way is, when anything last moved."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tuner.logs.records import records

_MICROBATCH: Final = re.compile(
    r"microbatch\s+([0-9]{1,9})/\s*([0-9]{1,9}) of iteration\s+([0-9]{1,9}) \| elapsed \(s\): ([0-9.]{1,20})"
)
_PIECE: Final = 1 << 20
"""Bytes that are read at once."""


@dataclass(slots=True)
class LogTail:
    """Reads what is new in a job's output."""

    path: Path
    iterations: int = 0
    """The number of the last iteration that was printed."""
    finished: float | None = None
    """When its line was seen."""
    share: float | None = None
    """Of the iteration under way."""
    moved: float | None = None
    """When the log last grew."""
    _offset: int = 0
    _rest: bytes = b""
    _seen: set[int] = field(default_factory=set)

    def look(self, now: float) -> None:
        """Read on to the end of what is there."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                while piece := file.read(_PIECE):
                    self._offset += len(piece)
                    self._rest += piece
                    self.moved = now
                    *lines, self._rest = self._rest.split(b"\n")
                    self._rest = self._rest[-_PIECE:]
                    for line in lines:
                        self._read(line.decode(errors="replace"), now)
        except OSError:
            return  # not there yet, or not any more

    def _read(self, line: str, now: float) -> None:
        if "microbatch" in line and (found := _MICROBATCH.search(line)):
            place, of, iteration = int(found[1]), int(found[2]), int(found[3])
            if iteration == self.iterations + 1 and of:
                self.share = min(1.0, place / of)
            return
        for record in records(1, line):
            number = self.iterations + 1 if record.counted else record.iteration.number
            if record.source in ("megatron", "pipeline engine", "wall-clock breakdown") and number > self.iterations:
                self.iterations, self.finished, self.share = number, now, None
