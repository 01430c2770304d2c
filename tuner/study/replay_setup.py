"""Set up a search over the rows of a measured table, which also provides the results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from tuner.core.errors import InputError, NothingUsable
from tuner.core.outcomes import Outcome
from tuner.core.text import either, listed
from tuner.launch.virtual.replay import ReplayedRun
from tuner.search.candidates import CandidatePool
from tuner.tables import Row, Table, blocks

_OUTCOMES: Final = {"OK": Outcome.MEASURED, "OOM": Outcome.OOM, "FAIL": Outcome.CRASHED, "HANG": Outcome.HUNG}


def replayed(table: Table, group: str | None = None) -> tuple[CandidatePool, list[ReplayedRun]]:
    """Return the candidates in a table and their measured results.

    Only rows of one group are comparable, so that a table with several groups requires `group`.
    """
    usable = [row for row in table.rows if _answers(row)]
    if not usable:
        reason = table.first_skipped() or "none says what was run and how it ended."
        raise NothingUsable(f"no row of {table.name} can be replayed: {reason}")
    groups = list(dict.fromkeys(row.group for row in usable))
    if group is None and len(groups) > 1:
        raise InputError(f"{table.name} has {len(groups)} groups; choose one with --group: {either(groups, limit=12)}.")
    if group is not None and group not in groups:
        if reason := table.first_skipped(group):
            raise NothingUsable(f"no row of group {group!r} of {table.name} can be replayed: {reason}")
        raise InputError(f"{table.name} has no group {group!r}; it has {listed(groups, limit=12)}.")
    rows = [row for row in usable if group is None or row.group == group]
    if not any(row.timed for row in rows):
        raise NothingUsable(f"{table.name} has no timed row{f' in group {group}' if group else ''} to search for.")
    return _pool(rows), [_answer(row) for row in rows]


def _answers(row: Row) -> bool:
    return row.usable and (row.status != "OK" or row.seconds is not None)


def _pool(rows: Iterable[Row]) -> CandidatePool:
    """Return the candidate pool, in which each topology occurs once."""
    parts = []
    for block in blocks(rows):
        keys = [block.columns.topology(index).key for index in range(len(block.rows))]
        parts.append(
            block.columns.rows(
                np.array(sorted({key: index for index, key in reversed(list(enumerate(keys)))}.values()))
            )
        )
    return CandidatePool(workload=parts[0].workload, parts=tuple(parts))


def _answer(row: Row) -> ReplayedRun:
    assert row.run is not None  # noqa: S101 - `replayed` has checked it
    return ReplayedRun(
        workload=row.run.workload,
        cluster=row.run.cluster,
        topology=row.run.topology,
        outcome=_OUTCOMES[row.status],
        seconds=row.seconds if row.status == "OK" else None,
        memory=row.memory,
        memory_kind=row.memory_kind,
        note=row.cells.get("note", ""),
    )
