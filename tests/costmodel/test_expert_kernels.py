"""Costs of the kernels around experts: short products, dispatchers, copies, biases, and waiting for the host."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from tests.mixtures import QWEN3_30B
from tuner.core import catalog
from tuner.core.columns import Columns
from tuner.core.domain import Framework, Precision, Routing, Topology
from tuner.core.experts import Experts
from tuner.core.stack import Stack
from tuner.costmodel.calibration import Calibration
from tuner.costmodel.constants import BACKWARD_TRAFFIC_RATIO, HOST_SECONDS, NODE_LATENCY_RATIO, SWIGLU_BYTES
from tuner.costmodel.estimate import memory_deviation, own_memory_deviation
from tuner.costmodel.expert_constants import (
    ALL_TO_ALL_SHARE,
    CLAMP_BYTES,
    COUNTED_TOKENS_SECONDS,
    EXCHANGE_SECONDS,
    EXPERT_MEMORY_DEVIATION,
    EXPERT_MODULE_SECONDS,
    EXPERT_PRODUCT_SECONDS,
    LAUNCH_SECONDS,
    ROUTER_BYTES,
    ROUTER_CAST_BYTES,
    WEIGHTED_BYTES,
)
from tuner.costmodel.expert_shapes import expert_load
from tuner.costmodel.expert_time import ExpertLayer, _experts, _host, _waits, expert_layer_seconds
from tuner.costmodel.kernels import host_pace, inner_speed, linear, product, product_rate, traffic_rate
from tuner.costmodel.links import Links
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stack_constants import FUSED_SWIGLU_BYTES
from tuner.costmodel.stages import Stages
from tuner.space.build import space_for

SITE = SiteFactors()
TOKENS, HIDDEN, TOP_K = 4096, 2048, 8
EXPERTS = QWEN3_30B.experts or Experts(count=1, top_k=1, ffn=1)
UNGATED = replace(QWEN3_30B, gated_mlp=False)
FRAMEWORKS: Final[tuple[Framework, Framework]] = ("megatron-core", "fsdp2")
CLAMPED = replace(QWEN3_30B, activation="quick_gelu", glu_clamp=7.0)


def columns(
    gpu: str = "H100-80GB-SXM",
    *,
    model: Any = QWEN3_30B,
    stack: Stack | None = None,
    framework: Framework = "megatron-core",
    precision: Precision = "bf16",
    routing: Routing = "balanced",
    **row: Any,
) -> Columns:
    ranks, per_node = 128, 4 if gpu.startswith("GB") else 8
    space = space_for(model=model, gpu=gpu, nodes=ranks // per_node, gpus_per_node=per_node, global_batch=512)
    topology = Topology(
        **{"nodes": ranks // per_node, "tp": 1, "pp": 1, "dp": ranks, "micro_batch": 1, "recompute": "none", **row}
    )
    workload = replace(space.workload, framework=framework, stack=stack, precision=precision, routing=routing)
    return Columns.of([topology], workload, space.cluster)


def layer(*given: Any, **row: Any) -> ExpertLayer:
    one = columns(*given, **row)
    return expert_layer_seconds(one, SITE, Links(one, SITE))


@pytest.mark.parametrize(("k", "tflops"), [(512, 590), (1536, 990), (2048, 1072), (7168, 1296), (16384, 1358)])
def test_short_products_are_as_slow_as_published(k: int, tflops: float) -> None:
    """Products with a short inner size reach DeepGEMM's published fp8 rates on an H800."""
    gpu, workload = catalog.gpu("H100-80GB-SXM"), replace(columns().workload, precision="fp8")
    assert inner_speed(gpu, workload, float(k)) * 1371 == pytest.approx(tflops, rel=0.02)


def test_a_product_in_16_bits_is_filled_in_half_as_many_elements() -> None:
    """The inner size at half speed is 355 in 16 bits and 710 in fp8; other generations have no such loss."""
    hopper, workload = catalog.gpu("H200-141GB-SXM"), columns().workload
    assert inner_speed(hopper, workload, 355.0) == pytest.approx((1 + 355 / 16384) / 2)
    assert inner_speed(hopper, replace(workload, precision="fp8"), 710.0) == pytest.approx((1 + 710 / 16384) / 2)
    for name in ("A100-80GB-SXM", "B200-180GB-SXM"):
        assert inner_speed(catalog.gpu(name), workload, 512.0) == 1.0


def test_each_product_of_a_linear_layer_has_its_own_inner_size() -> None:
    """The inner size is the input width forward, and the output width and the tokens backward.

    The sizes are whole waves of large tiles, so that no other effect counts.
    """
    gpu, workload = catalog.gpu("H100-80GB-SXM"), columns().workload
    tokens, n, k = 256 * 132, 128 * 64, 1024
    rate = product_rate(gpu, workload, SITE)
    ahead, back = linear(gpu, workload, SITE, tokens, n, k)
    operations = 2.0 * tokens * n * k / rate
    assert float(ahead) == pytest.approx(operations / inner_speed(gpu, workload, float(k)))
    assert float(back) == pytest.approx(
        operations / inner_speed(gpu, workload, float(n)) + operations / inner_speed(gpu, workload, float(tokens)),
        rel=0.02,
    )


RATES = [
    ("GB200-192GB", "hybridep", 8, 0.70),
    ("GB200-192GB", "hybridep", 16, 0.66),
    ("GB200-192GB", "hybridep", 64, 0.62),
    ("H100-80GB-SXM", "hybridep", 4, 0.70),
    ("H100-80GB-SXM", "deepep", 8, 0.68),
    ("B200-180GB-SXM", "deepep", 8, 0.38),
    ("A100-80GB-SXM", "deepep", 8, ALL_TO_ALL_SHARE),
]


@pytest.mark.parametrize(("gpu", "dispatcher", "ep", "share"), RATES)
def test_fused_dispatchers_reach_a_published_share_of_the_link(
    gpu: str, dispatcher: str, ep: int, share: float
) -> None:
    """A fused dispatcher sends a copy to each distinct remote rank, four times a layer, each with a latency and, of
    HybridEP, the time of its call outside the kernel."""
    one = columns(gpu, ep=ep, dispatcher=dispatcher)
    copies = ep * (1 - (1 - 1 / ep) ** TOP_K) * (ep - 1) / ep
    moved = TOKENS * HIDDEN * 2 * copies / (one.cluster.intra_node.bandwidth * share)
    latency = math.log2(ep) * one.cluster.intra_node.latency * NODE_LATENCY_RATIO
    call = EXCHANGE_SECONDS if dispatcher == "hybridep" else 0.0
    assert layer(gpu, ep=ep, dispatcher=dispatcher).dispatch[0] == pytest.approx(4 * (moved + latency + call))


def test_an_exchange_with_no_other_rank_takes_no_call() -> None:
    assert layer(ep=1, dispatcher="hybridep").dispatch[0] == 0


@pytest.mark.parametrize(
    ("dispatcher", "ep", "copied"),
    [
        ("alltoall", 1, 1 + TOP_K),
        ("alltoall", 8, 1 + TOP_K + 2 * TOP_K),
        ("alltoall", 128, 1 + TOP_K),
        ("deepep", 8, 8 * (1 - (7 / 8) ** TOP_K) + TOP_K),
        ("hybridep", 8, 8 * (1 - (7 / 8) ** TOP_K) + TOP_K),
        ("allgather", 8, (8 * (1 - (7 / 8) ** TOP_K) + 8 * (1 + 1 + 4 / 2)) / 2 + TOP_K),
        ("allgather", 1, (1 + 1) / 2 + TOP_K),
    ],
)
def test_copies_of_tokens_are_counted_by_dispatcher(dispatcher: str, ep: int, copied: float) -> None:
    """Each dispatcher reads and writes its copies of the tokens before and after the experts, in both passes."""
    one = columns(ep=ep, dispatcher=dispatcher)
    gpu, workload = one.cluster.gpu, one.workload
    rate = traffic_rate(gpu, SITE)
    router = sum(linear(gpu, workload, SITE, TOKENS, EXPERTS.count, HIDDEN))
    casts = ROUTER_CAST_BYTES * TOKENS * HIDDEN / rate
    scores = (1 + BACKWARD_TRAFFIC_RATIO) * ROUTER_BYTES * TOKENS * EXPERTS.count / rate
    copies = 2 * 2 * copied * TOKENS * HIDDEN * 2 / rate
    assert layer(ep=ep, dispatcher=dispatcher).routing[0] == pytest.approx(float(router) + casts + scores + copies)


@pytest.mark.parametrize(
    ("dispatcher", "ep", "sources", "copies"),
    [
        ("alltoall", 1, 1, TOP_K),
        ("alltoall", 8, 1, TOP_K),
        ("deepep", 8, 8 * (1 - (7 / 8) ** TOP_K), TOP_K),
        ("allgather", 1, (1 + 1) / 2, TOP_K),
    ],
)
def test_pytorch_sorts_tokens_with_more_traffic(dispatcher: str, ep: int, sources: float, copies: float) -> None:
    """In each pass, one kernel reads a token for each of its copies, and another reads and writes what it adds to."""
    separate = layer(ep=ep, dispatcher=dispatcher, stack=Stack(fused_permutation=False))
    more = (copies - sources) + 2 * copies
    seconds = 2 * more * TOKENS * HIDDEN * 2 / traffic_rate(columns().cluster.gpu, SITE)
    assert separate.routing[0] - layer(ep=ep, dispatcher=dispatcher).routing[0] == pytest.approx(seconds)


def test_the_router_is_multiplied_in_16_bits_and_backward_in_fp32() -> None:
    """The router's product is not quantised, and its backward pass casts to fp32 under Transformer Engine alone."""
    own = layer(ep=8).routing[0]
    assert layer(ep=8, precision="fp8").routing[0] == own
    more = own - layer(ep=8, framework="fsdp2").routing[0]
    assert more == pytest.approx(ROUTER_CAST_BYTES * TOKENS * HIDDEN / traffic_rate(columns().cluster.gpu, SITE))


def test_sums_of_gradients_are_read_and_written_by_the_products_of_few_tokens() -> None:
    """Products of 64 tokens that add to fp32 gradients take the time of 8 bytes per weight and 2 per input, those that
    add nothing the time of 2 bytes per weight."""
    gpu, workload = catalog.gpu("H100-80GB-SXM"), columns().workload
    rate, traffic = product_rate(gpu, workload, SITE), traffic_rate(gpu, SITE)
    inputs = 64 * (HIDDEN + 1536)
    for stored, size in ((4.0, 8), (1.0, 2)):
        seconds = product(gpu, rate, traffic / 2, HIDDEN, 1536, 64, groups=16, stored=stored)
        assert seconds == pytest.approx(16 * (2 * inputs + size * HIDDEN * 1536) / traffic)


@pytest.mark.parametrize(("precision", "size"), [(None, 8), ("bf16", 4)])
def test_experts_of_few_tokens_wait_for_their_gradients(precision: Any, size: int) -> None:
    """Sums in fp32 take 6 bytes per weight of an expert more than gradients that are written once, in bf16 2 more."""
    short = replace(QWEN3_30B, seq=64)
    one = columns("B200-180GB-SXM", model=short, stack=Stack(grad_precision=precision), ep=8)
    alone = columns("B200-180GB-SXM", model=short, framework="fsdp2", ep=8)
    added, written = (float(_experts(each, SITE)[1][0]) for each in (one, alone))
    rate = traffic_rate(one.cluster.gpu, SITE)
    own = WEIGHTED_BYTES + BACKWARD_TRAFFIC_RATIO * (FUSED_SWIGLU_BYTES - SWIGLU_BYTES)
    activation = own * 64 * TOP_K * EXPERTS.ffn / rate
    kernels = 4 * EXPERTS.count / 8 * EXPERT_PRODUCT_SECONDS
    weights = EXPERTS.count / 8 * 3 * HIDDEN * EXPERTS.ffn
    assert added - written == pytest.approx((size - 2) * weights / rate + activation + kernels)


def test_each_expert_has_six_kernels_and_its_tokens_the_gradient_of_their_weights() -> None:
    """Under Transformer Engine, experts of many tokens take a kernel's start for each of six products per expert, and
    read gate, up and their gradient again; their SwiGLU is fused."""
    core, other = (layer(ep=8, micro_batch=4, framework=name).experts[0] for name in FRAMEWORKS)
    fused = (1 + BACKWARD_TRAFFIC_RATIO) * (FUSED_SWIGLU_BYTES - SWIGLU_BYTES)
    values = 4 * TOKENS * TOP_K * EXPERTS.ffn / traffic_rate(columns().cluster.gpu, SITE)
    assert core - other == pytest.approx(6 * EXPERTS.count / 8 * EXPERT_PRODUCT_SECONDS + (6 + fused) * values)
    single, plain = (layer(ep=8, micro_batch=4, model=UNGATED, framework=name).experts[0] for name in FRAMEWORKS)
    assert single - plain == pytest.approx(6 * EXPERTS.count / 8 * EXPERT_PRODUCT_SECONDS)


def test_a_clamped_quick_geglu_passes_through_memory_outside_the_fused_kernel() -> None:
    """The clamp moves 16 bytes forward and 30 backward per token of an expert and column of its width in Megatron-Core;
    that of a SwiGLU, and other frameworks, move none."""
    more = layer(ep=8, model=CLAMPED).experts[0] - layer(ep=8).experts[0]
    elements = TOKENS * TOP_K * EXPERTS.ffn / traffic_rate(columns().cluster.gpu, SITE)
    assert more == pytest.approx(sum(CLAMP_BYTES) * elements) == pytest.approx(46 * elements)
    swiglu = replace(QWEN3_30B, glu_clamp=7.0)
    assert layer(ep=8, model=swiglu).experts[0] == layer(ep=8).experts[0]
    apart = [layer(ep=8, model=model, framework="fsdp2").experts[0] for model in (CLAMPED, QWEN3_30B)]
    assert apart[0] == apart[1]


def test_a_recomputed_activation_is_clamped_again() -> None:
    again, plain = (layer(ep=8, model=model, recompute="moe_act") for model in (CLAMPED, QWEN3_30B))
    elements = TOKENS * TOP_K * EXPERTS.ffn / traffic_rate(columns().cluster.gpu, SITE)
    assert again.recompute[0] - plain.recompute[0] == pytest.approx(CLAMP_BYTES[0] * elements)


def test_the_bias_of_an_experts_output_passes_through_memory_in_fp32() -> None:
    """An expert bias moves 28 bytes forward and 40 backward per token of an expert and output column."""
    biased = replace(QWEN3_30B, experts=replace(EXPERTS, expert_bias=True))
    more = layer(ep=8, model=biased).experts[0] - layer(ep=8).experts[0]
    assert more == pytest.approx(68 * TOKENS * TOP_K * HIDDEN / traffic_rate(columns().cluster.gpu, SITE))


def test_the_gpu_waits_while_the_host_learns_how_many_tokens_an_expert_has() -> None:
    """The GPU waits in the forward pass, unless tokens are padded to a capacity or a full CUDA graph is recorded."""
    assert layer(ep=8, micro_batch=4).launch[0] == pytest.approx(COUNTED_TOKENS_SECONDS)
    grace = host_pace(catalog.gpu("GB200-192GB"), SITE)
    assert layer("GB200-192GB", ep=8, micro_batch=4).launch[0] == pytest.approx(COUNTED_TOKENS_SECONDS * grace)
    capacity = replace(QWEN3_30B, experts=replace(EXPERTS, capacity_factor=1.0))
    padded = Stack(padded_experts=True)
    assert layer(ep=8, micro_batch=4, model=capacity, stack=padded).launch[0] == 0
    assert layer(ep=8, micro_batch=4, model=capacity).launch[0] == pytest.approx(COUNTED_TOKENS_SECONDS)
    assert layer(ep=8, micro_batch=4, stack=padded).launch[0] == pytest.approx(COUNTED_TOKENS_SECONDS)
    assert layer(ep=8, micro_batch=4, moe_overlap=True).launch[0] == pytest.approx(COUNTED_TOKENS_SECONDS)
    assert layer(ep=8, micro_batch=4, stack=Stack(cuda_graph="full")).launch[0] == 0
    again = layer(ep=8, micro_batch=4, recompute="full")
    assert again.recompute[0] > again.launch[0] == pytest.approx(COUNTED_TOKENS_SECONDS)


@pytest.mark.parametrize("routing", ["balanced", "natural"])
def test_experts_that_are_padded_always_have_their_capacity(routing: Routing) -> None:
    """Padded to 1.5 times their share, 8 experts for each token compute and exchange as much as 12 do; not padded, they
    have what is routed to them."""
    model = replace(QWEN3_30B, experts=replace(EXPERTS, capacity_factor=1.5))
    more = replace(QWEN3_30B, experts=replace(EXPERTS, top_k=12))
    padded = layer(ep=8, model=model, stack=Stack(padded_experts=True), routing=routing)
    apart, usual = layer(ep=8, model=model), layer(ep=8)
    assert padded.experts[0] == pytest.approx(layer(ep=8, model=more).experts[0])
    assert padded.dispatch[0] == pytest.approx(layer(ep=8, model=more).dispatch[0])
    assert (apart.experts[0], apart.dispatch[0]) == (usual.experts[0], usual.dispatch[0])


def test_a_short_pass_waits_for_the_modules_that_run_in_python() -> None:
    """Under Megatron-Core on an x86 host, modules add 4 ms of host time to a layer; other frameworks have others."""
    short = replace(QWEN3_30B, seq=64)
    core, other = (_host(columns(model=short, framework=framework)) for framework in FRAMEWORKS)
    assert [more - less for more, less in zip(core, other, strict=True)] == pytest.approx(EXPERT_MODULE_SECONDS)
    assert _host(columns("GB200-192GB", model=short)) == other
    waits = layer(model=short, ep=16).launch[0]
    assert layer(model=short, ep=16, framework="fsdp2").launch[0] < waits < sum(core) + sum(HOST_SECONDS)


def test_products_wait_for_their_launches_expert_by_expert() -> None:
    """On a Grace host, launching six kernels of fp8 per expert takes longer than two short products."""
    short = replace(QWEN3_30B, seq=512)
    one = columns("GB200-192GB", model=short, micro_batch=1, precision="fp8")
    forward, pace = float(_experts(one, SITE)[0][0]), host_pace(one.cluster.gpu, SITE)
    launches = 6 * 128 * LAUNCH_SECONDS * pace
    assert forward < launches
    waits = _waits(one, SITE, np.array([forward]))
    assert waits[0] == pytest.approx(COUNTED_TOKENS_SECONDS * pace + launches - forward)
    assert _waits(one, SITE, np.array([2 * launches]))[0] == pytest.approx(COUNTED_TOKENS_SECONDS * pace)
    assert layer("GB200-192GB", model=short, precision="fp8").launch[0] >= waits[0]


def test_memory_with_experts_is_less_certain_until_it_is_measured() -> None:
    """The memory deviation is larger with experts until it is measured; a row's own part is not."""
    mixture, dense = columns(), columns(model=replace(QWEN3_30B, experts=None))
    unknown, measured = Calibration(), Calibration(weighed=5)
    assert memory_deviation(mixture, unknown) == EXPERT_MEMORY_DEVIATION > memory_deviation(dense, unknown)
    assert own_memory_deviation(mixture, unknown) == memory_deviation(dense, unknown)
    assert memory_deviation(mixture, measured) == memory_deviation(dense, measured)


def test_an_all_gather_takes_as_long_whatever_the_routing() -> None:
    """Every rank gets the tokens of all ranks of its group, and an all-to-all waits for the fullest rank."""
    times = {
        (dispatcher, routing): float(layer(ep=8, dispatcher=dispatcher, routing=routing).dispatch[0])
        for dispatcher in ("allgather", "alltoall")
        for routing in ("balanced", "natural")
    }
    assert times["allgather", "natural"] == times["allgather", "balanced"]
    assert times["alltoall", "natural"] > times["alltoall", "balanced"]


@pytest.mark.parametrize("capacity", [0.5, 1.0, 1.1])
def test_tokens_beyond_a_capacity_are_dropped_before_they_are_exchanged(capacity: float) -> None:
    """The fullest rank gets the capacity, as if the mean were that, unless its experts have fewer tokens."""
    capped = replace(QWEN3_30B, experts=replace(EXPERTS, capacity_factor=capacity))
    natural, usual = layer(ep=8, model=capped, routing="natural"), layer(ep=8)
    assert natural.dispatch[0] == pytest.approx(capacity * usual.dispatch[0], rel=0.1)
    assert natural.dispatch[0] < layer(ep=8, routing="natural").dispatch[0]
    assert expert_load(columns(ep=8, model=capped)).tolist() == [min(1.0, capacity)]


@pytest.mark.parametrize("ep", [1, 4, 32])
def test_experts_of_all_ranks_include_their_biases(ep: int) -> None:
    """Those of ep ranks add up to the routed experts of gpt-oss exactly."""
    model = catalog.model("gpt-oss-20b")
    stage = Stages.first(columns(ep=ep, model=model))
    assert ep * float(np.asarray(stage.expert_parameters)[0]) == model.routed_parameters
