"""The fidelity of a trial: the size at which its job runs, if not the full one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from tuner.core.domain import Topology, Workload
from tuner.core.validation import check_fields

FidelityMode = Literal["full", "auto"]
"""Whether every trial runs at full size, or at a reduced one where that pays."""

EXTRA_ITERATIONS: Final = 1
"""Iterations that a job at a reduced size measures besides those of one at full size: extrapolated along the batch, the
deviation of an iteration counts four to five times, and another iteration costs little beside the start of the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """The size of a job that runs a topology with fewer replicas and smaller batches."""

    nodes: int
    dp: int
    micro_batches: tuple[int, ...]
    """Microbatches per replica and iteration, ascending; one job measures all of them."""

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Fidelity:
        """Return the fidelity that a document describes."""
        return cls(nodes=document["nodes"], dp=document["dp"], micro_batches=tuple(document["micro_batches"]))

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"nodes": self.nodes, "dp": self.dp, "micro_batches": list(self.micro_batches)}

    def batches(self, topology: Topology) -> tuple[int, ...]:
        """Return the global batches that a job of the topology measures."""
        return tuple(count * self.dp * topology.micro_batch for count in self.micro_batches)

    def topologies(self, topology: Topology) -> list[Topology]:
        """Return the topologies that the job runs, one per batch."""
        return [replace(topology, nodes=self.nodes, dp=self.dp, global_batch=batch) for batch in self.batches(topology)]

    def __str__(self) -> str:
        """Return the size in words: `12 nodes, dp=1, 12+24 microbatches`."""
        counts = "+".join(map(str, self.micro_batches))
        return f"{self.nodes} {'node' if self.nodes == 1 else 'nodes'}, dp={self.dp}, {counts} microbatches"


def without_ramp(workload: Workload) -> Workload:
    """Return the workload of a job at a reduced size, whose batch does not grow."""
    return replace(workload, ramp=None) if workload.ramp is not None else workload
