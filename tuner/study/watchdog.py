"""When a running job is stopped: it hangs, or it can no longer win."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tuner.core.outcomes import Outcome
from tuner.launch.contract import JobStatus

DEFAULT_MAX_START: Final = 900.0
"""Seconds that a job may take to show its first progress before any job was measured."""

MAX_START_RATIO: Final = 3.0
"""A job may take this many times the longest start so far."""

MAX_STALLED_ITERATIONS: Final = 6.0
"""Iterations, by the upper end of the estimate, without progress after which a job counts as hung."""

MIN_PATIENCE: Final = 30.0
"""Seconds without progress before which no job counts as hung."""

MIN_FORECAST_SHARE: Final = 0.25
"""Share of an iteration from which on its end is forecast."""

FORECAST_MARGIN: Final = 0.95
"""Share of a forecast that is taken as a lower bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watchdog:
    """The progress of a running job, and how long it may stall."""

    start: float
    """Seconds that the job may stall until its first iteration is over."""
    step: float
    """Seconds that it may stall afterwards."""
    began: float | None = None
    iterations: int = 0
    seconds_in: float = 0.0
    share: float | None = None
    stalled: float = 0.0
    """Seconds since the last progress."""
    next_look: float = 1e9

    @classmethod
    def of(cls, seconds: float, starts: Sequence[float]) -> Watchdog:
        """Return the watchdog of a job with iterations of at most `seconds`, after jobs with these start times."""
        step = max(MIN_PATIENCE, MAX_STALLED_ITERATIONS * seconds)
        return cls(start=step + (MAX_START_RATIO * max(starts) if starts else DEFAULT_MAX_START), step=step)

    def seen(self, status: JobStatus, now: float) -> Watchdog:
        """Return the watchdog after another look at the job."""
        moved = status.moved if status.moved is not None else status.began
        return replace(
            self,
            began=status.began,
            iterations=status.iterations,
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


def verdict(
    watch: Watchdog, cannot_win: Callable[[float, int], bool], iterations: Sequence[int]
) -> StopDecision | None:
    """Return why to stop a job, or None to let it go on.

    `cannot_win` takes the least seconds of a measured iteration and its number.
    """
    patience = watch.step if watch.iterations else watch.start
    if watch.stalled > patience:
        where = f"after iteration {watch.iterations}" if watch.iterations else "before the end of iteration 1"
        return StopDecision(
            outcome=Outcome.HUNG, reason=f"no progress for {watch.stalled:,.0f} s {where} (limit {patience:,.0f} s)"
        )
    current = watch.iterations + 1
    if current not in iterations:
        return None
    forecast = watch.seconds_in / watch.share if watch.share and watch.share >= MIN_FORECAST_SHARE else None
    least = max(watch.seconds_in, FORECAST_MARGIN * forecast if forecast else 0.0)
    if len(iterations) == 1 and cannot_win(least, current):
        return StopDecision(
            outcome=Outcome.PRUNED,
            reason=f"iteration {current} takes at least {least:,.1f} s, too slow to beat the best",
            forecast=forecast,
        )
    return None
