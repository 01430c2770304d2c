"""Jobs that were pruned without a forecast: their topologies take at least as long."""

from __future__ import annotations

import math

import pytest

from tests.search.test_search_arithmetic import observe, pool
from tuner.search.observations import Observation
from tuner.search.surrogate import Surrogate


@pytest.mark.parametrize("away", [-1.5, 0.0, 2.0])
def test_a_job_stopped_early_tells_that_it_takes_longer(away: float) -> None:
    """Mean and variance become those of a Gaussian above the bound; a sibling's follow by their covariance."""
    belief = Surrogate(pool())
    before, prior = float(belief.time.log_seconds()[0]), float(belief.time.most_deviation[0]) ** 2
    means, covariance = belief.time.joint([(0, None), (1, None)])
    run = prior + belief.trust.repeat**2
    observe(belief, Observation(candidate=0, least=math.exp(before + away * math.sqrt(run)), fits=True))
    hazard = math.exp(-0.5 * away**2) / math.sqrt(2 * math.pi) / (0.5 * math.erfc(away / math.sqrt(2)))
    mean, deviation = belief.time.measured([0])
    assert mean[0] == pytest.approx(before + prior / math.sqrt(run) * hazard, abs=1e-5)
    shrunk = prior - prior**2 / run * hazard * (hazard - away)
    assert deviation[0] == pytest.approx(math.sqrt(shrunk), rel=1e-4)
    sibling = means[1] + covariance[0, 1] / math.sqrt(run) * hazard
    assert belief.time.measured([1])[0][0] == pytest.approx(sibling, abs=1e-5)
    assert belief.time.runs == 0
    assert not belief.time.surprises()


def test_a_bound_beyond_three_deviations_counts_as_one_at_three() -> None:
    """It may be that of an accident."""
    found = []
    for away in (3.0, 9.0):
        belief = Surrogate(pool())
        run = math.sqrt(float(belief.time.most_deviation[0]) ** 2 + belief.trust.repeat**2)
        observe(belief, Observation(candidate=0, least=math.exp(float(belief.time.log_seconds()[0]) + away * run)))
        found.append(belief.time.measured([0])[0][0])
    assert found[0] == pytest.approx(found[1])


def test_a_measured_job_is_not_bounded_too() -> None:
    first, second = Surrogate(pool()), Surrogate(pool())
    observe(first, Observation(candidate=0, seconds=9.0))
    observe(second, Observation(candidate=0, seconds=9.0, least=8.9))
    assert first.time.measured([0])[0][0] == second.time.measured([0])[0][0]
