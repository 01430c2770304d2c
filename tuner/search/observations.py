"""The features of what was observed, one row for each observation, in arrays that grow."""

from __future__ import annotations

from typing import Final

import numpy as np

from tuner.core.columns import FloatArray, IntArray
from tuner.costmodel.constants import SHAPE_LENGTH_SCALE
from tuner.costmodel.residual_features import SMOOTH, Features, covariance, same


class Observations:
    """Observations by their features and the candidate, or whatever number, that each is of."""

    def __init__(self) -> None:
        self._rows = 0
        self._numbers = np.zeros((_ROOM, 3 + len(SMOOTH)))
        self._candidates: IntArray = np.zeros(_ROOM, dtype=np.int64)
        self._words: tuple[list[str], list[str]] = ([], [])

    def __len__(self) -> int:
        return self._rows

    @property
    def features(self) -> Features:
        """Of all observations."""
        numbers = self._numbers[: self._rows]
        kernel, period = self._words
        return Features(smooth=numbers[:, 3:], cliff=numbers[:, :3], kernel=tuple(kernel), period=tuple(period))

    def add(self, features: Features, candidate: int) -> None:
        """One more."""
        rows = self._rows
        if rows == len(self._numbers):
            self._numbers = np.concatenate([self._numbers, np.zeros_like(self._numbers)])
            self._candidates = np.concatenate([self._candidates, np.zeros_like(self._candidates)])
        self._numbers[rows] = np.concatenate([features.cliff[0], features.smooth[0]])
        self._candidates[rows] = candidate
        for words, new in zip(self._words, (features.kernel, features.period), strict=True):
            words.extend(new)
        self._rows = rows + 1

    def covariance(self, features: Features, candidate: int, own: float) -> FloatArray:
        """Of a candidate's time with each observation; `own` is the variance of what no other candidate has."""
        across: FloatArray = covariance(features, self.features)[0]
        across += own * (self._candidates[: self._rows] == candidate)
        return across


_ROOM: Final = 16


def memory_covariance(left: Features, right: Features) -> FloatArray:
    """Return the covariance of the memory residuals of two lists, in units of a candidate's own variance."""
    apart = ((left.smooth[:, None, :] - right.smooth[None, :, :]) / SHAPE_LENGTH_SCALE) ** 2
    near = np.exp(-0.5 * apart.sum(axis=2))
    together: FloatArray = (1.0 + same(left.kernel, right.kernel) + near) / 3
    return together


def row_of(features: Features, row: int) -> Features:
    """Return the features of one row."""
    return Features(
        smooth=features.smooth[row : row + 1],
        cliff=features.cliff[row : row + 1],
        kernel=features.kernel[row : row + 1],
        period=features.period[row : row + 1],
    )
