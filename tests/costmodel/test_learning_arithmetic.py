"""The rows from which a calibration learns and on which it is scored, and the records of constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.audit.tables_of import evidence_of
from tuner.core.errors import NothingUsable
from tuner.costmodel import evaluation
from tuner.costmodel.calibration import Calibration
from tuner.costmodel.constants import RECORDS

UNITS = {
    *(
        "bytes",
        "copies",
        "doublings",
        "elements",
        "passes",
        "ratio",
        "relative",
        "rows",
        "seconds",
        "share",
        "standard",
    ),
}
"""First words of units."""


@pytest.mark.parametrize("name", RECORDS)
def test_a_constants_unit_is_a_unit_and_its_source_is_none(name: str) -> None:
    record = RECORDS[name]
    assert record.unit.split()[0].strip(",") in UNITS
    assert record.source.split()[0].strip(",") not in UNITS


def table_of_rows(*rows: dict[str, str]) -> Any:
    """Return a table of these rows."""
    return evidence_of(*rows).table


class Taught:
    """A stand-in for `calibrate` that records its inputs and learns nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.timed: list[list[float]] = []
        self.weighed: list[Any] = []
        monkeypatch.setattr(evaluation, "calibrate", self._calibrate)

    def _calibrate(self, timed: Any, weighed: Any) -> Calibration:
        self.timed.append([float(seconds) for block in timed for seconds in block.seconds])
        self.weighed.append(weighed)
        return Calibration()


@pytest.fixture
def taught(monkeypatch: pytest.MonkeyPatch) -> Taught:
    """Record the inputs of all calibrations."""
    return Taught(monkeypatch)


def test_a_calibration_learns_times_memory_and_failures(taught: Taught) -> None:
    rows = [
        {"sec_per_iter": "1.5", "mem_gib": "10", "mem_kind": "smi"},
        {"sec_per_iter": "", "mem_gib": "12", "mem_kind": "reserved", "mbs": "2"},
        {"sec_per_iter": "", "status": "OOM", "mbs": "4", "mem_kind": "smi"},
        {"sec_per_iter": "2.5", "gbs": "32"},
        {"sec_per_iter": "", "status": "FAIL", "mbs": "8", "mem_kind": "smi"},
    ]
    evaluation.calibrate_on(table_of_rows(*rows).rows)
    assert sorted(taught.timed[0]) == [1.5, 2.5]
    (weighed,) = taught.weighed
    by_kind = {block.kind: block for block in weighed}
    smi = by_kind["smi"]
    order = np.argsort(smi.columns.micro_batch) if hasattr(smi.columns, "micro_batch") else np.arange(len(smi.memory))
    assert sorted(smi.fitted[order].tolist()) == sorted((~smi.failed[order]).tolist())
    assert int(smi.failed.sum()) == 1
    assert np.isnan(smi.memory[smi.failed]).all()
    assert by_kind["reserved"].memory.tolist() == [12 * 2**30]
    assert by_kind["reserved"].fitted.tolist() == [True]


def test_each_row_is_left_out_once_and_learnt_from_otherwise(taught: Taught) -> None:
    """With five folds, one calibration uses all rows, and each of five others leaves one fold out."""
    count = evaluation.MIN_FOLDED
    rows = [{"sec_per_iter": f"{1 + number}", "gbs": f"{16 * (1 + number)}"} for number in range(count)]
    table = table_of_rows(*rows)
    made = evaluation.learn(table, ["p"] * count)
    everything, *folds = taught.timed
    whole = {float(1 + number) for number in range(count)}
    assert set(everything) == whole
    assert len(folds) == evaluation.FOLDS == 5
    left = [whole - set(fold) for fold in folds]
    assert set().union(*left) == whole
    assert sum(map(len, left)) == count
    assert left[0] == {1.0 + 5 * number for number in range(-(-count // 5))}
    assert (made.timed, made.calibration.period) == (count, "p")
    assert made.left_out == made.before
    guesses = evaluation.evaluate(table).guesses
    errors = [abs(guess.seconds / (guess.row.seconds or 0) - 1) for guess in guesses.values()]
    assert made.before == pytest.approx(float(np.median(errors)))


def test_of_many_rows_some_are_used_evenly_spaced(taught: Taught, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows are counted, and those without a time are all used."""
    monkeypatch.setattr(evaluation, "MAX_FITTED", 11)
    monkeypatch.setattr(evaluation, "MAX_FOLDED", 10)
    rows = [{"sec_per_iter": f"{1 + number}", "gbs": f"{16 * (1 + number)}"} for number in range(21)]
    out = {"sec_per_iter": "", "status": "OOM", "mbs": "4", "mem_kind": "smi"}
    made = evaluation.learn(table_of_rows(*rows, out), ["p"] * 22)
    everything, *folds = taught.timed
    assert set(everything) == {float(1 + number) for number in range(0, 21, 2)}
    assert {len(fold) for fold in folds} == {8}
    assert made.timed == 21
    assert sum(int(block.failed.sum()) for block in taught.weighed[0]) == 1


def test_few_rows_are_not_folded(taught: Taught) -> None:
    count = evaluation.MIN_FOLDED - 1
    rows = [{"sec_per_iter": f"{1 + number}", "gbs": f"{16 * (1 + number)}"} for number in range(count)]
    assert evaluation.learn(table_of_rows(*rows), ["p"] * count).left_out is None
    assert len(taught.timed) == 1


@pytest.mark.parametrize(
    ("cells", "teaches"),
    [
        ({"sec_per_iter": "", "mem_gib": "10"}, True),
        ({"sec_per_iter": "", "status": "OOM"}, True),
        ({"sec_per_iter": "", "status": "FAIL"}, False),
        ({"sec_per_iter": ""}, False),
    ],
)
def test_a_table_teaches_with_seconds_memory_or_a_failure(cells: dict[str, str], teaches: bool, taught: Taught) -> None:
    if teaches:
        made = evaluation.learn(table_of_rows(cells), ["p"])
        assert (made.timed, made.before, made.left_out, made.calibration.period) == (
            0,
            None,
            None,
            Calibration().period,
        )
    else:
        with pytest.raises(NothingUsable, match="no row has seconds or memory"):
            evaluation.learn(table_of_rows(cells), ["p"])
        assert taught.timed == []


def test_a_given_calibration_is_used_and_drawn_rows_are_not_scored() -> None:
    rows = [{"sec_per_iter": f"{1 + number}", "gbs": f"{16 * (1 + number)}"} for number in range(4)]
    table = table_of_rows(*rows, {"group": "h", "sec_per_iter": ""})
    known = Calibration(period="mine")
    assert evaluation.evaluate(table, known).calibration is known
    made = evaluation.evaluate(table, calibrate_rows=2, seed=1)
    assert len(made.calibrated_on) == 3
    assert made.summary.timed_rows == 2
    assert made.groups["h"].timed_rows == 0
    assert set(made.guesses) == {0, 1, 2, 3, 4}
    again = evaluation.evaluate(table, calibrate_rows=2, seed=1)
    assert again.calibrated_on == made.calibrated_on
