"""Read the lines of trainers without a reader, by the names and units of their figures.

`step 2, loss: 10.56, time: 101.84 ms`, `iter=2 loss=1.35 dt=0.0203`, `Epoch [1][200/5005]  lr: 0.1, time: 0.196`,
`global step 220, loss: 0.005, speed: 1.89 step/s`: a figure that grows by whole numbers and is called a step, and
beside it the time of a step, a rate of steps, a clock, or at least the line's timestamp.

What a figure stands for shows in several lines: that a step grows, that a time is one step's and not the sum of all,
and, where lines have timestamps, in which unit it is. `Interpretation.of` reads all lines of a log in one way, or none
of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import log
from statistics import median
from typing import Final, get_args

from tuner.core.text import DAY
from tuner.logs.bars import OTHER_WORK
from tuner.logs.figures import FRACTION, MAX_TEXT, UNNAMED, Figure, Kind, figures
from tuner.logs.lines import kind_of, loose_stamp_of, without_stamps
from tuner.logs.records import Iteration, LogRecord, PeakMemory, digit_of, loss_of

_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
"""Figures that determine the time of a step, the most reliable first."""

MAX_LINES: Final = 4096
"""Lines with a step that are examined to determine the meaning of their figures."""
_FIGURE_WORDS: Final = ("step", "iter", "update", "batch", "it", "/")
"""Each line with a step contains one of these words in lower case, or starts with a digit."""
_OTHER_WORK: Final = re.compile(
    rf"(?<![A-Za-z])(?:(?:down|up|re|pre|un)[-_]?)?(?:{OTHER_WORK.pattern}|bench|bandwidth|all.?reduce|auto.?tun"
    r"|g?emm\b|k-?means|profil)",
    re.IGNORECASE,
)
"""Text before the figures of a line that is not about a training step."""
_NAMED: Final = 2
"""Lines with the same figures that are needed to recognise a training."""
_MAX_KEPT: Final = 256
"""Maximum number of lines of a running job that are kept until they can be interpreted."""
_STAMPED: Final = 3
"""The same if only timestamps determine the time."""
_SAMPLES: Final = 8
"""Lines of a kind without a step after which the kind is ignored."""
_MAX_KINDS: Final = 10_000
_AGREE: Final = 1.5
"""Factor within which a printed time and the time between lines agree."""
_AGREE_ON_AVERAGE: Final = 1.2
"""The same for a figure that may be the mean of all steps so far."""
_BAR: Final = re.compile(r"[0-9]<[0-9:?]{1,12}, *[0-9.?]{1,12} ?(?:it/s|s/it)")
"""A progress bar, which has its own readers."""
_TRAINING: Final = re.compile(r"loss|nll|perplexity|\bppl\b|epoch|\blr\b|learning.?rate", re.IGNORECASE)
"""Properties of a line of a training step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A line with the number of a step."""

    number: int
    """Number of the step, including those of earlier epochs from epoch 0 on."""
    step: Figure
    epoch: int | None
    """The epoch, if steps are counted within epochs."""
    stamp: float | None
    stamp_digit: float
    figures: tuple[Figure, ...]
    is_training: bool

    def figure(self, kind: Kind, name: str, unit: str) -> Figure | None:
        """Return the figure of a kind, name and unit; None unless there is exactly one."""
        found = [each for each in self.figures if (each.kind, each.name, each.unit) == (kind, name, unit)]
        return found[0] if len(found) == 1 else None


def _line(text: str) -> _Line | None:
    """Parse a line that has the number of a step and a loss or a time; None for any other."""
    folded = text.casefold()
    if not (any(word in folded for word in _FIGURE_WORDS) or text.lstrip()[:1].isdecimal()):
        return None
    if _BAR.search(text[:MAX_TEXT]):
        return None
    found = figures(text)
    ranked = max(found, key=lambda figure: figure.step_rank, default=None)
    if ranked is None or not ranked.step_rank:
        return None
    is_training = _TRAINING.search(text) is not None
    if _OTHER_WORK.search(without_stamps(text[:MAX_TEXT])[: ranked.start]) or (
        not is_training and (ranked.name in UNNAMED or not any(figure.kind and figure.names_a_step for figure in found))
    ):
        return None
    if any(figure.is_of_evaluation for figure in found) and not any(
        figure.is_loss and not figure.is_of_evaluation for figure in found
    ):
        return None
    epoch = next((figure for figure in found if figure.words[-1:] == ("epoch",) and figure.text.isdecimal()), None)
    number = int(float(ranked.text))
    in_epoch = None
    if epoch is not None and ranked.total and ranked.name in (FRACTION, "iter", "iteration", "batch", "step"):
        in_epoch = int(epoch.text)
        number += in_epoch * ranked.total
    stamp, digit = loose_stamp_of(text)
    rest = tuple(figure for figure in found if figure is not ranked)
    return _Line(
        number=number,
        step=ranked,
        epoch=in_epoch,
        stamp=stamp,
        stamp_digit=digit,
        figures=rest,
        is_training=is_training,
    )


class _StepLines:
    """Finds the lines with a step, and skips kinds of lines that have none; lines of a kind differ only in digits.

    Timestamps without a date continue after midnight.
    """

    def __init__(self) -> None:
        self._midnights, self._stamp = 0, 0.0
        self._without: dict[str, int] = {}
        """Lines without a step by kind; a kind with a step is never ignored."""

    def may_be(self, kind: str) -> bool:
        """Whether a kind of line may have a step."""
        return self._without.get(kind, 0) < _SAMPLES

    def find(self, text: str) -> _Line | None:
        """Return a line with a step; None for any other."""
        kind = kind_of(text)
        known = self._without.get(kind, 0)
        if known >= _SAMPLES:
            return None
        line = _line(text)
        if line is not None:
            self._without[kind] = -1
            if line.stamp is not None and line.stamp < DAY:
                self._midnights += line.stamp < self._stamp - DAY / 2
                self._stamp = line.stamp
                line = replace(line, stamp=line.stamp + self._midnights * DAY)
        elif known >= 0 and (known or len(self._without) < _MAX_KINDS):
            self._without[kind] = known + 1
        return line


@dataclass(slots=True)
class Interpretation:
    """How the lines of one log are read; used like a step pattern, line by line and in order."""

    step: str
    kind: Kind
    name: str = ""
    unit: str = ""
    scale: float = 1.0
    """Seconds of the figure's unit."""
    is_of_interval: bool = False
    """Whether the figure is the time of all steps since the previous line."""
    is_clock: bool = False
    """Whether a time is that of all steps so far."""
    derived: str = ""
    """The note on the source of the seconds."""
    lines: int = 0
    """Number of lines from which it was derived."""
    first_epoch: int = 0
    """Number of the epoch whose steps start at 1."""
    _last: int | None = field(default=None, init=False)
    _steps: _StepLines = field(default_factory=_StepLines, init=False, repr=False)

    @classmethod
    def of(cls, lines: Iterable[str]) -> Interpretation | None:
        """Return how to read the lines of a log; None if their figures are ambiguous."""
        by_step: dict[str, list[_Line]] = {}
        count, steps = 0, _StepLines()
        for text in lines:
            if line := steps.find(text):
                by_step.setdefault(line.step.name, []).append(line)
                count += 1
                if count >= MAX_LINES:
                    break
        found = [each for name, group in by_step.items() for each in _ways(name, group)]
        best = min(found, key=lambda one: (_KINDS.index(one.kind), -one.lines), default=None)
        if best is not None:
            best.first_epoch = min(1, next((line.epoch for line in by_step[best.step] if line.epoch is not None), 0))
        return best

    def read(self, number: int, text: str) -> Iterator[LogRecord]:
        """Yield the iteration of a line."""
        line = self._steps.find(text)
        if line is None or line.step.name != self.step:
            return
        before, self._last = self._last, line.number
        step = line.number - self.first_epoch * line.step.total * (line.epoch is not None)
        iteration = Iteration(number=step, seconds=None, line=number, derived=self.derived)
        losses = [figure for figure in line.figures if figure.is_loss and not figure.is_of_evaluation]
        if losses:
            iteration.loss = loss_of(min(losses, key=lambda figure: len(figure.name)).text)
        if self.kind == "stamp":
            if line.stamp is None or not line.is_training:
                return
            iteration.clock, iteration.clock_digit = line.stamp, line.stamp_digit
        else:
            figure = line.figure(self.kind, self.name, self.unit)
            if figure is None or figure.value <= 0:
                return
            digit = 1.0 if figure.seconds is not None else digit_of(figure.text)
            value, digit = figure.value * self.scale, digit * self.scale
            if self.is_clock:
                iteration.clock, iteration.clock_digit = value, digit
            elif self.kind == "rate":
                iteration.seconds, iteration.seconds_digit = 1 / value, digit / value**2
            elif not self.is_of_interval:
                iteration.seconds, iteration.seconds_digit = value, digit
            elif before is not None and line.number > before:
                steps = line.number - before
                iteration.seconds, iteration.seconds_digit = value / steps, digit / steps
            else:
                return
        yield LogRecord(source="named figures", speaker=_rank(text), iteration=iteration)

    def may_read(self, kind: str) -> bool:
        """Whether lines of this kind may have a step."""
        return self._steps.may_be(kind)

    def memory(self, _text: str) -> PeakMemory | None:
        """Return None, because a name does not say which memory a figure measures."""
        return None


class LiveFigures:
    """Reads the lines of a running job in the same way, once there are enough of them."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._next_look = _NAMED
        self._way: Interpretation | None = None
        self._steps = _StepLines()

    def read(self, number: int, text: str) -> Iterator[LogRecord]:
        """Yield the iteration of a line; once the lines can be interpreted, also those of all earlier lines."""
        if self._way is not None:
            yield from self._way.read(number, text)
        elif len(self._kept) < _MAX_KEPT and self._steps.find(text):
            self._kept.append(text)
            if len(self._kept) == self._next_look:
                self._next_look += 1 + self._next_look // 4
                self._way = way = Interpretation.of(self._kept)
                if way is not None:
                    for kept in self._kept:
                        yield from way.read(number, kept)

    def may_read(self, kind: str) -> bool:
        """Whether lines of this kind may have a step."""
        return self._steps.may_be(kind)

    def memory(self, _text: str) -> PeakMemory | None:
        """Return None, because a name does not say which memory a figure measures."""
        return None


_RANK: Final = re.compile(r"\b(?:rank|gpu|worker|local_rank)\b['\"]?[ :=#_]{0,3}([0-9]{1,6})\b", re.IGNORECASE)


def _rank(text: str) -> str:
    """Return the rank that prints a line; empty if it is not printed."""
    found = _RANK.search(text[:MAX_TEXT])
    return found[1] if found else ""


def _ways(step: str, lines: Sequence[_Line]) -> Iterator[Interpretation]:
    """Yield the interpretations by which lines with this step have a time."""
    growing = _growing(lines)
    if len(growing) < _NAMED:
        return
    seen = dict.fromkeys(
        (figure.kind, figure.name, figure.unit) for line in growing for figure in line.figures if figure.kind
    )
    named = []
    for kind, name, unit in seen:
        having = [line for line in growing if kind and line.figure(kind, name, unit)]
        own = [figure for line in having if (figure := line.figure(kind, name, unit))]
        if kind and len(having) >= _NAMED and (way := _way(step, kind, having, own)):
            named.append((not own[0].is_of_a_step, len(own[0].words), way))
    kinds = dict.fromkeys(way.kind for *_, way in named)
    for kind in kinds:
        ranked = sorted((each for each in named if each[2].kind == kind), key=lambda each: each[:2])
        yield ranked[0][2]
    stamped = [line for line in growing if line.stamp is not None and line.is_training]
    if len(stamped) >= _STAMPED and _span(stamped) > 2 * stamped[0].stamp_digit:
        yield Interpretation(step=step, kind="stamp", lines=len(stamped))


def _growing(lines: Sequence[_Line]) -> list[_Line]:
    """Return the lines at which the step changes; none if it mostly does not increase."""
    first = list(lines[:1]) + [line for before, line in pairwise(lines) if before.number != line.number]
    grown = [before.number < after.number for before, after in pairwise(first)]
    if not grown or sum(grown) < 0.5 * len(grown) or any(map(_is_batch_after, lines, lines[1:])):
        return []
    return first


def _is_batch_after(before: _Line, line: _Line) -> bool:
    """Whether another counter shows that a line belongs to the next batch of the same step, not to another rank."""
    if before.number != line.number:
        return False
    counts = ({each.name: each.value for each in one.figures if each.step_rank} for one in (before, line))
    earlier, later = counts
    return any(later[name] == count + 1 for name, count in earlier.items() if name in later)


def _span(lines: Sequence[_Line]) -> float:
    stamps = [line.stamp for line in lines if line.stamp is not None]
    return stamps[-1] - stamps[0] if stamps else 0.0


def _way(step: str, kind: Kind, lines: Sequence[_Line], own: Sequence[Figure]) -> Interpretation | None:
    """Return the interpretation of a figure as the time of a step; None if it is ambiguous."""
    figure, values = own[0], [each.value for each in own]
    way = Interpretation(step=step, kind=kind, name=figure.name, unit=figure.unit, lines=len(lines))
    trained = sum(line.is_training for line in lines) >= 0.5 * len(lines)
    if min(values) <= 0 or not (trained or figure.names_a_step):
        return None
    steps = [after.number - before.number for before, after in pairwise(lines)]
    between = [
        after.stamp - before.stamp
        for before, after in pairwise(lines)
        if after.stamp is not None and before.stamp is not None
    ]
    grows = all(after > before for before, after in pairwise(values))
    way.scale = figure.scale or 1.0
    unknown = ", assumed to be seconds" * (kind in ("time", "clock") and figure.scale is None)
    stamped = len(between) == len(steps) and sum(between) > 4 * max(line.stamp_digit for line in lines)
    if kind == "clock" and not ("elapsed" in figure.words and _falls_from_step_to_step(lines, values)):
        if not grows:
            return None
        way.is_clock = True
        if unknown and stamped:
            way.scale = min((1.0, 1e-3), key=lambda scale: abs(log(scale * (values[-1] - values[0]) / sum(between))))
            unknown = ""
        way.derived = f"the figure {figure.title!r} of each line{unknown}"
        return way
    way.derived = f"the figure {figure.title!r} of each line"
    if stamped:
        return _by_stamps(way, figure, values, steps, between)
    if kind == "time" and not figure.is_of_a_step and (max(steps) > 1 or grows):
        return None  # may be the time of all steps, or of those since the previous line
    if figure.is_average and max(steps) == 1:
        return None  # may be the mean of all steps so far
    way.derived += unknown
    return way


def _falls_from_step_to_step(lines: Sequence[_Line], values: Sequence[float]) -> bool:
    """Whether a figure falls between two consecutive steps, which a cumulative time cannot do."""
    numbers = (line.number for line in lines)
    return any(
        after == before + 1 and now < then
        for (before, after), (then, now) in zip(pairwise(numbers), pairwise(values), strict=True)
    )


def _by_stamps(
    way: Interpretation, figure: Figure, values: Sequence[float], steps: Sequence[int], between: Sequence[float]
) -> Interpretation | None:
    """Return the interpretation with which a figure agrees with the timestamps.

    The figure is the time of a step, of the steps since the previous line, or of all steps; without a unit, it is in
    seconds or milliseconds.
    """
    forward = [(wall, count) for wall, count in zip(between, steps, strict=True) if count > 0 and wall >= 0]
    if not forward:
        return None
    each = median(wall / count for wall, count in forward) or sum(between) / max(1, sum(steps))
    whole = median(wall for wall, _ in forward) or sum(between) / len(between)
    for scale in (figure.scale,) if figure.scale else (1.0,) if way.kind == "rate" else (1.0, 1e-3):
        way.scale = scale
        time = median(1 / value if way.kind == "rate" else value for value in values[1:]) * scale
        agree = _AGREE_ON_AVERAGE if figure.is_average else _AGREE
        if each / agree <= time <= each * agree:
            return way
        if way.kind != "time":
            continue
        more = median(after - before for before, after in pairwise(values)) * scale
        if max(steps) > 1 and whole / _AGREE <= time <= whole * _AGREE:
            way.is_of_interval = True
            return way
        if whole / _AGREE <= more <= whole * _AGREE and all(before < after for before, after in pairwise(values)):
            way.is_clock = True
            return way
    return None
