"""Numbers of violations of each rule among 20,000 topologies, which change with every boundary and term of a rule.

`python -m tests.space.test_rule_counts` rewrites `tests/data/golden/rule_counts.json`; review the differences.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.mixtures import DEEPSEEK, TINY_EXPERTS
from tests.workers import ONE, WORKLOAD, tiny
from tuner.core.catalog import cluster, gpu
from tuner.core.columns import Columns
from tuner.core.delta_net import DeltaNet
from tuner.core.domain import Ramp, Workload
from tuner.core.experts import Experts
from tuner.core.frameworks import RECORDS
from tuner.core.recompute import RECOMPUTE
from tuner.core.stack import Stack
from tuner.space.rules import RULES

GOLDEN: Final = ROOT / "tests/data/golden/rule_counts.json"
ROWS: Final = 20_000
VALUES: Final = {
    "nodes": (1, 2, 3, 4, 8),
    "tp": (1, 2, 3, 4, 6, 8, 16),
    "pp": (1, 1, 2, 3, 4, 5, 7),
    "vpp": (1, 1, 2, 3),
    "cp": (1, 1, 2, 4),
    "dp": (1, 2, 3, 4, 6, 8, 16),
    "micro_batch": (1, 2, 3, 4, 6, 8),
    "global_batch": (32, 36, 48, 64, 96, 128),
    "zero": (0, 1, 2, 3),
    "recompute": (0, 1, 2, RECOMPUTE.index("layernorm+moe_act"), RECOMPUTE.index("mla_up_proj+mlp+moe+shared_experts")),
    "partition": (0, 1, 2),
    "sequence_parallel": (0, 1),
    "offload": (0, 0, 1, 2),
    "hsdp": (1, 1, 2, 3, 4),
    "ep": (1, 1, 2, 3, 4, 8),
    "etp": (1, 1, 2, 3),
    "dispatcher": (0, 1, 2, 3),
    "moe_overlap": (0, 0, 1),
    "heads": (4, 6, 8, 9),
    "hidden": (48, 96, 192, 384, 1024, 3072),
    "layers": (4, 5, 6, 8, 12, 13),
}
"""Values of each axis; each axis runs through them with a period of its own."""
STEPS: Final = (7919, 104729, 1299709, 15485863, 32452843, 49979687, 67867967, 86028121, 104395301, 122949823)


def topologies(workload: Workload, nodes: Any) -> Columns:
    """Return the same topologies on every call."""
    numbers = np.arange(1, ROWS + 1, dtype=np.int64)
    arrays = dict(Columns.of([ONE], workload, nodes).arrays)
    for place, (axis, values) in enumerate(VALUES.items()):
        drawn = numbers * STEPS[place % len(STEPS)] * (place + 3) % 1_000_003 // 7 % len(values)
        arrays[axis] = np.array(values, dtype=np.int64)[drawn]
    return Columns(workload, nodes, {name: np.resize(array, ROWS) for name, array in arrays.items()})


def workloads() -> Iterator[tuple[str, Workload]]:
    """Return models, kernels and precisions that rules distinguish."""
    gpt = replace(WORKLOAD, model=tiny(layers=12, seq=60, vocab=1000), precision="bf16", attention="fused")
    yield "gpt", gpt
    yield "BLOOM", replace(gpt, model=replace(gpt.model, name="bloom-tiny"))
    yield "gpt, ramp", replace(gpt, ramp=Ramp(start=24, increment=12), precision="fp32")
    yield "fp32", replace(gpt, attention="flash2", precision="fp32")
    grouped = tiny(kv_heads=2, seq=128, vocab_multiple=0, vocab=1002)
    yield "grouped queries", replace(gpt, model=grouped, attention="flash1")
    yield "experts", replace(gpt, model=TINY_EXPERTS, attention="flash2")
    yield "latent", replace(gpt, model=DEEPSEEK, attention="flash2")
    hybrid = replace(tiny(), delta_net=DeltaNet(key_heads=4, value_heads=8))
    yield "Gated DeltaNet", replace(gpt, model=hybrid, attention="flash2")
    for framework in ("fsdp2", "torchtitan"):
        yield f"Gated DeltaNet in {framework}", replace(gpt, model=hybrid, attention="flash2", framework=framework)
    fp8 = replace(gpt, precision="fp8", precision_recipe="mxfp8", attention="flash2", framework="megatron-core")
    yield "Gated DeltaNet in fp8", replace(fp8, model=hybrid)
    sinks = tiny(kv_heads=4, seq=128, sliding_window=32, attention_sinks=True)
    yield "sinks", replace(gpt, model=sinks, attention="flash2", framework="megatron-core")
    yield "a window", replace(gpt, model=tiny(seq=128, sliding_window=32), attention="flash2", framework="fsdp2")
    alibi = tiny(seq=128, positions="alibi")
    yield "ALiBi", replace(gpt, model=alibi, attention="flash2", framework="fsdp2")
    for recipe in ("delayed", "mxfp8"):
        fp8 = replace(gpt, precision="fp8", precision_recipe=recipe, attention="flash2", framework="megatron-core")
        yield f"fp8, {recipe}", fp8
        yield f"experts in fp8, {recipe}", replace(fp8, model=TINY_EXPERTS)
        yield f"weights in fp8, {recipe}", replace(fp8, stack=Stack(quantized_weights=True))
    yield "moments in bf16", replace(gpt, framework="megatron-core", optimizer="adam-bf16")
    yield "muon", replace(gpt, framework="megatron-core", optimizer="muon")
    yield "layers in bf16", replace(fp8, stack=Stack(bf16_layers=(1, 1)))
    biased = replace(TINY_EXPERTS.experts or Experts(count=1, top_k=1, ffn=1), expert_bias=True)
    eager = replace(gpt, model=replace(TINY_EXPERTS, experts=biased), attention="eager")
    yield "experts with biases", replace(eager, framework="megatron-core")
    for framework in RECORDS:
        yield framework, replace(gpt, framework=framework)
        yield f"experts in {framework}", replace(gpt, model=TINY_EXPERTS, attention="flash2", framework=framework)


def counts(workload: Workload) -> dict[str, int]:
    """Return the number of violations by rule, on nodes with little main memory; latent attention runs on MI300X."""
    nodes = replace(cluster("bloom-48"), nodes=4, host_memory=2 * 2**30)
    if workload.model.latent:
        nodes = replace(nodes, gpu=gpu("MI300X-192GB"))
    columns = topologies(workload, nodes)
    found = {rule.name: int(rule.broken_rows(columns).sum()) for rule in RULES if rule.binding(workload)}
    return {name: count for name, count in found.items() if count}


@pytest.mark.parametrize("name", dict(workloads()))
def test_the_number_of_violations_of_each_rule_matches_the_golden_file(name: str) -> None:
    assert counts(dict(workloads())[name]) == json.loads(GOLDEN.read_text())[name]


def test_every_rule_is_broken_by_some_topology() -> None:
    golden = json.loads(GOLDEN.read_text()).values()
    assert {name for counted in golden for name in counted} == {rule.name for rule in RULES}


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({name: counts(workload) for name, workload in workloads()}, indent=1) + "\n")
