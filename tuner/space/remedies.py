"""Find values of single axes that satisfy a broken rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.core.columns import CHOICES, Columns, IntArray
from tuner.core.domain import LAYOUT, PARTITION, Partition, partition_for
from tuner.core.recompute import GRANULARITIES, RECOMPUTE
from tuner.core.text import axis_value, either
from tuner.space.rules import BY_NAME, Rule
from tuner.space.space import Space

_GIVEN: Final = ("tp", "pp", "cp", "vpp", "zero", "heads", "micro_batch", "ep", "etp")
"""Axes whose values a remedy repeats if the rule reads them."""
_ALWAYS_GIVEN: Final = ("tp", "pp", "micro_batch")
"""Axes that a remedy repeats even if their value is 1."""
_SPLIT: Final = ("tp", "pp", "cp")
_WAYS: Final = 2
_VALUES: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """Values of one axis that satisfy a rule while the other axes stay the same; `dp` is derived."""

    axis: str
    values: tuple[int, ...]
    """The closest to the original value, ascending."""
    given: Mapping[str, int]
    """Unchanged values of the other axes that the rule reads."""

    def __str__(self) -> str:
        given = " and ".join(f"{name}={value}" for name, value in self.given.items())
        values = either(spelt(self.axis, value) for value in self.values)
        return f"{f'with {given}, ' if given else ''}{self.axis} may be {values}"


def remedies(space: Space, columns: Columns, rule: Rule) -> tuple[Remedy, ...]:
    """Return up to two single-axis remedies by which the only row of `columns` satisfies the rule, likeliest first.

    Values that break another rule which the row satisfies are returned only if there are no others.
    """
    others = [other for other in space.rules.in_force(space.workload) if not other.broken_rows(columns).item()]
    for kept in ([rule, *others], [rule, BY_NAME["fill-nodes"]], [rule]):
        found = [way for axis in rule.vary if (way := _along(space, columns, axis, rule, kept))]
        if found:
            return tuple(found[:_WAYS])
    return ()


def _along(space: Space, columns: Columns, axis: str, rule: Rule, kept: list[Rule]) -> Remedy | None:
    """Return the values of one axis that satisfy all rules in `kept`, on the same nodes or else with the same dp."""
    current = int(columns.arrays[axis][0])
    candidates = np.array([value for value in _candidates(space, columns, axis) if value != current], dtype=np.int64)
    for hold_dp in (False, True) if axis in _SPLIT else (False,):
        rows = varied(columns, axis, candidates, hold_dp=hold_dp)
        legal = candidates[~np.any([other.broken_rows(rows) for other in kept], axis=0)]
        around = legal[np.argsort(np.abs(legal - current), kind="stable")[:_VALUES]]
        if len(around):
            unchanged = {**_given(columns, rule, axis), **({"dp": int(columns.dp[0])} if hold_dp else {})}
            return Remedy(axis=axis, values=tuple(sorted(int(value) for value in around)), given=unchanged)
    return None


def varied(columns: Columns, axis: str, values: IntArray, *, hold_dp: bool = False) -> Columns:
    """Return one row per value of the axis; the other axes are those of the only row.

    If the split of the GPUs changes, dp is derived on the same nodes, or with `hold_dp` the nodes are derived;
    `fill-nodes` rejects any remainder. The partition is derived from the stages, as in a key.
    """
    arrays: dict[str, IntArray] = {name: np.full(len(values), array[0]) for name, array in columns.arrays.items()}
    arrays[axis] = values
    rows = Columns(columns.workload, columns.cluster, arrays)
    per_node = columns.cluster.gpus_per_node
    if axis == "dp" or hold_dp:
        arrays["nodes"] = -(-rows.replica * rows.dp // per_node)
    elif axis in (*_SPLIT, "nodes"):
        arrays["dp"] = np.maximum(1, rows.nodes * per_node // rows.replica)
    if axis in ("pp", "vpp", "layers"):
        stages = zip(rows.layers.tolist(), (rows.pp * rows.vpp).tolist(), strict=True)
        uneven: Partition = "layout" if columns.partition[0] == LAYOUT else "layers"
        parts = [PARTITION.index(partition_for(layers, count, uneven)) for layers, count in stages]
        arrays["partition"] = np.array(parts, dtype=np.int64)
    return rows


def spelt(axis: str, value: int) -> int | str:
    """Return a column's number as a user writes it: `on` for sequence parallelism, `full` for recompute."""
    return axis_value(CHOICES[axis][value]) if axis in CHOICES else value


def _candidates(space: Space, columns: Columns, axis: str) -> Iterable[int]:
    """Return the values to try on an axis."""
    current = {name: int(array[0]) for name, array in columns.arrays.items()}
    if axis == "heads":
        return (heads for heads in range(1, 1025) if current["hidden"] % heads == 0)
    if axis == "recompute":
        return sorted({*range(len(GRANULARITIES)), *map(RECOMPUTE.index, space.axes["recompute"])})
    around = {"hidden": 512, "layers": 8, "global_batch": 4096}
    if axis in around:
        return range(max(1, current[axis] - around[axis]), current[axis] + around[axis] + 1)
    if axis in CHOICES:
        return range(len(CHOICES[axis]))
    ranges = {
        "nodes": range(1, space.cluster.nodes + 1),
        "cp": range(1, 65),
        "vpp": range(1, 65),
        "micro_batch": range(1, 129),
        "zero": range(4),
    }
    return ranges.get(axis, range(1, min(space.cluster.gpus, 1024) + 1))


def _given(columns: Columns, rule: Rule, axis: str) -> dict[str, int]:
    values = {name: int(columns.arrays[name][0]) for name in _GIVEN if name in rule.reads and name != axis}
    return {name: value for name, value in values.items() if value > 1 or name in _ALWAYS_GIVEN}
