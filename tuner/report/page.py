"""A report as one HTML file that needs no other: style and pictures are inside."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tuner.core.resources import folder
from tuner.report.cells import WORDS, headers, table
from tuner.report.markdown import footnote
from tuner.study.leaderboard import Row
from tuner.study.result import Reopened

MOST: Final = 250
"""Rows that the page shows; a longer table is read as a file."""

DOTS: Final = 96
"""Pixels of an inch of a figure on a page."""


def page(
    study: Reopened,
    rows: Sequence[Row],
    said: Sequence[str],
    plots: Sequence[tuple[str, str, str, bytes, tuple[float, float]]],
) -> str:
    """The file's text; `plots` are name, title, what each shows, its SVG and its inches."""
    templates = Environment(
        loader=FileSystemLoader(folder("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    return templates.get_template("report.html.j2").render(
        title=f"Study {study.name}",
        study=study.name,
        simulated=study.simulated,
        sentences=said,
        headers=headers(rows),
        words=WORDS,
        long=("Why", "Notes"),
        lines=table(study, rows[:MOST]),
        left_out=max(0, len(rows) - MOST),
        footnote=footnote(study, rows),
        plots=[
            {
                "name": name,
                "title": title,
                "alt": alt,
                "data": base64.b64encode(svg).decode("ascii"),
                "width": round(inches[0] * DOTS),
                "height": round(inches[1] * DOTS),
            }
            for name, title, alt, svg, inches in plots
        ],
    )
