"""Settings that notes of published tables state."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables.test_stacks import only
from tuner.tables.note_settings import settings_in_note

MODULES = {"recompute": "selective"}


@pytest.mark.parametrize(
    ("note", "cells"),
    [
        ("table on the dev branch; DeepEP; EP overlap; ok", {"moe_overlap": "1"}),
        ("1F1B expert communication overlap", {"moe_overlap": "1"}),
        ("A2A overlap", {"moe_overlap": "1"}),
        ("EP overlap + delayed wgrad", {"moe_overlap": "1"}),
        ("no EP overlap; SFT", {"moe_overlap": "0"}),
        ("D2H/H2D overlap", {}),
        ("paged stash; full CG", {"cuda_graph": "full"}),
        ("full-iteration CUDA graphs", {"cuda_graph": "full"}),
        ("partial CG", {"cuda_graph": "1"}),
        ("router/preprocess CG", {"cuda_graph": "1"}),
        ("CUDA graphs attn moe_router moe_preprocess", {"cuda_graph": "1"}),
        ("CUDA graphs", {}),
        ("dropless, real routing", {"routing": "natural"}),
        ("items; natural routing; checks on", {"routing": "natural"}),
        ("the router was forced to balance in the first run only", {}),
        ("forced balance, dropless", {"routing": "balanced"}),
        ("force-balanced", {"routing": "balanced"}),
        ("EP overlap, full CG, natural routing", {"moe_overlap": "1", "cuda_graph": "full", "routing": "natural"}),
        ("w/ MTP", {"mtp": "1"}),
        ("w/o MTP", {"mtp": "0"}),
        ("published figure counts the MTP layer", {"mtp": "1"}),
        ("layout Et*4|(tttt|)*14tmL", {"partition": "layout"}),
        ("layout ", {}),
        ("fp8-param-gather tp-comm-overlap", {"quantized_weights": "1"}),
        ("recompute modules ['mla_up_proj', 'mlp']", {**MODULES, "recompute_modules": "mla_up_proj mlp"}),
        ("recompute modules moe_act layernorm", {**MODULES, "recompute_modules": "moe_act layernorm"}),
        ("recompute modules norm, act", {**MODULES, "recompute_modules": "layernorm moe_act"}),
        ("recompute layernorm, moe", {**MODULES, "recompute_modules": "layernorm moe"}),
        ("mlp + core_attn recompute", {**MODULES, "recompute_modules": "mlp core_attn"}),
        ("recompute modules []", {}),
        ("recompute modules ", {}),
        ("recompute modules not given", {}),
        ("recompute modules full", {}),
        ("selective recompute", {}),
    ],
)
def test_a_clause_states_a_cell(note: str, cells: dict[str, str]) -> None:
    assert settings_in_note({"note": note}) == cells


def test_a_column_counts_more_than_a_note() -> None:
    stated = {"moe_overlap": "0", "routing": "natural", "mtp": "0", "cuda_graph": "0", "recompute": "full"}
    note = "EP overlap; forced balance; w/ MTP; full CG; recompute mlp, moe_act"
    assert settings_in_note({"note": note, **stated}) == {}


def test_a_note_says_that_the_graphs_of_a_column_hold_the_whole_iteration() -> None:
    assert settings_in_note({"note": "full CG", "cuda_graph": "1"}) == {"cuda_graph": "full"}
    assert settings_in_note({"note": "partial CG", "cuda_graph": "full"}) == {}


@given(st.text("abcdefgmoe _+'[],|*()/;", max_size=60))
def test_any_note_can_be_read(note: str) -> None:
    assert "note" not in settings_in_note({"note": note})


def test_a_row_runs_as_its_note_says_and_assumes_nothing_of_it() -> None:
    row = only(
        "gpu,experts,top_k,moe_ffn,ep,framework,note",
        "H100-80GB-SXM,8,2,512,4,megatron-core,EP overlap; recompute moe_act layernorm; natural routing; full CG",
    )
    assert row.run is not None
    topology, workload = row.run.topology, row.run.workload
    assert (topology.moe_overlap, topology.recompute) == (True, "layernorm+moe_act")
    assert workload.routing == "natural"
    assert workload.stack is not None
    assert workload.stack.cuda_graph == "full"
    assert "recompute" not in row.assumed
