"""What a table states that is not understood, one sentence each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tuner.core.text import either, listed, shown, shown_name
from tuner.tables.adapters import ADAPTER_COLUMNS
from tuner.tables.column_aliases import KNOWN, folded_name
from tuner.tables.described_model import named_sizes
from tuner.tables.headers import header_of
from tuner.tables.row import Defaults, Row, Table
from tuner.tables.stacks import is_known

STUDY_COLUMNS: Final = (
    *("audit", "era", "trial", "topology", "outcome", "days", "node_hours", "why"),
    "simulated",
)
"""Columns in which a report's `measurements.csv` describes the trial of a row."""

_REMARKS: Final = frozenset(
    {
        *STUDY_COLUMNS,
        *("date", "day", "id", "index", "job", "job_id", "label", "line", "link", "name", "reference"),
        *("run", "run_id", "section", "time_stamp", "timestamp", "title", "url"),
        *("active_params_b", "fsdp", "tokens_per_sec_gpu", "total_params_b"),
        *ADAPTER_COLUMNS,
        *("allocated_gib", "reserved_gib", "smi_gib", "sec_iterations"),
    }
)
"""Columns outside the format that describe a row, or that single checks read."""


_DECISIVE: Final = ("gpu", "gated_mlp", "seq", "gbs", "recompute", "zero", "sequence_parallel")
"""Columns that change an estimate most where a table does not state them."""


def assumptions(table: Table) -> str:
    """Return a sentence about the decisive columns that rows do not state; empty if all state them."""
    rows = [row for row in table.rows if row.run]
    found = ["no framework (nothing overlaps)"] * any("framework" not in row.understood for row in rows)
    for column in _DECISIVE:
        needed = [row for row in rows if _matters(column, row)]
        values = dict.fromkeys(row.assumed[column] for row in needed if column in row.assumed)
        if column == "gbs" and values:
            values = {"as mbs x dp (no gradient accumulation)": None}
        found += [f"{column} {either(values)}"] * bool(values)
    return f"assumed where the table states nothing: {listed(found)}; --default COLUMN=VALUE changes it" * bool(found)


def _matters(column: str, row: Row) -> bool:
    """Whether a row that does not state a column could have another value than the assumed one."""
    if column == "sequence_parallel":
        return row.run is not None and row.run.topology.tp > 1
    return column != "gated_mlp" or not named_sizes(row.understood)


def unused_columns(table: Table, period_column: str | None = None) -> tuple[str, ...]:
    """Return the columns of a table that are neither read nor remarks; `period_column` labels speed periods."""
    known = {*KNOWN, period_column}
    return tuple(column for column in table.columns if column not in known and folded_name(column) not in _REMARKS)


def notices(table: Table, period_column: str | None = None, defaults: Defaults | None = None) -> Iterator[str]:
    """Yield what of a table is not understood, and defaults that it does not need."""
    unused = unused_columns(table, period_column)
    refusals = {column: header_of(column).refused for column in unused}
    yield from (f"{refused}." for refused in refusals.values() if refused)
    if unknown := [shown(column) for column, refused in refusals.items() if not refused]:
        yield f"columns not used: {listed(unknown)}."
    named = dict.fromkeys(row.understood["framework"] for row in table.rows if "framework" in row.understood)
    if frameworks := [shown(name) for name in named if not is_known(name)]:
        yield f"unknown frameworks, for which nothing is assumed: {listed(frameworks)}."
    for column, value in (defaults.cells if defaults else {}).items():
        if all(row.cells.get(column) for row in table.rows):
            yield f"--default {column}={shown_name(value)} has no effect, because every row states {column}."
