"""Costs of experts: closed forms of bytes and volumes, and their dependence on each degree."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mixtures import DEEPSEEK, QWEN3_30B
from tuner.core import catalog
from tuner.core.columns import Columns
from tuner.core.domain import DISPATCHERS, Topology, Workload
from tuner.core.model import Model
from tuner.core.stack import CudaGraph, Stack
from tuner.costmodel.constants import (
    COMMUNICATOR_BYTES,
    CONTEXT_BYTES,
    NETWORK_LATENCY_RATIO,
    NODE_LATENCY_RATIO,
    SEND_SHARE,
)
from tuner.costmodel.estimate import CostModel, Scores
from tuner.costmodel.expert_constants import (
    ALL_TO_ALL_SHARE,
    EXCHANGE_SMS,
    EXPERT_PRODUCT_SECONDS,
    RDMA_SHARE,
    WEIGHTED_BYTES,
)
from tuner.costmodel.expert_shapes import distinct, expert_load, expert_tokens, moe_share, reached
from tuner.costmodel.expert_time import ExpertLayer, averaged, expert_layer_seconds
from tuner.costmodel.kernels import host_pace, linear, product, product_rate, traffic_rate
from tuner.costmodel.layer import layer_seconds
from tuner.costmodel.links import Links
from tuner.costmodel.matrices import attention_weights, layer_weights, routed_weights
from tuner.costmodel.memory import memory_terms
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stages import Stages
from tuner.space.build import space_for

SITE = SiteFactors()
H100 = space_for(model=QWEN3_30B, gpu="H100-80GB-SXM", nodes=4, global_batch=512)


def columns(*topologies: dict[str, Any], model: Model = QWEN3_30B, **workload: Any) -> Columns:
    base: dict[str, Any] = {"nodes": 4, "tp": 1, "pp": 1, "dp": 32, "micro_batch": 1, "recompute": "none"}
    rows = [Topology(**{**base, **topology}) for topology in topologies]
    return Columns.of(rows, replace(H100.workload, model=model, **workload), H100.cluster)


def scored(*topologies: dict[str, Any], **given_fields: Any) -> Scores:
    return CostModel().score(columns(*topologies, **given_fields))


def dispatch(topology: dict[str, Any], model: Model = QWEN3_30B) -> float:
    """Return the seconds of the token exchanges of one layer and microbatch."""
    one = columns(topology, model=model)
    return float(expert_layer_seconds(one, SITE, Links(one, SITE)).dispatch[0])


@pytest.mark.parametrize("model", [QWEN3_30B, DEEPSEEK])
def test_the_parameters_of_all_ranks_are_those_of_the_model(model: Model) -> None:
    """The experts of ep ranks and the other parameters of one add up to the model's, apart from norms and biases."""
    stage = Stages.first(columns({"ep": 8}, model=model))
    counted = float(stage.parameters[0]) + 8 * float(np.asarray(stage.expert_parameters)[0])
    assert counted == pytest.approx(model.parameters, rel=1e-4)


def test_latent_attention_has_the_matrices_that_the_model_counts() -> None:
    one = columns({}, model=DEEPSEEK)
    assert attention_weights(one).tolist() == [DEEPSEEK.attention_matrices]
    split = columns({"tp": 2, "dp": 16, "sequence_parallel": True}, model=DEEPSEEK)
    assert DEEPSEEK.latent
    down = DEEPSEEK.hidden * (DEEPSEEK.latent.query_rank + DEEPSEEK.latent.kv_rank + DEEPSEEK.latent.rope_size)
    assert attention_weights(split).tolist() == [down + (DEEPSEEK.attention_matrices - down) / 2]


@pytest.mark.parametrize(("ep", "etp", "tp"), [(1, 1, 1), (8, 1, 1), (4, 2, 2), (16, 1, 2)])
def test_states_are_sharded_over_the_ranks_that_hold_the_same(ep: int, etp: int, tp: int) -> None:
    """The optimizer's 12 bytes per parameter are sharded over dp x cp ranks, for experts over tp x dp / (ep x etp)."""
    dp = 32 // tp
    where = {"tp": tp, "dp": dp, "ep": ep, "etp": etp, "sequence_parallel": tp > 1}
    scores = scored(where)
    stage = Stages.first(scores.columns)
    experts = 48 * 128 / ep * 3 * 2048 * 768 / etp
    assert np.asarray(stage.expert_parameters)[0] == experts
    rest = float(stage.parameters[0])
    assert scores.memory_terms["optimizer"][0] == pytest.approx(12 * (rest / dp + experts / (tp * dp / (ep * etp))))
    assert scores.memory_terms["gradients"][0] == pytest.approx(4 * (rest + experts))


@given(st.sampled_from([1, 2, 4, 8, 16]), st.sampled_from(DISPATCHERS), st.sampled_from([1, 2]))
def test_more_expert_parallelism_takes_less_memory_for_experts(ep: int, dispatcher: Any, etp: int) -> None:
    few, more = (
        np.asarray(Stages.first(columns({"ep": degree, "etp": etp, "dispatcher": dispatcher})).expert_parameters)[0]
        for degree in (ep, 2 * ep)
    )
    assert more == few / 2
    scores = scored(*({"ep": degree, "etp": etp, "dispatcher": dispatcher} for degree in (ep, 2 * ep)))
    assert scores.memory_terms["weights"][1] < scores.memory_terms["weights"][0]


def test_an_all_to_all_moves_a_copy_for_each_expert() -> None:
    """An all-to-all moves t k (1 - 1/ep) h 16-bit elements four times a layer; between nodes, the remote part."""
    cluster = H100.cluster
    sent = 4096 * 8 * 2048 * 2
    inner = cluster.intra_node.bandwidth * ALL_TO_ALL_SHARE
    latency = 3 * cluster.intra_node.latency * NODE_LATENCY_RATIO
    assert dispatch({"ep": 8}) == pytest.approx(4 * (sent * 7 / 8 / inner + latency))
    outer = cluster.inter_node.bandwidth / 8 * SEND_SHARE
    latency = 5 * cluster.inter_node.latency * NETWORK_LATENCY_RATIO
    assert dispatch({"ep": 32}) == pytest.approx(4 * (sent * 24 / 32 / outer + latency))
    assert dispatch({"ep": 1}) == 0


def test_deepep_moves_a_copy_for_each_remote_node() -> None:
    """DeepEP sends a token with 8 random experts to 4 x (1 - (3/4)^8) nodes, of which three quarters are remote."""
    cluster = H100.cluster
    reached = 4 * (1 - (3 / 4) ** 8)
    outer = cluster.inter_node.bandwidth / 8 * RDMA_SHARE
    latency = 5 * cluster.inter_node.latency * NETWORK_LATENCY_RATIO
    expected = 4 * (4096 * 2048 * 2 * reached * 3 / 4 / outer + latency)
    assert dispatch({"ep": 32, "dispatcher": "deepep"}) == pytest.approx(expected)


def overlapped(topology: dict[str, Any], *, on: bool, model: Model = QWEN3_30B) -> ExpertLayer:
    one = columns({**topology, "moe_overlap": on}, model=model, framework="megatron-core")
    return expert_layer_seconds(one, SITE, Links(one, SITE))


def test_exchanges_that_fit_beside_another_microbatch_cost_only_its_multiprocessors() -> None:
    """Exchanges hidden behind another microbatch cost only their SMs, in all but the first of 16 microbatches."""
    within = {"ep": 8, "dispatcher": "deepep"}
    alone, beside = (float(overlapped(within, on=on).dispatch[0]) for on in (False, True))
    assert beside == pytest.approx(alone * (1 / 16 + 15 / 16 * EXCHANGE_SMS / H100.cluster.gpu.sms))
    assert overlapped(within, on=True).experts == overlapped(within, on=False).experts


def test_exchanges_longer_than_the_computing_beside_them_stay_visible() -> None:
    """An exchange between nodes that is longer than the computation beside it is hidden only in part."""
    across = {"ep": 32, "dispatcher": "alltoall"}
    shown, layer = overlapped(across, on=False), overlapped(across, on=True)
    computing = float((layer.total - layer.dispatch - layer.launch)[0])
    alone, beside = float(shown.dispatch[0]), float(layer.dispatch[0])
    assert alone > computing
    taken = EXCHANGE_SMS / H100.cluster.gpu.sms
    assert beside == pytest.approx(alone / 16 + 15 / 16 * (alone - computing * (1 - taken)), rel=1e-3)


def test_overlap_depends_on_the_microbatches_of_each_row() -> None:
    each = ((32, True), (16, True), (16, False), (8, True))
    rows = [{"ep": 8, "nodes": dp // 8, "dp": dp, "moe_overlap": on} for dp, on in each]
    settings: dict[str, Any] = {"framework": "megatron-core"}
    together = scored(*rows, **settings).time_terms["dispatch"]
    assert together == pytest.approx([scored(row, **settings).time_terms["dispatch"][0] for row in rows])


def test_pipelines_that_share_their_layers_take_what_each_takes_alone() -> None:
    """Rows with other shares of dense layers share the estimates of a layer of either kind, to the last bit."""
    rows = [{"ep": 8, "pp": pp, "dp": 32 // pp} for pp in (1, 2)]
    together = scored(*rows, model=DEEPSEEK).time_terms
    assert moe_share(columns(*rows, model=DEEPSEEK)).tolist() == [15 / 16, 1]
    for index, row in enumerate(rows):
        alone = scored(row, model=DEEPSEEK).time_terms
        assert {name: seconds[index] for name, seconds in together.items()} == {
            name: seconds[0] for name, seconds in alone.items()
        }


def test_one_microbatch_has_no_other_beside_it() -> None:
    single = {"ep": 8, "micro_batch": 16}
    assert overlapped(single, on=True).dispatch == overlapped(single, on=False).dispatch


def recomputed(recompute: str, model: Model = QWEN3_30B) -> ExpertLayer:
    one = columns({"ep": 8, "recompute": recompute}, model=model)
    links = Links(one, SITE)
    return averaged(one, expert_layer_seconds(one, SITE, links), layer_seconds(one, SITE, links))


def test_selective_recomputation_repeats_the_modules_that_it_names() -> None:
    words = ("none", "selective", "layernorm", "moe_act", "moe", "layernorm+moe_act", "full")
    again = {word: float(recomputed(word).recompute[0]) for word in words}
    assert again["none"] == 0 < again["selective"]
    rate = traffic_rate(H100.cluster.gpu, SITE)
    assert again["layernorm"] == pytest.approx(2 * 2 * 4096 * 2048 / rate)  # only the norm in front of the experts
    assert again["layernorm+moe_act"] == pytest.approx(again["layernorm"] + again["moe_act"])
    layer = recomputed("none")
    assert 0 < again["moe_act"] < again["moe"] < float((layer.experts + layer.routing + layer.dispatch)[0])
    assert again["moe"] < again["full"]


def test_up_projections_of_latent_attention_and_dense_mlps_are_recomputed_by_name() -> None:
    """`mla_up_proj`, `mlp` and `shared_experts` cost time only for a model that has them, such as DeepSeek-V3."""
    assert float(recomputed("mla_up_proj").recompute[0]) == float(recomputed("mlp").recompute[0]) == 0
    latent, gpu = DEEPSEEK.latent, H100.cluster.gpu
    assert latent is not None
    workload = columns({}, model=DEEPSEEK).workload
    widths = ((latent.query_rank, latent.key_size), (latent.kv_rank, latent.nope_size + latent.value_size))
    ups = sum(
        float(linear(gpu, workload, SITE, DEEPSEEK.seq, DEEPSEEK.heads * width, rank)[0]) for rank, width in widths
    )
    assert float(recomputed("mla_up_proj", model=DEEPSEEK).recompute[0]) == pytest.approx(ups)
    assert float(recomputed("mlp", model=DEEPSEEK).recompute[0]) > 0
    assert float(recomputed("shared_experts", model=DEEPSEEK).recompute[0]) > 0


def test_memory_keeps_the_scores_unless_the_attention_is_recomputed() -> None:
    settings: dict[str, Any] = {"attention": "eager"}
    with_norms, usual, kept = (
        scored({"ep": 8, "recompute": word}, **settings).memory[0]
        for word in ("core_attn+layernorm", "selective", "layernorm")
    )
    assert with_norms < usual < kept


def test_node_limited_routing_reaches_fewer_nodes() -> None:
    assert QWEN3_30B.experts
    limited = replace(QWEN3_30B.experts, router_groups=8, router_top_groups=1)
    free, bound = (
        dispatch({"ep": 32, "dispatcher": "deepep"}, model=model)
        for model in (QWEN3_30B, replace(QWEN3_30B, experts=limited))
    )
    assert bound < free / 2


def test_an_all_gather_moves_every_token_to_every_rank() -> None:
    cluster = H100.cluster
    one = columns({"ep": 8, "dispatcher": "allgather"})
    bandwidth, _ = Links(one, SITE).experts
    latency = 7 * cluster.intra_node.latency * NODE_LATENCY_RATIO
    once = 7 * 4096 * 2048 * 2 / bandwidth[0] + latency
    expected = 2 * (1 + 4 / 2) * once  # the sums travel in fp32
    assert dispatch({"ep": 8, "dispatcher": "allgather"}) == pytest.approx(expected)


def test_the_tokens_of_all_ranks_are_those_of_all_experts() -> None:
    """For any ep, etp and tp, the experts' tokens add up to the attention groups' tokens x top_k."""
    for ep, etp, tp in [(1, 1, 1), (8, 1, 1), (8, 2, 2), (16, 1, 4)]:
        one = columns({"ep": ep, "etp": etp, "tp": tp, "dp": 32 // tp, "sequence_parallel": tp > 1})
        assert expert_tokens(one)[0] * 32 / etp == (32 / tp) * 4096 * 8


@given(st.integers(1, 64), st.sampled_from([64, 128, 256, 1024, 4096]))
def test_few_tokens_for_each_expert_make_slow_products(groups: int, rows: int) -> None:
    """Twice as many groups of half the rows are never faster."""
    gpu = H100.cluster.gpu
    rate, moved = product_rate(gpu, H100.workload, SITE), traffic_rate(gpu, SITE) / 2
    one = product(gpu, rate, moved, rows, 1536, 2048, groups=groups)
    assert product(gpu, rate, moved, rows / 2, 1536, 2048, groups=2 * groups) >= one * (1 - 1e-12)


def test_natural_routing_waits_for_the_busiest_rank() -> None:
    balanced, natural = (scored({"ep": 1}, {"ep": 8}, {"ep": 32}, routing=name) for name in ("balanced", "natural"))
    load = expert_load(natural.columns)
    assert load[0] == 1 < load[1] < load[2]
    assert expert_load(balanced.columns).tolist() == [1, 1, 1]
    assert natural.seconds[0] == balanced.seconds[0]
    assert (natural.seconds[1:] > balanced.seconds[1:]).all()
    assert (balanced.interval[1] >= natural.seconds).all()
    assert (natural.interval[0] <= balanced.seconds).all()


def test_a_token_reaches_each_place_at_most_once() -> None:
    assert distinct(1, 8) == 1
    assert distinct(4, 1) == 1
    assert distinct(1024, 8) == pytest.approx(8, rel=0.01)
    assert all(distinct(places, 8) < min(places, 8) for places in (2, 8, 64))


@pytest.mark.parametrize("top_k", [1, 4, 6, 8])
@pytest.mark.parametrize("places", [1, 2, 8, 16, 64])
def test_round_robin_reaches_the_places_of_consecutive_experts(places: int, top_k: int) -> None:
    assert QWEN3_30B.experts
    model = replace(QWEN3_30B, experts=replace(QWEN3_30B.experts, top_k=top_k))
    count, local = QWEN3_30B.experts.count, QWEN3_30B.experts.count // places
    tokens = [[(token * top_k + choice) % count // local for choice in range(top_k)] for token in range(count)]
    expected = sum(len(set(token)) for token in tokens) / count
    assert reached(columns({}, model=model, routing="round-robin"), places) == pytest.approx(expected)


def test_round_robin_exchanges_less_with_fused_dispatchers_only() -> None:
    for dispatcher, saves in (("alltoall", False), ("deepep", True), ("hybridep", True)):
        topology = {"ep": 32, "dispatcher": dispatcher}
        balanced, ring = (
            scored(topology, routing=name).time_terms["dispatch"][0] for name in ("balanced", "round-robin")
        )
        assert (ring < balanced / 2) if saves else ring == balanced


def test_leading_dense_layers_are_on_the_first_stage() -> None:
    one = columns({"pp": 4, "dp": 8}, model=DEEPSEEK)
    layers = [float(Stages(one, np.array([at])).moe_layers[0]) for at in range(4)]
    assert layers == [3, 4, 4, 4]
    assert moe_share(one).tolist() == [1.0]
    assert moe_share(columns({}, model=DEEPSEEK)).tolist() == [15 / 16]


def test_prediction_of_further_tokens_is_a_layer_and_a_head_more() -> None:
    without = replace(DEEPSEEK, mtp_layers=0)
    with_mtp, alone = (scored({"ep": 8}, model=model) for model in (DEEPSEEK, without))
    assert with_mtp.time_terms["head"][0] > 2 * alone.time_terms["head"][0]


def test_gradients_of_experts_are_reduced_among_their_own_copies() -> None:
    """Experts' gradients (fp32) and weights (16 bits) are exchanged only among ranks with the same experts.

    With ep = 32 there are no such ranks, and only the other parameters are exchanged.
    """
    apart = Stack(overlap_grad=0.0, overlap_param=0.0)
    few, all_ranks = (scored({"ep": ep}, stack=apart) for ep in (8, 32))
    rest = all_ranks.time_terms["data_parallel"][0]
    one = columns({"ep": 8})
    size = 48 * float(routed_weights(one)[0]) * (4 + 2)
    bandwidth, latency = (float(value[0]) for value in Links(one, SITE).expert_data)
    expected = rest + 3 / 4 * size / bandwidth + 2 * 3 * latency
    assert few.time_terms["data_parallel"][0] == pytest.approx(expected)
    assert math.isclose(float(layer_weights(one, 1.0)[0]), QWEN3_30B.attention_matrices + 2048 * 128)


def test_a_mixture_with_dense_layers_alone_costs_what_a_dense_model_does() -> None:
    """A layer with a single expert costs as much as the dense layer, the gradient of the router's weight, and six
    products of their own."""
    assert QWEN3_30B.experts
    one_expert = replace(QWEN3_30B.experts, count=1, top_k=1, ffn=QWEN3_30B.ffn)
    mixture, dense = (
        scored({}, model=model) for model in (replace(QWEN3_30B, experts=one_expert), replace(QWEN3_30B, experts=None))
    )
    own = mixture.time_terms
    products = own["products"] + own["experts"]
    plain = dense.time_terms["products"] + dense.time_terms["elementwise"]
    layers = 48 * int(dense.columns.microbatches[0])
    plain = plain + WEIGHTED_BYTES * 4096 * QWEN3_30B.ffn * layers / traffic_rate(H100.cluster.gpu, SITE)
    plain = plain + 6 * EXPERT_PRODUCT_SECONDS * layers
    assert products + own["elementwise"] == pytest.approx(plain, rel=0.02)


def test_topologies_of_a_workload_are_priced_alike_alone_and_together() -> None:
    rows = [{"ep": ep, "dispatcher": name} for ep in (2, 8, 32) for name in DISPATCHERS]
    together = scored(*rows * 3).seconds[: len(rows)]
    assert together.tolist() == [float(scored(row).seconds[0]) for row in rows]


def test_a_workload_says_how_tokens_are_routed() -> None:
    assert Workload(model=QWEN3_30B, global_batch=8).routing == "balanced"
    assert space_for(model=QWEN3_30B, routing="natural").workload.routing == "natural"


@pytest.mark.parametrize(
    ("model", "modules", "elements"),
    [
        (QWEN3_30B, "layernorm", 2048),
        (QWEN3_30B, "moe_act", 8 * 768),
        (QWEN3_30B, "layernorm+moe_act", 2048 + 8 * 768),
        (DEEPSEEK, "mla_up_proj", 16 * (2 * 192 + 128)),
    ],
)
def test_recomputed_modules_keep_none_of_their_values(model: Model, modules: str, elements: int) -> None:
    """Recomputed modules free their 16-bit values in all layers but the one that is being recomputed."""
    kept = scored({"recompute": "none"}, model=model).memory_terms
    found = scored({"recompute": modules}, model=model).memory_terms
    freed = float(kept["activations"][0] - found["activations"][0])
    assert freed == pytest.approx(2 * 4096 * elements * (model.layers + model.mtp_layers), rel=1e-6)
    again = float(found["working"][0] - kept["working"][0])
    assert again == pytest.approx(2 * 4096 * elements, rel=1e-6)


def test_graphs_spare_the_host_what_has_fixed_shapes_or_all() -> None:
    """Partial CUDA graphs save the launches outside the experts, and full graphs save all."""
    short = replace(QWEN3_30B, seq=256)
    waits = {
        graph: float(scored({"ep": 8}, model=short, stack=Stack(cuda_graph=graph)).time_terms["launch"][0])
        for graph in get_args(CudaGraph)
    }
    assert waits["none"] == float(scored({"ep": 8}, model=short).time_terms["launch"][0])
    assert waits["none"] > waits["partial"] > waits["full"] == 0
    spared = waits["none"] - waits["partial"]
    assert spared <= (0.48e-3 + 0.85e-3) * 48 * 16 * 1.001


def test_a_grace_host_launches_more_slowly() -> None:
    """Launching a linear layer takes a Grace host 37.1 or 33.2 us (GB200, GH200), and a DGX H100 13.5 us."""
    paces = [
        host_pace(catalog.gpu(name), SITE) for name in ("GB200-192GB", "GB300-288GB", "B200-180GB-SXM", "H100-80GB-SXM")
    ]
    assert paces == [pytest.approx((37.08 + 33.17) / 2 / 13.48, rel=0.01)] * 2 + [1, 1]


@pytest.mark.parametrize(("ep", "etp", "kinds"), [(1, 1, 2), (2, 1, 3), (1, 2, 3)])
def test_ranks_of_experts_have_buffers_of_their_own(ep: int, etp: int, kinds: int) -> None:
    """Expert parallel groups have communicator buffers in addition to those of data and tensor parallelism."""
    one = columns({"tp": 2, "ep": ep, "etp": etp})
    context = memory_terms(Stages.first(one), SITE)["context"][0]
    assert context == pytest.approx(CONTEXT_BYTES + COMMUNICATOR_BYTES * kinds)
