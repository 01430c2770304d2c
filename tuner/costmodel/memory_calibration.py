"""Calibrate memory on a site's figures: two factors under priors, and the remaining error.

A figure says what a GPU held; a run that fitted, that it needed no more than the card; one that did not, that it
needed more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tuner.core.columns import BoolArray, Columns, FloatArray
from tuner.core.domain import MemoryKind, MemoryStage, Workload
from tuner.costmodel.constants import (
    GATHERED_DEVIATION,
    MEMORY_DEVIATION,
    MEMORY_DEVIATION_ROWS,
    ODD_OUTCOME_SHARE,
    PLAIN_DEVIATION,
)
from tuner.costmodel.framework_terms import terms_of
from tuner.costmodel.memory import limit, shown_bytes, worst_need
from tuner.costmodel.normal import below
from tuner.costmodel.site_factors import MEMORY_FACTORS, PRIOR, SiteFactors
from tuner.costmodel.stack_constants import FULLY_SHARDED_DEVIATION

HUBER: Final = 2.0
"""Deviations beyond which a figure counts for its sign alone."""
IGNORED_FROM: Final = 3.0
"""Deviations beyond which an outcome is ignored."""


def usual_deviation(workload: Workload) -> float:
    """Return the standard deviation of the logarithm of memory before any figure, without the error of experts."""
    known = MEMORY_DEVIATION if workload.parallel_loss else max(MEMORY_DEVIATION, GATHERED_DEVIATION)
    if terms_of(workload).fully_sharded:
        return max(known, FULLY_SHARDED_DEVIATION)
    return max(known, PLAIN_DEVIATION) if workload.plain_layers else known


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMemory:
    """Runs of one workload and cluster, and their memory figures."""

    columns: Columns
    memory: FloatArray
    """Bytes as published; not a number where they are not."""
    kind: MemoryKind
    fitted: BoolArray
    failed: BoolArray
    """The rows that ran out of memory."""
    stage: MemoryStage = "first"
    """Whose bytes these are."""


def weigh(rows: Sequence[MeasuredMemory], site: SiteFactors) -> tuple[SiteFactors, float]:
    """The site with its memory factors, and the deviation that is left.

    An outcome counts once for each layout. One that the model fitted to the figures contradicts by far changes no
    factor, since the row or the estimate of its kind is wrong. It only widens the deviation.
    """
    if not any(len(part.memory) for part in rows):
        return site, MEMORY_DEVIATION
    outcomes = _outcomes(rows)
    by_figures = _descent(rows, [_none(part) for part in rows], site)
    informative = [
        kept & (_against(part, by_figures) < IGNORED_FROM) for part, kept in zip(rows, outcomes, strict=True)
    ]
    found = _descent(rows, informative, site)
    off = np.concatenate([_off(part, found) for part in rows])
    odd = np.concatenate([_against(part, found)[kept] for part, kept in zip(rows, outcomes, strict=True)])
    left = np.clip(off, -HUBER * 2 * MEMORY_DEVIATION, HUBER * 2 * MEMORY_DEVIATION) / MEMORY_DEVIATION
    odd = np.clip(odd[odd > 0], 0, HUBER * 2)
    alone, together = (_pooled(errors) for errors in (left, np.concatenate([left, odd])))
    return found, MEMORY_DEVIATION * max(alone, together)


def _pooled(errors: FloatArray) -> float:
    """Return the root mean square of errors in deviations, with a prior of 1."""
    return float(np.sqrt((MEMORY_DEVIATION_ROWS + (errors**2).sum()) / (MEMORY_DEVIATION_ROWS + len(errors))))


def _descent(rows: Sequence[MeasuredMemory], outcomes: Sequence[BoolArray], site: SiteFactors) -> SiteFactors:
    """Return the site with the memory factors that fit the figures and these outcomes best."""
    factors = np.zeros(len(MEMORY_FACTORS))
    best, step = _cost(rows, outcomes, site, factors), 0.16
    while step > 0.004:
        moves = [factors + step * move for move in (*np.eye(len(factors)), *-np.eye(len(factors)))]
        costs = [_cost(rows, outcomes, site, move) for move in moves]
        if min(costs) < best:
            best, factors = min(costs), moves[int(np.argmin(costs))]
        else:
            step /= 2
    return _with(site, factors)


def _cost(
    rows: Sequence[MeasuredMemory], outcomes: Sequence[BoolArray], site: SiteFactors, factors: FloatArray
) -> float:
    """The misfit of the factors, as a negative logarithm of probability."""
    moved = _with(site, factors)
    prior = np.array([getattr(PRIOR, name) for name in MEMORY_FACTORS])
    cost = 0.5 * float(((factors / prior) ** 2).sum())
    for part, kept in zip(rows, outcomes, strict=True):
        size = np.abs(_off(part, moved)) / MEMORY_DEVIATION
        cost += float(np.where(size < HUBER, 0.5 * size**2, HUBER * size - 0.5 * HUBER**2).sum())
        if kept.any():
            chance = below(-_against(part, moved)[kept])
            cost -= float(np.log(ODD_OUTCOME_SHARE + (1 - ODD_OUTCOME_SHARE) * chance).sum())
    return cost


def _outcomes(rows: Sequence[MeasuredMemory]) -> list[BoolArray]:
    """Return, for each row, whether its outcome is the first of its layout: of a need, a limit and an outcome."""
    seen: set[tuple[float, float, bool]] = set()
    found = []
    for part in rows:
        needs, most, kept = worst_need(part.columns, SiteFactors()).total, limit(part.columns), _none(part)
        for row in np.flatnonzero(part.failed | part.fitted):
            key = (float(f"{needs[row]:.9g}"), most, bool(part.failed[row]))
            kept[row] = key not in seen
            seen.add(key)
        found.append(kept)
    return found


def _against(part: MeasuredMemory, site: SiteFactors) -> FloatArray:
    """Return by how many deviations the estimate contradicts each row's outcome; negative where it agrees."""
    beyond = np.log(worst_need(part.columns, site).total / limit(part.columns))
    against: FloatArray = np.where(part.failed, -beyond, beyond) / usual_deviation(part.columns.workload)
    return against


def _none(part: MeasuredMemory) -> BoolArray:
    return np.zeros(len(part.memory), dtype=bool)


def _off(part: MeasuredMemory, site: SiteFactors) -> FloatArray:
    """Logarithm of estimate over figure, if there is one."""
    given = np.isfinite(part.memory)
    off: FloatArray = np.log(shown_bytes(part.columns, site, part.kind, part.stage)[given] / part.memory[given])
    return off


def _with(site: SiteFactors, factors: FloatArray) -> SiteFactors:
    return replace(site, **{name: float(np.exp(value)) for name, value in zip(MEMORY_FACTORS, factors, strict=True)})
