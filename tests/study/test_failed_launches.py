"""Jobs of a study that do not start or cannot be cancelled, with a scripted launcher."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.study.scripted import running_of, stored
from tuner.core.errors import LaunchError
from tuner.core.fidelity import Fidelity
from tuner.core.outcomes import Outcome
from tuner.study.watchdog import StopDecision

SMALL_SIZE = Fidelity(nodes=1, dp=1, micro_batches=(1,))


def test_a_reduced_job_that_does_not_start_is_a_failed_launch(study: Callable[..., Any]) -> None:
    """A failed launch at a reduced size counts as a failure if enough nodes are free for that size."""
    made, launcher, _ = study()
    launcher.nodes = 2
    large = int(np.flatnonzero(made.pool.column("nodes") == 4)[0])
    proposal = made.scheduler._proposal(large, why="small")
    for number in range(3):
        reduced = replace(proposal, repeat=number, tag=str(number), fidelity=SMALL_SIZE)
        trial = made.store.claim(reduced, made.state.space.distributions)
        if number < 2:
            made._launch_failed(trial, LaunchError("no more files."))
            continue
        with pytest.raises(LaunchError, match="3 jobs in a row could not be started"):
            made._launch_failed(trial, LaunchError("no more files."))


def test_a_job_that_cannot_be_cancelled_stays_open_and_is_reported_once(study: Callable[..., Any]) -> None:
    made, launcher, events = study()
    running = running_of(made, launcher, ran=5.0)

    def refuse(_handle: str) -> None:
        raise LaunchError("not now.")

    launcher.cancel = refuse
    events.clear()
    for _ in range(2):
        made._stop(running, StopDecision(outcome=Outcome.PRUNED, reason="why"))
    assert [(event.kind, event.text) for event in events] == [("note", "not now.")]
    assert (list(made.running.values()), stored(made)) == ([running], None)
