"""Parse progress bars that were copied without their picture, as a last resort.

`14/2826 [17:16<36:13:38, 46.38s/it, loss=1.06]` or `[00:11<42:23, 1.96it/s, loss=0.299]`, copied without their
beginning, and the Trainer's of a notebook: `[ 660/3758 2:31:52 < 11:55:01, 0.07 it/s, Epoch 0.35/2]`, and at the end
`[600/600 15:08, Epoch 1/1]`. Its time left is that of the steps left at the mean since this job began, also where it
resumed another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tuner.logs.bar_times import clock_of
from tuner.logs.bars import counts_epochs
from tuner.logs.records import Iteration, LogRecord, PeakMemory, digit_of, figure_of

_BAR: Final = re.compile(
    r"(?:^|[^0-9/])(?:([0-9]{1,9})/([0-9]{1,9}) )?\[([0-9:]{4,12})<[0-9:?]{1,12}, *([0-9.]{1,12}) ?(it/s|s/it)"
    r"([^\]]{0,500}loss[^\]]{0,500})(?:\]|$)"
)
_NOTEBOOK: Final = re.compile(
    r"\[ {0,9}([0-9]{1,9})/([0-9]{1,9}) ([0-9:]{4,12})(?: < ([0-9:]{4,12}), [0-9.]{1,12} it/s)?, Epoch "
)


class BareBars:
    """Reads bare bars like a step pattern."""

    def read(self, line: int, text: str) -> Iterator[LogRecord]:
        """Yield the iterations of a line."""
        for found in _BAR.finditer(text[:_MAX_TEXT]):
            if found[1] and counts_epochs(text[: found.start()], found[1], found[2]):
                continue
            if rate := figure_of(found[4]):
                seconds, digit = (1 / rate, digit_of(found[4]) / rate**2) if found[5] == "it/s" else (rate, 0.0)
                iteration = Iteration(
                    number=int(found[1] or 0),
                    seconds=seconds,
                    seconds_digit=max(digit, seconds / 4),
                    derived="the progress bar's smoothed rate",
                    line=line,
                )
                yield LogRecord(source="progress bar", speaker="", iteration=iteration, counted=found[1] is None)
        if summary := _NOTEBOOK.search(text[:_MAX_TEXT]):
            number, total = int(summary[1]), int(summary[2])
            seconds, steps = clock_of(summary[3]), number
            if summary[4] and (left := total - number) > 0:
                to_go = clock_of(summary[4])
                if left > number or abs(to_go / left - seconds / max(1, number)) > 1 / left + 1 / max(1, number):
                    seconds, steps = to_go, left
            if seconds and steps:
                iteration = Iteration(
                    number=number,
                    seconds=seconds / steps,
                    seconds_digit=2.0 / steps,
                    derived="the progress bar's mean, warm-up included",
                    line=line,
                )
                yield LogRecord(source="training summary", speaker="", iteration=iteration)

    def may_read(self, kind: str) -> bool:
        """Whether lines of this kind may have a bar."""
        return "it/s" in kind or "s/it" in kind or ", Epoch " in kind

    def memory(self, _text: str) -> PeakMemory | None:
        """Return None, because a bar prints no memory."""
        return None


_MAX_TEXT: Final = 1 << 12
"""Characters of a line that are searched for bars."""
