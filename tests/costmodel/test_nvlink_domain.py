"""Groups within an NVLink domain use NVLink, even if the domain spans several nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.core.catalog import cluster, gpu, make_cluster
from tuner.core.columns import Columns
from tuner.core.documents import cluster_document, cluster_of
from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.errors import InputError
from tuner.core.model import Model
from tuner.costmodel.constants import NODE_LINK_SHARE, SEND_SHARE
from tuner.costmodel.links import Links
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.time import time_terms

SITE = SiteFactors()
MODEL = Model(layers=96, hidden=12288, heads=144, vocab=51200, seq=4096)
NVLINK = 900e9 * NODE_LINK_SHARE
TRAY = 4 * 100e9
"""Network bandwidth of a node in bytes per second: 4 ports of 800 Gbit/s."""


def trays(domain: int, *, card: str = "GB300-288GB", per_node: int = 4) -> Cluster:
    return make_cluster(name="trays", nodes=288, gpus_per_node=per_node, gpu=gpu(card), nvlink_domain=domain)


def columns(machines: Cluster, **degrees: int) -> Columns:
    given_degrees: dict[str, Any] = {"tp": 1, "pp": 1, "dp": 1, "cp": 1, "micro_batch": 1, **degrees}
    topology = Topology(nodes=machines.nodes, **given_degrees)
    workload = Workload(model=MODEL, global_batch=topology.dp * 16, precision="fp16", attention="flash2")
    return Columns.of([topology], workload, machines)


def test_the_racks_of_the_catalog_are_domains_of_72() -> None:
    for name in ("gb200-nvl72", "gb300-nvl72"):
        assert (cluster(name).gpus, cluster(name).nvlink_domain, cluster(name).domain) == (72, 72, 72)
    assert (cluster("hgx-b300").nvlink_domain, cluster("hgx-b300").domain) == (None, 8)


@pytest.mark.parametrize(
    ("degrees", "domain", "expected"),
    [
        ({"tp": 4}, 4, NVLINK),
        ({"tp": 16}, 4, TRAY * 0.9),
        ({"tp": 16}, 72, NVLINK),
        ({"tp": 72}, 72, NVLINK),
        ({"tp": 144}, 72, NVLINK),
    ],
)
def test_tensor_parallel_ranks_use_nvlink_inside_their_domain(
    degrees: dict[str, int], domain: int, expected: float
) -> None:
    """Tensor parallel rings use NVLink inside a domain, and beyond it the ports of all their nodes, up to NVLink."""
    bandwidth, _ = Links(columns(trays(domain), **degrees), SITE).tensor
    assert float(bandwidth[0]) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("degrees", "domain", "expected"),
    [
        ({"tp": 8, "dp": 9}, 72, NVLINK),
        ({"tp": 8, "dp": 18}, 4, TRAY * 0.9 / 4),
        ({"tp": 8, "dp": 18}, 72, 18 * TRAY * 0.9 / 8),
        ({"tp": 1, "dp": 144}, 72, NVLINK),
        ({"tp": 36, "dp": 4}, 72, 18 * TRAY * 0.9 / 36),
    ],
)
def test_rings_that_leave_a_domain_share_its_ports(degrees: dict[str, int], domain: int, expected: float) -> None:
    """The tp rings that leave a domain share the ports of all its nodes, and are never faster than NVLink."""
    bandwidth, _ = Links(columns(trays(domain), **degrees), SITE).data
    assert float(bandwidth[0]) == pytest.approx(expected)


def test_a_stage_sends_over_nvlink_inside_the_domain_and_through_its_own_nodes_ports_outside() -> None:
    inside = Links(columns(trays(72), tp=8, pp=9), SITE).pipeline[0]
    outside = Links(columns(trays(72), tp=72, pp=4), SITE).pipeline[0]
    assert float(inside[0]) == pytest.approx(NVLINK)
    assert float(outside[0]) == pytest.approx(TRAY * SEND_SHARE / 4)


@settings(max_examples=60)
@given(
    card=st.sampled_from(["V100-32GB-SXM", "A100-80GB-SXM", "H100-80GB-SXM", "B200-180GB-SXM", "GB300-288GB"]),
    per_node=st.sampled_from([4, 8]),
    tp=st.sampled_from([1, 2, 4, 8, 16, 48]),
    pp=st.sampled_from([1, 2, 4, 8]),
    cp=st.sampled_from([1, 2, 4]),
    dp=st.sampled_from([1, 2, 3, 16]),
    zero=st.sampled_from([0, 1, 2, 3]),
    domains=st.lists(st.sampled_from([1, 2, 4, 9, 18, 72]), min_size=2, max_size=2).map(sorted),
)
def test_a_larger_domain_never_makes_a_topology_slower(
    card: str, per_node: int, tp: int, pp: int, cp: int, dp: int, zero: int, domains: list[int]
) -> None:
    degrees = {"tp": tp, "pp": pp, "cp": cp, "dp": dp, "zero": zero}
    smaller, larger = (
        time_terms(columns(trays(size * per_node, card=card, per_node=per_node), **degrees), SITE) for size in domains
    )
    total = [float(np.sum([value[0] for value in terms.values()])) for terms in (smaller, larger)]
    assert total[1] <= total[0] * (1 + 1e-12)


def test_a_domain_of_one_node_is_the_node() -> None:
    """A cluster whose domain is the node equals one without a domain, and its document does not mention it."""
    plain = make_cluster(name="trays", nodes=288, gpus_per_node=4, gpu=gpu("GB300-288GB"))
    assert trays(4) == plain
    assert "nvlink_domain" not in cluster_document(plain) | cluster_document(plain)["gpu"]
    assert cluster_of(cluster_document(plain)) == plain
    assert cluster_document(trays(72))["nvlink_domain"] == 72
    assert cluster_of(cluster_document(trays(72))) == trays(72)


def test_a_domain_is_of_whole_nodes() -> None:
    with pytest.raises(InputError, match="nvlink_domain is 6, which is not a number of whole nodes of 4 GPUs"):
        trays(6)
