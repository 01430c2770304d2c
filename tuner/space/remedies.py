"""The values of single axes with which a broken rule would hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.core.columns import Columns, IntArray
from tuner.core.domain import PARTITION, RECOMPUTE, partition_for
from tuner.core.text import either
from tuner.space.rules import BY_NAME, Rule
from tuner.space.space import Space

_GIVEN: Final = ("tp", "pp", "cp", "vpp", "zero", "heads", "micro_batch")
"""The axes that a remedy repeats where the rule reads them too."""
_ALWAYS_GIVEN: Final = ("tp", "pp", "micro_batch")
"""Axes that a remedy repeats even at 1."""
_SPLIT: Final = ("tp", "pp", "cp")
_WAYS: Final = 2
_VALUES: Final = 12
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "sequence_parallel": ("off", "on"),
    "partition": PARTITION,
    "recompute": RECOMPUTE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One axis, and the values of it for which a rule holds while all else stays; `dp` follows."""

    axis: str
    values: tuple[int, ...]
    """Those closest to what was asked, ascending."""
    given: Mapping[str, int]
    """What else the rule looks at, as it stays."""

    def __str__(self) -> str:
        given = " and ".join(f"{name}={value}" for name, value in self.given.items())
        values = either(spelt(self.axis, value) for value in self.values)
        return f"{f'with {given}, ' if given else ''}{self.axis} may be {values}"


def remedies(space: Space, columns: Columns, rule: Rule) -> tuple[Remedy, ...]:
    """Up to two single axes by which the one row of `columns` could keep the rule, the likeliest first.

    Values that would break another rule in force, which holds as it is, are named only where there are no others.
    """
    others = [other for other in space.rules.in_force(space.workload) if not other.broken_rows(columns).item()]
    for kept in ([rule, *others], [rule, BY_NAME["fill-nodes"]], [rule]):
        found = [way for axis in rule.vary if (way := _along(space, columns, axis, rule, kept))]
        if found:
            return tuple(found[:_WAYS])
    return ()


def _along(space: Space, columns: Columns, axis: str, rule: Rule, kept: list[Rule]) -> Remedy | None:
    """The values of one axis for which all of `kept` hold: on the nodes as they are, else with dp as it is."""
    asked = int(columns.arrays[axis][0])
    candidates = np.array([value for value in _candidates(space, columns, axis) if value != asked], dtype=np.int64)
    for hold_dp in (False, True) if axis in _SPLIT else (False,):
        rows = varied(columns, axis, candidates, hold_dp=hold_dp)
        held = candidates[~np.any([each.broken_rows(rows) for each in kept], axis=0)]
        around = held[np.argsort(np.abs(held - asked), kind="stable")[:_VALUES]]
        if len(around):
            given = {**_given(columns, rule, axis), **({"dp": int(columns.dp[0])} if hold_dp else {})}
            return Remedy(axis=axis, values=tuple(sorted(int(value) for value in around)), given=given)
    return None


def varied(columns: Columns, axis: str, values: IntArray, *, hold_dp: bool = False) -> Columns:
    """One row for each value of the axis, all else as in the one row.

    Where the split of the GPUs changes, dp follows on the same nodes, or with `hold_dp` the nodes follow; a rest is
    left for fill-nodes to refuse. The partition follows the stages, as it does in a key.
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
        parts = [PARTITION.index(partition_for(layers, count)) for layers, count in stages]
        arrays["partition"] = np.array(parts, dtype=np.int64)
    return rows


def spelt(axis: str, value: int) -> int | str:
    """A column's number as people write it: `on` for sequence parallelism, `full` for recompute."""
    return _WORDS[axis][value] if axis in _WORDS else value


def _candidates(space: Space, columns: Columns, axis: str) -> Iterable[int]:
    """Return the values of an axis to try."""
    at = {name: int(array[0]) for name, array in columns.arrays.items()}
    if axis == "heads":
        return (heads for heads in range(1, 1025) if at["hidden"] % heads == 0)
    most_gpus = min(space.cluster.gpus, 1024)
    around = {"hidden": 512, "layers": 8, "global_batch": 4096}
    if axis in around:
        return range(max(1, at[axis] - around[axis]), at[axis] + around[axis] + 1)
    ranges = {
        "dp": range(1, most_gpus + 1),
        "nodes": range(1, space.cluster.nodes + 1),
        "tp": range(1, most_gpus + 1),
        "pp": range(1, most_gpus + 1),
        "cp": range(1, 65),
        "vpp": range(1, 65),
        "micro_batch": range(1, 129),
        "zero": range(4),
        "sequence_parallel": range(2),
        "partition": range(2),
    }
    return ranges[axis]


def _given(columns: Columns, rule: Rule, axis: str) -> dict[str, int]:
    at = {name: int(columns.arrays[name][0]) for name in _GIVEN if name in rule.reads and name != axis}
    return {name: value for name, value in at.items() if value > 1 or name in _ALWAYS_GIVEN}
