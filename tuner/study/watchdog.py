"""When a running job is stopped: it hangs, it takes too long, or it can no longer win."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tuner.core.outcomes import Outcome
from tuner.launch.contract import JobStatus

START: Final = 900.0
"""Seconds that a job may take to show its first progress while nobody knows better."""

LONGER: Final = 3.0
"""Times the longest start so far."""

STILL: Final = 6.0
"""Iterations, by the upper end of the estimate, without any progress after which a job is taken for hung."""

LEAST: Final = 30.0
"""Seconds; nothing is taken for hung sooner."""

TELLING: Final = 0.25
"""Share of an iteration from which on its end is forecast."""

TRUST: Final = 0.95
"""Of a forecast, as a lower bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watchdog:
    """What is known of a running job's progress, and how long it may stand still."""

    start: float
    """Seconds that it may take until the first iteration is over."""
    step: float
    """Seconds that it may stand still afterwards."""
    began: float | None = None
    iterations: int = 0
    seconds_in: float = 0.0
    share: float | None = None
    still: float = 0.0
    """Seconds since it last moved."""
    next_look: float = 1e9

    @classmethod
    def of(cls, seconds: float, starts: Sequence[float]) -> Watchdog:
        """For a job whose iteration takes at most about so many seconds, after jobs that took so long to start."""
        step = max(LEAST, STILL * seconds)
        return cls(start=step + (LONGER * max(starts) if starts else START), step=step)

    def seen(self, status: JobStatus, now: float) -> Watchdog:
        """The same after another look."""
        moved = status.moved if status.moved is not None else status.began
        return replace(
            self,
            began=status.began,
            iterations=status.iterations,
            seconds_in=status.seconds_in,
            share=status.share,
            still=now - moved if moved is not None else 0.0,
            next_look=max(0.05, 0.25 * self.step / STILL),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StopDecision:
    """Why a job is stopped."""

    outcome: Outcome
    reason: str
    forecast: float | None = None


def verdict(watch: Watchdog, stops: Callable[[float, int], bool], iterations: Sequence[int]) -> StopDecision | None:
    """Whether to stop a job; None lets it go on.

    `stops` says whether a measured iteration that takes at least so many seconds can no longer win.
    """
    patience = watch.step if watch.iterations else watch.start
    if watch.still > patience:
        done = f"after iteration {watch.iterations}" if watch.iterations else "before its first iteration was over"
        return StopDecision(
            outcome=Outcome.HUNG, reason=f"no progress for {watch.still:,.0f} s {done}; {patience:,.0f} s are allowed"
        )
    under_way = watch.iterations + 1
    if under_way not in iterations:
        return None
    forecast = watch.seconds_in / watch.share if watch.share and watch.share >= TELLING else None
    least = max(watch.seconds_in, TRUST * forecast if forecast else 0.0)
    if len(iterations) == 1 and stops(least, under_way):
        return StopDecision(
            outcome=Outcome.PRUNED,
            reason=f"iteration {under_way} takes {least:,.1f} s or more, too long to beat the best",
            forecast=forecast,
        )
    return None
