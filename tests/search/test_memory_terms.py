"""Memory figures show which terms of the memory the cost model misjudges."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from tests.search.test_search_arithmetic import pool
from tuner.core.columns import FloatArray
from tuner.costmodel.memory import memory_terms, worst_need
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stages import Stages
from tuner.search.observations import Observation
from tuner.search.surrogate import Surrogate

SITE = SiteFactors()


def changed(terms: Mapping[str, FloatArray], factors: Mapping[str, float]) -> FloatArray:
    """The sum of the terms, some of them larger or smaller by these factors."""
    together: FloatArray = np.sum([factors.get(name, 1.0) * term for name, term in terms.items()], axis=0)
    return together


def needed(**factors: float) -> FloatArray:
    """The logarithm of the memory that each candidate needs if some terms are larger or smaller by these factors."""
    found = []
    for part in pool().parts:
        terms = memory_terms(Stages(part, worst_need(part, SITE).stage), SITE)
        found.append(changed(terms, factors))
    return np.log(np.concatenate(found))


def expected(belief: Surrogate) -> FloatArray:
    """The logarithm of each candidate's expected memory, up to the margin that all have in common."""
    return belief.memory._overfull()[0] + pool().room


def fitting(belief: Surrogate, count: int) -> list[int]:
    """Candidates that surely fit and whose memory is made up differently."""
    safe = np.flatnonzero(belief.memory.out_of_memory() < 1e-3)
    return [int(candidate) for candidate in safe[:: max(1, len(safe) // count)][:count]]


@pytest.mark.parametrize("factors", [{"activations": 0.6}, {"activations": 1.3, "optimizer": 0.8}, {"context": 3.0}])
def test_a_term_that_the_model_misjudges_is_corrected_where_nothing_ran(factors: dict[str, float]) -> None:
    """After eight figures, the error of all other estimates has fallen to less than three tenths."""
    belief, truth = Surrogate(pool()), needed(**factors)
    jobs = fitting(belief, 8)
    before = expected(belief) - truth
    belief.learn([Observation(candidate=job, fits=True, memory=math.exp(truth[job])) for job in jobs])
    after = expected(belief) - truth
    others = np.delete(np.arange(len(truth)), jobs)
    spread = float(np.sqrt(np.mean(before[others] ** 2)))
    assert float(np.sqrt(np.mean(after[others] ** 2))) < 0.3 * spread


@pytest.mark.parametrize(("factor", "scale"), [(1.0, 1.0), (1.08, 2.0), (1.6, 4.0)])
def test_the_uncertainty_of_memory_follows_the_figures(factor: float, scale: float) -> None:
    """The residual is once, twice or four times as uncertain as assumed, whichever makes the figures most likely."""
    belief = Surrogate(pool())
    before = belief.memory._deviation.copy()
    needs, random = belief.memory._need, np.random.default_rng(4)
    jobs = fitting(belief, 12)
    signs = random.choice([-1, 1], len(jobs))
    belief.learn(
        [
            Observation(candidate=job, fits=True, memory=math.exp(needs[job] + sign * math.log(factor)))
            for job, sign in zip(jobs, signs, strict=True)
        ]
    )
    assert belief.memory._deviation == pytest.approx(scale * before)
