"""Accuracy of the estimates against published measurements, with the target of each figure.

    python -m benchmarks.accuracy [--tables FOLDER] [--plots FOLDER]
    python -m benchmarks.accuracy --check | --record

Reads corpus/ unless another folder is given. The first table lists the time error of each source, blind (no constant
was fitted to it) or in sample, next to a baseline with one constant per group. Every further figure is printed with its
target; figures that a table cannot provide are left out. `--plots` draws estimate against measurement. `--check`
compares the figures of each source with those recorded in benchmarks/accuracy.json, prints one sentence for each figure
that got worse and then exits with code 1; `--record` writes that file.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.accuracy_plot import plot_accuracy
from benchmarks.blind import print_mixture_errors, print_source_errors
from benchmarks.recorded_accuracy import RECORD, SOURCES, measure, read_record, worse, write_record
from tuner.audit import audit, fixed
from tuner.core.errors import NothingUsable
from tuner.costmodel.estimate import CostModel
from tuner.costmodel.evaluation import Evaluation, evaluate
from tuner.space.build import space_for
from tuner.tables import Row, Table, read_table, table_of

ROOT: Final = Path(__file__).resolve().parent.parent
CORPUS: Final = ROOT / "corpus"
SEEDS: Final = range(8)
ROWS: Final = 5
DAY: Final = re.compile(r"\d\d-\d\d")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or compare with the recorded figures; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, default=CORPUS, help="folder of measurement tables")
    parser.add_argument("--plots", type=Path, help="folder for accuracy.png")
    parser.add_argument("--check", action="store_true", help="fail if a figure is worse than recorded")
    parser.add_argument("--record", action="store_true", help="record the figures")
    parser.add_argument("--source", action="append", choices=SOURCES, help="check this source only (repeatable)")
    given = parser.parse_args(arguments)
    if given.check or given.record:
        return _check_or_record(given.source or SOURCES, record=given.record)
    tables = {path.stem: read_table(path) for path in sorted(given.tables.glob("*.csv"))}
    print_source_errors(given.tables)
    print()
    print_mixture_errors(given.tables)
    print(f"\n{len(tables)} tables; drawn rows: mean over {len(SEEDS)} seeds\n")
    print("| | figure | target |\n|---|---|---|")
    for name, table in tables.items():
        if name.startswith("bloom"):
            _bloom(name, _by_day(_cleaned(table)))
        elif any(row.timed for row in table.rows):
            _other(name, table)
        if name.startswith("enoki"):
            _by_way(name, table)
    for name, table in tables.items():
        _memory(name, table)
    _intervals(tables)
    _speed()
    if given.plots:
        given.plots.mkdir(parents=True, exist_ok=True)
        plot_accuracy(given.tables, given.plots / "accuracy.png")
    return 0


def _check_or_record(sources: Sequence[str], *, record: bool) -> int:
    measured = measure(sources)
    recorded = read_record() if RECORD.exists() else {}
    if record:
        write_record(recorded | measured)
        print(f"recorded {len(measured)} sources in {RECORD.relative_to(ROOT)}")
        return 0
    expected = recorded if set(sources) == set(SOURCES) else {name: recorded[name] for name in sources}
    sentences = worse(expected, measured)
    counted = "1 source" if len(measured) == 1 else f"{len(measured)} sources"
    print("\n".join(sentences) or f"{counted}: no figure is worse than recorded.")
    return 1 if sentences else 0


def _cleaned(table: Table) -> Table:
    """Return the table with the repairs that the audit suggests."""
    return table_of(fixed(table, audit(table)), table.name)


def _by_day(table: Table) -> Table:
    return replace(table, rows=tuple(replace(row, group=_day(row)) for row in table.rows))


def _day(row: Row) -> str:
    found = DAY.search(row.group)
    return found[0] if found else row.group


def _bloom(name: str, table: Table) -> None:
    runs = [evaluate(table, calibrate_rows=ROWS, seed=seed) for seed in SEEDS]
    _line(f"{name}: median error of time, {ROWS} rows of each day", _mean(runs, "sec_median_ape"), "at most 3%")
    _line(f"{name}: mean error of time", _mean(runs, "sec_mape"), "at most 4%")
    _line(f"{name}: pairs more than 2% apart in order", _mean(runs, "pairs_in_order"), "at least 90%")
    _line(f"{name}: regret of the best-liked row of a day", _mean(runs, "top1_regret"), "at most 1%")
    _line(f"{name}: median error, no calibration", evaluate(table).summary.sec_median_ape, "")


def _other(name: str, table: Table) -> None:
    summary = evaluate(table).summary
    judged = name.split("-")[0] in ("aleph", "vtrain", "mpt", "megatron")
    _line(f"{name}: median error of time, no calibration", summary.sec_median_ape, "at most 10%" if judged else "")
    if summary.kendall_tau is not None:
        print(
            f"| {name}: Kendall's tau within groups | {summary.kendall_tau:.2f} | {'at least 0.80' if judged else ''} |"
        )
    with suppress(NothingUsable):  # where the drawn rows are all timed ones
        runs = [evaluate(table, calibrate_rows=ROWS, seed=seed) for seed in SEEDS]
        _line(
            f"{name}: median error, {ROWS} rows of each group, {runs[0].summary.timed_rows} scored",
            _mean(runs, "sec_median_ape"),
            "at most 4%" if judged else "",
        )


def _by_way(name: str, table: Table) -> None:
    """Print the errors with each tensor-parallel degree calibrated separately, on rows of its own."""
    ways = tuple(replace(row, group=f"tp{row.run.topology.tp}") for row in table.rows if row.run)
    runs = [evaluate(replace(table, rows=ways), calibrate_rows=ROWS, seed=seed) for seed in SEEDS]
    _line(f"{name}: median error, {ROWS} rows of each way", _mean(runs, "sec_median_ape"), "at most 8%")
    _line(f"{name}: mean error, {ROWS} rows of each way", _mean(runs, "sec_mape"), "")


def _memory(name: str, table: Table) -> None:
    made = evaluate(_cleaned(table) if name.startswith("bloom") else table)
    judged = name.split("-")[0] in ("bloom", "enoki", "tr3m")
    if made.summary.mem_rows:
        _line(f"{name}: mean error of memory", made.summary.mem_mape, "at most 6%" if judged else "")
    if made.summary.balanced_accuracy is not None:
        _line(f"{name}: fits or not, balanced accuracy", made.summary.balanced_accuracy, "at least 97%")
        chances = [guess.out_of_memory for guess in made.guesses.values() if guess.row.status == "OOM"]
        _line(f"{name}: least chance given to a run that was out of memory", min(chances), "above 5%")


def _intervals(tables: dict[str, Table]) -> None:
    """Print the share of measurements within their 80% interval, over all tables."""
    inside: dict[int, list[bool]] = {0: [], ROWS: []}
    for table in tables.values():
        for rows, held in inside.items():
            with suppress(NothingUsable):
                made = evaluate(_cleaned(table), calibrate_rows=rows)
                fresh = [guess for index, guess in made.guesses.items() if index not in made.calibrated_on]
                held += [guess.low <= guess.row.seconds <= guess.high for guess in fresh if guess.row.seconds]
    for rows, held in inside.items():
        if held:
            label = f"{rows} rows of each group" if rows else "no calibration"
            _line(f"measurements within their 80% interval, {label}", float(np.mean(held)), "70% to 90%")


def _speed() -> None:
    space = space_for()
    points = np.concatenate(list(space.blocks()))
    columns = space.columns(points)
    model, best = CostModel(), float("inf")
    for _ in range(5):
        started = time.perf_counter()
        _ = model.score(columns).fits
        best = min(best, time.perf_counter() - started)
    rate = f"{len(points) / best:,.0f}"
    print(f"| topologies scored for time and memory a second, one core | {rate} | at least 1,000,000 |")
    started = time.perf_counter()
    found = np.concatenate(list(space.blocks()))
    _ = model.score(space.columns(found)).fits
    whole = f"{time.perf_counter() - started:.2f} s"
    print(f"| default 48-node space, {len(found):,} legal, enumerated and scored | {whole} | under 1 s |")


def _line(label: str, value: float | None, target: str) -> None:
    if value is not None:
        print(f"| {label} | {100 * value:.1f}% | {target} |")


def _mean(runs: Sequence[Evaluation], name: str) -> float | None:
    values = [value for made in runs if (value := getattr(made.summary, name)) is not None]
    return float(np.mean(values)) if values else None


if __name__ == "__main__":
    sys.exit(main())
