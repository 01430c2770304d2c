"""The measured rows that a calibration remembers, as observations of no candidate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tuner.core.columns import FloatArray
from tuner.costmodel.calibration import Calibration
from tuner.costmodel.residual_features import Features
from tuner.costmodel.site_factors import TIME_FACTORS
from tuner.search.time_prior import trends_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalledRow:
    """One row of an earlier table or study."""

    features: Features
    slopes: FloatArray
    """By time factors and trends, the level of the model, and the study's own speed, which it does not have."""
    residual: float
    noise: float


def recalled(calibration: Calibration, factors: FloatArray) -> Iterator[RecalledRow]:
    """Yield the rows of a calibration, with their residuals at these logarithms of the time factors."""
    known = calibration.known
    if known is None:
        return
    moved = factors - np.log([getattr(calibration.site, name) for name in TIME_FACTORS])
    trends = trends_of(known)
    for row in range(len(known)):
        slopes = calibration.slopes[row]
        yield RecalledRow(
            features=known.rows(slice(row, row + 1)),
            slopes=np.concatenate([slopes, trends[row], [1.0, 0.0]]),
            residual=float(calibration.residual[row] - slopes @ moved),
            noise=float(calibration.noise[row]),
        )
