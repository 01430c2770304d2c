"""Plots estimate over measurement for each source of a folder of tables, one line of points per source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.blind import IN_FIT, hardware_of, source_of, tables_in, training_estimates
from tuner.costmodel.evaluation import evaluate

_KINDS: Final = {
    "dense": ("#0072B2", "o"),
    "mixture of experts": ("#D55E00", "^"),
    "in sample": ("#999999", "s"),
}
"""Colour and mark of each kind of source, distinguishable in greyscale."""
_BAND: Final = "0.92"
_LIMITS: Final = (0.4, 2.5)
"""Ratios beyond these are drawn at the edge."""
_TICKS: Final = (0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Estimate over measurement for the runs of one source."""

    name: str
    kind: str
    ratios: tuple[float, ...]

    @property
    def error(self) -> float:
        """The runs' median relative error."""
        return float(np.median(abs(np.array(self.ratios) - 1)))

    @property
    def label(self) -> str:
        """The name, with the number of runs and their median relative error."""
        return f"{self.name} ({len(self.ratios)}): {self.error:.0%}"


def time_lines(folder: Path) -> list[Line]:
    """Return the sources of training runs: dense ones by hardware, mixtures, and those the model is fitted to."""
    found: dict[tuple[str, str], list[float]] = {}
    for table in tables_in(folder):
        name = source_of(table)
        for experts in (False, True):
            for guess in training_estimates(table, experts=experts):
                if experts:
                    key = ("mixture of experts", name)
                elif name in IN_FIT:
                    key = ("in sample", name)
                else:
                    key = ("dense", f"{name} {hardware_of(guess.row)}")
                found.setdefault(key, []).append(guess.seconds / (guess.row.seconds or np.nan))
    return _ordered(found)


def memory_lines(folder: Path) -> list[Line]:
    """Return the sources with memory figures."""
    found: dict[tuple[str, str], list[float]] = {}
    for table in tables_in(folder):
        weighed = tuple(row for row in table.rows if row.weighed)
        for guess in evaluate(replace(table, rows=weighed)).guesses.values() if weighed else ():
            experts = guess.row.run is not None and guess.row.run.workload.model.experts
            key = ("mixture of experts" if experts else "dense", source_of(table))
            found.setdefault(key, []).append(guess.memory / (guess.row.memory or np.nan))
    return _ordered(found)


def plot_accuracy(folder: Path, path: Path) -> None:
    """Draw the sources' times and memory side by side."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    panels = {
        "Time: source (runs), median error": time_lines(folder),
        "Memory: source (runs), median error": memory_lines(folder),
    }
    longest = max(len(lines) for lines in panels.values())
    figure, axes = plt.subplots(1, len(panels), figsize=(12, 1.6 + 0.2 * longest), constrained_layout=True)
    for axis, (title, lines) in zip(axes, panels.items(), strict=True):
        _panel(axis, title, lines, room=longest)
    marks: list[Any] = [
        Line2D([], [], color=colour, marker=mark, linestyle="", label=kind) for kind, (colour, mark) in _KINDS.items()
    ]
    marks.append(Patch(color=_BAND, label="within 10%"))
    figure.legend(handles=marks, loc="outside lower center", ncols=len(marks), frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _panel(axis: Any, title: str, lines: Sequence[Line], *, room: int) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axis.axvspan(0.9, 1.1, color=_BAND, zorder=0)
    axis.axvline(1.0, color="black", linewidth=0.8, zorder=1)
    for place, line in enumerate(lines):
        colour, mark = _KINDS[line.kind]
        shown = np.clip(line.ratios, *_LIMITS)
        axis.scatter(shown, np.full(len(shown), place), s=14, alpha=0.5, color=colour, marker=mark, linewidths=0)
    axis.set(title=title, xscale="log", xlim=(_LIMITS[0] * 0.97, _LIMITS[1] * 1.03), ylim=(room - 0.5, -0.5))
    axis.set_yticks(range(len(lines)), [line.label for line in lines], fontsize=8)
    axis.xaxis.set_major_locator(FixedLocator(_TICKS))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_xlabel("uncalibrated estimate / measurement")
    axis.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)


def _ordered(found: dict[tuple[str, str], list[float]]) -> list[Line]:
    """Return the lines by kind, and the best of each kind first."""
    kinds = list(_KINDS)
    lines = [Line(name=name, kind=kind, ratios=tuple(ratios)) for (kind, name), ratios in found.items()]
    return sorted(lines, key=lambda line: (kinds.index(line.kind), line.error))
