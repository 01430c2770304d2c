"""Estimate the node-hours of a job before it runs."""

from __future__ import annotations

import numpy as np

from tuner.study.fidelity_plan import DEFAULT_START_SECONDS
from tuner.study.state import StudyState
from tuner.study.store.trial import Proposal


def job_node_hours(state: StudyState, *, seconds: float, nodes: int, iterations: int, risk: float = 0.0) -> float:
    """Return `(start + (1 - risk) * (iterations - 1) * seconds) * nodes / 3600`, the expected cost of a job.

    A job that runs out of memory, with probability `risk`, ends with its first iteration. `start`, the time until that
    is over, is the median of measured jobs, or else of how long the others took.
    """
    ended = [trial.result.elapsed for trial in state.trials if trial.launched and trial.result is not None]
    starts = state.start_seconds(iterations) or ended
    start = float(np.median(starts)) if starts else DEFAULT_START_SECONDS
    return (start + (1 - risk) * seconds * (iterations - 1)) * nodes / 3600


def proposal_node_hours(proposal: Proposal, state: StudyState, iterations: int) -> float:
    """Return the expected node-hours of a proposal."""
    return job_node_hours(state, seconds=proposal.estimate_sec or 0.0, nodes=proposal.nodes, iterations=iterations)


def running_node_hours(state: StudyState, iterations: int) -> float:
    """Return the node-hours that the running jobs are expected to need."""
    return sum(proposal_node_hours(trial.proposal, state, iterations) for trial in state.trials if trial.result is None)


def shown_hours(node_hours: float) -> str:
    """Return node-hours with one decimal; below one, with two digits."""
    return f"{node_hours:,.1f}" if node_hours >= 0.95 else f"{node_hours:.2g}"
