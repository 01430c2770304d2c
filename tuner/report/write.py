"""Write a report: Markdown, a self-contained HTML page, plots and the measurement table."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tuner.core.atomic_write import refuse_foreign, write_files
from tuner.core.resources import folder as resource_folder
from tuner.core.text import markdown_text
from tuner.report.canvas import FigureCanvasAgg, FigureCanvasSVG
from tuner.report.figures import plots
from tuner.report.style import Plot, look
from tuner.report.summary import summary
from tuner.report.tables import TEXT_COLUMNS, footnote, headers, measurements, pipe_lines, table
from tuner.study.leaderboard import LeaderboardRow, rows_of
from tuner.study.result import StudyResult

PNG_DPI: Final = 110
PAGE_DPI: Final = 96
"""CSS pixels per inch of a figure."""

MAX_PAGE_ROWS: Final = 250
"""Rows of the page's table; report.md has them all."""

CELL_STYLES: Final = {"Topology": "word key", "Notes": "word long", "Why": "word long"}
"""CSS classes of table cells; other columns are `word` or `number`."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """A written report."""

    sentences: tuple[str, ...]
    rows: tuple[LeaderboardRow, ...]
    files: tuple[Path, ...]


def write_report(
    study: StudyResult,
    folder: str | Path,
    *,
    on_progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Write `report.md`, `report.html`, `measurements.csv` and `plots/` to a folder.

    `on_progress` receives the number of plots drawn so far and the number of all plots.
    """
    rows = rows_of(study)
    sentences = summary(study, rows)
    pictures: dict[str, bytes] = {}
    page_plots = []
    with look():
        drawn = plots(study, rows)
        for done, plot in enumerate(drawn):
            if on_progress:
                on_progress(done, len(drawn))
            png, svg = _images(plot)
            pictures |= {f"plots/{plot.name}.png": png, f"plots/{plot.name}.svg": svg}
            page_plots.append(_page_plot(plot, svg))
    files = {
        "report.md": _markdown(study, rows, sentences, drawn).encode(),
        "report.html": _page(study, rows, sentences, page_plots).encode(),
        "measurements.csv": measurements(study).encode(),
        **pictures,
    }
    refuse_foreign(Path(folder), files, mark="report.html")
    return Report(sentences=tuple(sentences), rows=tuple(rows), files=tuple(write_files(Path(folder), files)))


def _images(plot: Plot) -> tuple[bytes, bytes]:
    """Return a plot as PNG and as SVG; `savefig` would draw each plot four times."""
    png, svg = io.BytesIO(), io.BytesIO()
    plot.figure.set_dpi(PNG_DPI)
    raster: Any = FigureCanvasAgg(plot.figure)
    raster.print_png(png, metadata={"Title": plot.title, "Description": plot.alt})
    plot.figure.set_layout_engine("none")
    vector: Any = FigureCanvasSVG(plot.figure)
    vector.print_svg(svg, metadata={"Title": plot.title, "Description": plot.alt, "Date": None})
    return png.getvalue(), svg.getvalue()


def _markdown(
    study: StudyResult, rows: Sequence[LeaderboardRow], sentences: Sequence[str], drawn: Sequence[Plot]
) -> str:
    label = " (SIMULATED)" if study.simulated else ""
    lines = [f"# Study {study.name}{label}", ""]
    lines += [part for sentence in sentences for part in (markdown_text(sentence), "")]
    lines += ["## Topologies", "", *pipe_lines(study, rows), "", f"* {footnote(study, rows)}", ""]
    for plot in drawn:
        title, alt = markdown_text(plot.title), markdown_text(plot.alt)
        lines += [f"## {title}", "", f"![{alt}](plots/{plot.name}.png)", "", alt, ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _page(
    study: StudyResult, rows: Sequence[LeaderboardRow], sentences: Sequence[str], page_plots: Sequence[dict[str, Any]]
) -> str:
    templates = Environment(
        loader=FileSystemLoader(resource_folder("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    columns = [
        {
            "header": header,
            "text": header in TEXT_COLUMNS,
            "style": CELL_STYLES.get(header, "word" if header in TEXT_COLUMNS else "number"),
        }
        for header in headers(rows)
    ]
    return templates.get_template("report.html.j2").render(
        title=f"Study {study.name}",
        study=study.name,
        simulated=study.simulated,
        sentences=sentences,
        columns=columns,
        lines=table(study, rows[:MAX_PAGE_ROWS]),
        rows_omitted=max(0, len(rows) - MAX_PAGE_ROWS),
        footnote=footnote(study, rows),
        plots=page_plots,
    )


def _page_plot(plot: Plot, svg: bytes) -> dict[str, Any]:
    width, height = (round(float(inches) * PAGE_DPI) for inches in plot.figure.get_size_inches())
    data = base64.b64encode(svg).decode("ascii")
    return {"name": plot.name, "title": plot.title, "alt": plot.alt, "data": data, "width": width, "height": height}
