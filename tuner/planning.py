"""`tuner plan`: the whole legal space in an order, with nothing launched."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tuner.columns import Columns, FloatArray, IntArray
from tuner.domain import RECOMPUTE, Topology
from tuner.errors import EmptySpace, InputError, either
from tuner.openings import openings
from tuner.rules import RULES, Rule
from tuner.space import Space, Tally

ORDER: Final = (
    "most nodes, plainest (vpp, sequence parallelism, ZeRO 1, recompute and heads as they are by default), fewest "
    "pieces of advice broken, smallest pipeline bubble, largest tp, then grid order"
)
"""How rows are listed until there are estimates to rank them by."""


MOST_ROWS: Final = 500_000
"""Rows that are listed at most when all are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One legal topology and what the rules know of it."""

    topology: Topology
    heads: int
    microbatches: int
    bubble: float
    """The share of an iteration that a pipeline stage waits, by the schedule alone."""
    advice: tuple[str, ...]
    """Names of the advice that it does not follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The legal space, counted, and its first rows."""

    tally: Tally
    seconds: float
    top: tuple[Row, ...]


def plan(space: Space, *, top: int = 10) -> Plan:
    """Enumerate the space and keep its first `top` rows, all of them where `top` is 0.

    Raises `EmptySpace`, which says what removed everything and what would open it.
    """
    started, tally, keep = time.perf_counter(), Tally(), top or MOST_ROWS
    points: IntArray = np.empty(0, dtype=np.int64)
    keys: FloatArray = np.empty((5, 0))
    for block in space.blocks(tally):
        points = np.concatenate([points, block])
        keys = np.concatenate([keys, _keys(space.columns(block))], axis=1)
        if len(points) > 2 * keep:  # sorting now and then is what keeps it cheap
            first = np.lexsort((points, *keys))[:keep]
            points, keys = points[first], keys[:, first]
    if not tally.legal:
        raise EmptySpace(why_empty(space, tally))
    if not top and tally.legal > MOST_ROWS:
        raise InputError(f"{tally.legal:,} rows are too many to list; say how many with --top, or pin axes with --set.")
    points = points[np.lexsort((points, *keys))[:keep]]
    return Plan(tally=tally, seconds=time.perf_counter() - started, top=_rows(space, points))


def why_empty(space: Space, tally: Tally) -> str:
    """One sentence: which rules removed how many, and the nearest changes that open the space."""
    removed = sorted(((count, name) for name, count in tally.removed.items() if count), reverse=True)
    causes = ", ".join(f"{name} {count:,}" for count, name in removed)
    found = openings(space)
    remedy = (
        "it opens with " + either(f"{opening.change} ({opening.legal:,} legal)" for opening in found)
        if found
        else "no single change of nodes, global batch, policies or depth opens it"
    )
    return f"none of {tally.grid:,} topologies is legal (removed by {causes}); {remedy}."


def bubble(columns: Columns) -> Any:
    """The share of an iteration that a stage waits: (pp - 1) / (vpp x microbatches + pp - 1).

    Narayanan et al. 2021, arXiv 2104.04473, section 2.2, as a share of the whole and not of the ideal time.
    """
    waits = columns.pp - 1
    return waits / (columns.vpp * columns.microbatches + waits)


def _keys(columns: Columns) -> Any:
    """What the rows are sorted by, the least weighty first, as `numpy.lexsort` wants it."""
    advice = sum(rule.broken_rows(columns) for rule in _advice(columns)) + np.zeros_like(columns.tp)
    return np.stack([-columns.tp, bubble(columns), advice, _departures(columns), -columns.nodes])


def _departures(columns: Columns) -> Any:
    """In how many ways a topology is not the plainest of its degrees."""
    model = columns.workload.model
    plain = (columns.vpp == 1, columns.sequence_parallel == 0, columns.zero == 1, columns.heads == model.heads)
    recomputed = columns.recompute == RECOMPUTE.index("full")
    return sum((~same).astype(np.int64) for same in (*plain, recomputed))


def _rows(space: Space, points: IntArray) -> tuple[Row, ...]:
    columns = space.columns(points)
    unfollowed = [(rule.name, rule.broken_rows(columns)) for rule in _advice(columns)]
    waits, microbatches, heads = bubble(columns), columns.microbatches, columns.heads
    return tuple(
        Row(
            topology=topology,
            heads=int(heads[row]),
            microbatches=int(microbatches[row]),
            bubble=float(waits[row]),
            advice=tuple(name for name, broken in unfollowed if broken[row]),
        )
        for row, topology in enumerate(space.topologies(points))
    )


def _advice(columns: Columns) -> list[Rule]:
    return [rule for rule in RULES if rule.level == "advice" and rule.binding(columns.workload)]
