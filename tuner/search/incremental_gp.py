"""A Gaussian process over groups of candidates, updated one observation at a time.

With L the Cholesky factor of the covariance of the observations, it stores W = L^-1 x cov(observations, groups), one
row per observation; mean and variance of every group are sums over rows. A row of W is computed when it is needed: what
concerns observations alone costs nothing per group.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from tuner.core.columns import FloatArray

SingleArray = npt.NDArray[np.float32]


class IncrementalGP:
    """The posterior of all groups; other values given with an observation are whitened (multiplied by L^-1) too."""

    def __init__(self, groups: int, carried: int) -> None:
        self._whitened = np.zeros((_MANY, groups), dtype=np.float32)
        self._root = np.zeros((_ROOM, _ROOM))
        self._inverse = np.zeros((_ROOM, _ROOM))
        self._carried = np.zeros((_ROOM, carried))
        self._followed = np.zeros((_ROOM, _ROOM))
        self.rows = self.columns = self._done = 0

    @property
    def carried(self) -> FloatArray:
        """The values given with the observations, whitened."""
        return self._carried[: self.rows]

    def whitened(self, across: Callable[[int], FloatArray]) -> SingleArray:
        """Return one row per observation, one column per group.

        `across` returns the covariances of an observation, by its index, with the groups. It is not stored: it refers
        to the owner of this process, which would then stay in memory until the garbage collector runs.
        """
        for row in range(self._done, self.rows):
            left, own = self._root[row, :row].astype(np.float32), across(row).astype(np.float32)
            self._whitened[row] = (own - left @ self._whitened[:row]) / float(self._root[row, row])
        self._done = self.rows
        return self._whitened[: self.rows]

    def solved(self, across: FloatArray) -> FloatArray:
        """Return L^-1 times a covariance with the observations."""
        solved: FloatArray = self._inverse[: self.rows, : self.rows] @ across
        return solved

    @property
    def followed(self) -> FloatArray:
        """`solved` of each followed covariance, one column each."""
        return self._followed[: self.rows, : self.columns]

    def follow(self, across: FloatArray) -> None:
        """Keep `solved` of this covariance up to date."""
        if self.columns == self._followed.shape[1]:
            self._followed = np.pad(self._followed, ((0, 0), (0, self.columns)))
        self._followed[: self.rows, self.columns] = self.solved(across)
        self.columns += 1

    def add(self, before: FloatArray, own: float, carried: FloatArray, followed: FloatArray | None = None) -> None:
        """Add an observation.

        `before` and `followed` are its covariances with earlier observations and with what is followed; `own` is its
        variance, noise included; `carried` are the values to whiten along.
        """
        rows = self.rows
        if rows == len(self._inverse):
            self._grow()
        left = self.solved(before)
        pivot = math.sqrt(max(own - float(left @ left), _MIN_VARIANCE))
        self._root[rows, :rows], self._root[rows, rows] = left, pivot
        self._carried[rows] = (carried - left @ self._carried[:rows]) / pivot
        self._inverse[rows, :rows] = -(left @ self._inverse[:rows, :rows]) / pivot
        self._inverse[rows, rows] = 1 / pivot
        if followed is not None:
            self._followed[rows, : self.columns] = (followed - left @ self.followed) / pivot
        self.rows = rows + 1

    def truncate(self, rows: int) -> None:
        """Remove all but the first observations."""
        self.rows, self._done = rows, min(rows, self._done)

    def precision(self) -> FloatArray:
        """Return the diagonal of the inverse of the covariance of the observations."""
        inverse = self._inverse[: self.rows, : self.rows]
        diagonal: FloatArray = np.einsum("ij,ij->j", inverse, inverse)
        return diagonal

    def coefficients(self, deviations: FloatArray, away: FloatArray | float = 0.0) -> tuple[FloatArray, FloatArray]:
        """Return mean and covariance of the coefficients of the slopes, all but the last column of `carried`.

        A coefficient has this prior deviation, and minus `away` as its prior mean.
        """
        prior, slopes = 1 / deviations**2, self.carried[:, :-1]
        spread = np.linalg.inv(np.diag(prior) + slopes.T @ slopes)
        shift: FloatArray = spread @ (slopes.T @ self.carried[:, -1] - prior * away)
        return shift, spread

    def predicted(
        self, before: FloatArray, alone: float, slopes: FloatArray, shift: FloatArray, spread: FloatArray
    ) -> tuple[float, float]:
        """Return mean and variance of a value with these slopes, by its covariances with the observations.

        `alone` is its prior variance apart from its slopes.
        """
        solved, carried = self.solved(before), self.carried
        left = slopes - solved @ carried[:, :-1]
        mean = float(slopes @ shift + solved @ (carried[:, -1] - carried[:, :-1] @ shift))
        return mean, float(alone - solved @ solved + left @ spread @ left)

    def left_out(self, shift: FloatArray, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the difference of each observation from the prediction of all others, and its variance.

        The last column of `carried` is the observed value, the others are slopes; `shift` and `spread` are mean and
        covariance of their coefficients.
        """
        slopes = self.unwhitened(self.carried[:, :-1])
        weights = self.unwhitened(self.carried[:, -1] - self.carried[:, :-1] @ shift)
        precision = self.precision() - ((slopes @ spread) * slopes).sum(axis=1)
        return weights / precision, 1 / precision

    def unwhitened(self, whitened: FloatArray) -> FloatArray:
        """Return L^-T times a whitened array."""
        solved: FloatArray = self._inverse[: self.rows, : self.rows].T @ whitened
        return solved

    def _grow(self) -> None:
        rows = len(self._inverse)
        if 2 * rows > len(self._whitened):
            whitened = self._whitened
            self._whitened = np.zeros((2 * rows, whitened.shape[1]), dtype=np.float32)
            self._whitened[: self._done] = whitened[: self._done]
        self._carried = np.concatenate([self._carried, np.zeros_like(self._carried)])
        self._followed = np.concatenate([self._followed, np.zeros_like(self._followed)])
        self._root, self._inverse = (np.pad(square, (0, rows)) for square in (self._root, self._inverse))


_ROOM: Final = 16
"""Observations for which memory is allocated at first."""

_MANY: Final = 128
"""The same for groups: the system provides memory for a row only when it is written."""

_MIN_VARIANCE: Final = 1e-10
"""The least variance of an observation given the others: one repeated without noise would have none."""
