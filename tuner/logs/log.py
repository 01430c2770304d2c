"""Read a whole log: its runs, and the iterations of each in order.

Several ranks report the same iteration in mixed order, and a restarted run numbers its iterations from 1 again. The
rank distinguishes the two: its numbers only grow during a run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Final

from tuner.logs.arguments import ARGUMENT_WORDS, argument, opens_arguments
from tuner.logs.bare_bars import BareBars
from tuner.logs.bars import BAR_WORDS
from tuner.logs.deepspeed import overflow, overflowed
from tuner.logs.failures import FAILURE_WORDS, Failures, Sighting, not_a_number
from tuner.logs.frameworks import StepPattern
from tuner.logs.lines import kind_of, kinds_of, shape_of, stamp_of, untangled, unwrapped, visible_blocks
from tuner.logs.named_figures import Interpretation, LiveFigures
from tuner.logs.ranks import merged, starts_new_run
from tuner.logs.readers import READER_WORDS, LinePattern, Readable, RecordReader
from tuner.logs.records import LAST_ITERATION_ONLY, Iteration, LogRecord, PeakMemory, Source
from tuner.logs.runs import BARS_OF_BATCHES, LogRun, RunPart, run_of

_BEFORE_FIRST: Final = -1
"""Below the number of any iteration: some trainers start at 0."""
_PLAIN_BAR: Final[tuple[Source, str]] = ("progress bar", "")
"""Source and speaker of bars on lines of their own."""
_NEW_STREAM: Final = (_BEFORE_FIRST, 0)
_NOTHING: Final[Mapping[int, Iteration]] = {}
_BARS: Final = frozenset(BAR_WORDS)
"""Lines with only these keywords can contain only the iterations of a progress bar."""
_MAX_STAMPED: Final = 1024
"""Lines whose timestamps are kept: a misread unit shows in the first ones."""
_MAX_KEPT_CHARS: Final = 1 << 20
"""Characters to read before deciding whether a terminal wrapped the lines, or how an unknown log is read."""
_ACCUMULATED: Final = re.compile(r"\baccumulative_counts\s?=\s?([0-9]{1,6})\b")
_STEPS_OF_EPOCH: Final = re.compile(r"Epoch 0, global step ([0-9]{1,9})\b")
_EVEN: Final = 0.02
"""Relative error up to which the batches of an epoch divide by its steps: the last step has fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """All runs of a log; none without an iteration or a failure."""

    runs: tuple[LogRun, ...]


_Block = tuple[Sequence[tuple[int, str]], str]
"""Consecutive lines, each with its number, and all of them in one text."""


def read_log(lines: Iterable[str], pattern: StepPattern | None = None) -> Log:
    """Read a log of any content and length; never raises. `pattern` matches lines that no reader recognises."""
    reader = _Reader(pattern)
    kept: list[_Block] = []
    others: list[_Reader] | None = None
    chars = 0
    for block, whole in visible_blocks(lines):
        kinds = kinds_of(whole)
        reader.read_block(block, whole, kinds)
        chars += len(whole)
        if reader.has_iterations:
            kept, others = [], []
        elif others is None:
            kept.append((block, whole))
            if chars > _MAX_KEPT_CHARS:
                kept, others = [], _others(kept, pattern, goes_on=True)
        else:
            for each in others:
                each.read_block(block, whole, kinds)
    log = reader.log()
    if reader.has_iterations:
        return log
    if chars <= _MAX_KEPT_CHARS:
        whole_lines = _Reader(pattern)
        for block, whole in visible_blocks(unwrapped(chain.from_iterable(block for block, _ in kept))):
            whole_lines.read_block(block, whole)
        if whole_lines.has_iterations:
            return whole_lines.log()
    for each in _others(kept, pattern) if others is None else others:
        if each.has_iterations:
            return each.log()
    return log


def _others(blocks: Sequence[_Block], pattern: StepPattern | None, *, goes_on: bool = False) -> list[_Reader]:
    """Return the reader that finds iterations by figure names or in bare bars; all if none does and the log goes on."""
    if pattern is not None:
        return []
    ways: list[LinePattern] = [BareBars()]
    by_names = Interpretation.of(text for block, _ in blocks for _, text in block)
    if by_names is not None or goes_on:
        ways.insert(0, by_names or LiveFigures())
    readers = []
    for way in ways:
        readers.append(reader := _Reader(way))
        for block, whole in blocks:
            reader.read_block(block, whole)
        if reader.has_iterations:
            return [reader]
    return readers


class _Reader:
    """Reads a log line by line."""

    def __init__(self, pattern: LinePattern | None) -> None:
        self._starts = 0
        self._stamped = 0
        self._pattern = pattern
        self._records = RecordReader(pattern)
        self._arguments: dict[str, str] = {}
        self._parts: dict[tuple[int, int], RunPart] = {}
        self._latest = (0, 0)
        self._streams: dict[tuple[Source, str], tuple[int, int]] = {}
        """The last iteration of each rank since the start, and how often its numbers fell back."""
        self._failures = Failures()
        self._failed = RunPart(arguments={})
        """The part with the last failure."""
        self._overflows = 0
        self._overflowed: int | None = None
        """The last skipped optimizer step, if a line has its number."""
        self._overflows_seen: dict[tuple[Source, str], int] = {}
        """Overflows up to the last line of each rank."""

    @property
    def has_iterations(self) -> bool:
        """Whether any line has an iteration."""
        return any(part.by_source for part in self._parts.values())

    def read_block(self, block: Sequence[tuple[int, str]], whole: str, kinds: AbstractSet[str] | None = None) -> None:
        """Read consecutive lines, joined in `whole`, and skip those without a keyword of any reader.

        Lines of iterations differ mostly in figures, so that only a few `kinds` are searched.
        """
        kinds = kinds_of(whole) if kinds is None else kinds
        joined = "\n".join(kinds)
        found = [each for stem, words in _WORDS.items() if stem in joined for each in words]
        present = [(word, bare) for word, bare in found if bare in joined and (bare == word or word in whole)]
        words = frozenset(word for word, _ in present)
        self._failures.expect(words)
        if words <= _BARS and self._pattern is None and not self._failures.awaits_lines:
            if words:
                self._read_bars(block, whole)
            return
        read = {}
        for kind in kinds if words or self._pattern is not None else ():
            words = frozenset(word for word, bare in present if bare in kind)
            if words or (self._pattern is not None and self._pattern.may_read(kind)):
                read[shape_of(kind)] = _Words.of(words)
        if not (read or self._failures.awaits_lines):
            return
        for number, text in block:
            if known := read.get(shape_of(text)):
                self.read(number, text, known)
            elif self._failures.awaits_lines:
                self.read(number, text, _NO_WORDS)

    def _read_bars(self, block: Sequence[tuple[int, str]], whole: str) -> None:
        """Read lines that can contain only the iterations of a progress bar."""
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

    def read(self, number: int, text: str, words: _Words) -> None:
        """Read one line with these words."""
        if words.arguments:
            if opens_arguments(text):
                self._start()
            elif named := argument(text):
                self._arguments[named[0]] = named[1]
                return
        if words.readable.deepspeed:
            self._overflows += overflow(text)
            self._overflowed = overflowed(text) or self._overflowed
        if words.batches:
            self._count_batches(text)
        for record in self._records.read(number, text, words.readable):
            self._add(record, text)
        if used := self._records.memory(text, words.readable):
            self._remember(used)
        if words.failures or self._failures.awaits_lines:
            text = untangled(text)
            if longer := self._failures.continued(text):
                self._failed.failures[-1] = (longer, self._failed.failures[-1][1])
            if seen := self._failures.see(number, text):
                self._fail(seen)

    def _count_batches(self, text: str) -> None:
        """Record how many batches make a step: MMEngine's setting, or Lightning's steps at the end of an epoch."""
        part = self._part(self._latest)
        if found := _ACCUMULATED.search(text):
            part.batches = int(found[1])
        elif (found := _STEPS_OF_EPOCH.search(text)) and (steps := int(found[1])):
            bars = filter(None, (part.by_source.get(source) for source in BARS_OF_BATCHES))
            batches = max((next(reversed(bar)) for bar in bars), default=0)
            many = round(batches / steps)
            if many and abs(batches / steps / many - 1) < _EVEN:
                part.batches = many

    def log(self) -> Log:
        """Return the log."""
        for seen in self._failures.end():
            self._fail(seen)
        made, batches = [], 1
        for _, part in sorted(self._parts.items()):
            batches = part.batches or batches  # printed in the first epoch
            made.append(run_of(part, batches))
        return Log(runs=tuple(run for run in made if run.iterations or run.failure))

    def _start(self) -> None:
        """Start another run at a list of arguments, unless the current one is empty."""
        part = self._part(self._latest)
        if part.by_source or part.failures:
            self._starts += 1
            self._records.restart()
            self._arguments, self._streams, self._latest = {}, {}, (self._starts, 0)

    def _part(self, place: tuple[int, int]) -> RunPart:
        if place not in self._parts:
            self._parts[place] = RunPart(arguments=self._arguments)
        return self._parts[place]

    def _fail(self, seen: Sighting) -> None:
        self._failed = part = self._part(self._latest)
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
            fresh = self._overflows - self._overflows_seen.get(stream, 0)
            if fresh and not (source in LAST_ITERATION_ONLY and 0 < (self._overflowed or 0) < iteration.number):
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
            iteration, known, last, labelled=bool(record.speaker), own_losses=source == "named figures"
        ):
            falls, last = falls + 1, _BEFORE_FIRST
            part = self._part((self._starts, falls))
            known = part.by_source.get(source, _NOTHING).get(which)
        self._latest = (self._starts, falls)
        self._streams[stream] = (which if which > last else last, falls)
        part.by_source.setdefault(source, {})[which] = merged(known, iteration) if known else iteration
        if iteration.loss is not None and math.isnan(iteration.loss):
            part.not_numbers[which] = not_a_number(iteration.line, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """What a line may be about, by its keywords."""

    readable: Readable
    arguments: bool
    batches: bool
    failures: bool

    @classmethod
    @lru_cache(1024)
    def of(cls, words: frozenset[str]) -> _Words:
        return cls(
            readable=Readable.by_words(words),
            arguments=not words.isdisjoint(ARGUMENT_WORDS),
            batches=not words.isdisjoint(_BATCH_WORDS),
            failures=not words.isdisjoint(FAILURE_WORDS),
        )


_STEMS: Final = (
    *("rror", "nan", "inf", "NCCL", "emory", "ignal", "rain", " DUE TO ", "return", "TERM_", "oss ", "code", "SIG"),
    *("xception", "imed out", "GPU", "CUDA", "rgument", "ption", "failed", "fatal", "ound", "was ", "orrupt", "ERROR"),
    *("ermission", "ccess", "loc(", "illed", "bort", "orker", "onnect", "ib", " to ", "ile", "er ", "es "),
)
"""Parts that many of the words below share and that are searched first."""


def _by_stem(words: Iterable[str]) -> dict[str, list[tuple[str, str]]]:
    """Group words, each paired with its form without digits, by the stem that they contain, or by themselves."""
    found: dict[str, list[tuple[str, str]]] = {}
    for word in dict.fromkeys(words):
        bare = kind_of(word)
        found.setdefault(next((stem for stem in _STEMS if stem in bare), bare), []).append((word, bare))
    return found


_BATCH_WORDS: Final = ("accumulative_counts", ", global step ")
_WORDS: Final = _by_stem((*READER_WORDS, *FAILURE_WORDS, *ARGUMENT_WORDS, *_BATCH_WORDS))
"""Each line that changes what is read from a log contains one of these words, or follows one that does."""
_NO_WORDS: Final = _Words.of(frozenset())
