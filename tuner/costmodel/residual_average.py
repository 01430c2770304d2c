"""Average of calibrations over unknown hyperparameters: the residual's scale and length, the noise of a row, and how
far the links' factors may be from 1.

Each combination is one Gaussian fit of factors and residual,

    y = slopes x factors + residual + noise,

and counts by the marginal likelihood of the rows at hand (Rasmussen and Williams 2006, "Gaussian Processes for Machine
Learning", section 5.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

import numpy as np

from tuner.core.columns import FloatArray, IntArray
from tuner.costmodel.calibration_constants import LINK_WIDTHS, NOISE_RATIOS, RESIDUAL_LENGTHS, RESIDUAL_SCALES
from tuner.costmodel.constants import NOISE_DEVIATION
from tuner.costmodel.residual_features import UNSEEN, Features, Likeness
from tuner.costmodel.site_factors import TIME_FACTORS

MIN_WEIGHT: Final = 1e-3
"""Weight relative to the most likely fit below which a fit is left out."""

LINKS: Final = np.isin(TIME_FACTORS, ("inner_link", "network", "pipeline_link"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualFit:
    """Factors and residual of measured rows under one scale, length and noise."""

    scale: float
    """Ratio of the residual's standard deviations to those assumed."""
    length: float
    """Doublings over which the residual fades."""
    noise: float
    """Ratio of the standard deviation of a row's noise to that assumed."""
    weight: float
    """Share in the average; before the average, the logarithm of the marginal likelihood."""
    factors: FloatArray
    """Posterior mean of the logarithms of the factors."""
    spread: FloatArray
    """Their covariance."""
    basis: FloatArray
    """The basis of the measured rows in which residual and noise are independent."""
    deviations: FloatArray
    """Standard deviations of both together along this basis."""
    slopes: FloatArray
    """The rows' slopes there, over these deviations."""
    left: FloatArray
    """The same of what the factors leave of the rows."""

    def weights_of(self, residual: FloatArray) -> FloatArray:
        """Return the weights of the measured rows in the residual of another, by its covariance with them at scale 1,
        where this is left of their seconds."""
        weights: FloatArray = self.basis.T @ (self.basis @ residual * (self.scale / self.deviations) ** 2)
        return weights

    def prediction(self, slopes: FloatArray, across: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance of the logarithm of each row's seconds over those of the model.

        `across` is the basis times the covariance of the measured rows with these at scale 1.
        """
        solved = across * (self.scale**2 / self.deviations)[:, None]
        apart = slopes - solved.T @ self.slopes
        prior = self.scale**2 * (UNSEEN**2 - NOISE_DEVIATION**2) + (self.noise * NOISE_DEVIATION) ** 2
        variance = prior - (solved**2).sum(axis=0) + ((apart @ self.spread) * apart).sum(axis=1)
        return slopes @ self.factors + solved.T @ self.left, variance


Basis = dict[float, tuple[FloatArray, FloatArray]]
"""By length, a basis in which residual and noise of measured rows are independent, and the variances of the residual
along it, in those of the noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bases:
    """The bases of measured rows, and of the distinct ones among them.

    Rows that the residual cannot tell apart, such as repeats of a run, count as one for the likelihood of a scale, a
    length or a noise: a table that has a row twice knows no more of these.
    """

    every: Basis
    distinct: Basis
    group: IntArray
    """Which distinct row each row is."""


def bases_of(known: Features, noise: FloatArray) -> Bases:
    """Return the bases of measured rows; `noise` is the variance of each row by itself."""
    columns = (known.smooth, known.cliff, known.kernel, known.period)
    kinds = zip(*(column.tolist() for column in columns), strict=True)
    numbers: dict[str, int] = {}
    group = np.array([numbers.setdefault(repr(kind), len(numbers)) for kind in kinds])
    first = np.unique(group, return_index=True)[1]
    likeness = Likeness.of(known, known)
    covariances = {length: likeness.covariance(length) for length in RESIDUAL_LENGTHS}
    every = _basis(covariances, noise)
    if len(first) == len(group):
        return Bases(every=every, distinct=every, group=group)
    among = np.ix_(first, first)
    distinct = _basis({length: whole[among] for length, whole in covariances.items()}, _means(noise, group))
    return Bases(every=every, distinct=distinct, group=group)


def _means(values: FloatArray, group: IntArray) -> FloatArray:
    """Return the mean of the rows of each group, in whatever order they come."""
    sums = np.zeros((int(group.max()) + 1, *values.shape[1:]))
    np.add.at(sums, group, values)
    means: FloatArray = (sums.T / np.bincount(group)).T
    return means


def _basis(covariances: Mapping[float, FloatArray], noise: FloatArray) -> Basis:
    single, basis = np.sqrt(noise), {}
    for length, covariance in covariances.items():
        values, vectors = np.linalg.eigh(covariance / np.outer(single, single))
        basis[length] = vectors.T / single, np.maximum(values, 0.0)
    return basis


def averaged_fits(bases: Bases, slopes: FloatArray, measured: FloatArray, prior: FloatArray) -> list[ResidualFit]:
    """Return the fits that count, with their weights, which add up to 1.

    `measured` is the logarithm of each row's seconds over those of the model with all factors 1; `prior` has the
    deviations of the factors' logarithms.
    """
    fits = list(_fits(bases.every, slopes, measured, prior))
    likelihoods = fits
    if bases.distinct is not bases.every:
        means = _means(slopes, bases.group), _means(measured, bases.group)
        likelihoods = list(_fits(bases.distinct, *means, prior))
    evidence = np.array([fit.weight for fit in likelihoods])
    weights = np.exp(evidence - evidence.max())
    weights = np.where(weights < MIN_WEIGHT, 0.0, weights)
    weights /= weights.sum()
    return [replace(fit, weight=float(weight)) for fit, weight in zip(fits, weights, strict=True) if weight]


def mean_factors(fits: Sequence[ResidualFit]) -> tuple[FloatArray, FloatArray]:
    """Return mean and covariance of the logarithms of the factors over all fits."""
    mean: FloatArray = sum((fit.weight * fit.factors for fit in fits), start=np.zeros_like(fits[0].factors))
    spread = np.zeros_like(fits[0].spread)
    for fit in fits:
        away = fit.factors - mean
        spread = spread + fit.weight * (fit.spread + np.outer(away, away))
    return mean, spread


def _fits(bases: Basis, slopes: FloatArray, measured: FloatArray, prior: FloatArray) -> Iterator[ResidualFit]:
    precisions = [(np.where(LINKS, width, 1.0) * prior) ** -2.0 for width in LINK_WIDTHS]
    chances = list(LINK_WIDTHS.values())
    for length, (basis, values) in bases.items():
        rotated = basis @ np.column_stack([slopes, measured])
        for scale, ratio in product(RESIDUAL_SCALES, NOISE_RATIOS):
            deviations = np.sqrt(scale**2 * values + ratio**2)
            whitened = rotated / deviations[:, None]
            ahead, target = whitened[:, :-1], whitened[:, -1]
            for precision, chance in zip(precisions, chances, strict=True):
                inverse = np.diag(precision) + ahead.T @ ahead
                spread = np.linalg.inv(inverse)
                factors = spread @ (ahead.T @ target)
                left = target - ahead @ factors
                misfit = left @ left + precision @ factors**2
                volume = np.linalg.slogdet(inverse)[1] - np.log(precision).sum()
                yield ResidualFit(
                    scale=scale,
                    length=length,
                    noise=ratio,
                    weight=float(np.log(chance) - 0.5 * (misfit + volume) - np.log(deviations).sum()),
                    factors=factors,
                    spread=spread,
                    basis=basis,
                    deviations=deviations,
                    slopes=ahead,
                    left=left,
                )
