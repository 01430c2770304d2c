"""What the checks judge: a table's rows as runs, with their units and what their neighbours lead one to expect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from tuner.audit.expectation import Expectation, expected_seconds
from tuner.audit.printed_row import PrintedRow, case_of, cases_of, text_of
from tuner.audit.repair import Finding, Repair, Severity
from tuner.audit.units import Unit, units_of
from tuner.tables import Row, Table

_ENOUGH: Final = 4
"""Rows that can speak for a table."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A table as the checks see it; checks that compare rows see those mended that could be."""

    table: Table
    cases: Mapping[int, PrintedRow]
    """By place in the table: the rows that describe a run."""

    @classmethod
    def of(cls, table: Table) -> Evidence:
        """The evidence of a table as printed."""
        return cls(table=table, cases=cases_of(table.rows))

    @cached_property
    def units(self) -> dict[int, Unit]:
        """The convention that each row's TFLOPs should follow."""
        return units_of(self.cases)

    @cached_property
    def expected(self) -> dict[int, Expectation]:
        """The seconds that each row's neighbours lead one to expect."""
        return expected_seconds(self.cases)

    @cached_property
    def usual_share(self) -> float | None:
        """The share of its peak that a GPU of this table usually makes, by the printed TFLOPs; None where few are."""
        shares = sorted(case.flops / case.peak for _, case in self.fitting if case.row.tflops)
        return shares[len(shares) // 2] if len(shares) >= _ENOUGH else None

    @property
    def fitting(self) -> Iterable[tuple[int, PrintedRow]]:
        """The rows whose run ended well."""
        return ((place, case) for place, case in self.cases.items() if case.row.status == "OK")

    def after(self, findings: Iterable[Finding]) -> Evidence:
        """The same with the rows mended that have one repair, and without those that cannot be true."""
        cases = dict(self.cases)
        for repair in (repair for finding in findings for repair in finding.repairs):
            case = cases.pop(repair.row, None)
            if repair.exclude and not repair.exclude_column:
                continue
            row = mended(case.row if case else self.table.rows[repair.row], repair)
            changed = PrintedRow(row=row, run=case.run) if case and not _changes_the_run(repair) else _case(row)
            if changed:
                cases[repair.row] = changed
        return Evidence(table=self.table, cases=dict(sorted(cases.items())))


def _changes_the_run(repair: Repair) -> bool:
    return bool(repair.cells.keys() - {"sec_per_iter", "tflops", "mem_gib"})


def _case(row: Row) -> PrintedRow | None:
    return case_of(row)


def mended(row: Row, repair: Repair) -> Row:
    """A row with a repair's cells in place of its own; measured figures are read anew."""
    cells = {**row.cells, **repair.cells}
    understood = {**row.understood, **repair.cells}
    scale = {"sec_per_iter": ("seconds", 1.0), "tflops": ("tflops", 1e12), "mem_gib": ("memory", 2.0**30)}
    changed: dict[str, float | None] = {
        name: float(repair.cells[column]) * factor for column, (name, factor) in scale.items() if column in repair.cells
    }
    if repair.exclude_column in scale:
        changed[scale[repair.exclude_column][0]] = None
    return replace(row, cells=cells, understood=understood, skipped=None, **changed)  # type: ignore[arg-type]


def about(
    row: Row,
    check: str,
    severity: Severity,
    message: str,
    suggestion: str,
    *,
    others: Iterable[Row] = (),
    cells: Mapping[str, str] | None = None,
    exclude: str = "",
    exclude_column: str = "",
) -> Finding:
    """A finding about one row, with the repair that it suggests, if any."""
    repairs: tuple[Repair, ...] = ()
    if cells or exclude:
        repairs = (Repair(row=row.index, cells=cells or {}, exclude=exclude, exclude_column=exclude_column),)
    return Finding(
        row=row.index,
        line=row.line,
        check=check,
        severity=severity,
        message=message,
        suggestion=suggestion,
        rows=tuple(sorted({row.index, *(other.index for other in others)})),
        repairs=repairs,
    )


def figures(row: Row) -> str:
    """A row's measured figures in words."""
    words = [("sec_per_iter", "s"), ("tflops", "TFLOPs"), ("mem_gib", "GiB")]
    return ", ".join(f"{text_of(row, column)} {unit}" for column, unit in words if column in row.cells)


def short(value: float) -> str:
    """A figure to four digits, as a repaired cell or a sentence has it."""
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
