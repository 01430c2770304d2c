"""One process of a study: it proposes, launches, watches, prunes or measures, tells and learns.

Several may share a study; each looks at all trials, launches by itself and watches its own jobs. What is known stands
in the study alone: a process that is killed at any moment is replaced by the next one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tuner.core.atomic_write import write_object
from tuner.core.errors import LaunchError, StudyError
from tuner.core.outcomes import Failure, Outcome
from tuner.costmodel.calibration import Calibration
from tuner.launch.contract import Job, JobResult, JobState, Launcher
from tuner.search.candidates import CandidatePool
from tuner.search.pruner import Referee
from tuner.search.surrogate import Trust
from tuner.study.limits import Limits
from tuner.study.ranking import DAY, noise
from tuner.study.scheduler import Scheduler
from tuner.study.state import StudyState
from tuner.study.store.owner import gone, this_worker
from tuner.study.store.trial import Ending, Proposal, Trial
from tuner.study.store.trial_store import TrialStore
from tuner.study.watchdog import Watchdog, verdict

LOOK: Final = 20.0
"""Seconds at most between two looks at running jobs."""

SYNC: Final = {"CUDA_LAUNCH_BLOCKING": "1"}
"""BLOOM's jobs on 40 nodes hung without it; it cost up to 6% (BigScience, tr11-176B-ml)."""

READ: Final = 1.0
"""Seconds of real time between two looks at what other processes have told."""

ALIVE: Final = 10.0
"""Seconds of real time between two signs of life."""

FAILURES: Final = 3
"""Jobs in a row that cannot be started before the study is given up."""

ALLOWANCE: Final = 3.0
"""Deviations of noise by which a running job must be behind before it is pruned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyEvent:
    """Something that people want to hear of while it happens."""

    kind: str
    """started, waits, ended, era, adopted, lost, stopping or note."""
    text: str
    trial: Trial | None = None


@dataclass(slots=True)
class RunningTrial:
    """A job that this process watches."""

    trial: Trial
    job: Job
    handle: str
    watch: Watchdog
    hung: Ending | None = None
    """How it ended before, where it hung and is run once more."""
    waits: str = ""
    """Why it waits, as was last told."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a study is made of."""

    pool: CandidatePool
    launcher: Launcher
    study: TrialStore
    folder: Path
    limits: Limits
    sampler: str = "guided"
    seed: int = 0
    jobs: int = 1
    iterations: tuple[int, ...] = (2,)
    retry_hang_sync: bool = False
    """Whether a job that hung is run once more with kernels that wait for each other."""
    calibration: Calibration = field(default_factory=Calibration)
    trust: Trust = field(default_factory=Trust)
    observe: Callable[[StudyEvent], None] = print


class StudyLoop:
    """One process's part in a study."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.pool, self.study, self.launcher = setup.pool, setup.study, setup.launcher
        self.known = StudyState(
            self.pool, self.study, setup.calibration, sampler=setup.sampler, seed=setup.seed, trust=setup.trust
        )
        self.chooser = Scheduler(self.known, setup.limits, sampler=setup.sampler, iterations=max(setup.iterations))
        self.running: dict[int, RunningTrial] = {}
        self._referee = Referee(ALLOWANCE * noise([], usual=setup.trust.repeat))
        self._refused = 0
        self._read_at = self._alive_at = -math.inf

    # -- the loop

    def run(self) -> None:
        """Go on until nothing more is to be launched and nothing runs."""
        self.reconcile()
        while self.step():
            pass

    def step(self) -> bool:
        """Launch what may be launched, wait, look at what runs; False when all is done."""
        self.read()
        self._fill()
        if not self.running:
            if not any(trial.ending is None for trial in self.known.trials):
                return self.chooser.finished is None
            time.sleep(READ)  # for the other processes of the study
            self.reconcile()
            return True
        self.launcher.wait(max(0.05, min([LOOK, *(each.watch.next_look for each in self.running.values())])))
        self._look()
        return True

    def read(self, *, now: bool = False) -> None:
        """Learn what is new in the study; the other processes' news now and then."""
        if not now and time.monotonic() < self._read_at + READ:
            return
        era = self.known.read()
        self._read_at = time.monotonic()
        if self.known.places:
            self._referee.measured(self.known.places[0].days)
        if era is not None:
            change = "slower" if era.factor > 1 else "faster"
            text = f"from trial {era.first} on the cluster is {abs(era.factor - 1):.1%} {change}; older rows are scaled"
            self._say("era", text)

    def reconcile(self) -> None:
        """Take over the jobs of processes that are gone, and close the trials of jobs that are gone too."""
        self.study.finish_told()
        self.read(now=True)
        silent: set[int] | None = None
        for number, worker in self.study.workers().items():
            if number in self.running:
                continue
            dead = gone(worker)
            if dead is None:
                silent = self.study.silent() if silent is None else silent
                dead = number in silent
            if dead:
                self._adopt(next(trial for trial in self.known.trials if trial.number == number))

    def interrupt(self) -> None:
        """Leave the jobs that run to the next process, which adopts them; end those that would not outlive this one."""
        if not self.launcher.outlives:
            for each in list(self.running.values()):
                self._stop(each, Outcome.CANCELLED, "stopped by the user", None)
        self.running.clear()
        self.known.trials = self.study.trials()  # the last of them may have been claimed a moment ago

    # -- what is launched

    def _fill(self) -> None:
        """Launch as many jobs as are wanted and as the nodes and the limits allow."""
        while len(self.running) < self.setup.jobs:
            stopping = self.chooser.stopping
            proposal = self.chooser.next(self._elapsed)
            if self.chooser.stopping != stopping:
                self._say("stopping", self.chooser.stopping or "")
            if proposal is None or not self._room_for(proposal):
                return
            self._launch(proposal)

    def _room_for(self, proposal: Proposal) -> bool:
        """Whether its nodes are free beside the jobs that run."""
        held = sum(each.trial.proposal.nodes for each in self.running.values())
        return not self.running or held + proposal.nodes <= self.launcher.nodes

    def _launch(self, proposal: Proposal) -> None:
        trial = self.study.claim(proposal, self.known.space.distributions)
        if trial is None:
            self.read(now=True)
            return
        self.read(now=True)
        before = sum(each.launched for each in self.known.trials if each.number < trial.number)
        if before >= self.setup.limits.budget:
            self.study.withdraw(trial, "another process had spent the budget")
            return
        job = self._job(trial)
        try:
            _leave_note(job, proposal)
            handle = self.launcher.submit(job)
        except LaunchError as error:
            self.study.withdraw(trial, str(error))
            self.read(now=True)
            fits = self.pool.column("nodes") <= self.launcher.nodes
            if fits[proposal.candidate]:
                self._refused += 1
            if self._refused >= FAILURES:
                raise LaunchError(f"{FAILURES} jobs in a row could not be started; the last: {error}") from None
            self.known.open &= fits  # nodes may have failed since the space was listed
            self.known.open[proposal.candidate] = False
            self._say("note", f"not started: {error}", trial)
            return
        self._refused = 0
        self.study.started(trial, handle)
        self._watch(trial, job, handle)
        self._say("started", proposal.why, trial)

    def _watch(self, trial: Trial, job: Job, handle: str) -> None:
        high = trial.proposal.estimate_high or math.exp(
            float(self.known.belief.log_seconds()[trial.proposal.candidate])
        )
        self.running[trial.number] = RunningTrial(
            trial=replace(trial, handle=handle),
            job=job,
            handle=handle,
            watch=Watchdog.of(high, self.known.starts(max(self.setup.iterations))),
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
        if not self.known.ours(trial):
            return
        self.study.taken_over(trial, this_worker())
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
            if now.state is JobState.ENDED:
                self._told(each, self.launcher.collect(each.handle))
            elif now.state is JobState.LOST:
                self._end(each, Ending(outcome=Outcome.CRASHED, reason="its job is nowhere to be found"))
            elif now.state is JobState.WAITING and now.reason != each.waits:
                each.waits = now.reason
                self._say("waits", now.reason, each.trial)
            elif now.state is JobState.RUNNING:
                each.watch = each.watch.seen(now, self.launcher.now())
                decided = verdict(each.watch, self._stops(each), self.setup.iterations)
                if decided is not None:
                    self._stop(each, decided.outcome, decided.reason, decided.forecast)
        if time.monotonic() > self._alive_at + ALIVE:
            self._alive_at = time.monotonic()
            for each in self.running.values():
                self.study.alive(each.trial)

    def _stops(self, each: RunningTrial) -> Callable[[float, int], bool]:
        """Whether an iteration that takes at least so many seconds can no longer win."""
        work = float(self.pool.work[each.trial.proposal.candidate])
        if each.trial.proposal.kind != "search":
            return _never
        return lambda seconds, iteration: self._referee.stops(seconds * math.exp(work) / DAY, iteration)

    def _stop(self, each: RunningTrial, outcome: Outcome, reason: str, forecast: float | None) -> None:
        began = each.watch.began
        evidence = self.launcher.explain(each.handle) if outcome is Outcome.HUNG else ""
        self.launcher.cancel(each.handle)
        held = self.launcher.now() - began if began is not None else 0.0
        self._end(each, Ending(outcome=outcome, reason=reason, evidence=evidence, forecast=forecast, elapsed=held))

    def _told(self, each: RunningTrial, result: JobResult) -> None:
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
                fullest=measured.fullest if measured else True,
                iterations=measured.iterations if measured else (),
                reason=failure.meaning or failure.kind,
                evidence=failure.evidence,
                elapsed=result.elapsed,
                retried=result.retried,
            ),
        )

    def _run_again(self, each: RunningTrial, ending: Ending) -> bool:
        """Run a job that hung once more, in sync; whether it runs."""
        if ending.outcome is not Outcome.HUNG or not self.setup.retry_hang_sync or each.hung is not None:
            return False
        folder = each.job.folder.with_name(f"{each.job.folder.name}-sync")
        job = replace(each.job, folder=folder, environment={**each.job.environment, **SYNC})
        try:
            _leave_note(job, each.trial.proposal)
            handle = self.launcher.submit(job)
        except LaunchError:
            return False
        self.study.started(each.trial, handle)
        self._watch(each.trial, job, handle)
        self.running[each.trial.number].hung = ending
        self._say("note", f"hung and is run again with {_said(SYNC)}: {ending.reason}", each.trial)
        return True

    def _end(self, each: RunningTrial, ending: Ending) -> None:
        if self._run_again(each, ending):
            return
        if each.hung is not None:
            before = f"hung ({each.hung.reason}) and was run again with {_said(SYNC)}"
            reason = f"{ending.reason}; {before}" if ending.reason else before
            evidence = ending.evidence or each.hung.evidence
            ending = replace(ending, reason=reason, evidence=evidence, elapsed=ending.elapsed + each.hung.elapsed)
        ending = replace(
            ending,
            node_hours=ending.elapsed * each.trial.proposal.nodes / 3600,
            clock=self.launcher.now(),
            simulated=self.launcher.simulated,
        )
        self.study.end(each.trial, ending)
        del self.running[each.trial.number]
        self.read(now=True)
        self._say("ended", ending.reason, replace(each.trial, ending=ending))

    def _elapsed(self) -> float:
        began = self.study.attributes.get("began")
        if began is None:
            began = self.launcher.now()
            self.study.note("began", began)
        return self.launcher.now() - float(began)

    def _say(self, kind: str, text: str, trial: Trial | None = None) -> None:
        self.setup.observe(StudyEvent(kind=kind, text=text, trial=trial))


def _said(environment: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in environment.items())


def _never(_seconds: float, _iteration: int) -> bool:
    return False


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
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
        write_object(job.folder / "job.json", document)
    except OSError as error:
        raise StudyError(f"{job.folder} cannot be written: {error.strerror or error}.") from None
