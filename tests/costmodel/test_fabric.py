"""The network's fabric: its effects and its storage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.closed_forms import ring_share
from tuner.core.catalog import cluster, gpu, make_cluster
from tuner.core.columns import Columns
from tuner.core.documents import cluster_document, cluster_of
from tuner.core.domain import Cluster, Fabric, Topology, Workload
from tuner.core.errors import InputError
from tuner.core.model import Model
from tuner.costmodel.constants import OMNI_PATH_RING_SHARE
from tuner.costmodel.links import Links
from tuner.costmodel.site_factors import SiteFactors
from tuner.space.build import space_for
from tuner.tables import read_table


def data_bandwidth(machines: Cluster, *, dp: int, pp: int = 1, tp: int = 8) -> float:
    """Return the bandwidth of a rank's gradient exchange."""
    model = Model(layers=32, hidden=1024, heads=16, vocab=51200, seq=1024)
    topology = Topology(nodes=tp * dp * pp // 8, tp=tp, pp=pp, dp=dp, micro_batch=1, zero=1)
    columns = Columns.of([topology], Workload(model=model, global_batch=1024), machines)
    return float(Links(columns, SiteFactors()).data[0][0])


def machines(fabric: Fabric | None = None, nodes: int = 512, card: str = "H100-80GB-SXM") -> Cluster:
    return make_cluster(name="drawn", nodes=nodes, gpus_per_node=8, gpu=gpu(card), fabric=fabric)


@pytest.mark.parametrize("dp", [2, 4, 32, 512])
@pytest.mark.parametrize(
    ("card", "fabric"), [("A100-80GB-SXM", None), ("A100-80GB-SXM", "infiniband"), ("H100-80GB-SXM", "roce")]
)
def test_rings_among_more_nodes_meet_others_on_their_links(card: str, fabric: Fabric | None, dp: int) -> None:
    """The bandwidth of a ring falls with its number of nodes, and does not depend on parallel pipeline stages."""
    expected = machines(card=card).inter_node.bandwidth / 8 * ring_share(8 * dp, 8)
    assert data_bandwidth(machines(fabric, card=card), dp=dp) == pytest.approx(expected)
    if dp <= 32:
        assert data_bandwidth(machines(fabric, card=card), dp=dp, pp=16) == pytest.approx(expected)


@pytest.mark.parametrize("dp", [2, 512])
@pytest.mark.parametrize("fabric", [None, "infiniband"])
@pytest.mark.parametrize("card", ["H100-80GB-SXM", "B200-180GB-SXM"])
def test_newer_networks_route_each_packet_around_the_others(card: str, fabric: Fabric | None, dp: int) -> None:
    assert data_bandwidth(machines(fabric, card=card), dp=dp) == pytest.approx(
        0.9 * machines(card=card).inter_node.bandwidth / 8
    )


@pytest.mark.parametrize("dp", [2, 32])
def test_rings_over_omni_path_have_the_share_that_was_measured_there(dp: int) -> None:
    slow = data_bandwidth(machines("omni-path"), dp=dp)
    assert slow == pytest.approx(machines().inter_node.bandwidth / 8 * OMNI_PATH_RING_SHARE)


def test_a_ring_within_a_node_does_not_meet_the_network() -> None:
    assert data_bandwidth(machines("omni-path"), dp=8, tp=1) == data_bandwidth(machines(), dp=8, tp=1)


def test_the_fabric_of_a_cluster_is_recorded() -> None:
    """The fabric is part of a cluster's document; without it, a catalog cluster has its own and others have none."""
    known = cluster("bloom-48")
    assert (known.fabric, cluster("tr8-v100").fabric, cluster("hgx-b200").fabric) == ("omni-path", "omni-path", None)
    document = cluster_document(known)
    assert document["fabric"] == "omni-path"
    del document["fabric"]
    assert cluster_of(document) == known
    assert "fabric" not in cluster_document(machines())
    assert cluster_of(cluster_document(machines())) == machines()
    assert cluster_of(cluster_document(machines("roce"))) == machines("roce")


def test_a_cluster_with_other_gpus_keeps_its_fabric_and_a_gpu_alone_has_none() -> None:
    assert space_for().cluster.fabric == "omni-path"
    assert space_for(cluster="bloom-48", gpu="H100-80GB-SXM", nodes=4).cluster.fabric == "omni-path"
    assert space_for(gpu="H100-80GB-SXM", nodes=4).cluster.fabric is None


def test_a_cluster_file_and_a_table_name_the_fabric(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text('[cluster.mine]\nnodes = 4\ngpus_per_node = 8\ngpu = "H100-80GB-SXM"\nfabric = "roce"\n')
    assert cluster(str(file)).fabric == "roce"
    file.write_text(file.read_text().replace("roce", "token-ring"))
    with pytest.raises(InputError, match="fabric must be infiniband, roce or omni-path"):
        cluster(str(file))
    corpus = Path(__file__).parents[2] / "corpus"
    for name, fabric in (("bloom-a100", "omni-path"), ("megatron-2021-a100", None)):
        run = next(row.run for row in read_table(corpus / f"{name}.csv").rows if row.run is not None)
        assert run.cluster.fabric == fabric


def test_an_earlier_study_continues_and_another_fabric_is_another_study() -> None:
    from tuner.study.store.settings_difference import difference_of

    now = {"cluster": cluster_document(cluster("bloom-48"))}
    begun = {"cluster": {name: value for name, value in now["cluster"].items() if name != "fabric"}}
    assert difference_of(begun, now) == ""
    other = {"cluster": cluster_document(replace(cluster("bloom-48"), fabric="roce"))}
    assert difference_of(begun, other) == "cluster.fabric none, not roce"
    assert difference_of(now, other) == "cluster.fabric omni-path, not roce"
