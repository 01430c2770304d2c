"""Comparison of NVIDIA's layouts with the plan's first choice."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.recipes import TABLE, compared
from tuner.tables import read_table


def test_a_recipe_is_compared_as_megatron_launches_it() -> None:
    """With tp 1, a recipe is compared without sequence parallelism; broken laws and policies are listed."""
    row = next(row for row in read_table(TABLE).rows if "qwen3-30b-a3b-gb200" in row.group)
    assert row.run
    found = compared(row)
    assert not found.recipe.topology.sequence_parallel
    assert (found.laws, found.policies) == ((), ())
    assert found.ratio == found.recipe.training / found.first.training
    assert found.close == (found.ratio <= 1.05)
    fastest = replace(row, run=replace(row.run, topology=found.first.topology))
    assert (compared(fastest).ratio, compared(fastest).close) == (1, True)
    odd = replace(row, run=replace(row.run, topology=replace(row.run.topology, micro_batch=3)))
    assert compared(odd).policies == ("micro-batch-power-of-two",)
    assert "batch-by-dp" in compared(odd).laws
