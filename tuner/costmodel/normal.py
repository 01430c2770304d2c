"""The normal distribution over arrays, for which numpy alone has no function."""

from __future__ import annotations

from typing import Final

import numpy as np

from tuner.core.columns import FloatArray

CERTAIN: Final = 9.0
"""Deviations beyond which a probability, 1e-19, is taken for none."""


def expected_maximum(count: FloatArray) -> FloatArray:
    """The mean of the largest of so many standard normal variables, of eight and more within 1%.

    Blom 1958 has its probability, Abramowitz and Stegun 1964, formula 26.2.23, the deviation.
    """
    root = np.sqrt(-2 * np.log(0.625 / (count + 0.25)))
    above = 2.515517 + root * (0.802853 + root * 0.010328)
    maximum: FloatArray = root - above / (1 + root * (1.432788 + root * (0.189269 + root * 0.001308)))
    return maximum


def below(deviations: FloatArray) -> FloatArray:
    """The probability that a standard normal variable is below each value.

    Abramowitz and Stegun 1964, formula 26.2.17, whose error is at most 7.5e-8.
    """
    size = np.abs(deviations)
    near = ~(size >= CERTAIN)  # of a whole space most are not; what is no number stays so
    t = 1.0 / (1.0 + 0.2316419 * size[near])
    series = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    beyond = np.zeros_like(size)
    beyond[near] = density(size[near]) * series
    probability: FloatArray = np.where(deviations > 0, 1.0 - beyond, beyond)
    return probability


def density(deviations: FloatArray) -> FloatArray:
    """The density of a standard normal variable at each value."""
    found: FloatArray = np.exp(-0.5 * deviations**2) / np.sqrt(2 * np.pi)
    return found


def truncated(mean: float, variance: float, edge: float, *, above: bool) -> tuple[float, float] | None:
    """Return value and noise of the Gaussian observation that is equivalent to learning on which side of an edge a
    variable lies, or None if that side was almost certain. Moments as in Minka 2001, expectation propagation."""
    sign, deviation = (1.0 if above else -1.0), float(np.sqrt(variance))
    z = np.array([sign * (mean - edge) / deviation])
    chance = float(below(z)[0])
    if chance > 0.995:
        return None
    hazard = float(density(z)[0]) / max(chance, 1e-12)
    moved = mean + sign * deviation * hazard
    left = variance * max(1 - hazard * (hazard + float(z[0])), 1e-3)
    precision = 1 / left - 1 / variance
    noise = 1 / max(precision, 1e-6)
    return (moved / left - mean / variance) * noise, noise
