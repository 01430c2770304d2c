"""The figures of a log line: numbers with the name before them, the unit after them, and their possible meaning."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isfinite
from typing import Final, Literal

from tuner.core.text import DAY
from tuner.logs.lines import without_stamps

Kind = Literal["time", "inverse rate", "rate", "clock", "stamp"]
"""How a figure gives the time of a step: as a time, seconds per step, steps per second, the time since some moment, or
the line's timestamp.
"""

MAX_TEXT: Final = 2048
"""Characters of a line that are searched for figures."""
_MAX_NAME: Final = 48

_STEPS: Final = r"(?:steps?|iters?|iterations?|its?|batch(?:es)?|updates?)"
_SECONDS: Final = r"(?:s|secs?|seconds?)"
_UNITS: Final = {
    "s": (_SECONDS, 1.0),
    "ms": ("(?:milliseconds?|millis|msecs?|ms)", 1e-3),
    "us": ("(?:microseconds?|micros|usecs?|us|[µμ]s)", 1e-6),
    "ns": ("(?:nanoseconds?|nanos|nsecs?|ns)", 1e-9),
    "min": ("(?:minutes?|mins?)", 60.0),
    "h": ("(?:hours?|hrs?|h)", 3600.0),
    "day": ("days?", DAY),
}
"""Units of time: how they are printed, and their seconds."""
_TIME_UNIT: Final = "|".join(printed for printed, _ in _UNITS.values())
_UNIT: Final = rf"(?:{_TIME_UNIT})?(?:(?<![a-z])\s?{_STEPS})?(?:(?:/|\sper\s)(?:{_STEPS}|{_SECONDS}))?"
_UNREAD_UNIT: Final = (
    r"(?:[cdfp]s(?:ecs?)?|(?:centi|deci|femto|pico)sec(?:ond)?s?|(?:clock )?ticks?|(?:clock ?|[kmg])?cycles?"
    r"|clocks?|jiff(?:y|ies)|[dm]|weeks?|fortnights?|months?|years?)"
)
"""Units of time that are not converted."""
_FIGURE: Final = re.compile(
    r"(?<![\w.])(?<![0-9],)(?:(?P<clock>[0-9]{1,4}:[0-9]{2}(?::[0-9]{2})?(?:\.[0-9]{1,6})?)(?![\w:])"
    r"|(?P<spoken>(?:[0-9]{1,4} ?h(?:ours?|rs?)? ?)?[0-9]{1,4} ?m(?:in(?:ute)?s?)? ?[0-9]{1,4}(?:\.[0-9]{1,6})?"
    rf" ?{_SECONDS}\b)"
    r"|(?P<not_finite>-?(?:[nN]a[nN]|NAN|[iI]nf|INF)(?!\w))"
    r"|(?P<value>-?(?:[0-9]{1,3}(?:,[0-9]{3}){1,4}(?![0-9])|[0-9]{1,15})(?:\.[0-9]{1,18})?(?:[eE][-+]?[0-9]{1,2})?)"
    r"(?![0-9]|[.,][0-9])(?P<of>(?: ?/ ?| of )[0-9]{1,12}\b)?"
    rf"(?P<unit>\s{{0,2}}(?i:\({_UNIT}\)|\[{_UNIT}\]|{_UNIT}(?![\w/%])))?)",
)
OTHER_UNIT: Final = "?"
"""A unit that is not read: `10k`, `45%`, `400 ticks`, `4.0 s per 10 steps`."""
_END: Final = r"(?=[)\]]|\.?$|\s*[,;|})\]]|\s-\s|\s{2}|\sper\s)"
_UNKNOWN_UNIT: Final = re.compile(
    rf"\s{{0,2}}(?:[(\[]in\s(?:{_TIME_UNIT})\b|[(\[]?(?:in\s)?(?:{_UNREAD_UNIT}(?:(?<=[a-z]s)(?![\w/-])|{_END})"
    r"|[a-zµμ]{1,16}/[a-z]{1,16}\b))[)\]]?\.?",
    re.IGNORECASE,
)
"""Text directly after a time that is a unit if no value follows: `ticks`, `(cs)`, `tokens/s`; other words are none."""
_OF_SEVERAL: Final = re.compile(
    rf"\s{{0,2}}(?:{_TIME_UNIT})?\s?(?:/\s?|(?:per|for|over|every)\s(?:the\s)?(?:last\s)?)(?!1\b)[0-9]{{1,9}}"
    rf"[\s-]?{_STEPS}\b",
    re.IGNORECASE,
)
"""Text after the time of several steps: `4.0 s per 10 steps`."""
_BEFORE_COUNT: Final = re.compile(r"(?:(?<![a-z])(?:per|last|every)[\s_-]?|/)$")
WITH_COUNT: Final = re.compile(
    rf"(?:(?<![a-z])(?:per|last|every)[\s_-]?|/)[0-9]{{1,9}}[\s_-]?{_STEPS}(?![a-z])", re.IGNORECASE
)
"""Names around a number of steps: `time per 10 steps`, `time_per_10_steps`."""
AFTER_COUNT: Final = re.compile(
    rf"(?<![\w.])(?!0*1\b)[0-9]{{1,9}}[\s-]?{_STEPS}\s*(?:(?:done|finished|completed)\s*)?"
    r"(?:in|took|after|within|[:=(@,])?[\s:=(]*$",
    re.IGNORECASE,
)
"""A number of steps directly before their time: `5 steps in 2.00s`."""
_DELIMITER: Final = re.compile(r"[,;|{}\[\]\t]|\s-\s|\s{2,}")
_MEAN: Final = r"(?:average|avg\.?|mean|median)"
_PART: Final = r"(?!(?:average|avg|mean|median|max|maximum|std)\b)[a-z]+"
_PER: Final = r"(?:\s?/\s?|\sper\s)"
_ASIDE: Final = re.compile(
    rf" ?\((?:(?=[a-z]/[a-z]\))|(?!(?:{_MEAN}\s|(?:[a-z]+\s)*in\s)?(?:{_PART}{_PER})?(?:{_TIME_UNIT}|{_UNREAD_UNIT})"
    rf"(?:{_PER}{_PART})*(?:\s{_MEAN})?\)))[^()]*\)",
    re.IGNORECASE,
)
"""Bracketed text in a name that is not a unit: `(min/max)`, `(D/G)`, `(last day)`, but not `(in ms)`, `(avg ms)`."""
_NEXT_VALUE: Final = re.compile(r"['\"]?(?P<sign>\s*[:=])?\s*-?[0-9.]")
_OF_A_NAME: Final = re.compile(r"['\"]?\s*(?:[:=]|-?[0-9.]|-?(?:nan|inf|none)\b)", re.IGNORECASE)
"""Text after a word that is the name of the next figure."""
_WORDS: Final = re.compile(r"[a-z]+")

_STEP_RANKS: Final = {
    **dict.fromkeys(("step", "steps"), 3),
    **dict.fromkeys(("update", "updates", "iteration", "iterations", "iter", "iters"), 2),
    **dict.fromkeys(("it", "batch", "batches"), 1),
}
FRACTION: Final = "/"
"""Name of an unnamed figure with a total: `[200/5005]`."""
_FIRST: Final = "^"
"""Name of an unnamed figure at the beginning of its line."""
UNNAMED: Final = frozenset({FRACTION, _FIRST})
_NOT_STEPS: Final = frozenset(
    {
        *("per", "loss", "time", "size", "total", "max", "min", "skipped", "lr", "rate", "micro", "accumulation", "of"),
        *("warmup", "save", "log", "logging", "eval", "val", "valid", "validation", "test", "start", "resume", "data"),
        *("load", "every", "remaining", "avg", "average", "sec", "second", "seconds", "s", "ms", "speed", "cost"),
        *("eta", "decay", "interval", "length", "norm", "grad", "gpu", "device", "dt", "took", "samples", "tokens"),
    }
)
"""Words that occur in a number of steps, but not in the number of a step."""
_TIMES: Final = frozenset({"time", "dt", "duration", "took", "cost", "timing", "ms", "s", "sec", "secs", "seconds"})
_ENDED: Final = frozenset({"finished", "completed"})
"""Words before the `in` of the time that a step took."""
_RATES: Final = frozenset({"speed", "rate", "throughput"})
_AVERAGES: Final = frozenset({"avg", "average", "mean"})
_STATISTICS: Final = frozenset({"min", "mins"})
"""Units that in a name may be a minimum."""
_BESIDE_TIME: Final = frozenset(
    {
        *_TIMES,
        *_STEP_RANKS,
        *_AVERAGES,
        *("train", "training", "per", "the", "in", "gpu", "last", "this"),
        *("us", "usec", "usecs", "microsecond", "microseconds", "ns", "nsec", "nsecs", "nanosecond", "nanoseconds"),
        *("msec", "msecs", "millisecond", "milliseconds", "minutes", "h", "hour", "hours", "day", "days"),
    }
)
"""Words that make up the name of a step's time."""
_ALL_STEPS: Final = frozenset({"elapsed", "total", "runtime", "wall", "walltime", "since", "start", "passed"})
"""Words of a cumulative time."""
_CLOCKS: Final = _TIMES | {"elapsed", "runtime"}
"""Words of a time of a step or of all steps."""
_EVALUATION: Final = frozenset({"val", "valid", "validation", "eval", "evaluation", "test", "dev", "heldout"})
_LOSS: Final = re.compile(r"loss|nll|perplexity|\bppl\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number in a line, with the text around it."""

    name: str
    """As printed, in lower case; `/` for an unnamed fraction."""
    text: str
    start: int = 0
    """Position of the number in the line without its timestamp."""
    total: int = 0
    """After a slash; 0 if there is none."""
    unit: str = ""
    seconds: float | None = None
    """Seconds of a figure such as 1:02:03 or 1m02s."""

    @property
    def title(self) -> str:
        """The name for messages, including a stripped bracket; or else the unit."""
        return f"{self.name})" if "(" in self.name and ")" not in self.name else self.name or self.unit

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the name."""
        return words_of(self.name)

    @property
    def value(self) -> float:
        """The numeric value."""
        return float(self.text) if self.seconds is None else self.seconds

    @property
    def step_rank(self) -> int:
        """How likely the figure is the number of a step; 0 if it is not."""
        whole = self.text.isdecimal() or (self.text.endswith(".0") and self.text[:-2].isdecimal())
        if not whole or self.unit or self.seconds is not None:
            return 0
        if self.name in UNNAMED:
            return 1
        ranks = [_STEP_RANKS[word] for word in self.words if word in _STEP_RANKS]
        return max(ranks) + ("global" in self.words) if ranks and _NOT_STEPS.isdisjoint(self.words) else 0

    @property
    def kind(self) -> Kind | None:
        """The role of the figure in the time of a step, by its name and unit."""
        if not isfinite(self.value):
            return None
        over, _, under = self.unit.partition("/")
        words = {*self.words} - {""}
        words = words - _ENDED if "in" in words else words
        if over in _STEP_RANKS and under:
            return "rate"
        if under in _STEP_RANKS:
            return "inverse rate"
        if self.text.startswith("-") or self.unit == OTHER_UNIT or (not words and not self.unit):
            return None
        if WITH_COUNT.search(self.name):
            return None
        last = self.words[-1] if self.words else ""
        if words & {"s", "sec", "second"} and words & _STEP_RANKS.keys() and words.isdisjoint({"time", "took"}):
            steps_first = next((word in _STEP_RANKS for word in self.words if word in {*_STEP_RANKS, *_TIMES}), False)
            if steps_first and ("per" in words or f"/{last}" in self.name):
                return "rate"
        if not words:
            return "time" if self.unit in ("ms", "s") else None
        is_time = words & _TIMES or (words == {"in"} and self.unit in _UNITS)
        if words & _ALL_STEPS and words <= _BESIDE_TIME | _ALL_STEPS and (is_time or words & {"elapsed", "runtime"}):
            return "clock"
        if is_time and words <= _BESIDE_TIME:
            return "clock" if ":" in self.text and not self.is_of_a_step else "time"
        return None

    @property
    def scale(self) -> float | None:
        """Seconds per printed unit; None without a unit."""
        over = self.unit.partition("/")[0]
        if self.seconds is not None:
            return 1.0
        if over in _UNITS:
            return _UNITS[over][1]
        words = [word for word in self.words if word != "s" or self.name.endswith("s") or "s/" in self.name]
        unit = next((unit for word in words if (unit := _unit_of_time(word)) and word not in _STATISTICS), None)
        return None if unit is None else _UNITS[unit][1]

    @property
    def is_of_a_step(self) -> bool:
        """Whether name or unit marks the figure as the time of one step."""
        return self.is_per_step or self.scale in (1e-3, 1e-6, 1e-9)

    @property
    def is_per_step(self) -> bool:
        """The same, regardless of the size of its unit."""
        return self.names_a_step or "dt" in self.words

    @property
    def names_a_step(self) -> bool:
        """Whether name or unit has a step and a time: `step time`, `s/it`."""
        return not _STEP_RANKS.keys().isdisjoint(self.words) or "/" in self.unit

    @property
    def is_average(self) -> bool:
        """Whether the name marks a mean of several steps."""
        return not _AVERAGES.isdisjoint(self.words)

    @property
    def is_loss(self) -> bool:
        """Whether the name marks a loss."""
        return _LOSS.search(self.name) is not None and "scale" not in self.words

    @property
    def is_of_evaluation(self) -> bool:
        """Whether the name marks an evaluation."""
        return not _EVALUATION.isdisjoint(self.words)


@lru_cache(1024)
def words_of(name: str) -> tuple[str, ...]:
    """Return the words of a name."""
    return tuple(_WORDS.findall(name))


def figures(text: str) -> list[Figure]:
    """Return the numbers of a line, in order."""
    text, found, end = without_stamps(text[:MAX_TEXT]), [], 0
    for match in _FIGURE.finditer(text):
        name = name_of(text[max(end, match.start() - _MAX_NAME) : match.start()])
        if match["not_finite"] and not name:
            continue
        before, end = end, match.end()
        if match["not_finite"]:
            found.append(Figure(name=name, text=match["not_finite"], start=match.start()))
            continue
        if clock := match["clock"] or match["spoken"]:
            found.append(
                Figure(
                    name=name,
                    text=clock,
                    start=match.start(),
                    unit="s" * (match["spoken"] is not None),
                    seconds=_seconds(clock),
                )
            )
            continue
        total = int((match["of"] or "0").strip(" /of"))
        printed = match["unit"] or ""
        unit = "" if is_name(printed, name, text[end:]) else _unit(printed)
        if not unit and printed:
            end = match.start("unit")  # of the next figure: `2 step 100`, `3.21 sec/step 1.01`
        elif not unit and text[end : end + 1] and (text[end].isalpha() or text[end] in "%_"):
            unit = OTHER_UNIT
        if _is_misleading(match, name, unit, text):
            unit = OTHER_UNIT
        name = name or (FRACTION if total else _FIRST if not text[: match.start()].strip() else "")
        if found and "/" in unit and _is_remaining(found[-1]) and not text[before : match.start()].strip():
            found[-1] = replace(found[-1], unit=OTHER_UNIT)
        value = match["value"].replace(",", "")
        found.append(Figure(name=name, text=value, start=match.start(), total=total, unit=unit))
    return found


def _is_remaining(figure: Figure) -> bool:
    """Whether a figure directly before seconds per step is the time of all remaining steps: `4s 400ms/step`."""
    return not figure.name and figure.unit in _UNITS


def name_of(before: str) -> str:
    """Return the words directly before a number, after the last delimiter."""
    bare = before.rstrip(" '\"([:=#")
    if len(before) - len(bare) > 8:
        return ""
    name = _ASIDE.sub("", _DELIMITER.split(bare)[-1]).strip(" '\"()-")
    return name.casefold().replace("μ", "u") if name[:1].isalpha() else ""


def is_name(printed: str, name: str, behind: str) -> bool:
    """Whether the text after a figure is the name of the next one: `loss 3.21 sec/step 1.010`, `lr 0.1 ms=500`."""
    following = _NEXT_VALUE.match(behind)
    if not printed[:1].isspace() or following is None:
        return False
    return following["sign"] is not None or bool(name and (_TIMES | _RATES).isdisjoint(words_of(name)))


def _is_misleading(match: re.Match[str], name: str, unit: str, text: str) -> bool:
    """Whether a time is in a unit that is not read or covers several steps, or a number counts the steps of a time."""
    end, words = match.end("value"), words_of(name)
    is_time = not _CLOCKS.isdisjoint(words)
    if _BEFORE_COUNT.search(name):
        return not unit and bool((match["unit"] or "").strip())
    if (is_time or unit in _UNITS) and _OF_SEVERAL.match(text, end):
        return True
    if unit or not is_time or Figure(name=name, text="").scale is not None:
        return False
    word = _UNKNOWN_UNIT.match(text, end)
    return word is not None and _OF_A_NAME.match(text, word.end()) is None


def _unit(printed: str) -> str:
    """Normalise a unit to ms, s, step/s or s/step; empty for none."""
    words = printed.casefold().replace(" per ", "/").strip("[( )]").split()
    over, slash, under = "".join(words).partition("/")
    over, under = (_unit_of_time(word) or word for word in (over, under))
    return "" if over in _STEP_RANKS and not slash else over + slash + under


@lru_cache(256)
def _unit_of_time(word: str) -> str:
    return next((unit for unit, (printed, _) in _UNITS.items() if re.fullmatch(printed, word)), "")


def _seconds(text: str) -> float:
    """Return the seconds of 1:02:03 or 1h 2m 3s."""
    seconds = 0.0
    for part in re.findall(r"[0-9.]+", text):
        seconds = 60 * seconds + float(part)
    return seconds
