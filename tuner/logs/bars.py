"""Read progress bars: tqdm as HF Trainer, accelerate, torchtune and Lightning print it, and Lightning's rich bar.

`  2%|▏         | 2/100 [00:05<04:05,  2.50s/it]`, on stderr and ended by a carriage return. tqdm prints no time of a
step but a smoothed rate (`tqdm/std.py`, `EMA`): with n steps in t seconds between two prints, and s = 0.3,

    ema = s * x + (1 - s) * ema, divided by 1 - (1 - s)^prints, for x = n and x = t; rate = ema(n) / ema(t)

so that two successive rates give back the time between their prints. Lightning switches the smoothing off: its rate is
the mean since the bar began, and the difference of two totals is the time between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from tuner.logs.records import Iteration, LogRecord, digit_of, figure_of, loss_of, speaker

_SMOOTHING: Final = 0.3
"""tqdm's default."""
_KEPT: Final = 1 - _SMOOTHING

_BAR: Final = re.compile(
    r"[0-9]{1,3}%\|[^|]{0,400}\| *([0-9]{1,9})/([0-9]{1,9}) \[([0-9:]{4,12})<[0-9:?]{1,12}"
    r"(?:, *([0-9.]{1,12}|\?) ?(?:(it|steps?|iters?|batch(?:es)?)/s|s/(?:it|steps?|iters?|batch(?:es)?)))?"
    r"([^\]]{0,2000})\]"
)
_RICH: Final = re.compile(
    r"Epoch [0-9]{1,9}/[-0-9]{1,9} [^0-9]{1,400}([0-9]{1,9})/([0-9]{1,9}) ([0-9]{1,4}:[0-9]{2}:[0-9]{2}) • "
    r"[-0-9:]{4,12} ([0-9.]{1,12})(it)/s([^\n]{0,2000})"
)
_EPOCH: Final = re.compile(r"\bEpoch ([0-9]{1,9})\b")
_NEMO_SECONDS: Final = re.compile(r"train_step_timing in s=([0-9.]{1,20})\b")
_LOSS: Final = re.compile(r"\b(?:train_|reduced_train_)?loss(?:_step)?(?:=|: )([-+0-9.eE]{1,24}|nan|inf)\b")
_OTHER_WORK: Final = re.compile(
    r"load|fetch|\bmap\b|filter|token|generat|sav|group|cast|captur|eval|valid|predict|sanity|test|pack|prepar"
    r"|process|shard|convert|split|build|extract|calibrat|quantiz|materializ|cach|weights|compil|warm|import|read",
    re.IGNORECASE,
)
"""What a bar that is not of training steps says before its percentage."""
_MAX_HEAD: Final = 200
"""Characters before a bar in which its description is searched."""
_MAX_TEXT: Final = 1 << 12
"""Characters of a line in which bars are searched: a carriage return separates one print from the next."""
_END: Final = re.compile(r"\[[0-9:]{4,12}<[^\]]{1,2000}\]\s*$")


@dataclass(slots=True)
class _Bar:
    """A bar's state at its last print."""

    total: int
    speaker: str
    prints: int = 0
    number: int = 0
    elapsed: float = 0.0
    ema_steps: float = 0.0
    ema_seconds: float = 0.0
    mean_total: float = 0.0
    """Seconds since its beginning by its mean rate."""


BAR_WORDS: Final = ("%|", " • ")
"""Each line with a training bar contains one of them."""


class Bars:
    """Follows the training bar of a log."""

    def __init__(self) -> None:
        self._bars: dict[str, _Bar] = {}
        self._done = False

    def finish(self) -> None:
        """Ignore the bars that follow: training is over, and what comes is an evaluation."""
        self._done = True

    def read(self, line: int, text: str) -> Iterator[LogRecord]:
        """Yield the iterations of a line of training bars."""
        if self._done or not any(word in text for word in BAR_WORDS):
            return
        text = text[:_MAX_TEXT]
        for found in _BAR.finditer(text) if "%|" in text else ():
            head = text[max(0, found.start() - _MAX_HEAD) : found.start()].rpartition("]")[2]
            name = _name(head)
            if name is not None and (record := self._advance(line, name, _epoch(head), found)):
                yield record
        for found in _RICH.finditer(text) if " • " in text else ():
            if record := self._advance(line, "", _epoch(found[0]), found):
                yield record

    def _advance(self, line: int, name: str, epoch: int | None, found: re.Match[str]) -> LogRecord | None:
        number, total, elapsed = int(found[1]), int(found[2]), _clock(found[3])
        offset = (epoch or 0) * total
        bar = self._bars.get(name)
        if bar is not None and bar.total != total and bar.number < bar.total:
            return None  # an evaluation's bar within training
        restarted = bar is not None and number + offset < bar.number and number <= 1
        if (
            bar is None
            or bar.total != total
            or restarted
            or (epoch is not None and number + offset > bar.number and elapsed < bar.elapsed)
        ):
            start = offset
            bar = self._bars[name] = _Bar(total=total, speaker=name, number=start)
        steps = number + offset - bar.number
        if steps <= 0:
            return None  # printed again
        seconds, digit, derived = self._seconds(bar, steps, elapsed, found, mean=epoch is not None)
        bar.number, bar.elapsed = number + offset, elapsed
        loss = _LOSS.search(found[6])
        exact = _NEMO_SECONDS.search(found[6])
        printed = figure_of(exact[1]) if exact else None
        iteration = Iteration(
            number=bar.number,
            seconds=printed or seconds,
            seconds_digit=digit_of(exact[1]) if exact else digit,
            loss=loss_of(loss[1]) if loss else None,
            derived="" if printed else derived,
            line=line,
        )
        if epoch is not None and bar.prints == 1 and steps == total > 1 and not exact:  # rich prints its end to a file
            iteration = replace(iteration, derived="the progress bar's mean, warm-up included")
            return LogRecord(source="training summary", speaker="", iteration=iteration)
        return LogRecord(source="nemo" if exact else "progress bar", speaker=name, iteration=iteration)

    @staticmethod
    def _seconds(
        bar: _Bar, steps: int, elapsed: float, found: re.Match[str], *, mean: bool
    ) -> tuple[float | None, float, str]:
        """Return the seconds of each step since the last print, the value of their last digit and what gives them."""
        first, between = bar.prints == 0, elapsed - bar.elapsed
        bar.prints += 1
        rate = figure_of(found[4])
        by_clock = (between / steps, 2.0 / steps, "the progress bar's clock") if between > 0 else (None, 0.0, "")
        if not rate:
            return by_clock
        inverse = 1 / rate if found[5] else rate
        error = digit_of(found[4]) * (inverse / rate if found[5] else 1.0)
        if mean:
            total, before = (bar.number % bar.total + steps) * inverse, bar.mean_total
            bar.mean_total = total
            seconds, digit = (total - before) / steps, 2 * error * (bar.number % bar.total + steps) / steps
        else:
            weight, earlier = 1 - _KEPT**bar.prints, 1 - _KEPT ** (bar.prints - 1)
            ema_steps = _SMOOTHING * steps + _KEPT * bar.ema_steps
            ema_seconds = inverse * ema_steps
            seconds = (ema_seconds - _KEPT * bar.ema_seconds) / _SMOOTHING / steps
            digit = error * (weight + _KEPT * earlier) / _SMOOTHING
            bar.ema_steps, bar.ema_seconds = ema_steps, ema_seconds
        contradicts = not between - 1.5 <= seconds * steps <= between + 1.5
        if not first and (contradicts or seconds <= 0):
            return by_clock if by_clock[0] else (inverse, inverse / 4, "the progress bar's smoothed rate")
        if seconds <= 0 or (by_clock[0] and by_clock[1] < digit):
            return by_clock
        return seconds, digit, "the progress bar's rate"


@lru_cache(4096)
def _name(head: str) -> str | None:
    """Return which bar has this text before it; None for one that is not of training steps."""
    if _OTHER_WORK.search(head):
        return None
    return "" if _EPOCH.search(head) else speaker(re.sub(r"[0-9.]+", "0", head))


@lru_cache(4096)
def _epoch(head: str) -> int | None:
    """Return the epoch that a bar names."""
    found = _EPOCH.search(head)
    return int(found[1]) if found else None


def is_whole_bar(text: str) -> bool:
    """Whether a line without an end is a bar that was printed completely."""
    return "%|" in text and _END.search(text) is not None


def _clock(text: str) -> float:
    """Return the seconds of `01:02` or `1:02:03`."""
    seconds = 0.0
    for part in text.split(":"):
        seconds = 60 * seconds + int(part or 0)
    return seconds
