"""What NVIDIA's recipes imply, by framework, release, GPU and model."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.tables.test_stacks import only
from tuner.core.catalog import catalog, known_model
from tuner.core.domain import Dispatcher, PrecisionRecipe, Topology
from tuner.core.recompute import MODULES
from tuner.core.recorded import recorded
from tuner.core.stack import Stack
from tuner.costmodel.framework_terms import terms_of


def test_a_recipe_of_nvidia_implies_what_its_table_leaves_open() -> None:
    row = only("framework", "nemo 2")
    assert row.run is not None
    assert row.run.topology.recompute == "none"
    assert row.run.topology.sequence_parallel
    assert row.run.workload.parallel_loss
    assert row.run.workload.stack == Stack(
        overlap_grad=1.0, overlap_param=1.0, overlap_tp=0.94, grad_precision="bf16", fused_loss=True
    )
    assert row.assumed["recompute"] == "none"


@pytest.mark.parametrize(
    ("framework", "precision", "recipe", "stored"),
    [
        ("megatron-bridge", "fp8", "fp8-cs", True),
        ("megatron-bridge", "fp8", "mxfp8", True),
        ("megatron-bridge", "fp8", "fp8", True),
        ("megatron-bridge", "fp8", "fp8-sc", False),
        ("megatron-bridge", "fp8", "fp8-blockwise", False),
        ("megatron-bridge", "fp4", "nvfp4", False),
        ("megatron-bridge", "bf16", "", False),
        ("nemo 2", "fp8", "fp8-cs", True),
        ("nemo 2", "fp8", "fp8-mx", False),
        ("nemo-automodel", "fp8", "fp8-cs", False),
        ("megatron-core", "fp8", "fp8-cs", False),
    ],
)
def test_most_fp8_recipes_of_nvidia_store_weights_in_fp8(
    framework: str, precision: str, recipe: str, stored: bool
) -> None:
    row = only("gpu,framework,precision,precision_recipe", f"GB200-192GB,{framework},{precision},{recipe}")
    assert row.run is not None
    assert terms_of(row.run.workload).quantized_weights == stored
    assert ("quantized_weights" in row.assumed) == stored


@pytest.mark.parametrize(
    ("framework", "precision", "overlapped"),
    [("megatron-bridge", "fp8", 0.94), ("megatron-bridge", "fp4", 0.0), ("nemo 2", "fp8", 0.94)],
)
def test_bridge_does_not_overlap_tensor_parallel_traffic_in_nvfp4(
    framework: str, precision: str, overlapped: float
) -> None:
    row = only("gpu,framework,precision", f"GB200-192GB,{framework},{precision}")
    assert row.run is not None
    assert terms_of(row.run.workload).overlap_tp == overlapped


@pytest.mark.parametrize(
    ("framework", "release", "recipe", "cudnn", "gathers", "fused"),
    [
        ("megatron-bridge", "25.11", "fp8-cs", "9.13", 1.0, True),
        ("megatron-bridge", "25.11", "fp8-mx", "9.13", 0.0, True),
        ("megatron-bridge", "26.02", "fp8-mx", None, 1.0, True),
        ("nemo 2", "25.02", "fp8-cs", "9.13", 1.0, False),
        ("nemo 2 (25.04)", "25.05", "fp8-cs", "9.13", 1.0, True),
        ("mlperf-nemo", "5.0", "fp8", "9.13", 1.0, False),
        ("nemo-automodel", "25.11", "fp8-cs", None, 0.0, False),
    ],
)
def test_nvidias_releases_differ_in_their_software(
    framework: str, release: str, recipe: str, cudnn: str | None, gathers: float, fused: bool
) -> None:
    columns, values = "gpu,precision,precision_recipe,framework,release", f"GB200-192GB,fp8,{recipe},{framework}"
    row = only(columns, f"{values},{release}")
    assert row.run is not None
    terms = terms_of(row.run.workload)
    assert (terms.cudnn, terms.overlap_param, terms.fused_loss) == (cudnn, gathers, fused)
    assert row.assumed.get("cudnn") == cudnn


@pytest.mark.parametrize(
    ("framework", "gpu", "model", "precision", "graph"),
    [
        ("nemo 2", "GB200-192GB", "llama3-8b", "bf16", "full"),
        ("nemo 2 (25.04)", "GB200-192GB", "nemotron4-340b", "fp8", "full"),
        ("nemo 2", "GB200-192GB", "llama3.1-405b", "fp8", "none"),
        ("nemo 2", "B200-180GB-SXM", "llama3-70b", "fp8", "full"),
        ("nemo 2", "B200-180GB-SXM", "gpt3-175b", "fp8", "none"),
        ("nemo 2", "H100-80GB-SXM", "llama4-maverick", "fp8", "full"),
        ("nemo 2", "H100-80GB-SXM", "llama4-maverick", "bf16", "none"),
        ("megatron-bridge", "GB200-192GB", "llama3-8b", "bf16", "none"),
    ],
)
def test_nemos_configurations_record_some_models_as_cuda_graphs(
    framework: str, gpu: str, model: str, precision: str, graph: str
) -> None:
    row = only("gpu,framework,model,precision", f"{gpu},{framework},{model},{precision}")
    assert row.run is not None
    assert terms_of(row.run.workload).cuda_graph == graph


@pytest.mark.parametrize(
    ("framework", "cells", "capacity", "padded"),
    [
        ("nemo 2 (25.04)", "", 1.0, True),
        ("megatron-bridge", "", 0.0, False),
        ("nemo 2", "1.5,0", 1.5, False),
        ("nemo 2", "0,0", 0.0, False),
    ],
)
def test_nemos_recipes_pad_experts_to_their_capacity(framework: str, cells: str, capacity: float, padded: bool) -> None:
    columns = "framework,model,experts,top_k,moe_ffn" + (",capacity_factor,padded_experts" if cells else "")
    row = only(columns, f"{framework},mixtral-8x7b,8,2,14336" + (f",{cells}" if cells else ""))
    assert row.run is not None, row.skipped
    workload = row.run.workload
    assert workload.model.experts is not None
    assert (workload.model.experts.capacity_factor, terms_of(workload).padded_experts) == (capacity, padded)


@pytest.mark.parametrize(
    ("dispatcher", "padded"), [("alltoall", True), ("all-to-all", True), ("deepep", False), ("flex", False)]
)
def test_only_tokens_of_an_all_to_all_are_padded(dispatcher: str, padded: bool) -> None:
    columns, values = "framework,model,experts,top_k,moe_ffn,ep,dispatcher", "nemo 2,mixtral-8x7b,8,2,14336,2"
    row = only(columns, f"{values},{dispatcher}")
    assert row.run is not None, row.skipped
    assert terms_of(row.run.workload).padded_experts == padded
    assert ("capacity_factor" in row.assumed) == padded


def test_a_capacity_is_a_number() -> None:
    row = only("model,experts,top_k,moe_ffn,capacity_factor", "mixtral-8x7b,8,2,14336,much")
    assert row.skipped == "capacity_factor must be a positive number from 1e-12 to 1e15, not 'much'."


@pytest.mark.parametrize(
    ("gpu", "release", "attention", "recompute", "overlapped"),
    [
        ("GB200-192GB", "25.05", "fused", "selective", 0.0),
        ("GB200-192GB", "25.07", "flash2", "none", 0.0),
        ("H100-80GB-SXM", "25.05", "flash2", "mla_up_proj", 0.0),
    ],
)
def test_nemos_first_runs_of_deepseek_on_blackwell_had_no_fused_attention(
    gpu: str, release: str, attention: str, recompute: str, overlapped: float
) -> None:
    row = only("gpu,framework,release,model", f"{gpu},nemo 2,{release},deepseek-v3")
    assert row.run is not None, row.skipped
    stack = row.run.workload.stack
    assert stack is not None
    assert row.run.workload.attention == attention
    assert (row.run.topology.recompute, stack.overlap_tp) == (recompute, overlapped)


def test_a_version_of_cudnn_is_numbers_and_dots() -> None:
    row = only("gpu,framework,cudnn", "GB200-192GB,megatron-core,latest")
    assert row.skipped == "cudnn must be a version, such as 9.18, not 'latest'."


EXPERTS = "gpu,gpus_per_node,nodes,experts,top_k,moe_ffn,ep,framework,release,model"


def bridge(gpu: str, release: str, model: str, more: tuple[str, str] = ("", "")) -> Topology:
    """The topology of a mixture's row in a table of Megatron-Bridge's release."""
    columns, values = more
    run = only(f"{EXPERTS}{columns}", f"{gpu},8,8,128,8,768,8,megatron-bridge,{release},{model}{values}").run
    assert run is not None
    return run.topology


@pytest.mark.parametrize(
    ("gpu", "release", "model", "dispatcher", "overlaps", "recompute"),
    [
        ("GB200-192GB", "26.04", "gpt-oss-120b", "hybridep", True, "layernorm+moe_act"),
        ("GB200-192GB", "26.02", "gpt-oss-120b", "alltoall", False, "layernorm+moe_act"),
        ("H100-80GB-SXM", "26.02.01", "qwen3-235b-a22b", "alltoall", True, "none"),
        ("H100-80GB-SXM", "26.02.01", "Qwen3-235B", "alltoall", True, "none"),
        ("H100-80GB-SXM", "25.11", "deepseek-v3", "deepep", True, "mla_up_proj+mlp"),
        ("H100-80GB-SXM", "27.01", "deepseek-v3", "hybridep", False, "none"),
        ("A100-80GB-SXM", "26.04", "deepseek-v3", "hybridep", False, "none"),
        ("H100-80GB-SXM", "26.04", "mixtral-8x7b", "hybridep", False, "none"),
    ],
)
def test_a_mixture_of_a_release_of_bridge_runs_as_its_recipe_says(
    gpu: str, release: str, model: str, dispatcher: str, overlaps: bool, recompute: str
) -> None:
    topology = bridge(gpu, release, model)
    assert (topology.dispatcher, topology.moe_overlap, topology.recompute) == (dispatcher, overlaps, recompute)


def test_what_a_row_states_counts_more_than_its_releases_recipe() -> None:
    stated = bridge(
        *("GB200-192GB", "26.04", "gpt-oss-120b"),
        (",recompute,dispatcher,moe_overlap,pp,vpp", ",full,alltoall,0,1,1"),
    )
    assert (stated.recompute, stated.dispatcher, stated.moe_overlap) == ("full", "alltoall", False)


def test_a_pipeline_without_chunks_overlaps_no_exchange() -> None:
    """Megatron-Core's schedule overlaps the exchange in pipelines with chunks only."""
    assert not bridge("H100-80GB-SXM", "26.04", "qwen3-235b-a22b", (",pp", ",2")).moe_overlap
    assert bridge("H100-80GB-SXM", "26.04", "qwen3-235b-a22b", (",pp,vpp", ",2,2")).moe_overlap


@pytest.mark.parametrize(
    ("precision", "recipe", "graphs"),
    [("bf16", "", "partial"), ("fp8", "fp8-cs", "partial"), ("fp8", "mxfp8", "full"), ("fp8", "", "partial")],
)
def test_the_recipe_depends_on_the_precision(precision: str, recipe: str, graphs: str) -> None:
    run = only(
        f"{EXPERTS},precision,precision_recipe",
        f"GB200-192GB,4,16,128,8,768,8,megatron-bridge,26.06,qwen3-30b-a3b,{precision},{recipe}",
    ).run
    assert run is not None
    assert run.workload.stack is not None
    assert run.workload.stack.cuda_graph == graphs


@pytest.mark.parametrize(
    ("note", "dropped"),
    [("tokendrop", True), ("FP8; token drop; checks on", True), ("no tokendrop", False), ("dropless", False)],
)
def test_token_drop_pads_experts_to_their_capacity(note: str, dropped: bool) -> None:
    run = only(f"{EXPERTS},note", f"H100-80GB-SXM,8,8,128,8,768,8,megatron-bridge,25.09,qwen3-30b-a3b,{note}").run
    assert run is not None
    assert run.workload.model.experts is not None
    assert run.workload.model.experts.capacity_factor == float(dropped)
    assert terms_of(run.workload).padded_experts == dropped


def test_each_recipe_can_be_read() -> None:
    """Values of the recorded recipes are legal, and no two recipes are for the same release, model, GPU, precision."""
    seen = set[tuple[str, ...]]()
    for row in recorded("recipes", "megatron-bridge")[1]:
        assert known_model(row["model"])
        assert any(name.startswith(f"{row['gpu']}-") for name in catalog().gpu)
        assert row["dispatcher"] in get_args(Dispatcher)
        assert (row["moe_overlap"], row["cuda_graph"]) in {(a, b) for a in "01" for b in ("0", "1", "full")}
        assert set(row["recompute_modules"].split()) <= set(MODULES)
        precisions = row["precisions"].split() or [*get_args(PrecisionRecipe), "bf16"]
        keys = {(row["model"], row["gpu"], release, each) for release in row["releases"].split() for each in precisions}
        assert not keys & seen
        seen |= keys
