"""All that a search can choose from, as arrays: the legal space, or the rows of a measured table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from tuner.core.columns import Columns, FloatArray, IntArray, distinct_rows
from tuner.core.domain import EXPERT_AXES, Cluster, Topology, Workload
from tuner.costmodel.flops import equal_iterations
from tuner.costmodel.memory import limit
from tuner.costmodel.residual_features import SMOOTH, Features, joined
from tuner.space.space import Space

_ALIKE: Final = (*(name for name in SMOOTH if name != "seq"), "heads", "recompute", "sequence_parallel", "offload")
"""Columns that features depend on, with those of experts where a model has them."""


@dataclass(frozen=True, kw_only=True)
class CandidatePool:
    """Candidates, numbered from 0 through all parts."""

    workload: Workload
    """The training that every candidate has to finish."""
    parts: tuple[Columns, ...]
    """Each of one workload and cluster."""
    values: Mapping[str, IntArray] | None = None
    """Possible values of each column, if the pool has only some of the topologies of its space."""

    @classmethod
    def of_space(cls, space: Space) -> CandidatePool:
        """Return the candidates of the whole legal space."""
        return cls.of_points(space, space.blocks())

    @classmethod
    def of_points(cls, space: Space, blocks: Iterable[IntArray]) -> CandidatePool:
        """Return these points of a space as candidates."""
        points = np.concatenate([np.zeros(0, dtype=np.int64), *blocks])
        columns = space.columns(points)
        arrays = {name: np.asarray(columns.arrays[name]) for name in columns.names}
        return cls(workload=space.workload, parts=(Columns(space.workload, space.cluster, arrays),))

    def extended(self, topologies: Iterable[Topology]) -> CandidatePool:
        """Return a pool of one part with these topologies as well, those that it lacks after its own."""
        missing = {topology.key: topology for topology in topologies if self.find(topology) is None}
        if not missing:
            return self
        (part,) = self.parts
        more = Columns.of(missing.values(), part.workload, part.cluster)
        arrays = {name: np.concatenate([part.arrays[name], more.arrays[name]]) for name in Columns.names}
        return replace(self, parts=(Columns(part.workload, part.cluster, arrays),))

    def __len__(self) -> int:
        return int(self.starts[-1])

    @cached_property
    def starts(self) -> IntArray:
        """The number of each part's first candidate."""
        return np.cumsum([0, *(len(part.tp) for part in self.parts)])

    def at(self, candidate: int) -> tuple[Columns, int]:
        """Return the part of a candidate, and its row in it."""
        part = self.part(candidate)
        return self.parts[part], int(candidate - self.starts[part])

    def part(self, candidate: int) -> int:
        """Return the index of a candidate's part."""
        return int(np.searchsorted(self.starts, candidate, side="right")) - 1

    def topology(self, candidate: int) -> Topology:
        """Return the topology of a candidate."""
        columns, row = self.at(candidate)
        return columns.topology(row)

    def setting(self, candidate: int) -> tuple[Workload, Cluster]:
        """Return the workload and the cluster of a candidate."""
        columns, _ = self.at(candidate)
        return columns.workload, columns.cluster

    def column(self, name: str) -> IntArray:
        """Return one column of all candidates."""
        return np.concatenate([part.arrays[name] for part in self.parts])

    @cached_property
    def splits(self) -> IntArray:
        """A number per combination of tensor and pipeline parallel degrees."""
        return self.column("tp") * (1 + int(self.column("pp").max())) + self.column("pp")

    @cached_property
    def work(self) -> FloatArray:
        """Logarithm of the iterations that finish the training at equal compute."""
        return np.log(self.iterations)

    @property
    def iterations(self) -> FloatArray:
        """Iterations that finish the training at equal compute."""
        return np.concatenate([equal_iterations(part, self.workload) for part in self.parts])

    @cached_property
    def room(self) -> FloatArray:
        """Logarithm of the bytes of its GPU that a process can use."""
        return np.concatenate([np.full(len(part.tp), np.log(limit(part))) for part in self.parts])

    @cached_property
    def groups(self) -> tuple[Features, IntArray]:
        """The features of each group of candidates that the surrogate cannot tell apart, and the group of each one.

        The speed period is left open; the study sets it.
        """
        features, groups, found = [], [], 0
        for part in self.parts:
            alike = (*_ALIKE, *EXPERT_AXES) if part.workload.model.experts else _ALIKE
            first, back = distinct_rows([*(part.arrays[name] for name in alike), part.zero == 3])
            features.append(Features.of(part.rows(first)))
            groups.append(back + found)
            found += len(first)
        return joined(features), np.concatenate(groups)

    def find(self, topology: Topology) -> int | None:
        """Return the first candidate with this topology; None if there is none."""
        for part, start in zip(self.parts, self.starts, strict=False):
            asked = Columns.of([topology], part.workload, part.cluster)
            same = np.ones(len(part.tp), dtype=np.bool_)
            for name in asked.names:
                same &= part.arrays[name] == asked.arrays[name][0]
            if same.any():
                return int(start + np.flatnonzero(same)[0])
        return None
