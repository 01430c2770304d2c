"""The normal distribution over arrays, for which numpy alone has no function."""

from __future__ import annotations

import numpy as np

from tuner.columns import FloatArray


def below(deviations: FloatArray) -> FloatArray:
    """The probability that a standard normal variable is below each value.

    Abramowitz and Stegun 1964, formula 26.2.17, whose error is at most 7.5e-8.
    """
    size = np.minimum(np.abs(deviations), 38.0)
    t = 1.0 / (1.0 + 0.2316419 * size)
    series = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    beyond = np.exp(-0.5 * size**2) / np.sqrt(2 * np.pi) * series
    probability: FloatArray = np.where(deviations > 0, 1.0 - beyond, beyond)
    return probability


def density(deviations: FloatArray) -> FloatArray:
    """The density of a standard normal variable at each value."""
    found: FloatArray = np.exp(-0.5 * deviations**2) / np.sqrt(2 * np.pi)
    return found
