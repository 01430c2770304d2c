"""A rule as data: what must hold, where that is known from, and how a break reads in numbers.

Where rules are known from, by the names that their entries repeat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from tuner.core.columns import BoolArray, Columns
from tuner.core.domain import Workload
from tuner.core.outcomes import Violation

Level = Literal["law", "policy", "advice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One condition, as data."""

    name: str
    level: Level
    sentence: str
    """What must hold."""
    source: str
    """Where that is known from."""
    reads: tuple[str, ...]
    """The columns that it looks at."""
    vary: tuple[str, ...]
    """The axes in which a user would look for a way out, the likeliest first."""
    broken: Callable[[Columns], Any]
    """Whether each row breaks it."""
    numbers: Callable[[Columns], str]
    """The arithmetic of one row that breaks it."""
    hint: str = ""
    """A way out beside the axes, such as an option."""
    binding: Callable[[Workload], bool] = lambda _: True
    """Whether it has a say over this workload at all."""

    def broken_rows(self, columns: Columns) -> BoolArray:
        """For each row, whether it breaks the rule."""
        rows = np.asarray(self.broken(columns), dtype=np.bool_)
        return np.broadcast_to(rows, columns.arrays[self.reads[0]].shape)

    def violation(self, columns: Columns) -> Violation | None:
        """The single form: the violation of columns that hold one row, or nothing."""
        if not self.broken_rows(columns).item():
            return None
        row = Columns(columns.workload, columns.cluster, {name: array[0] for name, array in columns.arrays.items()})
        return Violation(rule=self.name, message=self.numbers(row))


MEGATRON: Final = "Megatron-LM, megatron/"
MEGATRON_DS: Final = "Megatron-DeepSpeed, megatron/"
BLOOM: Final = "BLOOM chronicles-prequel, "
