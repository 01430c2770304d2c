"""The software stacks that published tables name, and the defaults that each implies for a table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, get_args

from tuner.core.domain import Framework, PrecisionRecipe
from tuner.core.precision import STORED_IN_FP8
from tuner.core.stack import OVERLAPPED_TP
from tuner.tables.release_recipes import release_recipe

Cells = Mapping[str, str]

_RECIPES: Final[Cells] = {
    "overlap_grad": "1",
    "overlap_param": "1",
    "overlap_tp": str(OVERLAPPED_TP),
    "grad_precision": "bf16",
    "recompute": "none",
    "sequence_parallel": "1",
    "parallel_loss": "1",
    "fused_loss": "1",
}
"""NVIDIA's performance recipes: NVIDIA-NeMo/Megatron-Bridge, scripts/performance (moe_flex_dispatcher_backend in
configs/*/*_workload_base_configs.py, cross_entropy_fusion_impl in utils/overrides.py) and
src/megatron/bridge/training/comm_overlap.py; grad_reduce_in_fp32 false (pull request 595); Megatron-Core recomputes
only where asked to."""

_MEGATRON_LM: Final[Cells] = {
    **dict.fromkeys(("overlap_grad", "overlap_param"), "0"),
    **dict.fromkeys(("split_sends", "parallel_loss"), "1"),
    "recompute": "none",
}
"""Megatron-LM before Megatron-Core (NVIDIA/Megatron-LM v2.5, megatron/arguments.py): scatter_gather_tensors_in_pipeline
is on, and gradients are reduced after the last pass (arXiv 2104.04473, section 4.1)."""

_MEGATRON_CORE: Final[Cells] = {"recompute": "none", "parallel_loss": "1", "mem_stage": "last"}
"""Megatron-Core's training loop logs mem-max-allocated-bytes to TensorBoard, whose writer is on the last rank
(NVIDIA/Megatron-LM at d98e8a64, megatron/training/global_vars.py: _set_tensorboard_writer)."""

_KEMPNER_FORGE: Final[Cells] = {
    "recompute": "none",
    "sequence_parallel": "1",
    "parallel_loss": "0",
    "grad_precision": "fp32",
    "state_precision": "bf16",
    "loss_precision": "bf16",
}
"""KempnerInstitute/KempnerForge at 01b461a7, kempnerforge/distributed/parallel.py: the model is cast to bf16 and
reduce_dtype is float32; distributed/tensor_parallel.py: SequenceParallel, the head gathers its logits;
training/loss.py: cross_entropy of these; training/grad.py: set_requires_gradient_sync(False) before the last
microbatch."""

_LLM_FOUNDRY: Final[Cells] = {
    "recompute": "none",
    "parallel_loss": "0",
    "fused_loss": "1",
    "unsharded_gradients": "0",
}
"""mosaicml/llm-foundry at 51652eae, scripts/train/benchmarking/submit_benchmarks.py: FSDP's mixed precision is PURE,
norms are in 16 bits; llmfoundry/models/mpt/modeling_mpt.py: fused_crossentropy, and use_train_metrics, which computes
the loss again. mosaicml/composer, composer/trainer/dist_strategy.py: ddp_sync_context skips FSDP, so that each
microbatch's gradients are reduced."""

_TITAN: Final[Cells] = {"recompute": "selective", "sequence_parallel": "1", "parallel_loss": "1"}

_PITH_TRAIN: Final[Cells] = {"recompute": "none", "grad_precision": "fp32"}
"""mlc-ai/pith-train at 889a408, pithtrain/modules/training.py: apply_fsdp, reduce_dtype is float32; nothing is
recomputed."""

PRECISION_RECIPES: Final[Mapping[str, PrecisionRecipe]] = {
    **{recipe: recipe for recipe in get_args(PrecisionRecipe)},
    **dict.fromkeys(("fp8-ds", "fp8_ds"), "delayed"),
    **dict.fromkeys(("fp8-cs", "fp8_cs", "fp8-tensorwise"), "tensorwise"),
    **dict.fromkeys(("fp8-mx", "fp8_mx"), "mxfp8"),
    **dict.fromkeys(("fp8-sc", "fp8_sc", "fp8-blockwise"), "blockwise"),
}
"""NVIDIA's names of the recipes (NVIDIA-NeMo/Megatron-Bridge, scripts/performance/README.md)."""


_NEMO: Final = r"nemo(?![a-z]|-(automodel|rl))"
_NVIDIA: Final = rf"{_NEMO}|megatron-bridge"
_FIRST: Final = r"25\.0[245]"
"""Releases whose scripts are NeMo's v2.3.0 or earlier."""
_GRAPHS: Final[Cells] = {"cuda_graph": "full"}


def _stored(product: str, name: str) -> tuple[Cells, Cells]:
    """Return the cells of rows of the product, or of one whose recipe is not stated, that store weights in fp8."""
    recipes = rf"({'|'.join(STORED_IN_FP8[product])})?$"
    return {"framework": name, "precision": "fp8", "precision_recipe": recipes}, {"quantized_weights": "1"}


def _selective(modules: str) -> Cells:
    return {"recompute": "selective", "recompute_modules": modules}


_UNFUSED_LATENT: Final[Cells] = {**_selective("core_attn"), "attention": "fused"}
"""Until Transformer Engine 2.5, no kernel on Blackwell had heads wider than 128 (NVIDIA/TransformerEngine v2.4,
common/fused_attn/fused_attn.cpp: nvte_get_fused_attn_backend), so latent attention was a softmax between two products.
Its scores are computed again (NVIDIA/dgxc-benchmarking at c5c765f, deepseek_v3/pretraining/launch.sh: core_attn)."""

_PADDED: Final[Cells] = {"capacity_factor": "1", "padded_experts": "1", "dispatcher": "alltoall"}
"""NeMo's scripts set MegatronTokenDropCallback unless DeepEP exchanges the tokens (NVIDIA/NeMo at 5ee7adee, scripts/
performance/llm/finetune_deepseek_v3.py), and results of Megatron-Bridge say "tokendrop" (v0.2.0, src/megatron/bridge/
training/utils/moe_token_drop.py)."""
_ALL_TO_ALL: Final = r"(all[-_]?to[-_]?all)?$"
"""A dispatcher that is not stated, or that pads experts to their capacity."""

_AUTOMODEL_EXPERTS: Final[Cells] = {
    "grad_precision": "fp32",
    "state_precision": "bf16",
    "loss_precision": "bf16",
    "routing": "round-robin",
}
"""NVIDIA-NeMo/Automodel at 79d0ccfd, examples/benchmark/configs: activation_checkpointing, torch.optim.Adam of a model
in bf16, fp32_upcast false, fake_balanced_gate; nemo_automodel/components/moe/parallelizer.py: reduce_dtype float32."""

_DENIED: Final = r"(?:(?!\b(?:not?|non|never|without|off|disabled|false|only)\b)[^;,])*"


def _says(words: str) -> str:
    """Return the pattern of a note with these words in a clause that denies or limits nothing."""
    return rf"(?:.*[;,])?{_DENIED}\b(?:{words})\b{_DENIED}(?:[;,]|$)"


_COMPILED: Final = _says(r"torch\.compile|compile on|compiled")

_AWARE: Final = r"(deepseek-v3|moonlight|olmoe)\b"
"""Models whose recipes of Megatron-Bridge set use_precision_aware_optimizer."""
_PART: Final = r"optimizer|[0.]*[1-9]"
"""An offload that is not none."""

_BESIDE: Final[tuple[tuple[Cells, Cells], ...]] = (
    ({"framework": "nemo-automodel", "experts": "[1-9]"}, _AUTOMODEL_EXPERTS),
    ({"framework": "megatron-bridge", "model": rf"(?!{_AWARE})", "offload": _PART}, {"precision_aware_optimizer": "0"}),
    ({"framework": "megatron-bridge", "model": _AWARE}, {"optimizer": "adam-bf16"}),
    ({"framework": "megatron-bridge", "note": _says("token[- ]?drop")}, _PADDED),
    ({"fsdp": "megatron-fsdp$"}, {"grad_precision": "bf16"}),
    _stored("megatron-bridge", "megatron-bridge"),
    _stored("nemo", rf"(mlperf-)?{_NEMO}"),
    ({"framework": "megatron-bridge", "precision": "fp4"}, {"overlap_tp": "0"}),
    ({"framework": _NVIDIA, "release": r"25\."}, {"cudnn": "9.13"}),
    ({"framework": _NVIDIA, "release": r"25\.", "precision_recipe": "mxfp8"}, {"overlap_param": "0"}),
    ({"framework": "mlperf-nemo"}, {"cudnn": "9.13", "fused_loss": "0"}),
    ({"framework": _NEMO, "release": r"25\.02"}, {"fused_loss": "0"}),
    ({"framework": _NEMO, "model": r"grok-1|mixtral-"}, {"fused_permutation": "0"}),
    ({"framework": _NEMO, "experts": "[1-9]", "dispatcher": _ALL_TO_ALL}, _PADDED),
    ({"framework": _NEMO, "model": "deepseek-v3|mixtral-8x22b"}, {"overlap_tp": "0"}),
    ({"framework": _NEMO, "model": "deepseek-v3", "gpu": "h100", "release": _FIRST}, _selective("mla_up_proj")),
    ({"framework": _NEMO, "model": "deepseek-v3", "gpu": "g?b200", "release": _FIRST}, _UNFUSED_LATENT),
    ({"framework": _NEMO, "gpu": "gb200", "model": r"gpt3-|grok-1|llama3-8b|mixtral-8x7b|nemotron4-"}, _GRAPHS),
    ({"framework": _NEMO, "gpu": "b200", "model": r"llama3-|mixtral-8x7b|nemotron4-"}, _GRAPHS),
    ({"framework": _NEMO, "gpu": "h100", "model": r"llama4-", "precision": "fp8"}, _GRAPHS),
    ({"framework": r".*(fsdp|torchtitan)", "note": _COMPILED}, {"compiled": "1"}),
    ({"framework": "llm-foundry|composer", "gpu": "a100"}, {"early_stop": "0"}),
    ({"framework": "torchtitan", "note": _COMPILED}, {"fused_loss": "1"}),
    ({"framework": "torchtitan", "source": r".*\((20(1\d|2[0-5])\b|2026-0[1-4])"}, {"loss_chunks": "1"}),
)
"""Patterns of several columns, and the cells that a run has where all of them match.

Megatron-Bridge's recipes train three models with the precision-aware optimizer and moments in bf16
(NVIDIA-NeMo/Megatron-Bridge v0.3.0 and v0.4.0, src/megatron/bridge/recipes: exp_avg_dtype); its performance recipes in
NVFP4 set tp_comm_overlap to False (v0.2.0 to v0.4.0, scripts/performance/configs). Megatron-FSDP sets
--megatron-fsdp-grad-comm-dtype and --megatron-fsdp-main-grads-dtype to bf16 (NVIDIA/Megatron-LM at 861b2e8e,
examples/megatron_fsdp/sbatch_mfsdp_deepseek_v3.sh). NVIDIA's releases of 2025 have cuDNN 9.13 or earlier (Megatron-
Bridge v0.2.0, docs/releases/software-versions.md) and gather parameters before the pass in mxfp8 (the same,
scripts/performance/configs; NVIDIA/NeMo v2.4.0, scripts/performance/helpers.py). MLPerf's runs, of 2024 and 2025, use
other scripts, NeMo's before v2.3.0 set no cross_entropy_fusion_impl, and those of Mixtral (v2.2.0 to v2.4.0) and Grok-1
(7a8f1cc7) no moe_permute_fusion. NeMo's CUDA graphs: v2.3.0, scripts/performance/recommended_model_configs, and
NVIDIA/dgxc-benchmarking at c5c765f, launch.sh of grok1, llama4 and nemotron. llm-foundry's runs on A100s are older than
torch 2.1, whose checkpoint was the first to stop early (mosaicml/llm-foundry at c6cfb428, scripts/train/benchmarking/
README.md). torchtitan computes its loss in chunks since April 2026 (pytorch/torchtitan at 786e26f8), and compiles it
with the model (torchtitan/config/configs.py: CompileConfig)."""

_AS_TP: Final = "tp"
"""Megatron-Core shards experts as it shards attention unless set otherwise (NVIDIA/Megatron-LM at d98e8a64,
megatron/core/model_parallel_config.py: expert_tensor_parallel_size). Recipes for its branches state 1
(yanring/Megatron-MoE-ModelZoo, model_configs/benchmarking)."""

STACKS: Final[tuple[tuple[str, Framework | None, Cells], ...]] = (
    (r"nemo-automodel", "fsdp2", {"recompute": "full"}),
    (r"primus-torchtitan|primus-titan", "torchtitan", _TITAN),
    (r"mlperf-amd|primus|flagscale|(ms|megatron)-swift", "megatron-core", {"recompute": "none", "parallel_loss": "1"}),
    (r"(mlperf-)?nemo", "megatron-core", _RECIPES),
    (r"megatron-bridge", "megatron-core", {**_RECIPES, "dispatcher": "hybridep"}),
    (r"megatron-lm", "megatron-core", _MEGATRON_LM),
    (r"megatron-core$", "megatron-core", {**_MEGATRON_CORE, "etp": _AS_TP}),
    (r"megatron-core", "megatron-core", _MEGATRON_CORE),
    (r"megatron-deepspeed", "megatron-deepspeed", {"parallel_loss": "1"}),
    (r"deepspeed", "deepspeed", {"recompute": "none"}),
    (r"trl|transformers", None, {}),
    (r"internevo", None, {"overlap_grad": "1"}),  # InternLM/InternEvo, configs/7B_sft.py: overlap_sync_grad
    (r"torchtitan", "torchtitan", _TITAN),
    (r"kempnerforge", "fsdp2", _KEMPNER_FORGE),
    (r"llm-foundry|composer", "fsdp2", _LLM_FOUNDRY),
    (r"pithtrain", "fsdp2", _PITH_TRAIN),
    (r"olmo-core|torchtune|veomni|xtuner|.*fsdp", "fsdp2", {"recompute": "none"}),
)
"""Patterns of the column `framework` (with hyphens for blanks and underscores), the framework that runs, and the cells
that its runs have where a table states nothing else. The first pattern that matches counts. Primus runs Megatron-LM
unless it names torchtitan (AMD-AGI/Primus, docs/02-user-guide/pretraining.md); FlagScale and ms-swift
run Megatron-Core."""


def recipe_as_precision(cells: Cells) -> dict[str, str]:
    """Return the cells with a recipe that is given as the precision (`mxfp8`) in its own column."""
    named = cells.get("precision", "").lower()
    if named not in PRECISION_RECIPES or not re.search("fp[48]", named):
        return dict(cells)
    return {"precision_recipe": named, **cells, "precision": "fp4" if "fp4" in named else "fp8"}


def framework_of(cells: Cells) -> Framework | None:
    """Return the framework that the cells name, None if they name none that is known."""
    return _stack(cells)[0]


def assumed(cells: Cells) -> dict[str, str]:
    """Return the values that the cells' stack implies for empty columns."""
    implied = dict(_stack(cells)[1])
    if cells.get("tp", "1") == "1":
        implied.pop("sequence_parallel", None)
    given = {column: value.lower() for column, value in cells.items()} | {"framework": _folded(cells)}
    given["precision_recipe"] = PRECISION_RECIPES.get(given.get("precision_recipe", ""), "")
    if not (cells.get("experts") and cells.get("ep")):
        implied.pop("dispatcher", None)
        implied.pop("etp", None)
    elif given["framework"].startswith("megatron-bridge"):
        implied |= release_recipe(given)
    for patterns, more in _BESIDE:
        if all(re.match(pattern, given.get(column, "")) for column, pattern in patterns.items()):
            implied |= more
    if implied.get("etp") == _AS_TP:
        implied["etp"] = cells.get("tp", "1")
    if cells.get("mem_kind", "").lower() != "allocated":
        implied.pop("mem_stage", None)
    return {column: value for column, value in implied.items() if column not in cells}


def is_known(name: str) -> bool:
    """Whether the column `framework` means something by this name."""
    return _found(_folded({"framework": name})) is not None


def _folded(cells: Cells) -> str:
    """Return the name of the framework with hyphens as in `STACKS`."""
    named = re.sub(r"[\s_]+", "-", cells.get("framework", "").strip().lower())
    named = re.sub(r"^mcore\b", "megatron-core", named)
    named = re.sub(r"^megatron(?=$|-?\(|-v?[0-9])", "megatron-lm", named)
    named = re.sub(r"\b(deep-(?=speed)|torch-(?=titan))", lambda found: found[0][:-1], named)
    return re.sub(r"^(hf|hugging-?face)(-transformers)?(?![a-z]|.*fsdp)", "transformers", named)


def _found(named: str) -> tuple[Framework | None, Cells] | None:
    """Return the framework and the implied cells of a folded name, None if no pattern matches its whole words."""
    for pattern, framework, implied in STACKS:
        if re.match(rf"(?:{pattern})(?![a-z])", named):
            return framework, implied
    return None


def _stack(cells: Cells) -> tuple[Framework | None, Cells]:
    return _found(_folded(cells)) or (None, {})
