"""Compare the cost model's estimates with a table's measurements (`tuner evaluate`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from tuner.core.columns import Columns, FloatArray
from tuner.core.errors import NothingUsable
from tuner.core.recompute import FULL
from tuner.costmodel.calibration import Calibration, MeasuredRows, calibrate
from tuner.costmodel.estimate import INTERVAL, CostModel, Scores
from tuner.costmodel.flops import causal_flops, per_gpu
from tuner.costmodel.memory_calibration import MeasuredMemory
from tuner.costmodel.site_factors import TIME_FACTORS
from tuner.costmodel.site_file import warn_of_mismatch
from tuner.costmodel.stack_constants import UNSTATED_CHANCE
from tuner.tables import Row, RowBlock, Table, blocks

MIN_RANKED: Final = 5
"""Minimum number of timed rows in a group whose ranking is scored."""

FOLDS: Final = 5
MIN_FOLDED: Final = 10
"""Number of cross-validation folds, and the minimum number of timed rows for cross-validation."""
MAX_FITTED: Final = 1000
MAX_FOLDED: Final = 400
"""Maximum timed rows in a calibration and in its cross-validation; the time grows with the cube."""

APART: Final = 0.02
"""Relative difference in seconds below which two rows count as tied."""
_MAX_RATIO: Final = 10.0
"""Ratio of measured to estimated figures above which the column's unit is probably wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowEstimate:
    """The model's estimates for one row."""

    row: Row
    seconds: float
    low: float
    high: float
    """`low` to `high` is the 80% prediction interval."""
    memory: float
    """Bytes, of the memory kind that the row reports."""
    need: float
    """Bytes on the fullest stage."""
    out_of_memory: float
    """Probability of running out of memory."""

    @property
    def fits(self) -> bool:
        """Whether the probability of running out of memory is below one half."""
        return self.out_of_memory < 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Errors as fractions; None if no row provides the measurement."""

    timed_rows: int
    sec_mape: float | None
    sec_median_ape: float | None
    kendall_tau: float | None
    top1_regret: float | None
    pairs_in_order: float | None
    """Share of correctly ordered pairs, among pairs within a group that differ by more than 2%."""
    within_interval: float | None
    """Share of timed rows whose measurement is between `low` and `high`."""
    mem_rows: int
    mem_mape: float | None
    oom_rows: int
    oom_recall: float | None
    fit_recall: float | None
    balanced_accuracy: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Estimates by row index, and their scores."""

    table: Table
    """With a reason for each row that is not scored."""
    guesses: dict[int, RowEstimate] = field(repr=False)
    calibrated_on: tuple[int, ...]
    """Indices of the rows that the model was fitted to; they are not scored."""
    calibration: Calibration
    summary: Summary
    groups: dict[str, Summary] = field(repr=False)

    @property
    def doubts(self) -> list[str]:
        """Figures that are probably in another unit, one sentence each."""
        return list(unit_doubts(list(self.guesses.values())))


def evaluate(
    table: Table, calibration: Calibration | None = None, *, calibrate_rows: int = 0, seed: int = 0
) -> Evaluation:
    """Estimate every row that describes a run, and score the rows that the model was not fitted to.

    `calibrate_rows` rows of each group are drawn, preferably timed ones, and the model is fitted to them first. Rows
    whose time would exceed the peak of their GPUs are estimated, but neither drawn nor scored.
    """
    described, table = {row.index for row in table.rows if row.usable}, _within_peak(table)
    usable = [row for row in table.rows if row.usable]
    if not usable:
        reason = table.first_skipped() or "it has no rows"
        raise NothingUsable(f"no row of {table.name} can be {'scored' if described else 'estimated'}: {reason}")
    drawn = _drawn(usable, calibrate_rows, seed)
    _check_left(table.name, usable, drawn, calibrate_rows)
    if drawn:
        calibration = calibrate_on([row for row in usable if row.index in drawn])
    known = calibration or Calibration()
    if not drawn:
        warn_of_mismatch(known, [(row.run.workload, row.run.cluster) for row in usable if row.run])
    guesses = guess_rows((row for row in table.rows if row.index in described), CostModel(calibration=known))
    counted = [guess for guess in guesses if guess.row.usable]
    groups = by_group(counted)  # a group whose rows were all fitted has an empty summary
    return Evaluation(
        table=table,
        guesses={guess.row.index: guess for guess in guesses},
        calibrated_on=tuple(sorted(drawn)),
        calibration=known,
        summary=summarised([guess for guess in counted if guess.row.index not in drawn]),
        groups={name: summarised([g for g in own if g.row.index not in drawn]) for name, own in groups.items()},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationReport:
    """A calibration and its effect on the errors."""

    table: Table
    """With a reason for each row that is skipped."""
    calibration: Calibration
    timed: int
    """Timed rows of the table, of which at most `MAX_FITTED` are used."""
    uncertainty: dict[str, float]
    """Standard deviation of the logarithm of each time factor."""
    doubts: tuple[str, ...]
    """Figures that are probably in another unit."""
    before: float | None
    """Median relative error of time without the calibration."""
    left_out: float | None
    """Cross-validated median relative error of time; None if there are too few rows."""


def learn(table: Table, periods: Sequence[str]) -> CalibrationReport:
    """Calibrate on every usable row of a table; `periods` contains the speed period of each row."""
    table = _within_peak(table)
    usable = [replace(row, group=periods[row.index]) for row in table.rows if row.usable]
    timed = [row for row in usable if row.timed]
    if not timed and not any(row.weighed or row.status == "OOM" for row in usable):
        reason = ("" if usable else table.first_skipped()) or "no row has seconds or memory"
        raise NothingUsable(f"cannot calibrate on {table.name}: {reason}")
    kept = {row.index for row in spaced(timed, MAX_FITTED)}
    fitted = calibrate_on(row for row in usable if not row.timed or row.index in kept)
    known = replace(fitted, simulated=table.simulated)
    if timed:
        known = replace(known, period=timed[-1].group)
    validated = spaced(timed, MAX_FOLDED)
    folds = [validated[start::FOLDS] for start in range(FOLDS)] if len(validated) >= MIN_FOLDED else []
    left_out: list[float] = []
    for fold in folds:
        others = calibrate_on(row for row in validated if row not in fold)
        left_out += [
            abs(guess.seconds / _measured(guess) - 1) for guess in guess_rows(fold, CostModel(calibration=others))
        ]
    guesses = guess_rows(usable, CostModel())
    before = [abs(guess.seconds / _measured(guess) - 1) for guess in guesses if guess.row.timed]
    spread = np.sqrt(np.diagonal(known.spread))
    return CalibrationReport(
        table=table,
        calibration=known,
        timed=len(timed),
        uncertainty={name: float(value) for name, value in zip(TIME_FACTORS, spread, strict=True)},
        doubts=tuple(unit_doubts(guesses)),
        before=float(np.median(before)) if before else None,
        left_out=float(np.median(left_out)) if left_out else None,
    )


def _within_peak(table: Table) -> Table:
    """Return the table without the rows whose GPUs would compute faster than their peak."""
    skipped: dict[int, str] = {}
    for block in blocks(row for row in table.rows if row.timed):
        rates = per_gpu(causal_flops(block.columns), np.array([row.seconds for row in block.rows]), block.columns)
        workload, card = block.columns.workload, block.columns.cluster.gpu
        peak = card.peak_flops[workload.precision]
        skipped |= {
            row.index: f"sec_per_iter is {row.seconds:.6g}, which would mean {rate / 1e12:.4g} TFLOPs, but {card.name} "
            f"has {peak / 1e12:g} in {workload.precision}; check its unit, the batch and the number of GPUs."
            for row, rate in zip(block.rows, rates, strict=True)
            if rate > peak
        }
    return replace(table, rows=tuple(replace(row, skipped=skipped.get(row.index, row.skipped)) for row in table.rows))


def spaced(rows: Sequence[Row], most: int) -> list[Row]:
    """Return at most `most` rows, evenly spaced, including the first and the last."""
    if len(rows) <= most:
        return list(rows)
    return [rows[index] for index in np.linspace(0, len(rows) - 1, most).round().astype(int)]


def calibrate_on(rows: Iterable[Row]) -> Calibration:
    """Return the calibration fitted to a table's rows; a row's group is its speed period."""
    rows = list(rows)
    timed = [
        MeasuredRows(
            columns=block.columns,
            seconds=np.array([row.seconds for row in block.rows], dtype=np.float64),
            period=tuple(row.group for row in block.rows),
        )
        for block in blocks(row for row in rows if row.timed)
    ]
    weighed = [
        MeasuredMemory(
            columns=block.columns,
            memory=np.array([row.memory if row.weighed else np.nan for row in block.rows], dtype=np.float64),
            kind=block.rows[0].memory_kind,
            fitted=np.array([row.status == "OK" for row in block.rows]),
            failed=np.array([row.status == "OOM" for row in block.rows]),
            stage=block.rows[0].memory_stage,
        )
        for looked in sorted({(row.memory_kind, row.memory_stage) for row in rows})
        for block in blocks(
            row for row in rows if (row.memory_kind, row.memory_stage) == looked and row.status in ("OK", "OOM")
        )
    ]
    return calibrate(timed, weighed)


def guess_rows(rows: Iterable[Row], model: CostModel) -> list[RowEstimate]:
    """Estimate each row that describes a run, in the order of the table."""
    guesses: list[RowEstimate] = []
    for block in blocks(rows):
        period = tuple(row.group for row in block.rows)
        scores = model.score(block.columns, period)
        known, columns = model.calibration, block.columns
        unseen = known.known is None or known.elsewhere(columns.workload, columns.cluster)
        low, high = _widened(block, scores, model) if unseen else scores.interval
        looked = {(row.memory_kind, row.memory_stage) for row in block.rows}
        shown = {each: scores.shown(*each) for each in looked}
        guesses += [
            RowEstimate(
                row=row,
                seconds=float(scores.seconds[index]),
                low=float(low[index]),
                high=float(high[index]),
                memory=float(shown[row.memory_kind, row.memory_stage][index]),
                need=float(scores.memory[index]),
                out_of_memory=float(scores.out_of_memory[index]),
            )
            for index, row in enumerate(block.rows)
        ]
    return sorted(guesses, key=lambda guess: guess.row.index)


def _widened(block: RowBlock, scores: Scores, model: CostModel) -> tuple[FloatArray, FloatArray]:
    """Return the 80% interval, widened by other recompute choices where the table does not state the recompute."""
    low, high = scores.interval
    unstated = np.array(["recompute" in row.assumed for row in block.rows])
    if not unstated.any():
        return low, high
    columns = block.columns
    other = np.where(columns.recompute == FULL, 0, FULL)
    otherwise = model.score(Columns(columns.workload, columns.cluster, {**columns.arrays, "recompute": other}))
    away = np.where(unstated, np.log(otherwise.seconds / scores.seconds), 0.0) * np.sqrt(UNSTATED_CHANCE) * INTERVAL
    return (
        scores.seconds * np.exp(-np.hypot(np.log(scores.seconds / low), np.minimum(away, 0.0))),
        scores.seconds * np.exp(np.hypot(np.log(high / scores.seconds), np.maximum(away, 0.0))),
    )


def unit_doubts(guesses: Sequence[RowEstimate]) -> Iterator[str]:
    """Yield a sentence about figures so far from the estimates that their unit is probably wrong."""
    slower = [_measured(guess) / guess.seconds for guess in guesses if guess.row.timed]
    fuller = [guess.row.memory / guess.memory for guess in guesses if guess.row.weighed and guess.row.memory]
    for figures, ratios in (("measured times are", slower), ("measured memory is", fuller)):
        ratio = float(np.median(ratios)) if ratios else 1.0
        if not 1 / _MAX_RATIO < ratio < _MAX_RATIO:
            times = f"{ratio:,.0f}" if ratio > 1 else f"{ratio:.2g}"
            yield f"{figures} {times} times the estimates (median): check their unit with tuner audit"


def by_group(guesses: Iterable[RowEstimate]) -> dict[str, list[RowEstimate]]:
    """Return the estimates by group, in the table's order."""
    groups: dict[str, list[RowEstimate]] = {}
    for guess in guesses:
        groups.setdefault(guess.row.group, []).append(guess)
    return groups


def summarised(guesses: Sequence[RowEstimate]) -> Summary:
    """Score the estimates; rankings are scored within groups and averaged over groups with enough rows."""
    timed = [guess for guess in guesses if guess.row.timed]
    off = np.array([abs(guess.seconds / _measured(guess) - 1) for guess in timed])
    weighed = [abs(guess.memory / guess.row.memory - 1) for guess in guesses if guess.row.weighed and guess.row.memory]
    failed = [not guess.fits for guess in guesses if guess.row.status == "OOM"]
    fitted = [guess.fits for guess in guesses if guess.row.status == "OK"]
    ranked = [own for own in by_group(timed).values() if len(own) >= MIN_RANKED]
    oom, fit = _mean(failed), _mean(fitted)
    return Summary(
        timed_rows=len(timed),
        sec_mape=_mean(off),
        sec_median_ape=float(np.median(off)) if timed else None,
        kendall_tau=_mean([_over(own, kendall_tau) for own in ranked]),
        top1_regret=_mean([_over(own, regret) for own in ranked]),
        pairs_in_order=_mean([pair for own in by_group(timed).values() for pair in _over(own, ordered_pairs)]),
        within_interval=_mean([guess.low <= _measured(guess) <= guess.high for guess in timed]),
        mem_rows=len(weighed),
        mem_mape=_mean(weighed),
        oom_rows=len(failed),
        oom_recall=oom,
        fit_recall=fit,
        balanced_accuracy=None if oom is None or fit is None else (oom + fit) / 2,
    )


def kendall_tau(measured: Any, estimated: Any) -> float:
    """Return Kendall's tau-b: (concordant - discordant pairs) / number of pairs, adjusted for ties."""
    first, second = np.triu_indices(len(measured), 1)
    by_measured = np.sign(measured[first] - measured[second])
    by_estimate = np.sign(estimated[first] - estimated[second])
    pairs = np.sqrt(np.count_nonzero(by_measured) * np.count_nonzero(by_estimate))
    return float((by_measured * by_estimate).sum() / pairs) if pairs else 0.0


def regret(measured: Any, estimated: Any) -> float:
    """Return the relative excess of the measured time of the row with the best estimate over the fastest row.

    Of several rows tied for the best estimate, the mean counts.
    """
    return float(measured[estimated == estimated.min()].mean() / measured.min() - 1)


def ordered_pairs(measured: Any, estimated: Any) -> list[bool]:
    """Return, for each pair that differs by more than `APART`, whether estimates and measurements agree in order."""
    first, second = np.triu_indices(len(measured), 1)
    apart = np.abs(np.log(measured[first] / measured[second])) > np.log1p(APART)
    same = np.sign(measured[first] - measured[second]) == np.sign(estimated[first] - estimated[second])
    return [bool(pair) for pair in same[apart]]


def _over(guesses: Sequence[RowEstimate], score: Callable[[Any, Any], Any]) -> Any:
    """Score seconds per token, because rows of one group may differ in their batch."""
    measured = [_measured(guess) / (guess.row.tokens or 1) for guess in guesses]
    # Equal topologies may differ in the last bits, depending on their array position: round so that they tie.
    estimated = [float(f"{guess.seconds / (guess.row.tokens or 1):.12g}") for guess in guesses]
    return score(np.array(measured), np.array(estimated))


def _measured(guess: RowEstimate) -> float:
    assert guess.row.seconds is not None  # noqa: S101 - for the type checker; only timed rows come here
    return guess.row.seconds


def _mean(values: Any) -> float | None:
    return float(np.mean(values)) if len(values) else None


def _check_left(name: str, usable: Sequence[Row], drawn: set[int], number: int) -> None:
    """Raise `NothingUsable` if the calibration takes all timed rows, or all rows where none is timed."""
    timed = [row for row in usable if row.timed]
    rows, word = (timed, "timed row") if timed else (usable, "row")
    if not drawn.issuperset(row.index for row in rows):
        return
    largest = max(Counter(row.group for row in rows).values())
    remedy = f"use at most {largest - 1:,}" if largest > 1 else "no group has two; use --calibration FILE"
    raise NothingUsable(
        f"no {word} of {name} is left to score: --calibrate-rows {number} takes all {len(rows):,}; {remedy}."
    )


def _drawn(rows: Sequence[Row], number: int, seed: int) -> set[int]:
    """Return the indices of up to `number` randomly drawn rows of each group."""
    rng = np.random.default_rng(seed)
    drawn: set[int] = set()
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    for members in groups.values():
        timed = [row for row in members if row.timed] or members
        drawn |= {timed[index].index for index in rng.permutation(len(timed))[:number]}
    return drawn
