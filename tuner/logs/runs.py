"""The runs of a log, and how the lines of a part become a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import Final

from tuner.logs.failures import Sighting, cause
from tuner.logs.records import SOURCES, Iteration, PeakMemory, Source
from tuner.logs.signature import BARE, PEER

BARS_OF_BATCHES: Final[tuple[Source, ...]] = ("progress bar", "training summary")
_OF_BATCHES: Final[frozenset[Source]] = frozenset({"mmengine", *BARS_OF_BATCHES})
"""Sources whose iterations are batches, of which a step may have several."""
_MIN_ITERATIONS_AFTER_CAUGHT: Final = 2
"""Number of iterations after an exception that prove it was caught."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRun:
    """One start of the program."""

    iterations: tuple[Iteration, ...]
    """Ordered by their unique numbers."""
    source: Source | None
    line: int
    """Line of its first iteration."""
    arguments: Mapping[str, str]
    peak: PeakMemory
    """Peak memory of the fullest rank."""
    failure: Sighting | None
    bar: tuple[Iteration, ...] = ()
    """Iterations of a progress bar, for use if the rates of another source need an unknown batch size."""

    @property
    def batch_argument(self) -> int | None:
        """The global batch that its arguments name."""
        argument = self.arguments.get("train_batch_size") or self.arguments.get("global_batch_size") or ""
        return int(argument) if re.fullmatch(r"[0-9]{1,8}", argument) else None

    @property
    def interval(self) -> int | None:
        """Return the number of iterations between two lines, over which Megatron prints the mean."""
        numbers = [iteration.number for iteration in self.iterations]
        gaps = [after - before for before, after in pairwise(numbers)]
        said = self.arguments.get("log_interval") or self.arguments.get("steps_per_print") or ""
        return min(gaps) if gaps else int(said) if said.isdecimal() and len(said) < 10 else None


@dataclass(slots=True)
class RunPart:
    """A run while it is read."""

    arguments: dict[str, str]
    by_source: dict[Source, dict[int, Iteration]] = field(default_factory=dict)
    not_numbers: dict[int, Sighting] = field(default_factory=dict)
    failures: list[tuple[Sighting, int]] = field(default_factory=list)
    """Each with the number of iterations before it."""
    peak: PeakMemory = field(default_factory=PeakMemory)
    batches: int | None = None
    """Batches per optimizer step, if a line states them for iterations that are batches."""

    @property
    def source(self) -> Source | None:
        """The best source of the run's times."""
        known = [source for source in SOURCES if source in self.by_source]
        if known[:1] == ["progress bar"] and len(self.by_source["progress bar"]) == 1:
            if len(self.by_source.get("elapsed time", ())) > 1:
                return "elapsed time"
            return "training summary" if "training summary" in known else known[0]
        return known[0] if known else None

    @property
    def iterations(self) -> dict[int, Iteration]:
        """The iterations of that source, by number."""
        return self.by_source[self.source] if self.source else {}


_BESIDE_PASSES: Final = 1.2
"""Ratio of a step's time to that of its passes above which these do not cover the step, as if samples are generated
first.
"""


def _source(part: RunPart) -> Source | None:
    """Return the most reliable source of a run's times, unless it omits a part of each step."""
    if part.source == "wall-clock breakdown" and "progress bar" in part.by_source:
        lines, bar = (list(part.by_source[name].values()) for name in ("wall-clock breakdown", "progress bar"))
        passes, steps = (median([each.seconds for each in those if each.seconds] or [0.0]) for those in (lines, bar))
        stamps = [each.stamp for each in lines if each.stamp is not None]
        between = median([after - before for before, after in pairwise(stamps)] or [steps])
        if min(between, steps) > _BESIDE_PASSES * passes:
            return "progress bar"
    return part.source


def run_of(part: RunPart, batches: int) -> LogRun:
    """Return the run of a part, with the given number of batches per step."""
    source = _source(part)
    iterations = tuple(iteration for _, iteration in sorted(part.by_source[source].items())) if source else ()
    if batches > 1 and source in _OF_BATCHES:
        iterations = tuple(of_batches(iteration, batches) for iteration in iterations)
    if source == "flops profiler":
        iterations = iterations[-1:]  # it prints the accumulated time after each microbatch
    failures = [
        seen
        for seen, before in part.failures
        if not seen.passing
        or len(iterations) - before < (1 if seen.weight in {BARE, PEER} else _MIN_ITERATIONS_AFTER_CAUGHT)
    ]
    if part.not_numbers:
        failures += _closing_streak(iterations, part.not_numbers)
    return LogRun(
        iterations=iterations,
        source=source,
        line=min((iteration.line for iteration in iterations), default=0),
        arguments=part.arguments,
        peak=part.peak,
        failure=cause(failures),
        bar=() if source == "progress bar" else tuple(part.by_source.get("progress bar", {}).values()),
    )


def of_batches(iteration: Iteration, batches: int) -> Iteration:
    """Return a batch as an iteration with the time of a step."""
    if not iteration.seconds:
        return iteration
    derived = f"a batch, {batches} of which make a step"
    return replace(
        iteration,
        seconds=iteration.seconds * batches,
        seconds_digit=iteration.seconds_digit * batches,
        stamp=None,  # the time between lines is that of batches
        counts_batches=False,
        derived=f"{iteration.derived}, of {derived}" if iteration.derived else f"the time of {derived}",
    )


def _closing_streak(iterations: Iterable[Iteration], seen: Mapping[int, Sighting]) -> list[Sighting]:
    """Return the sighting of a loss that became NaN and stayed NaN."""
    streak: list[Sighting] = []
    for iteration in iterations:
        streak = [*streak[:1], seen[iteration.number]] if iteration.number in seen else []
    return streak
