"""A rule as data: what must hold, where that is known from, and how a break reads in numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tuner.columns import BoolArray, Columns
from tuner.domain import Violation, Workload
from tuner.errors import InputError

Level = Literal["law", "policy", "advice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """A batch-size ramp-up: from `start` sequences by `increment` to the global batch."""

    start: int
    increment: int

    def __post_init__(self) -> None:
        if self.start < 1 or self.increment < 1:
            raise InputError(f"a ramp-up needs a start and an increment of at least 1, not {self}.")

    def __str__(self) -> str:
        return f"{self.start},{self.increment}"


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
    broken: Callable[[Columns, Ramp | None], Any]
    """Whether each row breaks it."""
    numbers: Callable[[Columns, Ramp | None], str]
    """The arithmetic of one row that breaks it."""
    binding: Callable[[Workload], bool] = lambda workload: True
    """Whether it has a say over this workload at all."""

    def broken_rows(self, columns: Columns, ramp: Ramp | None = None) -> BoolArray:
        """For each row, whether it breaks the rule."""
        rows = np.asarray(self.broken(columns, ramp), dtype=np.bool_)
        return np.broadcast_to(rows, columns.arrays[self.reads[0]].shape)

    def violation(self, columns: Columns, ramp: Ramp | None = None) -> Violation | None:
        """The single form: the violation of columns that hold one row, or nothing."""
        if not self.broken_rows(columns, ramp).item():
            return None
        row = Columns(columns.workload, columns.cluster, {name: array[0] for name, array in columns.arrays.items()})
        return Violation(rule=self.name, message=self.numbers(row, ramp))
