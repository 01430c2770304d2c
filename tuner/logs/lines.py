"""The lines of a log as a terminal would show them, and the rank that prints each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

MAX_LINE_CHARS: Final = 1 << 16
"""Characters of a line that are read."""

_BLOCK_CHARS: Final = 1 << 17
"""Characters of lines that are searched together for keywords: most lines of a log have none."""

_NARROWEST: Final = 60
_WIDEST: Final = 400
"""Columns of the terminals whose wrapped lines are joined."""
_FULL_LINES: Final = 3
"""Number of lines of maximum length that show a terminal's width."""

_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
"""Terminal control sequences (ECMA-48, 5.4): colours, cursor moves, window titles."""

_DIGITS: Final = b"0123456789"
_NO_DIGITS: Final = str.maketrans("", "", _DIGITS.decode())

_TIMESTAMPS: Final = re.compile(r"\[?(?:\d{4}-\d\d-\d\d[ T_])?\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?")

_TANGLE: Final = re.compile(
    r"(?P<name>[A-Za-z_][\w.]*?(?:Error|Exception))(?P=name)+(?:: ){2,}(?P<words>.+?)(?P=words)+"
)
_MAX_LABEL: Final = 400
"""Maximum number of characters."""
_LONGEST_TANGLE: Final = 2000
"""Maximum number of characters: the time to compare all prefixes grows quadratically."""

_STAMP: Final = re.compile(
    r"\b([0-9]{4})[-/]([0-9]{2})[-/]([0-9]{2})[ T]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]{1,6}))?"
)
_SHORT_STAMP: Final = re.compile(
    r"^\W{0,3}(?:([0-9]{2})[-/]([0-9]{2}) )?([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]{1,6}))?(?![0-9:])"
)
"""A timestamp without a year or a date, at the beginning of a line."""
_MAX_STAMP_AT: Final = 120
"""Characters at the beginning of a line that are searched for a timestamp."""


def kind_of(text: str) -> str:
    """Return a line without digits; lines of one kind differ only in those."""
    return text.translate(_NO_DIGITS)


def shape_of(text: str) -> bytes:
    """Return a line without digits as bytes, which is faster for short texts."""
    return text.encode(errors="surrogatepass").translate(None, _DIGITS)


def kinds_of(whole: str) -> set[str]:
    """Return the kinds of lines in a text."""
    return set(kind_of(whole).split("\n"))


def visible(lines: Iterable[str], first: int = 1) -> Iterator[tuple[int, str]]:
    """Yield each non-empty line with its number in the file, without colours and NUL bytes; split progress bars."""
    for number, line in enumerate(lines, start=first):
        text = line
        if "\x1b" in text:
            text = _ESCAPES.sub("", text)
        if "\0" in text:
            text = text.replace("\0", "")
        if "\r" in text:
            text = text.replace("\r", "\n")
        for part in text.split("\n"):
            if part and not part.isspace():
                yield number, part[:MAX_LINE_CHARS]


def visible_blocks(lines: Iterable[str]) -> Iterator[tuple[list[tuple[int, str]], str]]:
    """Yield the lines of `visible` in blocks, each also joined into one text.

    All blocks without an overlong line have about the same number of characters.
    """
    first, chars, block = 1, 0, []
    for line in lines:
        block.append(line)
        chars += len(line) + 1
        if chars >= _BLOCK_CHARS:
            yield _visible_block(block, first)
            first += len(block)
            chars, block = 0, []
    yield _visible_block(block, first)


def _visible_block(lines: list[str], first: int) -> tuple[list[tuple[int, str]], str]:
    lines = [line.rstrip("\n") for line in lines]
    whole = "\n".join(lines)
    if (
        max(map(len, lines), default=0) > MAX_LINE_CHARS
        or whole.count("\n") >= len(lines)
        or any(mark in whole for mark in "\x1b\0\r")
    ):
        block = list(visible(lines, first))
        return block, "\n".join([text for _, text in block])
    return [(number, text) for number, text in enumerate(lines, first) if text and not text.isspace()], whole


def unwrapped(lines: Iterable[tuple[int, str]]) -> list[str]:
    """Join lines that a terminal wrapped at its width, or that break before a bar (`| `).

    Return none if no line shows a width or such a bar. Lines are one shorter if the terminal drops trailing blanks.
    """
    kept = [text for _, text in lines]
    width = max(map(len, kept), default=0)
    is_wrapped = _NARROWEST <= width <= _WIDEST and sum(len(text) == width for text in kept) >= _FULL_LINES
    if not is_wrapped and not any(text.startswith("| ") for text in kept):
        return []
    found: list[str] = []
    goes_on = False
    for text in kept:
        if goes_on or (found and text.startswith("| ")):
            found[-1] += text if goes_on else f" {text}"
        else:
            found.append(text)
        goes_on = is_wrapped and len(text) >= width - 1
        if goes_on and len(text) == width - 1:
            found[-1] += " "
    return found


def untangled(text: str) -> str:
    """Return a single exception if ranks printed the same one interleaved: `AErrorAError: : no xno x`."""
    if ": : " in text and len(text) < _LONGEST_TANGLE and (found := _TANGLE.fullmatch(text)):
        return f"{found['name']}: {found['words']}"
    return text


def speaker(prefix: str) -> str:
    """Return the rank or node that prints a line, by a prefix such as `[default7]:` or `node01: `, ignoring times."""
    prefix = prefix.strip()
    if not prefix or ":" not in prefix:
        return prefix
    return "" if _TIMESTAMPS.fullmatch(prefix) else _TIMESTAMPS.sub("", prefix).strip()


def label(text: str, start: int, after: int = 0) -> str:
    """Return the last launcher's label before a position of a line, which may have several."""
    return speaker(text[max(after, start - _MAX_LABEL) : start])


def stamp_of(text: str) -> tuple[float | None, float]:
    """Return a line's timestamp in seconds since a fixed day, and the value of its last digit."""
    found = _STAMP.search(text[:_MAX_STAMP_AT])
    if found is None:
        return None, 0.0
    year, month, day = int(found[1]), int(found[2]), int(found[3])
    years = year if month > 2 else year - 1  # a year that starts in March has its leap day at the end
    return _seconds_at(1461 * years // 4 - years // 100 + years // 400 + _days_from_march(month) + day, found, 4)


def loose_stamp_of(text: str) -> tuple[float | None, float]:
    """Return a line's timestamp as `stamp_of` does, but also without a year or a date."""
    stamp, digit = stamp_of(text)
    if stamp is not None or (found := _SHORT_STAMP.match(text)) is None:
        return stamp, digit
    return _seconds_at(_days_from_march(int(found[1])) + int(found[2]) if found[1] else 0, found, 3)


def _days_from_march(month: int) -> int:
    """Return the days before a month of a year that starts in March; every five months have 153."""
    return (153 * ((month + 9) % 12) + 2) // 5


def _seconds_at(days: int, found: re.Match[str], first: int) -> tuple[float, float]:
    """Return the seconds at a time of day, whose groups start with the hours, and the value of the last digit."""
    hours, minutes, seconds = (int(found[group]) for group in range(first, first + 3))
    fraction = found[first + 3] or ""
    whole = 60.0 * (60 * (24 * days + hours) + minutes) + seconds
    return whole + (int(fraction) / 10 ** len(fraction) if fraction else 0.0), 10.0 ** -len(fraction)


def without_stamps(text: str) -> str:
    """Return a line with blanks in place of its timestamp."""
    for pattern in (_STAMP, _SHORT_STAMP):
        if found := pattern.search(text[:_MAX_STAMP_AT]):
            text = text[: found.start()] + " " * (found.end() - found.start()) + text[found.end() :]
    return text
