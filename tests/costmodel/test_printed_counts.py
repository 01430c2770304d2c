"""The formulas behind TFLOPs in logs, and the recognition of the formula of a figure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tuner.core.catalog import cluster
from tuner.core.columns import Columns
from tuner.core.domain import Topology, Workload
from tuner.core.model import Model
from tuner.costmodel.flops import hardware_flops, likely_reason, older_estimate, per_gpu, printed_counts


def _columns(**model: Any) -> Columns:
    shape = Model(**{"layers": 32, "hidden": 4096, "heads": 32, "vocab": 32000, "seq": 4096, **model})
    topology = Topology(nodes=1, tp=8, pp=1, dp=2, micro_batch=1)
    return Columns.of([topology], Workload(model=shape, global_batch=512), cluster("bloom-48"))


@pytest.mark.parametrize("gated", [False, True])
def test_each_formula_that_is_printed_is_known_again(gated: bool) -> None:
    columns = _columns(gated_mlp=gated, kv_heads=8, ffn=14336 if gated else 16384)
    for name, flops in list(printed_counts(columns).items())[1:]:
        rate = float(per_gpu(flops, 10.0, columns)[0])
        found = likely_reason(columns, 10.0, rate, 1e-9).removeprefix("the log uses ")
        assert float(printed_counts(columns)[found][0]) == pytest.approx(float(flops[0])), name


def test_the_older_formula_explains_a_larger_figure_by_its_recompute() -> None:
    """Without recompute, the older formula gives more than the corrected count, as it always counts four passes."""
    columns = _columns()
    columns = Columns.of([replace(columns.topology(0), recompute="none")], columns.workload, columns.cluster)
    rate = float(per_gpu(older_estimate(columns), 10.0, columns)[0])
    assert rate > float(per_gpu(hardware_flops(columns), 10.0, columns)[0])
    assert "which always counts full recompute, but no attention scores" in likely_reason(columns, 10.0, rate, 1e-9)


def test_another_sequence_batch_or_number_of_gpus_is_known_again() -> None:
    columns, shorter = _columns(), _columns(seq=1024)
    rate = float(per_gpu(hardware_flops(columns), 10.0, columns)[0])
    other = float(per_gpu(hardware_flops(shorter), 10.0, columns)[0])
    assert likely_reason(columns, 10.0, other, 1e-9) == "the log assumes a sequence of 1024, not 4096"
    doubled = "the log assumes a batch of 1024, not 512, or 8 GPUs, not 16"
    assert likely_reason(columns, 10.0, 2 * rate, 1e-9) == doubled
    assert likely_reason(columns, 10.0, 1.2345 * rate, 1e-9) == ""


def test_the_plain_formula_is_the_published_one() -> None:
    """The plain formula is 96 B s L h^2 (1 + s/6h + V/16Lh), or 4/3 of it with a gate.

    Source: BigScience's Megatron-DeepSpeed.
    """
    columns = _columns()
    expected = 96 * 512 * 4096 * 32 * 4096**2 * (1 + 1 / 6 + 32768 / (16 * 32 * 4096))
    by_name = {name: float(flops[0]) for name, flops in printed_counts(columns).items()}
    plain = [flops for name, flops in by_name.items() if name.startswith("the formula of a plain GPT")]
    assert plain[0] == pytest.approx(expected)
    assert plain[1] == pytest.approx(expected * 4 / 3)
    assert plain[2:] == pytest.approx([expected, expected * 3 / 4])
    causal = by_name["the model's own operations, with the causal half of the scores"]
    scores = 4 * 512 * 4096 * 32 * 4096 * 4096  # two products of 2 operations for each pair, forward
    assert causal == pytest.approx(by_name["the model's own operations, without recompute"] - 3 / 2 * scores)
