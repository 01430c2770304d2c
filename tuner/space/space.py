"""The legal space: every topology of a grid that breaks no rule.

A grid point is a number, the mixed-radix digits of which are its places on the axes, so that ten million topologies
are ten million integers. The grid is walked axis by axis: a rule is asked as soon as the axes that it reads are
known, and what it refuses is never multiplied by the axes that follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any, Final

import numpy as np

from tuner.core.columns import AXES, BoolArray, Columns, IntArray
from tuner.core.documents import cluster_document, workload_document
from tuner.core.domain import PARTITION, RECOMPUTE, Cluster, Topology, Workload
from tuner.core.errors import InputError
from tuner.core.validation import check_size
from tuner.space.axes import Axes, axes_document
from tuner.space.rules import FIRST_POLICIES, POLICIES, Rule, RuleSet

BLOCK: Final = 1 << 18
"""Rows that are held at once: what bounds memory."""

_LARGEST_GRID: Final = 1 << 62
_GPUS_KNOWN: Final = frozenset({"nodes", "tp", "pp", "cp"})


@dataclass(kw_only=True)
class Tally:
    """What became of the grid's points; a point is counted at the first rule that it breaks."""

    grid: int = 0
    legal: int = 0
    removed: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Space:
    """The topologies of a workload on a cluster, under rules."""

    workload: Workload
    cluster: Cluster
    rules: RuleSet
    axes: Axes
    dp: tuple[int, ...] = ()
    """The data-parallel degrees asked for; empty: any."""
    unpinned: Axes = field(default_factory=dict)
    """The axes as they are when nobody asks for anything else; empty: as they are."""

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
        """Points of the grid, legal or not."""
        return prod(len(self.axes[axis]) for axis in AXES)

    def blocks(self, tally: Tally | None = None) -> Iterator[IntArray]:
        """The legal points, ascending, in arrays of bounded size; `tally` is set anew and filled as they are drawn."""
        tally = tally if tally is not None else Tally()
        tally.grid, tally.legal = self.size, 0
        tally.removed = dict.fromkeys((rule.name for rule in self.in_force), 0)
        for points in self._grow(np.zeros(1, dtype=np.int64), 0, tally):
            tally.legal += len(points)
            yield points

    def columns(self, points: IntArray) -> Columns:
        """The topologies of these points."""
        return Columns(self.workload, self.cluster, _Digits(self, points, len(AXES)))

    def topologies(self, points: IntArray) -> list[Topology]:
        """The topologies of these points, as values."""
        columns = self.columns(points)
        return [columns.topology(row) for row in range(len(points))]

    @property
    def key_context(self) -> dict[str, Any]:
        """What a key leaves to the space that it is read in."""
        only_dp = self.dp[0] if len(self.dp) == 1 else None
        nodes = min(max(self.axes["nodes"]), self.cluster.nodes)
        return {"workload": self.workload, "cluster": self.cluster, "nodes": nodes, "dp": only_dp}

    def empty(self) -> bool:
        """Whether no point is legal."""
        return next(self.blocks(), None) is None

    def count(self) -> int:
        """How many points are legal."""
        return sum(len(points) for points in self.blocks())

    def where(self, **axes: tuple[Any, ...]) -> Space:
        """The same space with other values on some axes."""
        return replace(self, axes={**self.axes, **axes})

    @cached_property
    def in_force(self) -> tuple[Rule, ...]:
        """The rules that reject here, in the order in which they are asked."""
        return tuple(rule for rules in self._asked for rule in rules)

    @cached_property
    def _asked(self) -> list[list[Rule]]:
        """For each axis, the rules that can be judged once it is known and could not be before."""
        waiting = [*self.rules.in_force(self.workload), *([_only_dp(self.dp)] if self.dp else [])]
        asked = []
        for depth in range(len(AXES)):
            known = _known(depth + 1)
            asked.append([rule for rule in waiting if known.issuperset(rule.reads)])
            waiting = [rule for rule in waiting if not known.issuperset(rule.reads)]
        return asked

    def _grow(self, points: IntArray, depth: int, tally: Tally) -> Iterator[IntArray]:
        if depth == len(AXES):
            yield points
            return
        values = len(self.axes[AXES[depth]])
        for start in range(0, len(points), max(1, BLOCK // values)):
            chunk = points[start : start + max(1, BLOCK // values)]
            grown = (chunk[:, np.newaxis] * values + np.arange(values)).ravel()
            legal = self._judged(grown, depth, tally)
            if len(legal):
                yield from self._grow(legal, depth + 1, tally)

    def _judged(self, points: IntArray, depth: int, tally: Tally) -> IntArray:
        """The points that break none of the rules asked at this depth."""
        if not self._asked[depth]:
            return points
        columns = Columns(self.workload, self.cluster, _Digits(self, points, depth + 1))
        points_each = prod(len(self.axes[axis]) for axis in AXES[depth + 1 :])
        legal: BoolArray = np.ones(len(points), dtype=np.bool_)
        for rule in self._asked[depth]:
            kept = legal & ~rule.broken_rows(columns)
            tally.removed[rule.name] += points_each * int(legal.sum() - kept.sum())
            legal = kept
        return points[legal]

    @cached_property
    def numbers(self) -> dict[str, IntArray]:
        """The values of each column along its axis, as numbers."""
        numbers: dict[str, list[int]] = {axis: list(self.axes[axis]) for axis in AXES}
        numbers["recompute"] = [RECOMPUTE.index(value) for value in self.axes["recompute"]]
        numbers["partition"] = [PARTITION.index(value) for value in self.axes["partition"]]
        numbers["hidden"] = [shape.hidden for shape in self.axes["shape"]]
        numbers["layers"] = [shape.layers for shape in self.axes["shape"]]
        del numbers["shape"]
        return {name: np.array(values, dtype=np.int64) for name, values in numbers.items()}


class _Digits(dict[str, IntArray]):
    """The columns of grid points of which the first `depth` axes are known, each worked out when it is first read."""

    def __init__(self, space: Space, points: IntArray, depth: int) -> None:
        super().__init__()
        self._space, self._points, self._depth = space, points, depth

    def __missing__(self, name: str) -> IntArray:
        self[name] = self._dp() if name == "dp" else self._space.numbers[name][self._places(_AXIS_OF.get(name, name))]
        return self[name]

    def _places(self, axis: str) -> IntArray:
        position = AXES.index(axis)
        if position >= self._depth:
            raise KeyError(axis)
        stride = prod(len(self._space.axes[later]) for later in AXES[position + 1 : self._depth])
        return self._points // stride % len(self._space.axes[axis])

    def _dp(self) -> IntArray:
        gpus = self["nodes"] * self._space.cluster.gpus_per_node
        return gpus // (self["tp"] * self["pp"] * self["cp"])


_AXIS_OF: Final = {"hidden": "shape", "layers": "shape"}


def _known(depth: int) -> set[str]:
    """The columns that are known once the first `depth` axes are."""
    known = set(AXES[:depth])
    known |= {"hidden", "layers"} if "shape" in known else set()
    return known | ({"dp"} if known >= _GPUS_KNOWN else set())


def _only_dp(values: tuple[int, ...]) -> Rule:
    """The wish for certain data-parallel degrees, as a rule."""
    return Rule(
        name="dp-as-set",
        level="policy",
        sentence="dp is one of the values asked for",
        source="--set dp",
        reads=("dp",),
        vary=("pp", "tp", "nodes"),
        broken=lambda columns: ~np.isin(columns.dp, values),
        numbers=lambda columns: f"dp={columns.dp} was not asked for",
    )


def space_document(space: Space) -> dict[str, Any]:
    """All that decides what may be proposed."""
    return {
        "workload": workload_document(space.workload),
        "cluster": cluster_document(space.cluster),
        "rules": {"allowed": sorted(space.rules.allowed), "policies": list(POLICIES)},
        "axes": {**axes_document(space.axes), "dp": list(space.dp)},
    }


def as_stored(space: Space, document: Mapping[str, Any]) -> Space:
    """Return the space under the policies that its stored document lists; policies that came later are off."""
    stored = document["rules"].get("policies", FIRST_POLICIES)
    later = frozenset(POLICIES).difference(stored, space.rules.allowed)
    return replace(space, rules=RuleSet(allowed=space.rules.allowed | later)) if later else space
