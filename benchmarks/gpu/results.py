"""Results of the GPU benchmark, each appended to a file as a line of JSON; and the clock of a command."""

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
"""Seconds before the limit after which no item is started."""
MARGIN: Final = 1.25
"""Safety factor on estimated durations: an item starts only if it would end in time with it."""


@dataclass(slots=True)
class Results:
    """The results in one folder, by stage and name; an item with a result is not measured again."""

    folder: Path
    entries: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def open(cls, folder: Path) -> Results:
        """Read the results of earlier commands; an incomplete last line is removed from the file."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILE
        data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        if whole != data:
            path.write_bytes(whole)
        return cls(folder, [json.loads(line) for line in whole.splitlines() if line.strip()])

    def add(self, stage: str, name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Append one result to the file, flush it to disk, and return it."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        made = {**entry, "stage": stage, "name": name, "at": at}  # whatever an entry calls itself
        with (self.folder / FILE).open("a") as file:
            file.write(json.dumps(made) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.entries.append(made)
        return made

    def find(self, stage: str, name: str) -> dict[str, Any] | None:
        """Return the last result with this stage and name, or None."""
        named = (each for each in reversed(self.entries) if (each["stage"], each["name"]) == (stage, name))
        return next(named, None)

    def of(self, stage: str) -> list[dict[str, Any]]:
        """Return the last result of each name of a stage, in order of first appearance."""
        return list({each["name"]: each for each in self.entries if each["stage"] == stage}.values())

    def forget_failures(self, stage: str) -> None:
        """Drop the failed results of a stage, so that their items run again; the file keeps them."""
        self.entries = [each for each in self.entries if each["stage"] != stage or each.get("status") not in FAILED]


@dataclass(frozen=True, slots=True)
class Clock:
    """The time limit of a command."""

    ends: float

    @classmethod
    def of(cls, seconds: float) -> Clock:
        """Return a clock that ends after so many seconds."""
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds in which items may still be started."""
        return self.ends - time.monotonic() - RESERVE

    def fits(self, seconds: float) -> bool:
        """Whether an item with this estimated duration would end in time."""
        return seconds * MARGIN <= self.left
