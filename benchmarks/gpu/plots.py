"""Plots of the GPU benchmark: estimate against measurement, and memory against micro-batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from tuner.core.domain import MemoryKind
from tuner.costmodel.evaluation import Evaluation, RowEstimate
from tuner.tables import Row

KINDS: Final[tuple[MemoryKind, ...]] = ("reserved", "allocated", "smi")
EXTRA: Final = ("allocated_gib", "reserved_gib", "smi_gib", "sec_iterations")
"""Columns in addition to the format's, which readers keep: memory of each kind, and seconds of all iterations."""
ACROSS: Final = 3
"""Plots of memory beside each other."""
LADDER: Final = 4
"""Minimum number of different micro-batches of a plotted ladder."""
CLASSES: Final = {
    "dense": "dense, ZeRO 0 to 2",
    "small": "dense, micro-batch of 1 or 2",
    "zero3": "dense, ZeRO 3",
    "experts": "mixture of experts",
    "megatron": "Megatron-Core, dense",
    "megatron-experts": "Megatron-Core, mixture of experts",
}
"""The kinds of rows that a plot distinguishes, with their labels."""
LOOKS: Final = (
    ("#0072B2", "o"),
    ("#56B4E9", "o"),
    ("#009E73", "s"),
    ("#D55E00", "^"),
    ("#000000", "D"),
    ("#CC79A7", "v"),
)
"""Colour and mark of each of them."""
SMALL: Final = 2
"""Micro-batch up to which the host limits many rows."""


def plot(evaluation: Evaluation, folder: Path) -> None:
    """Plot estimate against measurement, and memory against micro-batch."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    guesses = list(evaluation.guesses.values())
    timed = [each for each in guesses if each.row.timed]
    figure, axes = plt.subplots(figsize=(6.4, 5.5), constrained_layout=True)
    for (kind, chosen), (color, mark) in zip(CLASSES.items(), LOOKS, strict=True):
        own = [each for each in timed if class_of(each.row) == kind]
        if not own:
            continue
        error = median(abs(each.seconds / (each.row.seconds or 1) - 1) for each in own)
        label = f"{chosen} ({len(own)}): {error:.0%}"
        points = [each.row.seconds or 0 for each in own], [each.seconds for each in own]
        axes.scatter(*points, s=22, color=color, marker=mark, label=label, alpha=0.8, linewidths=0)
    if timed:
        ends = [each.row.seconds or 0 for each in timed] + [each.seconds for each in timed]
        axes.plot([min(ends), max(ends)], [min(ends), max(ends)], color="0.6", linewidth=1, zorder=0)
        axes.set(xscale="log", yscale="log")
    axes.set(xlabel="measured seconds per iteration", ylabel="estimated seconds, blind")
    axes.legend(title="rows: median error", frameon=False)
    figure.savefig(folder / "estimates.png", dpi=110)
    plt.close(figure)
    _ladders(ladders(guesses), folder / "memory.png")


def class_of(row: Row) -> str:
    """Return which of `CLASSES` a row belongs to."""
    experts, cells = row.cells.get("experts", "0") not in ("", "0"), row.cells
    if cells.get("framework") == "megatron-core":
        return "megatron-experts" if experts else "megatron"
    if experts:
        return "experts"
    if cells["zero"] == "3":
        return "zero3"
    return "small" if int(cells["mbs"]) <= SMALL and int(cells["seq"]) <= 8192 else "dense"


def ladders(guesses: Iterable[RowEstimate]) -> dict[tuple[tuple[str, str], ...], list[RowEstimate]]:
    """Return the groups of rows that differ only in their batch, if they have several batches of which one failed."""
    split: dict[tuple[tuple[str, str], ...], list[RowEstimate]] = {}
    left_out = {*EXTRA, "mbs", "gbs", "sec_per_iter", "mem_gib", "mem_kind", "status", "note", "group"}
    for guess in guesses:
        key = tuple(sorted((name, value) for name, value in guess.row.cells.items() if name not in left_out))
        split.setdefault(key, []).append(guess)
    enough = {key: own for key, own in split.items() if len({each.row.cells["mbs"] for each in own}) >= LADDER}
    return {key: own for key, own in enough.items() if any(each.row.status == "OOM" for each in own)}


def _ladders(found: Mapping[Any, Sequence[RowEstimate]], path: Path) -> None:
    import matplotlib.pyplot as plt

    rows = -(-max(1, len(found)) // ACROSS)
    size = 4.2 * ACROSS, 3.6 * rows
    figure, grid = plt.subplots(rows, ACROSS, figsize=size, constrained_layout=True, squeeze=False)
    panels = list(grid.flat)
    for axes, (key, own) in zip(panels, found.items(), strict=False):
        ordered, about = sorted(own, key=lambda each: int(each.row.cells["mbs"])), dict(key)
        batches = [int(each.row.cells["mbs"]) for each in ordered]
        axes.plot(batches, [each.need / 2**30 for each in ordered], color="0.5", label="estimated need")
        for kind in KINDS:
            points = [(batch, each.row.cells.get(f"{kind}_gib")) for batch, each in zip(batches, ordered, strict=True)]
            good = [(batch, float(value)) for batch, value in points if value]
            axes.scatter([batch for batch, _ in good], [value for _, value in good], s=16, label=kind)
        failed = [each for each in ordered if each.row.status == "OOM"]
        axes.scatter(
            [int(each.row.cells["mbs"]) for each in failed],
            [each.need / 2**30 for each in failed],
            marker="x",
            color="tab:red",
            label="out of memory",
        )
        recompute = about.get("recompute", "none")
        axes.set(title=f"h{about['hidden']} x {about['layers']}, s{about['seq']}, recompute {recompute}")
        axes.set(xlabel="micro-batch", ylabel="GiB", xlim=(0, None), ylim=(0, None))
    for axes in panels[len(found) :]:
        axes.set_visible(False)
    if found:
        panels[0].legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)
