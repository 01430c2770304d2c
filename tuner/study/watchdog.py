"""When a running job is stopped: it hangs, or it can no longer win."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tuner.core.outcomes import Failure, Outcome
from tuner.launch.contract import Job, JobResult, JobStatus, Launcher
from tuner.study.store.trial import Trial

DEFAULT_MAX_START: Final = 900.0
"""Seconds that a job may take to show its first progress before any job was measured."""

MAX_START_RATIO: Final = 3.0
"""A job may take this many times the longest start so far."""

MAX_STALLED_ITERATIONS: Final = 6.0
"""Iterations, by the upper end of the estimate or by the longest that the job has shown, without progress after which
it counts as hung."""

MAX_PATIENCE_RATIO: Final = 10.0
"""Times its patience that a job may go without finishing an iteration while its output grows."""

FIRST_RATIO: Final = 1.5
"""The second iteration may take this many times the seconds until the end of the first, start-up included."""

MIN_PATIENCE: Final = 30.0
"""Seconds without progress before which no job counts as hung."""

MIN_FORECAST_SHARE: Final = 0.25
"""Share of an iteration after which its end is forecast."""

FORECAST_MARGIN: Final = 0.95
"""Share of a forecast that is taken as a lower bound."""

FINISHING_SHARE: Final = 0.25
"""Seconds by which an iteration whose end is unknown may be too slow, as a share of those until the end of the first:
its time is worth more to the search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watchdog:
    """The progress of a running job, and how long it may stall."""

    start: float
    """Seconds that the job may stall until its first iteration is over."""
    step: float
    """Seconds that it may stall afterwards."""
    began: float | None = None
    iterations: int = 0
    number: int = 0
    """Number that the job gives to its last iteration."""
    interval: int | None = 1
    """Iterations from one line of the log to the next; None while unknown."""
    seconds_in: float = 0.0
    share: float | None = None
    stalled: float = 0.0
    """Seconds since the last progress."""
    first: float = 0.0
    """Seconds until the end of its first iteration, start-up included; of several at the first look, their mean."""
    longest: float = 0.0
    """Seconds of its longest iteration after the first, as a mean of those between two looks."""
    ended: float | None = None
    """When its last iteration was over."""
    next_look: float = 1e9

    @property
    def patience(self) -> float:
        """Seconds that the job may stall: a log with one line per ten iterations is silent for ten of them."""
        if self.iterations and self.interval:
            shown = MAX_STALLED_ITERATIONS * self.longest if self.longest else FIRST_RATIO * self.first
            return max(self.step * self.interval, shown)
        return self.start + self.step * ((self.interval or 1) - 1)

    @classmethod
    def of(cls, seconds: float, starts: Sequence[float]) -> Watchdog:
        """Return the watchdog of a job with iterations of at most `seconds`, after jobs with these start times."""
        step = max(MIN_PATIENCE, MAX_STALLED_ITERATIONS * seconds)
        return cls(start=step + (MAX_START_RATIO * max(starts) if starts else DEFAULT_MAX_START), step=step)

    def seen(self, status: JobStatus, now: float) -> Watchdog:
        """Return the watchdog after another look at the job."""
        moved = status.moved if status.moved is not None else status.began
        first, longest, ended, before = self.first, self.longest, self.ended, self.iterations
        if status.iterations < before or (self.began is not None and status.began != self.began):  # begun again
            first, longest, ended, before = 0.0, 0.0, None, 0
        if status.iterations > before and status.began is not None:
            over = now - status.seconds_in
            if ended is None:
                first = (over - status.began) / status.iterations
            else:
                longest = max(longest, (over - ended) / (status.iterations - before))
            ended = over
        return replace(
            self,
            first=first,
            longest=longest,
            ended=ended,
            began=status.began,
            iterations=status.iterations,
            number=status.number or status.iterations,
            interval=status.interval,
            seconds_in=status.seconds_in,
            share=status.share,
            stalled=now - moved if moved is not None else 0.0,
            next_look=max(0.05, 0.25 * self.step / MAX_STALLED_ITERATIONS),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StopDecision:
    """Why a job is stopped."""

    outcome: Outcome
    reason: str
    forecast: float | None = None
    """Predicted seconds of the iteration under way."""
    least: float | None = None
    """Seconds that it takes at least."""

    def result(self, *, elapsed: float, evidence: str) -> JobResult:
        """Return the result of the job, which ran for so many seconds."""
        return JobResult(
            outcome=self.outcome,
            failure=Failure(kind="", evidence=evidence, meaning=self.reason),
            forecast=self.forecast,
            least=self.least,
            elapsed=elapsed,
        )


@dataclass(slots=True)
class RunningTrial:
    """A job that this process watches."""

    trial: Trial
    job: Job
    handle: str
    watch: Watchdog
    waiting: str = ""
    """Why the job waits, as last reported."""
    decided: JobResult | None = None
    """Its result, unless it measures its iterations before it is stopped."""

    def stopped(self, decision: StopDecision, launcher: Launcher, evidence: str = "") -> JobResult:
        """Return the result of the job if it is stopped now."""
        elapsed = 0.0 if self.watch.began is None else launcher.now() - self.watch.began
        return replace(decision.result(elapsed=elapsed, evidence=evidence), simulated=launcher.simulated)


def verdict(watch: Watchdog, longest: float, iterations: Sequence[int]) -> StopDecision | None:
    """Return why to stop a job, or None to let it go on; a measured iteration beyond `longest` seconds cannot win."""
    if watch.stalled > watch.patience:
        where = f"after iteration {watch.number}" if watch.iterations else "before the end of iteration 1"
        return StopDecision(
            outcome=Outcome.HUNG,
            reason=f"no progress for {watch.stalled:,.0f} s {where} (limit {watch.patience:,.0f} s)",
        )
    limit = MAX_PATIENCE_RATIO * watch.patience
    if watch.iterations and watch.share is None and watch.seconds_in > limit:
        return StopDecision(
            outcome=Outcome.HUNG,
            reason=f"its output grows, but no iteration ended for {watch.seconds_in:,.0f} s after iteration "
            f"{watch.number} (limit {limit:,.0f} s)",
        )
    current, interval = watch.iterations + 1, watch.interval
    if current not in iterations or not interval:
        return None
    elapsed = watch.seconds_in / interval
    forecast = elapsed / watch.share if watch.share and watch.share >= MIN_FORECAST_SHARE else None
    least = max(elapsed, FORECAST_MARGIN * forecast if forecast else 0.0)
    allowed = 0.0 if forecast else FINISHING_SHARE * watch.first
    if len(iterations) == 1 and least - allowed > max(0.0, longest):
        first, last = watch.number + 1, watch.number + interval
        which = f"iteration {first} takes" if interval == 1 else f"iterations {first} to {last} take"
        return StopDecision(
            outcome=Outcome.PRUNED,
            reason=f"{which} at least {least:,.1f} s{' each' * (interval > 1)}, too slow to beat the best",
            forecast=forecast,
            least=least,
        )
    return None
