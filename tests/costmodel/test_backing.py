"""Estimates without a measured table are marked as such and have a wider interval."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.blind import OTHER_TIMES
from tests.conftest import ROOT
from tests.costmodel.test_closed_forms import headless
from tests.costmodel.test_framework_terms import node_of, under
from tuner.core import catalog
from tuner.core.columns import Columns
from tuner.core.domain import Framework, Topology
from tuner.costmodel.backing import MEASURED_FRAMEWORKS, MEASURED_GPUS, calibrated_on, mismatch, unmeasured
from tuner.costmodel.calibration import Calibration, MeasuredRows, calibrate
from tuner.costmodel.estimate import INTERVAL, CostModel, memory_deviation
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stack_constants import UNMEASURED_DEVIATION
from tuner.tables import table_of

ONE = Topology(nodes=1, tp=1, pp=1, dp=1, micro_batch=1, zero=0, recompute="none")


def test_what_is_measured_is_what_the_corpus_has() -> None:
    paths = [path for path in (ROOT / "corpus").rglob("*.csv") if path.stem not in OTHER_TIMES]
    tables = [table_of(path.read_text(encoding="utf-8"), str(path)) for path in paths]
    rows = [row for table in tables for row in table.rows if row.timed and row.skipped is None]
    runs = [row.run for row in rows if row.run is not None and row.run.topology.gpus > 1]
    assert {run.cluster.gpu.name.split("-")[0] for run in runs} == set(MEASURED_GPUS)
    stated = {run.workload.framework for run in runs} - {None}
    assert stated <= set(MEASURED_FRAMEWORKS)
    assert set(MEASURED_FRAMEWORKS) - stated == {"megatron-deepspeed"}, "BLOOM's table, whose cells do not state it"


def test_no_table_is_behind_gated_delta_net() -> None:
    workload = replace(under("megatron-core", headless(1)), model=catalog.model("qwen3.8-27b"))
    found = unmeasured(workload, node_of("H100-80GB-SXM"))
    assert (
        found == "not validated: tuner has no measurements of several GPUs for Gated DeltaNet, so intervals are wider"
    )


@pytest.mark.parametrize(
    ("gpu", "framework", "words"),
    [
        ("H200-141GB-SXM", "megatron-core", ""),
        ("A100-80GB-SXM", None, ""),
        (
            "MI355X-288GB",
            "megatron-core",
            "not validated: tuner has no measurements of several GPUs for MI355X, so intervals are wider",
        ),
        (
            "A100-80GB-SXM",
            "deepspeed",
            "not validated: tuner has no measurements of several GPUs for deepspeed, so intervals are wider",
        ),
        (
            "MI355X-288GB",
            "deepspeed",
            "not validated: tuner has no measurements of several GPUs for MI355X or deepspeed, so intervals are wider",
        ),
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

    def measured(columns: Columns) -> Calibration:
        seconds = CostModel().score(columns).seconds
        return calibrate([MeasuredRows(columns=columns, seconds=seconds, period=("",))])

    assert deviation(other, measured(other)) == pytest.approx(deviation(usual, measured(usual)), rel=0.01)


H100, B200 = "H100-80GB-SXM", "B200-180GB-SXM"


@pytest.mark.parametrize(
    ("measured", "gpu", "framework", "where"),
    [
        ([], B200, "fsdp2", "this site"),
        ([(H100, "")], H100, "fsdp2", f"{H100} with no framework stated, not on {H100} with fsdp2:"),
        ([(H100, "")], H100, "megatron-deepspeed", "this site"),
        ([(H100, "megatron-core")], H100, None, "this site"),
        ([(H100, "megatron-core"), (B200, "fsdp2")], B200, "fsdp2", "this site"),
        ([(H100, "")], B200, "fsdp2", f"{H100}, not on {B200}:"),
        ([(H100, "megatron-core")], H100, "fsdp2", f"{H100} with megatron-core, not on {H100} with fsdp2:"),
        (
            [(B200, "fsdp2"), (H100, "megatron-core")],
            B200,
            "megatron-core",
            f"{B200} with fsdp2 and {H100} with megatron-core, not on {B200} with megatron-core:",
        ),
    ],
)
def test_a_calibration_on_another_gpu_or_framework_is_named(
    measured: list[tuple[str, str]], gpu: str, framework: Framework | None, where: str
) -> None:
    """Plans for any framework match every one, and runs whose framework is not known those estimated as they are.

    GPU and framework match together.
    """
    known = replace(_narrow(H100), measured_on=frozenset(measured))
    workload, cluster = under(framework, headless(1)), node_of(gpu)
    sentence = mismatch(known, [(workload, cluster)])
    assert calibrated_on(known, workload, cluster) == where.split(", not on")[0].removesuffix(
        " with no framework stated"
    )
    assert sentence.startswith(f"the calibration was measured on {where}" if "not on" in where else "")
    assert bool(sentence) == ("not on" in where)


def _narrow(gpu: str) -> Calibration:
    """A calibration on many equal runs of one topology."""
    columns = Columns.of([ONE] * 20, under("megatron-core", headless(1)), node_of(gpu))
    return calibrate([MeasuredRows(columns=columns, seconds=CostModel().score(columns).seconds, period=("",) * 20)])


def test_a_calibration_on_another_gpu_does_not_make_the_interval_narrower() -> None:
    columns = Columns.of([ONE], under("megatron-core", headless(1)), node_of(B200))

    def width(known: Calibration) -> float:
        low, high = CostModel(calibration=known).score(columns).interval
        return float(np.log(high / low)[0])

    other, own = _narrow(H100), _narrow(B200)
    assert width(own) < width(Calibration())
    assert width(other) == pytest.approx(width(Calibration()))


def test_memory_weighed_on_another_gpu_is_as_uncertain_as_unweighed() -> None:
    columns = Columns.of([ONE], under("megatron-core", headless(1)), node_of(B200))
    there = replace(_narrow(H100), weighed=20, memory_deviation=0.01)
    here = replace(there, measured_on=frozenset({(B200, "megatron-core")}))
    assert memory_deviation(columns, here) == 0.01
    assert memory_deviation(columns, there) == memory_deviation(columns, Calibration())


def test_a_calibration_by_kernels_alone_is_named() -> None:
    """`tuner doctor --measure` measures kernels, and no rows."""
    workload, cluster = under("megatron-core", headless(1)), node_of(H100)
    assert calibrated_on(Calibration(), workload, cluster) == ""
    kernels = Calibration(site=SiteFactors(products=0.8), measured_on=frozenset([(cluster.gpu.name, "")]))
    assert calibrated_on(kernels, workload, cluster) == "this site"
