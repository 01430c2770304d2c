"""Parse the lines of frameworks that print several lines for each iteration.

- LitGPT, `pretrain.py`: `Epoch 1 | iter 4 step 2 | loss train: 1.597, val: n/a | iter time: 595.27 ms (step)`, a line
  for each batch, of which several make a step.
- OLMo-core, `console_logger.py`: `[step=2/100,epoch=1]`, and below it `throughput/device/BPS=0.512`.
- Composer and llm-foundry, `console_logger.py`: `[batch=2/10]:`, and below it `Train time/train: 0.0150` (hours).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from tuner.logs.lines import stamp_of
from tuner.logs.records import LOSS, NUMBER, Iteration, LogRecord, Source, digit_of, figure_of, loss_of

_LITGPT: Final = re.compile(
    rf"\biter ([0-9]{{1,12}})(?: \|)? (?i:step) ([0-9]{{1,12}})(?:(?: \| loss train|: loss(?: train)?)(?: \(curr\))?:? "
    rf"({LOSS}), .{{0,80}}?|: )iter time: ({NUMBER}) ?ms( \((?:optimizer\.|opt\.)?step\))?"
)
_OLMO: Final = re.compile(r"\[step=([0-9]{1,12})/(?:[0-9]{1,12}|\?\?\?)(?:,epoch=[0-9]{1,9}[^\]]{0,80})?\]")
_OLMO_RATES: Final = ("throughput/device/BPS", "throughput/device/batches_per_second")
"""Rates of the last step; the first step has none."""
_OLMO_LINE: Final = re.compile(rf"^(?:\S{{1,60}} )?\s*((?:throughput|train)/[A-Za-z_ /]{{1,60}})=({LOSS})\s*$")
_COMPOSER: Final = re.compile(
    r"^(?:\S{1,60} )?(?:\[epoch=([0-9]{1,9})\])?\[batch=([0-9]{1,12})(?:/([0-9]{1,12}))?\]:?(?:\s+Train (.+)|\s*$)"
)
_COMPOSER_LINE: Final = re.compile(r"^\S{0,60}\s+Train (.+)")
_COMPOSER_FIGURE: Final = re.compile(rf"(?:^|\s{{2,}})([a-z_/]{{1,80}}): ({LOSS})(?=\s{{2,}}|\s*$)")
"""One per line, or several in a condensed line."""
_COMPOSER_CLOCKS: Final = {"time/train": 3600.0, "wall_clock/train": 1.0}
"""Seconds of the unit of the total time: hours, or seconds up to release 0.12."""
_MAX_FIGURES: Final = 1 << 12
"""Characters of a line that are searched for figures."""


class Blocks:
    """Reads frameworks that print a heading per iteration, followed by its figures."""

    def __init__(self) -> None:
        self._number: int | None = None
        self._source: Source = "composer"

    def read(self, line: int, text: str) -> Iterator[LogRecord]:
        """Yield the record of a line, which belongs to the iteration of its block."""
        if "[step=" in text and (found := _OLMO.search(text)):
            self._source, self._number = "olmo-core", int(found[1])
            clock, digit = stamp_of(text)
            if clock is not None:
                yield self._record(line, clock=clock, clock_digit=digit)
        elif "[batch=" in text and (found := _COMPOSER.match(text)):
            epochs = max(0, int(found[1] or 1) - 1)
            self._source, self._number = "composer", int(found[2]) + epochs * int(found[3] or 0)
            yield from self._composer(found[4] or "", line)
        elif self._number is None:
            if "throughput/device/" in text and (found := _OLMO_LINE.match(text)) and found[1] in _OLMO_RATES:
                self._source = "olmo-core"  # the beginning of the block is missing
                yield from (replace(each, counted=True) for each in self._rate(found[2], line, "batches per second"))
            elif "Train throughput/batches" in text and (found := _COMPOSER_LINE.match(text)):
                self._source = "composer"
                yield from (replace(record, counted=True) for record in self._composer(found[1], line))
        elif self._source == "olmo-core" and "=" in text and (found := _OLMO_LINE.match(text)):
            if found[1] in _OLMO_RATES:
                yield from self._rate(found[2], line, "batches per second")
            elif found[1] in {"train/CE loss", "train/CrossEntropyLoss"}:
                yield self._record(line, loss=loss_of(found[2]))
        elif self._source == "composer" and "Train " in text and (found := _COMPOSER_LINE.match(text)):
            yield from self._composer(found[1], line)

    def _composer(self, figures: str, line: int) -> Iterator[LogRecord]:
        """Yield the records of Composer's figures, each preceded by its name."""
        for name, figure in _COMPOSER_FIGURE.findall(figures[:_MAX_FIGURES]):
            if name == "throughput/batches_per_sec":
                yield from self._rate(figure, line, "batches per second, a mean of the last ones")
            elif name == "loss/train/total":
                yield self._record(line, loss=loss_of(figure))
            elif (unit := _COMPOSER_CLOCKS.get(name)) and (time := figure_of(figure)) is not None:
                yield self._record(line, clock=unit * time, clock_digit=unit * digit_of(figure))

    def _rate(self, printed: str, line: int, derived: str) -> Iterator[LogRecord]:
        if rate := figure_of(printed.replace(",", "")):
            digit = digit_of(printed.replace(",", "")) / rate**2
            yield self._record(line, seconds=1 / rate, seconds_digit=digit, derived=derived)

    def _record(self, line: int, *, seconds: float | None = None, **figures: Any) -> LogRecord:
        iteration = Iteration(number=self._number or 0, seconds=seconds, line=line, **figures)
        return LogRecord(source=self._source, speaker="", iteration=iteration)


class LitGpt:
    """Reads LitGPT's lines of batches, and adds up the batches of a step."""

    def __init__(self) -> None:
        self._batch = 0
        self._stepped = (0, 0)
        """Number of batches and steps at the end of the last step."""
        self._seconds: float | None = None
        """Seconds of the batches since then; None unless all of them are logged."""

    def read(self, line: int, text: str) -> Iterator[LogRecord]:
        """Yield the step that ends with a line."""
        found = _LITGPT.search(text)
        took = figure_of(found[4]) if found else None
        if not found or not took:
            return
        batch, step, seconds = int(found[1]), int(found[2]), took * 1e-3
        if batch == self._batch:  # another rank's line
            return
        follows = batch == self._batch + 1
        self._batch = batch
        self._seconds = self._seconds + seconds if follows and self._seconds is not None else None
        if not found[5]:
            return
        batches_before, steps_before = self._stepped if step > self._stepped[1] else (0, 0)
        batches = round((batch - batches_before) / max(1, step - steps_before))
        each = digit_of(found[4]) * 1e-3
        derived = "" if self._seconds or batches == 1 else "the last batch, for each batch of a step"
        whole = self._seconds or seconds * batches
        self._stepped, self._seconds = (batch, step), 0.0
        iteration = Iteration(
            number=step,
            seconds=whole,
            seconds_digit=2 * (whole - seconds) if derived else each,  # the last batch also steps
            derived=derived,
            loss=loss_of(found[3].replace(",", "")) if found[3] else None,
            line=line,
        )
        yield LogRecord(source="litgpt", speaker="", iteration=iteration)
