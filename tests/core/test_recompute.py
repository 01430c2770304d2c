"""The values of the recompute axis: granularities and sets of Megatron-Core's modules."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from tests.mixtures import DEEPSEEK, QWEN3_30B
from tests.workers import ONE, WORKLOAD
from tuner.core.catalog import cluster
from tuner.core.columns import Columns
from tuner.core.domain import Topology
from tuner.core.errors import BadKey, InputError
from tuner.core.frameworks import RECORDS
from tuner.core.keys import parse_key
from tuner.core.recompute import GRANULARITIES, MODULES, RECOMPUTE, is_among, modules_of, selecting
from tuner.space.axes import default_axes, parse_setting
from tuner.space.build import space_for
from tuner.space.nearest import distance
from tuner.space.rules import RuleSet

BLOOM = cluster("bloom-48")


def with_recompute(recompute: str) -> Topology:
    return Topology(nodes=1, tp=8, pp=1, dp=1, micro_batch=1, recompute=recompute)


def test_every_set_of_modules_is_one_value() -> None:
    sets = [names for size in range(1, 8) for names in itertools.combinations(MODULES, size)]
    values = [selecting(names) for names in sets]
    assert set(values) | {"none", "full"} == set(RECOMPUTE)
    assert len(RECOMPUTE) == len(set(RECOMPUTE)) == 2 + len(sets) == 129
    assert [modules_of(value) for value in values] == sets
    assert selecting(["core_attn"]) == "selective"
    assert selecting([]) == "none"
    assert modules_of("none") == modules_of("full") == ()
    assert list(MODULES) == sorted(MODULES)


def test_columns_know_granularity_and_modules_of_each_row() -> None:
    rows = Columns.of([with_recompute(value) for value in RECOMPUTE], WORKLOAD, BLOOM)
    assert [rows.topology(row).recompute for row in range(len(RECOMPUTE))] == list(RECOMPUTE)
    found = [GRANULARITIES[code] for code in rows.granularity]
    assert found == [value if value in GRANULARITIES else "selective" for value in RECOMPUTE]
    for module in MODULES:
        assert rows.recomputes(module).tolist() == [module in modules_of(value) for value in RECOMPUTE]
    either = rows.recomputes("moe", "shared_experts")
    assert either.tolist() == (rows.recomputes("moe") | rows.recomputes("shared_experts")).tolist()
    assert not rows.recomputes().any()


@pytest.mark.parametrize("value", ["some", "core_attn", "moe_act+layernorm", "moe+moe"])
def test_other_values_are_refused(value: str) -> None:
    with pytest.raises(InputError, match="none, selective or full, or modules in alphabetical order"):
        with_recompute(value)


def test_modules_may_be_named_in_any_order() -> None:
    assert parse_setting("recompute=moe_act+layernorm,core_attn,full") == (
        "recompute",
        ("layernorm+moe_act", "selective", "full"),
    )
    key = "tp8-pp1-mbs1-z1-rMOE_ACT+layernorm"
    read = parse_key(key, workload=WORKLOAD, cluster=BLOOM)
    assert read.recompute == "layernorm+moe_act"
    assert read.key == "tp8-pp1-dp48-mbs1-z1-rlayernorm+moe_act"
    with pytest.raises(BadKey, match=r"unknown part 'rmoe\+pigeon'"):
        parse_key("tp8-pp1-mbs1-z1-rmoe+pigeon", workload=WORKLOAD, cluster=BLOOM)
    with pytest.raises(InputError, match=r"neither a granularity \(none, selective and full\) nor a module"):
        parse_setting("recompute=moe+pigeon")


def test_only_megatron_core_selects_modules() -> None:
    for name, record in RECORDS.items():
        every = all(is_among(recompute, record.recompute.value) for recompute in RECOMPUTE)
        assert every == (name == "megatron-core")
        lacks = record.missing_of_topology(WORKLOAD, with_recompute("layernorm+moe_act"))
        assert ("recompute" in lacks) == (name != "megatron-core")


@pytest.mark.parametrize(
    ("model", "settings", "expected"),
    [
        (QWEN3_30B, {}, ("none", "layernorm+moe_act", "full")),
        (DEEPSEEK, {}, ("none", "layernorm+mla_up_proj+moe_act", "full")),
        (QWEN3_30B, {"precision": "fp8", "precision_recipe": "mxfp8"}, ("none", "layernorm+moe_act", "full")),
        (QWEN3_30B, {"precision": "fp8", "precision_recipe": "delayed"}, GRANULARITIES),
        (QWEN3_30B, {"attention": "fused"}, GRANULARITIES),
        (QWEN3_30B, {"framework": "torchtitan"}, GRANULARITIES),
        (QWEN3_30B, {"framework": "any"}, GRANULARITIES),
        (WORKLOAD.model, {"framework": "megatron-core"}, GRANULARITIES),
    ],
)
def test_plans_of_experts_under_megatron_core_select_what_is_cheap(
    model: object, settings: dict[str, object], expected: tuple[str, ...]
) -> None:
    gpu = "B200-180GB-SXM"
    space = space_for(**{"model": model, "gpu": gpu, "nodes": 1, "global_batch": 64, **settings})  # type: ignore[arg-type]
    assert default_axes(space.workload, space.cluster)["recompute"] == expected


@pytest.mark.parametrize(
    ("model", "legal"),
    [
        (WORKLOAD.model, {"core_attn", "mlp"}),
        (QWEN3_30B, {"core_attn", "layernorm", "moe", "moe_act"}),
        (DEEPSEEK, set(MODULES)),
    ],
)
def test_a_model_recomputes_only_modules_that_it_has_and_each_once(model: object, legal: set[str]) -> None:
    space = space_for(
        model=model,  # type: ignore[arg-type]
        gpu="H100-80GB-SXM",
        nodes=1,
        framework="megatron-core",
        precision="bf16",
    )
    for value in RECOMPUTE:
        columns = Columns.of([replace(ONE, recompute=value)], space.workload, space.cluster)
        broken = {violation.rule for violation in RuleSet().violations(columns)}
        modules = set(modules_of(value))
        twice = "moe" in modules and bool(modules & {"moe_act", "shared_experts"})
        assert ("recompute-modules" in broken) == (not modules <= legal or twice), value


def test_selected_modules_lie_between_full_recompute_and_none() -> None:
    """A change of the granularity is a step, and another set of modules is half of one."""
    space = space_for(model=DEEPSEEK, gpu="H100-80GB-SXM", nodes=1, framework="megatron-core", precision="bf16")

    def steps(of: str, to: str) -> float:
        one, other = (Columns.of([replace(ONE, recompute=value)], space.workload, space.cluster) for value in (of, to))
        return float(distance(one, other)[0]) / 0.5

    assert steps("full", "layernorm+moe_act") == steps("layernorm+moe_act", "none") == steps("full", "selective") == 1
    assert steps("full", "none") == 2
    assert steps("selective", "moe_act") == steps("layernorm", "layernorm+mlp+moe") == 0.5
    assert steps("moe_act", "moe_act") == 0
