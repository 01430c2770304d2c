"""Format lists, counts and durations for messages, and tables for notebooks and Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, inf, log10
from typing import Final, SupportsInt


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTable:
    """A table with a title and notes, as HTML or Markdown."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: frozenset[str] = frozenset()
    """Headers of the text columns; the other columns are numbers."""
    notes: Sequence[str] = ()

    def html(self) -> str:
        """Return the table as one HTML element, with all text escaped."""
        from html import escape

        head = "".join(f'<th scope="col" style="{self._side(name)}">{escape(name)}</th>' for name in self.headers)
        body = "".join(f"<tr>{self._cells(row)}</tr>" for row in self.rows)
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f"<div><p><strong>{escape(self.title)}</strong></p>{table}{notes}</div>"

    def markdown(self) -> str:
        """Return the table as Markdown."""
        table = pipe_table(self.headers, markdown_cells(self.rows), self.words)
        notes = [part for note in self.notes for part in ("", markdown_text(note))]
        return "\n".join([f"**{markdown_text(self.title)}**", "", *table, *notes]) + "\n"

    def _cells(self, row: Sequence[str]) -> str:
        from html import escape

        pairs = zip(self.headers, row, strict=True)
        return "".join(f'<td style="{self._side(name)}">{escape(cell)}</td>' for name, cell in pairs)

    def _side(self, header: str) -> str:
        return f"text-align: {'left' if header in self.words else 'right'}"


class Tabular:
    """A result that `print` and notebooks show as a table."""

    __slots__ = ()

    def __str__(self) -> str:
        return self._shown().markdown().rstrip("\n")

    def _repr_html_(self) -> str:
        return self._shown().html()

    def _repr_markdown_(self) -> str:
        return self._shown().markdown()

    def _shown(self) -> ResultTable:
        raise NotImplementedError


def pipe_table(headers: Sequence[str], lines: Sequence[Sequence[str]], words: frozenset[str]) -> list[str]:
    """Return the lines of an aligned Markdown table, with numbers right-aligned.

    >>> pipe_table(["layout"], [["Et|tL"]], frozenset({"layout"}))
    ['| layout |', '| ------ |', '| Et\\\\|tL |']
    """
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
    widths = [max(3, *(len(line[index]) for line in (headers, *cells))) for index in range(len(headers))]
    rule = [
        ("-" * width) if name in words else "-" * (width - 1) + ":" for name, width in zip(headers, widths, strict=True)
    ]
    return [_joined(line, headers, widths, words) for line in (headers, rule, *cells)]


def _joined(line: Sequence[str], headers: Sequence[str], widths: Sequence[int], words: frozenset[str]) -> str:
    padded = [
        cell.ljust(width) if name in words else cell.rjust(width)
        for cell, name, width in zip(line, headers, widths, strict=True)
    ]
    return f"| {' | '.join(padded)} |"


def markdown_text(text: str) -> str:
    """Return text from logs and names as Markdown shows it literally: on one line, without HTML, links or images.

    >>> markdown_text("<img src=x> [here](http://host)")
    '&lt;img src=x> &#91;here](http://host)'
    """
    return " ".join(text.splitlines()).replace("<", "&lt;").replace("[", "&#91;")


def markdown_cells(lines: Iterable[Sequence[str]]) -> list[list[str]]:
    """Return the cells of a table as Markdown shows them literally."""
    return [[markdown_text(cell) for cell in line] for line in lines]


def csv_cell(value: object) -> str:
    """Return a cell that no spreadsheet takes for a formula: text that begins like one is preceded by an apostrophe.

    >>> csv_cell("=HYPERLINK(A1)"), csv_cell("-1.5"), csv_cell(None)
    ("'=HYPERLINK(A1)", '-1.5', '')
    """
    text = "" if value is None else str(value)
    return f"'{text}" if _is_formula(text.lstrip("'")) else text


def csv_cells(row: Mapping[str, object]) -> dict[str, object]:
    """Return a row with texts escaped so that they are not formulas; other values are unchanged."""
    return {name: csv_cell(value) if isinstance(value, str) else value for name, value in row.items()}


def text_of_cell(cell: str) -> str:
    """Return the text that `csv_cell` wrote as this cell."""
    return cell[1:] if cell.startswith("'") and _is_formula(cell.lstrip("'")) else cell


def _is_formula(text: str) -> bool:
    """Return whether a spreadsheet may evaluate a text: it begins with = + - or @, perhaps after blanks."""
    if not text.lstrip().startswith(("=", "+", "-", "@")):
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False


_LONGEST: Final = 80
"""Characters of the longest value that a message shows whole."""
_LARGEST: Final = 10**40
"""Integers from this one on are not shown."""


def shown(value: object) -> str:
    """Return any value as one short line for an error message."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if abs(value) < _LARGEST else "a number of more than 40 digits"
    if isinstance(value, list | tuple | dict):
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def shown_name(name: str) -> str:
    """Return a name from a file on one short line: as it is, or as a value if it is long or has control characters.

    >>> shown_name("rope_scaling.factor"), shown_name("depth\\n")
    ('rope_scaling.factor', "'depth\\\\n'")
    """
    return name if name.isprintable() and 0 < len(name) <= _LONGEST else shown(name)


def axis_value(value: object) -> str:
    """Return a value of an axis as `--set` reads it."""
    return ("off", "on")[value] if isinstance(value, bool) else str(value)


def listed(values: Iterable[object], *, limit: int = 16, last: str = "and") -> str:
    """Return the values as an enumeration, `1, 2, 3 and 4`, truncated after `limit`."""
    words = [str(value) for value in values]
    if len(words) > limit:
        return f"{', '.join(words[:limit])} and {len(words) - limit} more"
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def counted(number: SupportsInt, word: str) -> str:
    """Return a number with its noun: `1 node`, `48 nodes`, `14,538 topologies`. NumPy integers are accepted."""
    plural = f"{word[:-1]}ies" if word.endswith("y") and word[-2:-1] not in "aeiou" else f"{word}s"
    return f"{int(number):,} {word if int(number) == 1 else plural}"


def either(values: Iterable[object], *, limit: int = 16) -> str:
    """Return the values as alternatives: `1, 2, 3 or 4`."""
    return listed(values, limit=limit, last="or")


DAY: Final = 86400.0
"""Seconds of a day."""

UNITS: Final = (("days", DAY), ("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))


def unit_for(days: float) -> tuple[str, float]:
    """Return the largest unit in which the duration is at least one, and how many of them make a day."""
    name, seconds = next((unit for unit in UNITS if days * DAY >= unit[1]), UNITS[-1])
    return name, DAY / seconds


def span(days: float) -> str:
    """Return a duration in the unit that fits: `692.9 days`, `3.4 minutes`."""
    unit, per_day = unit_for(days)
    return f"{days * per_day:,.1f} {unit}"


def interval(low: float, high: float, *, decimals: int | None = None) -> str:
    """Return an interval, `69.46 to 93.10`: by default with four digits in the upper end."""
    if decimals is None:
        decimals = _decimals(high)
    return f"{low:,.{decimals}f} to {high:,.{decimals}f}"


def four_digits(value: float) -> str:
    """Return a number with at least four significant digits, zeros included: `60.90`, `12,345`."""
    return f"{value:,.{_decimals(value)}f}"


def decimals_of_terms(total: float) -> int:
    """Return the decimals of a column of terms: two, or as many as give the total four significant digits."""
    return max(2, _decimals(total))


def _decimals(value: float) -> int:
    """Return the decimals with which a number has four significant digits."""
    return max(0, 3 - floor(log10(value))) if 0 < value < inf else 3


def between(days: float, low: float, high: float) -> str:
    """Return a duration and its interval, `692.9 days (688.0 to 697.8)`, in the unit of the duration."""
    _, per_day = unit_for(days)
    return f"{span(days)} ({interval(low * per_day, high * per_day, decimals=1)})"


def ends(days: float, low: float, high: float) -> str:
    """Return an interval, `688.0 to 697.8 days`, in the unit that fits `days`."""
    unit, per_day = unit_for(days)
    return f"{interval(low * per_day, high * per_day, decimals=1)} {unit}"


def node_unit_for(hours: float) -> tuple[str, float]:
    """Return the unit of node-hours that fits, at most `node-hours`, and how many of it make a node-hour."""
    unit, per_day = unit_for(hours / 24)
    return ("node-hours", 1.0) if unit in ("days", "hours") or not hours else (f"node-{unit}", per_day / 24)


def node_time(hours: float) -> str:
    """Return node-hours in the unit that fits: `138.1 node-hours`, `57.0 node-seconds`."""
    unit, per_hour = node_unit_for(hours)
    return f"{hours * per_hour:,.1f} {unit}"


def token_count(tokens: float) -> str:
    """Return a number of tokens with its scale word: `3.62 trillion`."""
    rounded = float(f"{tokens:.3g}")
    for unit, scale in (("trillion", 1e12), ("billion", 1e9), ("million", 1e6)):
        if rounded >= scale:
            return f"{rounded / scale:,.15g} {unit}"
    return f"{tokens:,.0f}"


TIMES_FROM: Final = 2.0
"""Ratios from this one on read `2.5 times`; smaller ones are percentages."""


def seconds(value: float, *, least: float | None = None) -> str:
    """Return the seconds of an iteration with significant digits, `69.28`, `0.1874`: as many as `least` of a column."""
    return f"{value:.2f}" if (value if least is None else least) >= 1 else f"{value:.4f}"


def off_by(ratio: float) -> str:
    """Return how far a figure is from another one: `4.1% above`, `3.0% below`, `17.8 times`."""
    if ratio >= TIMES_FROM:
        return f"{ratio:,.1f} times"
    return f"{abs(ratio - 1):.1%} {'above' if ratio > 1 else 'below'}"


def column(days: Sequence[float]) -> tuple[str, float]:
    """Return the heading of a column of durations and its units per day, chosen by the first row."""
    unit, per_day = unit_for(days[0]) if days else ("days", 1.0)
    return unit.capitalize(), per_day
