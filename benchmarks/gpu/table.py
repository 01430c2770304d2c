"""The stages `table` and `blind`: a measurement table of the results, its blind evaluation, and plots."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.gpu.jobs import MAX_LEFT
from benchmarks.gpu.plan import ITERATIONS
from benchmarks.gpu.plots import EXTRA, KINDS, plot
from benchmarks.gpu.results import Results
from benchmarks.gpu.searches import findings
from tuner.core.domain import MemoryKind
from tuner.costmodel.evaluation import RowEstimate, evaluate
from tuner.tables import columns_of, read_table, write_csv

TABLE: Final = "table.csv"
STAGES: Final = ("rows", "moe", "megatron", "searches")
PACKAGES: Final = ("torch", "deepspeed", "megatron-core", "transformer-engine")
STATED: Final = frozenset({"OK", "OOM", "FAIL", "HANG"})
SEEDS: Final = range(8)
FEW: Final = 5
"""Calibration rows of the evaluation after the blind one."""
SPLITS: Final = ("status", "hidden", "layers", "seq", "mbs", "gbs", "zero", "recompute", "attention", "precision")
SPLITS_TOO: Final = ("gated_mlp", "vocab", "offload", "experts", "head")


def measured_rows(results: Results, kind: MemoryKind) -> list[dict[str, str]]:
    """Return the cells of every row that ran, with its memory of the given kind."""
    entries = [each for stage in STAGES for each in results.of(stage)]
    return [_row(each, kind) for each in entries if "cells" in each and each.get("status") in STATED]


def _row(entry: Mapping[str, Any], kind: MemoryKind) -> dict[str, str]:
    cells = {**entry["cells"], "status": entry["status"], "note": _note(entry)}
    if entry["status"] != "OK":
        return cells
    seconds = entry["seconds"]
    cells["sec_per_iter"] = f"{settled(seconds):.6g}"
    cells["sec_iterations"] = " ".join(f"{each:.6g}" for each in seconds)
    if entry.get("memory_kind") != "device" or entry.get("before", {}).get("allocated", 0) > MAX_LEFT:
        return cells  # a CPU's resident set is not GPU memory, and what earlier rows left is not this one's
    memory = {name: f"{entry[name]:.4f}" for name in EXTRA if name in entry and name != "sec_iterations"}
    cells |= memory
    if (figure := memory.get(f"{kind}_gib")) is not None:
        cells |= {"mem_gib": figure, "mem_kind": kind}
    return cells


def settled(seconds: Sequence[float]) -> float:
    """Return the second iteration, as the product measures, or of more than three the median after the first."""
    return seconds[1] if len(seconds) <= ITERATIONS else median(seconds[1:])


def _note(entry: Mapping[str, Any]) -> str:
    """Return a note with date, device, versions, and how the row ran."""
    parts = [str(entry["at"])[:10]]
    if entry.get("device"):
        parts.append(str(entry["device"]))
    if versions := entry.get("versions"):
        parts.append(", ".join(f"{name} {versions[name]}" for name in PACKAGES if name in versions))
    parts.append({"alone": "a job of its own"}.get(str(entry.get("how")), "in a shared process"))
    if entry.get("adam") == "torch":
        parts.append("torch's fused Adam")
    if entry.get("skipped"):
        parts.append(f"{entry['skipped']} optimizer steps skipped")
    if entry["status"] not in ("OK", "OOM"):
        parts.append(str(entry.get("meaning", "")))
    return "; ".join(parts)


def write_table(results: Results, path: Path, kind: MemoryKind = "reserved") -> int:
    """Write the table of all rows that ran; return their number."""
    rows = measured_rows(results, kind)
    used = {column for row in rows for column in row}
    columns = [*columns_of(rows), *(column for column in EXTRA if column in used)]
    path.write_text(write_csv(columns, rows))
    return len(rows)


def blind(results: Results, folder: Path) -> dict[str, Any]:
    """Evaluate the table blind and calibrated on five rows; print the figures, and write them and the plots."""
    found: dict[str, Any] = {"rows": write_table(results, folder / TABLE)}
    for kind in KINDS:
        path = folder / f"table-{kind}.csv"
        write_table(results, path, kind)
        found[kind] = {"blind": asdict(evaluate(read_table(path)).summary)}
        path.unlink()
    evaluation = evaluate(read_table(folder / TABLE))
    found["groups"] = {name: asdict(summary) for name, summary in evaluation.groups.items()}
    after = [evaluate(evaluation.table, calibrate_rows=FEW, seed=seed).summary for seed in SEEDS]
    found["after five rows"] = {
        name: _mean(getattr(each, name) for each in after)
        for name in ("sec_mape", "sec_median_ape", "mem_mape", "balanced_accuracy")
    }
    found["by"] = by_column(evaluation.guesses.values())
    found["repeats"] = repeats(results)
    found["searches"] = findings(results)
    (folder / "blind.json").write_text(json.dumps(found, indent=1) + "\n")
    plot(evaluation, folder)
    _print(found)
    return found


def by_column(guesses: Iterable[RowEstimate]) -> dict[str, dict[str, dict[str, float | int | None]]]:
    """Return the median relative error for each value of each column, to show which terms are wrong."""
    split: dict[str, dict[str, list[RowEstimate]]] = {}
    for guess in guesses:
        cells = dict(guess.row.cells)
        cells["head"] = cells.get("head_dim") or str(int(cells["hidden"]) // int(cells["heads"]))
        for column in (*SPLITS, *SPLITS_TOO):
            split.setdefault(column, {}).setdefault(cells.get(column, "-"), []).append(guess)
    return {
        column: {
            value: {
                "rows": len(own),
                "seconds": _middle(each.seconds / each.row.seconds - 1 for each in own if each.row.seconds),
                "memory": _middle(each.memory / each.row.memory - 1 for each in own if each.row.memory),
            }
            for value, own in values.items()
        }
        for column, values in split.items()
        if len(values) > 1
    }


def repeats(results: Results) -> list[dict[str, Any]]:
    """Return the differences of repeats, in the shared process and as separate jobs, from the first run of a row."""
    entries = {each["name"]: each for each in results.of("rows") if each.get("status") == "OK"}
    found = []
    for name, first in entries.items():
        own = {word: entries.get(f"{name}-{word}") for word in ("second", "third", "alone")}
        again = {word: each["seconds"][1] / first["seconds"][1] - 1 for word, each in own.items() if each}
        if again:
            memory = {f"{word} GiB": each["reserved_gib"] - first["reserved_gib"] for word, each in own.items() if each}
            found.append({"name": name, **again, **memory})
    return found


def _print(found: Mapping[str, Any]) -> None:
    summary = found["reserved"]["blind"]
    print(f"{found['rows']} rows; blind: {_shown(summary)}")
    for kind in KINDS:
        print(f"  memory {kind}: {_percent(found[kind]['blind']['mem_mape'])} mean error")
    print(f"after {FEW} rows: {_shown(found['after five rows'])}")
    print(f"searches: {json.dumps(found['searches'])}")
    print("\n| column | value | rows | seconds | memory |\n|---|---|---|---|---|")
    for column, values in found["by"].items():
        for value, own in values.items():
            print(f"| {column} | {value} | {own['rows']} | {_percent(own['seconds'])} | {_percent(own['memory'])} |")


def _shown(summary: Mapping[str, Any]) -> str:
    names = ("sec_mape", "sec_median_ape", "mem_mape", "balanced_accuracy")
    return ", ".join(f"{name} {_percent(summary[name])}" for name in names)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _middle(values: Iterable[float]) -> float | None:
    found = list(values)
    return median(found) if found else None


def _mean(values: Iterable[float | None]) -> float | None:
    found = [each for each in values if each is not None]
    return sum(found) / len(found) if found else None
