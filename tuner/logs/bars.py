"""Read progress bars: tqdm as HF Trainer, accelerate, torchtune and Lightning print it, and Lightning's rich bar.

`  2%|▏         | 2/100 [00:05<04:05,  2.50s/it]`, on stderr and ended by a carriage return: which bar a print is of,
and whether it counts steps of training. `bar_times.py` has the times of its steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from tuner.logs.bar_times import (
    Bar,
    BarPrint,
    choose,
    clock_of,
    follow,
    inverse_of,
    since_beginning,
    since_first,
    without_evaluation,
)
from tuner.logs.cut_bars import KEPT, SMOOTHING
from tuner.logs.lines import speaker
from tuner.logs.records import Iteration, LogRecord, digit_of, figure_of, loss_of

_STEPS: Final = r"(?:it|steps?|iters?|ba(?:tch(?:es)?)?)"
"""Units of bars."""
_BAR: Final = re.compile(
    r"(?:[0-9]{1,3}%(?:\|[^|]{0,400}\|)?|: \|[^|]{0,400}\|) *([0-9]{1,9})/([0-9]{1,9}|\?) "
    r"\[([0-9:]{1,9}:[0-9]{2})<[0-9:?]{1,12}"
    rf"(?:, *((?:[0-9.]{{1,12}}|\?) ?(?:{_STEPS}/s|s/{_STEPS})))?"
    r"([^\]]{0,2000})(?:\]|$)"
)
"""A notebook prints no bar, and a bar of unknown length no percentage; a terminal may truncate its end."""
_PLAIN: Final = re.compile(
    r"^[ \r]{0,8}[0-9]{1,3}%\|[^|\n]{0,400}\| *([0-9]{1,9})/([0-9]{1,9}) \[([0-9:]{1,9}:[0-9]{2})<[0-9:?]{1,12}"
    r", *([0-9.]{1,12} ?(?:it/s|s/it))\]\s*?$",
    re.MULTILINE,
)
"""A bar on a line of its own."""
_RICH: Final = re.compile(
    r"Epoch [0-9]{1,9}/[-0-9]{1,9} [^0-9]{1,400}([0-9]{1,9})/([0-9]{1,9}|--) ([0-9]{1,4}:[0-9]{2}:[0-9]{2}) • "
    r"[-0-9:]{4,12} ([0-9.]{1,12}it/s)([^\n]{0,2000})"
)
_UNBOUNDED: Final = re.compile(
    r"Epoch [0-9]{1,9}: : ([0-9]{1,9})it (\[)([0-9:]{1,9}:[0-9]{2}), *([0-9.]{1,12}(?:it/s|s/it))([^\]]{0,2000})"
    r"(?:\]|$)"
)
"""Lightning's bar of unknown length, with a bracket instead of the total."""
_EPOCH: Final = re.compile(r"\bEpoch {1,8}([0-9]{1,9})\b")
_EPOCH_OF: Final = re.compile(r"\bEpochs? {1,8}([0-9]{1,9})/([0-9]{1,9})\b", re.IGNORECASE)
_OVER_BATCHES: Final = re.compile(r"(?i)\b(?:train(?:ing)?|iter(?:ation)?s?|batch(?:es)?|loss|epoch)\b[^|]*: *$")
"""Descriptions of bars that may be over the batches of a data loader."""
_OVER_STEPS: Final = re.compile(r"(?i)^(?!.*\bepoch\b).*\b(?:steps?|updates?)\b|^\W*[0-9]+\|[0-9]+\|Loss\b")
"""Descriptions of bars over optimizer steps; the last is torchtune's."""
_OTHER_UNIT: Final = re.compile(r", *[0-9.?]{1,12} ?[A-Za-z]{1,20}/s\b")
_INNER: Final = re.compile(r"\bstep {1,4}([0-9]{1,12})[: ]*$", re.IGNORECASE)
"""A description with the number of a step whose parts the bar counts."""
_NEMO_SECONDS: Final = re.compile(r"train_step_timing in s=([0-9.]{1,20})\b")
_LOSS: Final = re.compile(r"\b(?:train_|reduced_train_)?loss(?:_step)?(?:=|: )([-+0-9.eE]{1,24}|nan|inf)\b")
OTHER_WORK: Final = re.compile(
    r"load|fetch|\bmap\b|filter|token|generat|sav|group|cast|captur|eval|valid|predict|sanity|test|pack|prepar"
    r"|process|shard|convert|split|build|extract|calibrat|quantiz|materializ|cach|weights|compil|warm|import|read",
    re.IGNORECASE,
)
"""Text before the figures of a bar or line that is not about training steps."""
_DICTIONARY: Final = re.compile(r"(?:\{|^)[^{}]*': [^{}]*(?:\}|$)")
"""A line of HF Trainer before a bar, possibly truncated, that is not a description."""
_MAX_HEAD: Final = 200
"""Characters before a bar that are searched for its description."""
_MAX_TEXT: Final = 1 << 12
"""Characters of a line that are searched for bars; a carriage return separates two prints."""
_END: Final = re.compile(r"\[[0-9:]{4,12}<[^\]]{1,2000}\]\s*$")
_COARSE_RATE: Final = 0.01
"""Relative value of a rate's last digit above which the remaining time may be more precise."""
_SAME_RATE: Final = 0.05
"""Relative difference up to which the remaining time shows that the unit of a rate is inverted."""


BAR_WORDS: Final = ("%|", " • ", "s/it]", "it/s]", "s/it, ", "it/s, ", "/? [", ": : ")
"""Each line with a training bar contains one of them."""


class Bars:
    """Follows the training bar of a log."""

    def __init__(self) -> None:
        self._bars: dict[str, Bar] = {}
        self._inner: set[str] = set()
        """Descriptions of bars within a step."""
        self._is_unsmoothed = False
        """Whether the log is that of a trainer that disables smoothing."""
        self._done = False
        self._evaluated = 0.0
        """Seconds of evaluations since the last print."""

    def evaluate(self, seconds: float) -> None:
        """Exclude the seconds of an evaluation from the time up to the next print."""
        self._evaluated += seconds

    def finish(self) -> None:
        """Ignore later bars, because training has ended and an evaluation follows."""
        self._done = True

    def read_plain(self, block: Sequence[tuple[int, str]], whole: str) -> list[Iteration] | None:
        """Return the iterations of numbered lines, joined in `whole`, if every line has only a bar; else None.

        HF Trainer prints bars in this way, and they are searched together.
        """
        numbers = [number for number, text in block if "%|" in text]
        plain = [] if self._done or self._evaluated or " • " in whole else _PLAIN.findall(whole)
        if not plain or len(plain) != len(numbers):
            return None
        last = _BAR.search(next(text for _, text in reversed(block) if "%|" in text))
        if last is not None and _rate(last) != last[4]:
            return None
        found: list[Iteration] = []
        at = 0
        while at < len(plain):
            bar = self._moved("", None, plain[at])
            at = follow(bar, numbers, plain, at, found) if bar else at + 1
        return found

    def read(self, line: int, text: str) -> Iterator[LogRecord]:
        """Yield the iterations of training bars in a line."""
        if self._done:
            return
        if "%" in text or "/? [" in text:
            text = text[:_MAX_TEXT]
            for found in _BAR.finditer(text):
                self._is_unsmoothed |= found[2] == "?"
                start = found.start()
                head = text[max(0, start - _MAX_HEAD) : start].rpartition("]")[2]
                name, epoch = _head(head)
                if name is None or self._is_inner(name, head, found) or _counts_others(head, found):
                    continue
                if record := self._advance(line, name, epoch, found):
                    if epoch is None and _may_count_batches(head, found):
                        record.iteration.counts_batches = None
                    yield record
        if ": : " in text:
            for found in _UNBOUNDED.finditer(text[:_MAX_TEXT]):
                if record := self._advance(line, "", _head(found[0][:20])[1], found):
                    yield record
        if " • " in text:
            for found in _RICH.finditer(text[:_MAX_TEXT]):
                if record := self._advance(line, "", _head(found[0])[1], found):
                    yield record

    def _is_inner(self, name: str, head: str, found: re.Match[str]) -> bool:
        """Whether a bar counts the parts of a step that its description numbers."""
        step = _INNER.search(head)
        if step and abs(int(step[1]) - int(found[1])) > 1:
            self._inner.add(name)
        return name in self._inner

    def _advance(self, line: int, name: str, epoch: int | None, match: re.Match[str]) -> LogRecord | None:
        printed, rest, is_rich = _print(match), match[5], match.re is _RICH
        bar = self._moved(name, epoch, printed)
        if bar is None:
            return None
        earlier, clock, prints = bar.number, bar.elapsed, bar.prints
        rate_before = bar.ema_seconds / bar.ema_steps if bar.ema_steps else None
        cut_rate = bar.cut.rate if bar.cut else None
        number = int(printed[0]) + (epoch or 0) * bar.total
        found: list[Iteration] = []
        follow(bar, (line,), ((str(number), *printed[1:]),), 0, found)
        iteration, steps = found[0], number - earlier
        if epoch is not None:
            between, first = bar.elapsed - clock, prints == 0
            if is_rich:
                by_mean = since_first(bar, steps=steps, between=between, first=first, rate=printed[3])
            else:
                by_mean = since_beginning(bar, steps=steps, between=between, first=first, rate=printed[3])
                self._is_unsmoothed |= _is_unsmoothed(match)
                bar.smooths |= not self._is_unsmoothed and _is_inverted(match)
            iteration.counts_batches = False if name else _counts_batches(match)
            if by_mean is not None:
                choose(iteration, by_mean, bar, first=first, is_mean=is_rich or self._is_unsmoothed)
        inverse = inverse_of(printed[3])[0]
        if name.startswith("Iteration") and iteration.seconds and inverse and rate_before:  # tqdm's mean until 2020
            older = (inverse - KEPT * rate_before) / SMOOTHING / steps
            iteration.seconds_digit = max(iteration.seconds_digit, 2 * abs(iteration.seconds - older))
        if evaluated := self._evaluated:
            self._evaluated = 0.0
            without_evaluation(iteration, evaluated / steps, rate_before or cut_rate or inverse)
        loss = _LOSS.search(rest)
        exact = _NEMO_SECONDS.search(rest)
        iteration.loss = loss_of(loss[1]) if loss else None
        if exact:
            iteration.seconds_digit = digit_of(exact[1])
            if seconds_of_nemo := figure_of(exact[1]):
                iteration.seconds, iteration.derived = seconds_of_nemo, ""
        elif epoch is not None and bar.prints == 1 and steps == bar.total > 1:  # rich prints the end of a bar to a file
            iteration.derived = "the progress bar's mean, warm-up included"
            return LogRecord(source="training summary", speaker="", iteration=iteration)
        return LogRecord(source="nemo" if exact else "progress bar", speaker=name, iteration=iteration)

    def _moved(self, name: str, epoch: int | None, printed: BarPrint) -> Bar | None:
        """Return the bar that a print advances; None if the print is repeated, or belongs to an evaluation."""
        number, total = int(printed[0]), int(printed[1])
        offset = (epoch or 0) * total
        number += offset
        bar = self._bars.get(name)
        if bar is not None and bar.total != total and bar.number < bar.total and not _of_a_cut_log(bar, total):
            return None
        if (
            bar is None
            or bar.total != total
            or (number - offset <= 1 and number < bar.number)  # restarted
            or (bar.prints == 1 and bar.number == number == total > 1 and clock_of(printed[2]) < bar.elapsed - 1)
            or (epoch is not None and number > bar.number and _is_next(bar, epoch, clock_of(printed[2])))
        ):
            bar = self._bars[name] = Bar(total=total, number=offset, is_cut=number - offset > 1)
        return bar if number > bar.number else None


def _is_unsmoothed(match: re.Match[str]) -> bool:
    """Whether a bar is that of a trainer that disables smoothing: Lightning, whose format never inverts a rate, NeMo
    and sd-scripts."""
    if match.re is _UNBOUNDED or "v_num=" in match[5] or "avr_loss=" in match[5]:
        return True
    return (match[4] or "").endswith("it/s") and match[4].startswith("0.")


def _counts_batches(match: re.Match[str]) -> bool | None:
    """Whether a bar over epochs counts batches, as Lightning's does but for NeMo's strategies; None: unknown."""
    if "global_step=" in match[5] or "consumed_samples=" in match[5] or _NEMO_SECONDS.search(match[5]):
        return False
    return True if match.re in (_RICH, _UNBOUNDED) or "v_num=" in match[5] else None


def _may_count_batches(head: str, found: re.Match[str]) -> bool:
    """Whether the description of a bar, as tqdm prints it, leaves open whether it counts steps or batches."""
    described = _OVER_BATCHES.search(head) is not None and _OVER_STEPS.search(head) is None
    return described and _counts_batches(found) is None


def _is_inverted(match: re.Match[str]) -> bool:
    """Whether a bar has seconds per step; Lightning before 2.0 has them beside a loss."""
    return (match[4] or "").endswith("s/it") and "loss=" not in match[5]


def _counts_others(head: str, found: re.Match[str]) -> bool:
    """Whether a bar counts something other than steps or batches: `2.42example/s`, or epochs."""
    return counts_epochs(head, found[1], found[2]) or (found[4] is None and _OTHER_UNIT.match(found[5]) is not None)


def counts_epochs(head: str, number: str, total: str) -> bool:
    """Whether a bar counts the epochs that its description numbers: `Epoch 462/1000:  46%|...| 462/1000`."""
    epoch = _EPOCH_OF.search(head)
    return epoch is not None and epoch.groups() == (number, total)


def _is_next(bar: Bar, epoch: int, clock: float) -> bool:
    """Whether a print belongs to a later epoch, whose bar starts anew."""
    return clock < bar.elapsed or (bar.total > 0 and bar.number > 0 and epoch > (bar.number - 1) // bar.total)


def _of_a_cut_log(bar: Bar, total: int) -> bool:
    """Whether a print is the end of another bar in a truncated log, and a longer bar follows."""
    return bar.prints == 1 and bar.number > 1 and bar.total < total


def _print(found: re.Match[str]) -> BarPrint:
    return found[1], found[2] if found[2].isdecimal() else "0", found[3], _rate(found)


def _rate(found: re.Match[str]) -> str | None:
    """Return a bar's rate, computed from the remaining time if that is more precise or contradicts the unit.

    `8/260 [17:04<8:57:59, 0.01it/s` is Lightning's 128.1 s; `14/2826 [10:49<36:13:38, 46.38it/s` is seconds per step.
    """
    seconds, digit = inverse_of(found[4])
    steps = int(found[2]) - int(found[1]) if found[2].isdecimal() else 0
    left = found[0].partition("<")[2].partition(",")[0]
    if not seconds or steps <= 0 or "?" in left or not (to_go := clock_of(left) if ":" in left else 0.0):
        return found[4]
    by_left, places = (to_go + 0.5) / steps, len(str(steps)) - 1  # a truncated time
    is_coarse = _COARSE_RATE < digit / seconds > 1 / to_go and digit > 10**-places and abs(by_left - seconds) <= digit
    is_upside_down = abs(by_left * seconds - 1) < _SAME_RATE and not 0.5 < by_left / seconds < 2
    return f"{by_left:.{places}f}s/it" if is_coarse or is_upside_down else found[4]


@lru_cache(4096)
def _head(head: str) -> tuple[str | None, int | None]:
    """Identify a bar by its description: return its key, or None if it does not count training steps, and its epoch."""
    if "': " in head:
        head = _DICTIONARY.sub("", head)
    epoch = _EPOCH.search(head)
    if epoch or OTHER_WORK.search(head):
        return None if OTHER_WORK.search(head) else "", int(epoch[1]) if epoch else None
    # sd-scripts and Lightning disable smoothing
    return speaker(re.sub(r"[0-9.]+", "0", head)), 0 if head.strip() == "steps:" else None


def is_whole_bar(text: str) -> bool:
    """Whether an unterminated line is a complete bar."""
    return "%|" in text and _END.search(text) is not None
