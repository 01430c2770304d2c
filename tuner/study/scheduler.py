"""What is launched next, and when nothing more is: the search, the reference runs, the final round."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from tuner.core.documents import topology_document
from tuner.core.text import span
from tuner.search.acquisition import Choice
from tuner.search.samplers import Idea
from tuner.study.drift import eras_of
from tuner.study.limits import NEGLIGIBLE, Limits
from tuner.study.ranking import INTERVAL, rivals
from tuner.study.state import StudyState
from tuner.study.store.owner import this_worker
from tuner.study.store.trial import Kind, Proposal

UNKNOWN_START: Final = 120.0
"""Seconds until the first iteration is over, before any job has shown it."""


HOPELESS: Final = 0.99
"""Probability of running out of memory at which the safest candidate is not tried while nothing has run."""


_STOPPING: Final = "stopping"


class Scheduler:
    """Decides for one process; what the others do it sees in the study."""

    def __init__(self, knowledge: StudyState, limits: Limits, *, sampler: str, iterations: int) -> None:
        self._known, self._limits = knowledge, limits
        self._sampler, self._iterations = sampler, iterations
        self._worker: Mapping[str, Any] = this_worker()
        self.stopping: str | None = self._as_kept()
        """Why nothing more is searched for; the final round may still be on."""
        self._eras = eras_of(knowledge.study.attributes.get("eras", []))
        self.finished: str | None = None
        """Why nothing more is launched."""

    def next(self, elapsed: Callable[[], float]) -> Proposal | None:
        """The next job, or None where none is wanted now; `elapsed` tells the seconds since the study began."""
        if self._known.launched < self._limits.search and self._known.eras != self._eras:
            self.stopping = None  # on a cluster that has changed, others may be worth a job
        self._eras = self._known.eras
        before = self.stopping
        self._check(elapsed)
        if self.finished is not None:
            return None
        found = self._reference() or self._search() if self.stopping is None else None
        if self.stopping != before:
            self._known.study.note(_STOPPING, {"limits": asdict(self._limits), "why": self.stopping})
        return self._final() if found is None else found

    def _as_kept(self) -> str | None:
        """Why an earlier process with the same limits has searched no more: what the final round shows may make the
        belief think again, and then the same command would never end the same way twice."""
        kept = self._known.study.attributes.get(_STOPPING, {})
        why = kept.get("why") if kept.get("limits") == asdict(self._limits) else None
        return None if why is None else str(why)

    def _check(self, elapsed: Callable[[], float]) -> None:
        limits, spent = self._limits, self._known.launched
        if spent >= limits.budget:
            self.finished = f"the budget of {limits.budget} jobs is spent"
        elif limits.node_hours is not None and self._known.node_hours >= limits.node_hours:
            self.finished = f"{self._known.node_hours:,.1f} of {limits.node_hours:,.1f} node-hours are spent"
        elif limits.deadline is not None and elapsed() >= limits.deadline:
            self.finished = f"the deadline of {limits.deadline / 3600:.3g} h has passed"
        elif self.stopping is not None:
            return
        elif limits.final and self._known.places and spent >= limits.search:
            self.stopping = f"{limits.final} of {limits.budget} jobs are kept for the final round"
        elif limits.patience is not None and self._without_gain() >= limits.patience:
            self.stopping = f"{limits.patience} jobs in a row brought nothing better"

    def _search(self) -> Proposal | None:
        idea = self._known.proposer.next(self._known.open, self._known.best)
        if idea is None:
            self.stopping = self._nothing_left()
        else:
            self.stopping = self._not_worth(idea)
        return (
            None
            if idea is None or self.stopping
            else self._proposal(idea.candidate, why=self._why(idea), choice=idea.choice)
        )

    def _nothing_left(self) -> str:
        nothing_open = not self._known.open.any() or self._known.places
        return "nothing is left to try" if nothing_open else self._nothing_fits()

    def _nothing_fits(self) -> str:
        candidate, times = self._known.belief.least_need()
        key = self._known.pool.topology(candidate).key
        return f"nothing is likely to fit: even {key} would need {times:.1f} times what a GPU holds"

    def _reference(self) -> Proposal | None:
        """The leader again, where it is time to see whether the cluster has changed."""
        known = self._known
        launched = [trial for trial in known.trials if trial.launched]
        if not known.places or any(trial.ending is None and trial.proposal.repeat for trial in launched):
            return None
        last = max((place for place, trial in enumerate(launched) if trial.proposal.kind == "reference"), default=0)
        if not known.suspected and (not self._limits.final or len(launched) - last <= self._limits.stretch):
            return None
        since = known.eras[-1].first if known.eras else 0
        old = [place for place in known.places if since <= max(place.trials) < launched[-1].number]
        if known.suspected:  # another one than the last
            fewest = min((place.runs for place in old), default=0)
            old = [place for place in old if place.runs == fewest]
        if not old:
            return None
        question = "its last repeat differed more than noise does" if known.suspected else "has the cluster changed?"
        return self._proposal(old[0].candidate, kind="reference", why=f"run again: {question}")

    def _final(self) -> Proposal | None:
        """Run the leader and those close to it again, until they are told apart."""
        if any(trial.ending is None for trial in self._known.trials):
            return None  # what still runs may yet lead
        close = rivals(self._known.places)
        again = sum(trial.proposal.kind == "final" and trial.launched for trial in self._known.trials)
        if not close or again >= self._limits.final:
            self.finished = self.stopping
            if self._known.launched >= self._limits.search:
                self.finished = "the final round is spent" if close else "the best is told apart from all others"
            return None
        leader, challenger = self._known.places[0], close[0]
        fewer = min((leader, challenger), key=lambda place: place.runs)
        why = f"run again: {challenger.rival:.0%} that {challenger.key} is sooner than {leader.key}"
        return self._proposal(fewer.candidate, kind="final", why=why)

    def _not_worth(self, idea: Idea) -> str | None:
        """Why the next job would not pay, as a sum."""
        choice = idea.choice
        if choice is None:
            return None
        if not self._known.places:
            if choice.out_of_memory < HOPELESS:
                return None
            return self._nothing_fits()
        expected = choice.gain * (1 - choice.out_of_memory)
        if expected < NEGLIGIBLE:
            return f"no job is expected to save more than {NEGLIGIBLE:.2%} of the training"
        if not self._limits.worth:
            return None
        leader = self._known.places[0]
        nodes = self._known.pool.topology(leader.candidate).nodes
        saved, costs = expected * leader.days * 24 * nodes, self._cost(idea.candidate)
        if saved >= costs:
            return None
        return (
            f"the next job would cost {costs:,.1f} node-hours and is expected to save {saved:,.1f} "
            f"({expected:.2%} of {span(leader.days)} on {nodes} nodes)"
        )

    def _cost(self, candidate: int) -> float:
        """Node-hours of a job, by what earlier ones took to start."""
        seconds = math.exp(float(self._known.belief.log_seconds()[candidate]))
        starts = self._known.starts(self._iterations)
        start = float(np.median(starts)) if starts else UNKNOWN_START
        return (start + seconds * (self._iterations - 1)) * self._known.pool.topology(candidate).nodes / 3600

    def _proposal(self, candidate: int, *, kind: Kind = "search", why: str, choice: Choice | None = None) -> Proposal:
        risk = float(self._known.belief.out_of_memory()[candidate]) if choice is None else choice.out_of_memory
        topology = self._known.pool.topology(candidate)
        mean, deviation = (float(each[0]) for each in self._known.belief.measured([candidate]))
        return Proposal(
            key=topology.key,
            candidate=candidate,
            nodes=topology.nodes,
            params=self._known.space.values(candidate),
            topology=topology_document(topology),
            kind=kind,
            repeat=sum(trial.proposal.candidate == candidate for trial in self._known.trials if trial.launched),
            setting=self._known.pool.part(candidate),
            why=why,
            estimate_sec=math.exp(mean),
            estimate_low=math.exp(mean - INTERVAL * deviation),
            estimate_high=math.exp(mean + INTERVAL * deviation),
            out_of_memory=risk,
            tag=uuid.uuid4().hex,
            worker=self._worker,
        )

    def _why(self, idea: Idea) -> str:
        choice = idea.choice
        if choice is None:
            return f"next of {self._sampler}" + (f", {idea.rejected} refused" if idea.rejected else "")
        if not self._known.places:
            return "soonest by the estimate of what is likely to fit"
        return f"{choice.chance:.0%} to be sooner than the best, {choice.gain:.2%} expected"

    def _without_gain(self) -> int:
        """Search jobs that ended since the best one was measured."""
        if not self._known.places:
            return 0
        first = min(self._known.places[0].trials)
        return sum(
            trial.number > first and trial.ending is not None and trial.launched and trial.proposal.kind == "search"
            for trial in self._known.trials
        )
