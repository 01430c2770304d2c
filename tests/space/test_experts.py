"""Axes of expert parallelism in keys, documents, the search space and its laws."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mixtures import QWEN3_30B, TINY_EXPERTS, WITHOUT_EXPERTS
from tuner.core.columns import AXES, Columns
from tuner.core.documents import topology_document, topology_of
from tuner.core.domain import DISPATCHERS, EXPERT_AXES, Topology
from tuner.core.errors import BadKey
from tuner.core.experts import Experts
from tuner.core.keys import parse_key
from tuner.launch.machine import Machine, host_gpu
from tuner.space.axes import axes_document
from tuner.space.build import space_for
from tuner.space.rules import BY_NAME
from tuner.space.rules.expert_laws import EXPERT_LAWS
from tuner.space.space import Space

H100 = {"gpu": "H100-80GB-SXM", "global_batch": 64}


def space(**described: Any) -> Space:
    return space_for(**{"model": TINY_EXPERTS, "nodes": 1, **H100, **described})


@given(
    st.sampled_from([1, 2, 8, 64]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from(DISPATCHERS),
)
def test_a_key_with_experts_is_read_back(ep: int, etp: int, dispatcher: Any) -> None:
    topology = Topology(nodes=2, tp=2, pp=1, dp=8, micro_batch=1, ep=ep, etp=etp, dispatcher=dispatcher)
    where = space(nodes=2)
    assert parse_key(topology.key, workload=where.workload, cluster=where.cluster) == topology
    assert topology_of(topology_document(topology)) == topology


def test_keys_and_documents_of_dense_models_have_no_expert_axes() -> None:
    topology = Topology(nodes=2, tp=2, pp=1, dp=8, micro_batch=1)
    assert topology.key == "tp2-pp1-dp8-mbs1-z1"
    assert not EXPERT_AXES.keys() & topology_document(topology).keys()
    assert "ep" not in repr(topology).replace("sequence_parallel", "")


def test_a_key_with_two_dispatchers_is_refused() -> None:
    where = space()
    with pytest.raises(BadKey, match="dispatcher occurs twice"):
        parse_key("tp1-pp1-mbs1-z1-deepep-alltoall", workload=where.workload, cluster=where.cluster)


def test_only_mixtures_of_experts_have_expert_axes() -> None:
    dense, mixture = space(model=WITHOUT_EXPERTS), space(model=QWEN3_30B)
    assert {axis: dense.axes[axis] for axis in EXPERT_AXES} == {"ep": (1,), "etp": (1,), "dispatcher": ("alltoall",)}
    assert not EXPERT_AXES.keys() & axes_document(dense.axes).keys()
    assert mixture.axes["ep"] == (1, 2, 4, 8)
    assert {"alltoall", "deepep"} < set(mixture.axes["dispatcher"])
    assert "hybridep" in space(cluster="gb200-nvl72", gpu=None).axes["dispatcher"]
    laws = {rule.name for rule in dense.in_force}
    assert not laws & {rule.name for rule in EXPERT_LAWS}


def _legal(axes: dict[str, tuple[Any, ...]], where: Space) -> Iterator[Topology]:
    """Enumerate the legal topologies with plain loops and the sentences of the laws."""
    experts, per_node = where.workload.model.experts, where.cluster.gpus_per_node
    assert experts
    for values in itertools.product(*(axes[axis] for axis in AXES)):
        at = dict(zip(AXES, values, strict=True))
        gpus = at["nodes"] * per_node
        if gpus % (at["tp"] * at["cp"]):
            continue
        one = Topology(
            **{**at, "dp": gpus // (at["tp"] * at["cp"]), "shape": None, "heads": None, "global_batch": None}
        )
        ranks, folded = one.tp * one.cp * one.dp, one.ep * one.etp
        if (
            experts.count % one.ep == 0
            and ranks % folded == 0
            and experts.ffn % one.etp == 0
            and experts.shared_ffn % one.tp == 0
            and (one.tp == 1 or one.sequence_parallel)
            and (folded > 1 or one.dispatcher == "alltoall")
            and not (one.sequence_parallel and one.tp == 1)
            and where.workload.global_batch % one.dp == 0
        ):
            yield one


def test_the_legal_space_of_a_mixture_follows_the_laws() -> None:
    """The walk over the grid finds the same topologies as plain loops."""
    pins = ["pp=1", "vpp=1", "micro_batch=1", "zero=1", "recompute=none", "partition=layers", "heads=8", "cp=1,2"]
    where = space(settings=[*pins, "tp=1,2,4", "etp=1,2,4", "ep=1,2,4,8,16"], allow=["dp-multiple-of-4"])
    found = {topology.key for block in where.blocks() for topology in where.topologies(block)}
    assert found == {topology.key for topology in _legal(dict(where.axes), where)}
    assert len(found) > 100


@pytest.mark.parametrize(
    ("cluster", "lacking"),
    [("gb200-nvl72", {"deepep"}), ("hgx-b200", set()), ("tr8-v100", {"deepep", "hybridep"})],
)
def test_each_dispatcher_runs_on_the_gpus_of_its_library(cluster: str, lacking: set[str]) -> None:
    where = space_for(model=TINY_EXPERTS, cluster=cluster, framework="any")
    topologies = {
        name: Topology(nodes=1, tp=1, pp=1, dp=8, micro_batch=1, ep=2, dispatcher=name) for name in DISPATCHERS
    }
    rule = BY_NAME["dispatcher-for-gpu"]
    broken = {
        name
        for name, topology in topologies.items()
        if rule.violation(Columns.of([topology], where.workload, where.cluster))
    }
    assert broken == lacking


def test_cpus_run_neither_deepep_nor_hybridep() -> None:
    host = Machine(accelerator="cpu", cards=0, name="CPU", memory=2.0**34, cores=8)
    where = space_for(model=TINY_EXPERTS, nodes=1, gpus_per_node=8, gpu=host_gpu(host, 8), global_batch=64)
    legal = {topology.dispatcher for block in where.blocks() for topology in where.topologies(block)}
    assert legal == {"alltoall", "allgather"}


@pytest.mark.parametrize("etp", ["1", "1,2"])
def test_fp8_widths_are_checked_whether_or_not_etp_is_searched(etp: str) -> None:
    """DeepSeek-V2-Lite's MLP of 10,944 columns has 1,368 on each of 8 ranks, which is no multiple of 16."""
    settings = ("tp=1,2,4,8", f"etp={etp}")
    legal = space(model="deepseek-v2-lite", nodes=4, precision="fp8", settings=settings)
    assert legal.count() > 0
    assert space(model="deepseek-v2-lite", nodes=4, precision="fp8", settings=("tp=8", settings[1])).count() == 0


def test_fp8_widths_are_computed_exactly() -> None:
    """3584 x (3712 / 3584) is 3712.0000000000005 in floating point."""
    experts = Experts(count=8, top_k=2, ffn=3712)
    model = replace(TINY_EXPERTS, hidden=3584, heads=28, kv_heads=4, head_size=128, ffn=3712, experts=experts)
    assert space(model=model, precision="fp8", settings=("etp=1,2",)).count() > 0
