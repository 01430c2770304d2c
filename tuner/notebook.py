"""How results show themselves in a notebook: a heading, a table, notes; as HTML and as Markdown.

Pure texts: no notebook is needed, and none is imported. Colours are left to the notebook, so that its dark theme holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a result has to show."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: frozenset[str] = frozenset()
    """Headers of the columns that are text; the others are numbers."""
    notes: Sequence[str] = ()

    def html(self) -> str:
        """One block of HTML; every text in it is escaped."""
        head = "".join(f'<th scope="col" style="{self._side(name)}">{escape(name)}</th>' for name in self.headers)
        body = "".join(f"<tr>{self._cells(row)}</tr>" for row in self.rows)
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f"<div><p><strong>{escape(self.title)}</strong></p>{table}{notes}</div>"

    def markdown(self) -> str:
        """The same as Markdown."""
        table = pipe_table(self.headers, self.rows, self.words)
        notes = [part for note in self.notes for part in ("", note)]
        return "\n".join([f"**{self.title}**", "", *table, *notes]) + "\n"

    def _cells(self, row: Sequence[str]) -> str:
        pairs = zip(self.headers, row, strict=True)
        return "".join(f'<td style="{self._side(name)}">{escape(cell)}</td>' for name, cell in pairs)

    def _side(self, header: str) -> str:
        return f"text-align: {'left' if header in self.words else 'right'}"


def pipe_table(headers: Sequence[str], lines: Sequence[Sequence[str]], words: frozenset[str]) -> list[str]:
    """A Markdown table whose columns line up, numbers to the right."""
    cells = [[cell.replace("|", "/").replace("\n", " ") for cell in line] for line in lines]
    widths = [max(3, *(len(line[place]) for line in (headers, *cells))) for place in range(len(headers))]
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
