"""The average over scales, lengths, noise and widths of link priors, compared with the closed form of each fit."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from tests.costmodel.test_residual_arithmetic import features
from tuner.costmodel.calibration import Calibration, prior_deviations
from tuner.costmodel.calibration_constants import LINK_WIDTHS, NOISE_RATIOS, RESIDUAL_LENGTHS, RESIDUAL_SCALES
from tuner.costmodel.constants import NOISE_DEVIATION
from tuner.costmodel.residual_average import LINKS, _means, averaged_fits, bases_of, mean_factors
from tuner.costmodel.residual_features import UNSEEN, Likeness, joined
from tuner.costmodel.site_factors import TIME_FACTORS

KNOWN = joined([features(smooth=0.0), features(smooth=1.5, kernel="l"), features(smooth=3.0, cliff=5.0)])
NEW = joined([features(smooth=0.5), features(smooth=9.0, period="q")])
MEASURED = np.array([0.2, 0.1, -0.05])
NOISE = NOISE_DEVIATION**2 * np.array([1.0, 1.0, 4.0])
SLOPES = -(np.linspace(0.1, 0.9, 3 * len(TIME_FACTORS)).reshape(3, -1) ** 2)
NEW_SLOPES = -(np.linspace(0.8, 0.2, 2 * len(TIME_FACTORS)).reshape(2, -1) ** 2)
GRID = list(product(RESIDUAL_LENGTHS, RESIDUAL_SCALES, NOISE_RATIOS, LINK_WIDTHS))


def closed(length: float, scale: float, ratio: float, width: float) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """Return evidence, factors, means and variances of one fit, calculated from covariances of seconds."""
    prior = np.diag(prior_deviations() ** 2 * np.where(LINKS, width**2, 1.0))
    together = scale**2 * Likeness.of(KNOWN, KNOWN).covariance(length) + ratio**2 * np.diag(NOISE)
    gram = together + SLOPES @ prior @ SLOPES.T
    across = scale**2 * Likeness.of(NEW, KNOWN).covariance(length) + NEW_SLOPES @ prior @ SLOPES.T
    solved = np.linalg.solve(gram, MEASURED)
    evidence = math.log(LINK_WIDTHS[width]) - 0.5 * (MEASURED @ solved + np.linalg.slogdet(gram)[1])
    own = scale**2 * (UNSEEN**2 - NOISE_DEVIATION**2) + ratio**2 * NOISE_DEVIATION**2
    before = own + np.diagonal(NEW_SLOPES @ prior @ NEW_SLOPES.T)
    variances = before - np.diagonal(across @ np.linalg.solve(gram, across.T))
    return evidence, prior @ SLOPES.T @ solved, across @ solved, variances


def test_the_average_is_that_of_its_fits_by_their_marginal_likelihood() -> None:
    fits = averaged_fits(bases_of(KNOWN, NOISE), SLOPES, MEASURED, prior_deviations())
    expected = [closed(*each) for each in GRID]
    chances = np.exp([evidence for evidence, *_ in expected])
    chances /= chances.sum()
    factors, spread = mean_factors(fits)
    assert sum(fit.weight for fit in fits) == pytest.approx(1.0)
    mean = chances @ np.array([each for _, each, _, _ in expected])
    assert factors == pytest.approx(mean, abs=2e-4)
    assert (np.diagonal(spread) < prior_deviations() ** 2 * 16).all()
    likeness = Likeness.of(NEW, KNOWN)
    for fit in fits:
        matching = [each for each in expected if np.allclose(each[1], fit.factors, rtol=1e-8)]
        assert len(matching) == 1
        means, variances = fit.prediction(NEW_SLOPES, fit.basis @ likeness.covariance(fit.length).T)
        assert means == pytest.approx(matching[0][2])
        assert variances == pytest.approx(matching[0][3])


def test_a_calibrated_deviation_has_the_spread_between_the_fits() -> None:
    """The variance of the average is the mean of the fits' variances plus the variance of their means."""
    site = Calibration().site
    known = Calibration(site=site, known=KNOWN, slopes=SLOPES, residual=MEASURED, noise=NOISE)
    expected = [closed(*each) for each in GRID]
    chances = np.exp([evidence for evidence, *_ in expected])
    chances /= chances.sum()
    means, variances = (np.array([each[place] for each in expected]) for place in (2, 3))
    whole = chances @ (variances + (means - chances @ means) ** 2)
    found = known.deviation(NEW, NEW_SLOPES, Likeness.of(NEW, KNOWN))
    assert found**2 == pytest.approx(np.maximum(whole, NOISE_DEVIATION**2), rel=2e-3)


def test_rows_that_the_model_meets_speak_for_a_small_residual_and_others_for_a_large_one() -> None:
    bases = bases_of(KNOWN, NOISE)

    def mean_scale(measured: np.ndarray) -> float:
        fits = averaged_fits(bases, np.zeros_like(SLOPES), measured, prior_deviations())
        return sum(fit.weight * fit.scale for fit in fits)

    assert mean_scale(np.zeros(3)) < 1.0 < mean_scale(np.array([0.4, -0.4, 0.4]))


def test_rows_that_cannot_be_told_apart_count_by_their_mean() -> None:
    group = np.array([1, 0, 1, 1])
    assert _means(np.array([2.0, 5.0, 4.0, 9.0]), group).tolist() == [5.0, 5.0]
    rows = np.array([[2.0, 1.0], [7.0, 8.0], [4.0, 1.0], [9.0, 4.0]])
    assert _means(rows, group).tolist() == [[7.0, 8.0], [5.0, 2.0]]
