"""Choose the run and iterations of a log to measure, or explain why none are suitable."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from tuner.core.errors import InputError
from tuner.core.text import counted, listed, shown
from tuner.logs.frameworks import StepPattern
from tuner.logs.log import Log
from tuner.logs.records import LAST_ITERATION_ONLY, Iteration, Source
from tuner.logs.runs import LogRun

NO_LINE: Final = (
    "no line of the output has the time of an iteration; match its lines with --step-pattern, such as "
    "'step (?P<iteration>[0-9]+) .* (?P<ms>[0-9.]+) ms' (`tuner measure stdout.log --explain` shows the likeliest "
    "lines and may suggest a pattern), or call step() of tuner.step in the trainer"
)

ONE_LINE: Final = (
    "only the line of iteration {number} has a time, but at least {count} are needed; train for longer, "
    "or log every iteration"
)

NO_OUTPUT: Final = (
    "it printed nothing; print a line for each iteration, name the trainer's log file with --log, or call step() of "
    "tuner.step in the trainer"
)

_WITHOUT_FIRST: Final[frozenset[Source]] = frozenset({"throughput timer", "olmo-core", "composer", "training summary"})
"""Sources whose only line can be measured, because it covers more than the first iteration."""

_STEADY: Final = 0.1
"""Relative difference up to which the times of two successive iterations agree."""

SKIPPED: Final = "skipped the optimizer step (fp16 loss scaling)"

NO_MATCH: Final = "--step-pattern matches no iteration with a positive time in this log"

Choice = tuple[tuple[int, ...], str]
"""Numbers of the iterations, and an empty string; or no numbers, and a sentence with the reason."""


def parse_iterations(text: str) -> tuple[tuple[int, int], ...]:
    """Parse `2-5` or `2,3,7` as ranges."""
    spans = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,12})\s*(?:-\s*([0-9]{1,12})\s*)?", part)
        if match is None:
            raise InputError(f"--iterations {shown(text)} is neither a range nor a list; write 2-5 or 2,3,7.")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise InputError(f"--iterations: the range {first}-{last} runs backwards; write {last}-{first}.")
        spans.append((first, last))
    return tuple(spans)


def chosen_run(log: Log, number: int | None) -> int:
    """Return the index of run `number`, by default of the last run with iterations."""
    if number is not None:
        if not 1 <= number <= len(log.runs):
            raise InputError(f"--run {number} does not exist: the log has {counted(len(log.runs), 'run')}.")
        return number - 1
    with_iterations = [index for index, run in enumerate(log.runs) if run.iterations]
    return with_iterations[-1] if with_iterations else len(log.runs) - 1


def unmatched(run: LogRun, pattern: StepPattern | None) -> str:
    """Return a sentence if a pattern was given, but another reader found the iterations; empty if not."""
    if pattern is None or run.source in (None, "step pattern", "tuner.step"):
        return ""
    return f"{NO_MATCH}, so it is ignored: the times are from lines of the format '{run.source}'"


def second(run: LogRun, numbers: Sequence[int]) -> Choice:
    """Choose the second iteration of a run, because the first includes compilation, allocation and warm-up.

    If the log has one line per ten iterations, the first line includes the first iteration. If it starts at iteration
    2, that line is the second; if times are differences between lines, so is the first line with a time. DeepSpeed's
    throughput timer already excludes the first two steps. An iteration without an optimizer step is too short, so the
    next one with a step is chosen.
    """
    interval = run.interval or 1
    starts_at_second = _starts_untimed(run, numbers[0]) or (numbers[0] == 2 and interval == 1)
    if len(numbers) == 1 and not (starts_at_second or numbers[0] > interval or run.source in _WITHOUT_FIRST):
        iterations = f"iterations 1 to {numbers[0]} in one line were" if numbers[0] > 1 else "iteration 1 was"
        return (), f"only {iterations} found, which includes compilation and warm-up; run the job for longer."
    later = numbers if starts_at_second or len(numbers) == 1 else numbers[1:]
    skipped = {iteration.number for iteration in run.iterations if iteration.skipped}
    chosen = next((number for number in later if number not in skipped), None)
    if chosen is None:
        return (), f"{spelt(later, interval)} {SKIPPED}; run the job for longer, or lower the initial loss scale."
    return (chosen,), ""


def first_steady(chosen: int, timed: Sequence[Iteration]) -> tuple[int, str]:
    """Return the first iteration, from the chosen one on, whose time agrees with the next; with a note if it is later.

    Compilation, CUDA graphs and the warm-up of fp8 slow down more than the first iteration.
    """
    later = [
        (entry.number, entry.seconds)
        for entry in timed
        if entry.number >= chosen and entry.seconds and not entry.skipped
    ]
    steady = next((number for (number, one), (_, other) in pairwise(later) if abs(one / other - 1) <= _STEADY), None)
    if steady is None and len(later) > 1:
        return chosen, f"no two successive iterations agree within {_STEADY:.0%}; iteration {chosen} is measured."
    if steady is None or steady == chosen:
        return chosen, ""
    return steady, f"iteration {steady} is measured, the first whose time agrees with the next within {_STEADY:.0%}."


def of_job(run: LogRun, positions: Sequence[int], timed: Sequence[Iteration]) -> Choice:
    """Choose iterations of a job by their position in its log: 2 is the second line that the job printed.

    A job may resume at iteration 5,001, and a line may cover ten iterations. The first line includes warm-up and always
    has position 1; later lines count only if no optimizer step was skipped. `timed` are the lines with a time.
    """
    if not timed:
        return (), NO_LINE
    interval, last = run.interval or 1, max(positions)
    first, later = timed[0], [iteration for iteration in timed[1:] if not iteration.skipped]
    by_position = dict(enumerate([first, *later], start=1))
    warm = run.source in _WITHOUT_FIRST and last not in by_position  # its first line excludes the first iteration
    if (warm or _starts_untimed(run, first.number) or (first.number == 2 and interval == 1)) and not first.skipped:
        by_position = dict(enumerate([first, *later], start=2))
    if last in by_position:
        return tuple(by_position[position].number for position in positions), ""
    if skipped := [iteration.number for iteration in timed if iteration.skipped]:
        return (), f"{spelt(skipped, interval)} {SKIPPED}; train for longer, or lower the initial loss scale"
    numbers = [iteration.number for iteration in timed]
    found = f"{spelt(numbers, interval)} in {counted(len(timed), 'line')}"
    return (), f"stdout.log has {found}, and line {last} is measured; log every iteration, or train for longer"


def _starts_untimed(run: LogRun, first: int) -> bool:
    """Whether lines without a time precede the first with one, whose time is a difference between lines."""
    return any(entry.number < first for entry in run.iterations[:1])


def averaging(run: LogRun, chosen: Sequence[int], timed: Sequence[Iteration]) -> str:
    """Return a note on averaged or skipped iterations; empty if there are none."""
    interval = run.interval or 1
    skipped = [iteration.number for iteration in timed if iteration.skipped and iteration.number < max(chosen)]
    parts = []
    if interval > 1 and run.source not in LAST_ITERATION_ONLY:
        parts.append(f"each time is a mean of {interval} iterations")
    if skipped:
        parts.append(f"{spelt(skipped, interval)} {SKIPPED}")
    return "; ".join(parts)


def asked(run: LogRun, numbers: Sequence[int], spans: Sequence[tuple[int, int]]) -> Choice:
    """Choose the iterations of the spans; all of them at the log's interval must be present."""
    interval = run.interval or 1
    numbers = sorted(numbers)
    chosen: set[int] = set()
    missing: list[str] = []
    for first, last in spans:
        within = numbers[bisect_left(numbers, first) : bisect_right(numbers, last)]
        gap = _gap(within, interval)
        if not within or first <= numbers[0] - interval:
            missing.append(str(first))
        elif last >= numbers[-1] + interval:
            missing.append(str(last))
        elif gap:
            missing.append(gap)
        chosen.update(within)
    if missing:
        return (), f"the log has {spelt(numbers, interval)}, not {listed(dict.fromkeys(missing), last='or')}."
    return tuple(sorted(chosen)), ""


def spelt(numbers: Sequence[int], interval: int) -> str:
    """Return numbers in words: `iterations 1 to 4 and 9`, `iterations 10 to 200 in steps of 10`."""
    spans: list[tuple[int, int]] = []
    for number in numbers:
        if spans and number - spans[-1][1] == interval:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    words = [str(first) if first == last else f"{first} to {last}" for first, last in spans]
    steps = f" in steps of {interval}" if interval > 1 and any(first != last for first, last in spans) else ""
    return f"iteration{'s' if len(numbers) > 1 else ''} {listed(words, limit=8)}{steps}"


def _gap(within: Sequence[int], interval: int) -> str:
    """Return the first missing iteration within a span, or an empty string."""
    pairs = pairwise(within)
    return next((str(before + interval) for before, after in pairs if after - before > interval), "")
