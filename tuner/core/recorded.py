"""Facts about other programs, recorded from their sources: one CSV file per program, whose first line names these."""

from __future__ import annotations

import csv
from functools import cache

from tuner.core.resources import folder


@cache
def recorded(kind: str, name: str) -> tuple[str, list[dict[str, str]]]:
    """Return the first line and the rows of `tuner/data/KIND/NAME.csv`."""
    header, *lines = (folder("data") / kind / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    return header.removeprefix("# "), list(csv.DictReader(lines))
