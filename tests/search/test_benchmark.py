"""The search benchmark runs and judges a study."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.judging import FILTER, judged_study
from benchmarks.truths import Case, _twisted, study
from tests.search.test_search_arithmetic import pool
from tuner.core.text import DAY
from tuner.launch.virtual.ground_truth import GroundTruth
from tuner.launch.virtual.simulated import SimulatedLauncher


def test_a_benchmark_study_is_judged_by_the_truth() -> None:
    """The winner's regret is computed from its true days; with the memory filter, fewer jobs run out of memory."""
    truth, columns = GroundTruth(0), pool().parts[0]
    days = np.where(truth.fits(columns), truth.seconds(columns) * np.exp(pool().work) / DAY, np.nan)
    judged = {
        sampler: judged_study(pool(), days, SimulatedLauncher(4, seed=0), sampler=sampler, seed=0)
        for sampler in ("grid", "grid" + FILTER)
    }
    ends = [found.end for found in judged.values()]
    assert all(np.isclose(days / np.nanmin(days) - 1, end).any() for end in ends)
    assert judged["grid" + FILTER].out_of_memory < judged["grid"].out_of_memory


def small_table(folder: Path) -> Path:
    """Write a table of twelve topologies on one node."""
    names = "group,gpu,gpus_per_node,nodes,layers,hidden,heads,seq,vocab,gbs,tp,pp,dp,mbs,zero,recompute,status"
    rows = [
        f"made,A100-80GB-SXM,8,1,24,2048,16,2048,50257,64,{tp},{pp},{8 // tp // pp},{mbs},1,none,OK,{2 + tp + pp / 4}"
        for tp, pp, mbs in product((1, 2, 4), (1, 2), (1, 2))
    ]
    table = folder / "table-made.csv"
    table.write_text("\n".join([f"{names},sec_per_iter", *rows]) + "\n", encoding="utf-8")
    return table


def test_a_table_is_replayed_with_a_straggler(tmp_path: Path) -> None:
    """The study finds the best topology of a small table, even if its first run is a straggler."""
    table = small_table(tmp_path)
    for twist in ("none", "straggler"):
        judged = study(Case(table=str(table), twist=twist, sampler="guided", seed=0, jobs=1))
        assert judged.end == 0.0, twist
        assert judged.jobs <= 12 + 8


def test_a_misjudged_cluster_has_the_times_of_its_draw(tmp_path: Path) -> None:
    """Each draw multiplies the times of a table by other random factors, and its study is judged by these times."""
    table = str(small_table(tmp_path))
    steady, first, second = (_twisted(table, twist)[2] for twist in ("none", "misjudged0", "misjudged1"))
    factors = np.stack([first / steady, second / steady])[:, np.isfinite(steady)]
    assert np.isfinite(factors).all()
    assert 0.02 < np.log(factors).std() < 0.3
    assert not np.isclose(*factors).any()
    judged = study(Case(table=table, twist="misjudged0", sampler="guided", seed=0, jobs=1))
    assert np.isclose(first / np.nanmin(first) - 1, judged.end).any()
