"""Estimate the node-hours of a job before it runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner.study.fidelity_plan import DEFAULT_START_SECONDS
from tuner.study.state import StudyState
from tuner.study.store.trial import Proposal


def job_node_hours(*, seconds: float, starts: Sequence[float], iterations: int, nodes: int) -> float:
    """Return `nodes * (start + (iterations - 1) * seconds) / 3600`.

    `start`, the time until the first iteration is over, is the median of earlier jobs' `starts`.
    """
    start = float(np.median(starts)) if starts else DEFAULT_START_SECONDS
    return (start + seconds * (iterations - 1)) * nodes / 3600


def proposal_node_hours(proposal: Proposal, state: StudyState, iterations: int) -> float:
    """Return the expected node-hours of a proposal; until a job was measured, it starts as long as others took."""
    ended = [trial.result.elapsed for trial in state.trials if trial.launched and trial.result is not None]
    starts = state.start_seconds(iterations) or ended
    seconds = proposal.estimate_sec or 0.0
    return job_node_hours(seconds=seconds, starts=starts, iterations=iterations, nodes=proposal.nodes)


def running_node_hours(state: StudyState, iterations: int) -> float:
    """Return the node-hours that the running jobs are expected to need."""
    return sum(proposal_node_hours(trial.proposal, state, iterations) for trial in state.trials if trial.result is None)


def shown_hours(node_hours: float) -> str:
    """Return node-hours with one decimal; below one, with two digits."""
    return f"{node_hours:,.1f}" if node_hours >= 0.95 else f"{node_hours:.2g}"
