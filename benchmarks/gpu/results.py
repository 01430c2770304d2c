"""Results of the GPU benchmark, a JSON line for each, written as it comes; and the clock of a command."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

FILE: Final = "results.jsonl"
FAILED: Final = ("FAIL", "HANG")
RESERVE: Final = 5.0
"""Seconds before the limit at which nothing new is started."""
MARGIN: Final = 1.25
"""Factor on an estimated duration: an item starts only if it would end in time even so."""


@dataclass(slots=True)
class Results:
    """The results in one folder, by stage and name; the same names are not measured again."""

    folder: Path
    entries: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def open(cls, folder: Path) -> Results:
        """Read what an earlier command wrote; a last line that was cut off is removed from the file."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILE
        data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        if whole != data:
            path.write_bytes(whole)
        return cls(folder, [json.loads(line) for line in whole.splitlines() if line.strip()])

    def add(self, stage: str, name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Append one result to the file, whole and on the disk, and return it."""
        made = {"stage": stage, "name": name, **entry, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        with (self.folder / FILE).open("a") as file:
            file.write(json.dumps(made) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.entries.append(made)
        return made

    def find(self, stage: str, name: str) -> dict[str, Any] | None:
        """Return the last result of this name."""
        named = (each for each in reversed(self.entries) if (each["stage"], each["name"]) == (stage, name))
        return next(named, None)

    def of(self, stage: str) -> list[dict[str, Any]]:
        """Return the last result of each name of a stage, in the order of the first."""
        return list({each["name"]: each for each in self.entries if each["stage"] == stage}.values())

    def forget_failures(self, stage: str) -> None:
        """Have the failed items of a stage run again; the file keeps their results."""
        self.entries = [each for each in self.entries if each["stage"] != stage or each.get("status") not in FAILED]


@dataclass(frozen=True, slots=True)
class Clock:
    """The time that a command has."""

    ends: float

    @classmethod
    def of(cls, seconds: float) -> Clock:
        """Return a clock that ends in so many seconds."""
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds until nothing new is started."""
        return self.ends - time.monotonic() - RESERVE

    def fits(self, seconds: float) -> bool:
        """Whether something that takes about so long ends in time."""
        return seconds * MARGIN <= self.left
