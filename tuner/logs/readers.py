"""Read the iterations of consecutive lines with all readers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tuner.logs.bars import BAR_WORDS, Bars
from tuner.logs.blocks import Blocks, LitGpt
from tuner.logs.deepspeed import DEEPSPEED_WORDS, DeepSpeed
from tuner.logs.dictionaries import DICTIONARY_WORDS, Dictionaries, evaluation_seconds, is_summary
from tuner.logs.frameworks import FRAMEWORK_WORDS, lines_of_frameworks, logged_memory
from tuner.logs.records import MEMORY_WORDS, RECORD_WORDS, Iteration, LogRecord, PeakMemory, lines_of_megatron, memory

READER_WORDS: Final = (*RECORD_WORDS, *DEEPSPEED_WORDS, *MEMORY_WORDS, *FRAMEWORK_WORDS, *DICTIONARY_WORDS, *BAR_WORDS)
"""Each line with an iteration or memory contains one of these words, unless a step pattern recognises it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readable:
    """The possible content of a line, by its keywords; readers that do not apply are skipped."""

    megatron: bool = True
    deepspeed: bool = True
    frameworks: bool = True
    dictionaries: bool = True
    bars: bool = True
    memory: bool = True

    @classmethod
    def by_words(cls, words: frozenset[str]) -> Readable:
        """Return the possible content of lines with only these keywords."""

        def has(*those: str) -> bool:
            return not words.isdisjoint(those)

        return cls(
            megatron=has(*RECORD_WORDS),
            deepspeed=has(*DEEPSPEED_WORDS),
            frameworks=has(*FRAMEWORK_WORDS),
            dictionaries=has(*DICTIONARY_WORDS),
            bars=has(*BAR_WORDS),
            memory=has(*MEMORY_WORDS, *FRAMEWORK_WORDS),
        )


ANYTHING: Final = Readable()


class LinePattern(Protocol):
    """Reads lines that no reader recognises, of one log or of one trainer."""

    def read(self, line: int, text: str) -> Iterator[LogRecord]:
        """Yield the iterations of a line."""

    def may_read(self, kind: str) -> bool:
        """Whether lines of this kind (without digits) may have an iteration or memory."""

    def memory(self, text: str) -> PeakMemory | None:
        """Return the peak memory in a line."""


class RecordReader:
    """Yields the iterations of a log line by line, and keeps the state that later lines depend on."""

    def __init__(self, pattern: LinePattern | None = None) -> None:
        self._pattern = pattern
        self._deepspeed = DeepSpeed()
        self._dictionaries = Dictionaries()
        self._litgpt = LitGpt()
        self._bars = Bars()
        self._blocks = Blocks()

    def read(self, line: int, text: str, readable: Readable = ANYTHING) -> Iterator[LogRecord]:
        """Yield the iterations of a line."""
        if self._pattern is not None:
            yield from self._pattern.read(line, text)
        if readable.megatron and "iteration" in text:
            yield from lines_of_megatron(line, text)
        if readable.deepspeed:
            yield from self._deepspeed.read(line, text)
        if readable.frameworks:
            yield from lines_of_frameworks(line, text)
            yield from self._blocks.read(line, text)
            if "iter time: " in text:
                yield from self._litgpt.read(line, text)
        if readable.dictionaries:
            yield from self._dictionaries.read(line, text)
        evaluated = evaluation_seconds(text) if readable.dictionaries else 0.0
        is_before_bar = evaluated > 0 and text.find("eval_") < text.rfind("%|")
        if is_before_bar:
            self._bars.evaluate(evaluated)
        if readable.bars:
            yield from self._bars.read(line, text)
        if not is_before_bar:
            self._bars.evaluate(evaluated)
        if readable.dictionaries and is_summary(text):
            self._bars.finish()

    def read_plain_bars(self, block: Sequence[tuple[int, str]], whole: str) -> list[Iteration] | None:
        """Return the iterations of numbered lines with only keywords of bars; None if they must be read one by one."""
        return self._bars.read_plain(block, whole)

    def read_bars(self, line: int, text: str) -> Iterator[LogRecord]:
        """Yield the iterations of a line with only keywords of bars."""
        return self._bars.read(line, text)

    def memory(self, text: str, readable: Readable) -> PeakMemory | None:
        """Return the peak memory in a line."""
        if readable.memory and (found := memory(text) or logged_memory(text)):
            return found
        return self._pattern.memory(text) if self._pattern else None

    def restart(self) -> None:
        """Forget the bars, because the program restarts."""
        self._bars, self._blocks, self._deepspeed = Bars(), Blocks(), DeepSpeed()
        self._litgpt, self._dictionaries = LitGpt(), Dictionaries()
