"""Estimates without a measured table are marked as such and have a wider interval."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.blind import OTHER_TIMES
from tests.conftest import ROOT
from tests.costmodel.test_closed_forms import headless
from tests.costmodel.test_framework_terms import node_of, under
from tuner.core.columns import Columns
from tuner.core.domain import Framework, Topology
from tuner.costmodel.backing import MEASURED_FRAMEWORKS, MEASURED_GPUS, unmeasured
from tuner.costmodel.calibration import Calibration, MeasuredRows, calibrate
from tuner.costmodel.estimate import INTERVAL, CostModel
from tuner.costmodel.stack_constants import UNMEASURED_DEVIATION
from tuner.tables import Row, table_of

ONE = Topology(nodes=1, tp=1, pp=1, dp=1, micro_batch=1, zero=0, recompute="none")


def _rows(path: Path) -> tuple[Row, ...]:
    """Return the rows of a table, also those that train adapters."""
    return table_of(path.read_text(encoding="utf-8"), str(path)).rows


def test_what_is_measured_is_what_the_corpus_has() -> None:
    paths = [path for path in (ROOT / "corpus").rglob("*.csv") if path.stem not in OTHER_TIMES]
    rows = [row for path in paths for row in _rows(path) if row.status == "OK" and row.run and row.seconds]
    runs = [row.run for row in rows if row.run is not None]
    assert {run.cluster.gpu.name.split("-")[0] for run in runs} == set(MEASURED_GPUS)
    stated = {run.workload.framework for run in runs} - {None}
    assert stated <= set(MEASURED_FRAMEWORKS)
    assert set(MEASURED_FRAMEWORKS) - stated == {"megatron-deepspeed"}, "BLOOM's table, whose cells do not state it"


@pytest.mark.parametrize(
    ("gpu", "framework", "words"),
    [
        ("H200-141GB-SXM", "megatron-core", ""),
        ("A100-80GB-SXM", None, ""),
        ("MI355X-288GB", "megatron-core", "no measured MI355X table behind this estimate"),
        ("A100-80GB-SXM", "deepspeed", "no measured deepspeed table behind this estimate"),
        ("MI355X-288GB", "deepspeed", "no measured MI355X or deepspeed table behind this estimate"),
    ],
)
def test_what_no_table_is_behind_is_named(gpu: str, framework: Framework | None, words: str) -> None:
    assert unmeasured(under(framework, headless(1)), node_of(gpu)) == words


def test_the_interval_is_wider_until_the_cluster_is_measured() -> None:
    usual, other = (
        Columns.of([ONE], under(framework, headless(1)), node_of("A100-80GB-SXM")) for framework in (None, "deepspeed")
    )

    def deviation(columns: Columns, known: Calibration) -> float:
        low, high = CostModel(calibration=known).score(columns).interval
        return float(np.log(high / low)[0]) / (2 * INTERVAL)

    plain = deviation(usual, Calibration())
    assert deviation(other, Calibration()) == pytest.approx(np.hypot(plain, UNMEASURED_DEVIATION))
    measured = CostModel().score(usual).seconds
    known = calibrate([MeasuredRows(columns=usual, seconds=measured, period=("",))])
    of_other = replace(other.workload, framework=None)
    assert of_other == usual.workload
    assert deviation(other, known) == pytest.approx(deviation(usual, known))
