"""The plots of a report. Each draws one series and knows what to tell who cannot see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from tuner.core.text import node_time, span
from tuner.report import series
from tuner.report.maps import cliff, drift, map_of
from tuner.report.sentences import term
from tuner.report.style import (
    BLACK,
    BLUE,
    COLOURS,
    GREY,
    HATCHES,
    LINES,
    MANY,
    MARKS,
    ORANGE,
    OUTCOMES,
    VERMILLION,
    Plot,
    days_axis,
    figure,
    watermark,
)
from tuner.study.leaderboard import GIB, LeaderboardRow
from tuner.study.result import StudyResult


def plots(study: StudyResult, rows: Sequence[LeaderboardRow]) -> list[Plot]:
    """All that there is something to show for."""
    made = [_progress(study)]
    if rows and rows[0].place:
        made += [_guesses(study), _accounts(study, rows), _memory(study, rows[0]), _ladders(rows), map_of(rows)]
        made += [cliff(each, simulated=study.simulated) for each in series.cliffs(study, rows)]
        made.append(drift(study))
    drawn = [plot for plot in made if plot]
    for plot in drawn:
        plot.figure.suptitle(plot.title, x=0.012, ha="left", fontweight="bold", fontsize=12)
        if study.simulated:
            watermark(plot.figure)
    return drawn


def _progress(study: StudyResult) -> Plot | None:
    found = series.progress(study)
    if not found.outcomes:
        return None
    drawn = figure(9.0, 4.2)
    left, right = drawn.subplots(1, 2, sharey=True)
    for axes, at, name in (
        (left, list(range(1, len(found.days) + 1)), "jobs"),
        (right, list(found.node_hours), "node-hours spent"),
    ):
        measured = [(x, y) for x, y in zip(at, found.days, strict=True) if y is not None]
        if measured:
            axes.plot(
                *zip(*measured, strict=True),
                "o",
                ms=5,
                mfc="none",
                color=BLUE,
                label="simulated" if study.simulated else "measured",
                rasterized=len(measured) > MANY,
            )
        best = [(x, y) for x, y in zip(at, found.best, strict=True) if y is not None]
        if best:
            axes.step(*zip(*best, strict=True), where="post", color=BLACK, lw=2, label="best so far")
        for outcome, (word, mark, colour) in OUTCOMES.items():
            where = [x for x, each in zip(at, found.outcomes, strict=True) if each == outcome]
            if where:
                axes.plot(
                    *(where, [-0.02] * len(where), mark),
                    color=colour,
                    label=word,
                    ms=7,
                    transform=axes.get_xaxis_transform(),
                    clip_on=False,
                )
        axes.set_xlabel(name, labelpad=8)
        axes.set_xlim(left=0)
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.xaxis.set_major_locator(MaxNLocator(nbins=6))
    for axis in (left.xaxis, right.xaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    days_axis(left, [each for each in found.days if each is not None])
    drawn.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=6)
    last = next((each for each in reversed(found.best) if each is not None), None)
    told = f"the best takes {span(last)}" if last else "none was measured"
    return Plot(
        name="progress",
        title="Best so far",
        alt=f"Days until trained, of each of {len(found.days)} jobs and of the best so far, against jobs and against "
        f"node-hours; after {node_time(found.node_hours[-1])} {told}.",
        figure=drawn,
    )


def _guesses(study: StudyResult) -> Plot | None:
    found = series.guesses(study)
    if not found:
        return None
    drawn = figure(6.4, 5.6)
    axes = drawn.subplots()
    for repeat, mark, colour, word in ((False, "o", BLUE, "first run"), (True, "D", ORANGE, "run again")):
        own = [each for each in found if each.repeat == repeat]
        if own:
            x = [each.measured for each in own]
            y = [each.estimate for each in own]
            wide = [[each.estimate - each.low for each in own], [each.high - each.estimate for each in own]]
            lines = axes.errorbar(
                x, y, wide, fmt=mark, ms=5, color=colour, lw=1, capsize=2, label=word, mec=BLACK, mew=0.4
            )
            if len(own) > MANY:
                for part in lines.get_children():
                    part.set_rasterized(True)
    every = [value for each in found for value in (each.low, each.high, each.measured)]
    ends = (min(every) * 0.97, max(every) * 1.03)
    axes.plot(ends, ends, color=GREY, lw=1, ls="--", label="estimate = measurement")
    axes.set(xlim=ends, ylim=ends, xscale="log", yscale="log", aspect="equal")
    _plain_log(axes, ends)
    axes.set_xlabel(f"{'simulated' if study.simulated else 'measured'}, seconds an iteration")
    axes.set_ylabel("estimated before the run, seconds an iteration")
    axes.legend(loc="upper left")
    inside = sum(each.low <= each.measured <= each.high for each in found)
    return Plot(
        name="estimates",
        title="Estimate against measurement",
        alt=f"Estimates with their 80% intervals against measurements: {inside} of {len(found)} measurements lie "
        "within their interval.",
        figure=drawn,
    )


def _plain_log(axes: Axes, ends: tuple[float, float]) -> None:
    """Ticks of a logarithmic axis as plain numbers, also where it spans less than a decade."""
    steps = [
        mantissa * 10.0**power for power in range(-4, 7) for mantissa in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)
    ]
    shown = [step for step in steps if ends[0] <= step <= ends[1]]
    if len(shown) < 3:
        width = (ends[1] - ends[0]) / 4
        shown = [float(f"{ends[0] + width * step:.3g}") for step in (0.5, 1.5, 2.5, 3.5)]
    if len(shown) > 9:
        shown = [step for step in shown if f"{step:e}"[0] in "125" and f"{step:e}"[2] == "0"]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(FixedLocator(shown))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))


_MEMORY = {"optimizer": "optimizer state", "step": "optimizer step", "logits": "logits and loss"}


def _stack(
    axes: Axes, names: Sequence[str], values: dict[str, Sequence[float]], at: Sequence[float], *, flat: bool
) -> None:
    """Bars of stacked terms; those that are nothing anywhere are left out, small ones gathered."""
    whole = max(sum(values[name][place] for name in names) for place in range(len(at)))
    small = [name for name in names if max(values[name]) < 0.012 * whole]
    shown = [name for name in names if name not in small]
    stacks = [(name, list(values[name])) for name in shown]
    rest = [sum(values[name][place] for name in small) for place in range(len(at))]
    if max(rest) > 0.002 * whole:
        stacks.append(("others", rest))
    base = [0.0] * len(at)
    for place, (name, heights) in enumerate(stacks):
        colour, hatch = COLOURS[place % len(COLOURS)], HATCHES[place % len(HATCHES)]
        if name == "others":
            colour, hatch = "#dddddd", ""
        look: dict[str, Any] = {
            "color": colour,
            "hatch": hatch,
            "edgecolor": "white",
            "linewidth": 0.5,
            "label": _MEMORY.get(name, name) if not flat else term(name),
        }
        if flat:
            axes.barh(at, heights, left=base, height=0.62, **look)
        else:
            axes.bar(at, heights, bottom=base, width=0.78, **look)
        base = [low + high for low, high in zip(base, heights, strict=True)]


def _accounts(study: StudyResult, rows: Sequence[LeaderboardRow]) -> Plot:
    found = series.accounts(study, rows)
    drawn = figure(9.0, 1.9 + 0.55 * len(found))
    axes = drawn.subplots()
    at = list(range(len(found)))
    names = list(found[0].terms)
    _stack(axes, names, {name: [each.terms[name] for each in found] for name in names}, at, flat=True)
    word = "simulated" if study.simulated else "measured"
    axes.plot([each.measured for each in found], at, "D", color=BLACK, mfc="white", ms=7, label=word)
    axes.set_yticks(at, [each.key for each in found])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds an iteration, by the model as the study has taught it")
    drawn.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    largest = max(found[0].terms, key=lambda name: found[0].terms[name])
    return Plot(
        name="terms",
        title="Where the time goes",
        alt=f"Seconds of an iteration by term for the best {len(found)}, as stacked bars, beside what was {word}; of "
        f"{found[0].key} the largest is {term(largest)}, {found[0].terms[largest]:.1f} of {found[0].measured:.1f} s.",
        figure=drawn,
    )


def _memory(study: StudyResult, row: LeaderboardRow) -> Plot:
    found = series.memory(study, row)
    stages = len(next(iter(found.terms.values())))
    drawn = figure(max(6.4, min(11.0, 2.5 + 0.45 * stages)), 4.6)
    axes = drawn.subplots()
    at = list(range(stages))
    _stack(axes, list(found.terms), dict(found.terms), at, flat=False)
    axes.axhline(found.usable, color=VERMILLION, lw=1.6, ls="--", label=f"usable of the card, {found.usable:.1f} GiB")
    if found.measured:
        word = "simulated" if study.simulated else "measured"
        axes.axhline(
            found.measured, color=BLACK, lw=1.4, ls=":", label=f"{word} on the fullest GPU, {found.measured:.1f} GiB"
        )
    axes.set_xlabel("pipeline stage, from 0")
    axes.set_ylabel("GiB on a GPU, by the model")
    axes.grid(axis="x", visible=False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    drawn.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    totals = [sum(values[stage] for values in found.terms.values()) for stage in at]
    return Plot(
        name="memory",
        title=f"Memory of {row.key}",
        alt=f"GiB on a GPU of each of {stages} pipeline stages by term, as stacked bars: from {min(totals):.1f} to "
        f"{max(totals):.1f}, where {found.usable:.1f} are usable.",
        figure=drawn,
    )


def _ladders(rows: Sequence[LeaderboardRow]) -> Plot | None:
    found = series.ladders(rows)
    measured = [row for row in rows if row.place]
    sizes = sorted({row.topology.micro_batch for row in measured})
    if len(sizes) < 2:
        return None
    drawn = figure(9.0, 4.6)
    left, right = drawn.subplots(1, 2)
    usable = rows[0].cluster.gpu.memory / GIB
    grey = {"color": "#bbbbbb", "ms": 4, "label": "every topology with a time", "rasterized": len(measured) > MANY}
    at = [(row.topology.micro_batch, row.workload.global_batch / row.place.seconds) for row in measured if row.place]
    left.plot(*zip(*at, strict=True), "o", **grey)
    at = [(row.topology.micro_batch, row.memory / GIB) for row in measured if row.memory]
    if at:
        right.plot(*zip(*at, strict=True), "o", **grey)
    for place, each in enumerate(found):
        look = {"color": COLOURS[place], "marker": MARKS[place], "ls": LINES[place], "mec": BLACK, "mew": 0.4}
        left.plot(each.micro_batches, each.samples, label=each.label, **look)
        held = [(size, gib) for size, gib in zip(each.micro_batches, each.memory, strict=True) if gib]
        if held:
            right.plot(*zip(*held, strict=True), label=each.label, **look)
    right.axhline(usable, color=VERMILLION, lw=1.4, ls="--")
    near = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "bottom", "color": VERMILLION}
    right.annotate("the card", (0, usable), (4, 2), **near)
    for axes, name in ((left, "sequences a second"), (right, "GiB on the fullest GPU")):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(sizes))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xlim(min(sizes) / 1.25, max(sizes) * 1.25)
        axes.set_xlabel("micro batch, sequences")
        axes.set_ylabel(name)
    right.set_ylim(bottom=0, top=usable * 1.1)
    drawn.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return Plot(
        name="micro-batch",
        title="Micro batch",
        alt=f"Sequences a second and GiB on the fullest GPU against the micro batch ({', '.join(map(str, sizes))}); "
        f"{len(found)} families of topologies that are alike in all else are joined by lines.",
        figure=drawn,
    )
