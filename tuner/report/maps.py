"""Plots over the search space and over time: tp against pp, heads or hidden size, and the speed of the cluster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from tuner.core.text import four_digits, listed, span, unit_for
from tuner.report import plot_data
from tuner.report.canvas import MaxNLocator, Rectangle
from tuner.report.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    OUTCOMES,
    SKY,
    Plot,
    figure,
    legend_below,
    log2_axis,
    time_axis,
)
from tuner.report.summary import days_label, ranked_word
from tuner.study.leaderboard import LeaderboardRow
from tuner.study.result import StudyResult

PALEST_RATIO: Final = 1.5
"""Cells that take this many times as long as the fastest, or longer, get the palest colour."""

MIN_TICK_SHARE: Final = 0.07
"""Share of a logarithmic axis below which the labels of neighbouring ticks would touch."""

INK_SHARE: Final = 0.32
"""Shades paler than this have black text, others white: whichever has the larger contrast."""


def degree_map(study: StudyResult, rows: Sequence[LeaderboardRow]) -> Plot | None:
    """Draw the fastest topology of each tp and pp; None if all topologies have the same degrees."""
    cells = plot_data.degree_cells(rows)
    if len(cells) < 2:
        return None
    days = [cell.days for cell in cells if cell.days is not None]
    tps, pps = sorted({cell.tp for cell in cells}), sorted({cell.pp for cell in cells})
    drawn = figure(max(6.0, 2.0 + 1.0 * len(pps)), max(3.2, 1.8 + 0.75 * len(tps)))
    axes = drawn.subplots()
    axes.grid(visible=False)
    fastest, slowest = min(days), min(max(days), PALEST_RATIO * min(days))
    unit, per_day = unit_for(fastest)
    colour: str | tuple[float, float, float]
    for cell in cells:
        at = pps.index(cell.pp), tps.index(cell.tp)
        if cell.days is None and cell.extrapolated is not None:
            colour, ink, text = "white", BLACK, f"~{four_digits(cell.extrapolated * per_day)}"
        elif cell.days is None:
            colour, ink, text = "white", BLACK, OUTCOMES.get(cell.outcome, (cell.outcome.lower(),))[0]
        else:
            share = math.log(cell.days / fastest) / math.log(slowest / fastest) if slowest > fastest else 0.0
            colour, ink = _shade(min(1.0, share)), BLACK if share > INK_SHARE else "white"
            text = f"{'~' * (cell.days == cell.extrapolated)}{four_digits(cell.days * per_day)}"
        axes.add_patch(_box(at, colour, dashed=cell.days is None))
        axes.text(*at, f"{text}\n{cell.tried} tried", color=ink, ha="center", va="center", fontsize=9)
        if cell.days == fastest:
            axes.add_patch(_box(at, "none", edge=ORANGE, width=3.0))
    axes.set_xticks(range(len(pps)), [str(pp) for pp in pps])
    axes.set_yticks(range(len(tps)), [str(tp) for tp in tps])
    axes.set(xlim=(-0.6, len(pps) - 0.4), ylim=(-0.6, len(tps) - 0.4))
    axes.set_xlabel("pipeline parallel degree (pp)")
    axes.set_ylabel("tensor parallel degree (tp)")
    title = f"fastest of each cell, {days_label(study, unit)}\ndarker is faster"
    if any(text.get_text().startswith("~") for text in axes.texts):
        title += "; ~: extrapolated"
    axes.set_title(title, fontsize=9, fontweight="normal")
    best = next(cell for cell in cells if cell.days == fastest)
    return Plot(
        name="map",
        title="Tensor x pipeline parallel",
        alt=f"Map of the training time of the fastest topology for tp {listed(tps)} and pp {listed(pps)}. The fastest "
        f"of all has tp {best.tp} and pp {best.pp}: {span(fastest)}.",
        figure=drawn,
    )


def _shade(share: float) -> tuple[float, float, float]:
    """Return a colour from dark blue (0) to light grey (1), distinguishable by lightness alone."""
    dark, light = (0.0, 0.27, 0.46), (0.90, 0.93, 0.96)
    red, green, blue = ((1 - share) * start + share * end for start, end in zip(dark, light, strict=True))
    return red, green, blue


def _box(
    at: tuple[int, int],
    colour: str | tuple[float, float, float],
    *,
    edge: str = GREY,
    width: float = 0.8,
    dashed: bool = False,
) -> Rectangle:
    corner = (at[0] - 0.47, at[1] - 0.45)
    return Rectangle(corner, 0.94, 0.9, facecolor=colour, edgecolor=edge, lw=width, ls="--" if dashed else "-")


def model_axis_plot(study: StudyResult, series: plot_data.ModelAxisSeries) -> Plot | None:
    """Draw training time against the number of heads or the hidden size; None if there is only one."""
    values = sorted({value for value, _ in (*series.predicted, *series.measured)})
    if len(values) < 2:
        return None
    drawn = figure(8.0, 4.4)
    axes = drawn.subplots()
    word = ranked_word(study)
    unit, per_day = unit_for(min(days for _, days in series.measured))
    predicted = [(value, days * per_day) for value, days in series.predicted]
    measured = [(value, days * per_day) for value, days in series.measured]
    axes.plot(
        *([value for value, _ in predicted], [time for _, time in predicted], "-s"),
        color=SKY,
        ms=4,
        label="the leader's layout, by the cost model",
    )
    axes.plot(
        *([value for value, _ in measured], [time for _, time in measured], "o"),
        color=BLUE,
        mec=BLACK,
        mew=0.4,
        label=f"all {word} topologies",
    )
    name = "attention heads" if series.axis == "heads" else "hidden size"
    log2_axis(axes, _spaced(values))
    axes.set_xlabel(name)
    time_axis(axes, [time for _, time in (*measured, *predicted)], days_label(study, unit))
    legend_below(drawn, 2, *axes.get_legend_handles_labels())
    value, _ = min(measured, key=lambda point: point[1])
    fastest = f"{value} heads" if series.axis == "heads" else f"hidden size {value}"
    return Plot(
        name=series.axis,
        title=f"Training time by {name}",
        alt=f"Training time at equal compute by {name}, {word} and by the cost model. The fastest {word} topology has "
        f"{fastest}. Each value is a different model.",
        figure=drawn,
    )


def _spaced(values: Sequence[int]) -> list[int]:
    """Return the values whose labels do not overlap on a logarithmic axis from the first to the last."""
    spaced = [*values[:1]]
    for value in values[1:]:
        if math.log(value / spaced[-1]) > MIN_TICK_SHARE * math.log(values[-1] / values[0]):
            spaced.append(value)
    return spaced


def speed_plot(study: StudyResult) -> Plot | None:
    """Draw the cluster's speed, job by job; None if it never changed."""
    series = plot_data.cluster_speed(study)
    if series is None:
        return None
    drawn = figure(8.0, 4.2)
    axes = drawn.subplots()
    for repeat, mark, colour, label in (
        (False, "o", BLUE, "relative to its estimate"),
        (True, "D", ORANGE, "relative to the topology's first run"),
    ):
        points = [
            (number, ratio)
            for number, ratio, repeated in zip(series.numbers, series.ratios, series.repeats, strict=True)
            if repeated == repeat
        ]
        if points:
            axes.plot(*zip(*points, strict=True), mark, color=colour, mec=BLACK, mew=0.4, label=label)
    axes.axhline(1.0, color=GREY, lw=1)
    axes.margins(y=0.2)  # room for the labels above the points
    for index, (first, factor) in enumerate(series.periods):
        axes.axvline(first - 0.5, color=GREEN, lw=1.6, ls="--")
        axes.annotate(
            f"from trial {first}: {factor:.3f} x the time",
            (first - 0.5, 1.0),
            (5, -2 - 14 * (index % 3)),  # labels of neighbouring periods do not overlap
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            va="top",
            color=GREEN,
        )
    axes.set_xlabel("trial")
    axes.set_ylabel("relative seconds per iteration")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_below(drawn, 2, *axes.get_legend_handles_labels())
    changes = "; ".join(
        f"from trial {first} on, iterations took {factor:.3f} times as long" for first, factor in series.periods
    )
    return Plot(
        name="eras",  # the file name has not changed since the first release
        title="Cluster speed",
        alt=f"Seconds per iteration of each job, relative to its estimate or to the first run of its topology: "
        f"{changes}.",
        figure=drawn,
    )
