"""Hyperparameters that a calibration averages over, with unit and source; `RECORDS` has the record of each by name."""

from __future__ import annotations

from typing import Final

from tuner.costmodel.constants import ConstantRecords

RECORDS: Final = ConstantRecords()
_constant: Final = RECORDS.add

RESIDUAL_SCALES: Final = _constant(
    "RESIDUAL_SCALES", (0.5, 1.0, 2.0), "ratio of standard deviations", "half, as assumed, and twice; not fitted"
)
"""Ratios of the residual's standard deviations to those assumed that a calibration averages over."""

RESIDUAL_LENGTHS: Final = _constant(
    "RESIDUAL_LENGTHS", (0.5, 1.0, 2.0, 4.0), "doublings", "half SHAPE_LENGTH_SCALE to four times; not fitted"
)
"""Lengths that a calibration averages over."""

NOISE_RATIOS: Final = _constant(
    "NOISE_RATIOS", (0.5, 1.0, 2.0), "ratio of standard deviations", "half, as assumed, and twice; not fitted"
)
"""Ratios of a row's noise to `NOISE_DEVIATION` that a calibration averages over."""

LINK_WIDTHS: Final = _constant(
    "LINK_WIDTHS",
    {1.0: 0.7, 2.0: 0.2, 4.0: 0.1},
    "share, by ratio of standard deviations",
    "a tail: one cluster in three is unlike those whose links are known; not fitted",
)
"""Chance that the factors of links lie so many times as far from 1 as `SITE_DEVIATIONS` has it."""
