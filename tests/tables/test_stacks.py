"""What a named software stack implies, and what the cells of a row say instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.core.errors import InputError, TunerWarning
from tuner.core.stack import Stack
from tuner.tables import Row, read_table, table_of
from tuner.tables.stacks import STACKS, assumed, framework_of, is_known

SHAPE = "layers,hidden,gated_mlp,tp,sec_per_iter"


def only(columns: str, values: str) -> Row:
    """The row of a table of one."""
    (row,) = table_of(f"{SHAPE},{columns}\n8,1024,1,2,1.5,{values}\n", "one.csv").rows
    return row


@pytest.mark.parametrize(
    ("named", "framework"),
    [
        ("nemo 2 (25.04)", "megatron-core"),
        ("mlperf-nemo", "megatron-core"),
        ("megatron-bridge", "megatron-core"),
        ("nemo-automodel", "fsdp2"),
        ("Megatron-LM", "megatron-core"),
        ("megatron_core", "megatron-core"),
        ("Megatron Bridge", "megatron-core"),
        ("mcore", "megatron-core"),
        ("Megatron DeepSpeed", "megatron-deepspeed"),
        ("megatron-deepspeed", "megatron-deepspeed"),
        ("deepspeed AutoEP", "deepspeed"),
        ("torchtitan fsdp2", "torchtitan"),
        ("pytorch fsdp1", "fsdp2"),
        ("pithtrain", "fsdp2"),
        ("internevo", None),
        ("megatron", "megatron-core"),
        ("deep speed", "deepspeed"),
        ("Megatron Deep Speed", "megatron-deepspeed"),
        ("torch titan", "torchtitan"),
        ("HF Transformers FSDP", "fsdp2"),
        ("Primus", "megatron-core"),
        ("Primus-Megatron v26.2", "megatron-core"),
        ("Primus TorchTitan", "torchtitan"),
        ("FlagScale", "megatron-core"),
        ("ms-swift", "megatron-core"),
        ("Megatron-SWIFT", "megatron-core"),
        ("OLMo-core", "fsdp2"),
        ("VeOmni", "fsdp2"),
        ("nemotron", None),
        ("", None),
    ],
)
def test_a_published_name_is_read_as_its_framework(named: str, framework: str | None) -> None:
    assert framework_of({"framework": named}) == framework


@pytest.mark.parametrize(
    ("named", "other"),
    [
        ("Megatron Core", "megatron-core"),
        ("megatron_core", "megatron-core"),
        ("mcore", "megatron-core"),
        ("Megatron Bridge", "megatron-bridge"),
        ("NeMo_2", "nemo 2"),
        ("Megatron", "megatron-lm"),
        ("Megatron (v2.5)", "megatron-lm"),
        ("Deep Speed", "deepspeed"),
        ("torch_titan", "torchtitan"),
    ],
)
def test_blanks_underscores_and_case_of_a_framework_do_not_matter(named: str, other: str) -> None:
    more = {"precision": "fp8", "gpu": "GB200-192GB", "model": "llama3-8b", "mem_kind": "allocated"}
    assert assumed({**more, "framework": named}) == assumed({**more, "framework": other}) != {}


@pytest.mark.parametrize(
    ("named", "known"),
    [
        *(
            (name, True)
            for name in ("hf", "huggingface", "Hugging Face", "HF Transformers", "trl", "transformers 4.40")
        ),
        *((name, True) for name in ("trl + transformers EP", "NeMo2", "torchtitan fsdp2", "megatron", "deep speed")),
        *((name, False) for name in ("trlx", "Translator", "nemotron", "transformersx", "hfx", "megatronx")),
    ],
)
def test_a_framework_is_known_by_whole_words(named: str, known: bool) -> None:
    assert is_known(named) == known


def test_an_unknown_framework_is_named_once(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("layers,hidden,tp,framework\n4,1024,1,homegrown\n4,1024,2,homegrown\n4,1024,2,internevo\n")
    with pytest.warns(TunerWarning, match="unknown frameworks, for which nothing is assumed: 'homegrown'"):
        read_table(file)


def test_a_table_states_how_weights_are_stored() -> None:
    row = only("gpu,framework,precision,quantized_weights", "H100-80GB-SXM,megatron-bridge,fp8,0")
    assert row.run is not None
    assert row.run.workload.stack is not None
    assert row.run.workload.stack.quantized_weights is False


@pytest.mark.parametrize(("name", "recipe"), [("fp8-blockwise", "blockwise"), ("fp8-tensorwise", "tensorwise")])
def test_megatron_core_names_recipes_after_fp8(name: str, recipe: str) -> None:
    row = only("gpu,framework,precision,precision_recipe", f"H100-80GB-SXM,megatron-core,fp8,{name}")
    assert row.run is not None
    assert row.run.workload.precision_recipe == recipe


def test_without_a_known_stack_the_defaults_are_those_of_every_table() -> None:
    row = only("framework", "homegrown")
    assert row.run is not None
    assert (row.run.workload.framework, row.run.workload.stack) == (None, None)
    assert (row.run.topology.recompute, row.run.topology.sequence_parallel) == ("full", False)
    assert row.assumed["recompute"] == "full"


def test_cells_count_before_what_the_stack_implies() -> None:
    row = only("framework,recompute,grad_precision,overlap_grad,overlap_tp,fused_loss", "nemo 2,full,fp32,0,0.5,0")
    assert row.run is not None
    assert row.run.topology.recompute == "full"
    assert row.run.workload.stack == Stack(
        overlap_grad=0.0, overlap_param=1.0, overlap_tp=0.5, grad_precision="fp32", fused_loss=False
    )
    assert not {"recompute", "grad_precision", "overlap_grad", "overlap_tp", "fused_loss"} & row.assumed.keys()


@pytest.mark.parametrize(
    ("cells", "optimizer"),
    [
        ("megatron-bridge,moonlight-16b", "adam-bf16"),
        ("megatron-bridge,deepseek-v3", "adam-bf16"),
        ("megatron-bridge,qwen3-30b-a3b", "adam"),
        ("megatron-core,deepseek-v3", "adam"),
    ],
)
def test_a_recipe_has_the_moments_of_its_model(cells: str, optimizer: str) -> None:
    row = only("framework,model", cells)
    assert row.run is not None
    assert row.run.workload.optimizer == optimizer
    stated = only("framework,model,optimizer", f"{cells},adam8bit")
    assert stated.run is not None
    assert stated.run.workload.optimizer == "adam8bit"


def test_megatron_fsdp_reduces_gradients_in_bf16_unless_the_table_says_otherwise() -> None:
    usual = only("framework,fsdp", "megatron-core moe,megatron-fsdp")
    stated = only("framework,fsdp,grad_precision", "megatron-core moe,megatron-fsdp,fp32")
    assert usual.run is not None
    assert stated.run is not None
    assert (usual.run.workload.stack, stated.run.workload.stack) == (
        Stack(grad_precision="bf16"),
        Stack(grad_precision="fp32"),
    )


def test_a_single_tensor_parallel_rank_has_no_sequence_parallelism() -> None:
    (row,) = table_of("layers,hidden,tp,sec_per_iter,framework\n8,1024,1,1.5,nemo 2\n", "one.csv").rows
    assert row.run is not None
    assert not row.run.topology.sequence_parallel


@pytest.mark.parametrize("share", ["-0.1", "1.5", "much"])
def test_an_overlap_is_a_share(share: str) -> None:
    row = only("overlap_grad", share)
    assert row.skipped == f"overlap_grad must be a share from 0 to 1, not {share!r}."


def test_every_stack_can_be_named() -> None:
    """No pattern hides behind an earlier one."""
    for pattern, framework, _ in STACKS:
        word = pattern.replace(".*", "").replace("(mlperf-)?", "").split("|", maxsplit=1)[0]
        assert framework_of({"framework": word}) == framework, pattern


def test_an_unknown_gradient_precision_is_refused() -> None:
    row = only("grad_precision", "fp64")
    assert row.skipped is not None
    assert "grad_precision" in row.skipped
    with pytest.raises(InputError, match="grad_precision"):
        Stack(grad_precision="fp64")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("named", "cells", "etp"),
    [
        ("megatron-core", {}, 2),
        ("megatron-core", {"etp": "1"}, 1),
        ("megatron-core moe_dev", {}, 1),
        ("megatron-bridge", {}, 1),
    ],
)
def test_megatron_core_shards_experts_as_attention_unless_the_table_says_otherwise(
    named: str, cells: dict[str, str], etp: int
) -> None:
    more = {"framework": named, "experts": "8", "top_k": "2", "moe_ffn": "64", "ep": "2", "dp": "4", **cells}
    row = only(",".join(more), ",".join(more.values()))
    assert row.run is not None
    assert row.run.topology.etp == etp


def test_a_dense_model_has_no_expert_parallelism() -> None:
    row = only("framework", "megatron-core")
    assert row.run is not None
    assert row.run.topology.etp == 1


RECIPE = {
    "overlap_grad": "1",
    "overlap_param": "1",
    "overlap_tp": "0.94",
    "grad_precision": "bf16",
    "recompute": "none",
    "parallel_loss": "1",
    "fused_loss": "1",
}
TITAN = {"recompute": "selective", "parallel_loss": "1"}
COMPILED = {**TITAN, "compiled": "1", "fused_loss": "1"}
CORE = {"recompute": "none", "parallel_loss": "1"}
FOUNDRY = {"recompute": "none", "parallel_loss": "0", "fused_loss": "1", "unsharded_gradients": "0"}
AUTOMODEL = {
    "recompute": "full",
    "grad_precision": "fp32",
    "state_precision": "bf16",
    "loss_precision": "bf16",
    "routing": "round-robin",
}


@pytest.mark.parametrize(
    ("cells", "implied"),
    [
        ({"framework": "megatron-bridge"}, RECIPE),
        ({"framework": "megatron-bridge", "tp": "1"}, RECIPE),
        ({"framework": "megatron-bridge", "tp": "2"}, {**RECIPE, "sequence_parallel": "1"}),
        ({"framework": "megatron-bridge", "experts": "8"}, RECIPE),
        ({"framework": "megatron-bridge", "ep": "8"}, RECIPE),
        ({"framework": "megatron-bridge", "experts": "8", "ep": "8"}, {**RECIPE, "dispatcher": "hybridep"}),
        ({"framework": "megatron-core", "experts": "8", "ep": "8"}, {**CORE, "etp": "1"}),
        ({"framework": "megatron-core", "experts": "8", "ep": "8", "tp": "4"}, {**CORE, "etp": "4"}),
        ({"framework": "megatron-core", "experts": "8", "ep": "8", "tp": "4", "etp": "2"}, CORE),
        ({"framework": "megatron-core dev", "experts": "8", "ep": "8", "tp": "4"}, CORE),
        ({"framework": "megatron-core", "mem_kind": "Allocated"}, {**CORE, "mem_stage": "last"}),
        ({"framework": "megatron-core", "mem_kind": "reserved"}, CORE),
        ({"framework": "megatron-core", "recompute": "full"}, {"parallel_loss": "1"}),
        ({"framework": "nemo-automodel"}, {"recompute": "full"}),
        ({"framework": "nemo-automodel", "experts": "8", "ep": "8"}, AUTOMODEL),
        ({"framework": "llm-foundry"}, FOUNDRY),
        ({"framework": "llm-foundry", "gpu": "A100-80GB-SXM"}, {**FOUNDRY, "early_stop": "0"}),
        ({"framework": "torchtitan fsdp2", "note": "Torch.compile; 95 GiB"}, COMPILED),
        ({"framework": "torchtitan", "note": "loss and layers compiled"}, COMPILED),
        ({"framework": "torchtitan", "note": "torch.compile off"}, TITAN),
        *[
            ({"framework": "torchtitan", "note": note}, TITAN)
            for note in ("uncompiled", "not compiled", "no torch.compile", "torch.compile: off", "compiled loss only")
        ],
        ({"framework": "pytorch fsdp1", "note": "steps 10 to 20; compile on"}, {"recompute": "none", "compiled": "1"}),
        ({"framework": "megatron-core", "note": "torch.compile"}, CORE),
        ({"framework": "Composer"}, FOUNDRY),
        ({"framework": "pithtrain"}, {"recompute": "none", "grad_precision": "fp32"}),
        ({"framework": "torchtitan fsdp2", "source": "pull 1690 (2025-09)"}, {**TITAN, "loss_chunks": "1"}),
        ({"framework": "torchtitan", "source": "issue 79 (2026-04)"}, {**TITAN, "loss_chunks": "1"}),
        ({"framework": "torchtitan", "source": "issue 79 (2026-07)"}, TITAN),
        ({}, {}),
    ],
)
def test_a_stack_implies_what_applies_to_the_row(cells: dict[str, str], implied: dict[str, str]) -> None:
    """Sequence parallelism needs tp, a dispatcher needs experts that are spread, and a stage its kind of memory."""
    assert assumed(cells) == implied


def test_a_table_states_in_how_many_chunks_the_loss_is_computed() -> None:
    row = only("framework,loss_chunks", "fsdp2,4")
    assert row.run is not None
    assert row.run.workload.stack == Stack(loss_chunks=4)
    refused = only("framework,loss_chunks", "fsdp2,0")
    assert refused.run is None
    assert "loss_chunks" in str(refused.skipped)


def test_a_table_of_kempner_forge_states_what_its_program_does() -> None:
    text = """\
framework,gpu,nodes,gpus_per_node,layers,hidden,heads,gated_mlp,tp,dp,zero,mbs,gbs,recompute,sec_per_iter
kempnerforge fsdp2,H200-141GB-SXM,1,2,32,4096,32,1,2,1,3,4,8,full,2.5
torchtitan fsdp2,H100-80GB-SXM,1,8,32,4096,32,1,8,1,3,4,8,,2.5
"""
    forge, titan = (row.run for row in table_of(text, "runs.csv").rows)
    assert forge is not None
    assert titan is not None
    stack = forge.workload.stack
    assert stack is not None
    assert (stack.grad_precision, stack.state_precision, stack.loss_precision) == ("fp32", "bf16", "bf16")
    assert (forge.topology.sequence_parallel, forge.workload.parallel_loss) == (True, False)
    assert (titan.topology.sequence_parallel, titan.workload.parallel_loss) == (True, True)
    assert titan.topology.recompute == "selective"


def test_a_row_of_a_machine_without_gpus_is_skipped_with_the_reason() -> None:
    row = only("gpu", "CPU")
    assert row.skipped == "it ran on CPUs, which the cost model does not describe; measure on GPUs."
