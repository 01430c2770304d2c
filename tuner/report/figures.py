"""The plots of a report, each with a description for readers who cannot see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from tuner.core.quantity import GIB
from tuner.core.text import counted, four_digits, listed, node_time, node_unit_for, seconds, span, unit_for
from tuner.report import plot_data
from tuner.report.canvas import Axes, FixedLocator, MaxNLocator, NullLocator
from tuner.report.maps import degree_map, model_axis_plot, speed_plot
from tuner.report.style import (
    BLACK,
    BLUE,
    COLOURS,
    GREEN,
    GREY,
    HATCHES,
    LANE,
    LINES,
    MARKS,
    MAX_VECTOR_POINTS,
    ORANGE,
    OUTCOMES,
    VERMILLION,
    Plot,
    figure,
    legend_below,
    log2_axis,
    outcome_lanes,
    plain_numbers,
    watermark,
    wrapped,
)
from tuner.report.summary import days_label, measured_word, memory_label, ranked_word, term_label
from tuner.sizing.probes import usable_bytes
from tuner.study.leaderboard import LeaderboardRow
from tuner.study.result import StudyResult

SMALL_TERM: Final = 0.012
"""Terms below this share of the tallest bar are stacked together as `others`."""

NEGLIGIBLE_REST: Final = 0.002
"""`others` below this share of the tallest bar is omitted."""

MIN_TICK_DISTANCE: Final = 0.09
"""Smallest distance of two ticks on a logarithmic axis, as a share of its length: their labels must not touch."""

_TICK_DIGITS: Final = ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9), (1, 1.5, 2, 3, 4, 5, 7), (1, 2, 5), (1,))
"""Digits of a logarithmic axis's ticks, from the densest to the sparsest."""

_TITLE_CHARACTERS: Final = 8.0
"""Characters of a title for each inch of a figure's width."""

_KEY_CHARACTERS: Final = 32
"""Characters in each line of a topology's key beside a bar."""


def plots(study: StudyResult, rows: Sequence[LeaderboardRow]) -> list[Plot]:
    """Return every plot that the study has data for."""
    drawn = [_progress(study)]
    if rows and rows[0].ranked:
        drawn += [_estimates(study), _terms(study, rows), _memory(study, rows[0]), _micro_batch(study, rows)]
        drawn += [degree_map(study, rows)]
        drawn += [model_axis_plot(study, series) for series in plot_data.model_axes(study, rows)]
        drawn.append(speed_plot(study))
    shown = [plot for plot in drawn if plot]
    for plot in shown:
        title = wrapped(plot.title, int(_TITLE_CHARACTERS * plot.figure.get_figwidth()))
        plot.figure.suptitle(title, x=0.012, ha="left", fontweight="bold", fontsize=12)
        if study.simulated:
            watermark(plot.figure)
    return shown


def _progress(study: StudyResult) -> Plot | None:
    data = plot_data.progress(study)
    if not data.outcomes:
        return None
    known = [days for days in (*data.days, *data.extrapolated) if days is not None]
    unit, per_day = unit_for(min(known)) if known else ("days", 1.0)
    node_unit, per_node_hour = node_unit_for(data.node_hours[-1])
    lanes = len(OUTCOMES.keys() & set(data.outcomes))
    drawn = figure(9.0, (4.2 if known else 2.8) + LANE * lanes)
    left, right = drawn.subplots(1, 2, sharey=True)
    for axes, x, label in (
        (left, list(range(1, len(data.days) + 1)), "jobs"),
        (right, [hours * per_node_hour for hours in data.node_hours], f"{node_unit} used"),
    ):
        _times(axes, x, data, measured_word(study), unit, per_day)
        outcome_lanes(axes, x, data.outcomes)
        axes.set_xlabel(label, labelpad=8)
        axes.set_xlim(0, 1.05 * x[-1] or 1)
        plain_numbers(axes.xaxis)
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.xaxis.set_major_locator(MaxNLocator(nbins=6))
    if known:
        plain_numbers(left.yaxis)
        left.set_ylabel(days_label(study, unit))
    else:
        left.set_yticks([])
    legend_below(drawn, 6, *left.get_legend_handles_labels())
    last = next((days for days in reversed(data.best) if days is not None), None)
    outcome = f"the best so far takes {span(last)} as {measured_word(study)}" if last else "nothing has been measured"
    at_full_size = " at full size" * (last is None and bool(known))
    return Plot(
        name="progress",
        title="Best so far" if known else "No job was measured",
        alt=f"Training time of each of {counted(len(data.days), 'job')} and of the best topology so far, by job and by "
        f"{node_unit} used. After {node_time(data.node_hours[-1])}, {outcome}{at_full_size}.",
        figure=drawn,
    )


def _times(axes: Axes, x: Sequence[float], data: plot_data.BestSoFar, measured: str, unit: str, per_day: float) -> None:
    """Draw the measured and extrapolated times of jobs and the best so far; much slower jobs are drawn at the edge."""
    times, extrapolated, bests = (_in_unit(per_day, each) for each in (data.days, data.extrapolated, data.best))
    known = [time for time in (*times, *extrapolated) if time is not None]
    most = plot_data.MAX_SHOWN * min(known, default=0.0)
    dots: dict[str, Any] = {"mfc": "none", "ls": "none", "rasterized": len(known) > MAX_VECTOR_POINTS}
    looks: tuple[dict[str, Any], ...] = (
        {"marker": "o", "ms": 5, "color": BLUE, "label": measured, **dots},
        {"marker": "^", "ms": 6, "color": GREEN, "label": "extrapolated", **dots},
    )
    for series, look in zip((times, extrapolated), looks, strict=True):
        if shown := _up_to(most, x, series):
            axes.plot(*zip(*shown, strict=True), **look)
    best = _up_to(most, x, bests)
    if len(best) > 1:
        axes.step(*zip(*best, strict=True), where="post", color=BLACK, lw=2, label="leader's mean so far")
    slow = [at for at, *both in zip(x, times, extrapolated, strict=True) if max(filter(None, both), default=0) > most]
    if slow:
        axes.plot(
            *(slow, [1.0] * len(slow), "d"),
            color=GREY,
            label=f"more than {four_digits(most)} {unit}",
            ms=7,
            transform=axes.get_xaxis_transform(),
            clip_on=False,
        )


def _in_unit(per_day: float, series: Sequence[float | None]) -> list[float | None]:
    return [None if days is None else days * per_day for days in series]


def _up_to(most: float, x: Sequence[float], series: Sequence[float | None]) -> list[tuple[float, float]]:
    """Return the points of a series that are known and not above a value."""
    return [(at, days) for at, days in zip(x, series, strict=True) if days is not None and days <= most]


def _estimates(study: StudyResult) -> Plot | None:
    data = plot_data.predictions(study)
    if not data:
        return None
    drawn = figure(6.4, 5.6)
    axes = drawn.subplots()
    for repeat, mark, colour, label in ((False, "o", BLUE, "first run"), (True, "D", ORANGE, "repeat")):
        points = [point for point in data if point.repeat == repeat]
        if points:
            x = [point.measured for point in points]
            y = [point.estimate for point in points]
            interval = [
                [point.estimate - point.low for point in points],
                [point.high - point.estimate for point in points],
            ]
            lines = axes.errorbar(
                x, y, interval, fmt=mark, ms=5, color=colour, lw=1, capsize=2, label=label, mec=BLACK, mew=0.4
            )
            if len(points) > MAX_VECTOR_POINTS:
                for part in lines.get_children():
                    part.set_rasterized(True)
    values = [value for point in data for value in (point.low, point.high, point.measured)]
    limits = (min(values) * 0.97, max(values) * 1.03)
    axes.plot(limits, limits, color=GREY, lw=1, ls="--", label="estimate = measurement")
    axes.set(xlim=limits, ylim=limits, xscale="log", yscale="log", aspect="equal")
    ticks = _log_ticks(limits)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_minor_locator(NullLocator())
        plain_numbers(axis)
    axes.set_xlabel(f"{measured_word(study)} seconds per iteration")
    axes.set_ylabel("seconds per iteration estimated before the run\nand its 80% interval")
    legend_below(drawn, 3, *axes.get_legend_handles_labels())
    inside = sum(point.low <= point.measured <= point.high for point in data)
    return Plot(
        name="estimates",
        title="Estimate vs. measurement",
        alt=f"Estimated against {measured_word(study)} seconds per iteration, with 80% intervals: {inside} of "
        f"{counted(len(data), 'measurement')} within the interval.",
        figure=drawn,
    )


def _log_ticks(limits: tuple[float, float]) -> list[float]:
    """Return plain numbers as ticks of a logarithmic axis, even if it spans less than a decade."""
    low, high = limits
    distance = (high / low) ** MIN_TICK_DISTANCE
    for digits in _TICK_DIGITS:
        steps = [digit * 10.0**power for power in range(-4, 7) for digit in digits]
        ticks = [step for step in steps if low <= step <= high]
        if len(ticks) < 3:
            even = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
            return [float(tick) for tick in even if low <= tick <= high]
        if all(after >= distance * before for before, after in pairwise(ticks)):
            break
    return ticks


def stacked_bars(
    axes: Axes, terms: Mapping[str, Sequence[float]], labels: Mapping[str, str], *, horizontal: bool = False
) -> None:
    """Draw one stacked bar per position; small terms are summed up and empty ones omitted."""
    positions = range(len(next(iter(terms.values()))))
    tallest = max(sum(values[index] for values in terms.values()) for index in positions)
    small = {name for name, values in terms.items() if max(values) < SMALL_TERM * tallest}
    stacks = [(labels[name], list(values)) for name, values in terms.items() if name not in small]
    looks = [(COLOURS[index % len(COLOURS)], HATCHES[index % len(HATCHES)]) for index in range(len(stacks))]
    rest = [sum(terms[name][index] for name in small) for index in positions]
    if max(rest) > NEGLIGIBLE_REST * tallest:
        stacks.append(("others", rest))
        looks.append(("#dddddd", ""))
    base = [0.0] * len(positions)
    for (label, lengths), (colour, hatch) in zip(stacks, looks, strict=True):
        look: dict[str, Any] = {
            "color": colour,
            "hatch": hatch,
            "edgecolor": "white",
            "linewidth": 0.5,
            "label": label,
        }
        if horizontal:
            axes.barh(positions, lengths, left=base, height=0.62, **look)
        else:
            axes.bar(positions, lengths, bottom=base, width=0.78, **look)
        base = [start + length for start, length in zip(base, lengths, strict=True)]


def _terms(study: StudyResult, rows: Sequence[LeaderboardRow]) -> Plot:
    data = plot_data.time_breakdowns(study, rows)
    keys = [wrapped(topology.key, _KEY_CHARACTERS) for topology in data]
    drawn = figure(9.0)
    axes = drawn.subplots()
    terms = {name: [topology.terms[name] for topology in data] for name in data[0].terms}
    stacked_bars(axes, terms, {name: term_label(name) for name in terms}, horizontal=True)
    for extrapolated, word, mark in ((False, measured_word(study), "D"), (True, "extrapolated", "^")):
        own = [(each.seconds, at) for at, each in enumerate(data) if each.extrapolated == extrapolated]
        if own:
            axes.plot(*zip(*own, strict=True), mark, color=BLACK, mfc="white", ms=7, label=word)
    axes.set_yticks(range(len(data)), keys)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlim(left=0)
    plain_numbers(axes.xaxis)
    axes.set_xlabel("seconds per iteration, by the cost model\nfitted to this study")
    legend = legend_below(drawn, 4, *axes.get_legend_handles_labels())
    drawn.set_figheight(1.2 + max(0.55, *(0.2 * (1 + key.count("\n")) for key in keys)) * len(data) + legend)
    leader = data[0]
    largest = max(leader.terms, key=lambda name: leader.terms[name])
    topologies = f"the fastest {len(data)} topologies" if len(data) > 1 else "the only measured topology"
    return Plot(
        name="terms",
        title="Where the time goes",
        alt=f"Seconds per iteration by term for {topologies}, as stacked bars, with "
        f"the {ranked_word(study)} total. For {leader.key}, the largest term is {term_label(largest)}: "
        f"{seconds(leader.terms[largest])} of {seconds(leader.seconds)} s.",
        figure=drawn,
    )


def _memory(study: StudyResult, row: LeaderboardRow) -> Plot:
    data = plot_data.memory_breakdown(study, row)
    stages = len(next(iter(data.terms.values())))
    drawn = figure(max(6.4, min(11.0, 2.5 + 0.45 * stages)), 4.6)
    axes = drawn.subplots()
    stacked_bars(axes, data.terms, {name: memory_label(name) for name in data.terms})
    axes.axhline(data.usable, color=VERMILLION, lw=1.6, ls="--", label=f"usable GPU memory, {data.usable:.1f} GiB")
    totals = [sum(values[stage] for values in data.terms.values()) for stage in range(stages)]
    if data.measured:
        label = f"{measured_word(study)} on the fullest GPU, {data.measured:.1f} GiB\n(estimate: {max(totals):.1f} GiB)"
        axes.axhline(data.measured, color=BLACK, lw=1.4, ls=":", label=label)
    axes.set_xlabel("pipeline stage")
    axes.set_ylabel("GiB per GPU, by the cost model")
    axes.grid(axis="x", visible=False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True) if stages > 1 else FixedLocator([0]))
    axes.set_xlim(-0.6, stages - 0.4)  # no tick beyond the last stage
    legend_below(drawn, 3, *axes.get_legend_handles_labels())
    return Plot(
        name="memory",
        title=f"Memory of {row.key}",
        alt=f"Memory per GPU in {counted(stages, 'pipeline stage')} by term, as stacked bars: "
        + f"{min(totals):.1f} to " * (stages > 1)
        + f"{max(totals):.1f} GiB of {data.usable:.1f} GiB usable.",
        figure=drawn,
    )


def _micro_batch(study: StudyResult, rows: Sequence[LeaderboardRow]) -> Plot | None:
    series = plot_data.micro_batch_series(rows)
    measured = [row for row in rows if row.ranked]
    sizes = sorted({row.topology.micro_batch for row in measured})
    if len(sizes) < 2:
        return None
    rates = [
        (row.topology.micro_batch, row.workload.global_batch / row.ranked.seconds) for row in measured if row.ranked
    ]
    peaks = [(row.topology.micro_batch, row.memory / GIB) for row in measured if row.memory]
    drawn = figure(9.0, 4.6)
    left, *others = drawn.subplots(1, 2 if peaks else 1, squeeze=False)[0]
    grey: dict[str, Any] = {
        "color": GREY,
        "ms": 4,
        "label": f"all {ranked_word(study)} topologies",
        "rasterized": len(measured) > MAX_VECTOR_POINTS,
    }
    left.plot(*zip(*rates, strict=True), "o", **grey)
    for right in others:
        right.plot(*zip(*peaks, strict=True), "o", **grey)
        _usable_memory(right, usable_bytes(rows[0].cluster) / GIB)
    for index, line in enumerate(series):
        look: dict[str, Any] = {"color": COLOURS[index], "marker": MARKS[index], "ls": LINES[index]}
        look |= {"mec": BLACK, "mew": 0.4, "label": line.label}
        left.plot(line.micro_batches, line.samples, **look)
        own = [(size, gib) for size, gib in zip(line.micro_batches, line.memory, strict=True) if gib]
        if own:
            others[0].plot(*zip(*own, strict=True), **look)
    for axes, label in zip((left, *others), ("sequences per second", "GiB on the fullest GPU"), strict=False):
        log2_axis(axes, sizes)
        axes.set_xlim(min(sizes) / 1.25, max(sizes) * 1.25)
        axes.set_xlabel("micro-batch size")
        axes.set_ylabel(label)
    plain_numbers(left.yaxis)
    legend_below(drawn, 2, *left.get_legend_handles_labels())
    memory = " and memory" * bool(peaks)
    joined = f" Lines join topologies that differ only in micro-batch size: {counted(len(series), 'group')}."
    return Plot(
        name="micro-batch",
        title=f"Throughput{memory} by micro-batch size",
        alt=f"Sequences per second{' and memory of the fullest GPU' if peaks else ''} at micro-batch sizes "
        f"{listed(sizes)}.{joined if series else ''}",
        figure=drawn,
    )


def _usable_memory(axes: Axes, usable: float) -> None:
    """Draw the usable GPU memory as a line, with all of the axis below it."""
    axes.axhline(usable, color=VERMILLION, lw=1.4, ls="--")
    near: dict[str, Any] = {
        "xycoords": ("axes fraction", "data"),
        "textcoords": "offset points",
        "va": "bottom",
        "color": VERMILLION,
    }
    axes.annotate(f"usable GPU memory, {usable:.1f} GiB", (0, usable), (4, 2), **near)
    axes.set_ylim(bottom=0, top=usable * 1.1)
