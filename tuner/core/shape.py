"""Width and depth of a model."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.core.validation import check_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A model's width and depth, written `14336x72` (hidden x layers) as in the BLOOM report."""

    hidden: int
    layers: int

    def __post_init__(self) -> None:
        check_fields(self)

    def __str__(self) -> str:
        return f"{self.hidden}x{self.layers}"
