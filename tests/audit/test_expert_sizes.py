"""Stated sizes and TFLOPs of mixtures of experts against what their shape gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tuner.audit import audit
from tuner.tables import read_table, table_of

COLUMNS = "group,model,layers,hidden,heads,kv_heads,ffn,gated_mlp,seq,vocab,experts,top_k,moe_ffn,head_dim,mbs,dp,ep"
QWEN = "g,qwen3-30b,48,2048,32,4,6144,1,4096,151936,128,8,768,128,1,8,8"


def sizes_found(total: str, active: str) -> list[str]:
    table = table_of(f"{COLUMNS},total_params_b,active_params_b\n{QWEN},{total},{active}\n", "t.csv")
    return [finding.message for finding in audit(table) if finding.check == "size"]


@pytest.mark.parametrize(("total", "active"), [("30.53", "3.35"), ("30.5", "3.04"), ("30.2", "3.3"), ("", "")])
def test_total_and_active_parameters_may_leave_out_embeddings(total: str, active: str) -> None:
    assert sizes_found(total, active) == []


def test_parameters_that_the_shape_does_not_have_are_named() -> None:
    shape = "48 layers with hidden 2048 and ffn 768 and 128 experts of 768 make 30.53B"
    (found,) = sizes_found("20", "3.3")
    assert found == f"total_params_b 20, but {shape}"
    (found,) = sizes_found("30.5", "9.2")
    assert found == f"active_params_b 9.2, but {shape}, of which a token passes through 3.353B"


@pytest.mark.parametrize("name", ["mcore-moe-recipes", "moe-modelzoo", "megatron-bridge"])
def test_published_recipes_state_their_sizes_and_their_tflops(name: str) -> None:
    rows = read_table(Path(ROOT / f"corpus/modern/{name}.csv"))
    findings = [
        one for one in audit(rows) if one.check in ("size", "tflops", "heads", "experts") and one.row is not None
    ]
    assert not [one.message for one in findings if "experts" in rows.rows[one.row or 0].cells]


@pytest.mark.parametrize(
    ("ep", "dp", "message"),
    [
        ("3", "9", "128 experts and tp x cp x dp = 9 ranks do not divide evenly by ep(3) and etp(1)"),
        ("16", "8", "128 experts and tp x cp x dp = 8 ranks do not divide evenly by ep(16) and etp(1)"),
        ("8", "8", ""),
    ],
)
def test_experts_that_no_program_can_spread_are_found(ep: str, dp: str, message: str) -> None:
    table = table_of(f"{COLUMNS}\n{QWEN.removesuffix('8,8')}{dp},{ep}\n", "t.csv")
    assert [one.message for one in audit(table) if one.check == "experts"] == [message] * bool(message)
