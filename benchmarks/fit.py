"""Fit the constants of the cost model to published measurements, and record all constants.

    python -m benchmarks.fit [--tables FOLDER] [--record]
    python -m benchmarks.fit --records

The first command prints, for each source, the median error of time and of memory with first-principles values, with
the package's constants, fitted to all other sources, and fitted to all sources; then the prior, fitted and current
value of each constant. `--record` also writes `benchmarks/constants.toml`, which lists every constant of the package
with its unit, source and kind, followed by the fitted values. `--records` rewrites only the package's part of that
file and keeps the fit's part; a test fails if the package and the file differ.

Only dense training runs are used, as in `benchmarks.blind`. The sources of `modern/` are part of this fit; their errors
are blind only in the column that leaves their own source out. The same tables always produce the same file, apart from
the date in it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final

import numpy as np

import tuner.search.constants
from benchmarks.blind import IN_FIT, OTHER_TIMES, is_training
from benchmarks.fit_priors import MEMORY_PRIORS, TIME_PRIORS
from benchmarks.fit_problem import Fit, Problem, Sample, memory_samples, time_samples, value_of
from benchmarks.recorded_accuracy import CORPUS, ROOT, cleaned
from tuner.core.catalog import read_toml
from tuner.costmodel import (
    calibration_constants,
    constants,
    delta_constants,
    expert_constants,
    link_constants,
    offload_constants,
    stack_constants,
)
from tuner.costmodel.constants import Constant
from tuner.costmodel.estimate import INTERVAL
from tuner.tables import Row, read_table

CONSTANTS: Final = ROOT / "benchmarks" / "constants.toml"
PACKAGES: Final = {
    "costmodel": constants.RECORDS,
    "links": link_constants.RECORDS,
    "stacks": stack_constants.RECORDS,
    "experts": expert_constants.RECORDS,
    "delta": delta_constants.RECORDS,
    "offload": offload_constants.RECORDS,
    "calibration": calibration_constants.RECORDS,
    "search": tuner.search.constants.RECORDS,
}
UNUSED: Final = ("e1-400m-ada",)
"""Tables of models that are not transformers."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit, print and record; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, default=CORPUS, help="folder of measurement tables")
    parser.add_argument("--record", action="store_true", help="write constants.toml")
    parser.add_argument("--records", action="store_true", help="rewrite the package's part of constants.toml only")
    parser.add_argument("-o", "--output", type=Path, default=CONSTANTS, help="the file to write")
    given = parser.parse_args(arguments)
    if given.records:
        fitted = read_toml(given.output).get("fit", {}) if given.output.exists() else {}
        given.output.write_text(document(fitted), encoding="utf-8")
        return 0
    times, memories = samples_of(given.tables)
    fitted = {}
    for kind, samples, priors in (("time", times, TIME_PRIORS), ("memory", memories, MEMORY_PRIORS)):
        if samples:
            problem = Problem(samples, priors)
            study = LeftOut.of(problem)
            _print(kind, problem, study)
            fitted |= fit_entries(problem, study.whole, date.today().isoformat())
    if given.record:
        given.output.write_text(document(fitted), encoding="utf-8")
    return 0


def samples_of(folder: Path) -> tuple[list[Sample], list[Sample]]:
    """Return the time samples and the memory samples of the tables in a folder."""
    times: list[Sample] = []
    memories: list[Sample] = []
    for path in sorted(folder.rglob("*.csv")):
        rows = [row for row in cleaned(read_table(path)).rows if _is_dense(row)]
        timed = [row for row in rows if is_training(row, experts=False)]
        if timed and path.stem not in OTHER_TIMES:
            times += time_samples(path.stem, timed)
        if path.stem not in UNUSED and any(row.weighed or row.status == "OOM" for row in rows):
            memories += memory_samples(path.stem, rows)
    return times, memories


def _is_dense(row: Row) -> bool:
    return row.run is not None and row.skipped is None and not row.run.workload.model.experts


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """The fit to all sources, and for each source the fit to all others."""

    whole: Fit
    others: Mapping[str, Fit]

    @classmethod
    def of(cls, problem: Problem) -> LeftOut:
        """Fit to all sources, keeping the better of two starting points, then once without each source."""
        starts = (None, {name: value_of(name) for name in problem.priors})
        whole = min((problem.fit(start) for start in starts), key=lambda fit: fit.cost)
        others = {name: problem.fit_without(name, whole) for name in problem.sources}
        return cls(whole=whole, others=others)


def fit_entries(problem: Problem, whole: Fit, day: str) -> dict[str, dict[str, Any]]:
    """Return the recorded entry of each fitted constant."""
    return {
        name: {
            "value": _rounded(whole.values[name]),
            "interval": [
                _rounded(whole.values[name] * np.exp(-INTERVAL * whole.deviations[name])),
                _rounded(min(prior.most, whole.values[name] * np.exp(INTERVAL * whole.deviations[name]))),
            ],
            "first_principles": _rounded(prior.value),
            "reason": prior.reason,
            "rows": problem.rows_behind(name, whole.values),
            "sources": len(problem.sources),
            "date": day,
        }
        for name, prior in problem.priors.items()
    }


def kind_of(record: Constant) -> str:
    """Return the kind of origin of a constant, derived from the source in its record."""
    words = record.source
    if "no source" in words and ";" not in words:
        return "no source"
    if "fitted" in words and "not fitted" not in words:
        return "fitted"
    return "first principles" if words.startswith(("counted", "inferred")) else "source"


def document(fitted: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text of the file: the constants by package, then the fitted values."""
    lines = ["# Written by `python -m benchmarks.fit`. Intervals contain 80% of a constant's posterior.", ""]
    for package, records in PACKAGES.items():
        for name, record in records.items():
            lines += _table(f"{package}.{name}", package_entry(record))
    for name, entry in fitted.items():
        lines += _table(f'fit."{name}"', entry)
    return "\n".join(lines)


def package_entry(record: Constant) -> dict[str, Any]:
    """Return the recorded entry of a constant of the package."""
    entry = {"value": _plain(record.value), "unit": record.unit, "kind": kind_of(record), "source": record.source}
    if record.interval is not None:
        entry["interval"] = list(record.interval)
    return entry | ({"date": record.date} if record.date is not None else {})


def _plain(value: Any) -> Any:
    """Convert a value to TOML's types; the keys of a table become strings."""
    if isinstance(value, Mapping):
        return {" ".join(key) if isinstance(key, tuple) else str(key): _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _table(name: str, entry: Mapping[str, Any]) -> list[str]:
    return [f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in entry.items()), ""]


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _print(kind: str, problem: Problem, study: LeftOut) -> None:
    first = {name: prior.value for name, prior in problem.priors.items()}
    present = {name: value_of(name) for name in problem.priors}
    print(f"\n| {kind}: median error | rows | first principles | package | fitted to the others | fitted to all |")
    print("|---|---:|---:|---:|---:|---:|")
    columns: dict[str, list[float]] = {}
    for source in problem.sources:
        values = (first, present, study.others[source].values, study.whole.values)
        errors = [problem.error_of(source, each) for each in values]
        known = [error for error in errors if error is not None]
        words = [f"{100 * error:.1f}%" for error in known] or [_sides(problem, source, each) for each in values]
        columns |= {source: known} if known else {}
        print(f"| {source} | {int(problem.rows_of(source).sum())} | {' | '.join(words)} |")
    _print_means("mean of the sources", list(columns.values()))
    if kind == "time":
        _print_means("mean of those new to the package", [own for name, own in columns.items() if name not in IN_FIT])
    print(f"\n| {kind} | first principles | fitted | 80% | package | rows |\n|---|---:|---:|---|---:|---:|")
    for name, entry in fit_entries(problem, study.whole, "").items():
        low, high = entry["interval"]
        figures = f"{entry['first_principles']:g} | {entry['value']:g} | {low:g} to {high:g} | {present[name]:g}"
        print(f"| {name} | {figures} | {entry['rows']} |")


def _print_means(label: str, errors: Sequence[Sequence[float]]) -> None:
    if errors:
        means = (f"{100 * mean:.1f}%" for mean in np.mean(errors, axis=0))
        print(f"| {label} | | {' | '.join(means)} |")


def _sides(problem: Problem, source: str, values: Mapping[str, float]) -> str:
    wrong, rows = problem.wrong_side(source, values)
    return f"{wrong} of {rows} on the wrong side of the card"


if __name__ == "__main__":
    sys.exit(main())
