"""The size of the model's error and of the noise of runs, by the likelihood of a study's own measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from tuner.core.columns import FloatArray
from tuner.costmodel.residual_features import Features, Likeness
from tuner.search.constants import (
    FACTOR_CHANCES,
    LENGTH_CHANCES,
    LEVEL_CHANCES,
    NOISE_CHANCES,
    OWN_CHANCES,
    SHARE_STEP,
    TRUST_STEP,
    UNSURE_CHANCES,
)
from tuner.search.extrapolation import gap_covariance
from tuner.search.linearized import LinearizedModel
from tuner.search.observations import Observation, Trust
from tuner.search.time_prior import FACTORS, TimePrior, factor_deviations


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Measured runs, and what the model predicted for them before any run."""

    features: Features
    slopes: FloatArray
    """Change of each run's logarithm with that of each site factor, and with the error of each uncertain term."""
    residual: FloatArray
    """Logarithm of measured over expected seconds."""
    own: FloatArray
    """Covariance of what runs of one topology share with no other, as assumed before any job."""
    gaps: FloatArray
    """Covariance of the gaps of reduced sizes."""
    variances: FloatArray
    """Variance of each run by itself, beyond the usual noise."""

    @classmethod
    def of(
        cls, runs: Sequence[Observation], variances: FloatArray, *, model: LinearizedModel, prior: TimePrior
    ) -> Record:
        """Return the record of measured runs."""
        candidates = np.array([seen.candidate for seen in runs])
        sizes = [None if seen.reduced is None else seen.reduced.size for seen in runs]
        found = [model.residual(seen) for seen in runs]
        slopes, residual = np.stack([own for _, own, _ in found]), np.array([own for own, _, _ in found])
        return cls(
            features=model.features.rows(model.group[candidates]).during([seen.period for seen in runs]),
            slopes=slopes[:, :FACTORS],
            residual=residual - slopes @ (prior.mean - model.reference),
            own=prior.own / prior.trust.own**2 * np.equal.outer(candidates, candidates),
            gaps=gap_covariance(sizes, sizes),
            variances=variances,
        )

    def likelihoods(self, trusts: Sequence[Trust]) -> FloatArray:
        """Return the log likelihood of the record under each of these."""
        likeness = Likeness.of(self.features, self.features)
        near = {length: likeness.near(length) for length in {length for trust in trusts for length, _ in trust.lengths}}
        steered = self.slopes * factor_deviations()
        factors = steered @ steered.T
        rows = len(self.residual)
        together = np.zeros((len(trusts), rows + 1, rows + 1))
        for case, trust in zip(together, trusts, strict=True):
            fading = sum(share * near[length] for length, share in trust.lengths)
            case[:rows, :rows] = trust.unsure**2 * (likeness.shared + fading) + trust.own**2 * self.own + self.gaps
            case[:rows, :rows] += trust.factors**2 * factors + trust.level**2
            case[:rows, :rows] += np.diag(self.variances + trust.repeat**2)
        together[:, rows, :rows] = self.residual
        together[:, rows, rows] = _LARGE
        roots = np.linalg.cholesky(together)  # its last row is the inverse of the others' root times the residual
        size = np.log(np.diagonal(roots, axis1=1, axis2=2)[:, :rows]).sum(axis=1)
        found: FloatArray = -0.5 * (roots[:, rows, :rows] ** 2).sum(axis=1) - size
        return found


_ROUNDING: Final = 1e-9
"""Largest rounding error of a ratio of 1."""

_LARGE: Final = 1e12
"""More than the square of any whitened residual."""


Sizes = tuple[tuple[float, float], ...]
"""Ratios of the size of the model's error to its mean, each with its probability."""


def averaged(record: Record, assumed: Trust) -> tuple[Trust, Sizes]:
    """Return the scale of the model's error and of the noise, a mean weighted by likelihood, and the sizes around it.

    Noise and level are those of the likeliest case, since a mean would doubt every run and every estimate a little.
    """
    chances = (NOISE_CHANCES, UNSURE_CHANCES, OWN_CHANCES, FACTOR_CHANCES, LENGTH_CHANCES, LEVEL_CHANCES)
    trusts = [
        Trust(
            repeat=assumed.repeat * noise,
            unsure=assumed.unsure * unsure,
            own=own,
            factors=assumed.factors * factors,
            lengths=((length, 1.0),),
            level=level,
        )
        for noise, unsure, own, factors, length, level in product(*chances)
    ]
    weights = np.array([math.prod(case) for case in product(*(case.values() for case in chances))])
    if len(record.residual):
        found = record.likelihoods(trusts)
        weights = weights * np.exp(found - found.max())
    weights /= weights.sum()
    noisy = weights.reshape(len(NOISE_CHANCES), -1).sum(axis=1)
    levels = weights.reshape(-1, len(LEVEL_CHANCES)).sum(axis=0)

    def mean(name: str) -> float:
        return math.sqrt(float(weights @ np.square([getattr(trust, name) for trust in trusts])))

    unsure, factors = mean("unsure"), mean("factors")
    shares = np.round(weights.reshape([len(case) for case in chances]).sum(axis=(0, 1, 2, 3, 5)) / SHARE_STEP)
    trust = Trust(
        repeat=assumed.repeat * list(NOISE_CHANCES)[int(np.argmax(noisy))],
        unsure=assumed.unsure * _rounded(unsure / assumed.unsure),
        own=_rounded(mean("own")),
        factors=assumed.factors * _rounded(factors / assumed.factors),
        lengths=tuple(zip(LENGTH_CHANCES, (shares / shares.sum()).tolist(), strict=True)),
        level=list(LEVEL_CHANCES)[int(np.argmax(levels))],
    )
    ratios = [max(each.unsure / unsure, each.factors / factors) for each in trusts]
    return trust, _below_and_above(np.array(ratios), weights)


def _below_and_above(ratios: FloatArray, weights: FloatArray) -> Sizes:
    """Return the root mean squares of the ratios up to 1 and above, each with its weight."""
    above = ratios > 1 + _ROUNDING
    parts = [part for part in (~above, above) if weights[part].sum()]
    return tuple(
        (math.sqrt(float(np.average(ratios[part] ** 2, weights=weights[part]))), float(weights[part].sum()))
        for part in parts
    )


def _rounded(ratio: float) -> float:
    """Return a ratio rounded to steps, because every change repeats all observations."""
    return float(TRUST_STEP ** round(math.log(ratio, TRUST_STEP)))
