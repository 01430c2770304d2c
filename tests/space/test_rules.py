"""The rules: vectorised and single evaluation, their sentences, and policies that can be disabled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import reference
from tests.mixtures import TINY_EXPERTS
from tests.strategies import clusters, rule_sets, topologies, workloads
from tests.workers import WORKLOAD
from tuner.core import catalog
from tuner.core.columns import AXES, Columns
from tuner.core.domain import Cluster, Ramp, Topology, Workload
from tuner.core.errors import InputError
from tuner.core.experts import Experts
from tuner.core.keys import parse_key
from tuner.core.model import Model
from tuner.core.shape import Shape
from tuner.space.build import space_for
from tuner.space.rules import BY_NAME, POLICIES, RULES, RuleSet
from tuner.space.rules.quantities import head_weight, softmax_block, stage_excess, wave_efficiency
from tuner.space.space import Space, as_stored, space_document


@given(st.lists(topologies(), min_size=1, max_size=8), workloads(), clusters())
def test_the_vectorised_and_single_forms_of_a_rule_agree(
    batch: list[Topology], workload: Workload, cluster: Cluster
) -> None:
    """A row gives the same result alone, among others, and as plain Python integers."""
    together = Columns.of(batch, workload, cluster)
    for rule in RULES:
        rows = rule.broken_rows(together)
        assert rows.shape == (len(batch),)
        for row, topology in enumerate(batch):
            alone = Columns.of([topology], workload, cluster)
            assert (rule.violation(alone) is not None) == bool(rows[row]), rule.name
            plain = Columns(workload, cluster, {name: int(array[0]) for name, array in alone.arrays.items()})  # type: ignore[misc]
            assert bool(rule.broken(plain)) == bool(rows[row]), rule.name


@given(topologies(), workloads(), clusters())
def test_a_rule_reads_only_its_declared_columns(topology: Topology, workload: Workload, cluster: Cluster) -> None:
    """The walk over the grid evaluates a rule as soon as these columns are known."""
    every = Columns.of([topology], workload, cluster)
    for rule in RULES:
        only = Columns(workload, cluster, {name: every.arrays[name] for name in rule.reads})
        assert rule.broken_rows(only).item() == rule.broken_rows(every).item(), rule.name


@given(topologies(), workloads(), clusters(), rule_sets)
def test_rules_agree_with_their_sentences(
    topology: Topology, workload: Workload, cluster: Cluster, rules: RuleSet
) -> None:
    """An independent implementation of every law and policy in plain Python gives the same violations."""
    space = Space(workload=workload, cluster=cluster, rules=rules, axes=_any_axes(topology))
    found = {violation.rule for violation in rules.violations(Columns.of([topology], workload, cluster))}
    assert found == reference.broken(topology, space)


@given(topologies(), workloads(), clusters())
def test_advice_agrees_with_its_sentences(topology: Topology, workload: Workload, cluster: Cluster) -> None:
    """An implementation in exact fractions agrees, for GPUs of 80, 108 and 132 SMs."""
    space = Space(workload=workload, cluster=cluster, rules=RuleSet(), axes=_any_axes(topology))
    columns = Columns.of([topology], workload, cluster)
    found = {rule.name for rule in RULES if rule.level == "advice" and rule.broken_rows(columns).item()}
    assert found == reference.ignored_advice(topology, space)


@given(topologies(), workloads(), clusters())
def test_every_violation_has_a_sentence_with_numbers(topology: Topology, workload: Workload, cluster: Cluster) -> None:
    columns = Columns.of([topology], workload, cluster)
    for rule in RULES:
        if rule.binding(workload) and (violation := rule.violation(columns)):
            assert any(character.isdigit() for character in violation.message), rule.name
            assert not violation.message.endswith(".")


def test_every_rule_has_a_name_a_sentence_a_source_and_remedies() -> None:
    """Names are unique."""
    assert len(BY_NAME) == len(RULES)
    for rule in RULES:
        assert rule.sentence
        assert rule.source
        assert rule.reads
        assert rule.vary
        assert rule.name == rule.name.lower()
        assert " " not in rule.name


EXPERTS = {"model": TINY_EXPERTS, "gpu": "H100-80GB-SXM", "nodes": 1}
SMALL_HOST = replace(catalog.cluster("bloom-48"), host_memory=48 * 2**30)

SMALL = Model(layers=1, hidden=64, heads=4, vocab=512, seq=64, positions="rotary")
ON_H100 = {"framework": "megatron-core", "gpu": "H100-80GB-SXM"}
IN_FP8 = {"model": SMALL, "precision": "fp8", "fp8_weights": True, **ON_H100}

BREAKS = {
    "fill-nodes": ("tp8-pp5-mbs1-z1", {}),
    "enough-nodes": ("tp8-pp12-dp5-mbs1-z1", {}),
    "heads-by-tp": ("tp8-pp6-mbs4-z1-h108", {}),
    "hidden-by-tp": ("tp8-pp12-mbs1-z1-14340x72", {}),
    "ffn-by-tp": ("tp8-pp1-mbs1-z1", {"model": Model(layers=1, hidden=64, heads=8, ffn=100, vocab=512, seq=64)}),
    "vocab-by-tp": (
        "tp4-pp1-mbs1-z1",
        {"model": Model(layers=1, hidden=64, heads=8, vocab=510, vocab_multiple=0, seq=64)},
    ),
    "kv-heads-with-tp": (
        "tp4-pp1-mbs1-z1",
        {"model": Model(layers=1, hidden=96, heads=12, kv_heads=6, vocab=512, seq=64)},
    ),
    "heads-by-kv-heads": ("tp1-pp1-mbs1-z1-h20", {"model": "llama-3-8b"}),
    "hidden-by-heads": ("tp8-pp12-mbs1-z1-h48", {}),
    "layers-by-pp": ("tp8-pp16-mbs1-z1", {}),
    "layer-on-every-stage": ("tp1-pp74-mbs1-z1", {}),
    "one-partition": ("tp8-pp12-mbs1-z1-emb", {}),
    "vpp-needs-pp": ("tp8-pp1-mbs1-z1-vpp2", {}),
    "layers-by-vpp": ("tp8-pp12-mbs1-z1-vpp4", {}),
    "microbatches-by-pp": ("tp8-pp12-mbs1-z1-vpp2", {}),
    "batch-by-dp": ("tp8-pp4-mbs1-z1", {}),
    "zero-without-pipeline": ("tp8-pp12-mbs1-z2", {}),
    "sp-needs-tp": ("tp1-pp12-mbs1-z1-sp", {}),
    "seq-by-tp": ("tp8-pp12-mbs1-z1-sp", {"seq": 2052}),
    "seq-by-cp": ("tp8-pp1-mbs1-z1-cp4", {"seq": 2052, "attention": "flash2"}),
    "cp-needs-flash": ("tp8-pp1-mbs1-z1-cp2", {}),
    "cp-by-heads": (
        "tp1-pp1-mbs1-z1-cp4",
        {"model": replace(SMALL, kv_heads=2, attention_sinks=True), **ON_H100},
    ),
    "cp-without-mask": ("tp1-pp1-mbs1-z3-cp2", {"model": replace(SMALL, sliding_window=16), "framework": "fsdp2"}),
    "fp8-sizes": ("tp2-pp1-mbs1-z1", {"model": replace(SMALL, ffn=144), "precision": "fp8", **ON_H100}),
    "fp8-expert-sizes": (
        "tp1-pp1-mbs1-z1-etp2",
        {
            "model": replace(SMALL, experts=Experts(count=4, top_k=2, ffn=48)),
            "precision": "fp8",
            **ON_H100,
        },
    ),
    "fp8-weights-need-zero": ("tp1-pp1-mbs1-z0", IN_FP8),
    "fp8-weights-without-offload": ("tp1-pp1-mbs1-z1-offopt", {**IN_FP8, "precision_recipe": "tensorwise"}),
    "bf16-moments-need-zero": ("tp1-pp1-mbs1-z0", {"model": SMALL, "optimizer": "adam-bf16", **ON_H100}),
    "muon-without-offload": ("tp1-pp1-mbs1-z1-offopt", {"model": SMALL, "optimizer": "muon", **ON_H100}),
    "bf16-layers-in-stage": (
        "tp1-pp4-mbs1-z1",
        {
            "model": replace(SMALL, layers=4),
            "precision": "fp8",
            "precision_recipe": "tensorwise",
            "bf16_layers": "1,2",
            **ON_H100,
        },
    ),
    "flash-precision": ("tp8-pp12-mbs1-z1", {"attention": "flash2", "precision": "fp32"}),
    "flash-head-size": ("tp8-pp12-mbs1-z1-h32", {"attention": "flash2"}),
    "framework-pp": ("tp8-pp12-mbs1-z3", {"framework": "fsdp2"}),
    "framework-cp": ("tp8-pp1-mbs1-z1-cp2", {}),
    "framework-vpp": ("tp8-pp12-mbs1-z1-vpp2", {}),
    "framework-partition": ("tp1-pp5-mbs1-z1-lay", {"framework": "deepspeed"}),
    "framework-sequence-parallel": ("tp8-pp12-mbs1-z1-sp", {}),
    "framework-zero": ("tp8-pp1-mbs1-z2", {"framework": "megatron-core"}),
    "framework-recompute": ("tp8-pp1-mbs1-z3-rsel", {"framework": "fsdp2"}),
    "offload-needs-zero": ("tp8-pp12-mbs1-z0-offopt", {}),
    "hsdp-by-dp": ("tp8-pp1-dp4-mbs1-z3-hsdp4", {"framework": "fsdp2", "nodes": 4}),
    "hsdp-needs-sharding": ("tp8-pp1-dp4-mbs1-z1-hsdp2", {"framework": "any", "nodes": 4}),
    "framework-hsdp": ("tp8-pp1-mbs1-z3-hsdp2", {"framework": "deepspeed"}),
    "host-memory": ("tp8-pp12-mbs1-z1-offopt", {"cluster": SMALL_HOST}),
    "framework-offload": ("tp8-pp1-mbs1-z3-offopt", {"framework": "fsdp2"}),
    "framework-fork": ("tp1-pp74-mbs1-z1-rsel-emb", {}),
    "delta-net-heads": ("tp3-pp1-mbs1-z1-cp2", {"model": "qwen3-next-80b-a3b", "attention": "flash2"}),
    "framework-delta-net": ("tp2-pp1-mbs1-z2", {"model": "qwen3.8-27b", "framework": "fsdp2"}),
    "experts-for-ep": ("tp8-pp12-mbs1-z1-ep2", {}),
    "experts-by-ep": ("tp1-pp1-mbs1-z1-ep3", EXPERTS),
    "ep-in-stage": ("tp1-pp1-dp4-mbs1-z1-ep8", EXPERTS),
    "expert-ffn-by-etp": ("tp1-pp1-mbs1-z1-etp5", EXPERTS),
    "shared-ffn-by-tp": ("tp3-pp1-mbs1-z1", EXPERTS),
    "experts-need-sp": ("tp2-pp1-mbs1-z1-ep2", EXPERTS),
    "one-dispatcher": ("tp1-pp1-mbs1-z1-deepep", EXPERTS),
    "dispatcher-for-gpu": ("tp1-pp1-mbs1-z1-ep8-deepep", {**EXPERTS, "cluster": "gb300-nvl72"}),
    "deepep-ranks": ("tp1-pp1-dp40-mbs1-z1-ep5-deepep", {**EXPERTS, "nodes": 5, "global_batch": 640}),
    "deepep-in-node": ("tp1-pp1-mbs1-z1-ep16-deepep", {**EXPERTS, "gpu": "A100-80GB-SXM", "nodes": 2}),
    "hybridep-by-domain": ("tp1-pp1-dp96-mbs1-z1-ep16-etp6-hybridep", {**EXPERTS, "gpu": "GB200-192GB", "nodes": 24}),
    "overlap-of-experts": ("tp1-pp4-dp4-mbs1-z1-ep4-overlap", {**EXPERTS, "nodes": 2}),
    "framework-moe-overlap": ("tp1-pp1-dp4-mbs1-z1-rnone-ep4-overlap", {**EXPERTS, "framework": "deepspeed"}),
    "recompute-modules": ("tp8-pp12-mbs1-z1-rmoe_act", {"framework": "megatron-core"}),
    "recompute-delayed-fp8": (
        "tp1-pp1-mbs1-z1-rlayernorm+moe_act",
        {**EXPERTS, "precision": "fp8", "precision_recipe": "delayed"},
    ),
    "recompute-moe-act": (
        "tp1-pp1-mbs1-z1-rlayernorm+moe_act",
        {**EXPERTS, "framework": "megatron-core", "attention": "eager"},
    ),
    "expert-biases": ("tp1-pp1-mbs1-z1-ep4-etp2", {"model": "gpt-oss-20b", **ON_H100, "framework": "megatron-core"}),
    "framework-ep": ("tp1-pp1-mbs1-z3-ep8", {**EXPERTS, "framework": "fsdp2"}),
    "framework-etp": ("tp1-pp1-mbs1-z1-ep4-etp2", {**EXPERTS, "framework": "deepspeed"}),
    "framework-zero-with-ep": ("tp1-pp1-mbs1-z3-ep4", {**EXPERTS, "framework": "deepspeed"}),
    "experts-on-stages": ("tp1-pp48-dp4-mbs1-z1-ep4", {**EXPERTS, "framework": "deepspeed"}),
    "framework-dispatcher": ("tp1-pp1-mbs1-z3-ep8-allgather", {**EXPERTS, "framework": "torchtitan"}),
    "tp-in-nvlink-domain": ("tp16-pp12-mbs1-z1", {}),
    "dp-multiple-of-4": ("tp8-pp24-mbs1-z1", {}),
    "batch-multiple-of-32": ("tp8-pp12-mbs1-z1-gbs2000", {}),
    "ramp-up": ("tp8-pp12-mbs16-z1", {"ramp": "32,32"}),
    "fused-softmax": ("tp8-pp6-mbs4-z1-h108", {}),
    "micro-batch-power-of-two": ("tp8-pp6-mbs6-z1-gbs2016", {}),
    "microbatches-fill-pipeline": ("tp8-pp12-mbs64-z1", {}),
    "head-size": ("tp8-pp12-mbs1-z1-h16", {}),
    "hidden-per-tp-by-8": ("tp8-pp12-mbs1-z1-14344x72", {}),
    "hidden-per-tp-by-64": ("tp8-pp10-mbs1-z1-14400x80", {}),
    "head-size-by-8": ("tp8-pp12-mbs1-z1-h1024-14336x72", {"model": "bloom-13824x78"}),
    "head-size-by-64": ("tp8-pp12-mbs1-z1", {}),
    "tile-quantization": ("tp8-pp10-mbs1-z1-14400x80", {}),
    "wave-quantization": ("tp8-pp12-mbs1-z1", {}),
    "uneven-stages": ("tp8-pp12-mbs1-z1", {}),
    "interleaving-needs-megatron-lm": ("tp8-pp12-mbs1-z1-vpp2", {"framework": "any"}),
}
"""A topology that breaks each rule, in the default study or in one with these arguments."""


@pytest.mark.parametrize("name", BY_NAME)
def test_every_rule_can_be_broken(name: str) -> None:
    """A rule that no topology can break may read columns that are never set."""
    key, described = BREAKS[name]
    space = space_for(**described)  # type: ignore[arg-type]  # a table of arguments of several types
    topology = parse_key(key, workload=space.workload, cluster=space.cluster)
    rule = BY_NAME[name]
    assert rule.binding(space.workload)
    assert rule.violation(Columns.of([topology], space.workload, space.cluster))


@given(topologies(), workloads(), clusters(), st.sampled_from(POLICIES))
def test_disabling_a_policy_removes_only_its_violation(
    topology: Topology, workload: Workload, cluster: Cluster, policy: str
) -> None:
    columns = Columns.of([topology], workload, cluster)
    strict = {violation.rule for violation in RuleSet().violations(columns)}
    lenient = {violation.rule for violation in RuleSet(allowed=frozenset([policy])).violations(columns)}
    assert lenient == strict - {policy}


@pytest.mark.parametrize(
    ("tp", "described", "legal"),
    [
        (16, {"cluster": "gb300-nvl72"}, True),
        (12, {"cluster": "gb300-nvl72"}, True),
        (6, {"cluster": "gb300-nvl72"}, False),
        (80, {"cluster": "gb300-nvl72", "nodes": 36}, False),
        (16, {"cluster": "gb300-nvl72", "nvlink_domain": 4}, False),
        (16, {"gpu": "H100-80GB-SXM", "nvlink_domain": 16}, True),
        (16, {"gpu": "GB200-192GB", "gpus_per_node": 4}, True),
        (16, {"gpu": "GB200-192GB", "gpus_per_node": 4, "nvlink_domain": 4}, False),
        (16, {"gpu": "GB200-192GB", "gpus_per_node": 16}, True),
        (32, {"gpu": "GB200-192GB", "gpus_per_node": 16}, False),
        (16, {"gpu": "H100-80GB-SXM"}, False),
    ],
)
def test_tensor_parallel_ranks_fill_whole_nodes_of_an_nvlink_domain(
    tp: int, described: dict[str, Any], legal: bool
) -> None:
    space = space_for(**described)
    topology = Topology(nodes=space.cluster.nodes, tp=tp, pp=1, dp=1, micro_batch=1)
    broken = {
        violation.rule for violation in RuleSet().violations(Columns.of([topology], space.workload, space.cluster))
    }
    assert ("tp-in-nvlink-domain" not in broken) == legal


def test_the_grid_of_a_rack_includes_wide_tensor_parallelism() -> None:
    assert {8, 16, 36, 64, 72} < set(space_for(cluster="gb300-nvl72").axes["tp"])
    assert max(space_for(cluster="hgx-b300").axes["tp"]) == 32


def test_a_policy_is_accepted_under_its_former_name() -> None:
    assert RuleSet(allowed=frozenset(["tp-in-node"])) == RuleSet(allowed=frozenset(["tp-in-nvlink-domain"]))


def test_a_law_cannot_be_disabled() -> None:
    with pytest.raises(InputError, match="heads-by-tp is a law and cannot be allowed; policies are tp-in-"):
        RuleSet(allowed=frozenset(["heads-by-tp"]))


def test_only_laws_apply_at_another_site() -> None:
    for workload in (space_for().workload, space_for(ramp="32,32", attention="flash2").workload):
        assert {rule.level for rule in RuleSet.only_laws().in_force(workload)} == {"law"}


@pytest.mark.parametrize(("seq", "rows"), [(17, 8), (64, 8), (128, 8), (129, 4), (2048, 4), (4096, 4)])
def test_rows_per_block_of_the_softmax_kernel_follow_its_source(seq: int, rows: int) -> None:
    """scaled_masked_softmax.h has 128 threads in warps of 32, with two rows per warp up to 128 keys."""
    next_power_of_two = 1 << (seq - 1).bit_length()
    warps = 128 // min(32, next_power_of_two)
    assert softmax_block(seq) == rows == warps * (2 if next_power_of_two <= 128 else 1)


def test_the_output_layer_of_the_default_model_costs_nearly_1_5_layers(default_space: Space) -> None:
    """The ratio is V / (12 h (1 + s / 6h)) for a plain GPT."""
    model = default_space.workload.model
    expected = model.vocab / (12 * model.hidden * (1 + model.seq / (6 * model.hidden)))
    columns = Columns.of([plain()], default_space.workload, default_space.cluster)
    assert float(head_weight(columns)[0]) == pytest.approx(expected)
    assert float(stage_excess(columns)[0]) == pytest.approx((6 + expected) / ((72 + expected) / 12) - 1)


def test_a_layer_of_a_mixture_works_as_much_as_the_experts_of_a_token() -> None:
    """DeepSeek-V3's first 3 of 61 layers have an MLP, the others eight experts and a shared one of 2,048 columns."""
    space = space_for(model="deepseek-v3", gpu="H100-80GB-SXM", nodes=32, global_batch=1024)
    attention = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    mlp = 3 * 7168 * (3 * 18432 + 58 * 9 * 2048) / 61
    expected = 7168 * 129280 / (attention + mlp + 2 * 4096 * 128 * 192)
    assert float(head_weight(Columns.of([plain()], space.workload, space.cluster))[0]) == pytest.approx(expected)


CARDS = [("A100-80GB-SXM", 108, 5), ("H100-80GB-SXM", 132, 4), ("L40S-48GB", 142, 4)]


@pytest.mark.parametrize(("gpu", "sms", "waves"), CARDS)
def test_wave_quantization_uses_the_sms_of_the_gpu(gpu: str, sms: int, waves: int) -> None:
    """2048 tokens by 57344 / 8 columns are 8 x 56 tiles of 256 x 128, as in NVIDIA's guide."""
    space = space_for(gpu=gpu)
    columns = Columns.of([plain()], space.workload, space.cluster)
    assert space.cluster.gpu.sms == sms
    assert float(wave_efficiency(columns)[0]) == pytest.approx(8 * 56 / (waves * sms))


def plain() -> Topology:
    return Topology(nodes=48, tp=8, pp=12, dp=4, micro_batch=1)


def _any_axes(topology: Topology) -> dict[str, tuple[object, ...]]:
    fallback = {"heads": 1, "shape": Shape(hidden=1, layers=1), "global_batch": 1}
    return {axis: (getattr(topology, axis) or fallback.get(axis, getattr(topology, axis)),) for axis in AXES}


def test_columns_of_no_topology_are_empty(default_space: Space) -> None:
    columns = Columns.of([], default_space.workload, default_space.cluster)
    assert all(rule.broken_rows(columns).shape == (0,) for rule in RULES)
    assert columns.tp.dtype == np.int64


def test_a_searched_number_of_heads_has_a_head_size_that_kernels_support(default_space: Space) -> None:
    """Three of six numbers of heads remain in the default study; the model's own head size is never rejected."""
    points = np.concatenate(list(default_space.blocks()))
    assert set(default_space.columns(points).heads.tolist()) == {64, 112, 128}
    allowed = space_for(allow=["head-size"])
    points = np.concatenate(list(allowed.blocks()))
    assert {16, 32, 256} < set(allowed.columns(points).heads.tolist())
    narrow = space_for(model=Model(layers=4, hidden=64, heads=4, vocab=512, seq=64), nodes=1, global_batch=32)
    assert narrow.count()


def test_a_stored_space_keeps_its_policies(default_space: Space) -> None:
    """A study that was started before a policy existed keeps its topologies."""
    document = space_document(default_space)
    assert as_stored(default_space, document) is default_space
    former = ["tp-in-node" if name == "tp-in-nvlink-domain" else name for name in POLICIES]
    assert as_stored(default_space, {**document, "rules": {"policies": former}}) is default_space
    del document["rules"]["policies"]
    assert as_stored(default_space, document).rules.allowed == {"head-size"}
    del document["workload"]["framework"]
    assert default_space.workload.framework == "megatron-deepspeed"
    assert as_stored(default_space, document).workload.framework is None


@pytest.mark.parametrize(
    ("name", "binds"), [("bloom", True), ("BLOOM-176B", True), ("bloomz-7b1", False), ("llama-3-8b", False)]
)
def test_blooms_batches_bind_bloom_alone(name: str, binds: bool) -> None:
    workload = replace(WORKLOAD, model=replace(WORKLOAD.model, name=name))
    for policy in ("dp-multiple-of-4", "batch-multiple-of-32"):
        assert BY_NAME[policy].binding(workload) is binds
        assert not BY_NAME[policy].binding(replace(workload, ramp=Ramp(start=32, increment=32)))
