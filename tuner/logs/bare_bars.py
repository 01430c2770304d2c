"""Parse progress bars that were copied without their picture, as a last resort.

`14/2826 [17:16<36:13:38, 46.38s/it, loss=1.06]` or `[00:11<42:23, 1.96it/s, loss=0.299]`, copied without their
beginning, and the Trainer's of a notebook: `[ 660/3758 2:31:52 < 11:55:01, 0.07 it/s, Epoch 0.35/2]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tuner.logs.records import Iteration, LogRecord, PeakMemory, digit_of, figure_of

_BAR: Final = re.compile(
    r"(?:^|[^0-9/])(?:([0-9]{1,9})/[0-9]{1,9} )?\[([0-9:]{4,12})<[0-9:?]{1,12}, *([0-9.]{1,12}) ?(it/s|s/it)"
    r"([^\]]{0,500}loss[^\]]{0,500})(?:\]|$)"
)
_NOTEBOOK: Final = re.compile(
    r"\[ {0,9}([0-9]{1,9})/[0-9]{1,9} ([0-9:]{4,12}) < [0-9:]{4,12}, [0-9.]{1,12} it/s, Epoch "
)


class BareBars:
    """Reads them like a step pattern."""

    def read(self, line: int, text: str) -> Iterator[LogRecord]:
        """Yield the iterations of a line."""
        for found in _BAR.finditer(text[:_MAX_TEXT]):
            if rate := figure_of(found[3]):
                seconds, digit = (1 / rate, digit_of(found[3]) / rate**2) if found[4] == "it/s" else (rate, 0.0)
                iteration = Iteration(
                    number=int(found[1] or 0),
                    seconds=seconds,
                    seconds_digit=max(digit, seconds / 4),
                    derived="the progress bar's smoothed rate",
                    line=line,
                )
                yield LogRecord(source="progress bar", speaker="", iteration=iteration, counted=found[1] is None)
        if summary := _NOTEBOOK.search(text[:_MAX_TEXT]):
            elapsed = 0.0
            for part in summary[2].split(":"):
                elapsed = 60 * elapsed + int(part or 0)
            number = max(1, int(summary[1]))
            iteration = Iteration(
                number=number,
                seconds=elapsed / number or None,
                seconds_digit=2.0 / number,
                derived="the progress bar's mean, warm-up included",
                line=line,
            )
            yield LogRecord(source="training summary", speaker="", iteration=iteration)

    def may_read(self, kind: str) -> bool:
        """Whether a kind of line may have a bar."""
        return "it/s" in kind or "s/it" in kind

    def memory(self, _text: str) -> PeakMemory | None:
        """Return no memory: a bar prints none."""
        return None


_MAX_TEXT: Final = 1 << 12
"""Characters of a line in which bars are searched."""
