"""`tuner evaluate`: the model's estimates beside a table's measurements, row by row and in summary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tuner.core.errors import NothingUsable
from tuner.costmodel.calibration import Calibration, MeasuredRows, calibrate
from tuner.costmodel.estimate import CostModel
from tuner.costmodel.memory_calibration import MeasuredMemory
from tuner.costmodel.site_factors import TIME_FACTORS
from tuner.tables import Row, Table, blocks

LEAST_RANKED: Final = 5
"""Timed rows that a group needs for its order to be scored."""

FOLDS: Final = 5
LEAST_FOLDED: Final = 10
"""Parts of which each is left out once, and the timed rows that a table needs for it."""

APART: Final = 0.02
"""Rows whose seconds differ by less are not taken for ordered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowEstimate:
    """What the model says of one row."""

    row: Row
    seconds: float
    low: float
    high: float
    """Between them 80% of measurements are expected."""
    memory: float
    """Bytes, of the kind that the row publishes."""
    need: float
    """Bytes on the worst stage."""
    out_of_memory: float
    """Probability."""

    @property
    def fits(self) -> bool:
        """Whether running is likelier than running out of memory."""
        return self.out_of_memory < 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Errors as fractions; what no row can tell is None."""

    timed_rows: int
    sec_mape: float | None
    sec_median_ape: float | None
    kendall_tau: float | None
    top1_regret: float | None
    pairs_in_order: float | None
    """Of pairs of a group more than 2% apart, the share that is put in the right order."""
    within_interval: float | None
    """Share of timed rows between `low` and `high`."""
    mem_rows: int
    mem_mape: float | None
    oom_rows: int
    oom_recall: float | None
    fit_recall: float | None
    balanced_accuracy: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The guesses by the rows' places in their table, and how good they are."""

    table: Table
    guesses: dict[int, RowEstimate]
    calibrated_on: tuple[int, ...]
    """Places of the rows that the model was fitted to; they are not scored."""
    calibration: Calibration
    summary: Summary
    groups: dict[str, Summary]


def evaluate(
    table: Table, calibration: Calibration | None = None, *, calibrate_rows: int = 0, seed: int = 0
) -> Evaluation:
    """Estimate every row that describes a run, and score those that the model was not fitted to.

    `calibrate_rows` are drawn from each group, timed ones where there are any, and fitted first.
    """
    usable = [row for row in table.rows if row.run is not None and row.skipped is None]
    if not usable:
        reason = next((row.skipped for row in table.rows if row.skipped), "it has no rows")
        raise NothingUsable(f"no row of {table.name} can be estimated: {reason}")
    drawn = _drawn(usable, calibrate_rows, seed)
    if drawn:
        calibration = calibrate_on([row for row in usable if row.index in drawn])
    known = calibration or Calibration()
    guesses = {guess.row.index: guess for guess in guess_rows(usable, CostModel(calibration=known))}
    scored = [guess for index, guess in guesses.items() if index not in drawn]
    groups = by_group(guesses.values())  # a group whose every row was fitted has a summary too, of nothing
    return Evaluation(
        table=table,
        guesses=guesses,
        calibrated_on=tuple(sorted(drawn)),
        calibration=known,
        summary=summarised(scored),
        groups={name: summarised([g for g in own if g.row.index not in drawn]) for name, own in groups.items()},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationReport:
    """A calibration and how much it helps."""

    calibration: Calibration
    timed: int
    uncertainty: dict[str, float]
    """Standard deviation of the logarithm of each factor of time."""
    before: float | None
    """Median error of time without it."""
    left_out: float | None
    """Median error of time on rows that a calibration by the others has not seen; None where they are few."""


def learn(table: Table, periods: Sequence[str]) -> CalibrationReport:
    """Calibrate on every row of a table that can be estimated; `periods` labels the speed period of each row."""
    usable = [
        replace(row, group=periods[row.index]) for row in table.rows if row.run is not None and row.skipped is None
    ]
    timed = [row for row in usable if row.timed]
    if not timed and not any(row.weighed or row.status == "OOM" for row in usable):
        reason = next((row.skipped for row in table.rows if row.skipped), "no row has seconds or memory")
        raise NothingUsable(f"{table.name} teaches nothing: {reason}")
    known = calibrate_on(usable)
    if timed:
        known = replace(known, period=timed[-1].group)
    folds = [timed[start::FOLDS] for start in range(FOLDS)] if len(timed) >= LEAST_FOLDED else []
    left_out: list[float] = []
    for fold in folds:
        others = calibrate_on(row for row in timed if row not in fold)
        left_out += [
            abs(guess.seconds / _measured(guess) - 1) for guess in guess_rows(fold, CostModel(calibration=others))
        ]
    before = [abs(guess.seconds / _measured(guess) - 1) for guess in guess_rows(timed, CostModel())]
    spread = np.sqrt(np.diagonal(known.spread))
    return CalibrationReport(
        calibration=known,
        timed=len(timed),
        uncertainty={name: float(value) for name, value in zip(TIME_FACTORS, spread, strict=True)},
        before=float(np.median(before)) if before else None,
        left_out=float(np.median(left_out)) if left_out else None,
    )


def calibrate_on(rows: Iterable[Row]) -> Calibration:
    """Return the calibration that a table's rows support; a row's group is its speed period."""
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
        )
        for kind in ("smi", "reserved", "allocated")
        for block in blocks(row for row in rows if row.memory_kind == kind and row.status in ("OK", "OOM"))
    ]
    return calibrate(timed, weighed)


def guess_rows(rows: Iterable[Row], model: CostModel) -> list[RowEstimate]:
    """What the model says of each row that describes a run, in the order of the table."""
    guesses: list[RowEstimate] = []
    for block in blocks(rows):
        period = tuple(row.group for row in block.rows)
        scores = model.score(block.columns, period)
        low, high = scores.interval
        shown = {kind: scores.shown(kind) for kind in {row.memory_kind for row in block.rows}}
        guesses += [
            RowEstimate(
                row=row,
                seconds=float(scores.seconds[place]),
                low=float(low[place]),
                high=float(high[place]),
                memory=float(shown[row.memory_kind][place]),
                need=float(scores.memory[place]),
                out_of_memory=float(scores.out_of_memory[place]),
            )
            for place, row in enumerate(block.rows)
        ]
    return sorted(guesses, key=lambda guess: guess.row.index)


def by_group(guesses: Iterable[RowEstimate]) -> dict[str, list[RowEstimate]]:
    """The guesses of each group, in the table's order."""
    groups: dict[str, list[RowEstimate]] = {}
    for guess in guesses:
        groups.setdefault(guess.row.group, []).append(guess)
    return groups


def summarised(guesses: Sequence[RowEstimate]) -> Summary:
    """How good the guesses are; order is scored within groups and averaged over those large enough."""
    timed = [guess for guess in guesses if guess.row.timed]
    off = np.array([abs(guess.seconds / _measured(guess) - 1) for guess in timed])
    weighed = [abs(guess.memory / guess.row.memory - 1) for guess in guesses if guess.row.weighed and guess.row.memory]
    failed = [not guess.fits for guess in guesses if guess.row.status == "OOM"]
    fitted = [guess.fits for guess in guesses if guess.row.status == "OK"]
    ranked = [own for own in by_group(timed).values() if len(own) >= LEAST_RANKED]
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
    """Kendall's tau-b: of all pairs, those in the same order less those in the other, ties taken into account."""
    first, second = np.triu_indices(len(measured), 1)
    by_measured = np.sign(measured[first] - measured[second])
    by_estimate = np.sign(estimated[first] - estimated[second])
    pairs = np.sqrt(np.count_nonzero(by_measured) * np.count_nonzero(by_estimate))
    return float((by_measured * by_estimate).sum() / pairs) if pairs else 0.0


def regret(measured: Any, estimated: Any) -> float:
    """How much longer the row that the model likes best takes than the best row; of several that it likes as well, the
    mean, for their order says nothing."""
    return float(measured[estimated == estimated.min()].mean() / measured.min() - 1)


def ordered_pairs(measured: Any, estimated: Any) -> list[bool]:
    """Of each pair more than `APART` apart, whether the estimates put it in the measured order."""
    first, second = np.triu_indices(len(measured), 1)
    apart = np.abs(np.log(measured[first] / measured[second])) > np.log1p(APART)
    same = np.sign(measured[first] - measured[second]) == np.sign(estimated[first] - estimated[second])
    return [bool(pair) for pair in same[apart]]


def _over(guesses: Sequence[RowEstimate], score: Callable[[Any, Any], Any]) -> Any:
    # Twins may differ in their last bits, by where in an array they stood: to twelve digits they are tied.
    estimated = [float(f"{guess.seconds:.12g}") for guess in guesses]
    return score(np.array([_measured(guess) for guess in guesses]), np.array(estimated))


def _measured(guess: RowEstimate) -> float:
    assert guess.row.seconds is not None  # noqa: S101 - for the type checker; only timed rows come here
    return guess.row.seconds


def _mean(values: Any) -> float | None:
    return float(np.mean(values)) if len(values) else None


def _drawn(rows: Sequence[Row], number: int, seed: int) -> set[int]:
    """Places of so many rows of each group."""
    dice = np.random.default_rng(seed)
    drawn: set[int] = set()
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    for own in groups.values():
        timed = [row for row in own if row.timed] or own
        drawn |= {timed[place].index for place in dice.permutation(len(timed))[:number]}
    return drawn
