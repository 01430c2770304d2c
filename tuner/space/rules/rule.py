"""Rules as data: the condition, its source, and the message for a violation.

The constants at the end are prefixes of the sources.
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
    """One condition on topologies."""

    name: str
    level: Level
    sentence: str
    """The condition in words."""
    source: str
    """Origin of the condition: a file, paper or report."""
    reads: tuple[str, ...]
    """The columns that the condition depends on."""
    vary: tuple[str, ...]
    """The axes to change in order to satisfy the rule, likeliest first."""
    broken: Callable[[Columns], Any]
    """Returns whether each row breaks the rule."""
    numbers: Callable[[Columns], str]
    """Returns a message with the numbers of the only row, which breaks the rule."""
    hint: str = ""
    """A remedy other than an axis, such as an option."""
    binding: Callable[[Workload], bool] = lambda _: True
    """Returns whether the rule applies to the workload."""

    def broken_rows(self, columns: Columns) -> BoolArray:
        """Return, for each row, whether it breaks the rule."""
        rows = np.asarray(self.broken(columns), dtype=np.bool_)
        return np.broadcast_to(rows, columns.arrays[self.reads[0]].shape)

    def violation(self, columns: Columns) -> Violation | None:
        """Return the violation of the only row, or None if it satisfies the rule."""
        if not self.broken_rows(columns).item():
            return None
        row = Columns(columns.workload, columns.cluster, {name: array[0] for name, array in columns.arrays.items()})
        return Violation(rule=self.name, message=self.numbers(row))


MEGATRON: Final = "Megatron-LM, megatron/"
MEGATRON_DS: Final = "Megatron-DeepSpeed, megatron/"
BLOOM: Final = "BLOOM chronicles-prequel, "
