"""Mutation operators: every small wrong edit that `benchmarks/mutants.py` may make to a module's source.

`mutations(source)` is pure. It skips code that tests are not expected to cover: docstrings, annotations, decorators,
messages (f-strings, `raise`, output calls), `__all__` and blocks under `TYPE_CHECKING` or `__main__`.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final

ARITHMETIC: Final[dict[type[ast.operator], str]] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*"}
BOUNDARIES: Final[dict[type[ast.cmpop], str]] = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
OPPOSITES: Final[dict[type[ast.cmpop], str]] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
OUTPUT_CALLS: Final = {
    *("print", "echo", "secho", "log", "debug", "info", "warning", "error", "warn", "note", "cast", "overload"),
    *("TypeVar", "NewType", "ParamSpec", "namedtuple"),
}
COMMUTATIVE_CALLS: Final = {
    "max",
    "min",
    "maximum",
    "minimum",
    "gcd",
    "lcm",
    "isclose",
    "hypot",
    "logaddexp",
    "suppress",
}
"""Functions whose result does not depend on the order of their arguments."""
TEXT: Final = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One edit: `source[start:end]`, in bytes of UTF-8, becomes `replacement`."""

    operator: str
    line: int
    start: int
    end: int
    replacement: str

    def apply(self, source: str) -> str:
        """Return the source with the edit."""
        raw = source.encode()
        return (raw[: self.start] + self.replacement.encode() + raw[self.end :]).decode()

    def diff(self, source: str, path: str) -> str:
        """Return the edit as a unified diff without context."""
        lines = difflib.unified_diff(source.splitlines(), self.apply(source).splitlines(), path, path, "", "", 0, "")
        return "\n".join(list(lines)[2:])


def mutations(source: str) -> list[Mutation]:
    """Return every mutation of a module by position; some may not be valid Python (see `parses`)."""
    found = {(m.start, m.end, m.replacement): m for m in _Finder(source).find()}
    return [found[key] for key in sorted(found)]


def function_at(source: str, line: int) -> str:
    """Return the qualified name of the innermost function or class that contains a line, or an empty string."""
    return next((name for name, first, last in reversed(_functions(source)) if first <= line <= last), "")


@lru_cache(maxsize=4)
def _functions(source: str) -> tuple[tuple[str, int, int], ...]:
    """Return the functions and classes of a module, outer ones first, with their first and last lines."""
    found: list[tuple[str, int, int]] = []

    def descend(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.append((f"{prefix}{child.name}", child.lineno, child.end_lineno or child.lineno))
                inner = f"{prefix}{child.name}."
            descend(child, inner)

    descend(ast.parse(source), "")
    return tuple(found)


def parses(source: str) -> bool:
    """Return whether a source compiles."""
    try:
        compile(source, "mutant", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


class _Finder:
    def __init__(self, source: str) -> None:
        self._raw = source.encode()
        self._tree = ast.parse(source)
        self._starts = [0]
        for line in source.encode().splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def find(self) -> Iterator[Mutation]:
        yield from self._visit(self._tree)

    def _visit(self, node: ast.AST) -> Iterator[Mutation]:
        if _is_left_alone(node):
            return
        yield from self._edits(node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params", "format_spec"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self._visit(child)

    def _edits(self, node: ast.AST) -> Iterator[Mutation]:
        match node:
            case ast.BinOp(left=left, op=op, right=right):
                if not any(isinstance(side, TEXT) or _is_text(side) for side in (left, right)):
                    if type(op) in ARITHMETIC:
                        yield self._between("flip a sign", left, right, ARITHMETIC[type(op)])
                    if isinstance(op, ast.Add | ast.Sub | ast.Mult | ast.Div):
                        yield self._replace("drop a term", node, self._text(left))
                        if isinstance(op, ast.Add | ast.Mult):
                            yield self._replace("drop a term", node, self._text(right))
            case ast.AugAssign(target=target, op=ast.Add() | ast.Sub() as op, value=value) if not _is_text(value):
                if not isinstance(value, TEXT):
                    yield self._between("flip a sign", target, value, "-=" if isinstance(op, ast.Add) else "+=")
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                yield self._replace("flip a sign", node, self._text(operand))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._replace("negate a condition", node, f"bool({self._text(operand)})")
            case ast.BoolOp(values=values):
                for dropped in range(len(values)):
                    kept = [self._text(value) for index, value in enumerate(values) if index != dropped]
                    word = " and " if isinstance(node.op, ast.And) else " or "
                    yield self._replace("drop a term", node, f"({word.join(kept)})")
            case ast.Constant(value=int(number)) if not isinstance(number, bool):
                yield self._replace("off by one", node, str(number + 1))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                if type(op) in BOUNDARIES:
                    yield self._between("move a boundary", left, right, BOUNDARIES[type(op)])
                elif type(op) in OPPOSITES:
                    yield self._between("negate a condition", left, right, OPPOSITES[type(op)])
            case ast.Call(func=function, args=arguments) if _name(function) not in COMMUTATIVE_CALLS:
                for first, second in pairwise(arguments):
                    plain = not isinstance(first, ast.Starred) and not isinstance(second, ast.Starred)
                    if plain and ast.dump(first) != ast.dump(second):
                        between = self._raw[self._end(first) : self._start(second)].decode()
                        text = self._text(second) + between + self._text(first)
                        yield self._edit("swap arguments", first, self._start(first), self._end(second), text)
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            yield self._replace("negate a condition", node.test, f"(not {self._text(node.test)})")

    def _start(self, node: ast.expr) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr) -> int:
        return self._starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)

    def _text(self, node: ast.expr) -> str:
        text = self._raw[self._start(node) : self._end(node)].decode()
        return f"({text})" if isinstance(node, ast.BinOp | ast.BoolOp | ast.IfExp | ast.Compare) else text

    def _replace(self, operator: str, node: ast.expr, text: str) -> Mutation:
        return self._edit(operator, node, self._start(node), self._end(node), text)

    def _between(self, operator: str, left: ast.expr, right: ast.expr, word: str) -> Mutation:
        """Replace the operator between two operands, keeping the parentheses around it."""
        start, end = self._end(left), self._start(right)
        gap = self._raw[start:end].decode()
        closing, opening = gap[: gap.rfind(")") + 1], gap[gap.find("(") :] if "(" in gap else ""
        return self._edit(operator, left, start, end, f"{closing} {word} {opening}")

    def _edit(self, operator: str, node: ast.expr, start: int, end: int, text: str) -> Mutation:
        return Mutation(operator=operator, line=node.lineno, start=start, end=end, replacement=text)


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Raise() | ast.JoinedStr() | ast.Import() | ast.ImportFrom() | ast.Assert():
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]) if name == "__all__":
            return True
        case ast.If(test=test):
            return "TYPE_CHECKING" in ast.dump(test) or "__main__" in ast.dump(test)
        case ast.Call(func=function):
            return _name(function) in OUTPUT_CALLS
    return False


def _name(function: ast.expr) -> str:
    """Return the last name of a called expression."""
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
