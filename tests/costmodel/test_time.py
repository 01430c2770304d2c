"""Laws of the estimated seconds of an iteration, for arbitrary runs."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import alternatives, runs, sites
from tuner.core.columns import CHUNK, Columns
from tuner.core.domain import Cluster, Topology, Workload
from tuner.costmodel.estimate import CostModel
from tuner.costmodel.links import all_reduce, gather
from tuner.costmodel.site_factors import TIME_FACTORS, SiteFactors
from tuner.costmodel.time import TERMS, seconds, time_terms
from tuner.space.space import Space

Drawn = tuple[Workload, Cluster, Topology]
SLOWER = ("host", "upkeep")
"""Factors that are times rather than speeds: larger is slower."""


def columns_of(drawn: Drawn) -> Columns:
    workload, cluster, topology = drawn
    return Columns.of([topology], workload, cluster)


def took(workload: Workload, cluster: Cluster, topology: Topology, site: SiteFactors | None = None) -> float:
    return float(seconds(Columns.of([topology], workload, cluster), site or SiteFactors())[0])


@given(alternatives(), sites())
def test_every_term_is_finite_and_none_is_negative_and_they_add_up(columns: Columns, site: SiteFactors) -> None:
    """Exactly the documented terms exist, finite and not negative, and their sum is the iteration's time."""
    terms = time_terms(columns, site)
    assert tuple(terms) == TERMS
    for term in terms.values():
        assert np.shape(term) == np.shape(columns.tp)
        assert np.isfinite(term).all()
        assert (term >= 0).all()
    assert np.allclose(sum(terms.values()), seconds(columns, site), rtol=1e-12)
    assert (seconds(columns, site) > 0).all()


@given(alternatives(), sites())
def test_a_row_takes_alone_what_it_takes_among_others(columns: Columns, site: SiteFactors) -> None:
    """The time of a row does not depend on the other rows that are scored with it."""
    together = time_terms(columns, site)
    for row in range(len(columns.tp)):
        alone = time_terms(columns.rows(np.array([row])), site)
        assert {name: term[row] for name, term in together.items()} == pytest.approx(
            {name: float(term[0]) for name, term in alone.items()}, rel=1e-12
        )


def test_a_row_is_scored_alike_in_a_chunk_of_any_other_rows(default_space: Space) -> None:
    """The scores of a row do not depend on the position of chunk boundaries."""
    block = np.concatenate(list(default_space.blocks()))[: CHUNK + 500]
    columns = default_space.columns(block)
    whole, last = CostModel().score(columns), CostModel().score(columns.rows(np.arange(CHUNK - 3, CHUNK + 3)))
    for name in ("seconds", "memory", "out_of_memory", "training"):
        assert np.allclose(getattr(whole, name)[CHUNK - 3 : CHUNK + 3], getattr(last, name), rtol=1e-12)
        assert len(getattr(whole, name)) == len(block)


@given(runs(), st.sampled_from(TIME_FACTORS), st.floats(1.0, 2.0))
def test_a_faster_site_never_takes_longer(drawn: Drawn, factor: str, times: float) -> None:
    """A larger factor never makes an iteration slower, or for `SLOWER` never faster."""
    base, moved = took(*drawn), took(*drawn, SiteFactors(**{factor: times}))
    assert moved >= base * (1 - 1e-9) if factor in SLOWER else moved <= base * (1 + 1e-9)


@given(runs(), st.floats(1.1, 4.0))
def test_a_faster_card_or_wire_never_takes_longer(drawn: Drawn, times: float) -> None:
    workload, cluster, topology = drawn
    card = cluster.gpu
    quicker = (
        replace(cluster, gpu=replace(card, peak_flops={kind: times * rate for kind, rate in card.peak_flops.items()})),
        replace(cluster, gpu=replace(card, memory_bandwidth=times * card.memory_bandwidth)),
        replace(cluster, intra_node=replace(cluster.intra_node, bandwidth=times * cluster.intra_node.bandwidth)),
        replace(cluster, inter_node=replace(cluster.inter_node, bandwidth=times * cluster.inter_node.bandwidth)),
        replace(cluster, inter_node=replace(cluster.inter_node, latency=cluster.inter_node.latency / times)),
    )
    base = took(*drawn)
    for better in quicker:
        assert took(workload, better, topology) <= base * (1 + 1e-9)


@given(runs(), st.integers(2, 5))
def test_a_larger_batch_takes_longer_but_never_longer_a_sample(drawn: Drawn, times: int) -> None:
    """A larger batch takes longer, but not longer per sample, as microbatches share bubble, reduction and step.

    The smaller batch has at least two microbatches, because the second one adds the cost of adding gradients.
    """
    workload, cluster, topology = drawn
    workload = replace(workload, global_batch=2 * workload.global_batch)
    larger = replace(workload, global_batch=times * workload.global_batch)
    base, more = took(workload, cluster, topology), took(larger, cluster, topology)
    assert base < more <= times * base * (1 + 1e-9)


@given(runs())
def test_recomputing_more_takes_longer(drawn: Drawn) -> None:
    """The recompute term is 0 without recompute, positive for selective and larger for full; other terms are equal."""
    workload, cluster, topology = drawn
    rows = [replace(topology, recompute=kind) for kind in ("none", "selective", "full")]
    terms = time_terms(Columns.of(rows, workload, cluster), SiteFactors())
    none, selective, full = terms["recompute"]
    assert 0 == none < selective < full
    for name in ("products", "attention", "elementwise", "tensor_parallel", "launch", "upkeep", "optimizer"):
        assert np.ptp(terms[name]) == 0


@given(runs())
def test_what_is_not_split_is_not_paid_for(drawn: Drawn) -> None:
    """Collectives of a single rank cost nothing; without a pipeline there are neither sends nor a bubble."""
    columns = columns_of(drawn)
    topology = drawn[2]
    terms = {name: float(term[0]) for name, term in time_terms(columns, SiteFactors()).items()}
    if topology.tp == 1:
        assert terms["tensor_parallel"] == 0
    if topology.cp == 1:
        assert terms["context_parallel"] == 0
    if topology.pp == 1:
        assert terms["pipeline"] == terms["bubble"] == 0
    if topology.dp * topology.cp == 1:
        assert terms["data_parallel"] == 0
        assert topology.zero == 3 or terms["sharding"] == 0
    if topology.zero < 2:
        assert terms["sharding"] == 0
    if topology.zero == 3:
        assert terms["data_parallel"] == 0


@given(runs(zero=0))
def test_sharding_gradients_costs_time_and_sharding_states_saves_some(drawn: Drawn) -> None:
    """ZeRO 1 communicates at least as much as ZeRO 0, and its optimizer step is not slower than ZeRO 0's."""
    workload, cluster, topology = drawn
    rows = [replace(topology, zero=zero) for zero in (0, 1, 2)]
    terms = time_terms(Columns.of(rows, workload, cluster), SiteFactors())
    exchanged = terms["data_parallel"] + terms["sharding"]
    assert exchanged[0] <= exchanged[1]
    assert terms["optimizer"][0] >= terms["optimizer"][1] == terms["optimizer"][2]
    for name in set(TERMS) - {"data_parallel", "sharding", "optimizer"}:
        assert np.ptp(terms[name]) == 0


@given(st.floats(1, 1e12), st.integers(1, 512), st.floats(1e6, 1e12), st.floats(0, 1e-3))
def test_a_collective_grows_with_its_bytes_and_with_its_ranks(
    size: float, ranks: int, bandwidth: float, latency: float
) -> None:
    """A gather takes no time on one rank and grows with bytes and ranks; an all-reduce takes two of them."""
    assert float(gather(size, 1, bandwidth, latency)) == 0
    one, more = gather(size, ranks, bandwidth, latency), gather(size, ranks + 1, bandwidth, latency)
    assert one <= more
    assert one <= gather(2 * size, ranks, bandwidth, latency)
    assert float(all_reduce(size, ranks, bandwidth, latency)) == pytest.approx(2 * float(one))


@given(runs(), sites())
@settings(max_examples=60)
def test_the_interval_holds_the_estimate(drawn: Drawn, site: SiteFactors) -> None:
    """The 80% interval contains the estimate and is symmetric in ratio."""
    model = CostModel()
    model = replace(model, calibration=replace(model.calibration, site=site))
    columns = columns_of(drawn)
    scores = model.score(columns)
    found, (low, high) = scores.seconds, scores.interval
    assert 0 < low[0] < found[0] < high[0] < np.inf
    assert found[0] / low[0] == pytest.approx(high[0] / found[0])


@given(runs())
@settings(max_examples=60)
def test_the_terms_that_are_shown_add_up_to_what_is_ranked_by(drawn: Drawn) -> None:
    """The terms shown for a topology add up to the time and memory by which it is ranked."""
    columns = columns_of(drawn)
    scores = CostModel().score(columns)
    estimate = scores.estimate(0)
    assert estimate.time.total == pytest.approx(float(scores.seconds[0]), rel=1e-12)
    assert estimate.memory.total == pytest.approx(float(scores.memory[0]), rel=1e-12)


def test_the_factors_of_time_are_all_that_time_knows_of_a_site(default_space: Space) -> None:
    """Only `TIME_FACTORS` change the seconds of the default space, and all of them do, except `host`."""
    columns = default_space.columns(next(default_space.blocks()))
    base = seconds(columns, SiteFactors())
    moving = {
        field.name
        for field in fields(SiteFactors)
        if (seconds(columns, SiteFactors(**{field.name: 0.5})) != base).any()
    }
    assert moving <= set(TIME_FACTORS)
    assert set(TIME_FACTORS) - moving <= {"host"}  # no model of this size waits for the host
