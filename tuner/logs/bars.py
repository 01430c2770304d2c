"""Read progress bars: tqdm as HF Trainer, accelerate, torchtune and Lightning print it, and Lightning's rich bar.

`  2%|▏         | 2/100 [00:05<04:05,  2.50s/it]`, on stderr and ended by a carriage return. tqdm prints no time of a
step but a smoothed rate (`tqdm/std.py`, `EMA`): with n steps in t seconds between two prints, and s = 0.3,

    ema = s * x + (1 - s) * ema, divided by 1 - (1 - s)^prints, for x = n and x = t; rate = ema(n) / ema(t)

so that two successive rates give back the time between their prints. Lightning switches the smoothing off: its rate is
the mean since the bar began, and the difference of two totals is the time between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from tuner.logs.records import Iteration, LogRecord, digit_of, figure_of, loss_of, speaker

_SMOOTHING: Final = 0.3
"""tqdm's default."""
_KEPT: Final = 1 - _SMOOTHING
_CLOCK_SLACK: Final = 1.5
"""Seconds by which the time of steps may differ from that between two clocks that print whole seconds."""

_BAR: Final = re.compile(
    r"[0-9]{1,3}%\|[^|]{0,400}\| *([0-9]{1,9})/([0-9]{1,9}) \[([0-9:]{4,12})<[0-9:?]{1,12}"
    r"(?:, *([0-9.]{1,12}|\?) ?(?:(it|steps?|iters?|batch(?:es)?)/s|s/(?:it|steps?|iters?|batch(?:es)?)))?"
    r"([^\]]{0,2000})\]"
)
_PLAIN: Final = re.compile(
    r"^[ \r]{0,8}[0-9]{1,3}%\|[^|\n]{0,400}\| *([0-9]{1,9})/([0-9]{1,9}) \[([0-9:]{4,12})<[0-9:?]{1,12}"
    r", *([0-9.]{1,12}) ?(?:(it)/s|s/it)\]\s*?$",
    re.MULTILINE,
)
"""A bar alone on its line."""
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
    prints: int = 0
    decay: float = 1.0
    """Weight that smoothing leaves to what was before its first print: 0.7 to the power of the prints."""
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

    def read_block(self, block: Sequence[tuple[int, str]], whole: str) -> Iterator[tuple[LogRecord, str]]:
        """Yield the iterations of numbered lines, each with its line; `whole` is all of them.

        Lines that hold a bar and nothing else, as HF Trainer prints them, are searched together.
        """
        bars = [(number, text) for number, text in block if "%|" in text]
        plain = [] if self._done or " • " in whole else _PLAIN.findall(whole)
        if plain and len(plain) == len(bars):
            for (number, text), printed in zip(bars, plain, strict=True):
                if record := self._advance(number, "", None, "", printed):
                    yield record, text
            return
        for number, text in block:
            for record in self.read(number, text):
                yield record, text

    def read(self, line: int, text: str) -> Iterator[LogRecord]:
        """Yield the iterations of a line of training bars."""
        if self._done:
            return
        if "%|" in text:
            text = text[:_MAX_TEXT]
            for found in _BAR.finditer(text):
                start = found.start()
                name, epoch = _head(text[max(0, start - _MAX_HEAD) : start].rpartition("]")[2])
                if name is not None and (record := self._advance(line, name, epoch, found[6], found.groups()[:5])):
                    yield record
        if " • " in text:
            for found in _RICH.finditer(text[:_MAX_TEXT]):
                if record := self._advance(line, "", _head(found[0])[1], found[6], found.groups()[:5]):
                    yield record

    def _advance(
        self, line: int, name: str, epoch: int | None, rest: str, printed: Sequence[str | None]
    ) -> LogRecord | None:
        printed_number, printed_total, clock, rate, inverted = printed
        number, total, elapsed = int(printed_number or 0), int(printed_total or 0), _clock(clock or "")
        offset = (epoch or 0) * total
        number += offset
        bar = self._bars.get(name)
        if bar is not None and bar.total != total and bar.number < bar.total:
            return None  # an evaluation's bar within training
        if (
            bar is None
            or bar.total != total
            or (number - offset <= 1 and number < bar.number)  # started again
            or (epoch is not None and number > bar.number and elapsed < bar.elapsed)  # the next epoch's
        ):
            bar = self._bars[name] = _Bar(total=total, number=offset)
        steps = number - bar.number
        if steps <= 0:
            return None  # printed again
        seconds, digit, derived = _seconds(bar, steps, elapsed, rate, bool(inverted), mean=epoch is not None)
        bar.number, bar.elapsed = number, elapsed
        if not rest and epoch is None:
            iteration = Iteration(number=number, seconds=seconds, seconds_digit=digit, derived=derived, line=line)
            return LogRecord("progress bar", name, iteration)
        loss = _LOSS.search(rest)
        exact = _NEMO_SECONDS.search(rest)
        seconds_of_nemo = figure_of(exact[1]) if exact else None
        iteration = Iteration(
            number=number,
            seconds=seconds_of_nemo or seconds,
            seconds_digit=digit_of(exact[1]) if exact else digit,
            loss=loss_of(loss[1]) if loss else None,
            derived="" if seconds_of_nemo else derived,
            line=line,
        )
        if epoch is not None and bar.prints == 1 and steps == total > 1 and not exact:  # rich prints its end to a file
            iteration = replace(iteration, derived="the progress bar's mean, warm-up included")
            return LogRecord(source="training summary", speaker="", iteration=iteration)
        return LogRecord(source="nemo" if exact else "progress bar", speaker=name, iteration=iteration)


def _seconds(
    bar: _Bar, steps: int, elapsed: float, printed: str | None, inverted: bool, *, mean: bool
) -> tuple[float | None, float, str]:
    """Return the seconds of each step since the last print, the value of their last digit and what gives them."""
    first, between = bar.prints == 0, elapsed - bar.elapsed
    bar.prints += 1
    by_clock = (between / steps, 2.0 / steps, "the progress bar's clock") if between > 0 else (None, 0.0, "")
    rate, digit_of_rate = _rate(printed)
    if not rate:
        return by_clock
    inverse = 1 / rate if inverted else rate
    error = digit_of_rate * (inverse / rate if inverted else 1.0)
    if mean:
        total, before = (bar.number % bar.total + steps) * inverse, bar.mean_total
        bar.mean_total = total
        seconds, digit = (total - before) / steps, 2 * error * (bar.number % bar.total + steps) / steps
    else:
        earlier = bar.decay
        bar.decay = earlier * _KEPT
        ema_steps = _SMOOTHING * steps + _KEPT * bar.ema_steps
        ema_seconds = inverse * ema_steps
        seconds = (ema_seconds - _KEPT * bar.ema_seconds) / _SMOOTHING / steps
        digit = error * (1 - bar.decay + _KEPT * (1 - earlier)) / _SMOOTHING
        bar.ema_steps, bar.ema_seconds = ema_steps, ema_seconds
    if not first and (seconds <= 0 or abs(seconds * steps - between) > _CLOCK_SLACK):
        return by_clock if by_clock[0] else (inverse, inverse / 4, "the progress bar's smoothed rate")
    if seconds <= 0 or (by_clock[0] and by_clock[1] < digit):
        return by_clock
    return seconds, digit, "the progress bar's rate"


@lru_cache(4096)
def _rate(printed: str | None) -> tuple[float | None, float]:
    """Return a rate and the value of its last digit."""
    rate = figure_of(printed)
    return rate, digit_of(printed) if printed and rate else 0.0


@lru_cache(4096)
def _head(head: str) -> tuple[str | None, int | None]:
    """Return which bar has this text before it, None for one that is not of training steps, and the epoch it names."""
    epoch = _EPOCH.search(head)
    if _OTHER_WORK.search(head):
        return None, int(epoch[1]) if epoch else None
    return ("", int(epoch[1])) if epoch else (speaker(re.sub(r"[0-9.]+", "0", head)), None)


def is_whole_bar(text: str) -> bool:
    """Whether a line without an end is a bar that was printed completely."""
    return "%|" in text and _END.search(text) is not None


@lru_cache(4096)
def _clock(text: str) -> float:
    """Return the seconds of `01:02` or `1:02:03`."""
    seconds = 0.0
    for part in text.split(":"):
        seconds = 60 * seconds + int(part or 0)
    return seconds
