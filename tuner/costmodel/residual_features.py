"""Features of a row for the residual of the model, and the similarity of two rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from tuner.core.columns import BoolArray, Columns, FloatArray, IntArray
from tuner.core.domain import DISPATCHERS
from tuner.core.offload import OFFLOAD
from tuner.core.recompute import GRANULARITIES
from tuner.costmodel.constants import (
    CLIFF_DEVIATION,
    KERNEL_DEVIATION,
    NOISE_DEVIATION,
    PERIOD_DEVIATION,
    REDUCTION_DEVIATION,
    SHAPE_DEVIATION,
    SHAPE_LENGTH_SCALE,
)

SMOOTH: Final = ("tp", "pp", "vpp", "dp", "micro_batch", "global_batch", "hidden", "layers", "seq")
"""Features by whose logarithm rows grow unlike."""

Lengths = tuple[tuple[float, float], ...]
"""Doublings over which a residual fades, each with the share of it that does."""

LENGTHS: Final[Lengths] = ((SHAPE_LENGTH_SCALE, 1.0),)

_KERNEL_CHOICES: Final = (len(GRANULARITIES), 2, 2, len(OFFLOAD), len(DISPATCHERS), 2)
"""Recompute, ZeRO's third stage or not, sequence parallelism or not, offload, dispatcher, its overlap or not."""

_PLACE: Final = 4
"""Place of sequence parallelism in a kernel's word, after attention kernel, norms, recompute and ZeRO."""

_RANKS: Final = 1 << 15
"""More than any degree of parallelism: several degrees make one number."""


Words = npt.NDArray[np.str_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Features:
    """Rows as the residual sees them."""

    smooth: FloatArray
    """One column for each name in `SMOOTH`, base-2 logarithms."""
    cliff: FloatArray
    """hidden, heads and tp; with experts, ep and etp are part of the last number."""
    kernel: Words
    """Attention kernel, norms, recompute, ZeRO stage, sequence parallelism, offload and, with experts, the dispatcher
    of each row, as one word."""
    sequence_parallel: BoolArray
    period: Words

    @classmethod
    def of(cls, columns: Columns, period: Sequence[str] | str = "") -> Features:
        """Return the features of each row; one speed period may stand for all."""
        workload, rows = columns.workload, len(columns.tp)
        seq = np.full(rows, workload.model.seq)
        smooth = [seq if name == "seq" else columns.arrays[name] for name in SMOOTH]
        stack = f"{workload.attention} {int(workload.fused_norms)}"
        experts = workload.model.experts is not None
        split = columns.tp + _RANKS * (columns.ep + _RANKS * columns.etp) if experts else columns.tp
        dispatchers = [f" {dispatcher}" if experts else "" for dispatcher in DISPATCHERS]
        kinds = [
            *(columns.granularity, columns.zero == 3, columns.sequence_parallel, columns.offload),
            *(columns.dispatcher, columns.moe_overlap),
        ]
        codes = np.ravel_multi_index(kinds, _KERNEL_CHOICES)
        words = [
            f"{stack} {recompute} {zero3} {sp} {offload}{dispatchers[dispatcher]}{' overlap' * overlap}"
            for recompute, zero3, sp, offload, dispatcher, overlap in np.ndindex(*_KERNEL_CHOICES)
        ]
        return cls(
            smooth=np.log2(np.stack(smooth, axis=1).astype(np.float64)),
            cliff=np.stack([columns.hidden, columns.heads, split], axis=1).astype(np.float64),
            kernel=np.array(words)[codes],
            sequence_parallel=columns.sequence_parallel == 1,
            period=np.broadcast_to(np.array(period, dtype=np.str_), rows),
        )

    def __len__(self) -> int:
        return len(self.period)

    def rows(self, rows: IntArray | slice) -> Features:
        """Return some of the rows."""
        return Features(
            smooth=self.smooth[rows],
            cliff=self.cliff[rows],
            kernel=self.kernel[rows],
            sequence_parallel=self.sequence_parallel[rows],
            period=self.period[rows],
        )

    def during(self, period: Sequence[str] | str) -> Features:
        """Return the rows in other speed periods; one may stand for all."""
        return replace(self, period=np.broadcast_to(np.array(period, dtype=np.str_), len(self)))


def is_sequence_parallel(kernel: str) -> bool:
    """Return whether the word of a row's kernel is one with sequence parallelism."""
    return kernel.split()[_PLACE : _PLACE + 1] == ["1"]


def joined(parts: Sequence[Features]) -> Features:
    """The rows of several, one after the other."""
    return Features(
        smooth=np.concatenate([part.smooth for part in parts]),
        cliff=np.concatenate([part.cliff for part in parts]),
        kernel=np.concatenate([part.kernel for part in parts]),
        sequence_parallel=np.concatenate([part.sequence_parallel for part in parts]),
        period=np.concatenate([part.period for part in parts]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """The similarity of the rows of two lists."""

    apart: FloatArray
    """Square of the distance in the smooth features, in doublings."""
    shared: FloatArray
    """Covariance of what does not fade: cliff, reductions of tensor parallelism, kernel and speed period."""

    @classmethod
    def of(cls, left: Features, right: Features) -> Likeness:
        """Compare each row of one list with each of the other."""
        apart = (left.smooth[:, None, :] - right.smooth[None, :, :]) ** 2
        cliff = (left.cliff[:, None, :] == right.cliff[None, :, :]).all(axis=2)
        reduction = cliff & np.equal.outer(left.sequence_parallel, right.sequence_parallel)
        shared = CLIFF_DEVIATION**2 * cliff + REDUCTION_DEVIATION**2 * reduction
        shared += KERNEL_DEVIATION**2 * np.equal.outer(left.kernel, right.kernel)
        shared += PERIOD_DEVIATION**2 * np.equal.outer(left.period, right.period)
        return cls(apart=apart.sum(axis=2), shared=shared)

    def near(self, length: float) -> FloatArray:
        """Return the covariance of what fades over a length of so many doublings."""
        near: FloatArray = SHAPE_DEVIATION**2 * np.exp(-0.5 / length**2 * self.apart)
        return near

    def covariance(self, length: float = SHAPE_LENGTH_SCALE) -> FloatArray:
        """Return how the residuals vary together, noise left out."""
        return self.near(length) + self.shared


def covariance(left: Features, right: Features, lengths: Lengths = LENGTHS) -> FloatArray:
    """The covariance of the residuals of two lists of rows, without noise.

    `lengths` has the share of what fades over each.
    """
    likeness = Likeness.of(left, right)
    near: FloatArray = sum((share * likeness.near(length) for length, share in lengths), start=likeness.shared)
    return near


SHARED_VARIANCE: Final = sum(
    deviation**2
    for deviation in (PERIOD_DEVIATION, CLIFF_DEVIATION, REDUCTION_DEVIATION, KERNEL_DEVIATION, SHAPE_DEVIATION)
)
"""Variance of the residual that rows share."""

UNSEEN: Final = math.sqrt(SHARED_VARIANCE + NOISE_DEVIATION**2)
"""Standard deviation of a row's logarithm when nothing has been measured."""
