"""Plots of memory and throughput by batch size, with one column per model."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tuner.core.atomic_write import write_output
from tuner.core.errors import InputError
from tuner.core.quantity import GIB
from tuner.sizing.compare import Comparison
from tuner.sizing.max_batch import MaxBatchResult

if TYPE_CHECKING:
    from tuner.report.canvas import Figure

MODELS_ACROSS: Final = 3
"""Models side by side; further ones are drawn below them."""

_LEGEND: Final = 0.5
"""Inches of a legend for which the figure has room."""

_MARKS: Final = ("o", "s", "D", "v", "P", "*", "p", "h")
"""Distinguish the curves in grey prints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Memory and throughput by batch size for one way to train a model."""

    label: str
    points: tuple[tuple[int, float], ...]
    """Batch size and GiB."""
    failed: tuple[int, ...]
    """Batch sizes that ran out of memory."""
    line: tuple[float, float] | None
    """Fitted GiB at batch size 0 and per sample."""
    rates: tuple[tuple[int, float], ...]
    """Batch size and tokens per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """The curves of one model."""

    title: str
    usable: float
    """Usable GPU memory in GiB."""
    curves: tuple[Curve, ...]


def plot_batches(result: MaxBatchResult | Comparison, path: str | Path) -> None:
    """Plot memory and throughput against batch size, in any format that matplotlib supports; one panel per model."""
    if isinstance(result, MaxBatchResult):
        own = Panel(title="", usable=result.usable / GIB, curves=(curve(result, result.source),))
        draw([own], Path(path))
        return
    panels = [
        Panel(
            title=options[0].title,
            usable=options[0].answer.usable / GIB,
            curves=tuple(curve(option.answer, option.label, scale=option.topology.dp) for option in options),
        )
        for options in result.models
    ]
    draw(panels, Path(path), axis="sequences per step, all ranks")


def curve(made: MaxBatchResult, label: str, *, scale: int = 1) -> Curve:
    """Return a search as a curve; `scale` is the number of sequences on all ranks per sequence of a micro-batch."""
    seen = sorted({each.micro_batch: each for each in made.found.attempts}.items())
    line = made.fit
    return Curve(
        label=label,
        points=tuple((batch * scale, each.peak_memory / GIB) for batch, each in seen if each.fits and each.peak_memory),
        failed=tuple(batch * scale for batch, each in seen if each.too_large),
        line=(line.at_zero / GIB, line.per_sample / GIB / scale) if line else None,
        rates=tuple(
            (each.micro_batch * scale, each.tokens_per_second) for each in made.worth if each.tokens_per_second
        ),
    )


def draw(panels: Sequence[Panel], path: Path, *, axis: str = "micro-batch size") -> None:
    """Draw the panels to a file in any format that matplotlib supports."""
    from tuner.report.canvas import drawing

    with drawing({}):
        _save(_figure(panels, axis), path)


def _figure(panels: Sequence[Panel], axis: str) -> Figure:
    """Return the panels as one figure."""
    from tuner.report.canvas import Figure, MaxNLocator
    from tuner.report.style import legend_below, plain_numbers

    figure = Figure(layout="constrained")
    timed = any(own.rates for panel in panels for own in panel.curves)
    rows, across = 2 if timed else 1, min(MODELS_ACROSS, len(panels))
    blocks = math.ceil(len(panels) / across)
    height = 3.2 * rows * blocks + 0.4
    figure.set_size_inches(max(5.0, 3.1 * across), height)
    axes = figure.subplots(rows * blocks, across, squeeze=False)
    marks: dict[str, Any] = {}
    for index in range(blocks * across):
        block, column = divmod(index, across)
        first, last = axes[block * rows][column], axes[block * rows + rows - 1][column]
        if index >= len(panels):
            first.remove()
            if timed:
                last.remove()
            continue
        if timed:
            last.sharex(first)
            first.tick_params(labelbottom=False)
            _rates(last, panels[index])
        _memory(first, panels[index])
        last.set_xlabel(axis)
        last.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        plain_numbers(last.xaxis)
        plain_numbers(last.yaxis)
        first.set_title(panels[index].title, fontsize=10)
        if column == 0:
            last.set_ylabel("thousand tokens per second")
            first.set_ylabel("GiB per GPU")
        marks |= {label: mark for mark, label in zip(*first.get_legend_handles_labels(), strict=True)}
    legend = legend_below(figure, across, list(marks.values()), list(marks), fontsize=8)
    figure.set_figheight(height + max(0.0, legend - _LEGEND))
    return figure


def _looks(panel: Panel) -> list[tuple[Curve, str, str]]:
    """Return each curve with its colour and mark, the same in each panel."""
    from tuner.report.style import COLOURS

    return [(own, COLOURS[index % len(COLOURS)], _MARKS[index % len(_MARKS)]) for index, own in enumerate(panel.curves)]


def _save(figure: Figure, path: Path) -> None:
    image = io.BytesIO()
    try:
        figure.savefig(image, dpi=110, format=path.suffix[1:] or "png")
    except ValueError as error:
        raise InputError(f"cannot draw {path}: {error}.") from None
    write_output(path, image.getvalue())


def _memory(axis: Any, panel: Panel) -> None:
    last = max((batch for own in panel.curves for batch in (*own.failed, *(b for b, _ in own.points))), default=1)
    axis.axhline(panel.usable, color="black", linewidth=1.0, linestyle="--")
    axis.annotate("limit", (0.02, panel.usable), xycoords=("axes fraction", "data"), va="bottom", fontsize=8)
    for own, colour, mark in _looks(panel):
        if own.line:
            at_zero, slope = own.line
            axis.plot([0, last], [at_zero, at_zero + slope * last], color=colour, linewidth=1.0, alpha=0.6)
        axis.plot(*_unzip(own.points), mark, color=colour, markersize=5, label=own.label)
        for batch in own.failed:
            height = own.line[0] + own.line[1] * batch if own.line else panel.usable
            beyond = height > panel.usable * 1.2
            axis.plot(
                [batch],
                [min(height, panel.usable * 1.2)],
                "^" if beyond else "x",
                color=colour,
                markersize=8,
                markeredgewidth=2,
                label=f"{own.label}, out of memory{', off the scale' * beyond}",
            )
    axis.set_ylim(0, panel.usable * 1.25)
    axis.set_xlim(left=0)
    axis.grid(alpha=0.2)


def _rates(axis: Any, panel: Panel) -> None:
    for own, colour, mark in _looks(panel):
        batches, rates = _unzip(own.rates)
        axis.plot(batches, [rate / 1e3 for rate in rates], f"{mark}-", color=colour, markersize=4, linewidth=1.0)
    axis.set_ylim(0, 1.08e-3 * max((rate for own in panel.curves for _, rate in own.rates), default=1e3))
    axis.grid(alpha=0.2)


def _unzip(pairs: Sequence[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [first for first, _ in pairs], [second for _, second in pairs]
