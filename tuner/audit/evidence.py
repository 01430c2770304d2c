"""The rows of a table as the checks see them, with the FLOP convention and the expected time of each.

The figures of a table come from one program or a few, so a convention shows in many rows at once: the printed
TFLOPs x seconds x GPUs of nearly all rows of a group equal what one convention counts, up to rounding and one constant
factor near 1 (a rounded parameter count, an unstated vocabulary).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from tuner.audit.expectation import Expectation, expected_seconds
from tuner.audit.flop_conventions import CONVENTIONS
from tuner.audit.printed_row import PrintedRow, printed_row_of, printed_rows, text_of
from tuner.audit.repair import Finding, Repair, Severity
from tuner.core.quantity import GIB
from tuner.tables import Row, Table

MIN_ROWS_FOR_USUAL_SHARE: Final = 4
"""Fewer rows do not define the usual share of the peak."""

SLACK: Final = 0.004
"""Error of a convention beyond rounding: a padded or rounded vocabulary, biases, norms."""
_MAX_CONSTANT_FACTOR: Final = 0.12
"""Largest constant factor, as a logarithm, that is a variant of a convention and not a mistake."""
_UNIT_SPREADS: Final = 6.0
_Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """The convention that the TFLOPs of a group follow."""

    convention: int
    """Index in `CONVENTIONS`."""
    factor: float
    """Logarithm of figure / count; 0 if they are equal."""
    spread: float
    """Scatter of the group's figures: seconds and TFLOPs may be means of different iterations."""

    def error(self, case: PrintedRow) -> float:
        """Return log(printed / counted)."""
        return case.printed_rate - float(np.log(CONVENTIONS[self.convention].count(case.terms))) - self.factor

    def allows(self, case: PrintedRow) -> bool:
        """Return whether a row's figures follow the convention, within rounding and the group's scatter."""
        tolerance = case.rate_rounding + max(SLACK, _UNIT_SPREADS * self.spread)
        return abs(self.error(case)) <= tolerance


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A table as the checks see it, with the repairs of earlier stages applied."""

    table: Table
    cases: Mapping[int, PrintedRow]
    """The rows that describe a run, by their index in the table."""

    @classmethod
    def of(cls, table: Table) -> Evidence:
        """Return the evidence of a table as printed."""
        return cls(table=table, cases=printed_rows(table.rows))

    @cached_property
    def units(self) -> dict[int, Unit]:
        """The convention that the TFLOPs of each row should follow."""
        return units_of(self.cases)

    @cached_property
    def expected(self) -> dict[int, Expectation]:
        """The seconds expected of each row from its neighbours."""
        return expected_seconds(self.cases)

    @cached_property
    def usual_share(self) -> float | None:
        """The median share of the peak by the printed TFLOPs; None with few rows."""
        shares = sorted(case.flops / case.peak for _, case in self.fitting if case.row.tflops)
        return shares[len(shares) // 2] if len(shares) >= MIN_ROWS_FOR_USUAL_SHARE else None

    @property
    def fitting(self) -> Iterable[tuple[int, PrintedRow]]:
        """The rows whose run succeeded."""
        return ((index, case) for index, case in self.cases.items() if case.row.status == "OK")

    def after(self, findings: Iterable[Finding]) -> Evidence:
        """Return the evidence with unambiguous repairs applied and impossible rows removed."""
        cases = dict(self.cases)
        for repair in (repair for finding in findings for repair in finding.repairs):
            case = cases.pop(repair.row, None)
            if repair.exclude and not repair.exclude_column:
                continue
            row = mended(case.row if case else self.table.rows[repair.row], repair)
            run = case.run if case and not _changes_the_run(repair) else None
            changed = PrintedRow(row=row, run=run) if run else printed_row_of(row)
            if changed:
                cases[repair.row] = changed
        return Evidence(table=self.table, cases=dict(sorted(cases.items())))


def _changes_the_run(repair: Repair) -> bool:
    return bool(repair.cells.keys() - {"sec_per_iter", "tflops", "mem_gib"})


def mended(row: Row, repair: Repair) -> Row:
    """Return a row with the cells of a repair, its measured figures parsed again."""
    cells = {**row.cells, **repair.cells}
    understood = {**row.understood, **repair.cells}
    scale = {"sec_per_iter": ("seconds", 1.0), "tflops": ("tflops", 1e12), "mem_gib": ("memory", GIB)}
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
    *,
    message: str,
    suggestion: str,
    others: Iterable[Row] = (),
    cells: Mapping[str, str] | None = None,
    exclude: str = "",
    exclude_column: str = "",
) -> Finding:
    """Return a finding about one row, with its repair if `cells` or `exclude` is given."""
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
    """Return the measured figures of a row as text: `143.31 s, 112.49 TFLOPs`."""
    words = [("sec_per_iter", "s"), ("tflops", "TFLOPs"), ("mem_gib", "GiB")]
    return ", ".join(f"{text_of(row, column)} {unit}" for column, unit in words if column in row.cells)


def short(value: float) -> str:
    """Return a figure with four digits."""
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


def units_of(cases: Mapping[int, PrintedRow]) -> dict[int, Unit]:
    """Return the convention that each row with seconds and TFLOPs should follow: its group's, else its table's."""
    indices = [index for index, case in cases.items() if case.rated]
    if not indices:
        return {}
    errors = np.array([_errors(cases[index]) for index in indices])
    tolerances = np.array([cases[index].rate_rounding + SLACK for index in indices])
    groups: dict[str, list[int]] = {}
    for number, index in enumerate(indices):
        groups.setdefault(cases[index].row.group, []).append(number)
    own = {name: _decide(errors[numbers], tolerances[numbers]) for name, numbers in groups.items()}
    known = [unit for unit in own.values() if unit]
    whole = _decide(errors, tolerances)
    known += [whole] if whole else []
    if not known:
        return {}
    found: dict[int, Unit] = {}
    for name, numbers in groups.items():
        unit = own[name] or max(known, key=lambda unit: _support(unit, errors, tolerances, numbers))
        found |= {indices[number]: unit for number in numbers}
    return found


def _errors(case: PrintedRow) -> list[float]:
    return [case.printed_rate - float(np.log(convention.count(case.terms))) for convention in CONVENTIONS]


def _support(unit: Unit, errors: _Array, tolerances: _Array, numbers: Sequence[int]) -> tuple[int, int]:
    """The unit that total rows of a group follow, and that of the whole table."""
    follow = np.abs(errors[:, unit.convention] - unit.factor) <= tolerances + _UNIT_SPREADS * unit.spread
    return int(follow[list(numbers)].sum()), int(follow.sum())


def _decide(errors: _Array, tolerances: _Array) -> Unit | None:
    """Return the convention that most rows follow, exactly or up to one factor; None if none stands out."""
    total = len(errors)
    exact = (np.abs(errors) <= tolerances[:, None]).sum(axis=0)
    best = int(exact.argmax())
    found = _unit(errors, tolerances, best, 0.0) if exact[best] >= max(2, 0.4 * total) else None
    if total < 3:
        return found
    factors = np.median(errors, axis=0)
    spreads = np.median(np.abs(errors - factors), axis=0)
    follow = (np.abs(errors - factors) <= tolerances[:, None] + 3 * spreads).sum(axis=0)
    fit = (
        (np.abs(factors) <= _MAX_CONSTANT_FACTOR)
        & (spreads <= np.median(tolerances) + 0.01)
        & (follow >= max(3, 0.6 * total))
    )
    # A factor is an extra parameter, so it must explain rows that the exact count does not.
    if not fit.any() or (found and follow[fit].max() <= exact[best]):
        return found
    best = int(np.where(fit, spreads, np.inf).argmin())
    return _unit(errors, tolerances, best, float(factors[best]))


def _unit(errors: _Array, tolerances: _Array, convention: int, factor: float) -> Unit:
    rest = np.abs(errors[:, convention] - factor)
    near = rest[rest <= 0.05]
    excess = np.maximum(0.0, near - tolerances[rest <= 0.05] + SLACK)
    return Unit(convention=convention, factor=factor, spread=1.4826 * float(np.median(excess)) if len(near) else 0.0)
