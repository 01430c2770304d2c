"""Group the days of a table into speed periods: within one, the cluster has the same speed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

from tuner.audit.evidence import Evidence
from tuner.audit.printed_row import PrintedRow, printed_rows
from tuner.audit.repair import Finding
from tuner.core.text import counted, listed
from tuner.tables import Row

_MIN_PERIOD_FACTOR: Final = 0.025
"""Smaller changes are run-to-run noise."""
_DAY: Final = re.compile(
    r"(?<![0-9])(?<![0-9][-.])((?:20[0-9]{2}-)?(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01]))(?![0-9])(?![-.][0-9])"
)


def period_labels(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the speed period of each row: only rows of one period are directly comparable.

    The day of a row is the date in its note, group or source, else its group. Days on which the same runs took the same
    time form one period; a day that shares no run with an earlier one joins the period before it. A period is named
    after its first day.
    """
    period = {day: name for name, days in _periods(printed_rows(rows), rows).items() for day in days}
    return tuple(period[day_of(row)] for row in rows)


def day_of(row: Row) -> str:
    """Return the date of a row, else its group."""
    for column in ("date", "note", "group", "source"):
        if found := _DAY.search(row.cells.get(column, "")):
            return found[1]
    return row.group


def shared_runs(cases: Mapping[int, PrintedRow]) -> dict[tuple[str, str], list[float]]:
    """Return log(seconds on the second day / on the first) of each shared run, by pair of days in table order."""
    days = list(dict.fromkeys(day_of(case.row) for case in cases.values()))
    times: dict[Any, dict[str, list[float]]] = {}
    for case in cases.values():
        if case.row.timed and case.row.seconds:
            logs = times.setdefault(case.identity, {}).setdefault(day_of(case.row), [])
            if math.log(case.row.seconds) not in [one for day in times[case.identity].values() for one in day]:
                logs.append(math.log(case.row.seconds))
    found: dict[tuple[str, str], list[float]] = {}
    for by_day in times.values():
        known = sorted((day for day, logs in by_day.items() if logs), key=days.index)
        for number, first in enumerate(known):
            for second in known[number + 1 :]:
                means = [sum(by_day[day]) / len(by_day[day]) for day in (first, second)]
                found.setdefault((first, second), []).append(means[1] - means[0])
    return found


def _periods(cases: Mapping[int, PrintedRow], rows: Sequence[Row]) -> dict[str, list[str]]:
    """Return the days of each period by its name."""
    days = list(dict.fromkeys(day_of(row) for row in rows))
    shared = shared_runs(cases)
    found: dict[str, list[str]] = {}
    period = ""
    for day in days:
        verdicts: dict[str, list[float]] = {}
        for (first, second), ratios in shared.items():
            if second == day:
                home = next(name for name, members in found.items() if first in members)
                verdicts.setdefault(home, []).extend(ratios)
        alike = [name for name, ratios in verdicts.items() if abs(median(ratios)) < _MIN_PERIOD_FACTOR]
        if alike:
            period = alike[-1]
        elif verdicts or not period:
            period = day
        found.setdefault(period, []).append(day)
    return found


def changes(evidence: Evidence) -> list[Finding]:
    """The same runs take the same time on every day; a common factor means that the cluster's speed changed."""
    found = _periods(evidence.cases, evidence.table.rows)
    home = {day: name for name, days in found.items() for day in days}
    between: dict[tuple[str, str], list[float]] = {}
    days: dict[tuple[str, str], list[str]] = {}
    for (first, second), ratios in shared_runs(evidence.cases).items():
        pair = home[first], home[second]
        if pair[0] != pair[1]:
            between.setdefault(pair, []).extend(ratios)
            days.setdefault(pair, []).extend((first, second))
    return [
        _finding(
            evidence, {period: [day for day in found[period] if day in days[pair]] for period in pair}, pair, ratios
        )
        for pair, ratios in between.items()
    ]


def _finding(evidence: Evidence, found: dict[str, list[str]], pair: tuple[str, str], ratios: list[float]) -> Finding:
    before, after = pair
    percents = sorted(abs(math.expm1(ratio)) * 100 for ratio in ratios)
    less = "less" if median(ratios) < 0 else "more"
    rows = tuple(row.index for row in evidence.table.rows if day_of(row) in found[after])
    share = f"{percents[0]:.1f} to {percents[-1]:.1f}%" if len(percents) > 1 else f"{percents[0]:.1f}%"
    return Finding(
        row=None,
        line=evidence.table.rows[rows[0]].line,
        check="speed-period",
        severity="advice",
        message=(
            f"{counted(len(ratios), 'run')} of {listed(found[before], limit=4)} took {share} {less} time on "
            f"{listed(found[after], limit=4)}: a factor of {math.exp(median(ratios)):.3f}"
        ),
        suggestion="compare only rows of one speed period, or fit a factor between periods",
        rows=rows,
    )
