"""Parse and format quantities: counts such as `366B` and `3.6e12`, durations such as `4h`, iterations such as `2-5`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tuner.core.errors import InputError
from tuner.core.text import DAY, shown

GIB: Final = 2.0**30
"""Bytes."""

LARGEST_COUNT: Final = 1e30
"""Upper limit on counts: far above any training, and low enough that products of a few counts stay finite."""

SCALES: Final = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
"""Factors of counts by the letter after them."""
_COUNT: Final = re.compile(r"\s*([0-9][0-9_,]*\.?[0-9]*(?:e[+-]?[0-9]{1,3})?|\.[0-9]+)\s*([KMBGT]?)\s*", re.IGNORECASE)


def parse_count(text: str | float) -> float:
    """Return a positive count: a number, with K, M, B (or G) or T for thousands to trillions.

    >>> parse_count("366B"), parse_count("1T"), parse_count("3.6e12"), parse_count(2048)
    (366000000000.0, 1000000000000.0, 3600000000000.0, 2048.0)

    Raises `InputError` for anything else.
    """
    match = _COUNT.fullmatch(str(text))
    count = float(re.sub("[_,]", "", match[1])) * SCALES[match[2].upper()] if match else 0.0
    if not 0 < count < LARGEST_COUNT:
        raise InputError(
            f"tokens must be a positive number below {LARGEST_COUNT:g}, not {shown(text)}; write 1T, 366B or 3.6e12."
        )
    return count


def whole(text: str) -> int | None:
    """Return a number that a program printed in decimal digits; None for anything else.

    >>> whole("48"), whole("-1"), whole("²")
    (48, None, None)
    """
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


def format_count(count: float, *, digits: int = 3) -> str:
    """Return a count with its unit: `366B`, `3.62T`, `237K`.

    >>> format_count(366e9), format_count(3.624e12), format_count(999.9e9)
    ('366B', '3.62T', '1T')
    """
    rounded = float(f"{count:.{digits}g}")  # first, for 999.9B is 1T
    for scale, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if rounded >= scale:
            return f"{rounded / scale:,.15g}{unit}"
    return f"{count:g}"


_LAST_ITERATION: Final = 9999
"""A trial has a few iterations."""


def iterations_of(given: int | str | Iterable[int]) -> tuple[int, ...]:
    """Return the measured iterations: a number, or the range that `2-5` or the ends of several numbers name."""
    numbers = [given] if isinstance(given, int) else [] if isinstance(given, str) else [*given]
    text = given if isinstance(given, str) else f"{min(numbers)}-{max(numbers)}" if numbers else ""
    if not (match := re.fullmatch(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", text.strip())):
        raise InputError(f"--iterations {shown(text)} is neither a number nor a range such as 2-5.")
    first, last = int(match[1]), int(match[2] or match[1])
    if last > _LAST_ITERATION:
        raise InputError(f"--iterations {text} must end at iteration {_LAST_ITERATION:,} or before.")
    if last < first:
        raise InputError(f"--iterations: the range {first}-{last} runs backwards; write {last}-{first}.")
    if first < 2:
        raise InputError(f"--iterations {text}: iteration 1 is warm-up and is never measured; begin with 2.")
    return tuple(range(first, last + 1))


def duration(text: str, option: str) -> float:
    """Return the seconds in `90m`, `4h` or `2d`."""
    units: dict[str, float] = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": DAY}
    if not (match := re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*([smhd])", text.strip())):
        raise InputError(f"{option} {shown(text)} is not a duration such as 90m, 4h or 2d.")
    return float(match[1]) * units[match[2]]


def texts_of(name: str, values: Iterable[str]) -> tuple[str, ...]:
    """Return texts that an argument lists; raise for a single text, which would be taken for its letters."""
    if isinstance(values, str):
        raise InputError(f"{name} is a list of strings, such as [{values!r}]; got {values!r}.")
    return tuple(values)
