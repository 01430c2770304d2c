"""A pool's candidates as points of an Optuna search space: one value on each axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from tuner.core.columns import CHOICES, IntArray
from tuner.search.candidates import CandidatePool

NAMES: Final = (
    *("nodes", "tp", "pp", "cp", "micro_batch", "zero", "recompute", "heads", "vpp", "sequence_parallel", "partition"),
    *("offload", "hsdp", "ep", "etp", "dispatcher", "moe_overlap", "hidden", "layers", "global_batch"),
)
"""Parameters, the most familiar first; `dp` follows from others."""

SETTING: Final = "setting"
"""The part of the pool, where there are several: rows of one table may differ in more than their topology."""


class ParameterSpace:
    """The axes on which a pool's candidates differ; converts candidates to values and back."""

    def __init__(self, pool: CandidatePool) -> None:
        self._pool = pool
        self._columns: dict[str, IntArray] = {}
        self.distributions: dict[str, BaseDistribution] = {}
        for name in NAMES:
            column = pool.column(name)
            values = np.unique(column) if pool.values is None else pool.values.get(name, column[:1])
            if len(values) > 1:
                self._columns[name] = column
                self.distributions[name] = _distribution(name, values.tolist())
        if len(pool.parts) > 1:
            sizes = [len(part.tp) for part in pool.parts]
            self._columns[SETTING] = np.repeat(np.arange(len(sizes)), sizes)
            self.distributions[SETTING] = CategoricalDistribution(tuple(range(len(sizes))))

    def values(self, candidate: int) -> dict[str, Any]:
        """Return a candidate's value on each axis."""
        return {name: _word(name, int(column[candidate])) for name, column in self._columns.items()}

    def agreeing(self, values: Mapping[str, Any]) -> IntArray:
        """Return the number of axes on which each candidate has these values."""
        agreed = np.zeros(len(self._pool), dtype=np.int64)
        for name, column in self._columns.items():
            if name in values:
                agreed += column == _number(name, values[name])
        return agreed

    @property
    def axes(self) -> int:
        """Number of axes."""
        return len(self._columns)


def _distribution(name: str, values: list[int]) -> BaseDistribution:
    """Return integers if all values in the range are possible, otherwise choices."""
    if name == "nodes" and values == list(range(values[0], values[-1] + 1)):
        return IntDistribution(values[0], values[-1])
    return CategoricalDistribution(tuple(_word(name, value) for value in values))


def _word(name: str, number: int) -> Any:
    return CHOICES[name][number] if name in CHOICES else number


def _number(name: str, value: Any) -> int:
    return CHOICES[name].index(value) if name in CHOICES else int(value)
