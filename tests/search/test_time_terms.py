"""Measured seconds show which terms of an iteration the cost model misjudges."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.search.test_memory_terms import changed
from tests.search.test_search_arithmetic import pool
from tuner.core.columns import FloatArray
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.time import time_terms
from tuner.search.observations import Observation
from tuner.search.surrogate import Surrogate

JOBS = range(0, len(pool()), len(pool()) // 12)
"""Candidates that run."""


def taken(**factors: float) -> FloatArray:
    """The log seconds of each candidate if some terms take longer by these factors."""
    found = [changed(time_terms(part, SiteFactors()), factors) for part in pool().parts]
    return np.log(np.concatenate(found))


@pytest.mark.parametrize("factors", [{"head": 3.0}, {"pipeline": 4.0}])
def test_a_term_that_the_model_misjudges_is_corrected_where_nothing_ran(factors: dict[str, float]) -> None:
    """After a dozen runs, the estimates of all other topologies are less than three tenths as far off as before."""
    belief, truth = Surrogate(pool()), taken(**factors)
    before = belief.time.log_seconds() - truth
    for job in JOBS:
        belief.learn([Observation(candidate=job, seconds=math.exp(truth[job]), fits=True)])
        belief.adapt(lambda usual: usual)
    after = belief.time.log_seconds() - truth
    others = np.delete(np.arange(len(truth)), JOBS)
    spread = float(np.sqrt(np.mean(before[others] ** 2)))
    assert float(np.sqrt(np.mean(after[others] ** 2))) < 0.3 * spread
