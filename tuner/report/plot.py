"""A drawn figure, and the marks that all of them share."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.figure import Figure

from tuner.report.style import BLACK, GREY, PURPLE, VERMILLION

MANY = 300
"""Points from which on a cloud is drawn as pixels, also in a vector file."""


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A drawn figure with its name, its title and what it shows in words."""

    name: str
    title: str
    alt: str
    figure: Figure


OUTCOMES = {
    "PRUNED": ("pruned", "|", GREY),
    "OOM": ("out of memory", "x", VERMILLION),
    "HUNG": ("hung", "s", PURPLE),
    "CRASHED": ("crashed", "X", BLACK),
}
"""Outcomes that are no measurement: in words, as a mark, in a colour."""
