"""The lines of a log as a person would see them: no colours, no NUL bytes, progress bars line by line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
"""Terminal control sequences (ECMA-48, 5.4): colours, cursor moves, window titles."""

_TIMESTAMPS: Final = re.compile(r"\[?(?:\d{4}-\d\d-\d\d[ T_])?\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?")


def visible(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Each visible line with the number, from 1, of the line in the file that it stands in; empty ones are left out."""
    for number, line in enumerate(lines, start=1):
        text = line
        if "\x1b" in text:
            text = _ESCAPES.sub("", text)
        if "\0" in text:
            text = text.replace("\0", "")
        if "\r" in text:
            text = text.replace("\r", "\n")
        for part in text.split("\n"):
            if part and not part.isspace():
                yield number, part


def speaker(prefix: str) -> str:
    """Who writes a line, by what stands before its text, such as `[default7]:` or `node01: `; times are left out."""
    return _TIMESTAMPS.sub("", prefix).strip()
