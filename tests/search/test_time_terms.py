"""Measured seconds show which terms of an iteration the cost model misjudges."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from tests.search.test_memory_terms import changed
from tests.search.test_search_arithmetic import pool
from tuner.core.columns import FloatArray
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.time import time_terms
from tuner.search.candidates import CandidatePool
from tuner.search.observations import Observation
from tuner.search.surrogate import Surrogate
from tuner.space.build import space_for


@cache
def mixture() -> CandidatePool:
    """A small space of a mixture of experts."""
    wanted = ("nodes=2", "zero=1", "recompute=none", "cp=1", "vpp=1", "etp=1", "dispatcher=alltoall")
    return CandidatePool.of_space(space_for(model="qwen3-30b-a3b", nodes=2, gpu="H100-80GB-SXM", settings=wanted))


def taken(of: CandidatePool, **factors: float) -> FloatArray:
    """The log seconds of each candidate if some terms take longer by these factors."""
    found = [changed(time_terms(part, SiteFactors()), factors) for part in of.parts]
    return np.log(np.concatenate(found))


@pytest.mark.parametrize(
    ("found", "factors"),
    [
        (pool, {"head": 3.0}),
        (pool, {"pipeline": 4.0}),
        (mixture, {"experts": 0.4}),
        (mixture, {"routing": 3.0}),
    ],
)
def test_a_term_that_the_model_misjudges_is_corrected_where_nothing_ran(
    found: Callable[[], CandidatePool], factors: dict[str, float]
) -> None:
    """After a dozen runs, the estimates of all other topologies are less than a quarter as far off as before."""
    candidates = found()
    jobs = range(0, len(candidates), len(candidates) // 12)
    belief, truth = Surrogate(candidates), taken(candidates, **factors)
    before = belief.time.log_seconds() - truth
    for job in jobs:
        belief.learn([Observation(candidate=job, seconds=math.exp(truth[job]), fits=True)])
        belief.adapt(lambda usual: usual)
    after = belief.time.log_seconds() - truth
    others = np.delete(np.arange(len(truth)), jobs)
    spread = float(np.sqrt(np.mean(before[others] ** 2)))
    assert float(np.sqrt(np.mean(after[others] ** 2))) < 0.25 * spread
