"""Gated DeltaNet, a linear attention that most layers of hybrid models such as Qwen3-Next have instead of attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tuner.core.errors import InputError
from tuner.core.validation import check_fields

CHUNK: Final = 64
"""Tokens of a chunk, between which the state is passed on (flash-linear-attention at bc3b101d,
fla/ops/gated_delta_rule/chunk.py: chunk_size)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaNet:
    """Gated DeltaNet (Yang et al. 2024, arXiv 2412.06464) as Qwen3-Next has it.

    Queries, keys and values pass a causal convolution and SiLU, queries and keys an L2 norm; each value head has a
    state of key size x value size, a decay and a write strength. The output passes a norm of each head and a SiLU gate.
    """

    key_heads: int
    """Heads of queries, and of keys."""
    value_heads: int
    """Heads of values, states and outputs; a multiple of `key_heads`."""
    key_size: int = 128
    """Width of a head of queries and keys."""
    value_size: int = 128
    """Width of a head of values."""
    kernel: int = 4
    """Tokens that the convolution of queries, keys and values spans."""
    period: int = 4
    """The last layer of every `period` layers has attention, the others Gated DeltaNet; 0: no layer has attention."""

    def __post_init__(self) -> None:
        check_fields(self, may_be_zero=frozenset({"period"}))
        if self.value_heads % self.key_heads:
            raise InputError(
                f"delta net field value_heads must be a multiple of key_heads={self.key_heads}, not {self.value_heads}."
            )
        if self.period == 1:
            raise InputError("delta net field period must be 0 or at least 2: with 1, every layer has attention.")

    @property
    def key_width(self) -> int:
        """Columns of the queries, and of the keys."""
        return self.key_heads * self.key_size

    @property
    def value_width(self) -> int:
        """Columns of the values, of the gate and of the output."""
        return self.value_heads * self.value_size

    @property
    def convolved(self) -> int:
        """Columns of queries, keys and values, which the convolution mixes over time."""
        return 2 * self.key_width + self.value_width

    @property
    def projected(self) -> int:
        """Columns of the input projection: queries, keys, values, gate, and each value head's decay and strength."""
        return self.convolved + self.value_width + 2 * self.value_heads

    def parameters(self, hidden: int) -> int:
        """Return the parameters of one layer: its projections, convolution, decays and the output's norm."""
        others = self.kernel * self.convolved + 2 * self.value_heads + self.value_size
        return hidden * (self.projected + self.value_width) + others

    @property
    def products(self) -> int:
        """Multiply-adds of one layer and token outside projections, as Megatron-Core counts them: convolution, and
        four products of each state (NVIDIA/Megatron-LM at d98e8a64, megatron/training/training.py)."""
        return self.kernel * self.convolved + 4 * self.value_heads * self.value_size**2

    def has_attention(self, layer: int) -> bool:
        """Return whether a layer, counted from zero, has attention."""
        return bool(self.period) and (layer + 1) % self.period == 0
