"""Remedies, relaxations and distances of topologies, compared with closed forms."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.workers import ONE, WORKLOAD, tiny
from tuner.core.catalog import cluster, gpu
from tuner.core.columns import Columns
from tuner.core.delta_net import DeltaNet
from tuner.core.errors import InputError
from tuner.core.experts import Experts
from tuner.core.frameworks import RECORDS
from tuner.core.recompute import RECOMPUTE
from tuner.core.shape import Shape
from tuner.space.axes import _MAX_VALUES, _whole_numbers, axes_document, parse_setting, searched
from tuner.space.build import space_for
from tuner.space.nearest import distance
from tuner.space.relaxations import _nearest_and_roomiest, _other_batches, _other_nodes, _words
from tuner.space.remedies import _VALUES, Remedy, _along, _candidates, _given, varied
from tuner.space.rules import BY_NAME
from tuner.space.rules.framework_laws import FRAMEWORK_LAWS, frameworks_with_more
from tuner.space.space import Tally

BLOOM = cluster("bloom-48")


def columns(**axes: Any) -> Columns:
    """Return the columns of a topology on one or two nodes of eight GPUs."""
    return Columns.of([replace(ONE, **axes)], WORKLOAD, BLOOM)


def opening(legal: dict[int, int], tried: list[int] | None = None, **state: Any) -> Any:
    """Return a space that is legal for these values and records those that are tried."""

    def where(**axis: tuple[int, ...]) -> Any:
        ((value,),) = axis.values()
        if tried is not None:
            tried.append(value)
        return SimpleNamespace(count=lambda: legal.get(value, 0))

    return SimpleNamespace(where=where, **state)


@pytest.mark.parametrize(
    ("ramp", "allowed", "tried"),
    [
        (SimpleNamespace(increment=10, start=5), False, [95, 105, 85, 115, 75, 125]),
        (SimpleNamespace(increment=10, start=5), True, [95, 105, 85, 115, 75, 125]),
        (None, False, [96, 128, 64, 160, 32, 192]),
        (None, True, [101, 99, 102, 98, 103, 97]),
    ],
)
def test_batches_are_tried_in_steps_of_the_ramp_of_32_or_of_1(ramp: Any, allowed: bool, tried: list[int]) -> None:
    """They are tried around 100, nearest first; steps of a ramp begin at its start, whatever is allowed."""
    rules = SimpleNamespace(in_force=lambda _: [] if allowed else [BY_NAME["batch-multiple-of-32"]])
    found: list[int] = []
    space = opening({}, found, axes={"global_batch": (100,)}, workload=SimpleNamespace(ramp=ramp), rules=rules)
    assert list(_other_batches(space)) == []
    assert found[:6] == tried
    assert min(found) >= 1


def test_the_batch_with_most_topologies_within_a_tenth_is_named_after_the_nearest() -> None:
    ramp = SimpleNamespace(increment=10, start=5)
    legal = {95: 1, 105: 5, 85: 9}
    state: dict[str, Any] = {"axes": {"global_batch": (100,)}, "workload": SimpleNamespace(ramp=ramp)}
    found = list(_other_batches(opening(legal, rules=SimpleNamespace(in_force=lambda _: []), **state)))
    assert [(one.change, one.legal) for one in found] == [("global batch 95", 1), ("global batch 105", 5)]


def test_nodes_are_tried_nearest_first() -> None:
    tried: list[int] = []
    space = opening({2: 7}, tried, axes={"nodes": (4,)}, cluster=SimpleNamespace(nodes=8))
    assert [(one.change, one.legal) for one in _other_nodes(space)] == [("2 nodes", 7)]
    assert tried == [3, 5, 2, 6]


@pytest.mark.parametrize(
    ("legal", "named"),
    [
        ([(9, 0), (11, 2), (8, 5), (13, 9)], [(11, 2), (8, 5)]),
        ([(9, 5), (11, 2)], [(9, 5)]),
        ([(14, 3), (6, 9)], [(14, 3)]),
        ([(9, 0)], []),
    ],
)
def test_distant_values_are_tried_only_until_one_is_legal(
    legal: list[tuple[int, int]], named: list[tuple[int, int]]
) -> None:
    """Around 10, values more than a fifth away are tried only until one is legal."""
    spaces: Any = [(value, SimpleNamespace(count=lambda count=count: count)) for value, count in legal]
    found = list(_nearest_and_roomiest(spaces, "{}", 10, 0.2))
    assert [(int(one.change), one.legal) for one in found] == named


def test_up_to_six_values_are_listed() -> None:
    assert _words((1, 2, 3, 4, 5, 6)) == "1,2,3,4,5,6"
    assert _words((1, 2, 3, 4, 5, 6, 7)) == "1,2,3,4,5,6,..."


@pytest.mark.parametrize(
    ("axis", "values", "hold_dp", "dp", "nodes"),
    [
        ("tp", [1, 2, 8, 16], False, [8, 4, 1, 1], [2] * 4),
        ("tp", [1, 2, 8], True, [3, 3, 3], [1, 2, 6]),
        ("nodes", [1, 3], False, [1, 3], [1, 3]),
        ("dp", [1, 3, 5], False, [1, 3, 5], [1, 3, 5]),
        ("micro_batch", [1, 2], False, [3, 3], [2, 2]),
    ],
)
def test_dp_follows_the_split_or_nodes_follow_dp(
    axis: str, values: list[int], hold_dp: bool, dp: list[int], nodes: list[int]
) -> None:
    """On two nodes of 8 GPUs, tp 4 x pp 2 x dp 3: dp = nodes x 8 / (tp pp), or nodes = ceil(tp pp dp / 8)."""
    rows = varied(columns(nodes=2, tp=4, pp=2, dp=3), axis, np.array(values), hold_dp=hold_dp)
    assert (rows.dp.tolist(), rows.nodes.tolist()) == (dp, nodes)
    assert rows.arrays[axis].tolist() == values


def test_the_partition_follows_the_stages() -> None:
    """4 layers divide over 2 stages, and 4 + 2 over 3 with embedding and head."""
    assert varied(columns(nodes=1), "pp", np.array([2, 3])).arrays["partition"].tolist() == [0, 1]
    laid_out = columns(nodes=1, partition="layout")
    assert varied(laid_out, "pp", np.array([2, 3, 8])).arrays["partition"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("axis", "first", "last"),
    [
        ("global_batch", 1, 8 + 4096),
        ("layers", 1, 12),
        ("cp", 1, 64),
        ("micro_batch", 1, 128),
        ("zero", 0, 3),
        ("nodes", 1, 48),
        *((axis, 1, 384) for axis in ("dp", "tp", "pp", "hsdp", "ep", "etp")),
        ("vpp", 1, 64),
        ("sequence_parallel", 0, 1),
        ("partition", 0, 2),
        ("offload", 0, 5),
        ("dispatcher", 0, 3),
        ("moe_overlap", 0, 1),
    ],
)
def test_candidate_values_of_an_axis_have_fixed_limits(axis: str, first: int, last: int) -> None:
    space: Any = SimpleNamespace(cluster=BLOOM)
    values = list(_candidates(space, columns(global_batch=8), axis))
    assert (values[0], values[-1], len(values)) == (first, last, last - first + 1)


def test_recompute_may_have_each_granularity_and_what_is_searched() -> None:
    space: Any = SimpleNamespace(cluster=BLOOM, axes={"recompute": ("none", "layernorm+moe_act", "full")})
    values = [RECOMPUTE[code] for code in _candidates(space, columns(), "recompute")]
    assert values == ["none", "selective", "full", "layernorm+moe_act"]


def test_heads_divide_the_hidden_size() -> None:
    space: Any = SimpleNamespace(cluster=BLOOM)
    assert list(_candidates(space, columns(), "heads")) == [1, 2, 4, 8, 16, 32, 64]


def test_at_most_1024_heads_or_ranks_of_an_axis_are_tried() -> None:
    space: Any = SimpleNamespace(cluster=replace(BLOOM, nodes=256))
    for hidden, most in ((4096, 1024), (4100, 820)):  # 1025 divides 4100
        assert max(_candidates(space, columns(shape=Shape(hidden=hidden, layers=4)), "heads")) == most
    assert max(_candidates(space, columns(), "tp")) == 1024


def test_a_remedy_states_the_other_columns_of_the_rule() -> None:
    """It states tp, pp and the micro batch always, other axes only above 1, and never the varied axis."""
    rule: Any = SimpleNamespace(reads=("tp", "pp", "cp", "zero", "layers"))
    assert _given(columns(zero=2), rule, "pp") == {"tp": 1, "zero": 2}
    remedy = Remedy(axis="recompute", values=(1, 2), given={"tp": 4, "pp": 2})
    assert str(remedy) == "with tp=4 and pp=2, recompute may be selective or full"
    assert str(Remedy(axis="tp", values=(2,), given={})) == "tp may be 2"


@pytest.mark.parametrize(
    ("axes", "along", "far"),
    [
        ({"tp": 4}, (), 2.0),
        ({"micro_batch": 1}, (), 2.0),
        ({"heads": 8}, (), 8.0),
        ({"shape": Shape(hidden=128, layers=4)}, (), 8.0),
        ({"zero": 2}, (), 1.0),
        ({"recompute": "full"}, (), 1.0),
        ({"sequence_parallel": True}, (), 0.5),
        ({"tp": 2, "dp": 2}, (), 2.0),
        ({"tp": 2, "dp": 2, "heads": 8}, ("tp",), 1 + 1 + 64.0),
        ({"zero": 2}, ("tp",), 8.0),
        ({"zero": 2}, ("zero",), 2.0),
        ({"pp": 2}, ("tp",), 8.0),
    ],
)
def test_distances_are_weighted_doublings_and_steps(axes: dict[str, Any], along: tuple[str, ...], far: float) -> None:
    """Changing the model weighs 8, ZeRO and recompute half a step, and axes other than the varied ones eightfold."""
    assert distance(columns(**axes), columns(), along=along).tolist() == [far]


def test_a_document_of_axes_omits_opt_in_axes_that_are_not_searched() -> None:
    """Studies that predate an axis therefore still compare as equal; a shape is written as its name."""
    space = space_for(model="gpt-1.3b", nodes=4, settings=["offload=none,optimizer"])
    document = axes_document(space.axes)
    assert json.loads(json.dumps(document)) == document
    assert document["offload"] == ["none", "optimizer"]
    assert document["shape"] == [str(shape) for shape in space.axes["shape"]]
    assert document["tp"] == list(space.axes["tp"])
    default = axes_document(space_for(model="gpt-1.3b", nodes=4).axes)
    assert document.keys() - default.keys() == {"offload"}
    assert searched(space.axes) == {"offload"}


def test_values_of_a_space_must_be_plausible_sizes() -> None:
    space = space_for(model="gpt-1.3b", nodes=4)
    with pytest.raises(InputError, match="tp must be between 1 and 1,000,000, not 0"):
        replace(space, axes={**space.axes, "tp": (1, 0)})
    with pytest.raises(InputError, match="axis tp has no value"):
        replace(space, axes={**space.axes, "tp": ()})
    with pytest.raises(InputError, match="dp must be between 1 and 2,097,152, not 2,097,153"):
        replace(space, dp=(1, 2_097_153))
    assert replace(space, dp=(1, 2_097_152)).dp == (1, 2_097_152)


@pytest.mark.parametrize("name", ["bloom-48", "hgx-b200", "gb200-nvl72"])
def test_a_clusters_own_network_is_kept_and_others_follow_the_gpus(name: str) -> None:
    """BLOOM's nodes have four links of 12.5 GB/s; other nodes have one link per GPU."""
    known = cluster(name)
    own = name == "bloom-48"
    fewer = space_for(cluster=name, nodes=2, gpus_per_node=2).cluster
    assert (fewer.name, fewer.nodes, fewer.gpus_per_node, fewer.nvlink_domain) == (name, 2, 2, known.nvlink_domain)
    link = known.gpu.inter_node_bandwidth
    assert fewer.inter_node.bandwidth == (known.inter_node.bandwidth if own else 2 * link)
    assert fewer.intra_node.bandwidth == known.intra_node.bandwidth
    other = gpu("H100-80GB-SXM")
    mixed = space_for(cluster=name, gpu=other, nodes=1).cluster
    assert mixed.inter_node.bandwidth == (
        known.inter_node.bandwidth if own else known.gpus_per_node * other.inter_node_bandwidth
    )
    assert mixed.intra_node.bandwidth == other.intra_node_bandwidth
    alone = space_for(gpu=other, nodes=1).cluster
    assert (alone.name, alone.inter_node.bandwidth) == (other.name, 8 * other.inter_node_bandwidth)
    fabric = replace(known, intra_node=replace(known.intra_node, bandwidth=1e9), host_memory=5e11)
    kept = space_for(cluster=fabric, gpu=other, nodes=1).cluster
    assert (kept.intra_node.bandwidth, kept.host_memory) == (1e9, 5e11)
    assert space_for(cluster=fabric, nvlink_domain=64, gpus_per_node=2).cluster.nvlink_domain == 64


@pytest.mark.parametrize("framework", RECORDS)
@pytest.mark.parametrize("axis", ["pp", "cp", "vpp", "ep", "etp", "sequence_parallel", "hsdp"])
def test_a_feature_that_the_framework_lacks_is_refused(axis: str, framework: Any) -> None:
    """The law applies only to workloads of such a framework, and to none without a framework."""
    (law,) = [law for law in FRAMEWORK_LAWS if law.name == f"framework-{axis.replace('_', '-')}"]
    has, off = getattr(RECORDS[framework], axis).value, axis != "sequence_parallel"
    rows = varied(columns(), axis, np.array([off, off + 1]))
    untied = replace(WORKLOAD.model, tied_embeddings=False)
    own = Columns(replace(WORKLOAD, model=untied, framework=framework), BLOOM, rows.arrays)
    assert law.broken_rows(own).tolist() == [False, not has]
    assert law.binding(own.workload) is not has
    free = Columns(replace(WORKLOAD, framework=None), BLOOM, rows.arrays)
    assert law.broken_rows(free).tolist() == [False, False]
    assert not law.binding(free.workload)


def test_torchtitan_refuses_a_pipeline_of_tied_embeddings() -> None:
    (law,) = [law for law in FRAMEWORK_LAWS if law.name == "framework-pp"]
    rows = varied(columns(), "pp", np.array([1, 2]))
    for tied in (True, False):
        workload = replace(WORKLOAD, model=replace(WORKLOAD.model, tied_embeddings=tied), framework="torchtitan")
        assert law.broken_rows(Columns(workload, BLOOM, rows.arrays)).tolist() == [False, tied]
        assert law.binding(workload) is tied


@pytest.mark.parametrize(
    ("own", "other", "features"),
    [
        (
            "deepspeed",
            "megatron-core",
            "pp cp vpp ep etp dispatcher moe-overlap partition sequence-parallel recompute offload delta-net fork",
        ),
        (
            "fsdp2",
            "torchtitan",
            "pp cp vpp ep zero-with-ep dispatcher partition sequence-parallel recompute hsdp delta-net fork",
        ),
        ("torchtitan", "fsdp2", "cp hsdp fork"),
        ("megatron-core", "megatron-deepspeed", "pp zero offload"),
    ],
)
def test_a_law_names_frameworks_that_support_more(own: Any, other: Any, features: str) -> None:
    """For a switch, a framework supports more if it has the feature; for a set, if it has more values.

    No framework supports more of the axes of experts for a model without experts.
    """
    experts = Experts(count=8, top_k=2, ffn=64) if "ep" in features.split() else None
    model = replace(WORKLOAD.model, tied_embeddings=False, experts=experts)
    workload = replace(WORKLOAD, framework=own, model=model)
    found = {law.name for law in FRAMEWORK_LAWS if other in frameworks_with_more(law.name, workload)}
    assert found == {f"framework-{feature}" for feature in features.split()}


@pytest.mark.parametrize(
    ("own", "part", "features"),
    [
        (
            "deepspeed",
            {"delta_net": DeltaNet(key_heads=4, value_heads=8)},
            {"cp": ["megatron-core"], "pp": ["megatron-core", "torchtitan"]},
        ),
        (
            "fsdp2",
            {"delta_net": DeltaNet(key_heads=4, value_heads=8)},
            {"sequence-parallel": ["megatron-core", "torchtitan"]},
        ),
        ("deepspeed", {"tied_embeddings": True}, {"vpp": ["megatron-core"]}),
        ("fsdp2", {"tied_embeddings": True}, {"pp": ["megatron-core", "megatron-deepspeed", "deepspeed"]}),
        ("deepspeed", {}, {"cp": ["megatron-core", "fsdp2", "torchtitan"]}),
    ],
)
def test_a_law_names_only_frameworks_that_support_it_for_the_model(own: Any, part: Any, features: Any) -> None:
    model = replace(WORKLOAD.model, **{"tied_embeddings": False, **part})
    workload = replace(WORKLOAD, framework=own, model=model)
    assert {feature: frameworks_with_more(f"framework-{feature}", workload) for feature in features} == features


def test_a_space_has_the_described_workload_and_axes() -> None:
    assert space_for(routing="natural").workload.routing == "natural"
    plain = space_for()
    assert (plain.workload.routing, plain.workload.tokens) == ("balanced", 0.0)
    assert space_for(tokens=3e11).workload.tokens == 3e11
    for gpus, degrees in ((1, (1,)), (2, (1, 2)), (4, (1, 2, 4)), (8, (1, 2, 4, 8)), (16, (1, 2, 4, 8))):
        one = space_for(nodes=1, gpus_per_node=gpus)
        assert one.axes["cp"] == degrees
        assert one.axes["micro_batch"] == (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


def test_an_empty_tally_has_only_zeros() -> None:
    assert Tally() == Tally(grid=0, legal=0, removed={}, unused={})


def test_up_to_a_tenth_of_idle_sms_is_tolerated() -> None:
    """9 and 8 tiles of 256 x 128 run on 10 SMs."""
    small = replace(BLOOM, gpu=replace(BLOOM.gpu, sms=10))
    for tiles, broken in ((9, False), (8, True)):
        workload = replace(WORKLOAD, model=tiny(seq=256, ffn=128 * tiles))
        rows = Columns.of([replace(ONE, micro_batch=1)], workload, small)
        assert BY_NAME["wave-quantization"].broken_rows(rows).tolist() == [broken]


def test_the_first_12_legal_values_are_compared() -> None:
    """Each value has more topologies than the previous one."""
    tried: list[int] = []

    def spaces() -> Any:
        for value in range(101, 130):
            tried.append(value)
            yield value, SimpleNamespace(count=lambda value=value: value)

    found = list(_nearest_and_roomiest(spaces(), "{}", 100, 1.0))
    assert [one.change for one in found] == ["101", "112"]
    assert tried == list(range(101, 114))


def test_a_remedy_lists_the_nearest_values() -> None:
    """They are on both sides of the current value."""
    space: Any = SimpleNamespace(cluster=BLOOM)
    rule: Any = SimpleNamespace(reads=(), broken_rows=lambda rows: np.zeros(len(rows.tp), dtype=bool))
    found = _along(space, columns(micro_batch=64), "micro_batch", rule, [rule])
    others = [value for value in range(1, 129) if value != 64]
    assert found is not None
    assert list(found.values) == sorted(sorted(others, key=lambda value: abs(value - 64))[:_VALUES])


def test_a_range_includes_its_ends_and_is_limited() -> None:
    assert _whole_numbers("7") == [7]
    assert _whole_numbers("5-8") == [5, 6, 7, 8]
    first, most = 3 * _MAX_VALUES, _MAX_VALUES
    assert len(_whole_numbers(f"{first}-{first + most - 1}")) == most
    for word, sentence in (
        (f"{first}-{first + most}", "has more than"),
        ("8-5", "runs backwards"),
        ("5-", "is neither a whole number nor a range"),
    ):
        with pytest.raises(ValueError, match=sentence):
            _whole_numbers(word)


@pytest.mark.parametrize(
    ("word", "axis"), [("mbs", "micro_batch"), ("z", "zero"), ("gbs", "global_batch"), ("tp", "tp")]
)
def test_a_word_of_a_key_names_its_axis(word: str, axis: str) -> None:
    assert parse_setting(f"{word}=1,2") == (axis, (1, 2))
