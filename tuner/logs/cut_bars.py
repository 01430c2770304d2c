"""The step times of a bar that is already under way at its first print in a log.

It is unknown whether the earlier steps were smoothed print by print, as in a truncated log, or at once, as after a
resumption. Both cases are followed until they agree; the one closer to the clock is used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

SMOOTHING: Final = 0.3
"""tqdm's default."""
KEPT: Final = 1 - SMOOTHING
_RESUMED: Final = 60.0
"""Seconds within which a resumed bar reaches its first step; a later rate that agrees with the clock is smoothed."""
_AGREE: Final = 1e-3
"""Relative difference below which both cases count as one."""


def beyond(seconds: float, between: float) -> float:
    """Return by how much a time differs from that between two clocks with whole seconds."""
    return max(0.0, abs(seconds - between) - 1)


@dataclass(slots=True)
class Course:
    """One possible state of tqdm's smoothing."""

    steps: float
    seconds: float
    decay: float
    total: float = 0.0
    """Seconds of all steps since."""

    def take(self, steps: int, inverse: float) -> float:
        """Process a print, and return the seconds of its steps."""
        before = self.seconds
        self.decay *= KEPT
        self.steps = SMOOTHING * steps + KEPT * self.steps
        self.seconds = inverse * self.steps
        took = (self.seconds - KEPT * before) / SMOOTHING
        self.total += took
        return took


@dataclass(slots=True)
class CutBar:
    """Follows a bar from its second print on; `follow` in `bar_times.py` does the same without a call per print."""

    done: int
    """Steps at its first print."""
    rate: float
    """Seconds per step by the rate of that print."""
    clock: float
    courses: tuple[Course, Course] | None = None

    def begun(self, steps: int) -> Course | None:
        """Return the state before the second print if the first has about as many steps, so that none preceded it."""
        return self._at_once() if self.courses is None and self.done <= 2 * steps else None

    def take(self, steps: int, inverse: float, clock: float) -> tuple[float, float]:
        """Return the seconds of the steps of a print, and their uncertainty."""
        if self.courses is None:
            decay = KEPT ** (self.done / steps)
            weight = steps * (1 - decay)
            smoothed = Course(steps=weight, seconds=weight * self.rate, decay=decay)
            is_steady = self.clock > _RESUMED and not beyond(steps * inverse, clock - self.clock)
            self.courses = smoothed, replace(smoothed) if is_steady else self._at_once()
        one_by_one, at_once = (course.take(steps, inverse) for course in self.courses)
        off = [beyond(course.total, clock - self.clock) for course in self.courses]
        return (one_by_one if off[0] <= off[1] else at_once), abs(one_by_one - at_once)

    def settled(self, took: float, apart: float) -> Course | None:
        """Return the common state once both cases agree."""
        return self.courses[0] if self.courses and apart <= _AGREE * abs(took) else None

    def _at_once(self) -> Course:
        weight = SMOOTHING * self.done
        return Course(steps=weight, seconds=weight * self.rate, decay=KEPT)
