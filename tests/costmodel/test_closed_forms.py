"""The cost model's arithmetic compared with the closed forms in `tests/closed_forms.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests import closed_forms
from tuner.core.catalog import gpu, make_cluster
from tuner.core.columns import Columns
from tuner.core.domain import Cluster, Link, Topology, Workload
from tuner.core.model import Model
from tuner.costmodel.constants import (
    HOST_COLLECTIVE_SECONDS,
    HOST_SECONDS,
    NETWORK_LATENCY_RATIO,
    SEND_SHARE,
)
from tuner.costmodel.flops import forward_terms, hardware_flops, model_flops
from tuner.costmodel.links import all_reduce, gather
from tuner.costmodel.memory import memory_terms
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stages import Stages
from tuner.costmodel.time import time_terms
from tuner.planning.cost import bubble

LAYER_TERMS = (
    *("products", "attention", "elementwise", "tensor_parallel", "context_parallel", "launch", "upkeep", "recompute"),
)
SITE = SiteFactors()


def cluster(*, bandwidth: float = 1e30, latency: float = 0.0) -> Cluster:
    """Return nodes of one A100 each, so that all communication uses the network."""
    made = make_cluster(name="one GPU a node", nodes=1024, gpus_per_node=1, gpu=gpu("A100-80GB-SXM"))
    return replace(made, inter_node=Link(bandwidth=bandwidth, latency=latency))


def headless(microbatches: int, *, layers: int = 24, hidden: int = 4096) -> Workload:
    """Return a workload with a vocabulary of one token, so that embedding and head are negligible."""
    model = Model(layers=layers, hidden=hidden, heads=32, vocab=1, vocab_multiple=0, seq=2048, positions="none")
    return Workload(model=model, global_batch=microbatches, attention="flash2")


def pipeline(pp: int, vpp: int = 1, **fields: Any) -> Topology:
    return Topology(**{"nodes": pp, "tp": 1, "pp": pp, "dp": 1, "micro_batch": 1, "vpp": vpp, "zero": 0, **fields})


def terms(workload: Workload, machines: Cluster, topology: Topology) -> dict[str, float]:
    """Return the seconds of each term."""
    found = time_terms(Columns.of([topology], workload, machines), SITE)
    return {name: float(value[0]) for name, value in found.items()}


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 2), (4, 4), (4, 9), (8, 8), (6, 20)])
def test_the_bubble_is_the_idle_time_of_the_schedule(stages: int, microbatches: int) -> None:
    """The bubble of a 1F1B pipeline, simulated pass by pass, is (p - 1) / m of its passes."""
    finish = closed_forms.finish_time(stages, microbatches, forward=2, backward=4)
    share = finish / (microbatches * 6) - 1
    assert share == pytest.approx(closed_forms.bubble_share(stages, 1, microbatches))
    found = terms(headless(microbatches), cluster(), pipeline(stages))
    assert found["bubble"] / sum(found[name] for name in LAYER_TERMS) == pytest.approx(share, rel=0.01)


@pytest.mark.parametrize(("pp", "vpp", "microbatches"), [(2, 2, 4), (4, 2, 8), (4, 3, 8), (2, 6, 16), (6, 4, 6)])
@pytest.mark.parametrize("bandwidth", [1e30, 2e9])
def test_interleaving_divides_the_bubble(pp: int, vpp: int, microbatches: int, bandwidth: float) -> None:
    """The bubble is (p - 1) / (v m) of a stage's time for all microbatches, including its sends.

    With pp = 2 there is no middle stage, so only the case without sends is compared.
    """
    found = terms(headless(microbatches), cluster(bandwidth=bandwidth), pipeline(pp, vpp))
    busy = sum(found[name] for name in LAYER_TERMS) + found["pipeline"]
    share = closed_forms.bubble_share(pp, vpp, microbatches)
    if pp > 2 or bandwidth == 1e30:
        assert found["bubble"] / busy == pytest.approx(share, rel=0.01)
    columns = Columns.of([pipeline(pp, vpp)], headless(microbatches), cluster())
    assert float(bubble(columns)[0]) == pytest.approx(share / (1 + share))


@pytest.mark.parametrize(("pp", "vpp"), [(1, 1), (2, 1), (4, 1), (8, 1), (2, 2), (4, 2), (4, 3), (6, 2), (8, 3)])
@pytest.mark.parametrize("microbatches", [1, 2, 3, 8, 24])
def test_microbatches_in_flight_are_those_of_the_schedule(pp: int, vpp: int, microbatches: int) -> None:
    """The layers in flight on every stage equal a count over its schedule of forward and backward passes."""
    columns = Columns.of([pipeline(pp, vpp)], headless(microbatches, layers=48), cluster())
    for stage in range(pp):
        if vpp == 1:
            expected: float = closed_forms.most_in_flight(closed_forms.one_f_one_b(stage, pp, microbatches))
        else:
            expected = closed_forms.most_in_flight(closed_forms.interleaved(stage, pp, vpp, microbatches)) / vpp
        in_flight = Stages(columns, np.array([stage])).layers_in_flight
        assert float(in_flight[0]) == pytest.approx(expected * 48 / pp)


@pytest.mark.parametrize("zero", range(4))
@pytest.mark.parametrize(("dp", "cp"), [(1, 1), (2, 1), (8, 1), (4, 2), (64, 1)])
def test_zero_shards_what_the_paper_says(zero: int, dp: int, cp: int) -> None:
    """ZeRO 1 shards the optimizer's 12 bytes per parameter, ZeRO 2 also 2 of gradients, and ZeRO 3 2 of weights."""
    model = Model(layers=12, hidden=1024, heads=16, vocab=51200, seq=1024)
    workload = Workload(model=model, global_batch=dp * 4, attention="flash2")
    topology = Topology(nodes=dp * cp, tp=1, pp=1, dp=dp, cp=cp, micro_batch=1, zero=zero)
    found = memory_terms(Stages.first(Columns.of([topology], workload, cluster())), SITE)
    parameters = closed_forms.gpt_parameters(12, 1024, 51200, 1024)
    for name, size in closed_forms.zero_bytes(parameters, zero, dp * cp).items():
        assert float(found[name][0]) == pytest.approx(size, rel=1e-12), name


@pytest.mark.parametrize("zero", range(4))
@pytest.mark.parametrize("microbatches", [1, 2, 4])
def test_plain_layers_have_fp32_states_and_gradients_only_while_they_accumulate(zero: int, microbatches: int) -> None:
    """Plain layers with autocast have no second copy of their fp32 weights.

    The gradients of a single microbatch replace activations, and need no additional memory.
    """
    model, ranks = Model(layers=12, hidden=1024, heads=16, vocab=51200, seq=1024), 4
    workload = Workload(model=model, global_batch=ranks * microbatches, attention="flash2", plain_layers=True)
    topology = Topology(nodes=ranks, tp=1, pp=1, dp=ranks, micro_batch=1, zero=zero)
    found = memory_terms(Stages.first(Columns.of([topology], workload, cluster())), SITE)
    parameters = closed_forms.gpt_parameters(12, 1024, 51200, 1024)
    for name, size in closed_forms.plain_bytes(parameters, zero, ranks, microbatches).items():
        assert float(found[name][0]) == pytest.approx(size, rel=1e-12), name


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 64])
def test_a_ring_sends_each_chunk_once_a_round(ranks: int) -> None:
    """At one byte per second and without latency, the seconds of a ring are the bytes that a rank sends."""
    assert float(gather(1000.0, ranks, 1.0, 0.0)) == pytest.approx(
        closed_forms.ring_sent(ranks, 1000, gather_only=True)
    )
    reduced = closed_forms.ring_sent(ranks, 1000, gather_only=False)
    assert float(all_reduce(1000.0, ranks, 1.0, 0.0)) == pytest.approx(reduced)
    assert float(gather(0.0, ranks, 1.0, 0.5)) == pytest.approx(0.5 * (ranks - 1))


@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize("ranks", [2, 4, 32])
def test_gradients_are_reduced_and_stepped_weights_gathered(zero: int, ranks: int) -> None:
    """ZeRO 0 all-reduces the gradients of all parameters; ZeRO 1 additionally gathers the updated weights."""
    model = Model(layers=12, hidden=1024, heads=16, vocab=51200, seq=1024)
    workload = Workload(model=model, global_batch=ranks * 4, attention="flash2")
    topology = Topology(nodes=ranks, tp=1, pp=1, dp=ranks, micro_batch=1, zero=zero)
    found = terms(workload, cluster(bandwidth=1e10), topology)
    weights = 2 * closed_forms.gpt_parameters(12, 1024, 51200, 1024)
    sent = closed_forms.data_parallel_sent(ranks, weights, zero)
    assert found["data_parallel"] == pytest.approx(sent / (1e10 * closed_forms.ring_share(ranks)), rel=1e-9)
    assert found["sharding"] == 0


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("zero", "gathers"), [(2, 1), (3, 3)])
def test_a_sharded_model_communicates_in_every_microbatch(zero: int, gathers: int, tied: bool) -> None:
    """In each microbatch ZeRO 2 scatters gradients, and ZeRO 3 also gathers layers twice, embedding and head once.

    The network is so slow that nothing is hidden.
    """
    model = Model(layers=12, hidden=1024, heads=16, vocab=51200, seq=1024, positions="none", tied_embeddings=tied)
    topology = Topology(nodes=8, tp=1, pp=1, dp=8, micro_batch=1, zero=zero)
    one, two = (
        terms(Workload(model=model, global_batch=8 * n, attention="flash2"), cluster(bandwidth=1e6), topology)[
            "sharding"
        ]
        for n in (2, 3)
    )
    layers, tables = 12 * (12 * 1024**2 + 13 * 1024), (1 if tied else 2) * 51200 * 1024
    sent = closed_forms.ring_sent(8, 2 * (gathers * layers + (zero - 1) * tables), gather_only=True)
    assert two - one == pytest.approx(sent / (1e6 * closed_forms.ring_share(8)), rel=1e-4)


@pytest.mark.parametrize(("pp", "vpp", "microbatches"), [(4, 1, 8), (4, 2, 8), (6, 4, 12), (8, 3, 8)])
@pytest.mark.parametrize("latency", [0.0, 1e-3])
def test_a_stage_sends_activations_onward_and_gradients_back(
    pp: int, vpp: int, microbatches: int, latency: float
) -> None:
    """Every chunk of every microbatch sends two messages of s h 16-bit values."""
    workload, machines = headless(microbatches), cluster(bandwidth=1e9, latency=latency)
    message = 2048 * 4096 * 2 / (1e9 * SEND_SHARE) + latency * NETWORK_LATENCY_RATIO
    found = terms(workload, machines, pipeline(pp, vpp))
    assert found["pipeline"] == pytest.approx(closed_forms.stage_sends(vpp, microbatches) * message, rel=1e-6)


@pytest.mark.parametrize("kv_heads", [16, 4])
@pytest.mark.parametrize("gated", [False, True])
def test_operations_are_those_of_each_matrix(kv_heads: int, gated: bool) -> None:
    """Operations count each matrix once forward, twice backward, and once more if it is recomputed."""
    model = Model(
        layers=6,
        hidden=2048,
        heads=16,
        kv_heads=kv_heads,
        ffn=5504,
        vocab=32000,
        vocab_multiple=0,
        seq=1024,
        gated_mlp=gated,
    )
    sizes = {"layers": 6, "hidden": 2048, "heads": 16, "kv_heads": kv_heads, "ffn": 5504, "gated": gated}
    forward = closed_forms.forward_flops(tokens=8 * 1024, seq=1024, vocab=32000, **sizes)  # type: ignore[arg-type]
    layers = closed_forms.forward_flops(tokens=8 * 1024, seq=1024, vocab=0, **sizes)  # type: ignore[arg-type]
    workload = Workload(model=model, global_batch=8)
    base = pipeline(1)
    for recompute, repeated in (("none", 0), ("full", layers)):
        columns = Columns.of([replace(base, recompute=recompute)], workload, cluster())
        assert float(sum(forward_terms(columns).values())[0]) == forward  # type: ignore[index]
        assert float(model_flops(columns)[0]) == 3 * forward
        assert float(hardware_flops(columns)[0]) == 3 * forward + repeated


@pytest.mark.parametrize(("layers", "stages", "vpp"), [(10, 4, 1), (33, 8, 1), (71, 12, 1), (26, 4, 2), (24, 4, 1)])
def test_a_remainder_of_layers_goes_to_the_first_stages(layers: int, stages: int, vpp: int) -> None:
    columns = Columns.of([pipeline(stages, vpp)], headless(8, layers=layers), cluster())
    found = [int(Stages(columns, np.array([stage])).layers[0]) for stage in range(stages)]
    assert found == closed_forms.dealt(layers, stages)


@pytest.mark.parametrize(
    ("layers", "stages", "vpp", "expected"),
    [(61, 4, 4, [16, 16, 16, 13]), (61, 8, 2, [8] * 7 + [5]), (61, 8, 1, [8] * 7 + [5]), (27, 2, 1, [14, 13])],
)
def test_a_layout_leaves_the_last_chunk_fewer_layers(layers: int, stages: int, vpp: int, expected: list[int]) -> None:
    """As in NVIDIA's layout of DeepSeek-V3 (Et*4|(tttt|)*14tmL), all chunks but the last have equally many layers."""
    topology = replace(pipeline(stages, vpp), partition="layout")
    columns = Columns.of([topology], headless(8, layers=layers), cluster())
    assert [int(Stages(columns, np.array([stage])).layers[0]) for stage in range(stages)] == expected


@pytest.mark.parametrize("layers", [33, 34, 39])
def test_a_pipeline_of_uneven_stages_waits_for_the_fullest(layers: int) -> None:
    """Without sends, a pipeline takes m max + sum - max: all microbatches on the fullest stage, one on each other."""
    stages, microbatches = 8, 16
    each = terms(headless(1, layers=1), cluster(), pipeline(1))
    per_layer = sum(each[name] for name in LAYER_TERMS if name != "upkeep")
    found = terms(headless(microbatches, layers=layers), cluster(), pipeline(stages))
    hands = closed_forms.dealt(layers, stages)
    fullest = sum(found[name] for name in LAYER_TERMS) / (microbatches * max(hands))
    assert fullest == pytest.approx(per_layer, rel=0.1)
    assert found["bubble"] / fullest == pytest.approx(sum(hands) - max(hands), rel=0.01)


@pytest.mark.parametrize(("tp", "collectives"), [(1, 0), (2, 2)])
def test_a_layer_that_the_gpu_outruns_takes_the_time_in_which_the_host_launches_it(tp: int, collectives: int) -> None:
    """A layer that is too fast for the host takes the host's launch time in each pass, including its collectives."""
    tiny = Model(layers=3, hidden=64, heads=2, vocab=1, vocab_multiple=0, seq=64, positions="none")
    machine = make_cluster(name="one node", nodes=1, gpus_per_node=2, gpu=gpu("H100-80GB-SXM"))
    instant = replace(machine, inter_node=Link(bandwidth=1e30, latency=0.0))
    found = terms(Workload(model=tiny, global_batch=5), instant, pipeline(1, tp=tp, recompute="none"))
    host = sum(HOST_SECONDS) + 2 * collectives * HOST_COLLECTIVE_SECONDS
    assert sum(found[name] for name in LAYER_TERMS) == pytest.approx(5 * 3 * host, rel=0.02)
    assert found["launch"] > 0.4 * 5 * 3 * host
