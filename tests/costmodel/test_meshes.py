"""Boards without a switch: a group of GPUs has the links between its members only."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.core.catalog import catalog, gpu, make_cluster
from tuner.core.columns import Columns
from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.model import Model
from tuner.costmodel.constants import NODE_LINK_SHARE
from tuner.costmodel.link_constants import MESHES, XGMI_SHARE
from tuner.costmodel.links import Links, intra_node
from tuner.costmodel.site_factors import SiteFactors
from tuner.tables import table_of

MODEL = Model(layers=48, hidden=8192, heads=64, vocab=51200, seq=4096)


def board(card: str, size: int, domain: int | None = None) -> Cluster:
    return make_cluster(name="boards", nodes=4, gpus_per_node=size, gpu=gpu(card), nvlink_domain=domain)


def links(machines: Cluster, **degrees: int) -> Links:
    given_degrees: dict[str, Any] = {"tp": 1, "pp": 1, "dp": 1, "cp": 1, "micro_batch": 1, **degrees}
    topology = Topology(nodes=machines.nodes, **given_degrees)
    workload = Workload(model=MODEL, global_batch=topology.dp * 16, precision="fp16", attention="flash2")
    return Links(Columns.of([topology], workload, machines), SiteFactors())


@pytest.mark.parametrize("members", [2, 3, 4])
@pytest.mark.parametrize("card", ["V100-32GB-SXM", "A100-80GB-SXM", "H100-80GB-SXM", "H200-141GB-SXM", "GH200-96GB"])
def test_a_board_of_four_has_three_peers_for_each_gpu(card: str, members: int) -> None:
    assert float(intra_node(board(card, 4), members)) == pytest.approx(
        gpu(card).intra_node_bandwidth * (members - 1) / 3
    )


@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("members", [2, 4, 8])
def test_amds_boards_have_seven_peers_however_many_a_node_lists(size: int, members: int) -> None:
    card = gpu("MI300X-192GB")
    expected = card.intra_node_bandwidth * XGMI_SHARE * (members - 1) / 7
    assert float(intra_node(board("MI300X-192GB", size), members)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("card", "size", "domain"),
    [
        ("H100-80GB-SXM", 8, None),
        ("H100-80GB-SXM", 4, 8),
        ("B200-180GB-SXM", 4, None),
        ("GB200-192GB", 4, 72),
        ("H100-80GB-PCIe", 4, None),
        ("H100-80GB-SXM", 2, None),
    ],
)
def test_a_switch_gives_any_group_the_whole_bandwidth(card: str, size: int, domain: int | None) -> None:
    """So do cards on PCIe, and a node of fewer GPUs than a board is a part of one with a switch."""
    for members in (2, 4):
        assert intra_node(board(card, size, domain), members) == gpu(card).intra_node_bandwidth


def test_each_kind_of_group_counts_its_own_members() -> None:
    """On a board of four A100: tensor and data parallel pairs have one of three links, sends always."""
    machines, third = board("A100-80GB-SXM", 4), 100e9 * NODE_LINK_SHARE
    pair = links(machines, tp=2, dp=2)
    assert [float(each[0][0]) for each in (pair.tensor, pair.data)] == pytest.approx([third, third])
    assert float(links(machines, tp=4, dp=4).tensor[0][0]) == pytest.approx(3 * third)
    assert float(links(machines, dp=4).data[0][0]) == pytest.approx(3 * third)
    assert float(links(machines, pp=4).pipeline[0][0]) == pytest.approx(third)
    ring = links(machines, cp=4)
    assert [float(each[0][0]) for each in (ring.context, ring.context_sends, ring.heads)] == pytest.approx(
        [3 * third, third, 3 * third]
    )
    halves = links(machines, tp=2, cp=2)
    assert [float(each[0][0]) for each in (halves.context, halves.heads)] == pytest.approx([third, third])


def test_the_boards_without_a_switch_are_in_the_catalog() -> None:
    known = {name.split("-")[0] for name in catalog().gpu}
    assert MESHES.keys() <= known


def test_a_job_on_some_gpus_of_a_node_has_the_links_of_the_largest_node_in_the_table() -> None:
    def domains(*rows: str) -> list[int]:
        lines = ["gpu,gpus_per_node,nodes,layers,hidden,tp,sec_per_iter", *rows]
        runs = [row.run for row in table_of("\n".join(lines) + "\n", "t.csv").rows]
        return [run.cluster.domain for run in runs if run]

    part, whole = "A100-80GB-SXM,4,1,24,2048,2,1.0", "A100-80GB-SXM,8,1,24,2048,2,0.6"
    assert domains(part) == [4]
    assert domains(part, whole) == [8, 8]
    assert domains("A100-80GB-SXM,4,2,24,2048,2,0.6", whole) == [4, 8], "two nodes of four GPUs share no NVLink"
    assert domains(part, "H100-80GB-SXM,8,1,24,2048,2,0.6") == [4, 8], "another GPU's node"
    assert domains("A100-80GB-SXM,3,1,24,2048,1,1.0", whole) == [3, 8]


@pytest.mark.parametrize("size", ["9" * 5000, "0", "-4", "129", "x"])
def test_a_node_of_an_impossible_size_holds_no_other(size: str) -> None:
    lines = ["gpu,gpus_per_node,nodes,layers,hidden,tp,sec_per_iter", "A100-80GB-SXM,4,1,24,2048,2,1.0"]
    row = table_of("\n".join([*lines, f"A100-80GB-SXM,{size},1,24,2048,2,1.0"]) + "\n", "t.csv").rows[0]
    assert row.run is not None
    assert row.run.cluster.domain == 4
