"""Columns of experts: the model and the parallelism that they describe, and rows that they are written as."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.tables.test_tables import only
from tuner.core.catalog import model as catalog_model
from tuner.core.documents import topology_document, topology_of
from tuner.core.domain import Topology, Workload
from tuner.core.experts import Experts
from tuner.tables import blocks, table_of
from tuner.tables.writing import model_cells

SIZES = "layers,hidden,heads,ffn,gated_mlp,seq,vocab,experts,top_k,moe_ffn"
GROK = "64,6144,48,32768,1,8192,131072,8,2,32768"
QWEN = "model,layers,hidden,heads,kv_heads,ffn,gated_mlp,seq,vocab,experts,top_k,moe_ffn"


def described(header: str, values: str) -> tuple[Topology, Workload]:
    row = only(f"{header},mbs\n{values},1\n")
    assert row.run is not None, row.skipped
    return row.run.topology, row.run.workload


def test_columns_alone_describe_experts_in_a_llama() -> None:
    header = f"{SIZES},shared_ffn,dense_layers,head_dim,ep,etp,dispatcher,nodes,mtp"
    topology, workload = described(header, f"{GROK},1024,3,64,4,2,DeepEP,8,1")
    model = workload.model
    assert model.experts == Experts(count=8, top_k=2, ffn=32768, shared_ffn=1024, dense_layers=3)
    assert (model.head_size, model.mtp_layers, model.norm, model.latent) == (64, 1, "rmsnorm", None)
    assert (topology.ep, topology.etp, topology.dispatcher) == (4, 2, "deepep")


def test_the_overlap_of_exchanges_is_read_and_off_unless_a_cell_states_it() -> None:
    header = f"{SIZES},framework,ep,nodes,moe_overlap"
    for cell, on in (("1", True), ("on", True), ("0", False), ("off", False), ("", False)):
        topology, _ = described(header, f"{GROK},megatron-core,8,1,{cell}")
        assert topology.moe_overlap is on
    topology, _ = described(header.replace("moe_overlap", "EP overlap"), f"{GROK},megatron-core,8,1,yes")
    assert topology.moe_overlap


@pytest.mark.parametrize("cell", ["layernorm moe_act", "['layernorm', 'moe_act']", "layernorm,moe_act"])
def test_modules_of_selective_recomputation_are_read(cell: str) -> None:
    row = only(f'{SIZES},recompute,mbs,recompute_modules\n{GROK},selective,1,"{cell}"\n')
    assert row.run is not None
    topology = row.run.topology
    assert topology.recompute == "layernorm+moe_act"
    assert topology_of(json.loads(json.dumps(topology_document(topology)))) == topology
    joined, _ = described(f"{SIZES},recompute", f"{GROK},moe_act+layernorm")
    assert joined.recompute == "layernorm+moe_act"
    usual, _ = described(f"{SIZES},recompute", f"{GROK},selective")
    assert usual.recompute == "selective"


def test_a_row_without_experts_is_dense() -> None:
    topology, workload = described("layers,hidden,experts,moe_ffn", "4,1024,0,")
    assert workload.model.experts is None
    assert (topology.ep, topology.etp, topology.dispatcher) == (1, 1, "alltoall")


def test_the_catalogs_model_of_that_name_and_size_adds_what_has_no_column() -> None:
    _, workload = described(QWEN, "Qwen3-235B,94,4096,64,4,12288,1,16384,151936,128,8,1536")
    known = catalog_model("qwen3-235b-a22b")
    assert workload.model == replace(known, seq=16384)
    _, other = described(QWEN, "qwen3-235b,94,4096,64,4,12288,1,4096,151936,64,8,1536")
    assert other.model.experts == Experts(count=64, top_k=8, ffn=1536), "another number of experts is another model"
    assert not other.model.qk_norm


@pytest.mark.parametrize("name", ["llama-3-8b", "qwen3-30b-a3b", "deepseek-v3", "bloom-176b"])
def test_a_named_model_needs_no_columns_of_its_sizes(name: str) -> None:
    """The sizes are the catalog's and listed as assumed; only the sequence is the table's."""
    row = only(f"model,layers,seq,mbs\n{name},,4096,1\n")
    known = catalog_model(name)
    assert row.run is not None, row.skipped
    assert row.run.workload.model == replace(known, seq=4096, max_positions=max(4096, known.max_positions))
    sizes = {column: value for column, value in model_cells(known).items() if column not in ("model", "seq")}
    assert row.assumed.items() >= sizes.items()


def test_a_stated_cell_precedes_the_named_models() -> None:
    row = only("model,vocab,seq,mbs\nllama-3-8b,128256,4096,1\n")
    assert row.run is not None
    assert row.run.workload.model.vocab == 128256
    assert "vocab" not in row.assumed
    assert row.assumed["hidden"] == "4096"


@pytest.mark.parametrize("cells", ["layers=16", "heads=64", "ffn=11008", "experts=8", "hidden=x"])
def test_a_stated_size_that_contradicts_the_named_model_leaves_the_others_missing(cells: str) -> None:
    column, value = cells.split("=")
    row = only(f"model,{column},mbs\nllama-3-8b,{value},1\n")
    assert row.run is None
    assert not {"gated_mlp", "vocab"} & row.assumed.keys()


def test_latent_attention_and_interleaved_layers_come_from_the_catalog() -> None:
    sizes = "shared_ffn,dense_layers"
    header = f"{QWEN},{sizes}"
    _, deepseek = described(header, "deepseek-v3,61,7168,128,128,18432,1,4096,129280,256,8,2048,2048,3")
    assert deepseek.model.latent == catalog_model("deepseek-v3").latent
    assert deepseek.model.mtp_layers == 1
    _, cut = described(header, "deepseek-v3,14,7168,128,128,18432,1,4096,129280,256,8,2048,2048,1")
    assert (cut.model.layers, cut.model.dense_mlp_layers) == (14, 1)
    _, maverick = described(header, "llama4-maverick,48,5120,40,8,16384,1,8192,202048,128,1,8192,8192,24")
    assert maverick.model.experts is not None
    assert (maverick.model.experts.period, maverick.model.dense_mlp_layers) == (2, 24)
    _, without = described(f"{header},mtp", "deepseek-v3,61,7168,128,128,18432,1,4096,129280,256,8,2048,2048,3,0")
    assert without.model.mtp_layers == 0


def test_a_test_model_of_megatron_has_the_attention_and_router_of_its_model() -> None:
    header = f"{QWEN},shared_ffn,dense_layers"
    name = "deepseekv3_proxy_flex_tp1pp4emp16etp1cp1_release"
    _, proxy = described(header, f"{name},14,7168,128,128,18432,1,4096,129280,64,8,2048,2048,3")
    known = catalog_model("deepseek-v3")
    assert known.experts is not None
    assert (proxy.model.latent, proxy.model.mtp_layers, proxy.model.layers) == (known.latent, 1, 14)
    assert proxy.model.experts == replace(known.experts, count=64)
    _, narrow = described(header, f"{name},14,4096,32,32,18432,1,4096,129280,64,8,2048,2048,3")
    assert narrow.model.latent is None, "other widths are another model"


def test_a_recipe_without_ep_has_no_fused_dispatcher() -> None:
    topology, _ = described(f"{SIZES},framework", f"{GROK},megatron-bridge")
    assert (topology.ep, topology.dispatcher) == (1, "alltoall")
    topology, _ = described(f"{SIZES},framework,ep,nodes", f"{GROK},megatron-bridge,8,1")
    assert (topology.ep, topology.dispatcher) == (8, "hybridep")


@pytest.mark.parametrize(
    ("word", "read"),
    [
        ("flex", "deepep"),
        ("flex+hybridep", "hybridep"),
        ("hybridep 32 SMs", "hybridep"),
        ("Hybrid-EP", "hybridep"),
        ("all-to-all", "alltoall"),
        ("A2A", "alltoall"),
        ("All to all", "alltoall"),
        ("NCCL", "alltoall"),
        ("AG", "allgather"),
        ("all-gather", "allgather"),
    ],
)
def test_a_dispatcher_has_other_spellings(word: str, read: str) -> None:
    assert described(f"{SIZES},dispatcher,ep", f"{GROK},{word},1")[0].dispatcher == read


@pytest.mark.parametrize(
    ("header", "values", "reason"),
    [
        (
            "layers,hidden,experts,moe_ffn",
            "4,1024,8,512",
            "top_k is missing; add a column, or pass --default top_k=VALUE.",
        ),
        (f"{SIZES},recompute_modules", f"{GROK},moe pigeon", "recompute modules are core_attn, layernorm"),
        ("layers,hidden,experts,top_k", "4,1024,8,2", "moe_ffn is missing, the width of one expert."),
        (f"{SIZES},dispatcher", f"{GROK},pigeon", "dispatcher must be allgather, alltoall, deepep or hybridep"),
        (
            f"{SIZES},dispatcher",
            f"{GROK},hybridep",
            "ep is missing: hybridep sends tokens among ep > 1 ranks;",
        ),
        (f"{SIZES},dispatcher", f"{GROK},flex", "ep is missing: deepep sends tokens"),
        ("layers,hidden,experts,top_k,moe_ffn", "4,1024,8,9,64", "top_k must be at most count=8"),
    ],
)
def test_a_row_whose_experts_are_not_described_is_skipped_with_the_reason(
    header: str, values: str, reason: str
) -> None:
    row = only(f"{header},sec_per_iter\n{values},1.0\n")
    assert row.run is None
    assert reason in (row.skipped or "")


def test_rows_of_different_experts_are_not_one_block() -> None:
    rows = (f"{GROK},1", f"{GROK.replace(',8,2,', ',8,4,')},1", f"{GROK},2")
    table = table_of("\n".join([f"{SIZES},mbs", *rows, ""]), "t.csv")
    assert sorted(len(block.rows) for block in blocks(table.rows)) == [1, 2]


@pytest.mark.parametrize(
    ("cells", "sign"),
    [
        ({"ep": "8"}, "ep is 8"),
        ({"dispatcher": "deepep"}, "dispatcher is deepep"),
        ({"top_k": "2", "experts": "0"}, "top_k is 2"),
        ({"model": "qwen3-30b-a3b"}, "qwen3-30b-a3b is a mixture of experts"),
    ],
)
def test_a_mixture_without_its_experts_is_skipped(cells: dict[str, str], sign: str) -> None:
    row = only(f"layers,hidden,mbs,{','.join(cells)}\n4,2048,1,{','.join(cells.values())}\n")
    assert row.run is None
    assert row.skipped == f"experts is missing: {sign}; add experts, top_k and moe_ffn."


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ("3,,3", "8 experts are not divisible by ep(3)."),
        ("4,2,4", "tp x cp x dp = 4 ranks are not divisible by etp(2) x ep(4); check dp and nodes."),
        ("4,2,8", None),
        ("4,2,", None),
    ],
)
def test_experts_that_no_program_can_spread_are_skipped(cells: str, why: str | None) -> None:
    """Without dp or nodes, the number of ranks is unknown."""
    assert only(f"{SIZES},mbs,ep,etp,dp\n{GROK},1,{cells}\n").skipped == why
