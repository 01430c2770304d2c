"""Time errors on sources that no constant was fitted to, on the fitted sources, and of a baseline without a model.

The baseline has one constant per group: it predicts each row at the median throughput (model FLOP/s per GPU) of the
other rows of its group. Unlike the estimates, it uses their measurements; it is undefined for groups of one row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.recorded_accuracy import cleaned
from tuner.core.columns import Columns
from tuner.costmodel.evaluation import RowEstimate, by_group, evaluate
from tuner.costmodel.flops import model_flops, per_gpu
from tuner.tables import Row, Table, table_of

IN_FIT: Final = (
    *("aleph-13b-a100", "bloom-a100", "megatron-2021-a100", "mpt-fsdp-a100", "tr3m-1b3-v100", "tr8-104b-v100"),
    "vtrain-single-a100",
)
"""Sources to which the time constants were jointly fitted (`FITTED` in `tuner/costmodel/constants.py`)."""

OTHER_TIMES: Final = ("mcore-golden-real", "mcore-golden-toy-memory", "moe-layer-h100")
"""Tables whose seconds do not come from training runs (corpus/README.md)."""

_PARTLY_TRAINED: Final = re.compile(r"lora|peft|\bsft\b|fine-?tun", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceErrors:
    """Median relative errors of time of one source, GPU and precision."""

    name: str
    rows: int
    in_fit: bool
    estimate: float
    inside: float
    """Share of the measurements within their 80% intervals."""
    baseline_rows: int
    """Number of rows that share their group with other rows."""
    shared_estimate: float | None
    """Median relative error of the estimates of these rows."""
    baseline: float | None
    """Median relative error of the baseline on these rows."""


def source_errors(folder: Path) -> list[SourceErrors]:
    """Return the uncalibrated errors of all dense training runs in a folder of tables, blind sources first."""
    found = [errors for table in tables_in(folder) for errors in _of_table(table)]
    return sorted(found, key=lambda errors: errors.in_fit)


def print_source_errors(folder: Path) -> None:
    """Print one line for each source, GPU and precision."""
    print("| source | rows | blind | in sample | in interval | rows in groups | estimate | constant per group |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    every = source_errors(folder)
    for errors in every:
        own = _percent(errors.estimate)
        blind, sample = ("", own) if errors.in_fit else (own, "")
        shared = f"{errors.baseline_rows} | {_percent(errors.shared_estimate)} | {_percent(errors.baseline)}"
        print(f"| {errors.name} | {errors.rows} | {blind} | {sample} | {errors.inside:.0%} | {shared} |")
    print(f"\nWithin their 80% interval, in the mean: {_mean_inside(every)}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureErrors:
    """Time errors of one source's mixtures of experts; no constant of their terms is fitted to a training run."""

    name: str
    rows: int
    error: float
    """Median relative error."""
    level: float
    """Geometric mean of estimate over measurement."""
    error_at_level: float
    """Median relative error of estimates divided by the level."""
    inside: float
    """Share of the measurements within their 80% intervals."""
    natural: tuple[bool, ...]
    """Whether they are, for each run whose router was not forced to balance."""


def mixture_errors(folder: Path) -> list[MixtureErrors]:
    """Return the uncalibrated errors of all training runs of mixtures in a folder of tables."""
    return [errors for table in tables_in(folder) for errors in _mixtures(table)]


def tables_in(folder: Path) -> Iterator[Table]:
    """Yield the tables of a folder, without warnings of columns that are not used."""
    for path in sorted(folder.rglob("*.csv")):
        yield cleaned(table_of(path.read_text(encoding="utf-8"), str(path)))


def print_mixture_errors(folder: Path) -> None:
    """Print one line for each source that has mixtures."""
    print("| source | rows with experts | blind | with the level known | estimate over measurement | in interval |")
    print("|---|---:|---:|---:|---:|---:|")
    every = mixture_errors(folder)
    for errors in every:
        error = f"{_percent(errors.error)} | {_percent(errors.error_at_level)}"
        print(f"| {errors.name} | {errors.rows} | {error} | {errors.level:.2f} | {errors.inside:.0%} |")
    print(f"\nWithin their 80% interval, in the mean: {_mean_inside(every)}.")
    if natural := [inside for errors in every for inside in errors.natural]:
        print(f"Runs with natural routing within theirs: {np.mean(natural):.0%} of {len(natural)}.")


def _mean_inside(found: Sequence[SourceErrors] | Sequence[MixtureErrors]) -> str:
    """Return the mean over sources of the share of their measurements within the intervals."""
    sources = dict[str, list[tuple[float, int]]]()
    for errors in found:
        sources.setdefault(errors.name.split()[0], []).append((errors.inside * errors.rows, errors.rows))
    shares = [sum(inside for inside, _ in own) / sum(rows for _, rows in own) for own in sources.values()]
    return f"{np.mean(shares):.0%} over {len(shares)} sources"


def _inside(guesses: Sequence[RowEstimate]) -> list[bool]:
    """Return for each measurement whether it is within its 80% interval."""
    return [guess.low <= (guess.row.seconds or np.nan) <= guess.high for guess in guesses]


def _mixtures(table: Table) -> Iterator[MixtureErrors]:
    guesses = training_estimates(table, experts=True)
    if guesses:
        ratios = np.array([guess.seconds / (guess.row.seconds or np.nan) for guess in guesses])
        level = float(np.exp(np.log(ratios).mean()))
        blind, at_level = (float(np.median(abs(ratios / scale - 1))) for scale in (1.0, level))
        yield MixtureErrors(
            name=source_of(table),
            rows=len(guesses),
            error=blind,
            level=level,
            error_at_level=at_level,
            inside=float(np.mean(_inside(guesses))),
            natural=tuple(_inside([guess for guess in guesses if _is_natural(guess.row)])),
        )


def _is_natural(row: Row) -> bool:
    return row.run is not None and row.run.workload.routing == "natural"


def source_of(table: Table) -> str:
    """Return the name of a table's source."""
    return table.name.removesuffix(".csv")


def training_estimates(table: Table, *, experts: bool) -> list[RowEstimate]:
    """Return the estimates of a table's training runs, either of mixtures or of dense models."""
    rows = tuple(row for row in table.rows if is_training(row, experts=experts))
    if source_of(table) in OTHER_TIMES or not rows:
        return []
    return [guess for guess in evaluate(replace(table, rows=rows)).guesses.values() if guess.row.timed]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}%"


def _of_table(table: Table) -> Iterator[SourceErrors]:
    name, guesses = source_of(table), training_estimates(table, experts=False)
    in_fit = name in IN_FIT
    for hardware in dict.fromkeys("" if in_fit else hardware_of(guess.row) for guess in guesses):
        own = [guess for guess in guesses if in_fit or hardware_of(guess.row) == hardware]
        shared = [guess for group in by_group(own).values() if len(group) > 1 for guess in group]
        yield SourceErrors(
            name=f"{name} {hardware}".strip(),
            rows=len(own),
            in_fit=in_fit,
            estimate=_median(abs(guess.seconds / (guess.row.seconds or np.nan) - 1) for guess in own) or 0.0,
            inside=float(np.mean(_inside(own))),
            baseline_rows=len(shared),
            shared_estimate=_median(abs(guess.seconds / (guess.row.seconds or np.nan) - 1) for guess in shared),
            baseline=_median(error for group in by_group(shared).values() for error in baseline_errors(group)),
        )


def baseline_errors(group: Sequence[RowEstimate]) -> list[float]:
    """Return the relative error of each row when it is predicted at the median throughput of the others."""
    work = np.array([_work(guess.row) for guess in group])
    measured = np.array([guess.row.seconds for guess in group], dtype=np.float64)
    rates = work / measured
    others = [float(np.median(np.delete(rates, row))) for row in range(len(group))]
    return [float(error) for error in abs(work / np.array(others) / measured - 1)]


def _work(row: Row) -> float:
    """Return the model FLOPs of one iteration on each GPU."""
    assert row.run is not None  # noqa: S101 - for the type checker; only rows that describe a run are estimated
    columns = Columns.of([row.run.topology], row.run.workload, row.run.cluster)
    return float(per_gpu(model_flops(columns), 1.0, columns)[0])


def is_training(row: Row, *, experts: bool) -> bool:
    """Whether a row times training of all weights, of a mixture if `experts` and otherwise of a dense model."""
    if row.run is None or not row.timed:
        return False
    if bool(row.run.workload.model.experts) != experts:
        return False
    return not _PARTLY_TRAINED.search(f"{row.group} {row.cells.get('note', '')}")


def hardware_of(row: Row) -> str:
    """Return the GPU and the precision of a row's run."""
    assert row.run is not None  # noqa: S101 - for the type checker; see `is_training`
    return f"{row.run.cluster.gpu.name.split('-')[0]} {row.run.workload.precision}"


def _median(values: Iterable[float]) -> float | None:
    known = list(values)
    return float(np.median(known)) if known else None
