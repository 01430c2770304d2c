"""Laws of the memory estimate, for arbitrary runs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.strategies import alternatives, runs, sites
from tuner.core.columns import Columns
from tuner.core.domain import Cluster, Topology, Workload
from tuner.costmodel.estimate import CostModel
from tuner.costmodel.memory import DYNAMIC, STATIC, limit, memory_terms, needed_bytes, shown_bytes, worst_need
from tuner.costmodel.normal import below
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stages import Stages

Drawn = tuple[Workload, Cluster, Topology]
TERMS = {*STATIC, *DYNAMIC, "fragments", "step", "context"}
ROUNDING = 1 + 1e-12


def need(workload: Workload, cluster: Cluster, topology: Topology, site: SiteFactors | None = None) -> float:
    return float(worst_need(Columns.of([topology], workload, cluster), site or SiteFactors()).total[0])


@given(alternatives(), sites())
def test_every_term_is_finite_and_none_is_negative_and_they_add_up(columns: Columns, site: SiteFactors) -> None:
    """On the first, middle and last stage, all terms are finite and not negative, and their sum is the need."""
    for stage in (Stages.first(columns), Stages.middle(columns), Stages.last(columns)):
        terms = memory_terms(stage, site)
        assert terms.keys() == TERMS
        for term in terms.values():
            assert np.isfinite(term).all()
            assert (term >= 0).all()
        assert np.allclose(sum(terms.values()), needed_bytes(stage, site), rtol=1e-12)


@given(alternatives(), sites())
def test_a_row_needs_alone_what_it_needs_among_others(columns: Columns, site: SiteFactors) -> None:
    """The memory of a row does not depend on the other rows that are scored with it."""
    worst = worst_need(columns, site)
    together = memory_terms(Stages(columns, worst.stage), site)
    for row in range(len(columns.tp)):
        one = columns.rows(np.array([row]))
        alone = worst_need(one, site)
        assert (alone.total[0], alone.stage[0]) == (pytest.approx(worst.total[row], rel=1e-12), worst.stage[row])
        terms = memory_terms(Stages(one, alone.stage), site)
        assert {name: term[row] for name, term in together.items()} == pytest.approx(
            {name: float(term[0]) for name, term in terms.items()}, rel=1e-12
        )


@given(runs(), sites())
def test_the_worst_stage_needs_at_least_what_each_stage_needs(drawn: Drawn, site: SiteFactors) -> None:
    """The worst of the three evaluated stages is the worst of the whole pipeline."""
    workload, cluster, topology = drawn
    columns = Columns.of([topology], workload, cluster)
    every = [float(needed_bytes(Stages(columns, np.array([at])), site)[0]) for at in range(topology.pp)]
    worst = worst_need(columns, site)
    assert worst.total[0] == pytest.approx(max(every), rel=1e-12)
    assert every[int(worst.stage[0])] == pytest.approx(max(every), rel=1e-12)


@given(runs(), st.integers(2, 4), sites())
def test_a_larger_micro_batch_never_needs_less(drawn: Drawn, times: int, site: SiteFactors) -> None:
    """A larger micro batch never needs less memory, at a fixed number of microbatches and at a fixed batch.

    Exception at a fixed batch: plain PyTorch layers with a single microbatch need no second copy of the gradients.
    """
    workload, cluster, topology = drawn
    larger = replace(topology, micro_batch=times * topology.micro_batch)
    more = replace(workload, global_batch=times * workload.global_batch)
    assert need(workload, cluster, topology, site) <= need(more, cluster, larger, site) * ROUNDING
    last = more.global_batch == larger.micro_batch * larger.dp
    if not (workload.plain_layers and last):
        assert need(more, cluster, topology, site) <= need(more, cluster, larger, site) * ROUNDING


@given(runs(), st.integers(2, 4), sites())
def test_a_longer_sequence_never_needs_less(drawn: Drawn, times: int, site: SiteFactors) -> None:
    workload, cluster, topology = drawn
    longer = replace(workload, model=replace(workload.model, seq=times * workload.model.seq))
    assert need(workload, cluster, topology, site) <= need(longer, cluster, topology, site) * ROUNDING


@given(runs(), sites())
def test_a_higher_zero_stage_never_needs_more(drawn: Drawn, site: SiteFactors) -> None:
    """A higher ZeRO stage never needs more memory, for any number of ranks, but with Muon, whose buffers grow with the
    ranks that whole matrices are dealt out to (test_muon.py)."""
    workload, cluster, topology = drawn
    assume(workload.optimizer != "muon")
    needs = [need(workload, cluster, replace(topology, zero=zero), site) for zero in range(4)]
    assert all(after <= before * ROUNDING for before, after in pairwise(needs))


@given(runs(), st.integers(2, 4), sites())
def test_more_nodes_at_the_same_split_never_need_more(drawn: Drawn, times: int, site: SiteFactors) -> None:
    """A larger dp at fixed tp and pp never needs more memory, for a fixed batch per rank and a fixed global batch; the
    buffers of Muon are an exception."""
    workload, cluster, topology = drawn
    assume(workload.optimizer != "muon")
    topology = replace(topology, dp=times * topology.dp, nodes=times * topology.nodes)
    fewer = replace(topology, dp=topology.dp // times, nodes=topology.nodes // times)
    more = replace(workload, global_batch=times * workload.global_batch)
    for batch in (workload, more):
        assert need(more, cluster, topology, site) <= need(batch, cluster, fewer, site) * ROUNDING


@given(runs(), st.sampled_from(["tied_embeddings", "frozen_params", "layers"]), sites())
def test_a_model_with_more_in_it_never_needs_less(drawn: Drawn, what: str, site: SiteFactors) -> None:
    """Untied embeddings, more frozen parameters or more layers per stage never need less memory."""
    workload, cluster, topology = drawn
    model = workload.model
    smaller, larger = {
        "tied_embeddings": (replace(model, tied_embeddings=True), replace(model, tied_embeddings=False)),
        "frozen_params": (model, replace(model, frozen_params=model.frozen_params + 10**8)),
        "layers": (model, replace(model, layers=model.layers + topology.pp * topology.vpp)),
    }[what]
    before, after = (need(replace(workload, model=each), cluster, topology, site) for each in (smaller, larger))
    assert before <= after * ROUNDING


@given(runs(), sites())
def test_cutting_a_layer_never_needs_more(drawn: Drawn, site: SiteFactors) -> None:
    """Sequence parallelism never needs more memory, as it splits what tensor parallelism leaves whole."""
    workload, cluster, topology = drawn
    assume(topology.tp > 1)
    whole, cut = (replace(topology, sequence_parallel=cut) for cut in (False, True))
    assert need(workload, cluster, cut, site) <= need(workload, cluster, whole, site) * ROUNDING


@given(runs(dp=1, zero=3, cp=2, attention="flash2", card="A100-80GB-SXM"))
def test_context_parallel_ranks_share_out_what_zero_shares_out(drawn: Drawn) -> None:
    """States are sharded over dp x cp ranks, because context parallel ranks have the same weights; Muon's matrices are
    dealt out whole."""
    workload, cluster, topology = drawn
    assume(workload.optimizer != "muon")
    terms = [
        memory_terms(Stages.first(Columns.of([replace(topology, zero=zero)], workload, cluster)), SiteFactors())
        for zero in (0, 3)
    ]
    for name in ("gradients", "optimizer", "frozen"):
        assert float(terms[1][name][0]) == pytest.approx(float(terms[0][name][0]) / topology.cp)


@given(runs(), sites())
def test_allocated_is_part_of_reserved_and_reserved_part_of_used_memory(drawn: Drawn, site: SiteFactors) -> None:
    """Allocated memory is at most the reserved memory, and that is at most what nvidia-smi shows."""
    workload, cluster, topology = drawn
    columns = Columns.of([topology], workload, cluster)
    allocated, reserved, smi = (float(shown_bytes(columns, site, kind)[0]) for kind in ("allocated", "reserved", "smi"))
    assert 0 < allocated <= reserved <= smi
    assert smi <= max(cluster.gpu.memory, allocated)


@given(runs(), sites())
@settings(max_examples=60)
def test_what_needs_more_is_likelier_to_run_out(drawn: Drawn, site: SiteFactors) -> None:
    """The probability of OOM lies between 0 and 1, grows with the need, and is 1/2 at the card's limit."""
    workload, cluster, topology = drawn
    model = CostModel()
    model = replace(model, calibration=replace(model.calibration, site=site))
    rows = [replace(topology, micro_batch=times * topology.micro_batch) for times in (1, 2, 3, 4)]
    columns = Columns.of(rows, replace(workload, global_batch=12 * workload.global_batch), cluster)
    scores = model.score(columns)
    assert ((scores.out_of_memory >= 0) & (scores.out_of_memory <= 1)).all()
    assert (np.diff(scores.out_of_memory[np.argsort(scores.memory)]) >= 0).all()
    assert ((scores.memory > limit(columns)) <= (scores.out_of_memory >= 0.5)).all()
    assert (scores.fits == (scores.out_of_memory < 0.5)).all()


@given(runs(), st.floats(0.75, 1.3))
def test_nothing_near_the_card_is_certain(drawn: Drawn, share: float) -> None:
    """With an estimated need of 75 to 130% of the card, the probability of OOM is neither 0 nor 1."""
    workload, cluster, topology = drawn
    wanted = need(workload, cluster, topology)
    card = replace(cluster.gpu, memory=wanted / share)
    columns = Columns.of([topology], workload, replace(cluster, gpu=card))
    assert 0 < float(CostModel().score(columns).out_of_memory[0]) < 1


@given(st.lists(st.floats(-60, 60), min_size=2))
def test_the_normal_distribution_is_a_probability_that_grows(deviations: list[float]) -> None:
    """The normal distribution function is monotonic, symmetric and between 0 and 1, within its documented error."""
    found = below(np.sort(np.array(deviations)))
    assert ((found >= 0) & (found <= 1)).all()
    assert (np.diff(found) >= -1.5e-7).all()
    assert np.allclose(found + below(-np.sort(np.array(deviations))), 1)
    assert below(np.array([-1.2816, 0.0, 1.2816])) == pytest.approx([0.1, 0.5, 0.9], abs=1e-5)


@given(runs())
def test_an_earlier_stage_keeps_more_microbatches_in_flight(drawn: Drawn) -> None:
    """Earlier stages have more microbatches in flight, at most all of them; with 1F1B the last stage has one."""
    workload, cluster, topology = drawn
    columns = Columns.of([topology], workload, cluster)
    stages = [Stages(columns, np.array([at])) for at in range(topology.pp)]
    flying = [float((stage.layers_in_flight / np.maximum(1, stage.layers))[0]) for stage in stages]
    assert all(before >= after for before, after in pairwise(flying))
    assert max(flying) <= columns.microbatches[0]
    assert topology.vpp > 1 or flying[-1] <= 1
