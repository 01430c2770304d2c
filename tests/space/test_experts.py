"""Axes of expert parallelism in keys, documents, the search space and its laws."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.mixtures import QWEN3_30B, TINY_EXPERTS, WITHOUT_EXPERTS
from tuner.core import catalog
from tuner.core.columns import AXES, Columns
from tuner.core.documents import topology_document, topology_of
from tuner.core.domain import DISPATCHERS, EXPERT_AXES, Topology
from tuner.core.errors import BadKey
from tuner.core.experts import Experts
from tuner.core.keys import parse_key
from tuner.launch.machine import Machine, host_gpu
from tuner.space.axes import axes_document, similar_shapes
from tuner.space.build import space_for
from tuner.space.relaxations import openings
from tuner.space.rules import BY_NAME
from tuner.space.rules.expert_laws import EXPERT_LAWS
from tuner.space.space import Space

H100 = {"gpu": "H100-80GB-SXM", "global_batch": 64}
H100_NODES: Final = {"gpu": "H100-80GB-SXM", "nodes": 32}


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
    assert {axis: dense.axes[axis] for axis in EXPERT_AXES} == {axis: (usual,) for axis, usual in EXPERT_AXES.items()}
    assert mixture.axes["moe_overlap"] == (False,)
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
            and not (one.moe_overlap and (one.ep == 1 or one.dispatcher == "allgather"))
            and not (one.sequence_parallel and one.tp == 1)
            and where.workload.global_batch % one.dp == 0
        ):
            yield one


def test_the_legal_space_of_a_mixture_follows_the_laws() -> None:
    """The walk over the grid finds the same topologies as plain loops."""
    pins = ["pp=1", "vpp=1", "micro_batch=1", "zero=1", "recompute=none", "partition=layers", "heads=8", "cp=1,2"]
    pins += ["tp=1,2,4", "etp=1,2,4", "ep=1,2,4,8,16", "moe_overlap=on,off"]
    where = space(settings=pins, allow=["dp-multiple-of-4"])
    found = {topology.key for block in where.blocks() for topology in where.topologies(block)}
    assert found == {topology.key for topology in _legal(dict(where.axes), where)}
    assert len(found) > 100


@pytest.mark.parametrize(
    ("changes", "excluded"),
    [
        ({}, ""),
        ({"pp": 2, "vpp": 2}, ""),
        ({"recompute": "core_attn+layernorm+moe_act"}, ""),
        ({"dispatcher": "deepep"}, ""),
        ({"pp": 2}, "pp > 1 with vpp=1"),
        ({"recompute": "full"}, "full recompute"),
        ({"recompute": "layernorm+moe"}, "recompute of moe"),
        ({"dispatcher": "allgather", "recompute": "full"}, "the dispatcher allgather and full recompute"),
        ({"ep": 1}, "ep=1"),
        ({"model": replace(TINY_EXPERTS, mtp_layers=2)}, "mtp_layers > 1"),
        ({"precision": "fp32"}, "fp32"),
    ],
)
def test_the_exchange_of_tokens_overlaps_where_megatron_allows_it(changes: dict[str, Any], excluded: str) -> None:
    sizes = {"nodes": 1, "tp": 1, "pp": 1, "dp": 4, "micro_batch": 1, "ep": 2, "recompute": "none", "moe_overlap": True}
    described = {"model": TINY_EXPERTS, **{name: changes[name] for name in ("model", "precision") if name in changes}}
    where = space_for(**described, gpu="H100-80GB-SXM", nodes=1, attention="eager")
    one = Topology(**{**sizes, **{name: value for name, value in changes.items() if name not in described}})
    found = BY_NAME["overlap-of-experts"].violation(Columns.of([one], where.workload, where.cluster))
    assert (found.message if found else "") == (f"moe_overlap=on excludes {excluded}" if excluded else "")
    without = Columns.of([replace(one, moe_overlap=False)], where.workload, where.cluster)
    assert BY_NAME["overlap-of-experts"].violation(without) is None


@pytest.mark.parametrize(
    ("cluster", "lacking"),
    [
        ("gb200-nvl72", {"deepep"}),
        ("hgx-b200", set()),
        ("hgx-a100", set()),
        ("tr8-v100", {"deepep", "hybridep"}),
        ("mi300x", {"deepep", "hybridep"}),
    ],
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


@pytest.mark.parametrize("card", ["A100-80GB-PCIe", "H100-80GB-PCIe", "L40S-48GB", "RTX4090-24GB"])
def test_deepep_needs_nvlink(card: str) -> None:
    assert _broken("dispatcher-for-gpu", "deepep", [2], gpu=card, nodes=1) == {2}
    assert not _broken("dispatcher-for-gpu", "alltoall", [2], gpu=card, nodes=1)


def _broken(rule: str, dispatcher: Any, groups: Iterable[int], **described: Any) -> set[int]:
    """Return the groups, of one expert's share on each rank, that break a rule, also of etp 2."""
    where = space_for(model=TINY_EXPERTS, global_batch=64, **described)
    found: list[set[int]] = []
    for etp in (1, 2):
        sizes = [size for size in groups if size % etp == 0]
        topologies = [
            Topology(nodes=1, tp=1, pp=1, dp=8, micro_batch=1, ep=size // etp, etp=etp, dispatcher=dispatcher)
            for size in sizes
        ]
        rows = BY_NAME[rule].broken_rows(Columns.of(topologies, where.workload, where.cluster))
        found.append({size for size, row in zip(sizes, rows, strict=True) if row})
    assert found[1] == {size for size in found[0] if size % 2 == 0}
    return found[0]


def test_deepep_dispatches_among_the_ranks_that_its_kernels_are_compiled_for() -> None:
    """Of whole numbers up to 200: 2, 4 or 8 in a node, and 2, 4, 8, 16, 18 or 20 nodes of 8."""
    compiled = {2, 4, 8} | {8 * nodes for nodes in (2, 4, 8, 16, 18, 20)}
    assert _broken("deepep-ranks", "deepep", range(1, 201), **H100_NODES) == set(range(1, 201)) - compiled
    assert not _broken("deepep-ranks", "hybridep", range(1, 201), **H100_NODES)


def test_torchtitans_deepep_has_no_fixed_numbers_of_ranks() -> None:
    """It is the second version of DeepEP, and no framework stands for any."""
    for framework in ("torchtitan", "any"):
        laws = {rule.name for rule in space(model=QWEN3_30B, framework=framework).in_force}
        assert not laws & {"deepep-ranks", "deepep-in-node"}
        assert "hybridep-by-domain" in laws


@pytest.mark.parametrize(
    ("card", "per_node", "legal"),
    [
        ("H100-80GB-SXM", 8, {2, 4, 8, 16, 32, 64}),
        ("B200-180GB-SXM", 8, {2, 4, 8, 16, 32, 64}),
        ("H100-80GB-SXM", 16, {2, 4, 8, 16, 32, 64}),
        ("H100-80GB-SXM", 4, {2, 4}),
        ("H100-80GB-SXM", 6, {2}),
        ("H100-80GB-SXM", 1, set()),
        ("A100-80GB-SXM", 8, {2, 4, 8}),
        ("A100-80GB-SXM", 16, {2, 4, 8}),
        ("A100-80GB-SXM", 4, {2, 4}),
    ],
)
def test_deepep_leaves_a_node_only_if_it_has_8_gpus_and_kernels_between_nodes(
    card: str, per_node: int, legal: set[int]
) -> None:
    sizes = {2, 4, 8, 16, 32, 64}
    described = {"gpu": card, "gpus_per_node": per_node, "nodes": 32}
    assert _broken("deepep-in-node", "deepep", sizes, **described) == sizes - legal
    assert not _broken("deepep-in-node", "allgather", sizes, **described)


@pytest.mark.parametrize(
    ("described", "legal"),
    [
        ({"cluster": "gb200-nvl72"}, {2, 4, 6, 8, 16, 32, 40, 64, 72, 144}),
        ({"cluster": "gb200-nvl72", "nvlink_domain": 64}, {2, 4, 6, 8, 16, 32, 40, 64, 128}),
        ({"gpu": "H100-80GB-SXM", "nodes": 32}, {2, 4, 8, 16, 32, 40, 64, 72, 128, 144}),
    ],
)
def test_hybridep_has_equally_many_ranks_of_a_group_in_each_domain(described: Any, legal: set[int]) -> None:
    """A job may use whole nodes of a domain: 16 of an NVL72's 18 for 64 ranks."""
    sizes = {2, 4, 6, 8, 16, 32, 35, 40, 64, 72, 128, 144}
    assert _broken("hybridep-by-domain", "hybridep", sizes, **described) == sizes - legal
    assert not _broken("hybridep-by-domain", "deepep", sizes, **described)


def test_no_plan_of_160_experts_has_groups_that_deepep_refuses() -> None:
    glm = ROOT / "tests/data/huggingface/glm-4.5.json"
    settings = ["tp=1", "vpp=1", "zero=1", "micro_batch=1", "recompute=none", "dispatcher=deepep"]
    where = space_for(model=str(glm), nodes=40, gpu="H100-80GB-SXM", global_batch=2560, settings=settings)
    assert where.axes["ep"] == (1, 2, 4, 5, 8, 10, 16, 20, 32, 40, 80, 160)
    assert {one.ep for block in where.blocks() for one in where.topologies(block)} == {2, 4, 8, 16, 32, 160}


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


@pytest.mark.parametrize("name", ["qwen3-235b", "deepseek-v3", "llama-4-maverick"])
def test_similar_shapes_of_a_mixture_have_similar_size(name: str) -> None:
    """Its layers with experts are larger than those without, and the first of them may be the fourth."""
    model = catalog.model(name)
    shapes = similar_shapes(model)
    sizes = [model.with_shape(shape).parameters / model.parameters for shape in shapes]
    assert shapes[0] == model.shape
    assert all(0.97 <= size <= 1.03 for size in sizes)
    assert min(shape.hidden for shape in shapes) < model.hidden < max(shape.hidden for shape in shapes)


@pytest.mark.parametrize(("dense", "period"), [(1, 1), (0, 2)])
def test_no_opening_of_an_empty_space_has_a_depth_without_experts(dense: int, period: int) -> None:
    assert TINY_EXPERTS.experts is not None
    model = replace(TINY_EXPERTS, experts=replace(TINY_EXPERTS.experts, dense_layers=dense, period=period))
    found = openings(space(model=model, settings=("pp=5",)))
    assert "values of pp other than 5" in {opening.change for opening in found}
