"""The memory that candidates need: the cost model's need plus a residual of three parts, learnt from a study's jobs.

The residual has a part common to all, one by kernels and recompute, and one that fades with distance. How much a
cluster's cards can really allocate is uncertain too: an out-of-memory run needed more than that, a run that fitted
needed less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tuner.core.columns import BoolArray, Columns, FloatArray, IntArray
from tuner.core.domain import EXPERT_AXES
from tuner.costmodel.calibration import Calibration
from tuner.costmodel.estimate import CHUNK, own_memory_deviation
from tuner.costmodel.memory import worst_need
from tuner.costmodel.normal import below, truncated
from tuner.costmodel.residual_features import Features
from tuner.search.candidates import CandidatePool
from tuner.search.constants import (
    MEMORY_FIGURE_DEVIATION,
    MEMORY_MARGIN,
    SAFE_RISK,
    SURPRISED_MEMORY_WEIGHT,
)
from tuner.search.incremental_gp import IncrementalGP, SingleArray
from tuner.search.observations import Observation, Observations, memory_covariance
from tuner.search.reduced import ReducedSize


class MemoryPosterior:
    """Posterior of the memory of every candidate of a pool."""

    pool: CandidatePool
    ruled_out: BoolArray
    """Candidates that need at least as much as one that ran out of memory."""
    _calibration: Calibration
    _features: Features
    _group: IntArray
    _memory: IncrementalGP
    _weighed: Observations
    _margins: list[float]
    _memory_common: float = 1.0

    def out_of_memory(self) -> FloatArray:
        """Return the probability that each candidate runs out of memory."""
        beyond, deviation = self._overfull()
        chance = below(beyond / deviation)
        found: FloatArray = np.where(self.ruled_out, 1.0, chance)
        return found

    def reduced_out_of_memory(self, jobs: Sequence[tuple[int, ReducedSize]]) -> FloatArray:
        """Return the probability that each job, of a candidate at a reduced size, runs out of memory."""
        beyond, deviation = self._overfull()
        candidates = np.array([candidate for candidate, _ in jobs], dtype=np.int64)
        needs = np.array([size.need(self._calibration.site) for _, size in jobs])
        return below((beyond[candidates] + needs - self._need[candidates]) / deviation[candidates])

    def least_need(self) -> tuple[int, float]:
        """Return the candidate that exceeds its GPU's memory least, and its expected need relative to that memory."""
        beyond, _ = self._overfull()
        candidate = int(np.argmin(beyond))
        return candidate, math.exp(beyond[candidate])

    def _overfull(self) -> tuple[FloatArray, FloatArray]:
        """Return mean and deviation of the logarithm of each candidate's need over the memory of its GPU."""
        mean, variance = self._memory_of(self._memory.whitened)
        beyond = self._need - self.pool.room + MEMORY_MARGIN[0] + (mean * self._memory_deviation)[self._group]
        return beyond, (np.sqrt(variance) * self._memory_deviation)[self._group]

    def _weigh(self) -> None:
        site, parts = self._calibration.site, self.pool.parts
        self._need = np.log(np.concatenate([worst_need(part, site).total for part in chunked(parts)]))
        deviation = np.concatenate(
            [np.full(len(part.tp), own_memory_deviation(part, self._calibration)) for part in parts]
        )
        first = np.zeros(len(self._features), dtype=np.int64)
        first[self._group] = np.arange(len(self._group))
        self._memory_deviation: FloatArray = deviation[first]

    def _unexpectedly_full(self, seen: Observation) -> bool:
        """Increase the weight of the shared residual after a job that was considered safe ran out of memory."""
        if seen.reduced is not None or seen.fits is not False or self._memory_common > 1:
            return False
        if self.out_of_memory()[seen.candidate] > SAFE_RISK:
            return False
        self._memory_common = SURPRISED_MEMORY_WEIGHT
        return True

    def _take_memory(self, seen: Observation, features: Features) -> None:
        """Add a job's memory figure, and whether it fitted, by moment matching."""
        columns, row = self.pool.at(seen.candidate)
        deviation = float(self._memory_deviation[self._group[seen.candidate]])
        need = float(self._need[seen.candidate])
        if seen.reduced is not None:
            need = seen.reduced.size.need(self._calibration.site)
        if not seen.fits:
            if seen.reduced is None:  # sharded states are larger at a reduced size
                self._rule_out(columns, row, seen.candidate)
        elif seen.memory is not None:
            before = self._memory_across(features, 0.0)
            self._weigh_in(
                features,
                margin=0.0,
                before=before,
                value=(math.log(seen.memory) - need) / deviation,
                noise=(MEMORY_FIGURE_DEVIATION / deviation) ** 2,
            )
        if seen.least_memory is not None:
            self._weigh_side(features, margin=0.0, edge=(math.log(seen.least_memory) - need) / deviation, above=True)
        self._weigh_limit(seen.candidate, features, need, fits=bool(seen.fits))

    def _weigh_limit(self, candidate: int, features: Features, need: float, *, fits: bool) -> None:
        """Observe that a job's expected need, in logarithms of bytes, is less or more than the memory of its GPU."""
        deviation = float(self._memory_deviation[self._group[candidate]])
        edge = (float(self.pool.room[candidate]) - MEMORY_MARGIN[0] - need) / deviation
        self._weigh_side(features, margin=MEMORY_MARGIN[1] / deviation, edge=edge, above=not fits)

    def _forget_memory(self, rows: int) -> None:
        """Remove all but the first observations of memory."""
        self._memory.truncate(rows)
        self._weighed.truncate(rows)
        del self._margins[rows:]

    def _weigh_side(self, features: Features, *, margin: float, edge: float, above: bool) -> None:
        """Observe that a job's need, with a margin relative to the memory of its GPU, is above or below an edge."""
        before = self._memory_across(features, margin)
        solved = self._memory.solved(before)
        mean = float(solved @ self._memory.carried[:, 0])
        variance = max(self._memory_prior + margin**2 - float(solved @ solved), 1e-6)
        found = truncated(mean, variance, edge, above=above)
        if found is not None:
            value, noise = found
            self._weigh_in(features, margin=margin, before=before, value=value, noise=noise)

    @property
    def _memory_prior(self) -> float:
        """Variance of a memory residual, relative to its initial one."""
        return (self._memory_common + 2) / 3

    def _memory_across(self, features: Features, margin: float) -> FloatArray:
        """Return the covariance of an observation of memory with the earlier ones."""
        together: FloatArray = memory_covariance(features, self._weighed.features, self._memory_common)[0]
        return together + margin * np.array(self._margins)

    def _weigh_in(self, features: Features, *, margin: float, before: FloatArray, value: float, noise: float) -> None:
        """Add an observation of a job's need, with a margin relative to the memory of its GPU."""
        across = memory_covariance(features, self._features, self._memory_common)[0]
        across += margin * MEMORY_MARGIN[1] / self._memory_deviation
        own = self._memory_prior + margin**2 + noise
        self._memory.add(across.astype(np.float32), before, own, np.array([value]))
        self._weighed.add(features, 0)
        self._margins.append(margin)

    def _rule_out(self, columns: Columns, row: int, candidate: int) -> None:
        """Rule out candidates that need at least as much: with a larger micro batch, less sharding or less
        recompute."""
        start = candidate - row
        same = np.ones(len(columns.tp), dtype=np.bool_)
        for name in ("tp", "pp", "cp", "vpp", "partition", "heads", "hidden", "layers", "global_batch", *EXPERT_AXES):
            values = columns.arrays[name]
            same &= values == values[row]
        for name in ("micro_batch", "hsdp"):
            same &= columns.arrays[name] >= columns.arrays[name][row]
        for name in ("zero", "dp", "sequence_parallel", "recompute", "offload"):
            values = columns.arrays[name]
            same &= values <= values[row]
        self.ruled_out[start : start + len(same)] |= same

    def _memory_of(self, whitened: SingleArray) -> tuple[FloatArray, FloatArray]:
        values = self._memory.carried[:, 0].astype(np.float32)
        mean = (values @ whitened).astype(np.float64)
        own = self._memory_prior + (MEMORY_MARGIN[1] / self._memory_deviation) ** 2
        variance = np.maximum(own - np.einsum("ij,ij->j", whitened, whitened, dtype=np.float64), 1e-4)
        return mean, variance


def chunked(parts: Sequence[Columns]) -> list[Columns]:
    """Return the parts in chunks whose intermediate arrays stay in the processor's cache."""
    return [part.rows(slice(start, start + CHUNK)) for part in parts for start in range(0, len(part.tp), CHUNK)]
