"""What is said of a table that states too little."""

from __future__ import annotations

import pytest

from tuner.tables import Defaults, assumptions, table_of
from tuner.tables.notices import notices


def test_the_decisive_settings_that_a_table_does_not_state_are_named() -> None:
    """A framework, recompute, the ZeRO stage, and with tensor parallelism whether the sequence is sharded."""
    header, row = "layers,hidden,heads,gpu,seq,gbs,tp,sec_per_iter", "4,1024,16,A100-80GB-SXM,2048,8,{},1\n"
    assert assumptions(table_of(f"{header}\n{row.format(1)}", "t")) == (
        "assumed where the table states nothing: no framework (nothing overlaps), gated_mlp 0, recompute full and "
        "zero 1; --default COLUMN=VALUE changes it"
    )
    assert "zero 1 and sequence_parallel 0;" in assumptions(table_of(f"{header}\n{row.format(2)}", "t"))
    stated = f"{header},framework,recompute,zero,gated_mlp\n{row.format(1).strip()},deepspeed,none,0,1\n"
    assert assumptions(table_of(stated, "t")) == ""


def test_gpu_sequence_and_batch_that_a_table_does_not_state_are_named() -> None:
    """Without them, an estimate can be off by any factor."""
    header, row = "layers,hidden,heads,mbs,dp,framework,recompute,zero,sec_per_iter", "4,1024,16,2,8,deepspeed,none,0,1"
    assert assumptions(table_of(f"{header}\n{row}\n", "t")) == (
        "assumed where the table states nothing: gpu A100-80GB-SXM, gated_mlp 0, seq 2048 and gbs as mbs x dp (no "
        "gradient accumulation); --default COLUMN=VALUE changes it"
    )
    assert "gbs" not in assumptions(table_of(f"{header},grad_accum\n{row},4\n", "t"))


@pytest.mark.parametrize(
    ("cells", "gated"),
    [
        ({"heads": "16"}, "0"),
        ({"heads": "16", "kv_heads": "16"}, "0"),
        ({"heads": "16", "kv_heads": "4"}, "1"),
        ({"heads": "16", "experts": "8", "top_k": "2", "moe_ffn": "512"}, "1"),
        ({"heads": "16", "kv_heads": "4", "gated_mlp": "0"}, "0"),
    ],
)
def test_mixtures_and_grouped_queries_are_assumed_to_have_a_gated_mlp(cells: dict[str, str], gated: str) -> None:
    given = {"layers": "4", "hidden": "1024", "mbs": "1", "gbs": "8", **cells}
    table = table_of(f"{','.join(given)}\n{','.join(given.values())}\n", "t")
    (row,) = table.rows
    assert row.run is not None
    assert row.run.workload.model.gated_mlp is (gated == "1")
    assert (f"gated_mlp {gated}" in assumptions(table)) is ("gated_mlp" not in cells)


def test_the_gated_mlp_of_a_named_model_is_no_assumption() -> None:
    assert "gated_mlp" not in assumptions(table_of("model,gpu,tp,gbs\nmeta-llama/llama-3-8b,H100-80GB-SXM,1,8\n", "t"))


@pytest.mark.parametrize("name", ["microbatches", "Gradient accumulation steps", "grad_accum"])
def test_the_batch_follows_from_gradient_accumulation(name: str) -> None:
    """A row without a global batch has micro-batch size x microbatches x replicas; a contradiction is no run."""
    header, row = f"layers,hidden,dp,mbs,{name},gbs,sec_per_iter", "4,1024,8,2,16,{},2.5\n"
    (follows,) = table_of(f"{header}\n{row.format('')}", "t").rows
    (stated,) = table_of(f"{header}\n{row.format(256)}", "t").rows
    assert follows.tokens == stated.tokens == 256 * 2048
    assert follows.usable
    assert stated.usable
    (other,) = table_of(f"{header}\n{row.format(512)}", "t").rows
    assert other.skipped == "gbs(512) is not mbs(2) x microbatches(16) x dp(8) = 256."


def test_a_default_that_no_row_needs_is_named() -> None:
    """Cells take precedence; a default for a column that one row lacks is used."""
    text = "layers,hidden,heads,gpu,tp,sec_per_iter\n4,1024,16,A100-80GB-SXM,1,1\n4,1024,16,{},1,1\n"
    defaults = Defaults.parse(["gpu=V100-32GB-SXM"])
    stated, lacking = (table_of(text.format(cell), "t", defaults) for cell in ("A100-80GB-SXM", ""))
    (notice,) = notices(stated, defaults=defaults)
    assert notice == "--default gpu=V100-32GB-SXM has no effect, because every row states gpu."
    assert not [*notices(lacking, defaults=defaults)]
