"""Read the tables of a Markdown report as rows of the measurement table.

A report prints what differs in a table and what stays the same around it. A short line such as
`NHIDDEN=14336 / NLAYERS=72` applies until another line changes it; one that begins with a size, `20B model: NLAYERS=8`,
applies to rows of that size. Values inside sentences are ignored. Degrees and micro batches apply within their section
only, and a precision in a heading to everything under it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tuner.tables.column_aliases import MEASURED, column_named, plain, size_of
from tuner.tables.headers import Header, headers_of

_ASSIGNMENT: Final = re.compile(r"\b([A-Z][A-Z_]*)\s*=\s*([0-9]+(?:\.[0-9]+)?)([kKBM]?)\b")
_HEADING: Final = re.compile(r"(#{1,6})\s+(.*?)\s*#*\s*$")
_LOG: Final = re.compile(r"elapsed time per iteration \((m?s)\): ([0-9.]+).*?TFLOPs: ([0-9.]+)", re.IGNORECASE)
_PRECISION: Final = re.compile(r"\b(fp32|fp16|bf16|fp8|fp4)\b", re.IGNORECASE)
_CARD: Final = re.compile(r"\b([VAH][0-9]{3}|GB?[0-9]{3}|B[0-9]{3})[-_ ]*([0-9]{2,3})\s?GB?\b", re.IGNORECASE)

_WORKLOAD: Final = ("layers", "hidden", "heads", "kv_heads", "ffn", "seq", "vocab", "gbs", "size")
_DECISION: Final = ("tp", "pp", "vpp", "cp", "dp", "mbs", "zero", "nodes", "gpus", "gpus_per_node")
_SHAPE: Final = ("heads", "kv_heads", "ffn")
_MAX_WORDS: Final = 5
"""A line with more words besides its assignments is a sentence, which sets nothing."""
_MAX_SIZE_ROUNDING: Final = 0.012
"""Relative error of a printed size, which is rounded, with or without the embedding."""

_EMPHASIS: Final = re.compile(r"(\*{1,3}|__?|`)([^*`_]+)\1(?=\s|$)")
_RULE: Final = re.compile(r"^\|?[\s:|-]+\|?\s*$")
_OUT_OF_MEMORY: Final = re.compile(r"\bOOM(s|ed)?\b|\bout of memory\b", re.IGNORECASE)
_HUNG: Final = re.compile(r"\b(hangs?|hung|deadlock(s|ed)?)\b", re.IGNORECASE)
_FAILED: Final = re.compile(r"\b(fail(s|ed|ure)?|crash(es|ed)?|error)\b", re.IGNORECASE)
_MEMORY_IN_NOTE: Final = re.compile(r"\b([0-9]+(?:\.[0-9]+)?\s*Gi?B)\b")
_DONE: Final = ("ok", "success", "✓", "✓ success", "done", "pass", "passed")


def looks_like_markdown(text: str) -> bool:
    """Return whether a line of the text is the rule under a table header."""
    lines = text.splitlines()
    return any("-" in line and "|" in line and _RULE.match(line) for line in lines[:100_000])


def markdown_rows(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line number and cells of every row of every table, with the values that the text around it sets."""
    context = Context()
    rows = list(_rows_in(text, context))
    yield from ((number, {**context.of_rows_before, **cells}) for number, cells in rows)


def _rows_in(text: str, context: Context) -> Iterator[tuple[int, dict[str, str]]]:
    header: list[Header] = []
    previous = ""
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped.startswith("|"):
            header = []
            context.read(number, stripped)
        elif header:
            printed = {each.column: each.cell(cell) for each, cell in zip(header, _cells(stripped), strict=False)}
            if any(printed.values()) and not _RULE.match(stripped):
                yield number, _row(printed, context)
        elif _RULE.match(stripped) and previous.startswith("|"):
            header = headers_of(_cells(previous))
        previous = stripped


def _cells(line: str) -> list[str]:
    """Return the cells of a line, without the marks of a beginning in bold, italics or code: `**17.1** (best)`."""
    cells = [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]
    return [f"{found[2].strip()}{cell[found.end() :]}" if (found := _EMPHASIS.match(cell)) else cell for cell in cells]


def _row(printed: Mapping[str, str], context: Context) -> dict[str, str]:
    """Return one row: figures without units, status from its words, and the values set around it."""
    figures = {column: plain(column, cell) for column, cell in printed.items()}
    given = {column: cell for column, cell in figures.items() if cell and column}
    for column in MEASURED:
        # A word instead of a figure is the outcome: `OOM`, `fail`.
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
    """Return the status that the words of a row name; None if they name no failure.

    The caller ignores it for rows with a measurement, whose note may say `too close to OOM`.
    """
    words = " ".join(cell for cell in cells.values() if cell.lower() not in _DONE)
    for status, pattern in (("OOM", _OUT_OF_MEMORY), ("HANG", _HUNG), ("FAIL", _FAILED)):
        if pattern.search(words):
            return status
    return None


class Context:
    """The values that apply at a line of a report, which is read from the top."""

    def __init__(self) -> None:
        self.headings: list[tuple[int, str]] = []
        self.workload: dict[str, str] = {}
        self.stated: dict[str, int] = {}
        """The line that set each value."""
        self.of_rows_before: dict[str, str] = {}
        """Values that also apply to the rows before the line: `all NHEADS=64 (above too)`."""
        self._of_all: dict[str, str] = {}
        self._decisions: dict[str, str] = {}
        self._of_size: dict[str, dict[str, str]] = {}
        self._logged: dict[str, str] = {}

    @property
    def heading(self) -> str:
        """The heading of the section."""
        return self.headings[-1][1] if self.headings else ""

    def read(self, number: int, line: str) -> None:
        """Read one line that is not a row of a table."""
        if found := _HEADING.match(line):
            level = len(found[1])
            self.headings = [*(above for above in self.headings if above[0] < level), (level, found[2])]
            self._decisions, self._logged = {}, {}
        if logged := _LOG.search(line):
            seconds = float(logged[2]) / (1000 if logged[1].lower() == "ms" else 1)
            self._logged[logged[3]] = f"{seconds:.10g}"
        assigned = {column_named(name): _digits(value, unit) for name, value, unit in _ASSIGNMENT.findall(line)}
        rest = re.findall(r"[A-Za-z0-9][\w./]*", _ASSIGNMENT.sub(" ", line))
        if not assigned or len(rest) > _MAX_WORDS:
            return
        workload = {column: value for column, value in assigned.items() if column in _WORKLOAD}
        if rest and rest[0].lower() in ("all", "always", "every"):
            self._of_all |= workload
            if "above too" in line.lower():
                self.of_rows_before |= workload
        if {"hidden", "layers"} & workload.keys():
            # Heads and MLP width apply only to the shape that they were stated with.
            for column in _SHAPE:
                if workload.get("hidden", self.workload.get("hidden")) != self.workload.get("hidden"):
                    self.workload.pop(column, None)
        if rest and size_of(rest[0]):
            self._of_size[rest[0].upper()] = workload
        self.workload |= workload
        self._of_all = {column: workload.get(column, value) for column, value in self._of_all.items()}
        self.stated |= dict.fromkeys(workload, number)
        if not rest:
            self._decisions |= {column: value for column, value in assigned.items() if column in _DECISION}

    def cells(self, printed: dict[str, str]) -> dict[str, str]:
        """Return a row's cells with the values set around it; the cells of the row take precedence."""
        around = {**self.workload, **self._of_size.get(printed.get("size", "").upper(), {}), **self._decisions}
        for _, heading in self.headings:
            if named := _PRECISION.findall(heading):
                around["precision"] = named[-1].lower()
        if "sec_per_iter" not in printed and printed.get("tflops") in self._logged:
            around["sec_per_iter"] = self._logged[printed["tflops"]]
        if printed.get("hidden", around.get("hidden")) != around.get("hidden"):
            around = {column: value for column, value in around.items() if column not in _SHAPE}
        cells = {**self._of_all, **around, **printed}
        if "size" in printed and "layers" not in printed:
            cells |= _layers_of_size(cells)
        return cells


def card_named(text: str) -> str | None:
    """Return the catalog name of the GPU in a text such as `v100-32g` or `A100 80GB`; None unless exactly one."""
    cards = {f"{family}-{memory}GB".upper() for family, memory in _CARD.findall(text)}
    return cards.pop() if len(cards) == 1 else None


def _digits(value: str, unit: str) -> str:
    return value + {"k": "000", "K": "000"}.get(unit, unit)


def _layers_of_size(cells: dict[str, str]) -> dict[str, str]:
    """Return the layers that match a row's size, if the layers stated before make a different model.

    A plain GPT of hidden h has 12 h^2 weights a layer and V h in its embedding; reports leave the latter out as often
    as not. The layers divide by the stages.
    """
    size = size_of(cells["size"])
    try:
        hidden, stages = int(cells["hidden"]), int(cells.get("pp", "1"))
        vocab, layers = int(cells.get("vocab", "0")), int(cells.get("layers", "0"))
    except (KeyError, ValueError):
        return {}
    if not size or not 0 < hidden < 10**7 or not 0 < stages < 10**5 or "ffn" in cells:
        return {}
    layer, embedding = 12 * hidden**2, vocab * hidden

    def error(count: int) -> float:
        return min(abs(count * layer - size), abs(count * layer + embedding - size)) / size

    if layers % stages == 0 and error(layers) <= _MAX_SIZE_ROUNDING:
        return {}
    middle = int(size / layer / stages)
    best = min((max(1, middle + step) * stages for step in (-1, 0, 1)), key=error)
    return {"layers": str(best)} if error(best) <= _MAX_SIZE_ROUNDING else {}
