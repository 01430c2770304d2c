"""What an audit finds: a figure, the law that it breaks, and what would mend it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["error", "warning", "advice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What `--fix` does to one row: new cells, or a mark that takes it out."""

    row: int
    cells: Mapping[str, str] = field(default_factory=dict)
    """New cells by column."""
    exclude: str = ""
    """Why the row is taken out."""
    exclude_column: str = ""
    """Only this measured figure is taken out, and the rest of the row stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, or looks it."""

    row: int | None
    """Place in the table, from 0; None for a finding about the whole."""
    line: int | None
    """Line of the file, from 1."""
    check: str
    severity: Severity
    """error: it cannot be true; warning: it is hardly true; advice: worth knowing."""
    message: str
    suggestion: str
    rows: tuple[int, ...] = ()
    """All rows that it is about, `row` included."""
    repairs: tuple[Repair, ...] = ()
    """Empty where what stands there cannot be mended, or need not be."""
