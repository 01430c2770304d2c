"""The memory that candidates need: the cost model's need plus a residual, learnt from a study's jobs.

Most of the residual is what the model misjudges of each term of the memory, which topologies share as far as their
memory is made up alike. The rest has a part common to all, one by kernels and recompute, and one that fades with
distance. How large the residual is follows from the figures. How much a cluster's cards can really allocate is
uncertain too: an out-of-memory run needed more than that, a run that fitted needed less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tuner.core.columns import BoolArray, Columns, FloatArray, chunked, chunks
from tuner.core.domain import EXPERT_AXES, MemoryKind
from tuner.core.recompute import FULL
from tuner.costmodel.calibration import Calibration
from tuner.costmodel.constants import SHAPE_LENGTH_SCALE
from tuner.costmodel.estimate import own_memory_deviation
from tuner.costmodel.memory import memory_terms, shown_bytes, worst_need
from tuner.costmodel.normal import below, truncated
from tuner.costmodel.residual_features import Features, joined
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stages import Stages
from tuner.search.candidates import CandidatePool
from tuner.search.constants import (
    MEMORY_FIGURE_DEVIATION,
    MEMORY_MARGIN,
    MEMORY_SCALES,
    MEMORY_TERM_SHARE,
    PARTIAL_FIGURE,
    SAFE_RISK,
    SHOWN_MEMORY_DEVIATION,
    SURPRISED_MEMORY_WEIGHT,
)
from tuner.search.extrapolation import ReducedSize
from tuner.search.incremental_gp import IncrementalGP, SingleArray
from tuner.search.observations import Observation


class _Figure(NamedTuple):
    """A job's memory figure."""

    features: Features
    slopes: FloatArray
    away: float
    """Its logarithm's distance from the expected one."""
    off: float
    """Deviation of the figure by itself."""


class MemoryPosterior:
    """Posterior of the memory of every candidate of a pool."""

    def __init__(self, pool: CandidatePool, calibration: Calibration) -> None:
        self._pool, self._site = pool, calibration.site
        self._features, self._group = pool.groups
        needs, slopes = zip(*(_needs(part, self._site) for part in chunked(pool.parts)), strict=True)
        self._need = np.concatenate(needs)
        self._terms = tuple(dict.fromkeys(name for each in slopes for name in each))
        self._slopes = np.concatenate([self._in_columns(each) for each in slopes])
        """How the residual of each candidate follows the error of each term, in standard deviations."""
        deviation = np.concatenate(
            [np.full(len(part.tp), own_memory_deviation(part, calibration)) for part in pool.parts]
        )
        first = np.zeros(len(self._features), dtype=np.int64)
        first[self._group] = np.arange(len(self._group))
        self._assumed: FloatArray = deviation[first]
        """Of the logarithm of the need before any job, by group."""
        self._seen: list[Observation] = []
        self._begin(common=1.0, scale=1.0)

    def _begin(self, common: float, scale: float) -> None:
        """Learn all jobs anew, with this weight of what all candidates share of the residual, and its size."""
        self._common, self._scale = common, scale
        self._deviation = self._assumed * scale
        self._figures: list[_Figure] = []
        self._gp = IncrementalGP(len(self._features), len(self._terms) + 1)
        self._observed = self._features.rows(slice(0))
        self._margins: list[float] = []
        self.ruled_out: BoolArray = np.zeros(len(self._group), dtype=np.bool_)
        """Candidates that need at least as much as one that ran out of memory."""
        for seen in self._seen:
            self._take(seen)

    def learn(self, seen: Observation) -> None:
        """Learn a job's memory figure, and whether it fitted.

        After a job that was considered safe ran out of memory, the shared residual has more weight. The residual is as
        large as the figures make it most likely to be.
        """
        if seen.fits is None:
            return
        surprising = seen.reduced is None and not seen.fits and self._common == 1
        self._seen.append(seen)
        if surprising and self.out_of_memory()[seen.candidate] <= SAFE_RISK:
            self._begin(SURPRISED_MEMORY_WEIGHT, self._scale)
        else:
            self._take(seen)
        if (scale := self._likeliest_scale()) != self._scale:
            self._begin(self._common, scale)

    def imagine_full(self, candidate: int) -> None:
        """Treat a candidate as out of memory."""
        features, slopes = self._features_of(candidate), self._slopes[candidate]
        self._weigh_limit(candidate, features, slopes, float(self._need[candidate]), fits=False)

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
        deviation = self._deviation[self._group]
        return self._need - self._pool.room + MEMORY_MARGIN[0] + mean * deviation, np.sqrt(variance) * deviation

    def _take(self, seen: Observation) -> None:
        """Add a job's memory figure, and whether it fitted, by moment matching."""
        features, deviation = self._features_of(seen.candidate), float(self._deviation[self._group[seen.candidate]])
        need, slopes = float(self._need[seen.candidate]), self._slopes[seen.candidate]
        if seen.reduced is not None:
            need, slopes = self._reduced(seen.reduced.size)
        if not seen.fits:
            if seen.reduced is None:  # sharded states are larger at a reduced size
                self._rule_out(seen.candidate)
        elif seen.memory is not None:
            expected, off = need, MEMORY_FIGURE_DEVIATION
            if seen.memory_kind is not None:  # what an allocator caches counts as needed
                expected, off = min(need, self._shown(seen, seen.memory_kind)), SHOWN_MEMORY_DEVIATION
            away = math.log(seen.memory) - expected
            if seen.memory_kind is not None and away < math.log(PARTIAL_FIGURE):
                self._weigh_side(features, slopes, margin=0.0, edge=away / deviation, above=True)
            else:
                before, noise = self._before(features, 0.0), (off / deviation) ** 2
                self._weigh_in(features, slopes, margin=0.0, before=before, value=away / deviation, noise=noise)
                self._figures.append(_Figure(features, slopes, away, off))
        self._weigh_limit(seen.candidate, features, slopes, need, fits=bool(seen.fits))

    def _reduced(self, size: ReducedSize) -> tuple[float, FloatArray]:
        """Return the logarithm of the bytes that a job at a reduced size needs, and its slopes."""
        needs, slopes = _needs(size.small, self._site)
        fullest = int(np.argmax(needs))
        return float(needs[fullest]), self._in_columns(slopes)[fullest]

    def _in_columns(self, slopes: Mapping[str, SingleArray]) -> SingleArray:
        """Return the slopes of rows, with one column for each term of the pool."""
        none = np.zeros_like(slopes["weights"])
        return np.stack([slopes.get(name, none) for name in self._terms], axis=1)

    def _likeliest_scale(self) -> float:
        """Return the size of the residual that makes the figures most likely."""
        if not self._figures:
            return self._scale
        features = joined([each.features for each in self._figures])
        slopes = np.stack([each.slopes for each in self._figures])
        away, noise = np.array([each.away for each in self._figures]), np.diag([each.off**2 for each in self._figures])
        shared = self._shared(features, features) + slopes @ slopes.T

        def likelihood(scale: float) -> float:
            together = (scale * float(self._assumed.max())) ** 2 * shared + noise
            return float(-away @ np.linalg.solve(together, away) - np.linalg.slogdet(together)[1])

        return max(MEMORY_SCALES, key=likelihood)

    def _shown(self, seen: Observation, kind: MemoryKind) -> float:
        """Return the logarithm of the bytes that a tool of this kind is expected to show of a job."""
        columns, row = self._pool.at(seen.candidate)
        columns = columns.rows(np.array([row])) if seen.reduced is None else seen.reduced.size.small
        return float(np.log(shown_bytes(columns, self._site, kind)).max())

    def _weigh_limit(self, candidate: int, features: Features, slopes: FloatArray, need: float, *, fits: bool) -> None:
        """Observe that a job's expected need, in logarithms of bytes, is less or more than the memory of its GPU."""
        deviation = float(self._deviation[self._group[candidate]])
        edge = (float(self._pool.room[candidate]) - MEMORY_MARGIN[0] - need) / deviation
        self._weigh_side(features, slopes, margin=MEMORY_MARGIN[1] / deviation, edge=edge, above=not fits)

    def _weigh_side(self, features: Features, slopes: FloatArray, *, margin: float, edge: float, above: bool) -> None:
        """Observe that a job's need, with a margin relative to the memory of its GPU, is above or below an edge."""
        before = self._before(features, margin)
        mean, variance = self._gp.predicted(before, self._prior + margin**2, slopes, *self._coefficients)
        found = truncated(mean, max(variance, 1e-6), edge, above=above)
        if found is not None:
            value, noise = found
            self._weigh_in(features, slopes, margin=margin, before=before, value=value, noise=noise)

    def _features_of(self, candidate: int) -> Features:
        return self._features.rows(self._group[[candidate]])

    @property
    def _prior(self) -> float:
        """Variance of a memory residual, relative to its initial one, without that of its terms."""
        return (1 - MEMORY_TERM_SHARE) * (self._common + 2) / 3

    @property
    def _coefficients(self) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance of the errors of terms, in standard deviations."""
        return self._gp.coefficients(np.ones(len(self._terms)))

    def _before(self, features: Features, margin: float) -> FloatArray:
        """Return the covariance of an observation of memory with the earlier ones."""
        together: FloatArray = self._shared(features, self._observed)[0] + margin * np.array(self._margins)
        return together

    def _weigh_in(
        self, features: Features, slopes: FloatArray, *, margin: float, before: FloatArray, value: float, noise: float
    ) -> None:
        """Add an observation of a job's need, with a margin relative to the memory of its GPU."""
        self._gp.add(before, self._prior + margin**2 + noise, np.append(slopes, value))
        self._observed = joined([self._observed, features])
        self._margins.append(margin)

    def _across(self, row: int) -> FloatArray:
        """Return the covariance of an observation of memory with each group."""
        across: FloatArray = self._shared(self._observed.rows(slice(row, row + 1)), self._features)[0]
        return across + self._margins[row] * MEMORY_MARGIN[1] / self._deviation

    def _shared(self, left: Features, right: Features) -> FloatArray:
        """Return the covariance of what is not a term of the residuals of two lists."""
        return (1 - MEMORY_TERM_SHARE) * memory_covariance(left, right, self._common)

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
        """Return mean and variance of each candidate's residual, relative to its deviation, with the margin's."""
        whitened, carried = self._gp.whitened(self._across), self._gp.carried
        shift, spread = self._coefficients
        values = (carried[:, -1] - carried[:, :-1] @ shift).astype(np.float32)
        mean = (values @ whitened).astype(np.float64)[self._group] + self._slopes @ shift
        own = self._prior + (MEMORY_MARGIN[1] / self._deviation) ** 2
        own = own - np.einsum("ij,ij->j", whitened, whitened, dtype=np.float64)
        known, spread = whitened.T @ carried[:, :-1].astype(np.float32), spread.astype(np.float32)
        variance = own[self._group]
        for rows in chunks(len(variance)):
            left = self._slopes[rows] - known[self._group[rows]]
            variance[rows] += np.einsum("ij,ij->i", left @ spread, left)
        return mean, np.maximum(variance, 1e-4)


def _needs(columns: Columns, site: SiteFactors) -> tuple[FloatArray, dict[str, SingleArray]]:
    """Return the logarithm of each row's need, and how its residual follows the error of each term on its stage.

    All terms are equally uncertain; together they have `MEMORY_TERM_SHARE` of the residual's variance.
    """
    worst = worst_need(columns, site)
    terms = memory_terms(Stages(columns, worst.stage), site)
    size = np.sqrt(sum((term**2 for term in terms.values()), start=np.zeros_like(worst.total)) / MEMORY_TERM_SHARE)
    return np.log(worst.total), {name: (term / size).astype(np.float32) for name, term in terms.items()}


def memory_covariance(left: Features, right: Features, common: float = 1.0) -> FloatArray:
    """Return how alike two lists are in what is not a term of their memory residuals, in units of its first variance.

    `common` is the weight of what all candidates share; that of kernels and that of distance are 1.
    """
    apart = ((left.smooth[:, None, :] - right.smooth[None, :, :]) / SHAPE_LENGTH_SCALE) ** 2
    near = np.exp(-0.5 * apart.sum(axis=2))
    together: FloatArray = (common + np.equal.outer(left.kernel, right.kernel) + near) / 3
    return together
