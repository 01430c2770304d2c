"""How plots look: colours that colour-blind people tell apart, and hatches and marks for who prints in grey.

A drawn figure, and the marks that all of them share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

BLUE, VERMILLION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
SKY, PURPLE, YELLOW, BLACK, GREY = "#56B4E9", "#CC79A7", "#F0E442", "#000000", "#767676"
COLOURS: Final = (BLUE, ORANGE, GREEN, VERMILLION, SKY, PURPLE, YELLOW, "#999999")
"""Of Okabe and Ito (2008)."""

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
    """The settings under which a figure is made and saved."""
    return mpl.rc_context(_LOOK)


def figure(width: float = 8.0, height: float = 4.5) -> Figure:
    """An empty figure, of no window system."""
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))


def watermark(drawn: Figure) -> None:
    """Say over the whole figure that nothing of it was measured on a machine."""
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


MANY = 300
"""Points from which on a cloud is drawn as pixels, also in a vector file."""

WIDE: Final = 5.0
"""Times the best from which on the slowest asks for a logarithmic axis."""


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A drawn figure with its name, its title and what it shows in words."""

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
"""Outcomes that are no measurement: in words, as a mark, in a colour."""


def days_axis(axes: Axes, days: Sequence[float]) -> None:
    """Days upwards, in plain numbers; logarithmic where the slowest would press the best to the floor."""
    if days and max(days) > WIDE * min(days):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.set_ylabel("days until trained, at equal compute")
