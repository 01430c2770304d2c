"""Laws of the surrogate: what it learns from a job."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.search.test_search_arithmetic import pool
from tests.strategies import shown
from tuner.core.columns import BoolArray, IntArray
from tuner.search.constants import MAX_FACTOR_MOVE
from tuner.search.observations import Observation
from tuner.search.surrogate import Surrogate


def everything() -> IntArray:
    """All candidates."""
    return np.arange(len(pool()))


def _seen(jobs: list[tuple[int, float | None]]) -> list[Observation]:
    """The jobs as the surrogate receives them."""
    expected = Surrogate(pool()).time.log_seconds()
    return [
        Observation(candidate=place, fits=False)
        if off is None
        else Observation(candidate=place, seconds=math.exp(expected[place] + off), fits=True)
        for place, off in jobs
    ]


@given(st.integers(0, 10**6), st.floats(-0.3, 0.3))
@settings(max_examples=25)
def test_a_measurement_moves_the_estimate_towards_it(candidate: int, off: float) -> None:
    """The mean of a measured candidate ends between prediction and measurement, closer to the measurement."""
    belief, candidate = Surrogate(pool()), candidate % len(pool())
    before = float(belief.time.log_seconds()[candidate])
    belief.learn([Observation(candidate=candidate, seconds=math.exp(before + off), fits=True)])
    after, deviation = (float(each[0]) for each in belief.time.measured([candidate]))
    assert abs(after - before - off) <= abs(off) / 2 + 1e-9
    assert (after - before) * off >= -1e-9
    assert deviation < 0.03


@given(shown(len(pool())))
@example([(95, 0.0625), (0, None), (1, None), (85, 0.0)])  # the factors cycle
@example([(0, None), (97, -0.09375), (1, -0.0625)])  # two points of linearization suit the runs
@settings(max_examples=8)
def test_the_order_of_learning_does_not_matter(jobs: list[tuple[int, float | None]]) -> None:
    """Processes that learn the same jobs in different orders arrive at nearly the same posterior."""
    means, spreads = [], []
    for order in list(permutations(_seen(jobs)))[:3]:
        belief = Surrogate(pool())
        for each in order:
            belief.learn([each])
        means.append(belief.time.log_seconds())
        spreads.append(belief.time.deviation(everything()))
    for mean, spread in zip(means[1:], spreads[1:], strict=True):
        apart = np.abs(mean - means[0]) / spread
        assert np.quantile(apart, 0.95) < 0.25  # the site at which the model is linearized may differ slightly
        assert apart.max() < 1.0
        assert np.quantile(np.abs(spread - spreads[0]), 0.95) < 0.01


def test_the_model_is_linearized_near_the_factors_of_the_cluster() -> None:
    """The model is linearized near the site factors that the runs show."""
    belief = Surrogate(pool())
    off = 0.3 * (np.arange(0, len(pool()), 7) % 2)  # every second one is slower by a factor exp(0.3)
    belief.learn(_seen(list(zip(range(0, len(pool()), 7), off.tolist(), strict=True))))
    assert belief.time.move <= MAX_FACTOR_MOVE


@given(shown(len(pool())))
@settings(max_examples=15)
def test_an_observation_increases_no_deviation(jobs: list[tuple[int, float | None]]) -> None:
    """An observation never increases the deviation of any candidate."""
    belief = Surrogate(pool())
    last = belief.time.deviation(everything())
    for each in _seen(jobs):
        belief.learn([each])
        now = belief.time.deviation(everything())
        assert (now <= last + 2e-4).all()
        assert (now <= belief.time.most_deviation + 1e-6).all()
        last = now


def _larger_and_smaller(candidate: int) -> tuple[BoolArray, BoolArray]:
    """The masks of the same topology with larger and with smaller micro batches."""
    names = ("tp", "pp", "cp", "vpp", "dp", "zero", "recompute", "sequence_parallel", "partition", "heads", "nodes")
    same = np.ones(len(pool()), dtype=np.bool_)
    for name in names:
        column = pool().column(name)
        same &= column == column[candidate]
    batch = pool().column("micro_batch")
    return same & (batch > batch[candidate]), same & (batch < batch[candidate])


@given(st.integers(0, 10**6))
@settings(max_examples=25)
def test_out_of_memory_rules_out_larger_but_not_smaller_micro_batches(candidate: int) -> None:
    """Out of memory rules out the topology and larger micro batches, but not smaller ones."""
    belief, candidate = Surrogate(pool()), candidate % len(pool())
    belief.learn([Observation(candidate=candidate, fits=False)])
    larger, smaller = _larger_and_smaller(candidate)
    assert belief.memory.ruled_out[larger].all()
    assert belief.memory.ruled_out[candidate]
    assert (belief.memory.out_of_memory()[larger] == 1.0).all()
    assert not belief.memory.ruled_out[smaller].any()


@given(st.integers(0, 10**6), st.floats(1.0, 3.0), st.booleans())
@settings(max_examples=25)
def test_slowness_rules_out_nothing(candidate: int, slower: float, forecast: bool) -> None:
    """A slow job never rules out a candidate."""
    belief, candidate = Surrogate(pool()), candidate % len(pool())
    seconds = slower * math.exp(float(belief.time.log_seconds()[candidate]))
    belief.learn([Observation(candidate=candidate, seconds=seconds, fits=True, forecast=forecast)])
    assert not belief.memory.ruled_out.any()


def test_jobs_that_fit_lower_the_risk_of_others_and_failures_raise_it() -> None:
    """A job that fits lowers the mean risk of other doubtful candidates; one that does not raises it."""
    risk = Surrogate(pool()).memory.out_of_memory()
    doubtful = int(np.argmin(np.abs(risk - 0.5)))
    others = np.flatnonzero((risk > 0.05) & (risk < 0.95))
    ran, died = Surrogate(pool()), Surrogate(pool())
    ran.learn([Observation(candidate=doubtful, fits=True)])
    died.learn([Observation(candidate=doubtful, fits=False)])
    assert ran.memory.out_of_memory()[others].mean() < risk[others].mean() < died.memory.out_of_memory()[others].mean()


@pytest.mark.parametrize("factor", [1.05, 0.93])
def test_the_evidence_finds_the_start_of_a_speed_period(factor: float) -> None:
    """The evidence is largest if the change of speed is placed at the run where it really began."""
    belief, chance = Surrogate(pool()), np.random.default_rng(1)
    expected = belief.time.log_seconds()
    picked = chance.choice(len(pool()), 4, replace=False)
    runs = [int(picked[place % 4]) for place in range(16)]
    belief.learn(
        [
            Observation(
                candidate=run, seconds=math.exp(expected[run] + 0.005 * chance.normal()) * (factor if at >= 9 else 1)
            )
            for at, run in enumerate(runs)
        ]
    )
    likely = [belief.evidence(["" if at < first else "later" for at in range(16)]) for first in range(1, 16)]
    assert 1 + int(np.argmax(likely)) == 9
    assert max(likely) > belief.evidence([""] * 16)
