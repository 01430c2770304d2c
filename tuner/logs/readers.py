"""Read the iterations of consecutive lines with every reader there is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tuner.logs.bars import BAR_WORDS, Bars
from tuner.logs.frameworks import FRAMEWORK_WORDS, Blocks, StepPattern, lines_of_frameworks, logged_memory
from tuner.logs.records import RECORD_WORDS, LogRecord, PeakMemory, memory, profiled_step, records

READER_WORDS: Final = (*RECORD_WORDS, *FRAMEWORK_WORDS, *BAR_WORDS)
"""Each line with an iteration or memory contains one of these words, unless a step pattern recognises it."""


class RecordReader:
    """Yields the iterations of a log line by line; remembers what later lines depend on."""

    def __init__(self, pattern: StepPattern | None = None) -> None:
        self._pattern = pattern
        self._profiled: int | None = None
        self._bars = Bars()
        self._blocks = Blocks()

    def read(self, line: int, text: str) -> Iterator[LogRecord]:
        """Yield the iterations of a line."""
        if self._pattern is not None:
            yield from self._pattern.read(line, text)
        if (step := profiled_step(text)) is not None:
            self._profiled = step
        yield from records(line, text, self._profiled)
        yield from lines_of_frameworks(line, text)
        yield from self._blocks.read(line, text)
        yield from self._bars.read(line, text)
        if "train_runtime" in text:
            self._bars.finish()

    def memory(self, text: str) -> PeakMemory | None:
        """Return the peak memory in a line."""
        return memory(text) or logged_memory(text) or (self._pattern.memory(text) if self._pattern else None)

    def restart(self) -> None:
        """Forget the bars: the program starts again."""
        self._bars, self._blocks = Bars(), Blocks()
