"""Decide what to launch next, and when to stop: the search, the reference runs and the final round."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from tuner.core.documents import topology_document
from tuner.core.text import DAY, counted, span
from tuner.costmodel.estimate import INTERVAL
from tuner.planning.memory_remedies import nothing_fits
from tuner.search.acquisition import Suggestion
from tuner.search.constants import MIN_EXPECTED_GAIN, OUTLIER_DEVIATIONS
from tuner.search.observations import Surprise
from tuner.study.drift import STORED_AS, SpeedPeriod, periods_of
from tuner.study.fidelity_plan import Choice, FidelityPlan, Size
from tuner.study.job_costs import JobCosts, running_node_hours, shown_hours
from tuner.study.limits import LEADER_RAN_ONCE, MIN_LEADER_RUNS, NO_REPEAT, SEARCH_OVER, Limits
from tuner.study.ranking import best_repeat, gain_of_repeat, rivals
from tuner.study.state import StudyState
from tuner.study.store.owner import this_worker
from tuner.study.store.trial import Proposal, ProposalKind, next_repeat

MAX_FIRST_OOM_RISK: Final = 0.99
"""Probability of running out of memory at which even the safest candidate is not tried while nothing has run."""

RESUME_RATIO: Final = 2.0
"""Ratio of the saving for which a search at full size that has stopped resumes to the one for which it goes on.

One with reduced sizes resumes for the same saving: its first measurements at full size tell most."""

_RESERVED: Final = "the last {} node-hours are reserved to measure the leaders at full size"
_CONTENDER: Final = "repeated because another run is expected to improve the choice by {:.2%}"
_STOPPING: Final = "stopping"
"""The study's attribute that stores why its search has stopped."""


class Scheduler:
    """Decides what one process launches next; the other processes' jobs are read from the study."""

    def __init__(
        self,
        state: StudyState,
        limits: Limits,
        *,
        sampler: str,
        iterations: int,
        memory_remedy: Callable[[], str] = str,
        plan: FidelityPlan | None = None,
    ) -> None:
        self._state, self._limits = state, limits
        self._plan = plan
        """At which sizes trials run; None: all at full size."""
        self._memory_remedy = memory_remedy
        """Returns a sentence about what would fit where nothing does."""
        self._sampler, self._iterations = sampler, iterations
        self._owner: Mapping[str, Any] = this_worker()
        self._by_estimate = False
        """Whether the search has stopped because no job is expected to pay, which the next result may change."""
        self._looks_again = False
        """Whether the search had stopped by its estimates; it resumes only for a saving of `RESUME_RATIO` as much."""
        self._results_seen = 0
        """Results that were known when it stopped."""
        self._speed_periods: list[SpeedPeriod] = []
        self.stopping: str | None = self._stored_stop()
        """Why the search has stopped; the final round may still be under way."""
        self.finished: str | None = None
        """Why nothing more is launched."""

    def next(self, elapsed: float) -> Proposal | None:
        """Return the next job, or None if none is wanted now, so many seconds after the study began."""
        if self._state.launched < self._limits.search and self._state.speed_periods != self._speed_periods:
            self.stopping = None  # at another speed of the cluster, other topologies may be worth a job
        self._speed_periods = self._state.speed_periods
        before = (self.stopping, self._results_seen)
        self._looks_again = self._by_estimate and self._state.results > self._results_seen
        if self._looks_again:
            self.stopping = None  # the last results may have changed the estimates
        self._check_limits(elapsed)
        if self.finished is not None:
            return None
        proposal = None
        if not self._looks_again and (self.stopping is None or self._state.drift_suspected):
            proposal = self._reference()
        if self.stopping is None and proposal is None:
            proposal = self._search()
        if (self.stopping, self._results_seen) != before:
            self._store_stop()
        return self._within_node_hours(self._final() if proposal is None else proposal)

    def _within_node_hours(self, proposal: Proposal | None) -> Proposal | None:
        """Return a proposal, or None if the node-hours that are left are too few; the first job runs anyway.

        With reduced sizes `_reserved` keeps back what the leaders need at full size.
        """
        limit, state = self._limits.node_hours, self._state
        if proposal is None or limit is None or self._plan is not None or not state.launched:
            return proposal
        costs = JobCosts.of(state, self._iterations)
        under_way, cost = running_node_hours(state, costs), costs.of_proposal(proposal)
        if state.node_hours + under_way + cost <= limit:
            return proposal
        if not under_way:
            self.finished = f"{self._used(limit)}, and the next job would need about {shown_hours(cost)}"
        return None

    def _used(self, limit: float) -> str:
        return f"{shown_hours(self._state.node_hours)} of {shown_hours(limit)} node-hours are used"

    def _store_stop(self) -> None:
        stop: dict[str, Any] = {"limits": self._limits.document(), "why": self.stopping}
        stop["speed_periods"] = [period.document() for period in self._speed_periods]
        if self._by_estimate:
            stop["after_results"] = self._results_seen
        self._state.store.set_attribute(_STOPPING, stop)

    def _stored_stop(self) -> str | None:
        """Return why an earlier process with the same limits stopped the search.

        Only results and speed periods since then may change its mind: the same command must end the same way twice.
        """
        attributes = self._state.store.attributes
        stored = attributes.get(_STOPPING, {})
        why = stored.get("why") if stored.get("limits") == self._limits.document() else None
        self._by_estimate = why is not None and "after_results" in stored
        self._results_seen = int(stored.get("after_results", 0))
        self._speed_periods = periods_of(stored.get("speed_periods", attributes.get(STORED_AS, [])))
        return None if why is None else str(why)

    def _check_limits(self, elapsed: float) -> None:
        limits, launched, plan = self._limits, self._state.launched, self._plan
        if launched >= limits.budget:
            self.finished = f"the budget of {counted(limits.budget, 'job')} is used up"
        elif limits.node_hours is not None and self._state.node_hours >= limits.node_hours:
            self.finished = self._used(limits.node_hours)
        elif limits.deadline is not None and elapsed >= limits.deadline:
            self.finished = f"the deadline of {span(limits.deadline / DAY)} has passed"
        elif self.stopping is not None:
            return
        elif reserve := self._reserved():
            self._by_estimate = False
            self.stopping = _RESERVED.format(shown_hours(reserve))
        elif limits.final and self._state.ranking and launched >= limits.search and not (plan and plan.trial_nodes):
            self._by_estimate = False
            self.stopping = SEARCH_OVER.format(limits)
        elif limits.patience is not None and self._jobs_since_best() >= limits.patience:
            self._by_estimate = False
            self.stopping = f"no improvement in {counted(limits.patience, 'consecutive job')}"

    def _reserved(self, cost: float = 0.0) -> float:
        """Return the node-hours that the leaders' confirmation needs where no `cost` more are left for the search, or
        0."""
        if self._plan is None or self._limits.node_hours is None:
            return 0.0
        reserve = self._plan.reserve
        under_way = running_node_hours(self._state, JobCosts.of(self._state, self._iterations))
        used = self._state.node_hours + under_way + cost
        return reserve if used + reserve >= self._limits.node_hours else 0.0

    def _search(self) -> Proposal | None:
        choice = None if self._plan is None else self._plan.choose()
        suggestion = self._state.suggest() if self._plan is None else choice and choice.suggestion
        why = self._nothing_left() if suggestion is None else self._unprofitable(suggestion, choice)
        saving = 0.0 if why is not None or suggestion is None else suggestion.net_saving
        repeat = self._verification(saving) if self._plan is None else self._cheap_verification(choice, self._plan)
        if repeat is not None:
            return repeat
        if why is not None and self._state.pending:
            return None  # running jobs may change the estimates
        self.stopping, self._by_estimate, self._results_seen = why, why is not None, self._state.results
        if suggestion is None or why is not None:
            return None
        if choice is not None and self._state.launched and (reserve := self._reserved(choice.size.node_hours)):
            self.stopping = None if self._state.pending else _RESERVED.format(shown_hours(reserve))
            return None
        risk = None if self._state.pending else suggestion.out_of_memory  # otherwise that with what runs imagined full
        size = None if choice is None else choice.size
        why, chance = self._reason(suggestion), suggestion.chance
        return self._proposal(suggestion.candidate, why=why, out_of_memory=risk, size=size, chance=chance)

    def _verification(self, saving: float) -> Proposal | None:
        """Return a repeat of a contender, of a run that an accident may have slowed down, or of a too fast leader.

        A repeat goes before a job that saves less. A budget without a final round is too small for repeats: each of its
        jobs tries another topology.
        """
        if self._sampler != "guided" or not self._limits.final or (best := self._state.log_best) is None:
            return None
        pending, leader = self._state.pending, self._state.ranking[0].candidate
        chosen, worth = None, max(saving, MIN_EXPECTED_GAIN)
        for surprise in self._state.surrogate.time.surprises():
            if surprise.candidate in pending:
                continue
            if surprise.candidate == leader:
                if surprise.deviations < -OUTLIER_DEVIATIONS:
                    return self._repeat(surprise)
                continue
            gain = gain_of_repeat(surprise, best, self._state.pool.work)
            if gain >= worth:
                chosen, worth = surprise, gain
        contender, value = best_repeat(self._state.ranking, self._state.noise)
        if value >= worth and not pending:  # a running job may yet lead
            return self._proposal(contender.candidate, why=_CONTENDER.format(value))
        return None if chosen is None else self._repeat(chosen)

    def _cheap_verification(self, choice: Choice | None, plan: FidelityPlan) -> Proposal | None:
        """Return a repeat, at the size of the last run, that improves the choice by more per node-hour than `choice`.

        A surprisingly fast leader is repeated by its confirmation at full size.
        """
        state = self._state
        if self._sampler != "guided" or (best := state.log_best) is None:
            return None
        pending, leader, chosen = state.pending, state.prospects()[0].candidate, None
        rate = 0.0 if choice is None else choice.gain / choice.size.node_hours
        surprises = [found for found in state.surrogate.time.surprises() if found.candidate not in (*pending, leader)]
        sizes = plan.repeated([surprise.candidate for surprise in surprises])
        for surprise, size in zip(surprises, sizes, strict=True):
            if size is None:
                continue
            gain = gain_of_repeat(surprise, best, state.pool.work)
            if gain >= plan.least_gain(surprise.candidate, size) and gain / size.node_hours >= rate:
                chosen, rate = surprise, gain / size.node_hours
        return None if chosen is None else self._repeat(chosen)

    def _repeat(self, surprise: Surprise) -> Proposal | None:
        direction = "longer" if surprise.away > 0 else "less"
        why = (
            f"repeated because it took {direction} than the other jobs predict by "
            f"{abs(surprise.deviations):.1f} standard deviations"
        )
        size = None if self._plan is None else self._plan.repeated([surprise.candidate])[0]
        if self._plan is not None and size is None:
            return None
        return self._proposal(surprise.candidate, why=why, size=size)

    def _nothing_left(self) -> str:
        few = self._plan is not None and self._plan.trial_nodes is not None
        exhausted = not few and (not self._state.open.any() or self._state.ranking)
        return "every legal topology that may win was tried" if exhausted else self._nothing_fits()

    def _nothing_fits(self) -> str:
        if self._plan is not None and (few := self._plan.trial_nodes) is not None:
            return f"no {'other ' * bool(self._state.launched)}topology is likely to fit on {counted(few, 'node')}"
        candidate, times = self._state.surrogate.memory.least_need()
        key = self._state.pool.topology(candidate).key
        return nothing_fits(self._memory_remedy(), f"even {key} would need {times:.1f} times the memory of a GPU")

    def _reference(self) -> Proposal | None:
        """Return a repeat of the leader if it is time to check for drift."""
        state = self._state
        launched = [trial for trial in state.trials if trial.launched]
        if (
            not state.ranking
            or self._plan is not None
            or any(trial.result is None and trial.proposal.repeat for trial in launched)
        ):
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
        why = "repeated to detect drift" + ": the last repeat differed by more than noise" * state.drift_suspected
        return self._proposal(earlier[0].candidate, kind="reference", why=why)

    def _final(self) -> Proposal | None:
        """Return a repeat of the leader or of its closest rival until they are separated."""
        if any(trial.result is None for trial in self._state.trials):
            return None  # a running job may yet lead
        if self._plan is not None:
            wanted, limit = self._plan.next_full(), self._limits.node_hours or math.inf
            ran = {trial.proposal.candidate for trial in self._state.trials if trial.measured}
            if wanted and (wanted[0] not in ran or self._state.node_hours + self._cost(wanted[0]) <= limit):
                return self._proposal(wanted[0], kind="final", why=wanted[1])
            over = f"{self._used(limit)}, and a repeat needs more than the rest" if wanted else self.stopping
            self.finished = NO_REPEAT.format(self._limits) if over == SEARCH_OVER.format(self._limits) else over
            return None
        ranking = self._state.ranking
        repeats = self._final_repeats()
        if repeats < self._limits.final and ranking and ranking[0].runs < MIN_LEADER_RUNS:
            return self._proposal(ranking[0].candidate, kind="final", why=LEADER_RAN_ONCE)
        if not rivals(ranking):
            over = "the leader is statistically separated from all others"
        elif repeats >= self._limits.final:
            over = "the final round has no jobs left"
        elif (best := best_repeat(ranking, self._state.noise))[1] < MIN_EXPECTED_GAIN:
            over = f"no repeat is expected to improve the choice by more than {MIN_EXPECTED_GAIN:.2%}"
        else:
            return self._proposal(best[0].candidate, kind="final", why=_CONTENDER.format(best[1]))
        self.finished = over if self._state.launched >= self._limits.search else self.stopping
        return None

    def _final_repeats(self) -> int:
        """Return the final repeats launched since the last search job; earlier ones were of a smaller budget."""
        kinds = [trial.proposal.kind for trial in self._state.trials if trial.launched]
        since = max((index for index, kind in enumerate(kinds) if kind == "search"), default=0)
        return kinds[since:].count("final")

    def _unprofitable(self, suggestion: Suggestion, choice: Choice | None = None) -> str | None:
        """Return why the next job is not worth its cost, or None if it is."""
        gain, risk = suggestion.gain, suggestion.out_of_memory
        if gain is None or risk is None:
            return None
        if not self._state.ranking:
            return None if risk < MAX_FIRST_OOM_RISK else self._nothing_fits()
        pool, expected = self._state.pool, suggestion.net_saving if choice is None else choice.gain
        best_remaining = f"the best remaining trial, {pool.topology(suggestion.candidate).key},"
        resumed = RESUME_RATIO if self._looks_again else 1.0
        least = MIN_EXPECTED_GAIN * resumed if choice is None else choice.least
        if expected < least:
            return (
                f"no job is expected to shorten the training by more than {least:.2%}: "
                f"{best_remaining} by {max(0.0, expected):.3%}"
            )
        if not self._limits.stop_when_unprofitable:
            return None
        leader = self._state.ranking[0]
        nodes = pool.topology(leader.candidate).nodes
        share, cost = gain * (1 - risk), self._cost(suggestion.candidate, risk)
        if choice is not None:
            share, cost = choice.gain, choice.size.node_hours
        saved = share * leader.days * 24 * nodes
        if saved >= cost:
            return None
        return (
            f"{best_remaining} is expected to save {saved:,.1f} node-hours and costs {cost:,.1f} "
            f"({share:.2%} of {span(leader.days)} on {counted(nodes, 'node')})"
        )

    def _cost(self, candidate: int, risk: float = 0.0) -> float:
        """Return the expected node-hours of a job at full size."""
        seconds = math.exp(float(self._state.surrogate.time.log_seconds()[candidate]))
        nodes = self._state.pool.topology(candidate).nodes
        return JobCosts.of(self._state, self._iterations).node_hours(seconds=seconds, nodes=nodes, risk=risk)

    def _proposal(
        self,
        candidate: int,
        *,
        kind: ProposalKind = "search",
        why: str,
        out_of_memory: float | None = None,
        size: Size | None = None,
        chance: float | None = None,
    ) -> Proposal:
        state = self._state
        risk = float(state.surrogate.memory.out_of_memory()[candidate]) if out_of_memory is None else out_of_memory
        topology = state.pool.topology(candidate)
        mean, deviation = (float(values[0]) for values in state.surrogate.time.measured([candidate]))
        fidelity = size.fidelity if size is not None else None
        if size is not None and fidelity is not None:
            mean, deviation, risk = math.log(size.seconds), size.expected.deviation, size.risk
            why = f"{why}; {fidelity}"
        deviation = math.hypot(deviation, state.surrogate.trust.repeat if self._plan else 0.0)  # of a measurement
        return Proposal(
            key=topology.key,
            candidate=candidate,
            nodes=topology.nodes if fidelity is None else fidelity.nodes,
            fidelity=fidelity,
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
            chance=chance,
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
