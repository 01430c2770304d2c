"""The benchmark of the search runs and judges a study."""

from __future__ import annotations

import numpy as np

from benchmarks.judging import FILTER, judged_study
from tests.search.test_search_arithmetic import pool
from tuner.launch.virtual.ground_truth import GroundTruth
from tuner.launch.virtual.simulated import SimulatedLauncher
from tuner.study.ranking import DAY


def test_a_study_of_the_benchmark_is_judged_by_the_truth() -> None:
    """The winner's regret is that of its true days; the filter spares jobs that run out of memory."""
    truth, columns = GroundTruth(0), pool().parts[0]
    days = np.where(truth.fits(columns), truth.seconds(columns) * np.exp(pool().work) / DAY, np.nan)
    judged = {
        sampler: judged_study(pool(), days, SimulatedLauncher(4, seed=0), sampler=sampler, seed=0)
        for sampler in ("grid", "grid" + FILTER)
    }
    ends = [found.end for found in judged.values()]
    assert all(np.isclose(days / np.nanmin(days) - 1, end).any() for end in ends)
    assert judged["grid" + FILTER].out_of_memory < judged["grid"].out_of_memory
