"""Extrapolation from a job at a reduced size to full size: its algebra, and what the surrogate learns from it."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tuner.core.columns import Columns, FloatArray
from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.fidelity import Fidelity
from tuner.costmodel.normal import below
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.time import seconds, time_terms
from tuner.search.candidates import CandidatePool
from tuner.search.constants import (
    GROWTH_DEVIATIONS,
    HALVED_DP_DEVIATION,
    ITERATION_DEVIATION,
    MEMORY_MARGIN,
    SURPRISED_MEMORY_WEIGHT,
    TERM_DEVIATIONS,
)
from tuner.search.extrapolation import ReducedRun, ReducedSize, gap_covariance, term_shares
from tuner.search.fidelities import fidelities
from tuner.search.observations import Observation
from tuner.search.surrogate import Surrogate
from tuner.space.build import space_for

SITE = SiteFactors()
PIPED = Topology(nodes=4, tp=2, pp=4, dp=4, micro_batch=1, zero=1, recompute="none")
SMALL = Fidelity(nodes=1, dp=1, micro_batches=(4, 8))
LESS = Fidelity(nodes=2, dp=2, micro_batches=(4,))


@cache
def setting() -> tuple[Workload, Cluster]:
    """A workload and a cluster for which the topologies of these tests are legal."""
    space = space_for(model="gpt-1.3b", nodes=4)
    return space.workload, space.cluster


@cache
def pool() -> CandidatePool:
    """A small space."""
    wanted = ("nodes=4", "tp=2", "zero=1", "recompute=none", "cp=1", "vpp=1")
    return CandidatePool.of_space(space_for(model="gpt-1.3b", nodes=4, settings=wanted))


def candidate() -> int:
    """The index of `PIPED` in the pool."""
    found = pool().find(PIPED)
    assert found is not None
    return found


def size(fidelity: Fidelity = SMALL) -> ReducedSize:
    """`PIPED` at a reduced size."""
    return ReducedSize.of(fidelity, PIPED, *setting())


def with_slower(term: str, factor: float, columns: Columns) -> FloatArray:
    """Seconds on a cluster where one term takes `factor` times as long as modelled."""
    terms = time_terms(columns, SITE)
    return seconds(columns, SITE) + (factor - 1) * terms[term]


def test_sizes_follow_from_the_fidelity() -> None:
    small = size().small
    assert small.dp.tolist() == [1, 1]
    assert small.nodes.tolist() == [1, 1]
    assert small.microbatches.tolist() == [4, 8]
    assert size().full.microbatches.tolist() == [setting()[0].global_batch // 4]


@pytest.mark.parametrize("counts", [(4,), (4, 8), (4, 8, 16)])
def test_the_weights_of_the_batches_sum_to_one(counts: tuple[int, ...]) -> None:
    """The weights sum to 1, so that an error of the model common to all sizes is extrapolated unchanged."""
    weights = size(Fidelity(nodes=1, dp=1, micro_batches=counts)).weights
    assert weights.sum() == pytest.approx(1.0)
    assert len(weights) == len(counts)


def test_a_job_as_fast_as_expected_predicts_the_expected_full_size() -> None:
    found = size()
    run = ReducedRun(size=found, seconds=tuple(seconds(found.small, SITE)))
    assert run.log_seconds - found.level(SITE) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("term", ["bubble", "optimizer"])
def test_two_batches_separate_fixed_costs_from_costs_per_microbatch(term: str) -> None:
    """With two batches, the extrapolation error due to a misjudged fixed cost is much smaller than with one batch."""
    errors = {}
    for counts in ((8,), (4, 8)):
        found = size(Fidelity(nodes=4, dp=4, micro_batches=counts))
        run = ReducedRun(size=found, seconds=tuple(with_slower(term, 1.3, found.small)))
        full = float(np.log(with_slower(term, 1.3, found.full) / seconds(found.full, SITE))[0])
        errors[counts] = abs(run.log_seconds - found.level(SITE) - full)
    assert errors[4, 8] < 0.6 * errors[8,]


@pytest.mark.parametrize("factor", [0.3, 3.0])
def test_fixed_costs_hardly_affect_the_extrapolation_of_two_batches(factor: float) -> None:
    """Two batches are extrapolated in seconds, not in logarithms, which would be wrong by 2.0% and 10.7%."""
    found = size(Fidelity(nodes=4, dp=4, micro_batches=(4, 8)))
    slower = np.log(with_slower("bubble", factor, found.small) / seconds(found.small, SITE))
    full = float(np.log(with_slower("bubble", factor, found.full) / seconds(found.full, SITE))[0])
    run = ReducedRun(size=found, seconds=tuple(with_slower("bubble", factor, found.small)))
    assert np.abs(slower).max() > 0.3
    assert abs(run.log_seconds - found.level(SITE) - full) < 0.4 * abs(float(found.weights @ slower) - full)


def test_a_full_size_job_is_not_faster_than_one_with_fewer_microbatches() -> None:
    """The projection is never below the measured seconds of a job with fewer microbatches."""
    assert size().projected(np.array([3.0, 2.0])) == pytest.approx(math.log(3.0))
    assert size().projected(np.array([0.4, 0.6])) > math.log(0.6)


def test_a_full_size_job_may_be_faster_if_the_model_expects_it() -> None:
    """The projection may be below the measurement if the model expects the small job to be the slower one.

    This happens with fewer replicas and equally many microbatches, as each replica has more optimizer state.
    """
    found = size(Fidelity(nodes=1, dp=1, micro_batches=(setting()[0].global_batch // 4,)))
    longer = replace(found, _seconds={SITE: 1.25 * seconds(found.full, SITE)})
    assert longer.projected(np.array([3.0])) == pytest.approx(math.log(3.0 / 1.25))


def test_each_reduction_adds_variance() -> None:
    """The variance of an extrapolation grows with every cut of data parallel degree or number of batches."""

    def variance(nodes: int, dp: int, *counts: int) -> float:
        found = size(Fidelity(nodes=nodes, dp=dp, micro_batches=counts))
        return float(gap_covariance([found], [found])[0, 0]) + found.variance

    assert 0 < variance(4, 4, 4, 8) < variance(2, 2, 4, 8) < variance(1, 1, 4, 8) < variance(1, 1, 4)


def test_more_iterations_reduce_the_variance_of_an_extrapolation() -> None:
    """Twice the iterations halve the noise variance of a batch, allow larger weights, and reduce the total variance."""
    once, twice = (ReducedSize.of(SMALL, PIPED, *setting(), iterations=count) for count in (1, 2))
    assert once.variance == pytest.approx(ITERATION_DEVIATION**2 * float((once.weights**2).sum()))
    assert twice.variance == pytest.approx(ITERATION_DEVIATION**2 / 2 * float((twice.weights**2).sum()))
    assert np.abs(twice.weights).max() >= np.abs(once.weights).max()
    total = [float(gap_covariance([found], [found])[0, 0]) + found.variance for found in (once, twice)]
    assert total[1] < total[0]


def test_topologies_are_reduced_by_at_most_four_and_never_below_their_pipeline() -> None:
    workload, cluster = setting()
    found = fidelities(PIPED, workload, cluster, several_batches=True)
    assert found == [
        Fidelity(nodes=1, dp=1, micro_batches=(4, 8)),
        Fidelity(nodes=2, dp=2, micro_batches=(4, 8)),
        Fidelity(nodes=4, dp=4, micro_batches=(4, 8)),
    ]
    wide = replace(PIPED, pp=1, dp=16)
    assert {each.dp for each in fidelities(wide, workload, cluster, several_batches=True)} == {4, 8, 16}


def test_a_single_batch_has_many_microbatches() -> None:
    """A job with a single batch size has many microbatches, so that fixed costs do not dominate."""
    workload, cluster = setting()
    (first, *_) = fidelities(PIPED, workload, cluster, several_batches=False)
    assert first.micro_batches == (16,)


def test_a_topology_without_replicas_and_with_a_small_batch_runs_at_full_size() -> None:
    workload, cluster = setting()
    alone = replace(PIPED, nodes=1, dp=1)
    assert fidelities(alone, replace(workload, global_batch=8), cluster, several_batches=True) == []


def test_few_nodes_reduce_the_replicas_as_far_as_needed() -> None:
    workload, cluster = setting()
    wide = replace(PIPED, pp=1, dp=16)
    found = fidelities(wide, workload, cluster, several_batches=True, most_nodes=1)
    assert {each.nodes for each in found} == {1}
    assert {each.dp for each in found} == {1, 2, 4}


def seen(off: float) -> Observation:
    """An observation at a reduced size that took exp(off) times as long as expected."""
    found = ReducedSize.of(SMALL, PIPED, *pool().setting(candidate()))
    expected = seconds(found.small, SITE) * math.exp(off)
    return Observation(
        candidate=candidate(), fits=True, reduced=ReducedRun(size=found, seconds=tuple(expected.tolist()))
    )


def test_the_surrogate_moves_towards_the_extrapolation_and_keeps_the_variance_of_the_gap() -> None:
    found = Surrogate(pool())
    before, wide = (float(values[0]) for values in found.time.measured([candidate()]))
    found.learn([seen(0.1)])
    after, deviation = (float(values[0]) for values in found.time.measured([candidate()]))
    assert 0.05 < after - before < 0.1
    found.learn([Observation(candidate=candidate(), seconds=math.exp(before + 0.1), fits=True)])
    assert float(found.time.measured([candidate()])[1][0]) < deviation < wide
    full = Surrogate(pool())
    full.learn([Observation(candidate=candidate(), seconds=math.exp(before + 0.1), fits=True)])
    assert float(full.time.measured([candidate()])[1][0]) < deviation


def test_a_reduced_job_out_of_memory_rules_out_no_topology() -> None:
    """Running out of memory rules a topology out at full size only; sharded states are larger at a reduced size."""
    found = Surrogate(pool())
    reduced = replace(seen(0.0), fits=False)
    assert reduced.reduced is not None
    found.learn([replace(reduced, reduced=ReducedRun(size=reduced.reduced.size))])
    assert not found.memory.ruled_out.any()
    assert found.memory._common == 1.0, "nor is it a surprise"
    assert found.memory.out_of_memory()[candidate()] < 1
    found.learn([Observation(candidate=candidate(), fits=False)])
    assert found.memory.ruled_out[candidate()]
    assert found.memory._common == SURPRISED_MEMORY_WEIGHT


def test_the_memory_of_a_reduced_job_is_compared_with_its_own_need() -> None:
    """If a small job needs exactly the memory that the model predicts for it, the full-size risk does not change."""
    found = Surrogate(pool())
    small = ReducedSize.of(SMALL, PIPED, *pool().setting(candidate()))
    assert small.need(SITE) > found.memory._need[candidate()]
    before = found.memory._overfull()[0][candidate()]
    found.learn([replace(seen(0.0), memory=math.exp(small.need(SITE)))])
    assert found.memory._overfull()[0][candidate()] == pytest.approx(before, abs=0.01)


def test_sizes_share_most_of_their_gap_with_topologies_of_equal_degrees() -> None:
    """The gaps of two topologies that differ in recompute correlate strongly, those of other splits less.

    A full-size run has no gap.
    """
    found = size()
    like, apart = (
        ReducedSize.of(SMALL, replace(PIPED, **changes), *setting())
        for changes in ({"recompute": "full"}, {"tp": 1, "pp": 8})
    )
    covariance = gap_covariance([found, like, apart], [found, like, apart])
    deviations = np.sqrt(np.diagonal(covariance))
    alike = covariance / np.outer(deviations, deviations)
    assert alike[0, 1] > 0.95 > alike[0, 2] > 0
    assert gap_covariance([found, None], [None, found]) == pytest.approx(np.array([[0, covariance[0, 0]], [0, 0]]))
    assert gap_covariance([], [found]).shape == (0, 1)


def test_topologies_at_the_same_reduced_size_have_similar_errors() -> None:
    """The small run of a second topology explains most of the difference of two siblings, but less of its full size."""
    found = Surrogate(pool())
    one, (other, *_) = candidate(), [each for each in range(len(pool())) if each != candidate()]
    sizes = {each: ReducedSize.of(SMALL, PIPED, *setting()) for each in (one, other)}
    found.learn([seen(0.1)])
    _, covariance = found.time.joint([(one, None), (other, None), (one, sizes[one]), (other, sizes[other])])
    beside = np.array([1, -1, 0, 0])
    revealed = (
        float(beside @ covariance[:, 3]) ** 2 / covariance[3, 3],
        float(covariance[1, 3]) ** 2 / covariance[3, 3],
    )
    assert revealed[0] > 0.8 * float(beside @ covariance @ beside), "49% with gaps of their own"
    assert revealed[1] < 0.66 * covariance[1, 1], "71% with gaps of their own"


def test_the_surrogate_learns_the_offset_from_a_topology_at_both_sizes() -> None:
    found = Surrogate(pool())
    level = float(found.time.log_seconds()[candidate()])
    found.learn([seen(0.0)])
    run = seen(0.0).reduced
    assert run is not None
    before = found.time.extrapolated(candidate(), run)
    found.learn([Observation(candidate=candidate(), seconds=math.exp(level + 0.04), fits=True)])
    assert found.time.extrapolated(candidate(), run) > before


@pytest.mark.parametrize(("dp", "halvings"), [(4, 0), (2, 1), (1, 2)])
def test_the_gap_is_the_residual_of_the_weighted_batches(dp: int, halvings: int) -> None:
    """The weights of sum 1 minimize |target - w rows|^2 + (d |w|)^2; halvings of dp and growth add to the gap."""
    found = size(Fidelity(nodes=dp, dp=dp, micro_batches=(4, 8, 16)))
    terms = time_terms(found.full, SITE)
    target, rows = term_shares(terms)[0], term_shares(time_terms(found.small, SITE))
    total = sum(float(value[0]) for value in terms.values())
    expected = [float(terms[name][0]) / total * each if name in terms else 0 for name, each in TERM_DEVIATIONS.items()]
    assert target == pytest.approx(expected)

    def left(weights: FloatArray) -> float:
        return float(((target - weights @ rows) ** 2).sum() + ITERATION_DEVIATION**2 * (weights**2).sum())

    growth = ((found.growth * GROWTH_DEVIATIONS) ** 2).sum()
    assert found.variance == pytest.approx(ITERATION_DEVIATION**2 * (found.weights**2).sum())
    assert found.halvings == halvings
    whole = left(found.weights) + HALVED_DP_DEVIATION**2 * halvings**2 + growth
    assert gap_covariance([found], [found])[0, 0] + found.variance == pytest.approx(whole)
    for step in ([1e-3, -1e-3, 0.0], [0.0, 1e-3, -1e-3], [-1e-3, 0.0, 1e-3]):
        assert left(found.weights + np.array(step)) > left(found.weights)


def test_the_offset_grows_with_doublings_of_ranks_and_nodes() -> None:
    found = size(Fidelity(nodes=2, dp=1, micro_batches=(4,)))
    terms = time_terms(found.full, SITE)
    network = sum(float(terms[name][0]) for name in ("data_parallel", "pipeline", "sharding"))
    share = network / sum(float(value[0]) for value in terms.values())
    assert found.growth == pytest.approx([2.0, 1.0 * share])


def test_a_reduced_run_has_its_own_residual_slopes_and_variance() -> None:
    found, small = Surrogate(pool()), seen(0.002)
    assert small.reduced is not None
    residual, slopes, variance = found.time.model.residual(small)
    assert residual == pytest.approx(0.002)
    assert variance == small.reduced.size.variance
    assert slopes[: len(small.reduced.size.slopes)] == pytest.approx(small.reduced.size.slopes)
    assert len(slopes) == len(found.time.model.slopes[candidate()])


def test_the_joint_posterior_agrees_with_that_of_single_topologies() -> None:
    """For full sizes, `joint` and `measured` return the same means and deviations."""
    found = Surrogate(pool())
    found.learn([seen(0.1), Observation(candidate=0, seconds=20.0, fits=True)])
    rows = [candidate(), 0, 1]
    means, covariance = found.time.joint([(row, None) for row in rows])
    expected, deviations = found.time.measured(rows)
    assert means == pytest.approx(expected, rel=1e-4)
    assert np.sqrt(np.diagonal(covariance)) == pytest.approx(deviations, rel=1e-3)
    assert covariance == pytest.approx(covariance.T)
    assert np.linalg.eigvalsh(covariance).min() > 0


def test_the_risk_of_a_reduced_job_follows_from_its_own_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small job's risk is its full-size risk, shifted by the additional memory that the small job needs."""
    found, one = Surrogate(pool()), candidate()
    small, other = ReducedSize.of(SMALL, PIPED, *setting()), ReducedSize.of(LESS, PIPED, *setting())
    beyond, deviation = np.linspace(-0.4, -0.1, len(pool())), np.linspace(0.2, 0.3, len(pool()))
    monkeypatch.setattr(found.memory, "_overfull", lambda: (beyond, deviation))
    last = len(pool()) - 1
    jobs = [(one, small), (one, other), (last, small)]
    risks = found.memory.reduced_out_of_memory(jobs)
    for risk, (which, job) in zip(risks, jobs, strict=True):
        more = job.need(SITE) - float(found.memory._need[which])
        expected = below(np.array([(beyond[which] + more) / deviation[which]]))
        assert risk == pytest.approx(float(expected[0]))
    assert 0 < risks[1] < risks[0] < 1


def test_the_variance_of_an_extrapolation_includes_its_gap() -> None:
    """An extrapolation is the model's seconds times measured over expected; its variance includes the gap."""
    found, job = Surrogate(pool()), size()
    run = ReducedRun(size=job, seconds=tuple((seconds(job.small, SITE) * 1.1).tolist()))
    model = math.exp(float(found.time.log_seconds()[candidate()]))
    assert math.exp(found.time.model.level[candidate()]) == pytest.approx(model)
    assert found.time.extrapolated(candidate(), run) == pytest.approx(1.1 * model)
    means, covariance = found.time.joint([(candidate(), job)])
    assert means[0] == pytest.approx(job.level(SITE))
    alone = found.time.prior.residual + float(gap_covariance([job], [job])[0, 0])
    slopes = found.time.model.reduced_slopes(candidate(), job)
    assert covariance[0, 0] == pytest.approx(
        alone + float((slopes * found.time.prior.deviations) ** 2 @ np.ones(len(slopes)))
    )


@pytest.mark.parametrize("reduced", [True, False])
def test_out_of_memory_is_a_bound_at_the_need_of_that_job(reduced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of memory is learnt as a bound at the need of the job that ran: the small job's need for a reduced one."""
    found = Surrogate(pool())
    job = ReducedRun(size=size()) if reduced else None
    edges: list[tuple[float, bool]] = []
    monkeypatch.setattr(found.memory, "_weigh_side", lambda *_, **given: edges.append((given["edge"], given["above"])))
    found.memory._take(Observation(candidate=candidate(), fits=False, reduced=job))
    need = size().need(SITE) if reduced else float(found.memory._need[candidate()])
    deviation = float(found.memory._deviation[found.pool.groups[1][candidate()]])
    edge = (float(pool().room[candidate()]) - MEMORY_MARGIN[0] - need) / deviation
    ((given, above),) = edges
    assert given == pytest.approx(edge)
    assert above
    assert size().need(SITE) > found.memory._need[candidate()]
