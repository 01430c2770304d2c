"""Read a whole log: its runs, and the iterations of each in order.

Several ranks report the same iteration in mixed order, and a restarted run numbers its iterations from 1 again. The
rank distinguishes the two: its numbers only grow during a run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from statistics import median
from typing import Final

from tuner.logs.arguments import ARGUMENT_WORDS, argument, opens_arguments
from tuner.logs.bare_bars import BareBars
from tuner.logs.bars import BAR_WORDS
from tuner.logs.deepspeed import overflow
from tuner.logs.failures import FAILURE_WORDS, Failures, Sighting, cause, not_a_number
from tuner.logs.frameworks import StepPattern
from tuner.logs.lines import stamp_of, untangled, unwrapped, visible_blocks
from tuner.logs.named_figures import Interpretation
from tuner.logs.ranks import merged, starts_new_run
from tuner.logs.readers import READER_WORDS, LinePattern, RecordReader
from tuner.logs.records import SOURCES, Iteration, LogRecord, PeakMemory, Source
from tuner.logs.signature import BARE, PEER

_BEFORE_FIRST: Final = -1
"""Below every iteration's number: some trainers begin at 0."""
_PLAIN_BAR: Final[tuple[Source, str]] = ("progress bar", "")
"""Source and speaker of bars alone on their lines."""
_NEW_STREAM: Final = (_BEFORE_FIRST, 0)
_NOTHING: Final[Mapping[int, Iteration]] = {}
_BARS: Final = frozenset(BAR_WORDS)
"""Lines without another word can hold only the iterations of a progress bar."""
_MAX_STAMPED: Final = 1024
"""Lines whose time stamps are kept: a unit that is misread shows in the first ones."""
_MAX_WRAPPED_CHARS: Final = 1 << 20
"""Characters of a log that may be copied from a terminal, with its lines broken."""
_ACCUMULATED: Final = re.compile(r"\baccumulative_counts\s?=\s?([0-9]{1,6})\b")
_STEPS_OF_EPOCH: Final = re.compile(r"Epoch 0, global step ([0-9]{1,9})\b")
_BARS_BATCHES: Final[tuple[Source, ...]] = ("progress bar", "training summary")
_OF_BATCHES: Final[frozenset[Source]] = frozenset({"mmengine", *_BARS_BATCHES})
"""Sources whose iterations are batches, where `_count_batches` finds several in a step."""
_EVEN: Final = 0.02
"""Relative error up to which the batches of an epoch divide by its steps: the last step has fewer."""
_NO_DIGITS: Final = str.maketrans("", "", "0123456789")
_MIN_ITERATIONS_AFTER_CAUGHT: Final = 2
"""Number of iterations after an exception that prove it was caught."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRun:
    """One start of the program."""

    iterations: tuple[Iteration, ...]
    """In order of their numbers, which are unique."""
    source: Source | None
    line: int
    """Line of its first iteration."""
    arguments: Mapping[str, str]
    peak: PeakMemory
    """Peak memory of the fullest rank."""
    failure: Sighting | None
    bar: tuple[Iteration, ...] = ()
    """Those of a progress bar beside another source, for where the size that its rates need is unknown."""

    @property
    def interval(self) -> int | None:
        """Return the number of iterations between two lines; Megatron prints the mean over them."""
        numbers = [iteration.number for iteration in self.iterations]
        gaps = [after - before for before, after in pairwise(numbers)]
        said = self.arguments.get("log_interval") or self.arguments.get("steps_per_print") or ""
        return min(gaps) if gaps else int(said) if said.isdecimal() and len(said) < 10 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """All runs of a log; none where it has neither an iteration nor a failure."""

    runs: tuple[LogRun, ...]


def read_log(lines: Iterable[str], pattern: StepPattern | None = None) -> Log:
    """Read a log, of any content and length; never raises. `pattern` recognises lines that no reader knows."""
    reader = _Reader(pattern)
    kept: list[list[tuple[int, str]]] = []
    chars = 0
    for block, whole in visible_blocks(lines):
        reader.read_block(block, whole)
        chars += len(whole)
        if chars <= _MAX_WRAPPED_CHARS:
            kept.append(block)
    log = reader.log()
    if chars <= _MAX_WRAPPED_CHARS and not any(run.iterations for run in log.runs):
        reader = _Reader(pattern)
        for block, whole in visible_blocks(unwrapped(chain.from_iterable(kept))):
            reader.read_block(block, whole)
        joined = reader.log()
        if any(run.iterations for run in joined.runs):
            return joined
    if pattern is None and not any(run.iterations for run in log.runs):
        return _otherwise(kept) or log
    return log


def _otherwise(blocks: Sequence[Sequence[tuple[int, str]]]) -> Log | None:
    """Read lines that no reader knows by the names of their figures, or what is left of bars; None where neither tells
    the time."""
    ways: list[LinePattern] = [BareBars()]
    if by_names := Interpretation.of(text for block in blocks for _, text in block):
        ways.insert(0, by_names)
    for way in ways:
        reader = _Reader(way)
        for number, text in chain.from_iterable(blocks):
            reader.read(number, text)
        log = reader.log()
        if any(run.iterations for run in log.runs):
            return log
    return None


@dataclass(slots=True)
class _Part:
    """A run that is being read."""

    arguments: dict[str, str]
    by_source: dict[Source, dict[int, Iteration]] = field(default_factory=dict)
    not_numbers: dict[int, Sighting] = field(default_factory=dict)
    failures: list[tuple[Sighting, int]] = field(default_factory=list)
    """Each with the number of iterations before it."""
    peak: PeakMemory = field(default_factory=PeakMemory)

    @property
    def source(self) -> Source | None:
        known = [source for source in SOURCES if source in self.by_source]
        if known[:1] == ["progress bar"] and len(self.by_source["progress bar"]) == 1:
            if len(self.by_source.get("elapsed time", ())) > 1:
                return "elapsed time"
            return "training summary" if "training summary" in known else known[0]
        return known[0] if known else None

    @property
    def iterations(self) -> dict[int, Iteration]:
        return self.by_source[self.source] if self.source else {}


class _Reader:
    """Reads a log line by line."""

    def __init__(self, pattern: LinePattern | None) -> None:
        self._starts = 0
        self._stamped = 0
        self._reads_all = pattern is not None
        self._records = RecordReader(pattern)
        self._arguments: dict[str, str] = {}
        self._parts: dict[tuple[int, int], _Part] = {}
        self._latest = (0, 0)
        self._streams: dict[tuple[Source, str], tuple[int, int]] = {}
        """The last iteration of each rank since the start, and how often its numbers fell back."""
        self._failures = Failures()
        self._overflows = 0
        self._overflows_seen: dict[tuple[Source, str], int] = {}
        """Overflows up to the last line of each rank."""
        self._batches_per_step = 1
        """Batches that make an optimizer step, where a line says so of iterations that are batches."""

    def read_block(self, block: Sequence[tuple[int, str]], whole: str) -> None:
        """Read consecutive lines, `whole` in one text, without those of which no reader knows a word."""
        # Lines of iterations differ in little but their figures, so that few are left to search without them.
        kinds = "\n".join(set(whole.translate(_NO_DIGITS).split("\n")))
        found = [each for stem, words in _WORDS.items() if stem in kinds for each in words]
        present = [word for word, bare in found if bare in kinds and (bare == word or word in whole)]
        words = frozenset(present)
        self._failures.expect(words)
        self._records.expect(words)
        if words <= _BARS and not self._reads_all and not self._failures.awaits_lines:
            if words:
                self._read_bars(block, whole)
            return
        for number, text in block:
            if self._reads_all or self._failures.awaits_lines or any(word in text for word in present):
                self.read(number, text)

    def _read_bars(self, block: Sequence[tuple[int, str]], whole: str) -> None:
        """Read lines that can hold only the iterations of a progress bar."""
        plain = self._records.read_plain_bars(block, whole)
        if plain is None:
            for number, text in block:
                for record in self._records.read_bars(number, text):
                    self._add(record, text)
            return
        found: dict[int, Iteration] = {}
        last = falls = 0
        for iteration in plain:
            which = iteration.number
            if found and which > last and which not in found and not self._overflows:
                found[which] = iteration
                last = which
                continue
            if found:
                self._streams[_PLAIN_BAR] = (last, falls)
            self._add(LogRecord(*_PLAIN_BAR, iteration), "")
            last, falls = self._streams[_PLAIN_BAR]
            found = self._part((self._starts, falls)).by_source["progress bar"]
        if found:
            self._streams[_PLAIN_BAR] = (last, falls)

    def read(self, number: int, text: str) -> None:
        """Read one line."""
        if opens_arguments(text):
            self._start()
        elif named := argument(text):
            self._arguments[named[0]] = named[1]
            return
        self._overflows += overflow(text)
        if any(word in text for word in _BATCH_WORDS):
            self._count_batches(text)
        for record in self._records.read(number, text):
            self._add(record, text)
        if used := self._records.memory(text):
            self._remember(used)
        if seen := self._failures.see(number, untangled(text)):
            self._fail(seen)

    def _count_batches(self, text: str) -> None:
        """Remember how many batches make a step: MMEngine's setting, or Lightning's steps at the end of an epoch."""
        if found := _ACCUMULATED.search(text):
            self._batches_per_step = int(found[1])
        elif (found := _STEPS_OF_EPOCH.search(text)) and (steps := int(found[1])):
            bars = [part.by_source.get(source, _NOTHING) for part in self._parts.values() for source in _BARS_BATCHES]
            batches = max(map(max, filter(None, bars)), default=0)
            many = round(batches / steps)
            if many > 1 and abs(batches / steps / many - 1) < _EVEN:
                self._batches_per_step = many

    def log(self) -> Log:
        """Return the log."""
        for seen in self._failures.end():
            self._fail(seen)
        made = [_run(part, self._batches_per_step) for _, part in sorted(self._parts.items())]
        return Log(runs=tuple(run for run in made if run.iterations or run.failure))

    def _start(self) -> None:
        """Begin another run at a list of arguments, unless the current one is empty."""
        part = self._part(self._latest)
        if part.by_source or part.failures:
            self._starts += 1
            self._records.restart()
            self._arguments, self._streams, self._latest = {}, {}, (self._starts, 0)

    def _part(self, place: tuple[int, int]) -> _Part:
        if place not in self._parts:
            self._parts[place] = _Part(arguments=self._arguments)
        return self._parts[place]

    def _fail(self, seen: Sighting) -> None:
        part = self._part(self._latest)
        part.failures.append((seen, len(part.iterations)))

    def _remember(self, used: PeakMemory) -> None:
        part = self._part(self._latest)
        both = (part.peak, used)
        part.peak = PeakMemory(
            allocated=max((one.allocated for one in both if one.allocated), default=None),
            reserved=max((one.reserved for one in both if one.reserved), default=None),
            in_use=max((one.in_use for one in both if one.in_use), default=None),
        )

    def _add(self, record: LogRecord, text: str) -> None:
        source = record.source
        stream = (source, record.speaker)
        last, falls = self._streams.get(stream, _NEW_STREAM)
        iteration = record.iteration
        if self._overflows and source != "megatron":  # Megatron prints the number itself
            if fresh := self._overflows - self._overflows_seen.get(stream, 0):
                iteration = replace(iteration, skipped=fresh)
            self._overflows_seen[stream] = self._overflows
        if self._stamped < _MAX_STAMPED and source != "progress bar":
            self._stamped += 1
            stamp, digit = stamp_of(text)
            if stamp is not None:
                iteration.stamp, iteration.stamp_digit = stamp, digit
        if record.counted:
            iteration = replace(iteration, number=max(last, 0) + 1)
        which = iteration.number
        part = self._part((self._starts, falls))
        known = part.by_source.get(source, _NOTHING).get(which)
        if (known is not None or which <= last) and starts_new_run(
            iteration, known, last, labelled=bool(record.speaker)
        ):
            falls, last = falls + 1, _BEFORE_FIRST
            part = self._part((self._starts, falls))
            known = part.by_source.get(source, _NOTHING).get(which)
        self._latest = (self._starts, falls)
        self._streams[stream] = (which if which > last else last, falls)
        found = part.by_source.get(source)
        if found is None:
            found = part.by_source[source] = {}
        found[which] = merged(known, iteration) if known else iteration
        if iteration.loss is not None and math.isnan(iteration.loss):
            part.not_numbers[which] = not_a_number(iteration.line, text)


_BESIDE_PASSES: Final = 1.2
"""Times of a step over its passes above which these are not all of it, as where samples are generated first."""


def _source(part: _Part) -> Source | None:
    """Return what measures a run: its most reliable source, unless that leaves out a part of each step."""
    if part.source == "wall-clock breakdown" and "progress bar" in part.by_source:
        lines, bar = (list(part.by_source[name].values()) for name in ("wall-clock breakdown", "progress bar"))
        passes, steps = (median([each.seconds for each in those if each.seconds] or [0.0]) for those in (lines, bar))
        stamps = [each.stamp for each in lines if each.stamp is not None]
        between = median([after - before for before, after in pairwise(stamps)] or [0.0])
        if min(between, steps) > _BESIDE_PASSES * passes:
            return "progress bar"
    return part.source


def _run(part: _Part, batches: int) -> LogRun:
    source = _source(part)
    iterations = tuple(iteration for _, iteration in sorted(part.by_source[source].items())) if source else ()
    if batches > 1 and source in _OF_BATCHES:
        iterations = tuple(_of_batches(iteration, batches) for iteration in iterations)
    if source == "flops profiler":
        iterations = iterations[-1:]  # it prints the accumulated time after each micro batch
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
        bar=() if source == "progress bar" else tuple(part.by_source.get("progress bar", _NOTHING).values()),
    )


def _of_batches(iteration: Iteration, batches: int) -> Iteration:
    """Return an iteration that is a batch with the time of a step."""
    if not iteration.seconds:
        return iteration
    derived = f"a batch, {batches} of which make a step"
    return replace(
        iteration,
        seconds=iteration.seconds * batches,
        seconds_digit=iteration.seconds_digit * batches,
        stamp=None,  # the time between lines is that of batches
        derived=f"{iteration.derived}, of {derived}" if iteration.derived else f"the time of {derived}",
    )


def _closing_streak(iterations: Iterable[Iteration], seen: Mapping[int, Sighting]) -> list[Sighting]:
    """Return the sighting of a loss that became NaN and stayed so."""
    streak: list[Sighting] = []
    for iteration in iterations:
        streak = [*streak[:1], seen[iteration.number]] if iteration.number in seen else []
    return streak


_STEMS: Final = (
    *("rror", "nan", "inf", "NCCL", "emory", "ignal", "rain", " DUE TO ", "return", "TERM_", "oss ", "code", "SIG"),
    *("xception", "imed out", "GPU", "CUDA", "rgument", "ption", "failed", "fatal", "ound", "was ", "orrupt", "ERROR"),
    *("ermission", "ccess", "loc(", "illed", "bort", "orker", "onnect", "ib", " to ", "ile", "er ", "es "),
)
"""Parts that many of the words below share, so that they are searched first."""


def _by_stem(words: Iterable[str]) -> dict[str, list[tuple[str, str]]]:
    """Return words, each with itself without digits, by the stem that this contains; one without a stem is its own."""
    found: dict[str, list[tuple[str, str]]] = {}
    for word in dict.fromkeys(words):
        bare = word.translate(_NO_DIGITS)
        found.setdefault(next((stem for stem in _STEMS if stem in bare), bare), []).append((word, bare))
    return found


_BATCH_WORDS: Final = ("accumulative_counts", ", global step ")
_WORDS: Final = _by_stem((*READER_WORDS, *FAILURE_WORDS, *ARGUMENT_WORDS, *_BATCH_WORDS))
"""Each line that changes what is read from a log contains one of these words, or follows one that does."""
