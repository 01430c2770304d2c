"""A drawn figure, and the marks that all of them share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from tuner.report.style import BLACK, GREY, PURPLE, VERMILLION

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
