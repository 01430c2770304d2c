"""Durations for people, in the unit that fits: days for a training, seconds for a tiny model on a laptop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

UNITS: Final = (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))


def unit_for(days: float) -> tuple[str, float]:
    """The largest unit of which there is at least one, and how many of it a day has."""
    name, seconds = next((unit for unit in UNITS if days * 86400 >= unit[1]), UNITS[-1])
    return name, 86400 / seconds


def span(days: float) -> str:
    """`692.9 days`, `3.4 minutes`."""
    unit, each = unit_for(days)
    return f"{days * each:,.1f} {unit}"


def between(days: float, low: float, high: float) -> str:
    """`692.9 days (688.0 to 697.8)`, all three in the unit of the first."""
    _, each = unit_for(days)
    return f"{span(days)} ({low * each:,.1f} to {high * each:,.1f})"


def ends(days: float, low: float, high: float) -> str:
    """`688.0 to 697.8 days`, in the unit of the first."""
    unit, each = unit_for(days)
    return f"{low * each:,.1f} to {high * each:,.1f} {unit}"


def node_time(hours: float) -> str:
    """`138.1 node-hours`, `57.0 node-seconds`."""
    unit, each = unit_for(hours / 24)
    if unit in ("days", "hours") or not hours:
        return f"{hours:,.1f} node-hours"
    return f"{hours / 24 * each:,.1f} node-{unit}"


def seconds(value: float) -> str:
    """Seconds of an iteration with the digits that they have: `69.28`, `0.1874`."""
    return f"{value:.2f}" if value >= 1 else f"{value:.4f}"


def column(days: Sequence[float]) -> tuple[str, float]:
    """The unit of a table's column, by its first row; the heading, and how many of it a day has."""
    unit, each = unit_for(days[0]) if days else ("days", 1.0)
    return unit.capitalize(), each
