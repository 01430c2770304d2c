"""The space of legal topologies: all points of a grid that break no rule.

A grid point is an integer whose mixed-radix digits are its indices on the axes, so that ten million topologies are ten
million integers. The grid is enumerated axis by axis: each rule is applied as soon as the axes that it reads are known,
so that rejected points are never expanded along the remaining axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any, Final

import numpy as np

from tuner.core.columns import AXES, CHOICES, BoolArray, Columns, IntArray
from tuner.core.documents import cluster_document, workload_document
from tuner.core.domain import OPT_IN, Cluster, Topology, Workload
from tuner.core.errors import InputError
from tuner.core.shape import Shape
from tuner.core.text import axis_value, either
from tuner.core.validation import check_size
from tuner.space.axes import Axes, about_unused, axes_document, searched
from tuner.space.rules import FIRST_POLICIES, POLICIES, Rule, RuleSet, current_name

BLOCK: Final = 1 << 18
"""Maximum number of rows in memory at once."""

_LARGEST_GRID: Final = 1 << 62
_GPUS_KNOWN: Final = frozenset({"nodes", "tp", "pp", "cp"})


@dataclass(kw_only=True)
class Tally:
    """Counts of legal and removed grid points; a point counts for the first rule that it breaks."""

    grid: int = 0
    legal: int = 0
    removed: dict[str, int] = field(default_factory=dict)
    unused: dict[str, list[Any]] = field(default_factory=dict)
    """The values given to axes that no legal point has."""

    def removals(self) -> list[tuple[int, str]]:
        """Return the rules that removed points, each after their number, the largest first."""
        return sorted(((count, rule) for rule, count in self.removed.items() if count), reverse=True)

    def advice(self) -> str:
        """Return a sentence about the values of `unused`; empty if there are none."""
        pins = [f"{axis}={','.join(map(axis_value, values))}" for axis, values in self.unused.items()]
        if not pins:
            return ""
        why = f"'tuner plan' with the same options and --set {pins[0].partition(',')[0]} explains why"
        return f"No legal topology has {either(pins)}; {why}."


@dataclass(frozen=True, kw_only=True)
class Space:
    """The topologies of a workload on a cluster that satisfy a rule set."""

    workload: Workload
    cluster: Cluster
    rules: RuleSet
    axes: Axes
    dp: tuple[int, ...] = ()
    """Allowed data-parallel degrees; empty: any."""
    unpinned: Axes = field(default_factory=dict)
    """The axes without the user's pins; empty: `axes`."""
    arguments: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The arguments of `space_for` that the user gave, without those completed by a launcher."""

    def __post_init__(self) -> None:
        for axis in AXES:
            if not self.axes.get(axis):
                raise InputError(f"axis {axis} has no value.")
            for value in self.axes[axis]:
                check_size(axis, value)
        for degree in self.dp:
            check_size("dp", degree)
        if self.size > _LARGEST_GRID:
            raise InputError(f"the grid has {self.size:.1e} points, more than can be numbered; pin an axis with --set.")

    @property
    def size(self) -> int:
        """Number of grid points, legal or not."""
        return prod(len(self.axes[axis]) for axis in AXES)

    def blocks(self, tally: Tally | None = None) -> Iterator[IntArray]:
        """Yield the legal points, ascending, in arrays of bounded size; reset `tally` and update it on the way."""
        tally = tally if tally is not None else Tally()
        tally.grid, tally.legal = self.size, 0
        tally.removed = dict.fromkeys((rule.name for rule in self.in_force), 0)
        used = {axis: np.zeros(len(self.axes[axis]), dtype=np.bool_) for axis in self._pinned}
        for points in self._grow(np.zeros(1, dtype=np.int64), 0, tally):
            tally.legal += len(points)
            for axis, seen in used.items():
                seen[_indices(self, points, axis, len(AXES))] = True
            yield points
        tally.unused = {
            axis: [
                str(value) if isinstance(value, Shape) else value
                for value, kept in zip(self.axes[axis], seen, strict=True)
                if not kept
            ]
            for axis, seen in used.items()
            if tally.legal and not seen.all()
        }

    @property
    def _pinned(self) -> list[str]:
        """The axes to which the user gave several values."""
        return [
            axis for axis, values in self.axes.items() if len(values) > 1 and self.unpinned.get(axis, values) != values
        ]

    def columns(self, points: IntArray) -> Columns:
        """Return the columns of grid points."""
        return Columns(self.workload, self.cluster, _Digits(self, points, len(AXES)))

    def topologies(self, points: IntArray) -> list[Topology]:
        """Return the topologies of grid points."""
        columns = self.columns(points)
        return [columns.topology(row) for row in range(len(points))]

    @property
    def key_context(self) -> dict[str, Any]:
        """The arguments of `parse_key` that depend on the space."""
        only_dp = self.dp[0] if len(self.dp) == 1 else None
        nodes = min(max(self.axes["nodes"]), self.cluster.nodes)
        return {"workload": self.workload, "cluster": self.cluster, "nodes": nodes, "dp": only_dp}

    def count(self) -> int:
        """Return the number of legal points."""
        return sum(len(points) for points in self.blocks())

    def where(self, **axes: tuple[Any, ...]) -> Space:
        """Return the space with other values on some axes."""
        return replace(self, axes={**self.axes, **axes})

    @cached_property
    def in_force(self) -> tuple[Rule, ...]:
        """The rules that apply to this space, in the order of evaluation."""
        return tuple(rule for rules in self._rules_at for rule in rules)

    @cached_property
    def _rules_at(self) -> list[list[Rule]]:
        """For each axis, the rules that can be evaluated once that axis is known, and not before."""
        unused = OPT_IN.keys() - searched(self.axes)
        waiting = [rule for rule in self.rules.in_force(self.workload) if not about_unused(rule.reads, unused)]
        waiting += [_only_dp(self.dp)] if self.dp else []
        by_axis = []
        for depth in range(len(AXES)):
            known = _known(depth + 1)
            by_axis.append([rule for rule in waiting if known.issuperset(rule.reads)])
            waiting = [rule for rule in waiting if not known.issuperset(rule.reads)]
        return by_axis

    def _grow(self, points: IntArray, depth: int, tally: Tally) -> Iterator[IntArray]:
        if depth == len(AXES):
            yield points
            return
        values = len(self.axes[AXES[depth]])
        for start in range(0, len(points), max(1, BLOCK // values)):
            chunk = points[start : start + max(1, BLOCK // values)]
            grown = (chunk[:, np.newaxis] * values + np.arange(values)).ravel()
            legal = self._legal_points(grown, depth, tally)
            if len(legal):
                yield from self._grow(legal, depth + 1, tally)

    def _legal_points(self, points: IntArray, depth: int, tally: Tally) -> IntArray:
        """Return the points that satisfy the rules evaluated at this depth."""
        if not self._rules_at[depth]:
            return points
        columns = Columns(self.workload, self.cluster, _Digits(self, points, depth + 1))
        points_per_row = prod(len(self.axes[axis]) for axis in AXES[depth + 1 :])
        legal: BoolArray = np.ones(len(points), dtype=np.bool_)
        for rule in self._rules_at[depth]:
            kept = legal & ~rule.broken_rows(columns)
            tally.removed[rule.name] += points_per_row * int(legal.sum() - kept.sum())
            legal = kept
        return points[legal]

    @cached_property
    def numbers(self) -> dict[str, IntArray]:
        """The values of each column along its axis, as integers."""
        numbers: dict[str, list[int]] = {axis: list(self.axes[axis]) for axis in AXES}
        numbers |= {axis: [words.index(value) for value in self.axes[axis]] for axis, words in CHOICES.items()}
        numbers["hidden"] = [shape.hidden for shape in self.axes["shape"]]
        numbers["layers"] = [shape.layers for shape in self.axes["shape"]]
        del numbers["shape"]
        return {name: np.array(values, dtype=np.int64) for name, values in numbers.items()}


class _Digits(dict[str, IntArray]):
    """Lazily computed columns of grid points whose first `depth` axes are known."""

    def __init__(self, space: Space, points: IntArray, depth: int) -> None:
        super().__init__()
        self._space, self._points, self._depth = space, points, depth

    def __missing__(self, name: str) -> IntArray:
        self[name] = self._dp() if name == "dp" else self._along(name)
        return self[name]

    def _along(self, name: str) -> IntArray:
        values = self._space.numbers[name]
        indices = _indices(self._space, self._points, _AXIS_OF.get(name, name), self._depth)
        return np.full(len(self._points), values[0]) if len(values) == 1 else values[indices]

    def _dp(self) -> IntArray:
        gpus = self["nodes"] * self._space.cluster.gpus_per_node
        return gpus // (self["tp"] * self["pp"] * self["cp"])


def _indices(space: Space, points: IntArray, axis: str, depth: int) -> IntArray:
    """Return the value of an axis for each point, given its first `depth` axes."""
    position = AXES.index(axis)
    if position >= depth:
        raise KeyError(axis)
    if len(space.axes[axis]) == 1:
        return np.zeros(len(points), dtype=np.int64)
    stride = prod(len(space.axes[later]) for later in AXES[position + 1 : depth])
    return points // stride % len(space.axes[axis])


_AXIS_OF: Final = {"hidden": "shape", "layers": "shape"}


def _known(depth: int) -> set[str]:
    """Return the columns that are known once the first `depth` axes are known."""
    known = set(AXES[:depth])
    known |= {"hidden", "layers"} if "shape" in known else set()
    return known | ({"dp"} if known >= _GPUS_KNOWN else set())


def _only_dp(values: tuple[int, ...]) -> Rule:
    """Return a rule that restricts the data-parallel degrees."""
    return Rule(
        name="dp-as-set",
        level="policy",
        sentence="dp is one of the requested values",
        source="--set dp",
        reads=("dp",),
        vary=("pp", "tp", "nodes"),
        broken=lambda columns: ~np.isin(columns.dp, values),
        numbers=lambda columns: f"dp={columns.dp} was not requested",
    )


def space_document(space: Space) -> dict[str, Any]:
    """Return a JSON document of everything that determines the legal topologies."""
    return {
        "workload": workload_document(space.workload),
        "cluster": cluster_document(space.cluster),
        "rules": {"allowed": sorted(space.rules.allowed), "policies": list(POLICIES)},
        "axes": {**axes_document(space.axes), "dp": list(space.dp)},
    }


def as_stored(space: Space, document: Mapping[str, Any]) -> Space:
    """Return the space as it was when its document was stored.

    Policies that are newer than the document are disabled, and where it records no framework, none applies.
    """
    stored = map(current_name, document["rules"].get("policies", FIRST_POLICIES))
    later = frozenset(POLICIES).difference(stored, space.rules.allowed)
    if later:
        space = replace(space, rules=RuleSet(allowed=space.rules.allowed | later))
    if "framework" not in document["workload"] and space.workload.framework:
        space = replace(space, workload=replace(space.workload, framework=None))
    return space
