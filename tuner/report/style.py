"""The look that all plots share: colour-blind safe colours, with hatches and marks for grey prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tuner.report.canvas import (
    Axes,
    Axis,
    ConstrainedLayoutEngine,
    Figure,
    FixedLocator,
    FuncFormatter,
    LogLocator,
    NullLocator,
    drawing,
)

BLUE, VERMILLION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
SKY, PURPLE, YELLOW, BLACK, GREY = "#56B4E9", "#CC79A7", "#F0E442", "#000000", "#767676"
COLOURS: Final = (BLUE, ORANGE, GREEN, VERMILLION, SKY, PURPLE, YELLOW, "#999999")
"""Okabe and Ito (2008)."""

HATCHES: Final = ("", "//", "", "\\\\", "..", "xx", "", "--", "++", "oo", "**", "||", "OO", "/")
MARKS: Final = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES: Final = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))

_LOOK: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.5,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "svg.hashsalt": "tuner",
    "svg.fonttype": "path",
}


def look() -> Any:
    """Return a context with the settings for drawing and saving figures."""
    return drawing(_LOOK)


def figure(width: float = 8.0, height: float = 4.5) -> Figure:
    """Return an empty figure, independent of any window system."""
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))


def watermark(drawn: Figure) -> None:
    """Write SIMULATED across the figure."""
    drawn.text(
        *(0.5, 0.5, "SIMULATED"),
        fontsize=54,
        fontweight="bold",
        color=GREY,
        alpha=0.16,
        ha="center",
        va="center",
        rotation=24,
        in_layout=False,
        zorder=10,
    )


MAX_VECTOR_POINTS: Final = 300
"""Larger point clouds are embedded in vector files as pixels."""

LOG_AXIS_RATIO: Final = 5.0
"""Ratio of slowest to fastest above which an axis is logarithmic."""


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A figure with its file name, title and description."""

    name: str
    title: str
    alt: str
    figure: Figure


OUTCOMES = {
    "PRUNED": ("pruned", "v", GREY),
    "OOM": ("out of memory", "x", VERMILLION),
    "HUNG": ("hung", "s", PURPLE),
    "CRASHED": ("crashed", "X", BLACK),
}
"""Label, mark and colour of each outcome without a measurement."""


def time_axis(axes: Axes, times: Sequence[float], label: str) -> None:
    """Label a vertical axis of times with plain numbers; make it logarithmic if the range is wide."""
    if times and max(times) > LOG_AXIS_RATIO * min(times):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_locator(NullLocator())
    plain_numbers(axes.yaxis)
    axes.set_ylabel(label)


def log2_axis(axes: Axes, ticks: Sequence[int]) -> None:
    """Make the horizontal axis logarithmic, with ticks at these values only."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def plain_numbers(axis: Axis) -> None:
    """Print ticks without exponents, with thousands separators."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
