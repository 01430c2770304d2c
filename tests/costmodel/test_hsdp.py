"""Hybrid sharding: replica groups that each have a complete set of shards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.closed_forms import ring_share
from tests.mixtures import QWEN3_30B
from tuner.core.columns import Columns
from tuner.core.domain import Cluster
from tuner.core.keys import parse_key
from tuner.costmodel.estimate import CostModel, Scores
from tuner.costmodel.links import Links
from tuner.costmodel.site_factors import SiteFactors
from tuner.planning.explain import explain
from tuner.planning.plan import plan
from tuner.space.build import space_for

SPACE = space_for(model="llama-3-8b", gpu="A100-80GB-SXM", nodes=4, global_batch=256, framework="fsdp2")


def scored(*keys: str, cluster: Cluster = SPACE.cluster) -> Scores:
    topologies = [parse_key(key, workload=SPACE.workload, cluster=cluster) for key in keys]
    return CostModel().score(Columns.of(topologies, SPACE.workload, cluster))


def test_a_set_of_shards_lies_on_the_ranks_of_one_group() -> None:
    """Each rank of four groups of 8 needs as much memory as a rank of 8 ranks that share one set of shards."""
    four, alone = scored("tp1-pp1-dp32-mbs1-z3-hsdp4"), scored("tp1-pp1-dp8-mbs1-z3")
    for term in ("weights", "gradients", "optimizer", "gathered"):
        assert four.memory_terms[term] == alone.memory_terms[term]


def test_the_place_of_the_groups_decides_their_links() -> None:
    """Groups of one node exchange shards inside it; only the reduction of a shard uses the network, on all GPUs."""
    columns = scored("tp1-pp1-dp32-mbs1-z3", "tp1-pp1-dp32-mbs1-z3-hsdp4", "tp2-pp1-dp16-mbs1-z3-hsdp2").columns
    links, inner = Links(columns, SiteFactors()), Links(columns, SiteFactors()).tensor[0][0]
    fewer = ring_share(16, 8) / ring_share(32, 8)  # 2 nodes of 4
    assert links.shard[0].tolist() == pytest.approx([links.data[0][0], inner, links.data[0][2] * fewer])
    assert links.replica[0][1] == pytest.approx(links.data[0][1] / 8)


def test_hybrid_sharding_gathers_faster_where_a_node_holds_the_shards() -> None:
    """With a slow network, sharding within a node takes less time and more memory than over all ranks."""
    keys = ("tp1-pp1-dp32-mbs1-z3", "tp1-pp1-dp32-mbs1-z3-hsdp4")
    slow = replace(SPACE.cluster, inter_node=replace(SPACE.cluster.inter_node, bandwidth=50e9))
    scores = scored(*keys, cluster=slow)
    assert scores.time_terms["sharding"][1] < scores.time_terms["sharding"][0]
    assert scores.memory[1] > scores.memory[0]


def test_a_topology_without_groups_costs_the_same_beside_one_with_them() -> None:
    """The scores of a topology do not depend on rows with replica groups, to the last bit."""
    keys = [f"tp1-pp1-dp32-mbs1-{stage}" for stage in ("z3", "z2")]
    alone, beside = scored(*keys), scored(*keys, "tp1-pp1-dp32-mbs1-z3-hsdp4")
    assert beside.seconds[:2].tolist() == alone.seconds.tolist()
    assert beside.memory[:2].tolist() == alone.memory.tolist()


def test_groups_are_searched_on_request() -> None:
    """Replica groups are searched only if requested, with ZeRO 2 and 3 and at least two ranks per group."""
    without, asked = (plan(replaced, top=0).top for replaced in (SPACE, SPACE.where(hsdp=(1, 2, 3, 4))))
    assert "hsdp" not in "".join(row.topology.key for row in without)
    groups = {(row.topology.hsdp, row.topology.zero) for row in asked}
    assert groups == {(hsdp, zero) for hsdp in (1, 2, 4) for zero in (2, 3)}
    assert all(row.topology.dp >= 2 * row.topology.hsdp for row in asked if row.topology.hsdp > 1)
    assert {row.topology.key: row.seconds for row in asked if row.topology.hsdp == 1} == {
        row.topology.key: row.seconds for row in without
    }


def _sharded_experts(key: str, gpus: int) -> Scores:
    """Return the scores of a mixture under torchtitan on so many GPUs, each of which has four microbatches."""
    space = space_for(
        model=QWEN3_30B, gpu="H100-80GB-SXM", nodes=gpus // 8, global_batch=4 * gpus, framework="torchtitan"
    )
    topology = parse_key(key, workload=space.workload, cluster=space.cluster)
    return CostModel().score(Columns.of([topology], space.workload, space.cluster))


@pytest.mark.parametrize("zero", [2, 3])
def test_replica_groups_do_not_share_the_shards_of_experts(zero: int) -> None:
    """Each of four replica groups on 32 GPUs stores as much a GPU as eight GPUs do alone, experts included, and beyond
    their exchange reduces the gradients of its own shard."""
    four = _sharded_experts(f"tp1-pp1-dp32-mbs1-z{zero}-hsdp4-ep4", 32)
    alone = _sharded_experts(f"tp1-pp1-dp8-mbs1-z{zero}-ep4", 8)
    for name in ("weights", "gradients", "optimizer", "gathered"):
        assert float(four.memory_terms[name][0]) == pytest.approx(float(alone.memory_terms[name][0])), name
    links = [Links(scores.columns, SiteFactors()).expert_data for scores in (four, alone)]
    assert links[0] == links[1]


def test_experts_are_divided_within_a_replica_group() -> None:
    """torchtitan takes the ranks of expert parallelism from those that share a set of shards."""
    space = space_for(model=QWEN3_30B, gpu="H100-80GB-SXM", nodes=4, global_batch=128, framework="torchtitan")
    for key, legal in (("tp1-pp1-dp32-mbs1-z3-hsdp4-ep8", True), ("tp1-pp1-dp32-mbs1-z3-hsdp4-ep16", False)):
        topology = parse_key(key, workload=space.workload, cluster=space.cluster)
        broken = {violation.rule for violation in explain(space, topology).violations}
        assert ("ep-in-stage" not in broken) == legal
