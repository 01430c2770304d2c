"""Headers of tables: the column of the format that each names, and the unit of its cells.

A unit is stated in brackets, `Iter time (ms)`, `Memory [max MiB]`, or as the last word, `iter_time_ms`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tuner.core.text import shown
from tuner.tables.column_aliases import KNOWN, MEASURED, UNITS, column_named, folded_name, unit_named

_BRACKETS: Final = re.compile(r"\s*[(\[]([^)\]]*)[)\]]")
_NUMBER: Final = re.compile(r"[0-9.,]+(?:e[+-]?[0-9]+)?", re.IGNORECASE)
_LAST_WORDS: Final = ("s", "sec", "secs", "seconds", "ms", "msec", "gb", "gib", "mb", "mib", "tflops", "pflops")
"""Last words of a name that are units; `m`, `min` and `t` have other meanings too."""
_ELSEWHERE: Final = re.compile(
    r".*/\s*(s|sec|second|it|iter|step|h|hour|day)|.*\bper (sec|second|hour|day)|.*\btokens?|.*%"
    r"|[kmgt]i?b|[kmgt]?bytes?|[mun\u00b5]s|m?secs?|(milli)?seconds?|min(ute)?s?|hours?|days?|hrs?|[gtp]flops?|thousands?"
    r"|millions?|billions?|percent|mfu|hfu"
)
"""Units of any column; what else is in brackets is a remark."""
_SCOPES: Final = {
    **dict.fromkeys(
        MEASURED,
        re.compile(
            r".*\b(total|sum|aggregate|cluster)\b.*|.*\ball gpus\b.*|.*(/|\bper )(node|micro-?batch|replica|epoch)"
            r"|[pe]f(lops?)?"
        ),
    ),
    "gbs": re.compile(r".*(/|\bper )(gpu|rank|device|replica|node)|m"),
}
"""What a figure of another scope than the column's is marked with: of a node, of a microbatch, of all GPUs."""
_LETTERS: Final = {
    **dict.fromkeys(MEASURED, frozenset("bhks")),
    **dict.fromkeys(("seq", "vocab", "gbs"), frozenset("k")),
}
"""Letters that are units of a column; elsewhere they are symbols: `Hidden (h)`."""
_NOTHING: Final = re.compile(r"(?!)")
_OWN: Final = {
    **{column: {"tokens": ""} for column in ("seq", "vocab")},
    **{column: {"samples": "", "sequences": ""} for column in ("gbs", "mbs")},
    "size": {
        **dict.fromkeys(("b", "billion", "billions"), "b"),
        **dict.fromkeys(("m", "million", "millions"), "m"),
    },
}
"""Units of columns whose cells have none, or that spell them otherwise, and the unit for the cell."""
_PER: Final = re.compile(r" ?/ ?|[ _-]per[ _-]")
_PARTS: Final = re.compile(r"[,;:=|\u00b1]|\+/?-")
_SYMBOL: Final = re.compile(r"\b[a-z] ?= ?[0-9]\S*")
"""`b = 4` is the batch size, not a unit."""
_EXAMPLES: Final = {"mem_gib": "GiB or MiB", "sec_per_iter": "s or ms", "tflops": "TFLOP/s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A header of a table."""

    name: str
    """As printed."""
    column: str
    """Column of the format; `name` if there is none."""
    unit: str = ""
    """Unit of cells that are a bare number; empty for the column's own."""
    refused: str = ""
    """Why its figures cannot be read."""

    def cell(self, text: str) -> str:
        """Return a cell with the header's unit."""
        return f"{text} {self.unit}" if self.unit and _NUMBER.fullmatch(text) else text


def headers_of(names: Sequence[str]) -> list[Header]:
    """Return the headers of a file; an exact name takes precedence over an alias, and the first of several aliases over
    the others."""
    found: list[Header] = []
    for name in names:
        header = header_of(name)
        taken = header.column in names or header.column in (other.column for other in found)
        exact = folded_name(_BRACKETS.sub("", name)) == header.column
        found.append(Header(name=name, column=name) if taken and not exact else header)
    return found


def header_of(name: str) -> Header:
    """Return one header by itself."""
    bare, stated = _BRACKETS.sub("", name), ", ".join(_BRACKETS.findall(name)).strip()
    column, last = _column_and_unit(bare)
    if column not in KNOWN:
        return Header(name=name, column=name)
    units = _own_units(column)
    found = _units_in(stated, column) or _units_in(last, column)
    if not found:
        return Header(name=name, column=column)
    spelled = {units.get(unit) for unit in found}
    if len(spelled) == 1 and (unit := spelled.pop()) is not None:
        return Header(name=name, column=column, unit=unit)
    own = f", such as {_EXAMPLES[column]}" if column in _EXAMPLES else ""
    refused = f"column {shown(name)} is not used: {shown(stated or last)} is not a unit of {column}{own}"
    return Header(name=name, column=name, refused=refused)


def _own_units(column: str) -> dict[str, str]:
    """Return the units of a column's figures, and how a cell states each; empty for the column's own."""
    scales = UNITS.get(column, {})
    plain = {unit: unit if scale != 1 else "" for unit, scale in scales.items() if unit != "min"}
    return {**plain, **_OWN.get(column, {})}


def _units_in(stated: str, column: str) -> set[str]:
    """Return the units in brackets, of the column or of something else; other words there are remarks."""
    own, letters, scopes = _own_units(column), _LETTERS.get(column, frozenset()), _SCOPES.get(column, _NOTHING)

    def is_unit(text: str) -> bool:
        return text in own or text in letters or bool(_ELSEWHERE.fullmatch(text) or scopes.fullmatch(text))

    text = _PER.sub("/", " ".join(stated.lower().split()))
    if scopes.fullmatch(text):
        return {text}
    if is_unit(unit_named(text)):
        return {unit_named(text)}
    found: set[str] = set()
    for part in _PARTS.split(_SYMBOL.sub("", text)) if own or letters else ():
        words = [part] if is_unit(unit_named(part)) else re.split(r"[ _-]+", part)
        units = {unit_named(word.strip(". ")) for word in words}
        found |= {unit for unit in units if is_unit(unit) and not unit[0].isdigit()}
    return found if found == {"min"} else found - {"min"}  # beside a unit, a minimum


def _column_and_unit(name: str) -> tuple[str, str]:
    """Return the column of a name without brackets, and the unit that is its last word."""
    column = column_named(name)
    base, _, last = folded_name(name).rpartition("_")
    if column in KNOWN or last not in _LAST_WORDS or column_named(base) not in MEASURED:
        return column, ""
    return column_named(base), last
