"""Stated sizes and TFLOPs of mixtures of experts against what their shape gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.tables_of import evidence_of
from tests.conftest import ROOT
from tuner.audit import audit, row_laws
from tuner.tables import read_table, table_of

COLUMNS = "group,model,layers,hidden,heads,kv_heads,ffn,gated_mlp,seq,vocab,experts,top_k,moe_ffn,head_dim,mbs,dp,ep"
QWEN = "g,qwen3-30b,48,2048,32,4,6144,1,4096,151936,128,8,768,128,1,8,8"


def sizes_found(total: str, active: str) -> list[str]:
    table = table_of(f"{COLUMNS},total_params_b,active_params_b\n{QWEN},{total},{active}\n", "t.csv")
    return [finding.message for finding in audit(table) if finding.check == "size"]


@pytest.mark.parametrize(
    ("total", "active"), [("30.53", "3.35"), ("30.5", "3.04"), ("30.2", "3.3"), ("30.2", "2.73"), ("", "")]
)
def test_total_and_active_parameters_may_leave_out_embeddings(total: str, active: str) -> None:
    assert sizes_found(total, active) == []


def test_parameters_that_the_shape_does_not_have_are_named() -> None:
    shape = "48 layers with hidden 2048 and ffn 768 and 128 experts of 768 make 30.53B"
    (found,) = sizes_found("20", "3.3")
    assert found == f"total_params_b 20, but {shape}"
    for active in ("9.2", "3.66", "2.42"):
        (found,) = sizes_found("30.5", active)
        assert found == f"active_params_b {active}, but {shape}, of which a token passes through 3.353B"


@pytest.mark.parametrize("name", ["mcore-moe-recipes", "moe-modelzoo", "megatron-bridge"])
def test_published_recipes_state_their_sizes_and_their_tflops(name: str) -> None:
    rows = read_table(Path(ROOT / f"corpus/modern/{name}.csv"))
    findings = [one for one in audit(rows) if one.check in ("size", "tflops", "heads", "cells") and one.row is not None]
    assert not [one.message for one in findings if "experts" in rows.rows[one.row or 0].cells]


@pytest.mark.parametrize(
    ("ep", "dp", "message"),
    [
        ("3", "9", "128 experts are not divisible by ep(3)."),
        ("16", "8", "tp x cp x dp = 8 ranks are not divisible by etp(1) x ep(16); check dp and nodes."),
        ("8", "8", ""),
    ],
)
def test_experts_that_no_program_can_spread_are_found(ep: str, dp: str, message: str) -> None:
    table = table_of(f"{COLUMNS}\n{QWEN.removesuffix('8,8')}{dp},{ep}\n", "t.csv")
    assert table.rows[0].skipped == (message or None)
    messages = [one.message for one in audit(table) if one.check == "cells"]
    assert messages == [f"cannot read the row: {message}"] * bool(message)


def test_a_mixture_that_is_named_smaller_than_its_shape_is_found() -> None:
    """27 layers of 64 experts of 768 and attention with 32 heads of 128, plus two tables."""
    shape = "27 layers with hidden 2048 and ffn 6144 and 64 experts of 768"
    table = table_of(f"{COLUMNS},size\n{QWEN.replace(',48,', ',27,').replace(',128,8,', ',64,8,')},4B\n", "t.csv")
    (found,) = [one.message for one in audit(table) if one.check == "size"]
    layer = 64 * 3 * 2048 * 768 + 2048 * 128 * (2 * 32 + 2 * 4) + 2048 * 64
    whole = 27 * layer + 2 * 151936 * 2048
    assert found == f"size 4B, but {shape} make {whole / 1e9:.4g}B"


OSS = "g,gpt-oss-120b,36,2880,64,8,2880,1,4096,201088,128,4,2880,64,4,64,64"


def oss_rows(*counted: float) -> str:
    """Rows of gpt-oss-120b at so many FLOPs a token: 27.2e9 before Megatron-Bridge 26.06, 32.6e9 since."""
    tokens, lines = 1280 * 4096, []
    for number, count in enumerate(counted):
        seconds = 4.9 + number
        lines.append(f"{OSS},GB200-192GB,4,1280,bf16,{seconds},{count * tokens / seconds / 64 / 1e12:.1f}\n")
    return f"{COLUMNS},gpu,gpus_per_node,gbs,precision,sec_per_iter,tflops\n{''.join(lines)}"


def tflops_found(text: str) -> list[str]:
    return [one.message for one in audit(table_of(text, "t.csv")) if one.check == "tflops"]


def test_both_ways_to_count_gated_experts_are_known_and_not_mixed() -> None:
    assert tflops_found(oss_rows(27.2e9, 27.2e9, 27.2e9)) == []
    assert tflops_found(oss_rows(32.6e9, 32.6e9, 32.6e9)) == []
    (found,) = tflops_found(oss_rows(27.2e9, 27.2e9, 27.2e9, 32.6e9))
    assert "1.19" in found


@pytest.mark.parametrize(
    ("cells", "routed"),
    [
        ({"ep": "4"}, 1 / 4 * (2 + 2 + 12)),
        ({"ep": "2"}, 1 / 2 * (2 + 2 + 12 / 2)),
        ({"ep": "2", "etp": "2"}, 1 / 4 * (2 + 2 + 12)),
        ({"ep": "1", "etp": "2"}, 1 / 2 * (2 + 2 + 12 / 2)),
        ({"ep": "2", "zero": "2"}, 1 / 2 * (2 + (2 + 12) / 2)),
        ({"ep": "2", "zero": "0"}, 1 / 2 * (2 + 2 + 12)),
    ],
)
def test_experts_are_spread_over_their_own_ranks(cells: dict[str, str], routed: float) -> None:
    """4 layers of 8 experts of 2 x 1024 x 2048 on 2 stages of 4 ranks; each is on ep x etp of them."""
    mixture = {"experts": "8", "top_k": "2", "moe_ffn": "2048", "gated_mlp": "0", "etp": "1", **cells}
    (case,) = evidence_of(mixture).cases.values()
    (dense,) = evidence_of({**mixture, "experts": "1", "top_k": "1", "ep": "1", "etp": "1"}).cases.values()
    expert = 2 * 1024 * 2048
    small = dense.run.workload.model
    rest = case.run.workload.model.parameters - 4 * 8 * expert
    assert rest == small.parameters - 4 * expert + 4 * 7 * 1024  # routers of 7 experts more
    topology = case.run.topology
    copies = [2 if topology.zero >= least else 1 for least in (3, 2, 1)]
    shared = sum(size / copy for size, copy in zip((2, 2, 12), copies, strict=True)) * rest / 2 / 2
    assert row_laws.least_memory(case) == pytest.approx(shared + 4 * 8 * expert / 2 * routed)
