"""Findings of an audit, and the table with their repairs applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tuner.tables import Table, write_csv


def fixed(table: Table, findings: Iterable[Finding]) -> str:
    """Return the table as CSV with every repair applied.

    An impossible row without an unambiguous repair keeps its cells and is marked in the column `audit`; every command
    then skips the row, or the one figure that the mark names.
    """
    rows = [dict(row.cells) for row in table.rows]
    for finding in findings:
        for repair in finding.repairs:
            _apply(rows[repair.row], repair, finding)
    columns = [*table.columns]
    for column in ("note", "audit"):
        if column not in columns and any(column in row for row in rows):
            columns.append(column)
    columns += [column for row in rows for column in row if column not in columns]
    return write_csv(list(dict.fromkeys(columns)), rows)


def _apply(row: dict[str, str], repair: Repair, finding: Finding) -> None:
    changes = [f"{column} {row.get(column, 'empty')} -> {value}" for column, value in repair.cells.items()]
    row |= repair.cells
    notes = [f"audit: {', '.join(changes)} ({finding.check})"] if changes else []
    if repair.exclude:
        mark = f"exclude{f' {repair.exclude_column}' if repair.exclude_column else ''}: {repair.exclude}"
        # A mark on the whole row overrides one on a figure.
        if not row.get("audit") or not repair.exclude_column:
            row["audit"] = mark
        notes.append(f"audit: {mark}")
    row["note"] = "; ".join([*([row["note"]] if row.get("note") else []), *notes])


Severity = Literal["error", "warning", "advice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A change to one row: new cells, or a mark that excludes it."""

    row: int
    cells: Mapping[str, str] = field(default_factory=dict)
    """New cells by column."""
    exclude: str = ""
    """Why the row is excluded."""
    exclude_column: str = ""
    """If set, exclude only this measured figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One figure or row that is wrong, or probably is."""

    row: int | None
    """Index in the table, from 0; None for a finding about the whole table."""
    line: int | None
    """Line of the file, from 1."""
    check: str
    severity: Severity
    """error: impossible; warning: unlikely; advice: worth knowing."""
    message: str
    suggestion: str
    rows: tuple[int, ...] = ()
    """All rows concerned, `row` included."""
    repairs: tuple[Repair, ...] = ()
    """Empty if there is no unambiguous repair."""
