"""Plots of where in the space something lies: the map of tp and pp, cliffs of heads and hidden size, eras."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from tuner.core.text import span
from tuner.report import series
from tuner.report.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    OUTCOMES,
    SKY,
    Plot,
    days_axis,
    figure,
)
from tuner.study.leaderboard import LeaderboardRow
from tuner.study.result import StudyResult

PALE: Final = 1.5
"""Times the best from which on a cell of the map is as pale as can be."""


def map_of(rows: Sequence[LeaderboardRow]) -> Plot | None:
    """The best of each tp and pp; nothing where all have the same."""
    found = series.cells(rows)
    if len(found) < 2:
        return None
    days = [cell.days for cell in found if cell.days is not None]
    tps, pps = sorted({cell.tp for cell in found}), sorted({cell.pp for cell in found})
    drawn = figure(max(6.0, 2.0 + 1.0 * len(pps)), max(3.2, 1.8 + 0.75 * len(tps)))
    axes = drawn.subplots()
    axes.grid(visible=False)
    low, high = min(days), min(max(days), PALE * min(days))
    colour: str | tuple[float, float, float]
    for cell in found:
        at = pps.index(cell.pp), tps.index(cell.tp)
        if cell.days is None:
            colour, ink, text = "white", BLACK, OUTCOMES.get(cell.outcome, (cell.outcome.lower(),))[0]
        else:
            shade = min(1.0, math.log(cell.days / low) / math.log(high / low)) if high > low else 0.0
            colour, ink = _shade(shade), BLACK if shade > 0.45 else "white"
            text = f"{cell.days:,.4g}"
        axes.add_patch(_box(at, colour, dashed=cell.days is None))
        axes.text(*at, f"{text}\n{cell.tried} tried", color=ink, ha="center", va="center", fontsize=9)
        if cell.days == low:
            axes.add_patch(_box(at, "none", edge=ORANGE, width=3.0))
    axes.set_xticks(range(len(pps)), [str(pp) for pp in pps])
    axes.set_yticks(range(len(tps)), [str(tp) for tp in tps])
    axes.set(xlim=(-0.6, len(pps) - 0.4), ylim=(-0.6, len(tps) - 0.4))
    axes.set_xlabel("pipeline parallel degree (pp)")
    axes.set_ylabel("tensor parallel degree (tp)")
    axes.set_title("days until trained, of the best of each cell; darker is sooner", fontsize=9, fontweight="normal")
    best = next(cell for cell in found if cell.days == low)
    return Plot(
        name="map",
        title="Tensor x pipeline parallel",
        alt=f"Map of tp ({', '.join(map(str, tps))}) by pp ({', '.join(map(str, pps))}) with the days of the best of "
        f"each cell: the soonest is tp {best.tp} x pp {best.pp} with {span(low)}.",
        figure=drawn,
    )


def _shade(share: float) -> tuple[float, float, float]:
    """From the dark blue of the best to a light grey: lightness alone tells them apart."""
    dark, light = (0.0, 0.27, 0.46), (0.90, 0.93, 0.96)
    red, green, blue = ((1 - share) * one + share * other for one, other in zip(dark, light, strict=True))
    return red, green, blue


def _box(
    at: tuple[int, int],
    colour: str | tuple[float, float, float],
    *,
    edge: str = GREY,
    width: float = 0.8,
    dashed: bool = False,
) -> Rectangle:
    """One cell of a map."""
    return Rectangle(
        (at[0] - 0.47, at[1] - 0.45), 0.94, 0.9, facecolor=colour, edgecolor=edge, lw=width, ls="--" if dashed else "-"
    )


def cliff(found: series.Cliff, *, simulated: bool) -> Plot:
    """What heads or hidden size do to the time."""
    drawn = figure(8.0, 4.4)
    axes = drawn.subplots()
    word = "simulated" if simulated else "measured"
    axes.plot(
        [value for value, _ in found.modelled],
        [days for _, days in found.modelled],
        *("-s",),
        color=SKY,
        ms=4,
        label="the winner's layout, by the model",
    )
    axes.plot(
        [value for value, _ in found.measured],
        [days for _, days in found.measured],
        *("o",),
        color=BLUE,
        mec=BLACK,
        mew=0.4,
        label=f"{word} topologies, any layout",
    )
    if found.axis == "heads":
        axes.set_xscale("log", base=2)
        values = sorted({value for value, _ in (*found.modelled, *found.measured)})
        axes.xaxis.set_major_locator(FixedLocator(_spaced(values)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("attention heads" if found.axis == "heads" else "hidden size")
    days_axis(axes, [days for _, days in (*found.measured, *found.modelled)])
    drawn.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    best = min(found.measured, key=lambda pair: pair[1])
    return Plot(
        name=found.axis,
        title="Heads" if found.axis == "heads" else "Hidden size",
        alt=f"Days until trained at equal compute against {found.axis}, {word} and by the model; the soonest one "
        f"{word} has {best[0]}. Another number of them is another model.",
        figure=drawn,
    )


def _spaced(values: Sequence[int]) -> list[int]:
    """Those that can stand on a logarithmic axis without touching."""
    shown: list[int] = []
    for value in values:
        if not shown or value / shown[-1] > 1.09:
            shown.append(value)
    return shown


def drift(study: StudyResult) -> Plot | None:
    """How fast the cluster was, trial by trial."""
    found = series.drift(study)
    if found is None:
        return None
    drawn = figure(8.0, 4.2)
    axes = drawn.subplots()
    for repeat, mark, colour, word in ((False, "o", BLUE, "to its estimate"), (True, "D", ORANGE, "to its first run")):
        own = [
            (n, r) for n, r, again in zip(found.numbers, found.ratios, found.repeats, strict=True) if again == repeat
        ]
        if own:
            axes.plot(*zip(*own, strict=True), mark, color=colour, mec=BLACK, mew=0.4, label=word)
    axes.axhline(1.0, color=GREY, lw=1)
    axes.margins(y=0.2)  # above the points there is room for the words
    for first, factor in found.begins:
        axes.axvline(first - 0.5, color=GREEN, lw=1.6, ls="--")
        axes.annotate(
            f"era from trial {first}: x {factor:.3f}",
            (first - 0.5, 1.0),
            (5, -2),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            va="top",
            color=GREEN,
        )
    axes.set_xlabel("trial")
    axes.set_ylabel("seconds, relative")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    drawn.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    told = "; ".join(f"from trial {first} on it took {factor:.3f} times as long" for first, factor in found.begins)
    return Plot(
        name="eras",
        title="Eras",
        alt=f"Seconds of each job relative to its estimate or to the first run of its topology, by trial: {told}.",
        figure=drawn,
    )
