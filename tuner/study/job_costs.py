"""The node-hours of a job that has not run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner.study.fidelity_plan import DEFAULT_START_SECONDS
from tuner.study.store.trial import Proposal


def job_node_hours(*, seconds: float, starts: Sequence[float], iterations: int, nodes: int) -> float:
    """Return `nodes * (start + (iterations - 1) * seconds) / 3600`.

    `start`, the time until the first iteration is over, is the median of earlier jobs' `starts`.
    """
    start = float(np.median(starts)) if starts else DEFAULT_START_SECONDS
    return (start + seconds * (iterations - 1)) * nodes / 3600


def proposal_node_hours(proposal: Proposal, *, starts: Sequence[float], iterations: int) -> float:
    """Return the expected node-hours of a proposal."""
    seconds = proposal.estimate_sec or 0.0
    return job_node_hours(seconds=seconds, starts=starts, iterations=iterations, nodes=proposal.nodes)


def shown_hours(node_hours: float) -> str:
    """Return node-hours with one decimal; below one, with two digits."""
    return f"{node_hours:,.1f}" if node_hours >= 0.95 else f"{node_hours:.2g}"
