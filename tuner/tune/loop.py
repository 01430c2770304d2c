"""One process of a study: it proposes, launches, watches, prunes or measures, tells and learns.

Several may share a study; each looks at all trials, launches by itself and watches its own jobs. What is known stands
in the study alone: a process that is killed at any moment is replaced by the next one.
"""

from __future__ import annotations

import json
import math
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from tuner.errors import LaunchError, StudyError
from tuner.launch.contract import Job, Launcher, Result, State
from tuner.physics.calibration import Calibration
from tuner.results import Failure, Outcome
from tuner.search.axes import ParameterSpace
from tuner.search.belief import Belief, Seen
from tuner.search.pool import Pool
from tuner.search.proposer import Idea, Proposer, proposer
from tuner.search.pruning import Referee
from tuner.search.record import Ending, Proposal, Trial
from tuner.search.study import Study
from tuner.search.worker import gone, this_worker
from tuner.tune import eras as drift
from tuner.tune.limits import Limits
from tuner.tune.standing import DAY, INTERVAL, Place, noise, rivals, standings
from tuner.tune.watch import Watch, verdict

LOOK: Final = 20.0
"""Seconds at most between two looks at running jobs."""

FAILURES: Final = 3
"""Jobs in a row that cannot be started before the study is given up."""

ALLOWANCE: Final = 3.0
"""Deviations of noise by which a running job must be behind before it is pruned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that people want to hear of while it happens."""

    kind: str
    """started, ended, era, adopted, lost, stopping or note."""
    text: str
    trial: Trial | None = None


@dataclass(slots=True)
class Running:
    """A job that this process watches."""

    trial: Trial
    job: Job
    handle: str
    watch: Watch


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a study is made of."""

    pool: Pool
    launcher: Launcher
    study: Study
    folder: Path
    limits: Limits
    sampler: str = "guided"
    seed: int = 0
    jobs: int = 1
    iterations: tuple[int, ...] = (2,)
    calibration: Calibration = field(default_factory=Calibration)
    observe: Callable[[Event], None] = lambda event: None


class Tuning:
    """One process's part in a study."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.pool, self.study, self.launcher = setup.pool, setup.study, setup.launcher
        self.era = setup.calibration.era
        self.belief = Belief(self.pool, setup.calibration, era=self.era)
        self.space = ParameterSpace(self.pool)
        self.proposer: Proposer = proposer(setup.sampler, self.belief, self.space, seed=setup.seed)
        self.running: dict[int, Running] = {}
        self.trials: list[Trial] = []
        self.eras: list[drift.Era] = []
        self.places: list[Place] = []
        self.stopping: str | None = None
        """Why nothing more is searched for; the final round may still be on."""
        self.finished: str | None = None
        """Why nothing more is launched."""
        self._learnt: list[int] = []
        self._open = np.ones(len(self.pool), dtype=np.bool_)
        self._checked = 0
        self._suspected = False
        self._referee = Referee(ALLOWANCE * noise([]))
        self._worker = this_worker()
        self._refused = 0

    # -- the loop

    def run(self) -> None:
        """Go on until nothing more is to be launched and nothing runs."""
        self.reconcile()
        while self.step():
            pass

    def step(self) -> bool:
        """Look at running jobs, launch what may be launched, wait; False when all is done."""
        self.sync()
        self._fill()
        if not self.running:
            others = [trial for trial in self.trials if trial.ending is None]
            if self.finished and not others:
                return False
            if not others:
                return True
            self.reconcile()
        self.launcher.wait(self._pause())
        self._look()
        return True

    def reconcile(self) -> None:
        """Take over the jobs of processes that are gone, and close the trials of jobs that are gone too."""
        self.study.finish_told()
        self.sync()
        silent: set[int] | None = None
        for number, worker in self.study.workers().items():
            if number in self.running:
                continue
            dead = gone(worker)
            if dead is None:
                silent = self.study.silent() if silent is None else silent
                dead = number in silent
            if dead:
                self._adopt(next(trial for trial in self.trials if trial.number == number))

    def release(self) -> list[Trial]:
        """Let go of the jobs that run, which go on by themselves; the next process adopts them."""
        left = [each.trial for each in self.running.values()]
        self.running.clear()
        return left

    def cancel(self) -> None:
        """End the jobs that run and tell them as cancelled."""
        for each in list(self.running.values()):
            self.launcher.cancel(each.handle)
            self._end(each, Ending(outcome=Outcome.CANCELLED, reason="stopped by the user"))

    # -- what is known

    def sync(self) -> None:
        """Learn from all trials that are over, whoever ran them."""
        self.trials = self.study.trials()
        known = drift.eras_of(self.study.attributes.get("eras", []))
        if known != self.eras:
            self.eras = known
            self._relabel()
        fresh = [trial for trial in self.trials if trial.ending is not None and trial.number not in set(self._learnt)]
        for trial in fresh:
            self._learn(trial)
        for trial in self.trials:
            if trial.launched and self._ours(trial) and (trial.ending is None or _final(trial)):
                self._open[trial.proposal.candidate] = False
        if fresh:
            self.places = standings(self.belief, self.trials)
            if self.places:
                self._referee.measured(self.places[0].days)
            self._look_for_drift()

    @property
    def launched(self) -> int:
        """Jobs that count in the budget."""
        return sum(trial.launched for trial in self.trials)

    @property
    def node_hours(self) -> float:
        """What the study's jobs have cost so far."""
        return sum(trial.ending.node_hours for trial in self.trials if trial.ending)

    @property
    def best(self) -> float | None:
        """Logarithm of the seconds in which the best one known finishes."""
        return math.log(self.places[0].days * DAY) if self.places else None

    def _learn(self, trial: Trial) -> None:
        self._learnt.append(trial.number)
        ending = trial.ending
        if ending is None or not self._ours(trial) or not trial.launched:
            return
        self.belief.learn(self._seen(trial))
        objective = ending.objective if ending.outcome is Outcome.MEASURED else None
        self.proposer.told(trial.proposal.params, objective)

    def _seen(self, trial: Trial) -> list[Seen]:
        """What the end of a job shows of its topology."""
        assert trial.ending is not None  # noqa: S101 - callers have asked
        ending, era = trial.ending, drift.label(trial.number, self.eras, self.era)
        candidate = trial.proposal.candidate
        if ending.outcome is Outcome.MEASURED:
            return [Seen(candidate=candidate, seconds=ending.seconds, memory=ending.peak_memory, fits=True, era=era)]
        if ending.outcome is Outcome.OOM:
            return [Seen(candidate=candidate, fits=False, era=era)]
        if ending.outcome is Outcome.PRUNED:
            return [Seen(candidate=candidate, seconds=ending.forecast, fits=True, era=era, forecast=True)]
        return []

    def _relabel(self) -> None:
        now = drift.label(1 << 60, self.eras, self.era)
        seen = [drift.label(number, self.eras, self.era) for number in self._learnt for _ in self._seen_of(number)]
        self.belief.relabel(seen, now)

    def _seen_of(self, number: int) -> list[Seen]:
        trial = next(each for each in self.trials if each.number == number)
        ours = trial.ending is not None and trial.launched and self._ours(trial)
        return self._seen(trial) if ours else []

    def _ours(self, trial: Trial) -> bool:
        """Whether the trial's candidate is one of this pool; it is unless the study was tampered with."""
        return 0 <= trial.proposal.candidate < len(self.pool)

    def _look_for_drift(self) -> None:
        found = drift.shift(self.trials, self.eras)
        self._suspected = found.suspected
        if found.era is None:
            return
        documents = [*(era.document() for era in self.eras), found.era.document()]
        self.study.note("eras", documents)
        change = found.era.factor - 1
        self._say(
            "era",
            f"from trial {found.era.first} on the cluster is {abs(change):.1%} "
            f"{'slower' if change > 0 else 'faster'} than before; older rows are scaled by {found.era.factor:.3f}",
        )
        self.eras = drift.eras_of(documents)
        self._relabel()
        self.places = standings(self.belief, self.trials)

    # -- what is launched

    def _fill(self) -> None:
        """Launch as many jobs as are wanted and as the nodes and the budget allow."""
        while not self.finished and len(self.running) < self.setup.jobs:
            self._check_limits()
            if self.finished:
                return
            proposal = self._propose()
            if proposal is None:
                return
            if not self._room_for(proposal):
                return
            self._launch(proposal)

    def _check_limits(self) -> None:
        limits = self.setup.limits
        spent = self.launched
        if spent >= limits.budget:
            self.finished = f"the budget of {limits.budget} jobs is spent"
        elif limits.node_hours is not None and self.node_hours >= limits.node_hours:
            self.finished = f"{self.node_hours:,.1f} of {limits.node_hours:,.1f} node-hours are spent"
        elif limits.deadline is not None and self.launcher.now() - self._began() >= limits.deadline:
            self.finished = f"the deadline of {limits.deadline / 3600:.3g} h has passed"
        elif self.stopping is None and limits.final and spent >= limits.budget - limits.final:
            self.stopping = f"{limits.final} of {limits.budget} jobs are kept for the final round"
        elif self.stopping is None and limits.patience is not None and self._without_gain() >= limits.patience:
            self.stopping = f"{limits.patience} jobs in a row brought nothing better"

    def _propose(self) -> Proposal | None:
        """The next job, or None where none is wanted now."""
        if self.stopping is None and (proposal := self._reference()):
            return proposal
        if self.stopping is None:
            idea = self.proposer.next(self._open, self.best)
            if idea is None:
                self.stopping = "nothing is left to try"
            elif (reason := self._not_worth(idea)) is not None:
                self.stopping = reason
            else:
                return self._search(idea)
            self._say("stopping", self.stopping)
        return self._final()

    def _search(self, idea: Idea) -> Proposal:
        return self._proposal(idea.candidate, why=self._why(idea))

    def _reference(self) -> Proposal | None:
        """The leader again, where it is time to see whether the cluster has changed."""
        searched = [trial for trial in self.trials if trial.launched]
        if any(trial.ending is None and trial.proposal.kind != "search" for trial in searched):
            return None
        due = len(searched) - self._last_repeat(searched) > self.setup.limits.stretch
        if not self.places or not (self._suspected or (due and self.setup.limits.final)):
            return None
        since = self.eras[-1].first if self.eras else 0
        old = [place for place in self.places if since <= max(place.trials) and place.trials[-1] != searched[-1].number]
        if self._suspected:
            fewest = min((place.runs for place in old), default=0)
            old = [place for place in old if place.runs == fewest]
        if not old:
            return None
        why = (
            "run again: its last repeat differed more than noise does"
            if self._suspected
            else "run again as a reference: has the cluster changed?"
        )
        return self._proposal(old[0].candidate, kind="reference", why=why)

    def _last_repeat(self, searched: list[Trial]) -> int:
        repeats = [place for place, trial in enumerate(searched) if trial.proposal.kind == "reference"]
        return repeats[-1] if repeats else 0

    def _final(self) -> Proposal | None:
        """Run the leader and those close to it again, until they are told apart."""
        if any(each.trial.proposal.kind == "final" for each in self.running.values()):
            return None
        close = rivals(self.places)
        if self.running and not close:
            return None
        if not close or not self.setup.limits.final:
            leader = self.places[0].key if self.places else None
            self.finished = (
                f"{self.stopping}; nothing measured comes close to {leader}" if leader else f"{self.stopping}"
            )
            return None
        leader, challenger = self.places[0], close[0]
        again = min((leader, challenger), key=lambda place: place.runs)
        other = challenger if again is leader else leader
        return self._proposal(
            again.candidate,
            kind="final",
            why=f"final round: {again.key} or {other.key}? ({close[0].rival:.0%} the latter)"
            if again is leader
            else f"final round: is it better than {other.key}? ({close[0].rival:.0%})",
        )

    def _not_worth(self, idea: Idea) -> str | None:
        """Why the next job would not pay, as a sum."""
        if not self.setup.limits.worth or idea.choice is None or not self.places:
            return None
        leader = self.places[0]
        nodes = self.pool.topology(leader.candidate).nodes
        choice = idea.choice
        saved = choice.gain * (1 - choice.out_of_memory) * leader.days * 24 * nodes
        costs = self._cost(idea.candidate)
        if saved >= costs:
            return None
        return (
            f"the next job would cost {costs:,.1f} node-hours and is expected to save {saved:,.1f} "
            f"({choice.gain:.2%} of {leader.days:,.1f} days on {nodes} nodes)"
        )

    def _cost(self, candidate: int) -> float:
        """Node-hours of a job, by what earlier ones took to start."""
        seconds = math.exp(float(self.belief.log_seconds()[candidate]))
        starts = [
            trial.ending.held - trial.ending.seconds * max(self.setup.iterations)
            for trial in self.trials
            if trial.measured and trial.ending and trial.ending.seconds
        ]
        start = float(np.median(starts)) if starts else 120.0
        return (max(0.0, start) + seconds * max(self.setup.iterations)) * self.pool.topology(candidate).nodes / 3600

    def _proposal(self, candidate: int, *, kind: Any = "search", why: str) -> Proposal:
        topology = self.pool.topology(candidate)
        place = np.array([candidate])
        mean, deviation = float(self.belief.log_seconds()[candidate]), float(self.belief.deviation(place)[0])
        if kind != "search":
            mean, deviation = self.belief.measured(candidate)
        return Proposal(
            key=topology.key,
            candidate=candidate,
            nodes=topology.nodes,
            params=self.space.values(candidate),
            topology=_document(topology),
            kind=kind,
            repeat=sum(trial.proposal.candidate == candidate for trial in self.trials if trial.launched),
            setting=self.pool.part(candidate),
            why=why,
            estimate_sec=math.exp(mean),
            estimate_low=math.exp(mean - INTERVAL * deviation),
            estimate_high=math.exp(mean + INTERVAL * deviation),
            out_of_memory=float(self.belief.out_of_memory()[candidate]),
            tag=uuid.uuid4().hex,
            worker=self._worker,
        )

    def _why(self, idea: Idea) -> str:
        choice = idea.choice
        if choice is None:
            return f"next of {self.setup.sampler}" + (f", {idea.rejected} refused" if idea.rejected else "")
        if not self.places:
            return "soonest by the estimate of what is likely to fit"
        return f"{choice.chance:.0%} to be sooner than the best, {choice.gain:.2%} expected"

    def _room_for(self, proposal: Proposal) -> bool:
        """Whether its nodes are free beside the jobs that run."""
        held = sum(each.trial.proposal.nodes for each in self.running.values())
        return not self.running or held + proposal.nodes <= self.launcher.nodes

    def _launch(self, proposal: Proposal) -> None:
        trial = self.study.claim(proposal, self.space.distributions)
        if trial is None:
            self.sync()
            return
        self.sync()
        before = sum(each.launched for each in self.trials if each.number < trial.number)
        if before >= self.setup.limits.budget:
            self.study.withdraw(trial, "another process had spent the budget")
            return
        job = self._job(trial)
        try:
            _leave_note(job, proposal)
            handle = self.launcher.submit(job)
        except LaunchError as error:
            self.study.withdraw(trial, str(error))
            self._refused += 1
            if self._refused >= FAILURES:
                raise LaunchError(f"{FAILURES} jobs in a row could not be started; the last: {error}") from None
            self._open[proposal.candidate] = False
            self._say("note", f"{proposal.key} could not be started: {error}", trial)
            return
        self._refused = 0
        self.study.started(trial, handle)
        self._watch(trial, job, handle)
        self._say("started", proposal.why, trial)

    def _watch(self, trial: Trial, job: Job, handle: str) -> None:
        high = trial.proposal.estimate_high or math.exp(float(self.belief.log_seconds()[trial.proposal.candidate]))
        self.running[trial.number] = Running(
            trial=replace(trial, handle=handle), job=job, handle=handle, watch=Watch.of(high, self._starts())
        )

    def _job(self, trial: Trial) -> Job:
        candidate = trial.proposal.candidate
        workload, cluster = self.pool.setting(candidate)
        return Job(
            number=trial.number,
            tag=trial.proposal.tag,
            folder=self.setup.folder / "jobs" / f"{trial.number:04d}-{trial.proposal.key}",
            workload=workload,
            cluster=cluster,
            topology=self.pool.topology(candidate),
            iterations=self.setup.iterations,
        )

    def _adopt(self, trial: Trial) -> None:
        if not self._ours(trial):
            return
        self.study.taken_over(trial, self._worker)
        job = self._job(trial)
        handle = self.launcher.adopt(job, trial.handle)
        if handle is None:
            reason = "the process that watched it is gone, and so is its job"
            self.study.end(trial, Ending(outcome=Outcome.CANCELLED, reason=reason, clock=self.launcher.now()))
            self._say("lost", reason, trial)
            return
        self._watch(trial, job, handle)
        self._say("adopted", "its job still runs; watched from here on", trial)

    # -- what is watched

    def _look(self) -> None:
        """See what has become of the running jobs."""
        if not self.running:
            return
        status = self.launcher.poll([each.handle for each in self.running.values()])
        for each in list(self.running.values()):
            now = status[each.handle]
            if now.state is State.ENDED:
                self._told(each, self.launcher.collect(each.handle))
            elif now.state is State.LOST:
                self._end(each, Ending(outcome=Outcome.CRASHED, reason="its job is nowhere to be found"))
            elif now.state is State.RUNNING:
                each.watch = each.watch.seen(now, self.launcher.now())
                decided = verdict(each.watch, self._stops(each), self.setup.iterations)
                if decided is not None:
                    self._stop(each, decided.outcome, decided.reason, decided.forecast)
            self.study.alive(each.trial) if each.trial.number in self.running else None

    def _stops(self, each: Running) -> Callable[[float, int], bool]:
        """Whether an iteration that takes at least so many seconds can no longer win."""
        work = float(self.pool.work[each.trial.proposal.candidate])
        if each.trial.proposal.kind != "search":
            return lambda seconds, iteration: False
        return lambda seconds, iteration: self._referee.stops(seconds * math.exp(work) / DAY, iteration)

    def _stop(self, each: Running, outcome: Outcome, reason: str, forecast: float | None) -> None:
        began = each.watch.began
        self.launcher.cancel(each.handle)
        held = self.launcher.now() - began if began is not None else 0.0
        self._end(each, Ending(outcome=outcome, reason=reason, forecast=forecast, held=held))

    def _told(self, each: Running, result: Result) -> None:
        work = float(self.pool.work[each.trial.proposal.candidate])
        measured = result.measurement
        failure = result.failure or Failure(kind="", evidence="")
        self._end(
            each,
            Ending(
                outcome=result.outcome,
                objective=measured.seconds * math.exp(work) / DAY if measured else None,
                seconds=measured.seconds if measured else None,
                tflops=measured.tflops if measured else None,
                peak_memory=measured.peak_memory if measured else None,
                iterations=measured.iterations if measured else (),
                reason=failure.kind,
                evidence=failure.evidence,
                held=result.held,
            ),
        )

    def _end(self, each: Running, ending: Ending) -> None:
        ending = replace(
            ending,
            node_hours=ending.held * each.trial.proposal.nodes / 3600,
            clock=self.launcher.now(),
            simulated=self.launcher.simulated,
        )
        self.study.end(each.trial, ending)
        del self.running[each.trial.number]
        self._say("ended", ending.reason, replace(each.trial, ending=ending))

    def _starts(self) -> list[float]:
        """Seconds from the beginning of a job to the first iteration's end, of the jobs so far."""
        return [
            trial.ending.held - trial.ending.seconds * (max(self.setup.iterations) - 1)
            for trial in self.trials
            if trial.measured and trial.ending is not None and trial.ending.seconds is not None
        ]

    def _pause(self) -> float:
        pauses = [each.watch.next_look for each in self.running.values()]
        return max(0.05, min([LOOK, *pauses]))

    def _without_gain(self) -> int:
        """Search jobs that ended since the best one was measured."""
        if not self.places:
            return 0
        first = min(self.places[0].trials)
        return sum(
            trial.number > first and trial.ending is not None and trial.launched and trial.proposal.kind == "search"
            for trial in self.trials
        )

    def _began(self) -> float:
        began = self.study.attributes.get("began")
        if began is None:
            began = self.launcher.now()
            self.study.note("began", began)
        return float(began)

    def _say(self, kind: str, text: str, trial: Trial | None = None) -> None:
        self.setup.observe(Event(kind=kind, text=text, trial=trial))


def _final(trial: Trial) -> bool:
    """Whether a trial that is over has said all that it can: a job that was lost may be proposed again."""
    return trial.ending is not None and trial.ending.outcome not in (Outcome.CANCELLED, Outcome.PREEMPTED)


def _document(topology: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return {name: value for name, value in asdict(topology).items() if value is not None}


def _leave_note(job: Job, proposal: Proposal) -> None:
    """`job.json` in the job's folder, whole or not at all."""
    document = {
        "schema": "tuner/job/1",
        "number": job.number,
        "tag": job.tag,
        "key": proposal.key,
        "topology": dict(proposal.topology),
        "iterations": list(job.iterations),
        "why": proposal.why,
        "estimate_sec": proposal.estimate_sec,
    }
    temporary = job.folder / f".job.json.{os.getpid()}"
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        temporary.replace(job.folder / "job.json")
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StudyError(f"{job.folder} cannot be written: {error.strerror or error}.") from None
