"""Initial values that do not depend on how a matrix is sharded.

Each element is a hash of the seed, the parameter's name, its row and its column. A rank therefore draws only its own
shard, on any device, and the whole matrix is the same for every tp.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

DEVIATION: Final = 0.02
"""Standard deviation of the weights, as in Megatron, but of a uniform distribution."""

_MASK: Final = 0xFFFFFFFF
_GOLDEN: Final = 0x9E3779B9
_AT_ONCE: Final = 1 << 20
"""Elements drawn at once, which bounds the temporary memory."""


def mixed(numbers: Tensor) -> Tensor:
    """Return a 32-bit hash of each number, in 64-bit integers (Wellons 2018, hash-prospector: `lowbias32`)."""
    numbers = numbers & _MASK
    numbers = ((numbers ^ (numbers >> 16)) * 0x7FEB352D) & _MASK
    numbers = ((numbers ^ (numbers >> 15)) * 0x846CA68B) & _MASK
    return numbers ^ (numbers >> 16)


def uniform(rows: Tensor, columns: Tensor, seed: int) -> Tensor:
    """Return an fp32 number in [0, 1) for each row and column."""
    of_rows = mixed(mixed(rows + seed) ^ seed)
    # Drop the lowest 8 bits, so that fp32 represents the rest exactly.
    return (mixed(of_rows[:, None] + columns[None, :] * _GOLDEN) >> 8).to(torch.float32) / 2**24


def name_seed(seed: int, name: str) -> int:
    """Return the seed of one parameter."""
    return zlib.crc32(f"{seed}/{name}".encode())


@torch.no_grad()
def draw(
    weight: Tensor, *, name: str, seed: int, rows: Sequence[range], columns: range, deviation: float = DEVIATION
) -> None:
    """Fill a shard that consists of the given row ranges, stacked, and columns of the whole matrix."""
    parameter_seed = name_seed(seed, name)
    across = torch.arange(columns.start, columns.stop, device=weight.device)
    step = max(1, _AT_ONCE // len(columns))
    top = 0
    for part in rows:
        for start in range(part.start, part.stop, step):
            down = torch.arange(start, min(start + step, part.stop), device=weight.device)
            drawn = (uniform(down, across, parameter_seed) - 0.5) * (deviation * math.sqrt(12))
            weight[top : top + len(down)].copy_(drawn)
            top += len(down)
