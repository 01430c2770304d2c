"""What to launch next, and when to stop: the search, the reference runs and the final round."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tuner.core.documents import topology_document
from tuner.core.text import span
from tuner.search.acquisition import Suggestion
from tuner.study.drift import periods_of
from tuner.study.limits import MIN_EXPECTED_GAIN, Limits
from tuner.study.ranking import INTERVAL, rivals
from tuner.study.state import StudyState
from tuner.study.store.owner import this_worker
from tuner.study.store.trial import Proposal, ProposalKind, Trial

DEFAULT_START_SECONDS: Final = 120.0
"""Seconds until the end of a job's first iteration, before any job was measured."""

MAX_FIRST_OOM_RISK: Final = 0.99
"""Probability of running out of memory at which even the safest candidate is not tried while nothing has run."""

_STOPPING: Final = "stopping"
"""The study's attribute that stores why its search has stopped."""


class Scheduler:
    """Decides for one process what to launch next; the other processes' jobs stand in the study."""

    def __init__(self, state: StudyState, limits: Limits, *, sampler: str, iterations: int) -> None:
        self._state, self._limits = state, limits
        self._sampler, self._iterations = sampler, iterations
        self._owner: Mapping[str, Any] = this_worker()
        self.stopping: str | None = self._stored_stop()
        """Why the search has stopped; the final round may still be under way."""
        self._speed_periods = periods_of(state.store.attributes.get("eras", []))
        self.finished: str | None = None
        """Why nothing more is launched."""

    def next(self, elapsed: Callable[[], float]) -> Proposal | None:
        """Return the next job, or None where none is wanted now; `elapsed` returns seconds since the study began."""
        if self._state.launched < self._limits.search and self._state.speed_periods != self._speed_periods:
            self.stopping = None  # at another speed of the cluster, other topologies may be worth a job
        self._speed_periods = self._state.speed_periods
        before = self.stopping
        self._check_limits(elapsed)
        if self.finished is not None:
            return None
        proposal = self._reference() or self._search() if self.stopping is None else None
        if self.stopping != before:
            self._state.store.set_attribute(_STOPPING, {"limits": self._limits.document(), "why": self.stopping})
        return self._final() if proposal is None else proposal

    def _stored_stop(self) -> str | None:
        """Return why an earlier process with the same limits stopped the search.

        The final round may change the surrogate's mind, and the same command must end the same way twice.
        """
        stored = self._state.store.attributes.get(_STOPPING, {})
        why = stored.get("why") if stored.get("limits") == self._limits.document() else None
        return None if why is None else str(why)

    def _check_limits(self, elapsed: Callable[[], float]) -> None:
        limits, launched = self._limits, self._state.launched
        if launched >= limits.budget:
            self.finished = f"the budget of {limits.budget} jobs is used up"
        elif limits.node_hours is not None and self._state.node_hours >= limits.node_hours:
            self.finished = f"{self._state.node_hours:,.1f} of {limits.node_hours:,.1f} node-hours are used"
        elif limits.deadline is not None and elapsed() >= limits.deadline:
            self.finished = f"the deadline of {limits.deadline / 3600:.3g} h has passed"
        elif self.stopping is not None:
            return
        elif limits.final and self._state.ranking and launched >= limits.search:
            self.stopping = f"the last {limits.final} of {limits.budget} jobs are reserved for the final round"
        elif limits.patience is not None and self._jobs_since_best() >= limits.patience:
            self.stopping = f"no improvement in {limits.patience} consecutive jobs"

    def _search(self) -> Proposal | None:
        suggestion = self._state.proposer.next(self._state.open, self._state.log_best)
        if suggestion is None:
            self.stopping = self._nothing_left()
            return None
        self.stopping = self._unprofitable(suggestion)
        if self.stopping:
            return None
        return self._proposal(
            suggestion.candidate, why=self._reason(suggestion), out_of_memory=suggestion.out_of_memory
        )

    def _nothing_left(self) -> str:
        exhausted = not self._state.open.any() or self._state.ranking
        return "every legal topology that may win was tried" if exhausted else self._nothing_fits()

    def _nothing_fits(self) -> str:
        candidate, times = self._state.surrogate.least_need()
        key = self._state.pool.topology(candidate).key
        return f"no topology is likely to fit: even {key} would need {times:.1f} times the memory of a GPU"

    def _reference(self) -> Proposal | None:
        """Return a repeat of the leader where it is time to look for drift."""
        state = self._state
        launched = [trial for trial in state.trials if trial.launched]
        if not state.ranking or any(trial.result is None and trial.proposal.repeat for trial in launched):
            return None
        last = max((index for index, trial in enumerate(launched) if trial.proposal.kind == "reference"), default=0)
        due = self._limits.final and len(launched) - last > self._limits.reference_interval
        if not state.drift_suspected and not due:
            return None
        since = state.speed_periods[-1].first if state.speed_periods else 0
        earlier = [ranked for ranked in state.ranking if since <= max(ranked.trials) < launched[-1].number]
        if state.drift_suspected:  # another topology than the last
            fewest = min((ranked.runs for ranked in earlier), default=0)
            earlier = [ranked for ranked in earlier if ranked.runs == fewest]
        if not earlier:
            return None
        why = "repeated to detect drift"
        if state.drift_suspected:
            why += ": the last repeat differed by more than noise"
        return self._proposal(earlier[0].candidate, kind="reference", why=why)

    def _final(self) -> Proposal | None:
        """Return a repeat of the leader or of its closest rival until they are separated."""
        if any(trial.result is None for trial in self._state.trials):
            return None  # a running job may yet lead
        tied = rivals(self._state.ranking)
        repeats = sum(trial.proposal.kind == "final" and trial.launched for trial in self._state.trials)
        if not tied or repeats >= self._limits.final:
            self.finished = self.stopping
            if self._state.launched >= self._limits.search:
                self.finished = (
                    "the final round is used up" if tied else "the leader is statistically separated from all others"
                )
            return None
        leader, rival = self._state.ranking[0], tied[0]
        fewer = min((leader, rival), key=lambda ranked: ranked.runs)
        why = f"repeated because {rival.key} has a {rival.chance_sooner:.0%} chance to be sooner than {leader.key}"
        return self._proposal(fewer.candidate, kind="final", why=why)

    def _unprofitable(self, suggestion: Suggestion) -> str | None:
        """Return why the next job would not pay, or None where it would."""
        gain, risk = suggestion.gain, suggestion.out_of_memory
        if gain is None or risk is None:
            return None
        if not self._state.ranking:
            return None if risk < MAX_FIRST_OOM_RISK else self._nothing_fits()
        expected = gain * (1 - risk)
        if expected < MIN_EXPECTED_GAIN:
            return f"no job is expected to shorten the training by more than {MIN_EXPECTED_GAIN:.2%}"
        if not self._limits.stop_when_unprofitable:
            return None
        leader = self._state.ranking[0]
        nodes = self._state.pool.topology(leader.candidate).nodes
        saved, cost = expected * leader.days * 24 * nodes, self._cost(suggestion.candidate)
        if saved >= cost:
            return None
        return (
            f"the next job would cost {cost:,.1f} node-hours and is expected to save {saved:,.1f} "
            f"({expected:.2%} of {span(leader.days)} on {nodes} nodes)"
        )

    def _cost(self, candidate: int) -> float:
        """Return the expected node-hours of a job."""
        return job_node_hours(
            seconds=math.exp(float(self._state.surrogate.log_seconds()[candidate])),
            starts=self._state.start_seconds(self._iterations),
            iterations=self._iterations,
            nodes=self._state.pool.topology(candidate).nodes,
        )

    def _proposal(
        self, candidate: int, *, kind: ProposalKind = "search", why: str, out_of_memory: float | None = None
    ) -> Proposal:
        state = self._state
        risk = float(state.surrogate.out_of_memory()[candidate]) if out_of_memory is None else out_of_memory
        topology = state.pool.topology(candidate)
        mean, deviation = (float(values[0]) for values in state.surrogate.measured([candidate]))
        return Proposal(
            key=topology.key,
            candidate=candidate,
            nodes=topology.nodes,
            params=state.space.values(candidate),
            topology=topology_document(topology),
            kind=kind,
            repeat=next_repeat(candidate, state.trials),
            setting=state.pool.part(candidate),
            why=why,
            estimate_sec=math.exp(mean),
            estimate_low=math.exp(mean - INTERVAL * deviation),
            estimate_high=math.exp(mean + INTERVAL * deviation),
            out_of_memory=risk,
            tag=uuid.uuid4().hex,
            worker=self._owner,
        )

    def _reason(self, suggestion: Suggestion) -> str:
        if suggestion.gain is None:
            rejected = f" after {suggestion.rejected} rejected proposals" if suggestion.rejected else ""
            return f"proposed by the {self._sampler} sampler{rejected}"
        if not self._state.ranking:
            return "fastest by estimate among those likely to fit"
        return f"{suggestion.chance:.0%} chance to beat the best, expected gain {suggestion.gain:.2%}"

    def _jobs_since_best(self) -> int:
        """Return the number of search jobs that ended after the leader was first measured."""
        if not self._state.ranking:
            return 0
        first = min(self._state.ranking[0].trials)
        return sum(
            trial.number > first and trial.result is not None and trial.launched and trial.proposal.kind == "search"
            for trial in self._state.trials
        )


def job_node_hours(*, seconds: float, starts: Sequence[float], iterations: int, nodes: int) -> float:
    """Return `nodes * (start + (iterations - 1) * seconds) / 3600`.

    `start`, the time until the first iteration is over, is the median of earlier jobs' `starts`.
    """
    start = float(np.median(starts)) if starts else DEFAULT_START_SECONDS
    return (start + seconds * (iterations - 1)) * nodes / 3600


def next_repeat(candidate: int, trials: Sequence[Trial]) -> int:
    """Return a repeat number that no launched trial of the candidate has, which keeps its claim free.

    Counting the trials is not enough: one that was withdrawn since leaves a gap, and the count names a taken number.
    """
    taken = (trial.proposal.repeat for trial in trials if trial.launched and trial.proposal.candidate == candidate)
    return max(taken, default=-1) + 1
