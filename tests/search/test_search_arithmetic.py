"""The surrogate, its moments and its acquisition, compared with closed forms for one and two observations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.workers import ONE
from tuner.core.columns import Columns, distinct_rows
from tuner.costmodel.calibration import Calibration
from tuner.costmodel.constants import PERIOD_DEVIATION
from tuner.costmodel.memory import limit
from tuner.costmodel.normal import below, density, truncated
from tuner.costmodel.residual_features import Features
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.time import seconds
from tuner.search.acquisition import choose, improvement, net_saving
from tuner.search.candidates import CandidatePool
from tuner.search.constants import (
    FORECAST_DEVIATION,
    MEMORY_FIGURE_DEVIATION,
    MEMORY_MARGIN,
    OOM_COST,
    OWN_DEVIATION,
    REPEAT_DEVIATION,
)
from tuner.search.incremental_gp import IncrementalGP
from tuner.search.observations import Observation, Trust
from tuner.search.surrogate import Surrogate
from tuner.space.build import space_for


def phi(z: float) -> float:
    """The standard normal distribution function."""
    return 0.5 * math.erfc(-z / math.sqrt(2))


def cut(mean: float, variance: float, edge: float, *, above: bool) -> tuple[float, float]:
    """Mean and variance of a normal variable truncated to above (or below) an edge, by the textbook formulas."""
    deviation = math.sqrt(variance)
    z = (edge - mean) / deviation
    peak = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    hazard = peak / (1 - phi(z)) if above else -peak / phi(z)
    return mean + deviation * hazard, variance * (1 + z * hazard - hazard**2)


@cache
def pool() -> CandidatePool:
    """A small pool in which some topologies may not fit."""
    return CandidatePool.of_space(
        space_for(model="gpt-1.3b", nodes=4, settings=("nodes=4", "tp=1,4", "zero=1,2", "recompute=none", "cp=1"))
    )


@pytest.mark.parametrize("z", [-9.5, -3.0, -0.5, 0.0, 0.25, 2.0, 9.5])
def test_the_normal_distribution_and_its_density(z: float) -> None:
    assert float(below(np.array([z]))[0]) == pytest.approx(phi(z), abs=1e-7)
    assert float(density(np.array([z]))[0]) == pytest.approx(math.exp(-z * z / 2) / math.sqrt(2 * math.pi))


@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize(("mean", "variance", "edge"), [(0.0, 1.0, 0.0), (0.3, 2.0, 1.0), (-1.0, 0.5, -1.5), (5, 4, 6)])
def test_an_equivalent_observation_has_the_moments_of_the_truncated_normal(
    mean: float, variance: float, edge: float, *, above: bool
) -> None:
    """The prior combined with the equivalent observation has the moments of the truncated variable."""
    found = truncated(mean, variance, edge, above=above)
    assert found is not None
    value, noise = found
    left = 1 / (1 / variance + 1 / noise)
    moments = left * (mean / variance + value / noise), left
    assert moments == pytest.approx(cut(mean, variance, edge, above=above), rel=1e-4)


def test_a_probability_beyond_nine_deviations_is_zero() -> None:
    found = below(np.array([-8.999, -9.0, 9.0, math.nan]))
    assert found[0] > found[1] == 0.0
    assert found[2] == 1.0
    assert math.isnan(found[3])


def test_an_almost_certain_outcome_is_not_learnt() -> None:
    """An outcome with a probability above 0.995 is not learnt: Phi(2.57) = 0.9949 and Phi(2.58) = 0.99506."""
    assert truncated(2.57, 1.0, 0.0, above=True) is not None
    assert truncated(2.58, 1.0, 0.0, above=True) is None
    assert truncated(-2.58, 1.0, 0.0, above=False) is None


def test_the_precision_of_an_equivalent_observation_is_limited() -> None:
    """The precision of the equivalent observation is at least 1e-6."""
    found = truncated(-10.0, 1.0, 0.0, above=True)
    assert found is not None
    assert found[1] == pytest.approx(1e6)


def test_one_measurement_moves_the_estimate_by_its_share_of_the_variance() -> None:
    """The mean moves by V / (V + r^2) x residual, and the variance becomes V r^2 / (V + r^2); V is the prior's."""
    for trust in (Trust(), Trust(repeat=0.05, unsure=2.0)):
        belief = Surrogate(pool(), trust=trust)
        candidate, residual = 3, 0.01
        before, prior = float(belief.time.log_seconds()[candidate]), float(belief.time.most_deviation[candidate]) ** 2
        mean, deviation = belief.time.measured([candidate])
        assert (mean[0], deviation[0]) == (pytest.approx(before), pytest.approx(math.sqrt(prior)))
        assert float(belief.time.deviation(np.array([candidate]))[0]) == pytest.approx(math.sqrt(prior), rel=1e-5)
        belief.learn([Observation(candidate=candidate, seconds=math.exp(before + residual))])
        noise = trust.repeat**2
        mean, deviation = belief.time.measured([candidate])
        assert mean[0] == pytest.approx(before + residual * prior / (prior + noise), rel=1e-6)
        assert deviation[0] == pytest.approx(math.sqrt(prior * noise / (prior + noise)), rel=1e-5)
        belief.learn([Observation(candidate=candidate, seconds=math.exp(before + residual))])
        mean, deviation = belief.time.measured([candidate])
        assert mean[0] == pytest.approx(before + residual * 2 * prior / (2 * prior + noise), rel=1e-6)
        assert belief.candidates_seen.tolist() == [candidate, candidate]


def test_a_forecast_weighs_less_than_a_measurement() -> None:
    belief = Surrogate(pool())
    before, prior = float(belief.time.log_seconds()[0]), float(belief.time.most_deviation[0]) ** 2
    belief.learn([Observation(candidate=0, seconds=math.exp(before + 0.01), forecast=True)])
    gain = prior / (prior + FORECAST_DEVIATION**2)
    assert belief.time.measured([0])[0][0] == pytest.approx(before + 0.01 * gain, rel=1e-6)


def observe(belief: Surrogate, seen: Observation) -> None:
    """Add an observation at the present point of linearization."""
    belief._runs.add(seen)
    belief.time.catch_up()


def test_beyond_three_deviations_noise_grows_quadratically() -> None:
    """At k > 3 deviations the total variance V + r^2 is multiplied by (k / 3)^2, so that the gain falls with k^2."""
    for times in (2.9, 6.0):
        belief = Surrogate(pool())
        other = int(np.argmax(belief.time.log_seconds()))
        observe(belief, Observation(candidate=other, seconds=math.exp(float(belief.time.log_seconds()[other]))))
        before, deviation = (float(found[0]) for found in belief.time.measured([0]))
        total = deviation**2 + REPEAT_DEVIATION**2
        residual = times * math.sqrt(total)
        observe(belief, Observation(candidate=0, seconds=math.exp(before + residual)))
        gain = deviation**2 / (total * max(1.0, times / 3) ** 2)
        assert belief.time.measured([0])[0][0] == pytest.approx(before + residual * gain, rel=1e-5)


@pytest.mark.parametrize("times", [-20.0, 20.0])
def test_the_first_run_is_trusted_at_any_distance(times: float) -> None:
    """The first run has its full gain at any distance, because no other measurement contradicts it."""
    belief = Surrogate(pool())
    before, prior = float(belief.time.log_seconds()[0]), float(belief.time.most_deviation[0]) ** 2
    residual = times * math.sqrt(prior)
    observe(belief, Observation(candidate=0, seconds=math.exp(before + residual)))
    gain = prior / (prior + REPEAT_DEVIATION**2)
    assert belief.time.measured([0])[0][0] == pytest.approx(before + residual * gain, rel=1e-5)


@pytest.mark.parametrize("factor", [0.1, 2.5, 3.0, 7.0, 10.0, 1000.0])
def test_a_cluster_many_times_as_fast_or_slow_is_searched_like_any_other(factor: float) -> None:
    """After two runs that are off by the same factor, all other estimates are scaled by about that factor."""
    usual, other = Surrogate(pool()), Surrogate(pool())
    seconds = np.exp(usual.time.log_seconds())
    for candidate in (0, len(seconds) // 2):
        usual.learn([Observation(candidate=candidate, seconds=float(seconds[candidate]))])
        other.learn([Observation(candidate=candidate, seconds=float(seconds[candidate]) * factor)])
        for belief in (usual, other):
            belief.adapt(lambda noise: noise)
    assert other.trust.level > 1
    assert usual.trust.level == 0
    assert other.time.log_seconds() - usual.time.log_seconds() == pytest.approx(math.log(factor), abs=0.1)


def test_the_evidence_is_a_gaussian_log_likelihood() -> None:
    """One run has variance V + r^2; two runs of one topology have covariance V, less the period's across periods."""
    belief = Surrogate(pool())
    before, prior = float(belief.time.log_seconds()[0]), float(belief.time.most_deviation[0]) ** 2
    total = prior + REPEAT_DEVIATION**2
    belief.learn([Observation(candidate=0, seconds=math.exp(before + 0.01))])
    assert belief.evidence([""]) == pytest.approx(-0.5 * (0.01**2 / total + math.log(total)), rel=1e-5)
    belief.learn([Observation(candidate=0, seconds=math.exp(before - 0.005)), Observation(candidate=1, fits=True)])
    for labels, shared in ((["", "", ""], prior), (["", "x", ""], prior - PERIOD_DEVIATION**2)):
        determinant = total**2 - shared**2
        square = (total * (0.01**2 + 0.005**2) - 2 * shared * 0.01 * -0.005) / determinant
        assert belief.evidence(labels) == pytest.approx(-0.5 * (square + math.log(determinant)), rel=1e-4)


def doubtful(belief: Surrogate) -> int:
    """The candidate with a risk closest to 40%."""
    return int(np.argmin(np.abs(belief.memory.out_of_memory() - 0.4)))


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_job_that_fitted_truncates_the_posterior_of_its_memory(jobs: int) -> None:
    """A job that fitted truncates the normal posterior of its memory at the room less the margin.

    In units of the memory model's deviation d, the variance of need and margin is 1 + (0.03 / d)^2.
    """
    belief = Surrogate(pool())
    candidate = doubtful(belief)
    deviation = float(belief.memory._deviation[belief.pool.groups[1][candidate]])
    edge = (float(pool().room[candidate]) - MEMORY_MARGIN[0] - float(belief.memory._need[candidate])) / deviation
    mean, variance = 0.0, 1 + (MEMORY_MARGIN[1] / deviation) ** 2
    assert belief.memory.out_of_memory()[candidate] == pytest.approx(phi((mean - edge) / math.sqrt(variance)), abs=1e-6)
    for _ in range(jobs):
        belief.learn([Observation(candidate=candidate, fits=True)])
        mean, variance = cut(mean, variance, edge, above=False)
    assert belief.memory.out_of_memory()[candidate] == pytest.approx(phi((mean - edge) / math.sqrt(variance)), rel=1e-3)
    assert not belief.memory.ruled_out.any()


def test_a_memory_figure_moves_the_need_towards_it() -> None:
    """A memory figure moves the need by 1 / (1 + (0.015 / d)^2) of its residual; its noise is 1.5%."""
    belief = Surrogate(pool())
    candidate = doubtful(belief)
    deviation = float(belief.memory._deviation[belief.pool.groups[1][candidate]])
    need = float(belief.memory._need[candidate])
    belief.learn([Observation(candidate=candidate, fits=True, memory=math.exp(need - deviation))])
    beyond, _ = belief.memory._overfull()
    gain = 1 / (1 + (MEMORY_FIGURE_DEVIATION / deviation) ** 2)
    expected = need - float(pool().room[candidate]) + MEMORY_MARGIN[0] - deviation * gain
    assert float(beyond[candidate]) == pytest.approx(expected, abs=0.01)


def test_the_least_need_is_the_lowest_mean() -> None:
    belief = Surrogate(pool())
    beyond, _ = belief.memory._overfull()
    candidate, times = belief.memory.least_need()
    assert candidate == int(np.argmin(beyond))
    assert times == pytest.approx(math.exp(float(beyond.min())))


@pytest.mark.parametrize("asked", [(19,), (3, 15, 19), range(20)])
def test_incremental_rows_equal_the_batch_solution(asked: Sequence[int]) -> None:
    """Rows added one by one give the L^-1 b and L^-1 K of a batch solution, even beyond the initial 16 rows.

    It does not matter after which of them the groups are asked for.
    """
    random = np.random.default_rng(1)
    root = random.normal(size=(20, 20))
    whole = root @ root.T + 20 * np.eye(20)
    across, carried, tracked = (random.normal(size=(20, count)) for count in (5, 2, 3))
    field = IncrementalGP(5, 2)
    for column in range(3):
        field.follow(np.zeros(0) if not field.rows else tracked[: field.rows, column])
    inverse = np.linalg.inv(np.linalg.cholesky(whole))
    for row in range(20):
        field.add(whole[row, :row], whole[row, row], carried[row], tracked[row])
        if row in asked:
            assert field.whitened(across.__getitem__) == pytest.approx(
                inverse[: row + 1, : row + 1] @ across[: row + 1], abs=1e-5
            )
    assert field.carried == pytest.approx(inverse @ carried)
    assert field.followed == pytest.approx(inverse @ tracked)
    assert field.solved(tracked[:, 0]) == pytest.approx(inverse @ tracked[:, 0])


def test_a_repeat_without_noise_leaves_a_minimum_variance() -> None:
    field = IncrementalGP(1, 1)
    field.add(np.zeros(0), 1.0, np.ones(1))
    field.add(np.ones(1), 1.0, np.array([1.0 + 1e-5]))
    assert field.carried[1, 0] == pytest.approx(1e-5 / math.sqrt(1e-10), rel=1e-3)


def two_parts() -> CandidatePool:
    """A pool of two workloads with different sequence lengths and batches."""
    space = space_for(model="gpt-1.3b", nodes=4)
    workload, cluster = space.workload, space.cluster
    other = replace(workload, model=replace(workload.model, seq=2 * workload.model.seq), global_batch=64)
    ones = [replace(ONE, micro_batch=size, zero=zero) for size, zero in [(1, 1), (2, 1), (1, 2), (1, 3)]]
    more = [replace(ONE, micro_batch=size, zero=1) for size in (4, 1)]
    return CandidatePool(
        workload=workload,
        parts=(Columns.of(ones, workload, cluster), Columns.of(more, other, cluster)),
    )


def test_candidates_are_numbered_across_all_parts() -> None:
    parts = two_parts()
    assert (len(parts), parts.starts.tolist()) == (6, [0, 4, 6])
    assert [parts.part(candidate) for candidate in range(6)] == [0, 0, 0, 0, 1, 1]
    assert [parts.at(candidate)[1] for candidate in range(6)] == [0, 1, 2, 3, 0, 1]
    assert [parts.topology(candidate).micro_batch for candidate in range(6)] == [1, 2, 1, 1, 4, 1]
    assert parts.column("micro_batch").tolist() == [1, 2, 1, 1, 4, 1]
    assert parts.setting(4)[0].global_batch == 64
    assert [parts.find(parts.topology(candidate)) for candidate in range(6)] == [0, 1, 2, 3, 4, 0]
    assert parts.find(replace(ONE, micro_batch=64)) is None


def test_every_candidate_has_the_features_of_its_group() -> None:
    """ZeRO 1 and 2 share a group and ZeRO 3 does not; the groups of each part follow those of earlier parts."""
    parts = two_parts()
    features, groups = parts.groups
    assert len(features) == 5
    assert groups[0] == groups[2] != groups[3]
    assert set(groups[:4].tolist()) == {0, 1, 2}
    assert set(groups[4:].tolist()) == {3, 4}
    whole = [row for part in parts.parts for row in Features.of(part).smooth.tolist()]
    assert [features.smooth[group].tolist() for group in groups] == whole


def test_work_is_the_iterations_at_equal_compute_and_room_the_bytes_of_a_gpu() -> None:
    parts = two_parts()
    workload = parts.workload
    iterations = workload.training_tokens / (workload.global_batch * workload.model.seq)
    assert np.exp(parts.work[:4]) == pytest.approx(iterations)
    hidden, layers, seq, vocab = 2048, 24, 2048, 50257  # without padding
    own, longer = (layers * (12 * hidden**2 + 2 * length * hidden) + hidden * vocab for length in (seq, 2 * seq))
    ratio = workload.global_batch * seq * own / (64 * 2 * seq * longer)
    assert np.exp(parts.work[4:]) == pytest.approx(iterations * ratio)
    assert np.exp(parts.room) == pytest.approx(float(limit(parts.parts[0])))
    assert parts.splits.tolist() == [1 * 2 + 1] * 6


def test_distinct_rows_are_in_their_order() -> None:
    first, back = distinct_rows([np.array([2, 1, 2, 1]), np.array([0, 5, 0, 6])])
    assert [(first[kind], kind == back[0]) for kind in back] == [(0, True), (1, False), (0, True), (3, False)]
    wide = [np.array([0, 2**24, 2**40]), np.array([0, 0, 2**40 - 1])]  # in one number, the second would be 2**64
    assert sorted(distinct_rows(wide)[0].tolist()) == [0, 1, 2]


@pytest.mark.parametrize(("mean", "deviation", "best"), [(0.0, 1.0, 0.0), (1.0, 0.5, 0.8), (-2.0, 0.1, -1.9)])
def test_expected_improvement_follows_mockus(mean: float, deviation: float, best: float) -> None:
    """Expected improvement is (best - mean) Phi(z) + deviation phi(z)."""
    z = (best - mean) / deviation
    expected = (best - mean) * phi(z) + deviation * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    found = improvement(np.array([mean]), np.array([deviation]), best)
    assert float(found[0]) == pytest.approx(expected, abs=1e-6)


def test_the_value_of_a_job_is_its_gain_less_the_cost_of_its_risk() -> None:
    assert net_saving(gain=0.5, risk=0.2) == pytest.approx(0.5 * 0.8 - OOM_COST * 0.2)
    assert OOM_COST == 0.005


def test_the_first_choice_is_the_fastest_that_is_likely_to_fit() -> None:
    """The first choice minimizes mean - log(1 - risk) among candidates with a risk of at most 0.6."""
    belief = Surrogate(pool())
    mean, risk = belief.time.log_seconds() + pool().work, belief.memory.out_of_memory()
    choice = choose(belief, best=None, open_to=np.ones(len(pool()), dtype=np.bool_))
    assert choice is not None
    value = np.where(risk <= 0.6, mean - np.log1p(-np.minimum(risk, 0.999)), np.inf)
    assert choice.candidate == int(np.argmin(value))
    assert (choice.gain, choice.chance, choice.out_of_memory) == (0.0, 1.0, float(risk[choice.candidate]))
    best = float(mean.min())
    later = choose(belief, best=best, open_to=np.arange(len(pool())) == choice.candidate)
    assert later is not None
    z = (best - mean[choice.candidate]) / float(belief.time.deviation(np.array([choice.candidate]))[0])
    assert later.chance == pytest.approx(phi(z), abs=1e-6)


def test_observations_of_another_period_weigh_less() -> None:
    """Relabelling gives the same posterior as learning the observation with the new label.

    Observations of another period share all but the period's part of the variance.
    """
    expected = math.exp(float(Surrogate(pool()).time.log_seconds()[3]) + 0.02)
    moved, fresh, same = Surrogate(pool()), Surrogate(pool(), period="b"), Surrogate(pool())
    for belief, period in ((moved, ""), (fresh, "a"), (same, "")):
        belief.learn([Observation(candidate=3, seconds=expected, fits=True, period=period)])
    moved.relabel(["a"], "b")
    assert moved.period == "b"
    assert moved.time.log_seconds() == pytest.approx(fresh.time.log_seconds())
    assert moved.time.log_seconds()[0] < same.time.log_seconds()[0]
    moved.relabel([""], "")
    assert moved.time.log_seconds() == pytest.approx(same.time.log_seconds())
    with pytest.raises(ValueError, match="zip"):
        moved.relabel([], "")


def test_before_any_job_the_site_factors_are_those_of_the_calibration() -> None:
    """Before any job, the estimates are the cost model's at the site factors of the calibration."""
    for site in (SiteFactors(), SiteFactors(products=0.8, traffic=1.3)):
        belief = Surrogate(pool(), Calibration(site=site))
        (part,) = pool().parts
        assert np.exp(belief.time.log_seconds()) == pytest.approx(seconds(part, site))
        assert belief.time.site == belief.time.model.site
        assert (belief.time.site.products, belief.time.site.traffic) == pytest.approx((site.products, site.traffic))
        assert belief.time._shift()[0] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(("period", "shared"), [("", PERIOD_DEVIATION**2), ("earlier", 0.0)])
def test_a_similar_candidate_shares_all_but_its_own_residual(period: str, shared: float) -> None:
    """The estimate of a similar candidate moves by -0.01 x covariance / variance.

    The covariance includes the period's part only if the measurement is of the same period.
    """
    belief = Surrogate(pool())
    before, prior = belief.time.log_seconds(), float(belief.time.most_deviation[3]) ** 2
    belief.learn([Observation(candidate=3, seconds=math.exp(float(before[3]) - 0.01), period=period)])
    covariance = prior - OWN_DEVIATION**2 - PERIOD_DEVIATION**2 + shared
    moved = -0.01 * covariance / (prior + REPEAT_DEVIATION**2)
    assert float(belief.time.log_seconds()[3] - before[3]) == pytest.approx(moved, rel=1e-4)
