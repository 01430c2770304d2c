"""The tables of a Markdown report, as rows of the measurement table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tuner.tables.column_aliases import MEASURED, column_named, plain
from tuner.tables.context import Context

_RULE: Final = re.compile(r"^\|?[\s:|-]+\|?\s*$")
_OUT_OF_MEMORY: Final = re.compile(r"\bOOM(s|ed)?\b|\bout of memory\b", re.IGNORECASE)
_HUNG: Final = re.compile(r"\b(hangs?|hung|deadlock(s|ed)?)\b", re.IGNORECASE)
_FAILED: Final = re.compile(r"\b(fail(s|ed|ure)?|crash(es|ed)?|error)\b", re.IGNORECASE)
_MEMORY_IN_NOTE: Final = re.compile(r"\b([0-9]+(?:\.[0-9]+)?\s*Gi?B)\b")
_DONE: Final = ("ok", "success", "✓", "✓ success", "done", "pass", "passed")


def looks_like_markdown(text: str) -> bool:
    """Whether some line of the text is the rule under a table's header."""
    lines = text.splitlines()
    return any("-" in line and "|" in line and _RULE.match(line) for line in lines[:100_000])


def markdown_rows(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and cells of every row of every table, with what the lines around it say."""
    context = Context()
    rows = list(_rows_in(text, context))
    yield from ((number, {**context.above_too, **cells}) for number, cells in rows)


def _rows_in(text: str, context: Context) -> Iterator[tuple[int, dict[str, str]]]:
    header: list[str] = []
    previous = ""
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped.startswith("|"):
            header = []
            context.read(number, stripped)
        elif header:
            printed = dict(zip(header, _cells(stripped), strict=False))
            if any(printed.values()) and not _RULE.match(stripped):
                yield number, _row(printed, context)
        elif _RULE.match(stripped) and previous.startswith("|"):
            header = [column_named(cell) for cell in _cells(previous)]
        previous = stripped


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]


def _row(printed: Mapping[str, str], context: Context) -> dict[str, str]:
    """One row: figures without units, its status from its words, and what is said around it."""
    figures = {column: plain(column, cell) for column, cell in printed.items()}
    given = {column: cell for column, cell in figures.items() if cell and column}
    for column in MEASURED:
        # A word in the place of a figure says what came of the run: `OOM`, `fail`.
        if column in given and _status({column: given[column]}):
            del given[column]
    ended = _status({column: cell for column, cell in printed.items() if column != "size"})
    given.pop("status", None)
    if ended and not {"sec_per_iter", "tflops"} & given.keys():
        given = {column: cell for column, cell in given.items() if column not in MEASURED} | {"status": ended}
    elif "mem_gib" not in given and (noted := _MEMORY_IN_NOTE.findall(printed.get("note", ""))) and len(noted) == 1:
        given["mem_gib"] = plain("mem_gib", noted[0])
    cells = context.cells(given)
    group = context.heading
    if "hidden" in cells and "layers" in cells:
        group = f"{group}, {cells['hidden']}x{cells['layers']}" if group else f"{cells['hidden']}x{cells['layers']}"
    return {"group": group or "report", **cells}


def _status(cells: Mapping[str, str]) -> str | None:
    """How a run ended, from the words of its row; None where they say nothing bad.

    A run that was measured has ended well whatever its note warns of, `too close to OOM`: the caller looks.
    """
    words = " ".join(cell for cell in cells.values() if cell.lower() not in _DONE)
    for status, pattern in (("OOM", _OUT_OF_MEMORY), ("HANG", _HUNG), ("FAIL", _FAILED)):
        if pattern.search(words):
            return status
    return None
