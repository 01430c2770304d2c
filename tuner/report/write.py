"""A report's files, each whole or not at all."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG

from tuner.core.atomic_write import write_files
from tuner.report.figures import plots
from tuner.report.page import markdown, page
from tuner.report.sentences import sentences
from tuner.report.style import Plot, look
from tuner.report.tables import measurements
from tuner.study.leaderboard import LeaderboardRow, rows_of
from tuner.study.result import StudyResult

PLOTS: Final = "plots"
DOTS: Final = 110
"""Of a PNG, to the inch."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """A report that was written."""

    sentences: tuple[str, ...]
    rows: tuple[LeaderboardRow, ...]
    files: tuple[Path, ...]


def write_report(
    study: StudyResult, folder: str | Path, *, told: Callable[[int, int], None] = lambda _done, _of: None
) -> Report:
    """`report.md`, `report.html`, `measurements.csv` and `plots/` in the folder.

    `told` hears how many plots are drawn, of how many.
    """
    rows = rows_of(study)
    said = sentences(study, rows)
    files: dict[str, bytes] = {}
    drawn = []
    with look():
        made = plots(study, rows)
        for done, plot in enumerate(made):
            told(done, len(made))
            png, svg = _saved(plot)
            files[f"{PLOTS}/{plot.name}.png"], files[f"{PLOTS}/{plot.name}.svg"] = png, svg
            inches = plot.figure.get_size_inches()
            drawn.append((plot.name, plot.title, plot.alt, svg, (float(inches[0]), float(inches[1]))))
    pictures = [(f"{PLOTS}/{name}.png", title, alt) for name, title, alt, _, _ in drawn]
    files = {
        "report.md": markdown(study, rows, said, pictures).encode(),
        "report.html": page(study, rows, said, drawn).encode(),
        "measurements.csv": measurements(study).encode(),
        **files,
    }
    return Report(sentences=tuple(said), rows=tuple(rows), files=tuple(write_files(Path(folder), files)))


def _saved(plot: Plot) -> tuple[bytes, bytes]:
    """As PNG and as SVG, by the canvases themselves: `savefig` would draw each four times over."""
    drawn, png, svg = plot.figure, io.BytesIO(), io.BytesIO()
    drawn.set_dpi(DOTS)
    agg: Any = FigureCanvasAgg(drawn)
    agg.print_png(png, metadata={"Title": plot.title, "Description": plot.alt})
    drawn.set_layout_engine("none")
    vector: Any = FigureCanvasSVG(drawn)
    vector.print_svg(svg, metadata={"Title": plot.title, "Description": plot.alt, "Date": None})
    return png.getvalue(), svg.getvalue()
