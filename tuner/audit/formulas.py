"""Parse arithmetic in a report: `perl -le '$ng=32*4; $sp=256; print 104*4*2*1024*$gbs / ($sp * $ng * 1e3)'`.

Supports assignments and one expression of numbers, names, + - * / and powers. Nothing is executed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_ARITHMETIC: Final = re.compile(r"(?:\b(?:print|echo|say)\b|-[lp]?e\b|\$\(\()")
_STATEMENT: Final = re.compile(r"^\s*([A-Za-z_]\w*)\s*=\s*(.+)$")
_QUOTED: Final = re.compile(r"(['\"])(.*?)\1")
_MAX_LINE_LENGTH: Final = 1000
_MAX_VALUE: Final = 1e60


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """One factor of a product, with its name."""

    value: float
    name: str
    """Empty for a literal number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """A quotient of products that a line computes."""

    line: int
    result: float
    above: tuple[Factor, ...]
    below: tuple[Factor, ...]


def formulas_in(lines: tuple[str, ...]) -> Iterator[Formula]:
    """Yield the formula of every line that computes a quotient."""
    for number, line in enumerate(lines, start=1):
        if len(line) <= _MAX_LINE_LENGTH and "/" in line and "*" in line and _ARITHMETIC.search(line):
            quoted = _QUOTED.search(line)
            formula = _formula(number, quoted[2] if quoted else line)
            if formula:
                yield formula


def _formula(number: int, text: str) -> Formula | None:
    names: dict[str, float] = {}
    for part in text.replace("$", "").split(";"):
        assignment = _STATEMENT.match(part)
        expression = assignment[2] if assignment else re.sub(r"^\s*(print|echo|say)\b", "", part)
        tree = _parsed(expression)
        value = _value(tree, names) if tree else None
        if tree is None or value is None:
            continue
        if assignment:
            names[assignment[1].lower()] = value
        else:
            above, below = _factors(tree, names)
            return Formula(line=number, result=value, above=above, below=below) if below else None
    return None


def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _value(tree: ast.expr, names: Mapping[str, float]) -> float | None:
    """Return the value of an expression; None for anything but arithmetic."""
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int | float) and abs(tree.value) < _MAX_VALUE:
        return float(tree.value)
    if isinstance(tree, ast.Name):
        return names.get(tree.id.lower())
    if isinstance(tree, ast.BinOp):
        left, right = _value(tree.left, names), _value(tree.right, names)
        if left is None or right is None:
            return None
        return _operated(tree.op, left, right)
    return None


def _operated(operator: ast.operator, left: float, right: float) -> float | None:
    result: float | None = None
    if isinstance(operator, ast.Mult):
        result = left * right
    elif isinstance(operator, ast.Div):
        result = left / right if right else None
    elif isinstance(operator, ast.Add):
        result = left + right
    elif isinstance(operator, ast.Sub):
        result = left - right
    elif isinstance(operator, ast.Pow) and 0 < left < 1e6 and abs(right) <= 9:
        result = float(left**right)
    return result if result is not None and abs(result) < _MAX_VALUE else None


def _factors(tree: ast.expr, names: Mapping[str, float]) -> tuple[tuple[Factor, ...], tuple[Factor, ...]]:
    """Return the factors of the numerator and of the denominator."""
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Mult | ast.Div):
        above, below = _factors(tree.left, names)
        more_above, more_below = _factors(tree.right, names)
        if isinstance(tree.op, ast.Div):
            more_above, more_below = more_below, more_above
        return above + more_above, below + more_below
    value = _value(tree, names)
    name = tree.id.lower() if isinstance(tree, ast.Name) else ""
    return ((Factor(value=value, name=name),) if value is not None else ()), ()
