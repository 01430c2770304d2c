"""The look that all plots share: colour-blind safe colours, with hatches and marks for grey prints."""

from __future__ import annotations

import re
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
    ScaledTranslation,
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


_PAD: Final = 0.1
"""Inches between the parts of a figure and around them."""


def figure(width: float = 8.0, height: float = 4.5) -> Figure:
    """Return an empty figure, independent of any window system."""
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=_PAD, h_pad=_PAD))


def legend_below(drawn: Figure, columns: int, marks: Sequence[Any], labels: Sequence[str], **style: Any) -> float:
    """Draw a legend below everything else, in fewer columns if it is wider than the figure, and return its inches."""
    while True:
        legend = drawn.legend(marks, labels, loc="outside lower center", ncols=columns, **style)
        size = legend.get_window_extent()
        if columns == 1 or size.width <= drawn.bbox.width - 2 * _PAD * drawn.dpi:
            return float(size.height / drawn.dpi)
        legend.remove()
        columns -= 1


def wrapped(text: str, characters: int, newline: str = "\n") -> str:
    """Return a text in lines of at most so many characters, broken after spaces and hyphens."""
    lines = [""]
    for part in re.findall("[^ -]*[ -]|[^ -]+", text):
        if lines[-1] and len(lines[-1] + part.rstrip()) > characters:
            lines.append("")
        lines[-1] += part
    return newline.join(line.rstrip() for line in lines)


def watermark(drawn: Figure) -> None:
    """Write SIMULATED across the figure."""
    drawn.text(
        *(0.5, 0.5, "SIMULATED"),
        fontsize=min(54.0, 20.0 * drawn.get_figheight()),
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
    "TIMED_OUT": ("timed out", "P", ORANGE),
    "PREEMPTED": ("preempted", "<", SKY),
    "CANCELLED": ("cancelled", ">", GREY),
    "UNREADABLE": ("unreadable", "*", BLUE),
}
"""Label, mark and colour of each outcome without a measurement."""

LANE: Final = 9.0 / 72
"""Inches from one lane of marks to the next."""


def outcome_lanes(axes: Axes, x: Sequence[float], outcomes: Sequence[str]) -> None:
    """Mark jobs without a measurement between the horizontal axis and its labels, in one lane for each outcome."""
    ended = [outcome for outcome in OUTCOMES if outcome in outcomes]
    for lane, outcome in enumerate(ended):
        word, mark, colour = OUTCOMES[outcome]
        own = [at for at, each in zip(x, outcomes, strict=True) if each == outcome]
        down = ScaledTranslation(0, -(lane + 0.65) * LANE, axes.figure.dpi_scale_trans)
        axes.plot(
            *(own, [0.0] * len(own), mark),
            color=colour,
            label=word,
            ms=6,
            transform=axes.get_xaxis_transform() + down,
            clip_on=False,
        )
    if ended:
        axes.tick_params(axis="x", pad=72 * LANE * len(ended) + 2)


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
    plain_numbers(axes.xaxis)


def plain_numbers(axis: Axis) -> None:
    """Print ticks without exponents, with thousands separators."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
