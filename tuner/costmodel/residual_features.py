"""What the residual of the model may depend on: the features of a row, and how alike two rows are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.core.columns import Columns, FloatArray

SMOOTH: Final = ("tp", "pp", "dp", "micro_batch", "global_batch", "hidden", "layers", "seq")
"""Features by whose logarithm rows grow unlike."""

LENGTH: Final = 1.0
"""Doublings of one of them after which rows are unlike."""

ERA: Final = 0.04
"""Standard deviation of what all rows of one era share, as a logarithm: BLOOM's cluster got 5% faster in a day."""

CLIFF: Final = 0.05
"""Of what rows of one hidden size, number of heads and tensor parallel degree share: BLOOM's heads differ by up to 15%
for no reason that the model prices."""

KERNEL: Final = 0.04
"""Of what rows of one attention kernel, one kind of norm and one recompute share."""

SHAPE: Final = 0.06
"""Of what grows unlike with the smooth features."""

NOISE: Final = 0.025
"""Of a row by itself: two runs of one topology differ by about so much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Rows as the residual sees them."""

    smooth: FloatArray
    """One column for each name in `SMOOTH`, base-2 logarithms."""
    cliff: FloatArray
    """hidden, heads and tp."""
    kernel: tuple[str, ...]
    """Attention kernel, norms, recompute, ZeRO stage and sequence parallelism of each row, as one word."""
    era: tuple[str, ...]

    @classmethod
    def of(cls, columns: Columns, era: Sequence[str] | str = "") -> Features:
        """The features of each row; one era may stand for all."""
        workload, rows = columns.workload, len(columns.tp)
        seq = np.full(rows, workload.model.seq)
        smooth = [seq if name == "seq" else columns.arrays[name] for name in SMOOTH]
        stack = f"{workload.attention} {int(workload.fused_norms)}"
        kinds = zip(columns.recompute, columns.zero, columns.sequence_parallel, strict=True)
        return cls(
            smooth=np.log2(np.stack(smooth, axis=1).astype(np.float64)),
            cliff=np.stack([columns.hidden, columns.heads, columns.tp], axis=1).astype(np.float64),
            kernel=tuple(f"{stack} {recompute} {int(zero == 3)} {sp}" for recompute, zero, sp in kinds),
            era=(era,) * rows if isinstance(era, str) else tuple(era),
        )

    def __len__(self) -> int:
        return len(self.era)


def joined(parts: Sequence[Features]) -> Features:
    """The rows of several, one after the other."""
    return Features(
        smooth=np.concatenate([part.smooth for part in parts]),
        cliff=np.concatenate([part.cliff for part in parts]),
        kernel=tuple(word for part in parts for word in part.kernel),
        era=tuple(word for part in parts for word in part.era),
    )


def covariance(left: Features, right: Features) -> FloatArray:
    """How the residuals of two lists of rows vary together, noise left out."""
    apart = ((left.smooth[:, None, :] - right.smooth[None, :, :]) / LENGTH) ** 2
    near = np.exp(-0.5 * apart.sum(axis=2))
    cliff = (left.cliff[:, None, :] == right.cliff[None, :, :]).all(axis=2)
    together: FloatArray = SHAPE**2 * near + CLIFF**2 * cliff
    together += KERNEL**2 * same(left.kernel, right.kernel) + ERA**2 * same(left.era, right.era)
    return together


def same(left: tuple[str, ...], right: tuple[str, ...]) -> FloatArray:
    """1 where words agree."""
    words = {word: place for place, word in enumerate(dict.fromkeys((*left, *right)))}
    first = np.array([words[word] for word in left], dtype=np.int64)
    second = np.array([words[word] for word in right], dtype=np.int64)
    equal: FloatArray = (first[:, None] == second[None, :]).astype(np.float64)
    return equal


UNSEEN: Final = float(np.sqrt(ERA**2 + CLIFF**2 + KERNEL**2 + SHAPE**2 + NOISE**2))
"""Standard deviation of a row's logarithm when nothing has been measured."""
