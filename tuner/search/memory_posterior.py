"""The memory that candidates need: the cost model's need plus a residual of three parts, learnt from a study's jobs.

The residual has a part common to all, one by kernels and recompute, and one that fades with distance. How much a
cluster's cards can really allocate is uncertain too: an out-of-memory run needed more than that, a run that fitted
needed less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tuner.core.columns import BoolArray, FloatArray, chunked
from tuner.core.domain import EXPERT_AXES, MemoryKind
from tuner.core.recompute import FULL
from tuner.costmodel.calibration import Calibration
from tuner.costmodel.constants import SHAPE_LENGTH_SCALE
from tuner.costmodel.estimate import own_memory_deviation
from tuner.costmodel.memory import shown_bytes, worst_need
from tuner.costmodel.normal import below, truncated
from tuner.costmodel.residual_features import Features, joined
from tuner.search.candidates import CandidatePool
from tuner.search.constants import (
    MEMORY_FIGURE_DEVIATION,
    MEMORY_MARGIN,
    PARTIAL_FIGURE,
    SAFE_RISK,
    SHOWN_MEMORY_DEVIATION,
    SURPRISED_MEMORY_WEIGHT,
)
from tuner.search.extrapolation import ReducedSize
from tuner.search.incremental_gp import IncrementalGP
from tuner.search.observations import Observation


class MemoryPosterior:
    """Posterior of the memory of every candidate of a pool."""

    def __init__(self, pool: CandidatePool, calibration: Calibration) -> None:
        self._pool, self._site = pool, calibration.site
        self._features, self._group = pool.groups
        self._need = np.log(np.concatenate([worst_need(part, self._site).total for part in chunked(pool.parts)]))
        deviation = np.concatenate(
            [np.full(len(part.tp), own_memory_deviation(part, calibration)) for part in pool.parts]
        )
        first = np.zeros(len(self._features), dtype=np.int64)
        first[self._group] = np.arange(len(self._group))
        self._deviation: FloatArray = deviation[first]
        """Of the logarithm of the need, by group."""
        self._seen: list[Observation] = []
        self._begin(common=1.0)

    def _begin(self, common: float) -> None:
        """Forget all jobs; `common` is the weight of what all candidates share of the residual."""
        self._common = common
        self._gp = IncrementalGP(len(self._features), 1, self._across)
        self._observed = self._features.rows(slice(0))
        self._margins: list[float] = []
        self.ruled_out: BoolArray = np.zeros(len(self._group), dtype=np.bool_)
        """Candidates that need at least as much as one that ran out of memory."""

    def learn(self, seen: Observation) -> None:
        """Learn a job's memory figure, and whether it fitted.

        After a job that was considered safe ran out of memory, the shared residual has more weight.
        """
        if seen.fits is None:
            return
        surprising = seen.reduced is None and not seen.fits and self._common == 1
        self._seen.append(seen)
        if surprising and self.out_of_memory()[seen.candidate] <= SAFE_RISK:
            self._begin(SURPRISED_MEMORY_WEIGHT)
            for earlier in self._seen:
                self._take(earlier)
        else:
            self._take(seen)

    def imagine_full(self, candidate: int) -> None:
        """Treat a candidate as out of memory."""
        self._weigh_limit(candidate, self._features_of(candidate), float(self._need[candidate]), fits=False)

    @property
    def rows(self) -> int:
        """Observations of memory."""
        return len(self._margins)

    def truncate(self, rows: int) -> None:
        """Remove all but the first observations."""
        self._gp.truncate(rows)
        self._observed = self._observed.rows(slice(rows))
        del self._margins[rows:]

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
        needs = np.array([size.need(self._site) for _, size in jobs])
        return below((beyond[candidates] + needs - self._need[candidates]) / deviation[candidates])

    def least_need(self) -> tuple[int, float]:
        """Return the candidate that exceeds its GPU's memory least, and its expected need relative to that memory."""
        beyond, _ = self._overfull()
        candidate = int(np.argmin(beyond))
        return candidate, math.exp(beyond[candidate])

    def _overfull(self) -> tuple[FloatArray, FloatArray]:
        """Return mean and deviation of the logarithm of each candidate's need over the memory of its GPU."""
        mean, variance = self._residual()
        beyond = self._need - self._pool.room + MEMORY_MARGIN[0] + (mean * self._deviation)[self._group]
        return beyond, (np.sqrt(variance) * self._deviation)[self._group]

    def _take(self, seen: Observation) -> None:
        """Add a job's memory figure, and whether it fitted, by moment matching."""
        features, deviation = self._features_of(seen.candidate), float(self._deviation[self._group[seen.candidate]])
        need = float(self._need[seen.candidate])
        if seen.reduced is not None:
            need = seen.reduced.size.need(self._site)
        if not seen.fits:
            if seen.reduced is None:  # sharded states are larger at a reduced size
                self._rule_out(seen.candidate)
        elif seen.memory is not None:
            expected, off = need, MEMORY_FIGURE_DEVIATION
            if seen.memory_kind is not None:  # what an allocator caches counts as needed
                expected, off = min(need, self._shown(seen, seen.memory_kind)), SHOWN_MEMORY_DEVIATION
            away = math.log(seen.memory) - expected
            if seen.memory_kind is not None and away < math.log(PARTIAL_FIGURE):
                self._weigh_side(features, margin=0.0, edge=away / deviation, above=True)
            else:
                before, noise = self._before(features, 0.0), (off / deviation) ** 2
                self._weigh_in(features, margin=0.0, before=before, value=away / deviation, noise=noise)
        self._weigh_limit(seen.candidate, features, need, fits=bool(seen.fits))

    def _shown(self, seen: Observation, kind: MemoryKind) -> float:
        """Return the logarithm of the bytes that a tool of this kind is expected to show of a job."""
        columns, row = self._pool.at(seen.candidate)
        columns = columns.rows(np.array([row])) if seen.reduced is None else seen.reduced.size.small
        return float(np.log(shown_bytes(columns, self._site, kind)).max())

    def _weigh_limit(self, candidate: int, features: Features, need: float, *, fits: bool) -> None:
        """Observe that a job's expected need, in logarithms of bytes, is less or more than the memory of its GPU."""
        deviation = float(self._deviation[self._group[candidate]])
        edge = (float(self._pool.room[candidate]) - MEMORY_MARGIN[0] - need) / deviation
        self._weigh_side(features, margin=MEMORY_MARGIN[1] / deviation, edge=edge, above=not fits)

    def _weigh_side(self, features: Features, *, margin: float, edge: float, above: bool) -> None:
        """Observe that a job's need, with a margin relative to the memory of its GPU, is above or below an edge."""
        before = self._before(features, margin)
        solved = self._gp.solved(before)
        mean = float(solved @ self._gp.carried[:, 0])
        variance = max(self._prior + margin**2 - float(solved @ solved), 1e-6)
        found = truncated(mean, variance, edge, above=above)
        if found is not None:
            value, noise = found
            self._weigh_in(features, margin=margin, before=before, value=value, noise=noise)

    def _features_of(self, candidate: int) -> Features:
        return self._features.rows(self._group[[candidate]])

    @property
    def _prior(self) -> float:
        """Variance of a memory residual, relative to its initial one."""
        return (self._common + 2) / 3

    def _before(self, features: Features, margin: float) -> FloatArray:
        """Return the covariance of an observation of memory with the earlier ones."""
        together: FloatArray = memory_covariance(features, self._observed, self._common)[0]
        return together + margin * np.array(self._margins)

    def _weigh_in(self, features: Features, *, margin: float, before: FloatArray, value: float, noise: float) -> None:
        """Add an observation of a job's need, with a margin relative to the memory of its GPU."""
        self._gp.add(before, self._prior + margin**2 + noise, np.array([value]))
        self._observed = joined([self._observed, features])
        self._margins.append(margin)

    def _across(self, row: int) -> FloatArray:
        """Return the covariance of an observation of memory with each group."""
        across: FloatArray = memory_covariance(self._observed.rows(slice(row, row + 1)), self._features, self._common)[
            0
        ]
        return across + self._margins[row] * MEMORY_MARGIN[1] / self._deviation

    def _rule_out(self, candidate: int) -> None:
        """Rule out candidates that need at least as much: with a larger micro batch, less sharding or less
        recompute."""
        columns, row = self._pool.at(candidate)
        start = candidate - row
        same = np.ones(len(columns.tp), dtype=np.bool_)
        for name in ("tp", "pp", "cp", "vpp", "partition", "heads", "hidden", "layers", "global_batch", *EXPERT_AXES):
            values = columns.arrays[name]
            same &= values == values[row]
        for name in ("micro_batch", "hsdp"):
            same &= columns.arrays[name] >= columns.arrays[name][row]
        for name in ("zero", "dp", "sequence_parallel", "granularity", "offload"):
            values = getattr(columns, name)
            same &= values <= values[row]
        same &= (columns.modules & ~columns.modules[row] == 0) | (columns.granularity[row] == FULL)
        self.ruled_out[start : start + len(same)] |= same

    def _residual(self) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance of each group's residual, relative to its deviation, with the margin's."""
        whitened = self._gp.whitened
        values = self._gp.carried[:, 0].astype(np.float32)
        mean = (values @ whitened).astype(np.float64)
        own = self._prior + (MEMORY_MARGIN[1] / self._deviation) ** 2
        variance = np.maximum(own - np.einsum("ij,ij->j", whitened, whitened, dtype=np.float64), 1e-4)
        return mean, variance


def memory_covariance(left: Features, right: Features, common: float = 1.0) -> FloatArray:
    """Return the covariance of the memory residuals of two lists, in units of the variance that they have at first.

    `common` is the weight of what all candidates share; that of kernels and that of distance are 1.
    """
    apart = ((left.smooth[:, None, :] - right.smooth[None, :, :]) / SHAPE_LENGTH_SCALE) ** 2
    near = np.exp(-0.5 * apart.sum(axis=2))
    together: FloatArray = (common + np.equal.outer(left.kernel, right.kernel) + near) / 3
    return together
