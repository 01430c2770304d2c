"""Memory against batch with the fit and the limit, and throughput against batch: one column a model."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tuner.core.atomic_write import write_whole
from tuner.core.errors import InputError
from tuner.sizing.max_batch import MaxBatchResult

GIB: Final = 2.0**30
_COLOURS: Final = ("#1f5fa8", "#c4561b", "#2b7a3f", "#7a4b9d")
_MARKS: Final = ("o", "s", "^", "D")
"""For who prints in grey."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One way to train a model: what each batch takes and brings."""

    label: str
    points: tuple[tuple[int, float], ...]
    """Batch and GiB."""
    failed: tuple[int, ...]
    """Batches that ran out of memory."""
    line: tuple[float, float] | None
    """GiB at zero and a sample."""
    rates: tuple[tuple[int, float], ...]
    """Batch and tokens a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A model with its curves."""

    title: str
    usable: float
    """GiB."""
    curves: tuple[Curve, ...]

    @classmethod
    def of(cls, title: str, made: MaxBatchResult) -> Panel:
        """One search as a panel."""
        return cls(title=title, usable=made.usable / GIB, curves=(curve(made, made.source),))


def curve(made: MaxBatchResult, label: str, *, scale: int = 1) -> Curve:
    """A search's answer as a curve; `scale` is sequences of all ranks for each of a micro batch."""
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


def draw(panels: Sequence[Panel], path: Path, *, axis: str = "micro batch") -> None:
    """Write the picture; what its file can be is matplotlib's to say."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    timed = any(own.rates for panel in panels for own in panel.curves)
    rows = 2 if timed else 1
    figure, axes = plt.subplots(
        rows,
        len(panels),
        figsize=(max(5.0, 3.1 * len(panels)), 3.2 * rows + 0.4),
        squeeze=False,
        sharex="col",
        constrained_layout=True,
    )
    for place, panel in enumerate(panels):
        _memory(axes[0][place], panel)
        if timed:
            _rates(axes[1][place], panel)
        axes[rows - 1][place].set_xlabel(axis)
        axes[0][place].set_title(panel.title, fontsize=10)
    axes[0][0].set_ylabel("GiB on a GPU")
    if timed:
        axes[1][0].set_ylabel("thousand tokens a second")
    marked = max(range(len(panels)), key=lambda place: len(axes[0][place].get_legend_handles_labels()[1]))
    axes[0][marked].legend(fontsize=7, loc="lower right")
    drawn = io.BytesIO()
    try:
        figure.savefig(drawn, dpi=110, format=path.suffix[1:] or "png")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, drawn.getvalue())
    except ValueError as error:
        raise InputError(f"{path} cannot be drawn: {error}.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}.") from None
    finally:
        plt.close(figure)


def _memory(axis: Any, panel: Panel) -> None:
    last = max((batch for own in panel.curves for batch in (*own.failed, *(b for b, _ in own.points))), default=1)
    axis.axhline(panel.usable, color="black", linewidth=1.0, linestyle="--")
    axis.annotate("limit", (0.02, panel.usable), xycoords=("axes fraction", "data"), va="bottom", fontsize=8)
    for own, colour, mark in zip(panel.curves, _COLOURS, _MARKS, strict=False):
        if own.line:
            at_zero, slope = own.line
            axis.plot([0, last], [at_zero, at_zero + slope * last], color=colour, linewidth=1.0, alpha=0.6)
        axis.plot(*_apart(own.points), mark, color=colour, markersize=5, label=own.label)
        for place, batch in enumerate(own.failed):
            height = own.line[0] + own.line[1] * batch if own.line else panel.usable
            beyond = height > panel.usable * 1.2
            label = {"label": f"{own.label}, out of memory (^: higher)"} if not place else {}
            axis.plot(
                [batch],
                [min(height, panel.usable * 1.2)],
                "^" if beyond else "x",
                color=colour,
                markersize=8,
                markeredgewidth=2,
                **label,
            )
    axis.set_ylim(0, panel.usable * 1.25)
    axis.set_xlim(left=0)
    axis.grid(alpha=0.2)


def _rates(axis: Any, panel: Panel) -> None:
    for own, colour, mark in zip(panel.curves, _COLOURS, _MARKS, strict=False):
        batches, rates = _apart(own.rates)
        axis.plot(batches, [rate / 1e3 for rate in rates], f"{mark}-", color=colour, markersize=4, linewidth=1.0)
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.2)


def _apart(pairs: Sequence[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [first for first, _ in pairs], [second for _, second in pairs]
