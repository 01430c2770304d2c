"""Costs of many GPUs calculated by hand: network steps, trees, buckets, replicas, and the slowest GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from tuner.core.columns import Columns
from tuner.core.domain import Framework, Link, PrecisionRecipe, scales
from tuner.core.keys import parse_key
from tuner.core.stack import Stack
from tuner.costmodel.constants import BUCKET_ELEMENTS, NETWORK_LATENCY_RATIO, NODE_LATENCY_RATIO
from tuner.costmodel.layer import layer_seconds
from tuner.costmodel.link_constants import TREE_BANDWIDTH_SHARE
from tuner.costmodel.links import Links, all_reduce, all_reduce_between
from tuner.costmodel.normal import expected_maximum
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stack_constants import REDUCE_BUCKET
from tuner.costmodel.time import TERMS, time_terms
from tuner.space.build import space_for

INNER, OUTER = 2e-6, 3e-3


def columns(
    key: str, framework: Framework | Literal["any"] = "any", recipe: PrecisionRecipe | None = None, **link: float
) -> Columns:
    """Return one topology on 4 nodes of 8 GPUs with a network of this bandwidth and latency."""
    card = "H100-80GB-SXM" if recipe else "A100-80GB-SXM"
    space = space_for(model="llama-3-8b", gpu=card, nodes=4, global_batch=256, framework=framework)
    network = Link(bandwidth=link.get("bandwidth", 1e30), latency=link.get("latency", 0.0))
    cluster = replace(
        space.cluster, inter_node=network, intra_node=Link(bandwidth=1e30, latency=link.get("inner", 0.0))
    )
    workload = replace(space.workload, stack=Stack(overlap_grad=0.0, overlap_param=0.0))
    if recipe:
        workload = replace(workload, precision=scales(recipe), precision_recipe=recipe)
    return Columns.of([parse_key(key, workload=workload, cluster=cluster)], workload, cluster)


def exchange(key: str, framework: Framework | Literal["any"] = "any", **link: float) -> float:
    return float(time_terms(columns(key, framework, None, **link), SiteFactors())["data_parallel"][0])


@pytest.mark.parametrize(
    ("key", "crossing", "steps"),
    [
        ("tp1-pp1-dp32-mbs1-z1", 3, 31),
        ("tp2-pp1-dp16-mbs1-z1", 3, 15),
        ("tp8-pp1-dp4-mbs1-z1", 3, 3),
        ("tp8-pp4-dp1-mbs1-z1", 0, 1),
        ("tp1-pp2-dp16-mbs1-z1", 1, 15),
    ],
)
def test_a_ring_crosses_the_network_once_in_each_node(key: str, crossing: int, steps: int) -> None:
    """A ring's total latency is that of its steps between nodes, one less than the nodes, and of all other steps."""
    latency = float(Links(columns(key, latency=OUTER, inner=INNER), SiteFactors()).data[1][0])
    by_hand = crossing * OUTER * NETWORK_LATENCY_RATIO + (steps - crossing) * INNER * NODE_LATENCY_RATIO
    assert latency * steps == pytest.approx(by_hand)


@pytest.mark.parametrize(("size", "ranks"), [(1e9, 2), (1e9, 4), (1e6, 128), (1e9, 1024), (0.0, 7)])
def test_an_all_reduce_between_nodes_takes_the_faster_of_ring_and_tree(size: float, ranks: int) -> None:
    bandwidth, latency, parts = 2e10, 2e-5, 3
    tree = 2 * size / (bandwidth * TREE_BANDWIDTH_SHARE) + 2 * np.ceil(np.log2(ranks)) * parts * latency
    ring = all_reduce(size, ranks, bandwidth, parts * latency)
    assert float(all_reduce_between(size, ranks, bandwidth, latency, parts)) == pytest.approx(min(float(ring), tree))
    assert float(all_reduce_between(size, 1, bandwidth, latency, parts)) == 0.0


def test_few_nodes_use_a_ring_and_many_a_tree() -> None:
    """A ring is faster for few ranks, and a tree for many, as a ring's latency grows linearly with the ranks."""
    for ranks, tree in ((2, False), (1024, True)):
        ring = float(all_reduce(1e8, ranks, 2e10, 2e-5))
        assert (float(all_reduce_between(1e8, ranks, 2e10, 2e-5)) < ring) == tree


@pytest.mark.parametrize(
    ("framework", "bucket", "passes"),
    [("any", BUCKET_ELEMENTS, 3), ("megatron-core", max(REDUCE_BUCKET[0], REDUCE_BUCKET[1] * 4), 2)],
)
def test_each_bucket_waits_for_the_network(framework: Framework | Literal["any"], bucket: float, passes: int) -> None:
    """Each bucket waits for the latency of every pass: all-reduce (2) and gather, or scatter and gather, of 3 steps."""
    one = columns("tp8-pp1-dp4-mbs1-z1", framework)
    elements = float((one.layers * one.layer_matrices + 2 * one.padded_vocab * one.hidden)[0]) / 8
    waits = exchange("tp8-pp1-dp4-mbs1-z1", framework, latency=OUTER)
    assert waits == pytest.approx(passes * np.ceil(elements / bucket) * 3 * OUTER * NETWORK_LATENCY_RATIO, rel=1e-6)


def test_replicas_of_zero_1_reduce_their_shards_over_the_network_once() -> None:
    """With one replica group per node, its eight GPUs each all-reduce an eighth of the gradients in parallel."""
    bandwidth = 1e9
    groups = columns("tp1-pp1-dp32-mbs1-z1-hsdp4", bandwidth=bandwidth)
    share = float(Links(groups, SiteFactors()).replica[0][0]) / bandwidth
    gradients = 2.0 * groups.workload.model.parameters
    expected = 2 * (3 / 4) * gradients / 8 / (share * bandwidth)
    assert exchange("tp1-pp1-dp32-mbs1-z1-hsdp4", bandwidth=bandwidth) == pytest.approx(expected, rel=1e-6)
    more = exchange("tp1-pp1-dp32-mbs4-z1-hsdp4", bandwidth=bandwidth)
    assert more == pytest.approx(expected, rel=1e-6), "whatever the number of microbatches"


@pytest.mark.parametrize(("count", "mean"), [(8, 1.4236), (50, 2.2491), (100, 2.5076), (1000, 3.2414)])
def test_the_expected_maximum_of_normal_variables(count: int, mean: float) -> None:
    """The approximation agrees with tables of order statistics (Harter 1961, Biometrika 48) within 1%."""
    assert float(expected_maximum(np.array(count))) == pytest.approx(mean, rel=0.01)


def test_every_pass_waits_for_the_slowest_gpu() -> None:
    """Passes over several nodes wait for the slowest GPU: 1.5% times its expected deviation beyond that of 8 GPUs."""
    for key, gpus in (("tp8-pp1-dp1-mbs1-z1", 8), ("tp8-pp2-dp2-mbs1-z1", 32)):
        terms = {name: float(value[0]) for name, value in time_terms(columns(key), SiteFactors()).items()}
        passes = sum(terms[name] for name in TERMS[: TERMS.index("stragglers")] if name != "pipeline")
        slower = expected_maximum(np.array(gpus)) - expected_maximum(np.array(8))
        assert terms["stragglers"] == pytest.approx(0.015 * passes * slower)
        assert (terms["stragglers"] > 0) == (gpus > 8)


def tensor_exchange(recipe: PrecisionRecipe | None, framework: Framework | None, *, sequence: bool) -> float:
    """Return the seconds of a layer's tensor parallel exchanges on 8 B200 whose links only have a bandwidth."""
    space = space_for(model="llama-3-8b", gpu="B200-180GB-SXM", nodes=1, global_batch=256)
    cluster = replace(space.cluster, intra_node=Link(bandwidth=1e9, latency=0.0))
    workload = replace(space.workload, framework=framework, precision="bf16", stack=Stack(overlap_tp=0.0))
    if recipe:
        workload = replace(workload, precision=scales(recipe), precision_recipe=recipe)
    topology = replace(parse_key("tp8-pp1-dp1-mbs1-z0", workload=workload, cluster=cluster), sequence_parallel=sequence)
    one = Columns.of([topology], workload, cluster)
    site = SiteFactors()
    return float(layer_seconds(one, site, Links(one, site)).tensor_parallel[0])


@pytest.mark.parametrize(
    ("recipe", "forward", "backward"),
    [
        ("delayed", 1, 1),
        ("tensorwise", 1, 1),
        ("blockwise", 1 + 4 / 128, 2 + 8 / 128),
        ("mxfp8", 1 + 1 / 32, 2 + 2 / 32),
        ("nvfp4", 9 / 16, 9 / 8),
    ],
)
def test_transformer_engine_gathers_what_it_has_cast(recipe: PrecisionRecipe, forward: float, backward: float) -> None:
    """Of two gathers and two scatters in each pass, with 2 bytes a value in bf16, only the gathers are cast."""
    whole = tensor_exchange(None, "megatron-core", sequence=True)
    assert tensor_exchange(recipe, "megatron-core", sequence=True) == pytest.approx(
        whole * (2 + forward + 2 + backward) / 8
    )
    assert tensor_exchange(recipe, "megatron-core", sequence=False) == pytest.approx(whole), "all-reduces in 16 bits"
    assert tensor_exchange(recipe, None, sequence=True) == pytest.approx(whole), "without Transformer Engine"


@pytest.mark.parametrize(
    ("key", "inside", "between"),
    [
        ("tp8-pp4-dp1-mbs1-z0", 3, 0),
        ("tp8-pp4-dp1-mbs1-z0-vpp2", 3, 0),
        ("tp8-pp2-dp2-mbs1-z0", 3, 1),
        ("tp4-pp1-dp8-mbs2-z0", 3, 2),
        ("tp1-pp8-dp4-mbs1-z0", 2, 0),
    ],
)
def test_delayed_scaling_reduces_its_maxima_behind_each_pass(key: str, inside: int, between: int) -> None:
    """A tree goes up and down through each stage's ranks, for both passes of each chunk of each microbatch."""
    recipes: tuple[PrecisionRecipe, PrecisionRecipe] = ("delayed", "tensorwise")
    scaled, others = (columns(key, "megatron-core", each, latency=OUTER, inner=INNER) for each in recipes)
    up = inside * INNER * NODE_LATENCY_RATIO + between * OUTER * NETWORK_LATENCY_RATIO
    passes = 2 * float((scaled.vpp * scaled.microbatches)[0])
    exchanged = [time_terms(each, SiteFactors())["data_parallel"][0] for each in (scaled, others)]
    assert exchanged[0] - exchanged[1] == pytest.approx(passes * 2 * up)


@pytest.mark.parametrize(
    ("key", "layers", "tables"), [("tp1-pp1-dp32-mbs1-z1", 32, 2), ("tp1-pp2-dp16-mbs1-z1", 16, 1)]
)
def test_the_first_stage_exchanges_its_own_parameters(key: str, layers: int, tables: int) -> None:
    """A stage exchanges its layers and the tables that it holds: without a pipeline, embedding and output layer.

    The last stage ends its passes first, so that its own exchange is beside the drain of the others.
    """
    one = columns(key, bandwidth=1e9)
    model = one.workload.model
    parameters = layers * model.layer_parameters + tables * float(one.padded_vocab[0] * one.hidden[0])
    ranks, rate = int(one.dp[0]), float(Links(one, SiteFactors()).data[0][0])
    assert exchange(key, bandwidth=1e9) == pytest.approx(3 * (ranks - 1) / ranks * 2 * parameters / rate, rel=1e-6)
