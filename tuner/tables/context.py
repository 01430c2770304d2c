"""What the lines around a report's tables say about their rows.

A report prints what differs in a table and what stays the same around it. A short line such as
`NHIDDEN=14336 / NLAYERS=72` holds until it is said otherwise; one that begins with a size, `20B model: NLAYERS=8`, for
rows of that size. A sentence that mentions a value fixes nothing. The degrees and the micro batch of a line hold within
their section alone, and a precision in a heading for what stands under it.
"""

from __future__ import annotations

import re
from typing import Final

from tuner.tables.column_aliases import column_named, size_of

_ASSIGNMENT: Final = re.compile(r"\b([A-Z][A-Z_]*)\s*=\s*([0-9]+(?:\.[0-9]+)?)([kKBM]?)\b")
_HEADING: Final = re.compile(r"(#{1,6})\s+(.*?)\s*#*\s*$")
_LOG: Final = re.compile(r"elapsed time per iteration \((m?s)\): ([0-9.]+).*?TFLOPs: ([0-9.]+)", re.IGNORECASE)
_PRECISION: Final = re.compile(r"\b(fp32|fp16|bf16|fp8)\b", re.IGNORECASE)
_CARD: Final = re.compile(r"\b([VAH][0-9]{3}|GB?[0-9]{3}|B[0-9]{3})[-_ ]*([0-9]{2,3})\s?GB?\b", re.IGNORECASE)

_WORKLOAD: Final = ("layers", "hidden", "heads", "kv_heads", "ffn", "seq", "vocab", "gbs", "size")
_DECISION: Final = ("tp", "pp", "vpp", "cp", "dp", "mbs", "zero", "nodes", "gpus", "gpus_per_node")
_SHAPE: Final = ("heads", "kv_heads", "ffn")
_MOST_WORDS: Final = 5
"""A line with more words beside its assignments is a sentence about them."""
_ROUNDED: Final = 0.012
"""How far a printed size may be from what a shape holds: it is rounded, with or without the embedding."""


class Context:
    """What holds at a line of a report, read line by line from its top."""

    def __init__(self) -> None:
        self.headings: list[tuple[int, str]] = []
        self.workload: dict[str, str] = {}
        self.stated: dict[str, int] = {}
        """The line that said each value which holds."""
        self.above_too: dict[str, str] = {}
        """What a line says of the rows before it as well: `all NHEADS=64 (above too)`."""
        self._of_all: dict[str, str] = {}
        self._decisions: dict[str, str] = {}
        self._of_size: dict[str, dict[str, str]] = {}
        self._logged: dict[str, str] = {}

    @property
    def heading(self) -> str:
        """The heading that the line stands under."""
        return self.headings[-1][1] if self.headings else ""

    def read(self, number: int, line: str) -> None:
        """Take in one line that is no row of a table."""
        if found := _HEADING.match(line):
            level = len(found[1])
            self.headings = [*(above for above in self.headings if above[0] < level), (level, found[2])]
            self._decisions, self._logged = {}, {}
        if logged := _LOG.search(line):
            seconds = float(logged[2]) / (1000 if logged[1].lower() == "ms" else 1)
            self._logged[logged[3]] = f"{seconds:.10g}"
        said = {column_named(name): _digits(value, unit) for name, value, unit in _ASSIGNMENT.findall(line)}
        rest = re.findall(r"[A-Za-z0-9][\w./]*", _ASSIGNMENT.sub(" ", line))
        if not said or len(rest) > _MOST_WORDS:
            return
        workload = {column: value for column, value in said.items() if column in _WORKLOAD}
        if rest and rest[0].lower() in ("all", "always", "every"):
            self._of_all |= workload
            if "above too" in line.lower():
                self.above_too |= workload
        if {"hidden", "layers"} & workload.keys():
            # Heads and MLP belong to the shape that they were stated with.
            for column in _SHAPE:
                if workload.get("hidden", self.workload.get("hidden")) != self.workload.get("hidden"):
                    self.workload.pop(column, None)
        if rest and size_of(rest[0]):
            self._of_size[rest[0].upper()] = workload
        self.workload |= workload
        self._of_all = {column: workload.get(column, value) for column, value in self._of_all.items()}
        self.stated |= dict.fromkeys(workload, number)
        if not rest:
            self._decisions |= {column: value for column, value in said.items() if column in _DECISION}

    def cells(self, printed: dict[str, str]) -> dict[str, str]:
        """A row's cells with what is said around it; what the row prints itself wins."""
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
    """The catalog's name of the card that a text names, as `v100-32g` or `A100 80GB`, where it names only one."""
    cards = {f"{family}-{memory}GB".upper() for family, memory in _CARD.findall(text)}
    return cards.pop() if len(cards) == 1 else None


def _digits(value: str, unit: str) -> str:
    return value + {"k": "000", "K": "000"}.get(unit, unit)


def _layers_of_size(cells: dict[str, str]) -> dict[str, str]:
    """The layers that a row's own size asks for, where those stated before it make another model.

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

    if layers % stages == 0 and error(layers) <= _ROUNDED:
        return {}
    middle = int(size / layer / stages)
    best = min((max(1, middle + step) * stages for step in (-1, 0, 1)), key=error)
    return {"layers": str(best)} if error(best) <= _ROUNDED else {}
