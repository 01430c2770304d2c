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
from tuner.core.domain import MemoryKind, MemoryStage
from tuner.costmodel.constants import MEMORY_DEVIATION, MEMORY_DEVIATION_ROWS, ODD_OUTCOME_SHARE
from tuner.costmodel.memory import limit, shown_bytes, worst_need
from tuner.costmodel.normal import below
from tuner.costmodel.site_factors import MEMORY_FACTORS, PRIOR, SiteFactors

FAR: Final = 2.0
"""Deviations beyond which a figure counts for its sign alone."""


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
    """The site with its memory factors, and the deviation that is left."""
    if not any(len(part.memory) for part in rows):
        return site, MEMORY_DEVIATION
    factors = np.zeros(len(MEMORY_FACTORS))
    best, step = _cost(rows, site, factors), 0.16
    while step > 0.004:
        moves = [factors + step * move for move in (*np.eye(len(factors)), *-np.eye(len(factors)))]
        costs = [_cost(rows, site, move) for move in moves]
        if min(costs) < best:
            best, factors = min(costs), moves[int(np.argmin(costs))]
        else:
            step /= 2
    found = _with(site, factors)
    off = np.concatenate([_off(part, found) for part in rows])
    left = np.clip(off, -FAR * 2 * MEMORY_DEVIATION, FAR * 2 * MEMORY_DEVIATION)
    return found, float(
        np.sqrt((MEMORY_DEVIATION_ROWS * MEMORY_DEVIATION**2 + (left**2).sum()) / (MEMORY_DEVIATION_ROWS + len(left)))
    )


def _cost(rows: Sequence[MeasuredMemory], site: SiteFactors, factors: FloatArray) -> float:
    """The misfit of the factors, as a negative logarithm of probability."""
    moved = _with(site, factors)
    prior = np.array([getattr(PRIOR, name) for name in MEMORY_FACTORS])
    cost = 0.5 * float(((factors / prior) ** 2).sum())
    for part in rows:
        size = np.abs(_off(part, moved)) / MEMORY_DEVIATION
        cost += float(np.where(size < FAR, 0.5 * size**2, FAR * size - 0.5 * FAR**2).sum())
        beyond = np.log(worst_need(part.columns, moved).total / limit(part.columns)) / MEMORY_DEVIATION
        chance = below(np.where(part.failed, beyond, -beyond))[part.failed | part.fitted]
        cost -= float(np.log(ODD_OUTCOME_SHARE + (1 - ODD_OUTCOME_SHARE) * chance).sum())
    return cost


def _off(part: MeasuredMemory, site: SiteFactors) -> FloatArray:
    """Logarithm of estimate over figure, if there is one."""
    given = np.isfinite(part.memory)
    off: FloatArray = np.log(shown_bytes(part.columns, site, part.kind, part.stage)[given] / part.memory[given])
    return off


def _with(site: SiteFactors, factors: FloatArray) -> SiteFactors:
    return replace(site, **{name: float(np.exp(value)) for name, value in zip(MEMORY_FACTORS, factors, strict=True)})
