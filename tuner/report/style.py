"""How plots look: colours that colour-blind people tell apart, and hatches and marks for who prints in grey."""

from __future__ import annotations

from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

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
