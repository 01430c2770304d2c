"""The true time and memory of each topology on the simulated cluster, hidden from the search.

The truth starts from the terms of the cost model. It departs from them in what a calibration can learn (site factors)
and in much that it cannot: the overlap of each term, slow kernels of some shapes, smooth deviations along the degrees,
another memory limit. `docs/launchers.md` quantifies the difference. Everything follows from the seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Final

import numpy as np

from tuner.core.columns import BoolArray, Columns, FloatArray
from tuner.core.domain import DISPATCHERS
from tuner.core.recompute import GRANULARITIES
from tuner.costmodel.expert_shapes import experts_of
from tuner.costmodel.memory import worst_need
from tuner.costmodel.site_factors import PRIOR, SiteFactors
from tuner.costmodel.time import time_terms
from tuner.launch.virtual.hash_rng import between, normal, uniform

WIDER: Final = 1.3
"""Standard deviation of the hidden factors, as a multiple of the prior's: real sites vary more than those measured."""

OVERLAP: Final = {
    "bubble": (0.70, 1.40),
    "data_parallel": (0.40, 1.30),
    "sharding": (0.70, 1.30),
    "pipeline": (0.50, 2.00),
    "tensor_parallel": (0.70, 1.40),
    "recompute": (0.92, 1.08),
    "optimizer": (0.80, 1.30),
    "experts": (0.90, 1.30),
    "routing": (0.70, 1.40),
    "dispatch": (0.50, 1.50),
}
"""Range of each term's factor: schedules hide more or less of it than the cost model assumes."""

KERNELS: Final = ("products", "attention", "elementwise", "recompute", "experts")
"""The terms that depend on how many tokens a kernel is given."""

STARVED: Final = (0.0, 0.25)
"""Range of the relative slowdown of kernels at `FEW_TOKENS` tokens."""

FEW_TOKENS: Final = 2048
CLIFFS: Final = 0.3
"""Fraction of (hidden, heads, tp) whose kernels are slow."""

CLIFF: Final = (0.05, 0.35)
"""Range of their slowdown; small ones are more frequent."""

DISPATCHER_CLIFFS: Final = 0.3
"""Fraction of dispatchers that are slow between NVLink domains."""

DISPATCHER_CLIFF: Final = (1.3, 2.5)
"""Range of the factor on their exchange."""

IMBALANCE: Final = (0.0, 0.30)
"""Range of the deviation of an expert's tokens from the mean: even routing that is balanced by force is never exact."""

UNEVEN: Final = 0.008
"""Standard deviation of the log time of all other kernels."""

SMOOTH: Final = ("tp", "pp", "micro_batch", "dp")
WAVE: Final = 0.03
"""Standard deviation of the deviations along the logarithms of these axes."""

LENGTH: Final = 1.5
"""Correlation length of these deviations in doublings."""

WAVES: Final = 48
INTERLEAVED: Final = (0.0, 0.05)
"""Range of the slowdown by each doubling of the chunks of a pipeline stage."""

KIND: Final = 0.04
"""Standard deviation of the log time that topologies with equal recompute and sequence parallelism share."""

USABLE: Final = (0.90, 0.97)
"""Range of the fraction of the GPU at which a job runs out of memory."""

MEMORY_KIND: Final = 0.05
"""Standard deviation of the memory's deviation by recompute and attention kernel."""

_CHUNK: Final = 8192


class GroundTruth:
    """Seconds and bytes of every topology on a simulated cluster."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._site = _site(seed)
        self._overlap = {name: between(*limits, seed, "overlap", name) for name, limits in OVERLAP.items()}
        self._starved = between(*STARVED, seed, "starved")
        self._interleaved = between(*INTERLEAVED, seed, "interleaved")
        self._usable = between(*USABLE, seed, "usable")
        self._imbalance = between(*IMBALANCE, seed, "imbalance")
        self._dispatchers = np.array([self._dispatcher(name) for name in DISPATCHERS])
        self._slopes = np.array(
            [[normal(seed, "wave", wave, axis) / LENGTH for axis in SMOOTH] for wave in range(WAVES)]
        )
        self._phases = np.array([between(0, math.tau, seed, "phase", wave) for wave in range(WAVES)])

    def seconds(self, columns: Columns) -> FloatArray:
        """Return the seconds of one iteration after the first, without noise."""
        return _by_chunks(self._seconds, columns)

    def memory(self, columns: Columns) -> FloatArray:
        """Return the bytes that the fullest GPU needs."""
        return _by_chunks(self._memory, columns)

    def limit(self, columns: Columns) -> float:
        """Return the bytes of a GPU that a job can use."""
        return columns.cluster.gpu.memory * self._usable

    def fits(self, columns: Columns) -> BoolArray:
        """Return whether each topology fits into memory."""
        enough: BoolArray = self.memory(columns) <= self.limit(columns)
        return enough

    def _seconds(self, columns: Columns) -> FloatArray:
        total = np.zeros(len(columns.tp))
        hungry = 1 + self._starved * FEW_TOKENS / columns.tokens
        terms = time_terms(columns, self._site)
        if columns.workload.model.experts:
            terms |= self._unequal(columns, terms)
        for name, seconds in terms.items():
            total = total + seconds * self._overlap.get(name, 1.0) * (hungry if name in KERNELS else 1.0)
        total = total * (1 + self._interleaved * np.log2(columns.vpp))
        found: FloatArray = total * self._cliffs(columns) * np.exp(self._wave(columns) + self._kind(columns))
        return found

    def _unequal(self, columns: Columns, terms: dict[str, FloatArray]) -> dict[str, FloatArray]:
        """Return the terms that wait for the busiest rank, with dispatchers that are slow between domains."""
        ep, experts = columns.ep, experts_of(columns).count
        busiest = 1 + self._imbalance * np.sqrt(ep / experts * 2 * np.log(np.maximum(1, ep)))
        far = columns.ep * columns.etp > columns.cluster.domain
        slow = np.where(far, self._dispatchers[columns.dispatcher], 1.0)
        return {"experts": terms["experts"] * busiest, "dispatch": terms["dispatch"] * busiest * slow}

    def _dispatcher(self, name: str) -> float:
        if uniform(self.seed, "dispatcher", name) < DISPATCHER_CLIFFS:
            return between(*DISPATCHER_CLIFF, self.seed, "dispatcher", name, "how much")
        return 1.0

    def _memory(self, columns: Columns) -> FloatArray:
        kernel = columns.workload.attention
        kinds = [math.exp(MEMORY_KIND * normal(self.seed, "memory", kind, kernel)) for kind in GRANULARITIES]
        needed: FloatArray = worst_need(columns, self._site).total * np.array(kinds)[columns.granularity]
        return needed

    def _cliffs(self, columns: Columns) -> FloatArray:
        """Return the slowdown of each row's kernels, drawn once per shape."""
        shapes = np.stack([columns.hidden, columns.heads, columns.tp], axis=1)
        kinds, back = np.unique(shapes, axis=0, return_inverse=True)
        slower = np.array([self._cliff(*(int(size) for size in kind)) for kind in kinds])
        found: FloatArray = slower[back.reshape(-1)]
        return found

    def _cliff(self, hidden: int, heads: int, tp: int) -> float:
        shape = (self.seed, "cliff", hidden, heads, tp)
        if uniform(*shape) < CLIFFS:
            return 1 + CLIFF[0] + (CLIFF[1] - CLIFF[0]) * uniform(*shape, "how much") ** 2
        return math.exp(UNEVEN * normal(*shape, "how little"))

    def _wave(self, columns: Columns) -> FloatArray:
        """Return a random smooth function: a sum of cosines in random directions (Rahimi and Recht 2007)."""
        at = np.log2(np.stack([columns.arrays[axis] for axis in SMOOTH], axis=1).astype(np.float64))
        rows, back = np.unique(at, axis=0, return_inverse=True)
        waves = np.cos(rows @ self._slopes.T + self._phases).sum(axis=1) * math.sqrt(2 / WAVES) * WAVE
        found: FloatArray = waves[back.reshape(-1)]
        return found

    def _kind(self, columns: Columns) -> FloatArray:
        kinds = [[KIND * normal(self.seed, "kind", kind, whether) for whether in range(2)] for kind in GRANULARITIES]
        found: FloatArray = np.array(kinds)[columns.granularity, columns.sequence_parallel]
        return found


def _site(seed: int) -> SiteFactors:
    return SiteFactors(
        **{
            field.name: math.exp(WIDER * getattr(PRIOR, field.name) * normal(seed, "site", field.name))
            for field in fields(SiteFactors)
        }
    )


def _by_chunks(figures: Callable[[Columns], FloatArray], columns: Columns) -> FloatArray:
    """Return the figures of all rows, computed in chunks that fit into the CPU cache."""
    rows = len(columns.tp)
    if rows <= _CHUNK:
        return figures(columns)
    starts = range(0, rows, _CHUNK)
    return np.concatenate([figures(columns.rows(np.arange(at, min(rows, at + _CHUNK)))) for at in starts])
