"""A report as one HTML file that needs no other: style and pictures are inside.

A report as Markdown, in the BLOOM report's own layout.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tuner.core.resources import folder
from tuner.core.text import pipe_table
from tuner.report.tables import HEADERS, WORDS, headers, table
from tuner.study.leaderboard import LeaderboardRow
from tuner.study.result import StudyResult

MOST: Final = 250
"""Rows that the page shows; a longer table is read as a file."""

DOTS: Final = 96
"""Pixels of an inch of a figure on a page."""


def page(
    study: StudyResult,
    rows: Sequence[LeaderboardRow],
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


def markdown(
    study: StudyResult, rows: Sequence[LeaderboardRow], said: Sequence[str], plots: Sequence[tuple[str, str, str]]
) -> str:
    """The page; `plots` are file, title and what each shows."""
    label = " (SIMULATED)" if study.simulated else ""
    lines = [f"# Study {study.name}{label}", "", *_spaced(said), "## Topologies", ""]
    lines += pipe_table(headers(rows), table(study, rows), WORDS)
    lines += ["", f"* {footnote(study, rows)}", ""]
    for file, title, alt in plots:
        lines += [f"## {title}", "", f"![{alt}]({file})", "", alt, ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def footnote(study: StudyResult, rows: Sequence[LeaderboardRow]) -> str:
    """What the figures of the table are."""
    word = "simulated" if study.simulated else "measured"
    unit = headers(rows)[HEADERS.index("Days")]
    eras = "; all are as the cluster was in the last era" if study.eras else ""
    return (
        f"Sec/it: what the topology's own runs and all others make likely{eras}; each run as it was {word} stands in "
        f"measurements.csv. {unit}: until the training is finished, at equal compute. Mem: the fullest GPU."
    )


def _spaced(sentences: Sequence[str]) -> list[str]:
    return [part for sentence in sentences for part in (sentence, "")]
