"""What is said of a table that states too little."""

from __future__ import annotations

from tuner.tables import assumptions, table_of


def test_the_decisive_settings_that_a_table_does_not_state_are_named() -> None:
    """A framework, recompute, the ZeRO stage, and with tensor parallelism whether the sequence is sharded."""
    header, row = "layers,hidden,heads,gpu,tp,sec_per_iter", "4,1024,16,A100-80GB-SXM,{},1\n"
    assert assumptions(table_of(f"{header}\n{row.format(1)}", "t")) == (
        "assumed where the table states nothing: no framework (nothing overlaps), recompute full and zero 1; "
        "--default COLUMN=VALUE changes it"
    )
    assert "zero 1 and sequence_parallel 0;" in assumptions(table_of(f"{header}\n{row.format(2)}", "t"))
    stated = f"{header},framework,recompute,zero\n{row.format(1).strip()},deepspeed,none,0\n"
    assert assumptions(table_of(stated, "t")) == ""
