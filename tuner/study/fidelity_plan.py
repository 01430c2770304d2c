"""At which size each trial of a study runs, and which topologies are measured at full size in the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple, cast

import numpy as np

from tuner.core.fidelity import EXTRA_ITERATIONS, Fidelity, FidelityMode, without_ramp
from tuner.core.outcomes import Outcome
from tuner.costmodel.normal import below
from tuner.launch.contract import Job, Launcher
from tuner.search.acquisition import Suggestion, improvement, net_saving
from tuner.search.candidates import CandidatePool
from tuner.search.constants import MAX_FIRST_RISK
from tuner.search.extrapolation import ReducedSize
from tuner.search.fidelities import fidelities
from tuner.search.time_posterior import revealed
from tuner.study.job_costs import JobCosts
from tuner.study.limits import LEADER_RAN_ONCE, MIN_LEADER_RUNS
from tuner.study.ranking import EXTRAPOLATES
from tuner.study.settings import StudySettings
from tuner.study.state import LEAST_DEVIATION, Prospect, StudyState
from tuner.study.store.trial import Trial

FIDELITY: Final = "fidelity"
"""The study's attribute that stores at which sizes its trials run."""

MAX_REDUCED_RISK: Final = 0.2
"""Probability of running out of memory above which a reduced size is not tried: its sharded states are larger."""

MIN_FULL_NODE_HOURS: Final = 1.0
"""Node-hours of a full-size job above which a study uses reduced sizes by default: below, all its jobs cost little, and
the errors of small ones cost more than they save."""

SHORTLIST: Final = 16
"""Topologies, those with the best acquisition, of which the sizes are compared."""

MIN_CONFIRMED: Final = 2
"""Topologies that are measured at full size in the end: the leader and its runner-up."""

MIN_GAIN: Final = 0.002
"""Share of the time to finish that trials which cost as much as one at full size must be expected to save, be they of
the search or, beyond those of the leader and its runner-up, confirmations."""


class Expected(NamedTuple):
    """The prediction for a job before it runs; deviations exclude the noise of runs."""

    log_seconds: float
    """Logarithm of its seconds; those of a reduced size are projected to the full one."""
    deviation: float
    log_full: float
    """Logarithm of the seconds of the full size."""
    revealed: float
    """Standard deviation by which its result is expected to move how the topology compares with the leader."""
    chance: float
    """Probability that the topology finishes sooner than the leader."""


class Size(NamedTuple):
    """One size at which a topology may be tried."""

    fidelity: Fidelity | None
    """None: the full size."""
    seconds: float
    """Expected seconds of an iteration, at the largest batch."""
    node_hours: float
    """Expected cost; GPUs that a job leaves idle on its only node cost nothing."""
    risk: float
    """Probability of running out of memory."""
    expected: Expected


class Choice(NamedTuple):
    """A topology to try, and at which size."""

    suggestion: Suggestion
    size: Size
    gain: float
    """Expected saving, as a share of the time to finish."""
    least: float
    """The minimum saving that justifies its cost."""


@dataclass(frozen=True, kw_only=True)
class FidelityPlan:
    """Chooses topology and size of each trial of one study."""

    state: StudyState
    iterations: int
    """The last iteration of a job at full size."""
    measured: int = 1
    """How many of them it measures."""
    several_batches: bool
    trial_nodes: int | None = None
    """The most nodes that any job may have; None: those of the cluster."""
    _reductions: dict[int, list[tuple[Fidelity, ReducedSize]]] = field(default_factory=dict)
    """Legal reduced sizes of candidates that were asked for."""

    @cached_property
    def nodes(self) -> tuple[int, int] | None:
        """The fewest and the most nodes of reduced jobs of the topologies that are expected to finish soonest.

        None if none of them can be reduced.
        """
        found = [fidelity.nodes for candidate in self._soonest for fidelity, _ in self._reduced(candidate)]
        return (min(found), max(found)) if found else None

    @property
    def pays(self) -> bool:
        """Whether jobs at full size of the topologies that are expected to finish soonest cost enough to save on."""
        seconds = np.exp(self.state.surrogate.time.log_seconds())
        hours = [self._node_hours(float(seconds[candidate]), candidate) for candidate in self._soonest]
        return float(np.median(hours)) >= MIN_FULL_NODE_HOURS

    @cached_property
    def _soonest(self) -> list[int]:
        finish = self.state.surrogate.time.log_seconds() + self.state.pool.work
        found: list[int] = np.argsort(finish, kind="stable")[:SHORTLIST].tolist()
        return found

    def choose(self) -> Choice | None:
        """Return the topology and size with the largest expected improvement per node-hour; None if none is open.

        A topology that has no size on the nodes that trials may have, or none left, makes room for others.
        """
        while suggestions := self.state.shortlist(SHORTLIST):
            sizes = self.sizes([suggestion.candidate for suggestion in suggestions])
            choices = [self._choice(suggestion, own) for suggestion, own in zip(suggestions, sizes, strict=True) if own]
            if choices:
                return max(choices, key=lambda choice: choice.gain / choice.size.node_hours)
            self.state.open[[suggestion.candidate for suggestion in suggestions]] = False
        return None

    def close_larger(self) -> None:
        """Close topologies whose replica needs more nodes than a trial may have."""
        if self.trial_nodes is None:
            return
        for start, part in zip(self.state.pool.starts, self.state.pool.parts, strict=False):
            replica = -(-(part.tp * part.pp * part.cp) // part.cluster.gpus_per_node)
            self.state.open[start : start + len(replica)] &= replica <= self.trial_nodes

    def _choice(self, suggestion: Suggestion, sizes: Sequence[Size]) -> Choice:
        """Return the size of a topology with the largest expected improvement per node-hour.

        A topology that leads after a reduced trial runs again at full size, which is part of that trial's cost.
        """
        best, expected = self.state.log_best, sizes[0].expected
        finish = expected.log_full + float(self.state.pool.work[suggestion.candidate])

        def gain(size: Size) -> float:
            moved = np.array([size.expected.revealed])
            improved = improvement(np.array([finish]), moved, finish if best is None else best)[0]
            return float(net_saving(gain=float(improved), risk=size.risk))

        likely = expected.chance if best is not None and self.trial_nodes is None else 0.0
        confirmation = likely * self._node_hours(math.exp(expected.log_full), suggestion.candidate)

        def rate(size: Size) -> float:
            return gain(size) / (size.node_hours + (0.0 if size.fidelity is None else confirmation))

        size = max(sizes, key=rate)
        if best is not None:
            suggestion = replace(suggestion, chance=expected.chance)
        return Choice(suggestion, size, gain(size), self.least_gain(suggestion.candidate, size))

    def least_gain(self, candidate: int, size: Size) -> float:
        """Return the saving from which on a trial of this size is worth its cost."""
        return MIN_GAIN * size.node_hours / self._node_hours(math.exp(size.expected.log_full), candidate)

    def sizes(self, candidates: Sequence[int]) -> list[list[Size]]:
        """Return the sizes at which each topology may be tried next: none at which it has run out of memory."""
        surrogate, costs = self.state.surrogate, self._costs
        cut = [(candidate, *reduction) for candidate in candidates for reduction in self._reduced(candidate)]
        risks = surrogate.memory.reduced_out_of_memory([(candidate, reduced) for candidate, _, reduced in cut])
        whole = surrogate.memory.out_of_memory()
        jobs: list[tuple[int, Fidelity | None, ReducedSize | None, float]] = [
            (candidate, fidelity, reduced, risk)
            for (candidate, fidelity, reduced), risk in zip(cut, risks.tolist(), strict=True)
            if fidelity.dp > self._largest_failed(candidate)
            and risk <= (MAX_REDUCED_RISK if self._fits(candidate) else MAX_FIRST_RISK)
        ]
        jobs += [(candidate, None, None, float(whole[candidate])) for candidate in candidates if self._fits(candidate)]
        found: dict[int, list[Size]] = {candidate: [] for candidate in candidates}
        expected = self._expected([(candidate, reduced) for candidate, _, reduced, _ in jobs])
        for (candidate, fidelity, reduced, risk), job in zip(jobs, expected, strict=True):
            seconds, nodes, share = [math.exp(job.log_seconds)], self.state.pool.topology(candidate).nodes, 1.0
            if fidelity is not None and reduced is not None:
                site, nodes = surrogate.time.model.site, fidelity.nodes
                share = self._share_of_nodes(candidate, fidelity)
                factor = math.exp(job.log_seconds - reduced.level(site))
                seconds = [float(value) * factor for value in reduced.seconds(site)]
            extra = 0 if fidelity is None else EXTRA_ITERATIONS
            hours = costs.node_hours(seconds=sum(seconds), nodes=nodes, extra=extra) * share
            size = Size(fidelity=fidelity, seconds=seconds[-1], node_hours=hours, risk=risk, expected=job)
            found[candidate].append(size)
        return [found[candidate] for candidate in candidates]

    def _expected(self, jobs: Sequence[tuple[int, ReducedSize | None]]) -> list[Expected]:
        """Return the prediction for each job, of a topology at full or at a reduced size."""
        if not jobs:
            return []
        leaders, work = [prospect.candidate for prospect in self.state.prospects()[:1]], self.state.pool.work
        surrogate, count = self.state.surrogate, len(jobs)
        full = [(candidate, None) for candidate in dict.fromkeys([*(candidate for candidate, _ in jobs), *leaders])]
        at = {candidate: count + row for row, (candidate, _) in enumerate(full)}
        means, covariance = surrogate.time.joint([*jobs, *full])
        found = []
        for row, (candidate, size) in enumerate(jobs):
            own, ahead, beside = at[candidate], 0.0, np.zeros(len(means))
            beside[own] += 1
            for leader in leaders:
                beside[at[leader]] -= 1
                ahead = float(means[at[leader]] + work[leader] - means[own] - work[candidate])
            noise = surrogate.trust.repeat**2 + (0.0 if size is None else size.variance)
            apart = math.sqrt(max(float(beside @ covariance @ beside), LEAST_DEVIATION**2))
            found.append(
                Expected(
                    log_seconds=float(means[row]),
                    deviation=math.sqrt(max(float(covariance[row, row]), LEAST_DEVIATION**2)),
                    log_full=float(means[own]),
                    revealed=max(revealed(beside, covariance, row, noise), LEAST_DEVIATION),
                    chance=float(below(np.array([ahead / apart]))[0]),
                )
            )
        return found

    def _share_of_nodes(self, candidate: int, fidelity: Fidelity) -> float:
        """Return the share of its nodes' GPUs that a reduced job uses."""
        topology, gpus = self.state.pool.topology(candidate), self.state.pool.setting(candidate)[1].gpus_per_node
        return topology.gpus * fidelity.dp / topology.dp / (fidelity.nodes * gpus)

    def _fits(self, candidate: int) -> bool:
        """Whether the nodes that trials may have suffice for the full size."""
        return self.trial_nodes is None or self.state.pool.topology(candidate).nodes <= self.trial_nodes

    def repeated(self, candidates: Sequence[int]) -> list[Size | None]:
        """Return the size at which each candidate ran last, where it may run again at that size."""
        last = {trial.proposal.candidate: trial.proposal.fidelity for trial in self.state.trials}
        return [
            next((size for size in sizes if size.fidelity == last[candidate]), None)
            for candidate, sizes in zip(candidates, self.sizes(candidates), strict=True)
        ]

    def next_full(self) -> tuple[int, str] | None:
        """Return the topology that is to run at full size next, and why; None if no other run is worth it.

        Leader and runner-up are measured at full size, the leader twice, where one more run may fail. Beyond that, a
        rival or the leader runs where that is expected to save more than `MIN_GAIN`.
        """
        prospects = self.state.prospects()
        if not prospects or self.trial_nodes is not None:
            return None
        leader, *others = prospects
        if not leader.full:
            return leader.candidate, "measured at full size because it leads by extrapolation"
        unconfirmed = next((other for other in others if not other.full), None)
        if unconfirmed is not None and sum(prospect.full for prospect in prospects) < MIN_CONFIRMED:
            return unconfirmed.candidate, "measured at full size because it is the runner-up"
        runs = self._runs
        launched = [trial.proposal.candidate for trial in self.state.trials if trial.launched and not trial.reduced]
        if runs[leader.candidate] < MIN_LEADER_RUNS >= launched.count(leader.candidate):
            return leader.candidate, LEADER_RAN_ONCE
        rival = max(others, key=lambda other: self._saving(leader, other), default=None)
        if rival is None or (saving := self._saving(leader, rival)) < MIN_GAIN:
            return None
        if not rival.full:
            return rival.candidate, f"measured at full size because that is expected to save {saving:.2%}"
        fewer = min((leader, rival), key=lambda prospect: runs[prospect.candidate])
        return fewer.candidate, f"repeated because that is expected to save {saving:.2%}"

    @property
    def _runs(self) -> dict[int, int]:
        """The runs of each ranked topology, by candidate."""
        return {ranked.candidate: ranked.runs for ranked in self.state.ranking}

    def _saving(self, leader: Prospect, other: Prospect) -> float:
        """Return the share of the time to finish that another run is expected to save by a better choice of the two."""
        return float(improvement(np.array([other.mean]), np.array([other.moved]), leader.mean)[0])

    @property
    def reserve(self) -> float:
        """Node-hours that the confirmations are expected to take: of the leader, again of it, and of its runner-up."""
        if self.trial_nodes is not None:
            return 0.0  # nothing runs at full size
        work, runs = self.state.pool.work, self._runs
        return sum(
            self._node_hours(math.exp(prospect.mean - float(work[prospect.candidate])), prospect.candidate)
            * max(0, count - (runs.get(prospect.candidate, 0) if prospect.full else 0))
            for prospect, count in zip(self.state.prospects(), (MIN_LEADER_RUNS, 1), strict=False)
        )

    def _reduced(self, candidate: int) -> list[tuple[Fidelity, ReducedSize]]:
        if candidate not in self._reductions:
            topology, (workload, cluster) = self.state.pool.topology(candidate), self.state.pool.setting(candidate)
            measured = self.measured + EXTRA_ITERATIONS
            found = fidelities(
                topology, workload, cluster, several_batches=self.several_batches, most_nodes=self.trial_nodes
            )
            self._reductions[candidate] = [
                (fidelity, ReducedSize.of(fidelity, topology, workload, cluster, iterations=measured))
                for fidelity in found
            ]
        return self._reductions[candidate]

    def _largest_failed(self, candidate: int) -> int:
        """Return the largest data parallel degree at which a reduced job of a candidate ran out of memory, or 0."""
        return max(
            (
                trial.proposal.fidelity.dp
                for trial in self.state.trials
                if trial.proposal.candidate == candidate
                and trial.proposal.fidelity is not None
                and trial.result is not None
                and trial.result.outcome is Outcome.OOM
            ),
            default=0,
        )

    @property
    def _costs(self) -> JobCosts:
        return JobCosts.of(self.state, self.iterations)

    def _node_hours(self, seconds: float, candidate: int) -> float:
        """Return the node-hours of a job of full size with iterations of so many seconds."""
        return self._costs.node_hours(seconds=seconds, nodes=self.state.pool.topology(candidate).nodes)


def plan_of(settings: StudySettings, state: StudyState, launcher: Launcher) -> FidelityPlan | None:
    """Return a study's plan, and store the parts that later commands need.

    It is None where all trials run at full size, as where no final round could confirm others or none is legal.
    """
    store, extrapolates = state.store, settings.trial_nodes is not None
    if store.attributes.get(EXTRAPOLATES, False) != extrapolates:
        store.set_attribute(EXTRAPOLATES, extrapolates)  # so that every reader ranks the trials alike
    plan = FidelityPlan(
        state=state,
        iterations=max(settings.iterations),
        measured=len(settings.iterations),
        several_batches=launcher.several_batches,
        trial_nodes=settings.trial_nodes,
    )
    mode = _mode(settings, state)
    if mode is None:
        mode = "auto" if settings.fixed_size is None and plan.pays else "full"
    if store.attributes.get(FIDELITY) != mode:
        store.set_attribute(FIDELITY, mode)
    if mode == "full" or (not settings.limits.final and not extrapolates):
        return None
    plan.close_larger()
    return plan if plan.nodes or extrapolates else None


def _mode(settings: StudySettings, state: StudyState) -> FidelityMode | None:
    """Return the sizes of trials that are asked for, or else those that the study was begun with; None in a new one."""
    if settings.trial_nodes is not None:
        return "auto"
    if settings.fidelity is not None:
        return settings.fidelity
    trials = state.store.trials()
    begun = "auto" if any(trial.reduced for trial in trials) else "full" if trials else None
    return cast("FidelityMode | None", state.store.attributes.get(FIDELITY, begun))


def job_of(trial: Trial, pool: CandidatePool, folder: Path, iterations: tuple[int, ...]) -> Job:
    """Return the job of a trial, at the size at which it runs; `folder` is the study's."""
    candidate, fidelity = trial.proposal.candidate, trial.proposal.fidelity
    workload, cluster = pool.setting(candidate)
    topology = pool.topology(candidate)
    batches: tuple[int, ...] = ()
    if fidelity is not None:
        workload, batches = without_ramp(workload), fidelity.batches(topology)
        iterations += tuple(max(iterations) + extra for extra in range(1, EXTRA_ITERATIONS + 1))
        topology = fidelity.topologies(topology)[-1]
    return Job(
        number=trial.number,
        tag=trial.proposal.tag,
        folder=trial.job_folder(folder),
        workload=workload,
        cluster=cluster,
        topology=topology,
        iterations=iterations,
        batches=batches if len(batches) > 1 else (),
    )
