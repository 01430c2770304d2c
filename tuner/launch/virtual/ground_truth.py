"""What the simulated cluster knows and the search does not: how long each topology really takes, and what it needs.

It starts from the model's terms, for nothing else here knows what a pipeline is, and departs from them in all that a
calibration can learn (a site's factors) and in much that it cannot: how well each term overlaps, kernels that are slow
for some shapes, deviations along the degrees, another limit of memory. `docs/launchers.md` says how far that leads
from the model. Everything follows from the seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Final

import numpy as np

from tuner.core.columns import BoolArray, Columns, FloatArray
from tuner.core.domain import RECOMPUTE
from tuner.costmodel.memory import worst_need
from tuner.costmodel.site_factors import PRIOR, SiteFactors
from tuner.costmodel.time import time_terms
from tuner.launch.virtual.hash_rng import between, normal, uniform

WIDER: Final = 1.3
"""Standard deviations of the hidden factors beside those of the prior: sites are odder than the few that were seen."""

OVERLAP: Final = {
    "bubble": (0.70, 1.40),
    "data_parallel": (0.40, 1.30),
    "sharding": (0.70, 1.30),
    "pipeline": (0.50, 2.00),
    "tensor_parallel": (0.70, 1.40),
    "recompute": (0.92, 1.08),
    "optimizer": (0.80, 1.30),
}
"""Between what a term is multiplied by: schedules hide more or less of it than the model takes for granted."""

KERNELS: Final = ("products", "attention", "elementwise", "recompute")
"""The terms that depend on how many tokens a kernel is given."""

STARVED: Final = (0.0, 0.25)
"""By how much kernels are slower at `FEW_TOKENS` than with any number of tokens."""

FEW_TOKENS: Final = 2048
CLIFFS: Final = 0.3
"""Share of (hidden, heads, tp) whose kernels are slow."""

CLIFF: Final = (0.05, 0.35)
"""By how much; small ones are more frequent."""

UNEVEN: Final = 0.008
"""Standard deviation of all others'."""

SMOOTH: Final = ("tp", "pp", "micro_batch", "dp")
WAVE: Final = 0.03
"""Standard deviation of the deviations along the logarithms of these axes."""

LENGTH: Final = 1.5
"""Doublings of one of them after which a deviation is another."""

WAVES: Final = 48
INTERLEAVED: Final = (0.0, 0.05)
"""By how much each doubling of a pipeline stage's chunks slows all of it down."""

KIND: Final = 0.04
"""Standard deviation of what topologies with one kind of recompute and of sequence parallelism share."""

USABLE: Final = (0.90, 0.97)
"""Share of the card at which a job is out of memory."""

MEMORY_KIND: Final = 0.05
"""Standard deviation of the memory's deviation by recompute and attention kernel."""

_CHUNK: Final = 8192


class GroundTruth:
    """Seconds and bytes of every topology on one cluster that nobody has."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._site = _site(seed)
        self._overlap = {name: between(*limits, seed, "overlap", name) for name, limits in OVERLAP.items()}
        self._starved = between(*STARVED, seed, "starved")
        self._interleaved = between(*INTERLEAVED, seed, "interleaved")
        self._usable = between(*USABLE, seed, "usable")
        self._slopes = np.array(
            [[normal(seed, "wave", wave, axis) / LENGTH for axis in SMOOTH] for wave in range(WAVES)]
        )
        self._phases = np.array([between(0, math.tau, seed, "phase", wave) for wave in range(WAVES)])

    def seconds(self, columns: Columns) -> FloatArray:
        """Seconds of one iteration after the first, without the noise of a run."""
        return _by_chunks(self._seconds, columns)

    def memory(self, columns: Columns) -> FloatArray:
        """Bytes that the fullest GPU needs."""
        return _by_chunks(self._memory, columns)

    def limit(self, columns: Columns) -> float:
        """Bytes that a job can have of a card."""
        return columns.cluster.gpu.memory * self._usable

    def fits(self, columns: Columns) -> BoolArray:
        """Whether a job of each row runs at all."""
        enough: BoolArray = self.memory(columns) <= self.limit(columns)
        return enough

    def _seconds(self, columns: Columns) -> FloatArray:
        total = np.zeros(len(columns.tp))
        hungry = 1 + self._starved * FEW_TOKENS / (columns.micro_batch * columns.workload.model.seq / columns.cp)
        for name, seconds in time_terms(columns, self._site).items():
            total = total + seconds * self._overlap.get(name, 1.0) * (hungry if name in KERNELS else 1.0)
        total = total * (1 + self._interleaved * np.log2(columns.vpp))
        found: FloatArray = total * self._cliffs(columns) * np.exp(self._wave(columns) + self._kind(columns))
        return found

    def _memory(self, columns: Columns) -> FloatArray:
        kernel = columns.workload.attention
        kinds = [math.exp(MEMORY_KIND * normal(self.seed, "memory", kind, kernel)) for kind in RECOMPUTE]
        needed: FloatArray = worst_need(columns, self._site).total * np.array(kinds)[columns.recompute]
        return needed

    def _cliffs(self, columns: Columns) -> FloatArray:
        """By how much the kernels of a shape are slower; each shape's chance is its own."""
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
        """A random smooth function: many cosines in random directions (Rahimi and Recht 2007)."""
        at = np.log2(np.stack([columns.arrays[axis] for axis in SMOOTH], axis=1).astype(np.float64))
        rows, back = np.unique(at, axis=0, return_inverse=True)
        waves = np.cos(rows @ self._slopes.T + self._phases).sum(axis=1) * math.sqrt(2 / WAVES) * WAVE
        found: FloatArray = waves[back.reshape(-1)]
        return found

    def _kind(self, columns: Columns) -> FloatArray:
        kinds = [[KIND * normal(self.seed, "kind", kind, whether) for whether in range(2)] for kind in RECOMPUTE]
        found: FloatArray = np.array(kinds)[columns.recompute, columns.sequence_parallel]
        return found


def _site(seed: int) -> SiteFactors:
    return SiteFactors(
        **{
            field.name: math.exp(WIDER * getattr(PRIOR, field.name) * normal(seed, "site", field.name))
            for field in fields(SiteFactors)
        }
    )


def _by_chunks(figures: Callable[[Columns], FloatArray], columns: Columns) -> FloatArray:
    """The figures of every row, so many rows at a time as the processor's cache holds."""
    rows = len(columns.tp)
    if rows <= _CHUNK:
        return figures(columns)
    starts = range(0, rows, _CHUNK)
    return np.concatenate([figures(columns.rows(np.arange(at, min(rows, at + _CHUNK)))) for at in starts])
