"""One process's state of a study: its trials, the surrogate trained on them, the ranking, and drift."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from tuner.core.documents import topology_of
from tuner.core.fidelity import EXTRA_ITERATIONS
from tuner.core.outcomes import Outcome
from tuner.core.text import DAY
from tuner.costmodel.calibration import Calibration
from tuner.search.acquisition import Suggestion, shortlist
from tuner.search.candidates import CandidatePool
from tuner.search.extrapolation import ReducedRun, ReducedSize
from tuner.search.observations import Observation, Trust
from tuner.search.parameter_space import ParameterSpace
from tuner.search.samplers import Proposer, proposer
from tuner.search.surrogate import Surrogate
from tuner.search.time_posterior import revealed
from tuner.study import drift
from tuner.study.ranking import RankedTrial, noise, rank
from tuner.study.store.trial import Proposal, Trial
from tuner.study.store.trial_store import TrialStore

INCONCLUSIVE: Final = frozenset({Outcome.CANCELLED, Outcome.PREEMPTED})
"""Outcomes that say nothing about a topology: its job was lost, or stopped from outside."""

RETRYABLE: Final = frozenset({Outcome.HUNG, Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.UNREADABLE})
"""Outcomes that the machines or the trainer may have caused, and not the topology."""

MAX_ATTEMPTS: Final = 2
"""Jobs of one topology that may end with a retryable outcome."""


LEAST_DEVIATION: Final = 1e-4
"""Of a logarithm: below it, rounding decides."""


class Prospect(NamedTuple):
    """A topology that was measured at some size, with the logarithm of the seconds in which it finishes."""

    candidate: int
    mean: float
    moved: float
    """Standard deviation by which another run at full size, of it or of the soonest, moves how the two compare."""
    full: bool
    """Whether it was measured at full size."""


class StudyState:
    """A study as one process has read it."""

    def __init__(
        self,
        pool: CandidatePool,
        store: TrialStore,
        calibration: Calibration,
        *,
        sampler: str,
        seed: int,
        trust: Trust,
        memory_filter: bool = False,
        extrapolates: bool = False,
    ) -> None:
        self.pool, self.store = pool, store
        self._extrapolates = extrapolates
        """Whether topologies measured at a reduced size only are ranked too."""
        self._first_period = calibration.period
        self.surrogate = Surrogate(pool, calibration, period=self._first_period, trust=trust)
        self.space = ParameterSpace(pool)
        self.proposer: Proposer = proposer(sampler, self.surrogate, self.space, seed=seed, memory_filter=memory_filter)
        self.trials: list[Trial] = []
        self.speed_periods: list[drift.SpeedPeriod] = []
        self.ranking: list[RankedTrial] = []
        self.drift_suspected = False
        """Whether the last repeat of a topology differed by more than noise, but not enough to be sure."""
        self.open = np.ones(len(pool), dtype=np.bool_)
        self._tried = set[int]()
        """Candidates with a trial that counts."""
        """Which candidates may be proposed."""
        self._read = set[int]()
        """Trials whose results are known."""
        self._observed: list[int] = []
        """The trial of each observation, in the order in which the surrogate learnt them."""
        self._prospects: list[Prospect] | None = None
        """What `prospects` returns, until something new is known."""
        self._found: dict[str, int] = {}
        """Candidates of tried topologies by key."""

    def read(self) -> drift.SpeedPeriod | None:
        """Learn from all finished trials, whichever process ran them; return a speed period that this reveals.

        What is learnt depends on the order of results, so each is learnt by itself: a resumed study decides as one that
        ran on.
        """
        self.trials, self._prospects = self._numbered(self.store.trials()), None
        fresh = [trial for trial in self.trials if trial.result is not None and trial.number not in self._read]
        before = [self.speed_periods]
        for trial in sorted(fresh, key=lambda trial: (trial.result.clock if trial.result else 0.0, trial.number)):
            if self._learn(trial):
                self._adapt()
                self._detect_drift()
                before.append(self.speed_periods)
        stored = drift.stored_periods(self.store.attributes)
        if is_other := stored not in before:  # those of another process, which learnt the results in another order
            self.speed_periods = stored
            self._relabel()
            if fresh:
                self._detect_drift()
        self._close_tried()
        if fresh or is_other:
            self._rank()
        if self.speed_periods == stored:
            return None
        self.store.set_attribute(drift.STORED_AS, [period.document() for period in self.speed_periods])
        return self.speed_periods[-1]

    @property
    def _known(self) -> list[Trial]:
        """Trials whose topologies are in the pool."""
        return [trial for trial in self.trials if self.has(trial)]

    @property
    def _learnt(self) -> list[Trial]:
        """Those whose results were learnt so far."""
        return [trial for trial in self._known if trial.number in self._read]

    def _numbered(self, trials: list[Trial]) -> list[Trial]:
        """Return the trials with the numbers that this process has for their topologies; -1 if its pool lacks them.

        Which topologies of a very large space a process selects depends on its cost model and calibration, and which
        ones are legal on the laws of its version.
        """
        if len(self.pool.parts) > 1:  # those of a replay, which its rows identify
            return trials
        return [
            trial
            if (number := self._number(trial.proposal)) == trial.proposal.candidate
            else replace(trial, proposal=replace(trial.proposal, candidate=number))
            for trial in trials
        ]

    def _number(self, proposal: Proposal) -> int:
        if proposal.key not in self._found:
            stored = proposal.candidate
            if 0 <= stored < len(self.pool) and self.pool.topology(stored).key == proposal.key:
                self._found[proposal.key] = stored
            else:
                found = self.pool.find(topology_of(proposal.topology))
                self._found[proposal.key] = -1 if found is None else found
        return self._found[proposal.key]

    @property
    def _period_labels(self) -> dict[int, str]:
        return drift.labels(self.trials, self.speed_periods)

    @property
    def noise(self) -> float:
        """Standard deviation of log seconds between runs of one topology."""
        return noise(self._known, self._period_labels, usual=self.surrogate.usual_noise)

    @property
    def pending(self) -> list[int]:
        """Candidates whose jobs have not ended, whichever process runs them."""
        return [trial.proposal.candidate for trial in self.trials if trial.result is None and self.has(trial)]

    def suggest(self) -> Suggestion | None:
        """Return the sampler's next suggestion, as if pending jobs had taken their predicted time."""
        with self._as_if_ended() as best:
            return self.proposer.next(self.open, best)

    def extrapolated(self, trial: Trial) -> float | None:
        """Return the seconds of the full size that a trial at a reduced one predicts."""
        seen = observation_of(trial, "", self.pool)
        if seen is None or seen.reduced is None or not seen.timed:
            return None
        return self.surrogate.time.extrapolated(trial.proposal.candidate, seen.reduced)

    def shortlist(self, count: int) -> list[Suggestion]:
        """Return the open candidates with the best acquisition, as if pending jobs had taken what is expected of them.

        Before anything is measured, it is the one that `suggest` returns.
        """
        if self.log_best is None:
            first = self.suggest()
            return [] if first is None else [first]
        with self._as_if_ended() as best:
            return [] if best is None else shortlist(self.surrogate, best=best, open_to=self.open, count=count)

    @contextmanager
    def _as_if_ended(self) -> Iterator[float | None]:
        """Let pending jobs have taken their predicted time, and yield the soonest finish as `log_best` has it."""
        pending, best = self.pending, self.log_best
        with self.surrogate.imagining(pending):
            expected = self.surrogate.time.measured(pending)[0] + self.pool.work[pending]
            yield min([*([] if best is None else [best]), *expected.tolist()], default=None)

    @property
    def launched(self) -> int:
        """Jobs that count against the budget."""
        return sum(trial.launched for trial in self.trials)

    @property
    def results(self) -> int:
        """Trials that have ended."""
        return sum(trial.result is not None for trial in self.trials)

    @property
    def node_hours(self) -> float:
        """Node-hours that the study's jobs have used."""
        return sum(trial.result.node_hours for trial in self.trials if trial.result)

    @property
    def log_best(self) -> float | None:
        """Logarithm of the seconds in which the leader, or one that leads by extrapolation, finishes training."""
        if any(trial.measured_reduced for trial in self._known):
            return self.prospects()[0].mean
        return math.log(self.ranking[0].days * DAY) if self.ranking else None

    def overheads(self, iterations: int) -> list[tuple[int, float]]:
        """Return the nodes of each measured job of any size, and the seconds that it took besides its iterations.

        `iterations` are those of a job at full size. Before a job is measured, the time of the others stands for it.
        """
        ended = [(trial, trial.result) for trial in self.trials if trial.launched and trial.result is not None]
        measured = [
            (
                trial.proposal.nodes,
                result.elapsed
                - sum(found.batch_seconds or (found.seconds,)) * (iterations + EXTRA_ITERATIONS * trial.reduced),
            )
            for trial, result in ended
            if (trial.measured or trial.measured_reduced) and (found := result.measurement)
        ]
        others = [(trial.proposal.nodes, result.elapsed) for trial, result in ended]
        return [(nodes, max(0.0, overhead)) for nodes, overhead in measured or others]

    def start_seconds(self, iterations: int) -> list[float]:
        """Return the seconds that each measured job of full size took until its first iteration was over."""
        results = [trial.result for trial in self.trials if trial.measured and trial.result is not None]
        return [max(0.0, result.elapsed - (result.seconds or 0.0) * (iterations - 1)) for result in results]

    def has(self, trial: Trial) -> bool:
        """Return whether the topology of a trial is in the pool."""
        return 0 <= trial.proposal.candidate < len(self.pool)

    def _close_tried(self) -> None:
        """Close the candidates that were tried, unless their jobs were inconclusive or never started.

        One whose job ran out of memory at a reduced size may still fit at a larger one.
        """
        full, reduced = self._attempts(reduced=False), self._attempts(reduced=True)
        tried = full.keys() | reduced.keys()
        self.open[[*(self._tried - tried)]] = True  # their trials have been withdrawn
        for candidate in tried:
            self.open[candidate] = full[candidate] + reduced[candidate] < MAX_ATTEMPTS
        self._tried = tried

    def _attempts(self, *, reduced: bool) -> Counter[int]:
        """Return how conclusively each candidate was tried at full, or at a reduced, size."""
        attempts: Counter[int] = Counter()
        for trial in self.trials:
            if trial.launched and self.has(trial) and trial.reduced == reduced:
                outcome = trial.result.outcome if trial.result else None
                inconclusive = outcome in INCONCLUSIVE or (reduced and outcome is Outcome.OOM)
                weight = 0 if inconclusive else 1 if outcome in RETRYABLE else MAX_ATTEMPTS
                attempts[trial.proposal.candidate] += weight
        return attempts

    def _learn(self, trial: Trial) -> bool:
        """Learn a trial's result; return whether it shows something of its topology."""
        self._read.add(trial.number)
        if trial.result is None or not self.has(trial) or not trial.launched:
            return False
        seen = observation_of(trial, drift.label(trial.number, self.speed_periods, self._first_period), self.pool)
        if seen is not None:
            self._observed.append(trial.number)
            self.surrogate.learn([seen])
        self.proposer.tell(trial.proposal.params, trial.result.objective if trial.measured else None)
        return seen is not None

    def _adapt(self) -> None:
        """Trust the model as far as the results learnt so far allow."""
        learnt, labels = self._learnt, self._period_labels
        self.surrogate.adapt(lambda usual: noise(learnt, labels, usual=usual))

    def _relabel(self) -> None:
        """Assign every observation to its speed period."""
        now = drift.present(self.speed_periods, self._first_period)
        self.surrogate.relabel(self._labels(self.speed_periods), now)
        self._prospects = None

    def _rank(self) -> None:
        self.ranking = rank(self.surrogate, self._known, self._period_labels, extrapolates=self._extrapolates)

    def prospects(self) -> list[Prospect]:
        """Return all topologies that were measured at some size and have not failed at full size, the soonest first."""
        if self._prospects is None:
            self._prospects = self._find_prospects()
        return self._prospects

    def _find_prospects(self) -> list[Prospect]:
        tried = {trial.proposal.candidate for trial in self._known if trial.measured or trial.measured_reduced}
        full = {trial.proposal.candidate for trial in self._known if trial.measured}
        failed = {candidate for candidate, count in self._attempts(reduced=False).items() if count >= MAX_ATTEMPTS}
        candidates = [candidate for candidate in tried if candidate in full or candidate not in failed]
        if not candidates:
            return []
        means, covariance = self.surrogate.time.joint([(candidate, None) for candidate in candidates])
        finish = means + self.pool.work[candidates]
        first, unit, noise = int(np.argmin(finish)), np.eye(len(candidates)), self.surrogate.trust.repeat**2
        found = []
        for row, (candidate, mean) in enumerate(zip(candidates, finish.tolist(), strict=True)):
            moved = [revealed(unit[row] - unit[first], covariance, job, noise) for job in (row, first)]
            found.append(Prospect(candidate, mean, max(*moved, LEAST_DEVIATION), candidate in full))
        return sorted(found, key=lambda prospect: prospect.mean)

    def _labels(self, periods: Sequence[drift.SpeedPeriod]) -> list[str]:
        """Return the speed period of each observation."""
        return [drift.label(number, periods, self._first_period) for number in self._observed]

    def _log_likelihood(self, firsts: Sequence[int], *, accident: int | None = None, noise: float = 1.0) -> float:
        """Return the log-likelihood of all measurements if speed periods began at these trials.

        The run of the trial `accident`, if any, was slow for another reason; noise is larger by the factor `noise`.
        """
        periods = [drift.SpeedPeriod(first=first, factor=1.0) for first in firsts]
        index = None if accident is None else self._observed.index(accident)
        return self.surrogate.evidence(self._labels(periods), accident=index, noise=noise)

    def _detect_drift(self) -> None:
        """Begin or move a speed period where the results learnt so far show a change."""
        finding = drift.detect(
            *(self._learnt, self.speed_periods, self._log_likelihood),
            usual=self.surrogate.assumed.repeat,
            assumed=self.surrogate.trust.repeat,
        )
        self.drift_suspected = finding.suspected
        if finding.speed_periods is not None and list(finding.speed_periods) != self.speed_periods:
            self.speed_periods = list(finding.speed_periods)
            self._relabel()


def observation_of(trial: Trial, period: str, pool: CandidatePool) -> Observation | None:
    """Return what the job of a trial shows, whose candidate is in the pool; None if it shows nothing."""
    result, fidelity = trial.result, trial.proposal.fidelity
    if result is None or not trial.launched:
        return None
    candidate = trial.proposal.candidate
    observation = Observation(candidate=candidate, period=period)
    if fidelity is not None:
        many = 1 if result.measurement is None else max(1, len(result.measurement.iterations))
        size = ReducedSize.of(fidelity, pool.topology(candidate), *pool.setting(candidate), iterations=many)
        observation = replace(observation, reduced=ReducedRun(size=size))
    if result.outcome is Outcome.MEASURED:
        kind = None if result.measurement is None else result.measurement.memory_kind
        measured = replace(observation, seconds=result.seconds, memory=result.peak_memory, memory_kind=kind, fits=True)
        if observation.reduced is not None and result.measurement is not None:
            seconds = result.measurement.batch_seconds or (result.measurement.seconds,)
            measured = replace(measured, seconds=None, reduced=replace(observation.reduced, seconds=seconds))
        return measured
    if result.outcome is Outcome.OOM:
        return replace(observation, fits=False)
    if result.outcome is Outcome.PRUNED:
        forecast = result.forecast is not None
        return replace(observation, seconds=result.forecast, forecast=forecast, least=result.least, fits=True)
    return None
