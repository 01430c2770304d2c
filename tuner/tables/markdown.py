"""The tables of a Markdown report, as rows of the measurement table.

A report prints what differs in the table and what stays the same around it: `NHIDDEN=14336 / NLAYERS=72` before a table
holds for its rows until another such line stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

ALIASES: Final = {
    "nnodes": "nodes",
    "layers": "layers",
    "nlayers": "layers",
    "nhidden": "hidden",
    "nheads": "heads",
    "seq_len": "seq",
    "sequence": "seq",
    "vocab_size": "vocab",
    "vocab_length": "vocab",
    "ffn_hidden_size": "ffn",
    "zs": "zero",
    "zero_stage": "zero",
    "micro_batch_size": "mbs",
    "bs": "gbs",
    "global_batch_size": "gbs",
    "mem": "mem_gib",
    "memory": "mem_gib",
    "sec/it": "sec_per_iter",
    "sec/iter": "sec_per_iter",
    "s/it": "sec_per_iter",
    "speed": "sec_per_iter",
    "tflops": "tflops",
    "notes": "note",
}
"""How reports name the columns of the format; names are compared in lower case."""

_ASSIGNMENT: Final = re.compile(r"\b([A-Z][A-Z_]*)\s*=\s*([0-9]+)(k?)\b")
_RULE: Final = re.compile(r"^\|?[\s:|-]+\|?\s*$")


def looks_like_markdown(text: str) -> bool:
    """Whether some line of the text is the rule under a table's header."""
    lines = text.splitlines()
    return any("-" in line and "|" in line and _RULE.match(line) for line in lines[:100_000])


def markdown_rows(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and cells of every row of every table, with what the lines before it fix."""
    fixed: dict[str, str] = {}
    header: list[str] = []
    group, previous = "", ""
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped.startswith("|"):
            header = []
            if stripped.startswith("#"):
                group = stripped.lstrip("# ").strip()
            for name, digits, kilo in _ASSIGNMENT.findall(stripped):
                fixed[column_named(name)] = digits + ("000" if kilo else "")
        elif header:
            cells = dict(zip(header, _cells(stripped), strict=False))
            understood = {column: _value(column, cell) for column, cell in cells.items()}
            if any(understood.values()) and not _RULE.match(stripped):
                yield number, _with_status({"group": group, **fixed, **_filled(understood)}, " ".join(cells.values()))
        elif _RULE.match(stripped) and previous.startswith("|"):
            header = [column_named(cell) for cell in _cells(previous)]
        previous = stripped
    return


def column_named(name: str) -> str:
    """The format's column for a report's word."""
    folded = name.strip().lower()
    return ALIASES.get(folded, folded)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _filled(cells: dict[str, str]) -> dict[str, str]:
    return {column: value for column, value in cells.items() if value}


def _value(column: str, cell: str) -> str:
    """A cell without its unit: `67GB` is 67, `103B` stays in the column of sizes."""
    if column == "mem_gib" and (number := re.match(r"([0-9.]+)\s*G", cell, re.IGNORECASE)):
        return number[1]
    return cell


def _with_status(cells: dict[str, str], line: str) -> dict[str, str]:
    """A row that says OOM ran out of memory; what stands in its other cells is no measurement."""
    if re.search(r"\bOOMs?\b", line, re.IGNORECASE):
        measured = ("sec_per_iter", "tflops", "mem_gib")
        return {**{column: value for column, value in cells.items() if column not in measured}, "status": "OOM"}
    return cells
