"""A Gaussian field over kinds of candidates that grows by one observation at a time.

With L the Cholesky factor of the covariance of what was observed, it keeps W = L^-1 times the covariance of
observations and kinds, one row for each observation; mean and variance of every kind follow from sums over rows.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from tuner.core.columns import FloatArray

SingleArray = npt.NDArray[np.float32]


class IncrementalGP:
    """What observations tell of all kinds; whatever else was given with an observation is whitened along."""

    def __init__(self, kinds: int, carried: int) -> None:
        self._whitened = np.zeros((_ROOM, kinds), dtype=np.float32)
        self._inverse = np.zeros((_ROOM, _ROOM))
        self._carried = np.zeros((_ROOM, carried))
        self._followed = np.zeros((_ROOM, _ROOM))
        self.rows = self.columns = 0

    @property
    def carried(self) -> FloatArray:
        """What was given with the observations, whitened: L^-1 times it."""
        return self._carried[: self.rows]

    @property
    def whitened(self) -> SingleArray:
        """One row for each observation, one column for each kind."""
        return self._whitened[: self.rows]

    def solved(self, across: FloatArray) -> FloatArray:
        """L^-1 times the covariance of the observations with something else."""
        solved: FloatArray = self._inverse[: self.rows, : self.rows] @ across
        return solved

    @property
    def followed(self) -> FloatArray:
        """`solved` of whatever is followed, one column for each."""
        return self._followed[: self.rows, : self.columns]

    def follow(self, across: FloatArray) -> None:
        """Keep `solved` of this up to date from now on."""
        if self.columns == self._followed.shape[1]:
            self._followed = np.pad(self._followed, ((0, 0), (0, self.columns)))
        self._followed[: self.rows, self.columns] = self.solved(across)
        self.columns += 1

    def add(
        self,
        across: SingleArray,
        before: FloatArray,
        own: float,
        carried: FloatArray,
        followed: FloatArray | None = None,
    ) -> None:
        """One more observation: its covariance with the kinds, with the observations before it and with itself, its
        noise included, what is carried along, and its covariance with what is followed."""
        rows = self.rows
        if rows == len(self._inverse):
            self._grow()
        left = self.solved(before)
        pivot = math.sqrt(max(own - float(left @ left), _LEAST))
        self._whitened[rows] = (across - left.astype(np.float32) @ self._whitened[:rows]) / pivot
        self._carried[rows] = (carried - left @ self._carried[:rows]) / pivot
        self._inverse[rows, :rows] = -(left @ self._inverse[:rows, :rows]) / pivot
        self._inverse[rows, rows] = 1 / pivot
        if followed is not None:
            self._followed[rows, : self.columns] = (followed - left @ self.followed) / pivot
        self.rows = rows + 1

    def truncate(self, rows: int) -> None:
        """Forget all but the first observations."""
        self.rows = rows

    def precision(self) -> FloatArray:
        """Return the diagonal of the inverse of the covariance of the observations."""
        inverse = self._inverse[: self.rows, : self.rows]
        diagonal: FloatArray = np.einsum("ij,ij->j", inverse, inverse)
        return diagonal

    def left_out(self, shift: FloatArray, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return how far each observation is from what all others predict, and the variance of that.

        The last column of what is carried is the observed value, the others are slopes; `shift` and `spread` are mean
        and covariance of what they are multiplied by.
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
        self._whitened = np.concatenate([self._whitened, np.zeros_like(self._whitened)])
        self._carried = np.concatenate([self._carried, np.zeros_like(self._carried)])
        self._followed = np.concatenate([self._followed, np.zeros_like(self._followed)])
        self._inverse = np.pad(self._inverse, (0, rows))


_ROOM: Final = 16
"""Observations that there is room for at first."""

_LEAST: Final = 1e-10
"""Of a variance: an observation repeated without noise would leave nothing."""
