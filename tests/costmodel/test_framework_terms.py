"""Terms in which frameworks and GPU generations differ, compared with counts of bytes and operations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests import closed_forms
from tests.costmodel.test_closed_forms import LAYER_TERMS, SITE, cluster, headless, pipeline
from tuner.core.catalog import gpu, make_cluster
from tuner.core.columns import Columns
from tuner.core.domain import Cluster, Framework, Link, Precision, Topology, Workload, scales
from tuner.core.frameworks import context_exchange
from tuner.core.stack import Stack
from tuner.costmodel.constants import (
    BACKWARD_TRAFFIC_RATIO,
    MEMORY_BANDWIDTH_SHARE,
    NODE_LINK_SHARE,
    SEND_SHARE,
    SHARDED_LAYER_HOST_SECONDS,
    SUSTAINED_PRODUCT_SHARE,
)
from tuner.costmodel.framework_terms import FRAMEWORK_TERMS, described, gradient_bytes, terms_of
from tuner.costmodel.kernels import product_rate
from tuner.costmodel.memory import memory_terms
from tuner.costmodel.stack_constants import CAST_READS, FP8_ACHIEVABLE, QUANTIZED_BYTES
from tuner.costmodel.stages import Stages
from tuner.costmodel.time import time_terms

BANDWIDTH = 1e9
KNOWN: tuple[Framework | None, ...] = (None, "megatron-core")


def under(framework: Framework | None, workload: Workload, **stack: Any) -> Workload:
    """Return the workload in bf16 under a framework, with these stack settings."""
    return replace(workload, precision="bf16", framework=framework, stack=Stack(**stack) if stack else None)


def terms(workload: Workload, machines: Cluster, topology: Topology) -> dict[str, float]:
    """Return the seconds of each term."""
    return {name: float(value[0]) for name, value in time_terms(columns(workload, machines, topology), SITE).items()}


def columns(workload: Workload, machines: Cluster, topology: Topology) -> Columns:
    return Columns.of([topology], workload, machines)


def node_of(name: str, gpus: int = 8) -> Cluster:
    return make_cluster(name="one node", nodes=1, gpus_per_node=gpus, gpu=gpu(name))


def replicas(ranks: int, zero: int) -> Topology:
    return Topology(nodes=ranks, tp=1, pp=1, dp=ranks, micro_batch=1, zero=zero, recompute="none")


@pytest.mark.parametrize("framework", FRAMEWORK_TERMS)
def test_every_framework_says_where_its_terms_come_from(framework: Framework | None) -> None:
    assert FRAMEWORK_TERMS[framework].source


@pytest.mark.parametrize(
    ("framework", "stack", "precision", "size"),
    [
        ("megatron-core", {}, "bf16", 4.0),
        ("megatron-core", {}, "fp8", 4.0),
        ("megatron-core", {}, "fp16", 2.0),
        ("megatron-core", {"grad_precision": "bf16"}, "bf16", 2.0),
        ("megatron-deepspeed", {}, "bf16", 2.0),
        (None, {}, "fp32", 4.0),
    ],
)
def test_gradients_have_the_bytes_that_the_framework_keeps(
    framework: Framework | None, stack: dict[str, Any], precision: Precision, size: float
) -> None:
    workload = replace(under(framework, headless(1), **stack), precision=precision)
    assert gradient_bytes(workload) == size
    found = memory_terms(Stages.first(columns(workload, cluster(), replicas(1, 0))), SITE)
    parameters = Stages.first(columns(workload, cluster(), replicas(1, 0))).parameters
    assert found["gradients"] == pytest.approx(size * parameters)


@pytest.mark.parametrize("framework", FRAMEWORK_TERMS)
def test_what_differs_under_fully_shard_is_described(framework: Framework | None) -> None:
    words = described(under(framework, headless(1)))
    assert ("whole gradients until the last microbatch's are reduced" in words) == (framework == "fsdp2")
    assert ("selective recompute repeats every second GEMM" in words) == (framework == "torchtitan")


@pytest.mark.parametrize(
    ("framework", "stack", "size"),
    [("fsdp2", {}, 2.0), ("fsdp2", {"grad_precision": "fp32"}, 4.0), ("torchtitan", {}, 4.0)],
)
def test_fully_sharded_gradients_are_reduced_in_what_the_framework_says(
    framework: Framework, stack: dict[str, Any], size: float
) -> None:
    assert gradient_bytes(under(framework, headless(1), **stack)) == size


@pytest.mark.parametrize(
    ("framework", "size", "copies"),
    [(None, 2.0, 2.0), ("megatron-core", 4.0, 1.0)],
    ids=["all-reduce of 16 bits", "reduce-scatter of 32 bits"],
)
def test_the_exchange_moves_the_gradients_in_their_own_precision(
    framework: Framework | None, size: float, copies: float
) -> None:
    """ZeRO 1 sends each gradient once or twice in its own precision, and each updated 16-bit weight once."""
    ranks, workload = 8, under(framework, headless(8), overlap_grad=0.0, overlap_param=0.0)
    made = columns(workload, cluster(bandwidth=BANDWIDTH), replicas(ranks, 1))
    weights = float(made.layer_matrices[0] * 24 + made.hidden[0])
    sent = copies * closed_forms.ring_sent(ranks, size * weights, gather_only=True)
    sent += closed_forms.ring_sent(ranks, 2 * weights, gather_only=True)
    found = time_terms(made, SITE)["data_parallel"][0]
    assert found == pytest.approx(sent / (BANDWIDTH * closed_forms.ring_share(ranks)), rel=1e-3)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("bandwidth", [2e9, 2e11])
def test_an_exchange_hides_its_share_as_far_as_the_pass_beside_it_lasts(share: float, bandwidth: float) -> None:
    """An exchange is hidden up to its overlap share, and no longer than the pass beside it.

    The reduction overlaps two thirds of a microbatch, and the gather the other third.
    """
    ranks, machines = 8, cluster(bandwidth=bandwidth)
    plain = under("megatron-core", headless(8 * 4), overlap_grad=0.0, overlap_param=0.0)
    hidden = under("megatron-core", headless(8 * 4), overlap_grad=share, overlap_param=share)
    before, after = (terms(workload, machines, replicas(ranks, 1)) for workload in (plain, hidden))
    microbatch = sum(before[name] for name in LAYER_TERMS) / 4
    reduced, gathered = before["data_parallel"] * 4 / 6, before["data_parallel"] * 2 / 6
    left = max((1 - share) * reduced, reduced - microbatch * 2 / 3 if share else reduced)
    left += max((1 - share) * gathered, gathered - microbatch / 3 if share else gathered)
    assert after["data_parallel"] == pytest.approx(left, rel=1e-6, abs=1e-9)


def test_split_sends_send_a_part_and_gather_the_whole() -> None:
    """Split sends carry 1 / tp of the bytes; the next stage's ranks gather them over NVLink."""
    machines = make_cluster(name="two nodes", nodes=2, gpus_per_node=8, gpu=gpu("A100-80GB-SXM"))
    machines = replace(
        machines, inter_node=Link(bandwidth=1e9, latency=0.0), intra_node=Link(bandwidth=1e30, latency=0.0)
    )
    topology = pipeline(2, nodes=2, tp=8, micro_batch=1)
    whole, split = (
        terms(under(None, headless(4), split_sends=each), machines, topology)["pipeline"] for each in (False, True)
    )
    assert whole / split == pytest.approx(8, rel=0.01)
    bytes_sent = 2048 * 4096 * 2 / 8
    assert split == pytest.approx(4 * 0.46 * 2 * bytes_sent / (1e9 * SEND_SHARE / 8), rel=0.01)


def test_an_interleaved_schedule_sends_beside_its_passes_where_the_framework_does() -> None:
    topology, machines = pipeline(4, 2), cluster(bandwidth=1e11)
    alone, beside = (terms(under(name, headless(16)), machines, topology) for name in KNOWN)
    assert alone["pipeline"] > 0
    assert beside["pipeline"] == 0
    slow = terms(under("megatron-core", headless(16)), cluster(bandwidth=1e8), topology)
    assert slow["pipeline"] > 0, "sends that last longer than the passes cannot hide"
    plain = terms(under("megatron-core", headless(16)), machines, pipeline(4))
    assert plain["pipeline"] > 0, "1F1B waits for its sends"


def test_tensor_parallel_traffic_hides_within_an_nvlink_domain_and_behind_the_products() -> None:
    tp8 = Topology(nodes=1, tp=8, pp=1, dp=1, micro_batch=4, zero=0, sequence_parallel=True, recompute="none")
    shown, hidden = (
        terms(under("megatron-core", headless(4), overlap_tp=share), node_of("A100-80GB-SXM"), tp8)["tensor_parallel"]
        for share in (0.0, 0.9)
    )
    assert hidden == pytest.approx(0.1 * shown)
    across = node_of("A100-80GB-SXM", gpus=4)
    across = replace(across, nodes=2)
    topology = replace(tp8, nodes=2)
    for domain, left in ((None, 1.0), (8, 0.1)):
        machines = replace(across, nvlink_domain=domain)
        shown, hidden = (
            terms(under("megatron-core", headless(4), overlap_tp=share), machines, topology)["tensor_parallel"]
            for share in (0.0, 0.9)
        )
        assert hidden == pytest.approx(left * shown), domain


@pytest.mark.parametrize(
    ("card", "framework", "forward", "backward"),
    [
        ("H100-80GB-SXM", None, 299, 214),
        ("H100-80GB-PCIe", None, 299 * 756 / 989.4, 214 * 756 / 989.4),
        ("H100-80GB-SXM", "megatron-core", 484, 370),
        ("H100-80GB-PCIe", "megatron-core", 484 * 756 / 989.4, 370 * 756 / 989.4),
        ("GB200-192GB", "fsdp2", 336, 268),
        ("GB200-192GB", "megatron-core", 1022, 824),
        ("GB300-288GB", "megatron-core", 1265, 900),
        ("B200-180GB-SXM", "megatron-core", 0.9 * 1022, 0.9 * 824),
        ("B300-270GB", "megatron-core", 0.9 * 1265, 0.9 * 900),
    ],
)
def test_attention_runs_at_the_published_rate_of_its_kernel(
    card: str, framework: Framework | None, forward: float, backward: float
) -> None:
    """Attention takes two products forward and five backward, causal, at the published TFLOPS for 2,048 tokens.

    The B200 and B300 have 0.9 of the peak of the GB200 and GB300, the PCIe card 756 of 989 TFLOPS.
    """
    one = Topology(nodes=1, tp=1, pp=1, dp=1, micro_batch=2, zero=0, recompute="none")
    found = terms(under(framework, headless(2)), node_of(card, gpus=1), one)["attention"]
    scores = 24 * 2 * 2048 * 2048 * 4096 * 2 / 2
    assert found == pytest.approx(scores * (2 / forward + 5 / backward) / 1e12 / SUSTAINED_PRODUCT_SHARE)


@pytest.mark.parametrize(
    ("card", "precision", "tflops"),
    [
        ("GB300-288GB", "bf16", 1845),
        ("GB300-288GB", "fp8", 3690),
        ("GB200-192GB", "bf16", 1845 * 1048 / 1400),
        ("GB200-192GB", "fp8", 3690 * 1048 / 1400),
        ("B200-180GB-SXM", "bf16", 1845 * 1000 / 1400),
        ("B300-270GB", "fp8", 3690 * 1100 / 1400),
        ("B200-180GB-SXM", "fp4", 7380 * 1000 / 1400),
        ("GB300-288GB", "fp4", 7380),
        ("H100-80GB-SXM", "fp8", 0.709 * 1979),
    ],
)
def test_products_of_blackwell_take_the_power_that_their_gpu_has(card: str, precision: Any, tflops: float) -> None:
    """Blackwell products scale with the GPU's power, from the GB300's 1,845 TFLOPS at 1,400 W; Hopper's do not."""
    known = gpu(card)
    rate = product_rate(known, replace(headless(1), precision=precision), SITE)
    assert rate == pytest.approx(tflops * 1e12 * SUSTAINED_PRODUCT_SHARE, rel=2e-3)


def test_attention_on_other_generations_stays_as_fitted() -> None:
    one = Topology(nodes=1, tp=1, pp=1, dp=1, micro_batch=2, zero=0, recompute="none")
    found = [
        terms(under(framework, headless(2)), node_of("A100-80GB-SXM", gpus=1), one)["attention"] for framework in KNOWN
    ]
    assert found[0] == found[1]


def test_fp8_products_reach_their_own_share_of_the_peak() -> None:
    one = Topology(nodes=1, tp=1, pp=1, dp=1, micro_batch=8, zero=0, recompute="none")
    card = gpu("H100-80GB-SXM")
    workload = headless(8, hidden=8192)
    found = {
        precision: terms(replace(under(None, workload), precision=precision), node_of(card.name, gpus=1), one)
        for precision in ("bf16", "fp8")
    }
    gain = card.peak_flops["fp8"] * FP8_ACHIEVABLE["H100"] / (card.peak_flops["bf16"] * card.achievable)
    assert found["bf16"]["products"] / found["fp8"]["products"] == pytest.approx(gain, rel=0.01)


@pytest.mark.parametrize("recipe", ["delayed", "tensorwise", "blockwise", "mxfp8", "nvfp4"])
def test_casts_move_every_input_and_gradient_of_the_products(recipe: Any) -> None:
    """Casts to fp8 and fp4 move inputs of width h, h, h, 4h and gradients of 3h, h, 4h, h: 16 h per token and layer.

    Each read is of 16 bits, and two orientations are written.
    """
    one = Topology(nodes=1, tp=1, pp=1, dp=1, micro_batch=4, zero=0, recompute="none")
    machines = node_of("B200-180GB-SXM", gpus=1)
    halves = under(None, headless(4))
    narrow = replace(halves, precision=scales(recipe), precision_recipe=recipe)
    cast = terms(narrow, machines, one)["elementwise"] - terms(halves, machines, one)["elementwise"]
    moved = (2 * CAST_READS[recipe] + 2 * QUANTIZED_BYTES[recipe]) * 16 * 4096 * 4 * 2048 * 24
    assert cast == pytest.approx(moved / (machines.gpu.memory_bandwidth * 0.66))


def test_megatrons_fused_kernels_move_what_they_read_and_write() -> None:
    """Fused SwiGLU reads two widths and writes one, fused rotary reads and writes queries and keys.

    With megatron-core, no kernel adds up gradients, so that upkeep is proportional to the microbatches.
    """
    one = Topology(nodes=1, tp=1, pp=1, dp=1, micro_batch=1, zero=0, recompute="none")
    machines = node_of("A100-80GB-SXM", gpus=1)
    model = replace(headless(1).model, gated_mlp=True, positions="rotary")
    plain, fused = (
        terms(replace(under(name, headless(1)), model=model), machines, one)["elementwise"] for name in KNOWN
    )
    tokens, hidden = 2048 * 24, 4096
    saved = ((12.4 - 6) * 4 * hidden + (14.5 - 4) * 2 * hidden) * tokens * 2.6
    assert plain - fused == pytest.approx(saved / (machines.gpu.memory_bandwidth * 0.66))
    few, many = (terms(under("megatron-core", headless(count)), machines, one)["upkeep"] for count in (1, 8))
    assert many == pytest.approx(8 * few)
    few, many = (terms(under(None, headless(count)), machines, one)["upkeep"] for count in (1, 8))
    assert many > 8 * few


def test_a_stack_overrides_its_framework_only_where_it_says_so() -> None:
    usual = FRAMEWORK_TERMS["megatron-core"]
    found = terms_of(under("megatron-core", headless(1), overlap_grad=0.25))
    assert found == replace(usual, overlap_grad=0.25)
    assert terms_of(under("megatron-core", headless(1))) is usual
    assert terms_of(under(None, headless(1), split_sends=True)).split_sends


@pytest.mark.parametrize("cp", [1, 2, 4, 8])
def test_ring_attention_merges_its_parts(cp: int) -> None:
    """Ring attention merges fp32 outputs and the gradients of queries, keys and values cp - 1 times.

    Its exchange is hidden here.
    """
    topology = Topology(nodes=1, tp=1, pp=1, cp=cp, dp=1, micro_batch=4, zero=0, recompute="none")
    machines = replace(node_of("A100-80GB-SXM"), intra_node=Link(bandwidth=1e30, latency=0.0))
    found = terms(under(None, headless(4)), machines, topology)["context_parallel"]
    moved = (cp - 1) * (10 + 3 * 6) * 4096 * 4 * 2048 / cp * 24
    assert found == pytest.approx(moved / (machines.gpu.memory_bandwidth * 0.66))


def exchange(model: Workload, cp: int, *, tp: int = 1) -> float:
    """Return the seconds of context parallelism over links so slow that almost nothing is hidden."""
    topology = Topology(nodes=1, tp=tp, pp=1, cp=cp, dp=1, micro_batch=4, zero=0, recompute="none")
    machines = replace(node_of("A100-80GB-SXM"), intra_node=Link(bandwidth=BANDWIDTH, latency=0.0))
    return terms(model, machines, topology)["context_parallel"]


@pytest.mark.parametrize("cp", [2, 4, 8])
def test_a_gather_before_attention_hides_nothing_and_merges_nothing(cp: int) -> None:
    """With all_gather, keys and values are gathered forward and backward, and their gradients are reduced."""
    found = exchange(under("megatron-core", headless(4), cp_comm="all_gather"), cp)
    received = 2 * 2 * 4096 * 4 * 2048 * (cp - 1) / cp
    assert found == pytest.approx(3 * received * 24 / (BANDWIDTH * NODE_LINK_SHARE))


@pytest.mark.parametrize("cp", [2, 4, 8])
def test_ulysses_exchanges_four_tensors_of_which_each_rank_keeps_its_part(cp: int) -> None:
    """Ulysses exchanges queries, keys, values and outputs in both passes; each rank keeps 1 / cp of them."""
    found = exchange(under("megatron-core", headless(4), cp_comm="a2a"), cp)
    sent = 4 * 2 * 4096 * 4 * 2048 / cp * (cp - 1) / cp
    assert found == pytest.approx(2 * sent * 24 / (BANDWIDTH * NODE_LINK_SHARE))


@pytest.mark.parametrize(("tp", "cp"), [(1, 16), (2, 8), (8, 2)])
def test_a_ring_between_nodes_goes_through_the_adapter_of_each_gpu(tp: int, cp: int) -> None:
    """Keys and values go forward, and they and their gradients backward, at an eighth of the node's bandwidth, however
    few rings leave it; a gather has the adapters of the others as well."""
    topology = Topology(nodes=2, tp=tp, pp=1, cp=cp, dp=1, micro_batch=4, zero=0, recompute="none")
    slow = Link(bandwidth=BANDWIDTH, latency=0.0)
    machines = replace(node_of("H100-80GB-SXM"), nodes=2, inter_node=slow)
    found, gathered = (
        terms(under("megatron-core", headless(4), cp_comm=kind), machines, topology) for kind in ("p2p", "all_gather")
    )
    received = (cp - 1) * 2 * 2 * 4096 / tp * 4 * 2048 / cp * 24
    exchanged = 3 * received / (BANDWIDTH * SEND_SHARE / 8)
    assert found["context_parallel"] == pytest.approx(exchanged, rel=0.01)
    assert gathered["context_parallel"] < exchanged


def test_a_gather_hides_less_than_a_ring() -> None:
    """An all-gather overlaps only the rank's own part of attention, while a ring overlaps all of it."""
    ring, gathered = (exchange(under("fsdp2", headless(4), cp_comm=kind), 8) for kind in ("p2p", "all_gather"))
    assert gathered > ring
    exchanges = [context_exchange(under(name, headless(4))) for name in ("fsdp2", "torchtitan", "megatron-core")]
    assert exchanges == ["all_gather", "all_gather", "p2p"]


def norms_of(**stated: Any) -> tuple[float, float]:
    """Return the additional bytes that the stated norms move forward and keep as activations, over 24 layers."""
    plain = headless(1)
    one = Topology(nodes=1, tp=1, pp=1, dp=1, micro_batch=1, zero=0, recompute="none")
    machines = node_of("A100-80GB-SXM", gpus=1)
    rate = machines.gpu.memory_bandwidth * MEMORY_BANDWIDTH_SHARE
    found = []
    for model in (plain.model, replace(plain.model, **stated)):
        workload = replace(plain, model=model)
        made = columns(workload, machines, one)
        moved = terms(workload, machines, one)["elementwise"] * rate / (1 + BACKWARD_TRAFFIC_RATIO)
        found.append((moved, float(memory_terms(Stages.first(made), SITE)["activations"][0])))
    (before, kept), (after, more) = found
    return after - before, more - kept


def test_norms_beyond_two_a_layer_move_and_keep_their_inputs() -> None:
    """Each further norm reads and writes 16 bits per element in the forward pass, and keeps its input."""
    model = headless(1).model
    tokens, heads = model.seq * 24, model.query_width + model.kv_width
    each = tokens * model.hidden
    assert norms_of(qk_norm=True) == pytest.approx((4 * tokens * heads, 2 * tokens * heads), rel=1e-3)
    assert norms_of(norms_per_layer=4) == pytest.approx(
        (8 * tokens * model.hidden, 4 * tokens * model.hidden), rel=1e-3
    )
    assert norms_of(norms_per_layer=1) == pytest.approx((-4 * each, -4 * each), rel=1e-3)


def test_megatrons_sharding_hides_behind_the_passes_as_a_whole() -> None:
    """On a fast network only the host's work per layer is left of Megatron's sharding, but more of PyTorch's.

    On a slow network more is left.
    """
    work, host = headless(16), SHARDED_LAYER_HOST_SECONDS * 24 * 4
    fast, slow = cluster(bandwidth=1e12), cluster(bandwidth=1e9)
    assert terms(under("megatron-core", work), fast, replicas(4, 3))["sharding"] == pytest.approx(host)
    assert terms(under("fsdp2", work), fast, replicas(4, 3))["sharding"] > 1.01 * host
    assert terms(under("megatron-core", work), slow, replicas(4, 3))["sharding"] > 10 * host
