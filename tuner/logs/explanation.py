"""Explain how a log is read: which reader recognises which lines, and a pattern for the lines of an unknown trainer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import Final

from tuner.logs.figures import AFTER_COUNT, MAX_TEXT, OTHER_UNIT, WITH_COUNT, figures, is_name, name_of, words_of
from tuner.logs.frameworks import StepPattern
from tuner.logs.lines import visible
from tuner.logs.named_figures import Interpretation
from tuner.logs.readers import RecordReader
from tuner.logs.records import NUMBER, Source

_MAX_EXAMPLES: Final = 3
_MAX_LINE: Final = 200
"""Characters of a line that are shown."""
_REPEATED: Final = 2
"""Added to a line's score if others differ from it only in their figures."""
_MAX_KEPT: Final = 20_000
"""Lines that are read by the names of their figures."""
_MAX_FAILURES: Final = 8
"""Lines of a shape that are tried; the time of a first step may be 0."""
_MAX_CANDIDATES: Final = 1000
"""Lines of an unread log that are compared."""

_STEP: Final = re.compile(
    r"\b(?:global_?step|iteration|iter|step|update|batch|it)\b[\s:=#\[(]{0,4}([0-9]{1,9})\b", re.IGNORECASE
)
_TIME: Final = re.compile(
    rf"(?:\b(?:[a-z_]*time[a-z_/]*|dt|took|elapsed|duration|seconds|sec|ms)\b[\s:=(]{{0,4}})?\b(?P<value>{NUMBER})"
    r"(?P<unit> ?(?:s/it|s/step|sec/step|tok/s|tokens/s|tokens/sec|ms|milliseconds|s|sec|secs|seconds)\b)",
    re.IGNORECASE,
)
_NAMED_TIME: Final = re.compile(
    r"\b(?P<name>(?:step_?time|iter_?time|time|dt|elapsed|duration|seconds)(?:_(?P<short>ms|s))?|"
    rf"(?:s|sec|secs|seconds|ms)/(?:it|iter|step)|tok(?:ens)?/s(?:ec)?|tok(?:ens)?_per_s(?:ec)?)\b[\s:=(]{{1,4}}"
    rf"(?P<value>{NUMBER})",
    re.IGNORECASE,
)
_PARTS: Final = frozenset(
    {
        *("forward", "backward", "fwd", "bwd", "optimizer", "opt"),
        *("data", "load", "loader", "loading", "wait", "reader"),
        *("remaining", "left", "eta", "eval", "val", "validation", "test", "save", "checkpoint", "comm"),
    }
)
"""Words of a time that belongs to a part of a step, or to none."""
_NUMBER_WITH_UNIT: Final = re.compile(r"[0-9][\w.]*")
_LOSS: Final = re.compile(r"\bloss\b", re.IGNORECASE)


_NO_TIME: Final = (
    "none of these lines has a figure that is clearly the seconds or milliseconds of one whole iteration, or its "
    "tokens per second"
)
_OF_ALL: Final = "the lines are several iterations apart, and their time may be that of all of them"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderExplanation:
    """The lines that one reader recognises."""

    source: Source
    lines: int
    examples: tuple[tuple[int, str], ...]
    """The first ones, each with its number in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogExplanation:
    """How a log is read."""

    readers: tuple[ReaderExplanation, ...]
    likely: tuple[tuple[int, str], ...]
    """The lines of an unread log that are most likely about an iteration."""
    pattern: str
    """A step pattern for the likeliest of them; empty if none has a time."""
    no_pattern: str = ""
    """Why there is none, although lines are likely."""


def explained(lines: Iterable[str], pattern: StepPattern | None = None) -> LogExplanation:
    """Return which lines of a log each reader recognises; for an unread log its likeliest lines and a pattern."""
    reader = RecordReader(pattern)
    counts: dict[Source, int] = {}
    examples: dict[Source, list[tuple[int, str]]] = {}
    candidates: list[tuple[int, int, str]] = []
    kept: list[tuple[int, str]] = []
    for number, text in visible(lines):
        if len(kept) < _MAX_KEPT:
            kept.append((number, text))
        sources = {record.source for record in reader.read(number, text)}
        for source in sources:
            counts[source] = counts.get(source, 0) + 1
            if len(examples.setdefault(source, [])) < _MAX_EXAMPLES:
                examples[source].append((number, text.strip()[:_MAX_LINE]))
        if not sources and len(candidates) < _MAX_CANDIDATES and (score := _score(text[:_MAX_LINE])):
            candidates.append((score, number, text.strip()[:_MAX_LINE]))
    shapes = Counter(_shape(text) for _, _, text in candidates)
    candidates = [(score + _REPEATED * (shapes[_shape(text)] > 1), number, text) for score, number, text in candidates]
    if not counts and pattern is None and (way := Interpretation.of(text for _, text in kept)):
        read = [(number, text.strip()[:_MAX_LINE]) for number, text in kept if any(way.read(number, text))]
        counts["named figures"], examples["named figures"] = len(read), read[:_MAX_EXAMPLES]
    readers = tuple(
        ReaderExplanation(source=source, lines=counts[source], examples=tuple(examples[source])) for source in counts
    )
    likely = [] if readers else sorted(candidates, key=lambda one: -one[0])[:_MAX_EXAMPLES]
    texts, apart = [text for _, _, text in likely], _apart(text for _, _, text in candidates)
    suggested = [one for text in texts if (one := _suggested(text, apart[_shape(text)]))]
    return LogExplanation(
        readers=readers,
        likely=tuple((number, text) for _, number, text in sorted(likely, key=lambda one: one[1])),
        pattern=suggested[0] if suggested else "",
        no_pattern="" if suggested or not texts else _reason(texts),
    )


def lone_step(lines: Iterable[str]) -> int | None:
    """Return the only step with a line that would be read by its figures if a second step followed; None otherwise."""
    found: set[int] = set()
    failures: Counter[str] = Counter()
    unread = 0
    for _, text in islice(visible(lines), _MAX_KEPT):
        if failures[shape := _shape(text[:MAX_TEXT])] >= _MAX_FAILURES:
            continue
        failures[shape] += 1
        named = figures(text)
        step = max(named, key=lambda figure: figure.step_rank, default=None)
        if step is None or not step.step_rank or not any(figure.kind for figure in named):
            continue
        number = int(float(step.text))
        following = f"{text[: step.start]}{number + 1}{text[step.start + len(step.text) :]}"
        if number in found or Interpretation.of((text, following)):
            failures[shape] = 0
            found.add(number)
        else:
            unread += 1
        if len(found) > 1:
            return None
        if unread == _MAX_CANDIDATES:
            break
    return next(iter(found), None)


def _shape(text: str) -> str:
    """Return a line without its figures, by which lines of iterations are equal."""
    return re.sub(r"[-+0-9.,]+", "0", text)


def _score(text: str) -> int:
    """Return how much a line looks like an iteration; 0 for not at all."""
    has_time = _TIME.search(text) is not None or _NAMED_TIME.search(text) is not None
    return 2 * (_STEP.search(text) is not None) + 3 * has_time + (_LOSS.search(text) is not None)


def _reason(texts: Iterable[str]) -> str:
    """Return why no pattern is suggested for likely lines."""
    return _OF_ALL if any(_suggested(text, apart=1) for text in texts) else _NO_TIME


def _apart(lines: Iterable[str]) -> dict[str, int]:
    """Return the least number of iterations between the lines of each shape, 1 if they do not show it."""
    numbers: dict[str, list[int]] = {}
    for text in lines:
        step = _STEP.search(text)
        numbers.setdefault(_shape(text), []).extend([int(step[1])] if step else [])
    gaps = {shape: [after - before for before, after in pairwise(found)] for shape, found in numbers.items()}
    return {shape: min((gap for gap in found if gap > 0), default=1) for shape, found in gaps.items()}


def _suggested(text: str, apart: int) -> str:
    """Return a step pattern that matches a line, or an empty string if it has no time of one step.

    If lines are several iterations `apart`, only a name or unit shows that a time is not that of all of them.
    """
    step = _STEP.search(text)
    after = step.end() if step else 0
    time = _time(text, after, apart)
    if time is None:
        return ""
    start = time.start("value")
    if not (group := _group(text, time)):
        return ""
    before = _literal(_whole_words(text, max(after, start - 16), start))
    value = rf"(?P<{group}>[0-9.]+){_literal(time.groupdict().get('unit') or '')}"
    if step is None:
        return before + value
    head = _literal(text[step.start() : step.start(1)])
    return rf"{head}(?P<iteration>[0-9]+)\b.*?{before}{value}"


def _group(text: str, time: re.Match[str]) -> str:
    """Return the group of a step pattern for a time or rate; empty if none has its unit."""
    found = time.groupdict()
    printed = found.get("unit") or ""
    if (found.get("name") or printed).casefold().strip().startswith("tok"):
        return "tokens_per_sec"
    figure = next((one for one in figures(text) if one.start == time.start("value")), None)
    if figure is None or figure.unit == OTHER_UNIT or (printed and figure.scale is None):
        return ""
    return {None: "seconds", 1.0: "seconds", 1e-3: "ms"}.get(figure.scale, "")


def _time(text: str, after: int, apart: int) -> re.Match[str] | None:
    """Return the first time or rate after a position of a line that may be that of a whole step."""
    per_step = {figure.start for figure in figures(text) if figure.is_per_step}
    for time in chain(_TIME.finditer(text, after), _NAMED_TIME.finditer(text, after)):
        name = name_of(_NUMBER_WITH_UNIT.split(text[after : time.start("value")])[-1])
        printed = time.groupdict().get("unit") or ""
        start = time.start("value")
        if WITH_COUNT.search(text, after, start) or AFTER_COUNT.search(text[after:start]):
            continue  # the time of several steps
        if apart > 1 and "tok" not in time[0].casefold() and start not in per_step:
            continue
        if not is_name(printed, name, text[time.end() :]) and _PARTS.isdisjoint(words_of(name)):
            return time
    return None


def _whole_words(text: str, start: int, end: int) -> str:
    """Return a part of a line, without a word that its beginning cuts."""
    part = text[start:end]
    cut = start > 0 and not text[start - 1].isspace() and " " in part.rstrip()
    return part.partition(" ")[2] if cut else part


def _literal(text: str) -> str:
    """Return a pattern of fixed words with variable numbers and spaces."""
    words = re.sub(r"[0-9.]+", "\0", text)
    return re.sub(r"(?:\\ )+", r"\\s*", re.escape(words)).replace("\0", "[0-9.]+").replace("\\\x00", "[0-9.]+")
