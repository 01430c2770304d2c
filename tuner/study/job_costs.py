"""Estimate the node-hours of a job before it runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.core.fidelity import EXTRA_ITERATIONS
from tuner.study.state import StudyState
from tuner.study.store.trial import Proposal

DEFAULT_OVERHEAD: Final = 120.0
"""Seconds that a job takes besides its iterations, before any job has ended."""


@dataclass(frozen=True, kw_only=True)
class JobCosts:
    """The expected cost of a study's jobs, by what earlier ones took."""

    iterations: int
    """Of a job at full size."""
    overheads: Sequence[tuple[int, float]] = ()
    """Nodes of each earlier job, and the seconds that it took besides its iterations."""

    @classmethod
    def of(cls, state: StudyState, iterations: int) -> JobCosts:
        """Return the costs by a study's jobs."""
        return cls(iterations=iterations, overheads=state.overheads(iterations))

    def node_hours(self, *, seconds: float, nodes: int, extra: int = 0, risk: float = 0.0) -> float:
        """Return the node-hours of a job whose batches take so many seconds an iteration together.

        It runs so many `extra` iterations of each; one that runs out of memory, with probability `risk`, ends with the
        first. Its overhead is the median of the jobs whose nodes are closest in number.
        """
        distances = [abs(math.log(other / nodes)) for other, _ in self.overheads]
        closest = [
            overhead
            for distance, (_, overhead) in zip(distances, self.overheads, strict=True)
            if distance <= min(distances) + 1e-9
        ]
        overhead = float(np.median(closest)) if closest else DEFAULT_OVERHEAD
        iterations = 1 + (1 - risk) * (self.iterations + extra - 1)
        return (overhead + seconds * iterations) * nodes / 3600

    def of_proposal(self, proposal: Proposal) -> float:
        """Return the node-hours of a proposal, whose estimate is that of its largest batch."""
        seconds, fidelity = proposal.estimate_sec or 0.0, proposal.fidelity
        if fidelity is None:
            return self.node_hours(seconds=seconds, nodes=proposal.nodes)
        batches = sum(fidelity.micro_batches) / fidelity.micro_batches[-1]
        return self.node_hours(seconds=seconds * batches, nodes=proposal.nodes, extra=EXTRA_ITERATIONS)


def running_node_hours(state: StudyState, costs: JobCosts) -> float:
    """Return the node-hours that the running jobs are expected to need."""
    return sum(costs.of_proposal(trial.proposal) for trial in state.trials if trial.result is None)


def shown_hours(node_hours: float) -> str:
    """Return node-hours with one decimal; below one, with two digits."""
    return f"{node_hours:,.1f}" if node_hours >= 0.95 else f"{node_hours:.2g}"
