"""How rotary embeddings are scaled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tuner.core.validation import check_fields

RotaryScalingKind = Literal["linear", "dynamic", "llama3", "yarn", "longrope"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RotaryScaling:
    """How rotary embeddings reach sequences longer than the original ones."""

    kind: RotaryScalingKind
    factor: float = 1.0
    original_seq: int = 0
    """Length of the sequences before scaling; 0: not specified."""
    low_frequency: float = 1.0
    """llama3's low_freq_factor."""
    high_frequency: float = 4.0
    """llama3's high_freq_factor."""
    beta_fast: float = 32.0
    """yarn's."""
    beta_slow: float = 1.0
    """yarn's."""
    truncate: bool = True
    """yarn rounds the dimensions between which it interpolates to whole numbers."""
    attention_factor: float = 0.0
    """Factor of the rotated queries and keys in yarn and longrope; 0: derived from the other fields."""
    short_factors: tuple[float, ...] = ()
    """longrope's factors of the wavelengths, for sequences up to `original_seq`."""
    long_factors: tuple[float, ...] = ()
    """longrope's factors for longer sequences."""

    def __post_init__(self) -> None:
        check_fields(self, may_be_zero=frozenset({"original_seq"}))
