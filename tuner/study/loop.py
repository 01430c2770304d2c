"""One process of a study: propose a topology, launch its job, watch it, store its result, update the surrogate.

Several processes may share a study. Each reads all trials, launches jobs of its own and watches those. All state is in
the study's storage, so a process that is killed at any moment can be replaced by the next one.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tuner.core.errors import LaunchError, StudyError, TunerWarning
from tuner.core.interrupts import raise_lost_interrupt
from tuner.core.outcomes import Failure, Outcome
from tuner.core.text import DAY
from tuner.costmodel.calibration import Calibration
from tuner.costmodel.estimate import CostModel
from tuner.launch.contract import Job, JobResult, JobState, Launcher
from tuner.planning.memory_remedies import memory_remedy
from tuner.search.candidates import CandidatePool
from tuner.space.space import Tally
from tuner.study.failure_streaks import Streaks
from tuner.study.fidelity_plan import job_of, plan_of
from tuner.study.limits import trust_for
from tuner.study.result import StudyResult, read_result
from tuner.study.scheduler import Scheduler
from tuner.study.settings import EventKind, StudyEvent, StudySettings
from tuner.study.state import StudyState
from tuner.study.store.owner import described, gone, grace, released, this_worker
from tuner.study.store.stopped import SYNC_RETRY, SYNCHRONOUS, completed, record_stop, recorded_end
from tuner.study.store.trial import Proposal, Trial, is_retry, record_ending, retry_folder, write_job_file
from tuner.study.store.trial_store import TrialStore
from tuner.study.watchdog import RunningTrial, StopDecision, Watchdog, verdict

MAX_POLL_INTERVAL: Final = 20.0
"""Seconds at most between two looks at running jobs."""

READ_INTERVAL: Final = 1.0
"""Seconds of real time between two reads of what other processes have stored."""

HEARTBEAT_INTERVAL: Final = 10.0
"""Seconds of real time between two heartbeats."""

MAX_CONSECUTIVE_LAUNCH_FAILURES: Final = 3
"""Jobs in a row that may fail to start before the study gives up."""

PRUNING_ALLOWANCE: Final = 3.0
"""Standard deviations of noise by which a running job must be behind the best before it is pruned."""


class StudyLoop:
    """One process's part in a study."""

    def __init__(
        self,
        settings: StudySettings,
        *,
        pool: CandidatePool,
        launcher: Launcher,
        store: TrialStore,
        tally: Tally | None = None,
    ) -> None:
        self.settings, self.pool, self.launcher, self.store = settings, pool, launcher, store
        self.tally = tally
        """Counts of what the rules removed from the grid; None for a replay, which has no grid."""
        self.folder = settings.folder
        self.resumed = len(store.trials())
        """Trials that the study had before this process."""
        self.state = StudyState(
            *(pool, store, settings.calibration or Calibration()),
            sampler=settings.sampler,
            seed=settings.seed,
            trust=trust_for(store.settings),
            memory_filter=settings.memory_filter,
            extrapolates=settings.trial_nodes is not None,
        )
        self.plan = plan_of(settings, self.state, launcher)
        """At which sizes trials run; None: all at full size."""
        self.scheduler = Scheduler(
            *(self.state, settings.limits),
            sampler=settings.sampler,
            iterations=max(settings.iterations),
            memory_remedy=lambda: "" if tally is None else memory_remedy(settings.space, CostModel()),
            plan=self.plan,
        )
        self.running: dict[int, RunningTrial] = {}
        self._most_days = math.inf
        """Days beyond which a topology cannot win, whatever the noise."""
        self._began: float | None = None
        """When the study began, by the launcher's clock."""
        self._failed_launches = 0
        degrees = len(settings.space.axes["tp"])
        self._streaks = Streaks(keep_going=settings.keep_going, tensor_degrees=degrees)
        self._read_at = self._heartbeat_at = -math.inf
        self._waits_for = set[int]()
        """Trials whose owners cannot be seen from here, as reported."""

    # -- the loop

    def run(self) -> None:
        """Search until nothing more is to be launched and no job runs."""
        self.reconcile()
        while self.step():
            pass

    def step(self) -> bool:
        """Launch jobs, wait, and check running jobs; return False when the search has ended."""
        raise_lost_interrupt()
        self.read()
        self._fill()
        if not self.running:
            if not any(trial.result is None for trial in self.state.trials):
                return self.scheduler.finished is None
            time.sleep(READ_INTERVAL)  # for the other processes of the study
            self.reconcile(waits=True)
            return True
        next_looks = [running.watch.next_look for running in self.running.values()]
        self.launcher.wait(max(0.05, min([MAX_POLL_INTERVAL, *next_looks])))
        self._look()
        return True

    def read(self, *, now: bool = False) -> None:
        """Read new trials of the study; unless `now`, at most once per `READ_INTERVAL`."""
        if not now and time.monotonic() < self._read_at + READ_INTERVAL:
            return
        drift = self.state.read()
        self._read_at = time.monotonic()
        if self.state.ranking and not self.state.ranking[0].extrapolated:
            self._most_days = self.state.ranking[0].days * (1 + PRUNING_ALLOWANCE * self.state.noise)
        if drift is not None:
            self._report("era", f"{drift.sentence()} Earlier measurements are rescaled.")

    def reconcile(self, *, waits: bool = False) -> None:
        """Adopt the jobs of processes that are gone, and close the trials whose jobs are gone too.

        A process that `waits` for the others reports once which of them cannot be seen from here.
        """
        self.store.close_finished()
        owners = self.store.owners()  # before the trials are read, for others are claimed meanwhile
        self.read(now=True)
        for number, owner in owners.items():
            if number in self.running:
                continue
            trial, dead = next(trial for trial in self.state.trials if trial.number == number), gone(owner)
            if dead or (dead is None and number in self.store.silent(grace(owner))):
                self._adopt(trial, owner)
                self.read(now=True)  # a topology whose job is lost is open again
            elif dead is None and waits and number not in self._waits_for:
                self._waits_for.add(number)
                until = f"its job is adopted after {grace(owner)} s without a heartbeat"
                self._report("waits", f"{described(owner)} may still run it; {until}", trial)

    def interrupt(self, *, release: bool = False) -> None:
        """Leave running jobs to the next process, with `release` also of this one; cancel those that it would end.

        Results that the storage refuses are left in the jobs' files, from which the next process stores them.
        """
        self.settings = replace(self.settings, retry_hang_sync=False)
        refused = [error for running in list(self.running.values()) if (error := self._left(running, release=release))]
        self.running.clear()
        if refused:
            lost = f"{str(refused[0]).rstrip('.')}; the same command stores the last results when it is run again."
            warnings.warn(lost, TunerWarning, stacklevel=2)

    def _left(self, running: RunningTrial, *, release: bool) -> StudyError | None:
        """Leave a job to the next process, or cancel it; return the storage's error."""
        try:
            if not self.launcher.outlives:
                self._stop_by_user(running)
            elif release:
                self.store.take_over(running.trial, this_worker(), released())
        except StudyError as error:
            return error
        return None

    def result(self) -> StudyResult:
        """Return the current state of the study, as later readers will see it."""
        return read_result(self.store, self.folder, ended=self.scheduler.finished or "")

    # -- launching

    def _fill(self) -> None:
        """Launch as many jobs as the scheduler proposes and as nodes and limits allow."""
        while len(self.running) < self.settings.jobs and self.scheduler.finished is None:
            searching = self.scheduler.stopping is None
            proposal = self.scheduler.next(self._elapsed())
            if searching and self.scheduler.stopping is not None and self.state.launched:  # or the result says why
                self._report("stopping", self.scheduler.stopping)
            if proposal is None or not self._has_nodes_for(proposal):
                return
            self._launch(proposal)

    def _has_nodes_for(self, proposal: Proposal) -> bool:
        """Whether enough nodes are free beside the running jobs, or the job may wait for them in a queue."""
        busy = sum(running.trial.proposal.nodes for running in self.running.values())
        return self.launcher.queues or not self.running or busy + proposal.nodes <= self.launcher.nodes

    def _launch(self, proposal: Proposal) -> None:
        trial = self.store.claim(proposal, self.state.space.distributions)
        if trial is None:
            self.read(now=True)
            return
        self.read(now=True)
        before = sum(earlier.launched for earlier in self.state.trials if earlier.number < trial.number)
        if before >= self.settings.limits.budget:
            self.store.withdraw(trial, "another process used up the budget")
            return
        job = job_of(trial, self.pool, self.folder, self.settings.iterations)
        try:
            write_job_file(job, proposal)
            handle = self.launcher.submit(job)
        except LaunchError as error:
            self._launch_failed(trial, error)
            return
        except StudyError as error:
            self.store.withdraw(trial, str(error))
            raise
        self._failed_launches = 0
        self._watch(trial, job, handle)  # first, so that Ctrl-C while the storage is away stops the job
        self.store.started(trial, handle)
        self._report("started", proposal.why, trial)

    def _launch_failed(self, trial: Trial, error: LaunchError) -> None:
        """Withdraw a trial whose job did not start; raise after too many of them in a row."""
        candidate = trial.proposal.candidate
        self.store.withdraw(trial, str(error))
        self.read(now=True)
        fits = self.pool.column("nodes") <= self.launcher.nodes
        if fits[candidate] or trial.reduced:
            self._failed_launches += 1
        if self._failed_launches >= MAX_CONSECUTIVE_LAUNCH_FAILURES:
            raise LaunchError(
                f"{MAX_CONSECUTIVE_LAUNCH_FAILURES} jobs in a row could not be started; the last error: {error}"
            ) from None
        if self.settings.trial_nodes is None:
            self.state.open &= fits  # nodes may have failed since the space was enumerated
        self.state.open[candidate] = False
        self._report("note", f"not started: {error}", trial)

    def _watch(self, trial: Trial, job: Job, handle: str) -> None:
        high = trial.proposal.estimate_high or math.exp(
            float(self.state.surrogate.time.log_seconds()[trial.proposal.candidate])
        )
        self.running[trial.number] = RunningTrial(
            trial=replace(trial, handle=handle),
            job=job,
            handle=handle,
            watch=Watchdog.of(high, self.state.start_seconds(max(self.settings.iterations))),
        )

    def _adopt(self, trial: Trial, former: Mapping[str, Any]) -> None:
        if not self.state.has(trial) or not self.store.take_over(trial, former, this_worker()):
            return
        job = job_of(trial, self.pool, self.folder, self.settings.iterations)
        found = recorded_end(job.folder, trial)
        if found.ending is not None:
            self._store(trial, found.ending)
            return
        if not is_retry(job.folder):
            trial = replace(trial, hung=None)  # the process ended before it could retry the job
        handle = self.launcher.adopt(job, None if is_retry(job.folder) else trial.handle)
        if handle is None and found.stop is None:
            reason = "the tuner that ran it exited, and its job is gone"
            if self.store.close_gone(trial, job.folder, reason, clock=self.launcher.now()):
                self._report("lost", reason, trial)
            return
        self._watch(trial, job, handle or "")
        running = self.running[trial.number]
        running.decided = found.stop
        if found.stop is None:
            self._report("adopted", "from a tuner that exited", trial)
        elif handle is None:
            self._finished(running, found.stop)
        elif self._cancelled(running):
            self._collect(running)

    # -- watching

    def _look(self) -> None:
        """Look at the running jobs, end those that are over and stop those that should not go on."""
        if not self.running:
            return
        statuses = self.launcher.poll([running.handle for running in self.running.values()])
        for running in list(self.running.values()):
            status = statuses[running.handle]
            if status.state is JobState.ENDED:
                self._collect(running)
            elif status.state is JobState.LOST:
                failure = Failure.because("the job disappeared without leaving a result")
                self._finished(running, running.decided or JobResult(outcome=Outcome.CRASHED, failure=failure))
            elif status.state is JobState.WAITING and status.reason != running.waiting:
                running.waiting = status.reason
                self._report("waits", status.reason, running.trial)
            elif status.state is JobState.RUNNING:
                running.watch = running.watch.seen(status, self.launcher.now())
                decision = verdict(running.watch, self._longest(running.trial), self.settings.iterations)
                if decision is not None:
                    self._stop(running, decision)
        if time.monotonic() > self._heartbeat_at + HEARTBEAT_INTERVAL:
            self._heartbeat_at = time.monotonic()
            for running in self.running.values():
                self.store.heartbeat(running.trial)

    def _longest(self, trial: Trial) -> float:
        """Return the seconds of an iteration beyond which a trial cannot win; only search jobs are pruned."""
        if trial.proposal.kind != "search" or trial.reduced:
            return math.inf
        return self._most_days * DAY / math.exp(float(self.pool.work[trial.proposal.candidate]))

    def _stop(self, running: RunningTrial, decision: StopDecision) -> None:
        """Cancel a job and end its trial; why is recorded first, for the tuner that replaces one killed meanwhile."""
        evidence = self.launcher.explain(running.handle) if decision.outcome is Outcome.HUNG else ""
        running.decided = running.stopped(decision, self.launcher, evidence)
        record_stop(running.job.folder, running.decided)
        if self._cancelled(running):
            self._finished(running, running.stopped(decision, self.launcher, evidence))

    def _stop_by_user(self, running: RunningTrial) -> None:
        """Cancel a job and end its trial with the result that it has, or that was decided, by then."""
        if self._cancelled(running):
            decision = StopDecision(outcome=Outcome.CANCELLED, reason="cancelled by the user")
            running.decided = running.decided or running.stopped(decision, self.launcher)
            self._collect(running)

    def _cancelled(self, running: RunningTrial) -> bool:
        """Cancel a job; return False if that fails and the trial stays open for the next look, or the next tuner."""
        try:
            self.launcher.cancel(running.handle)
        except LaunchError as error:
            if running.waiting != str(error):
                running.waiting = str(error)
                self._report("note", running.waiting, running.trial)
            return False
        return True

    def _collect(self, running: RunningTrial) -> None:
        """End a trial whose job has ended; one that was stopped may have measured its iterations before."""
        found = self.launcher.collect(running.handle)
        self._finished(running, found if found.outcome is Outcome.MEASURED else running.decided or found)

    def _finished(self, running: RunningTrial, result: JobResult) -> None:
        running.decided = result
        if result.seconds is not None and not running.trial.reduced:
            work = float(self.pool.work[running.trial.proposal.candidate])
            result = replace(result, objective=result.seconds * math.exp(work) / DAY)
        elif result.seconds is not None:
            result = replace(result, forecast=self.state.extrapolated(replace(running.trial, result=result)))
        self._end(running, result)

    def _retry_hung(self, running: RunningTrial, result: JobResult) -> bool:
        """Retry a job that hung, with synchronous kernels; return whether it runs."""
        if result.outcome is not Outcome.HUNG or not self.settings.retry_hang_sync or running.trial.hung is not None:
            return False
        environment = {**running.job.environment, **SYNCHRONOUS}
        job = replace(running.job, folder=retry_folder(running.job.folder), environment=environment)
        try:
            write_job_file(job, running.trial.proposal, result)
            self.store.retried(running.trial, result)
            handle = self.launcher.submit(job)
        except LaunchError:
            return False
        self._watch(replace(running.trial, hung=result), job, handle)
        self.store.started(running.trial, handle)
        self._report("note", f"hung ({result.reason}); {SYNC_RETRY}", running.trial)
        return True

    def _end(self, running: RunningTrial, result: JobResult) -> None:
        if self._retry_hung(running, result):
            return
        result = completed(running.trial, result, clock=self.launcher.now())
        result = replace(result, simulated=self.launcher.simulated)
        if ended := self._streaks.after(result, running.job.topology.tp):
            self.scheduler.finished = ended
        record_ending(running.job.folder, result)
        self._store(running.trial, result)

    def _store(self, trial: Trial, result: JobResult) -> None:
        self.store.end(trial, result)
        self.running.pop(trial.number, None)
        self.read(now=True)
        self._report("ended", result.reason, replace(trial, result=result))

    def _elapsed(self) -> float:
        """Seconds since the study's first process began, by the launcher's clock, or to the last result if later."""
        results = [trial.result for trial in self.state.trials if trial.launched and trial.result is not None]
        if self._began is None:
            self._began = self.store.attributes.get("began")
        if self._began is None:  # new, or from a version that stored it only with a deadline
            starts = [result.clock - result.elapsed for result in results if result.clock]
            self._began = min([*starts, self.launcher.now()])
            self.store.set_attribute("began", self._began)
        return max([self.launcher.now(), self._began, *(result.clock for result in results)]) - self._began

    def _report(self, kind: EventKind, text: str, trial: Trial | None = None) -> None:
        self.settings.on_event(StudyEvent(kind=kind, text=text, trial=trial))
