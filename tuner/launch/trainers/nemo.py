"""NeMo: overrides `section.name=value` of Megatron Bridge's recipes and of NeMo 2's.

Read in megatron-bridge 0.3.1 and NVIDIA-NeMo/Megatron-Bridge at 067f987d (`training/config.py`, `scripts/training/
run_recipe.py`), and in NVIDIA-NeMo/NeMo at 8cfedd72 (`lightning/pytorch/strategies/megatron_strategy.py`,
`collections/llm/recipes/llama3_8b.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tuner.core.domain import QUANTIZED, Topology, Workload
from tuner.core.frameworks import context_exchange
from tuner.core.model import Model
from tuner.core.precision import STORED_IN_FP8
from tuner.launch.trainers.kind import Flags, TrainerKind
from tuner.launch.trainers.megatron_arguments import core_stack
from tuner.launch.trainers.megatron_limits import refuse_unsearched
from tuner.launch.trainers.megatron_lm import connections, dispatch, overlaps_gradients, recomputation, stage_layout
from tuner.launch.trainers.nemo_model import PARALLEL, check_overrides, with_overrides

_ACTIVATIONS: Final = (
    *("recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_modules"),
    *("moe_token_dispatcher_type", "moe_flex_dispatcher_backend"),
)
_SHORT: Final = ("-tp", "-pp", "-cp", "-vp", "-ep", "-etp", "-mb", "-gb", "-sl")
"""Bridge's short options of the same settings."""
_GLOBAL_BATCH: Final = ("train.global_batch_size", "data.global_batch_size", "--global_batch_size", "-gb")
_SEQUENCE: Final = ("dataset.seq_length", "data.seq_length", "--seq_length", "-sl", "model.seq_length")


def _is_nemo2(flags: Flags) -> bool:
    """Whether a command is NeMo 2's instead of Megatron Bridge's."""
    return "--factory" in flags or any(flag.startswith(("trainer.", "data.")) for flag in flags)


def _job_flags(flags: Flags, workload: Workload, topology: Topology, _: Path) -> list[str]:
    parallel = _parallel(workload, topology)
    activations = _activations(workload.model, topology)
    sharded = topology.zero == 1
    overlapped = {"overlap_grad_reduce": overlaps_gradients(topology), "overlap_param_gather": sharded}
    if _is_nemo2(flags):
        settings = {
            **_under("trainer.strategy", parallel),
            **_under("model.config", {**activations, "seq_length": workload.model.seq}),
            **_under("data", _batch(workload, topology)),
            "data.seq_length": workload.model.seq,
            **_under("trainer.strategy.ddp", overlapped),
            "optim.config.use_distributed_optimizer": sharded,
            "trainer.num_nodes": topology.nodes,
            "trainer.devices": topology.gpus // topology.nodes,
            "trainer.limit_val_batches": 0,
            "trainer.log_every_n_steps": 1,
        }
        return [f"{name}={_python(value)}" for name, value in settings.items()]
    settings = {
        **_under("model", {**parallel, **activations, "seq_length": workload.model.seq}),
        "++dataset.seq_length": workload.model.seq,  # a property in 0.3.1, where its field is sequence_length
        **_under("train", {**_batch(workload, topology), "rampup_batch_size": None, "eval_iters": 0}),
        **_under("ddp", {"use_distributed_optimizer": sharded, **overlapped}),
        "optimizer.use_distributed_optimizer": sharded,
        **_under("checkpoint", {"save": None, "load": None}),
        "logger.log_interval": 1,
    }
    return [f"{name}={_hydra(value)}" for name, value in settings.items()]


def _parallel(workload: Workload, topology: Topology) -> dict[str, Any]:
    """Return the fields of a topology's degrees; the layers determine how stages are split."""
    model, exchange = workload.model, context_exchange(workload)
    counted = topology.partition == "embedding"
    found: dict[str, Any] = {
        "tensor_model_parallel_size": topology.tp,
        "pipeline_model_parallel_size": topology.pp,
        "virtual_pipeline_model_parallel_size": topology.vpp if topology.vpp > 1 else None,
        "context_parallel_size": topology.cp,
        "sequence_parallel": topology.sequence_parallel,
        "account_for_embedding_in_pipeline_split": counted,
        "account_for_loss_in_pipeline_split": counted,
        "num_layers_in_first_pipeline_stage": None,
        "num_layers_in_last_pipeline_stage": None,
        "pipeline_model_parallel_layout": stage_layout(model, topology) if topology.partition == "layout" else None,
    }
    experts = {"expert_model_parallel_size": topology.ep, "expert_tensor_parallel_size": topology.etp}
    exchanged = {"cp_comm_type": exchange} if topology.cp > 1 and exchange != "p2p" else {}
    return {**found, **exchanged, **(experts if model.experts else {})}


def _activations(model: Model, topology: Topology) -> dict[str, Any]:
    """Return all fields of recomputation, and those of the token dispatcher."""
    found: dict[str, Any] = {"recompute_granularity": None, "recompute_method": None, "recompute_num_layers": None}
    for flag, *values in [*recomputation(topology), *(dispatch(topology) if model.experts else [])]:
        name, value = flag.removeprefix("--").replace("-", "_"), values[0]
        found[name] = values if name == "recompute_modules" else int(value) if value.isdecimal() else value
    return found


def _batch(workload: Workload, topology: Topology) -> dict[str, Any]:
    return {"micro_batch_size": topology.micro_batch, "global_batch_size": workload.global_batch}


def _under(section: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{section}.{name}": value for name, value in settings.items()}


def _hydra(value: object) -> str:
    """Return a value as Hydra parses it."""
    if isinstance(value, list):
        return f"[{','.join(value)}]"
    if isinstance(value, str) and "|" in value:  # a layout of stages
        return f"'{value}'"
    return (
        {True: "true", False: "false", None: "null"}[value] if value is None or isinstance(value, bool) else f"{value}"
    )


def _python(value: object) -> str:
    """Return a value as NeMo-Run parses it, in Python's syntax."""
    return repr(value) if isinstance(value, str) and "|" in value else f"{value}"


def _pinned(flags: Flags) -> dict[str, str]:
    """Return whether an override makes the exchange of tokens overlap, which jobs leave as it is."""
    named = [value for name, value in flags.items() if name.endswith(".overlap_moe_expert_parallel_comm")]
    return {"moe_overlap": "on" if "true" in map(str.lower, named) else "off"}


def _named(flags: Flags) -> str:
    """Return the name of the precision recipe, or of the recipe that has one."""
    return flags.get("mixed_precision") or flags.get("trainer.plugins") or flags.get("--recipe") or ""


def _precision(flags: Flags) -> str | None:
    """Return the precision of the recipe's plugin or name; None for the recipe's unknown default."""
    return next((name for name in ("fp4", "fp8", "bf16", "fp16") if name in _named(flags)), None)


_RECIPES: Final = {
    "nanov2_bf16_with_fp8_current": "blockwise",
    **dict.fromkeys(("fp8_delayed", "with_fp8_mixed", "fp8ds", "fp8_ds"), "delayed"),
    **dict.fromkeys(("fp8_current", "fp8cs", "fp8_cs"), "tensorwise"),
    **dict.fromkeys(("fp8_subchannel", "fp8_blockwise", "fp8sc", "fp8_sc"), "blockwise"),
    **dict.fromkeys(("mxfp8", "fp8mx", "fp8_mx"), "mxfp8"),
}
"""Parts of the names of precision recipes, and how each scales fp8 tensors."""


_BF16_LAYERS: Final = {
    **dict.fromkeys(("nemotron_h_bf16_with_fp8_current", "nanov2_bf16_with_fp8_current"), ("2", "2")),
    "with_fp8_current_scaling": ("1", "1"),
    "nemotron_3_super_bf16_with_nvfp4": ("0", "14"),
}
"""Parts of the names of precision recipes that keep first and last layers in bf16, and how many (NVIDIA-NeMo/
Megatron-Bridge at 067f987d, src/megatron/bridge/training/mixed_precision.py; NVIDIA/NeMo at 0a07447c, nemo/collections/
llm/recipes/precision/mixed_precision.py)."""


def _recipe(flags: Flags) -> str | None:
    """Return the recipe that the name means; None if it means none."""
    return next((found for word, found in _RECIPES.items() if word in _named(flags)), None)


def _scaling(flags: Flags) -> dict[str, str | bool | None]:
    """Return the recipe that the name means, whether it stores weights in fp8, and its layers in bf16, unless fields
    override that."""
    name = _named(flags)
    layers = {"bf16_layers": _kept(flags)} if _precision(flags) in QUANTIZED else {}
    if (recipe := _recipe(flags)) is None:
        return {**layers}
    stored = recipe in STORED_IN_FP8["nemo" if _is_nemo2(flags) else "megatron-bridge"] or "nanov2" in name
    given = _field(flags, "fp8_param_gather", _field(flags, "fp8_param", str(stored)))
    return {"precision_recipe": recipe, "fp8_weights": given.lower() == "true", **layers}


def _kept(flags: Flags) -> str | None:
    """Return the numbers of first and last layers in bf16, None without any."""
    usual = next((layers for word, layers in _BF16_LAYERS.items() if word in _named(flags)), None)
    first, last = usual or ("0", "0")
    if _field(flags, "first_last_layers_bf16", str(usual is not None)).lower() != "true":
        return None
    named = (("start", first), ("end", last))
    return ",".join(_field(flags, f"num_layers_at_{end}_in_bf16", layers) for end, layers in named)


def _field(flags: Flags, name: str, usual: str) -> str:
    """Return the override of a field of the precision recipe."""
    return flags.get(f"mixed_precision.{name}", flags.get(f"trainer.plugins.{name}", usual))


NEMO: Final = TrainerKind(
    name="nemo",
    framework=lambda _: "megatron-core",
    replaced=(
        *_SHORT,
        *(f"--{name}" for name in (*PARALLEL, "micro_batch_size", "global_batch_size", "seq_length")),
        *("--save_dir", "--load_dir", "--save_interval"),
        *(f"model.{name}" for name in (*PARALLEL, *_ACTIVATIONS, "seq_length")),
        *(f"model.config.{name}" for name in (*_ACTIVATIONS, "seq_length")),
        *(f"trainer.strategy.{name}" for name in PARALLEL),
        *(f"train.{name}" for name in ("micro_batch_size", "global_batch_size", "rampup_batch_size", "eval_iters")),
        *("train.eval_interval", "checkpoint.save", "checkpoint.load", "checkpoint.save_interval"),
        *("dataset.seq_length", "data.seq_length", "data.micro_batch_size", "data.global_batch_size"),
        *(f"ddp.{name}" for name in ("use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather")),
        *("trainer.strategy.ddp.overlap_grad_reduce", "trainer.strategy.ddp.overlap_param_gather"),
        *("optimizer.use_distributed_optimizer", "optim.config.use_distributed_optimizer", "logger.log_interval"),
        *("logger.wandb_project", "logger.wandb_exp_name", "logger.wandb_save_dir", "logger.wandb_entity"),
        *("logger.tensorboard_dir", "logger.log_progress"),
        *("trainer.num_nodes", "trainer.devices", "trainer.limit_val_batches", "trainer.log_every_n_steps"),
    ),
    job_flags=_job_flags,
    precision=_precision,
    scaling=_scaling,
    stack=lambda flags, workload: core_stack({"cross_entropy_loss_fusion": "true", **flags}, workload),
    pinned=_pinned,
    lacks={"offload": "none", "hsdp": "1"},
    sequence=_SEQUENCE,
    global_batch=_GLOBAL_BATCH,
    length={"train.train_iters": "steps", "train.train_samples": "sequences", "trainer.max_steps": "steps"},
    environment=lambda _, topology: connections(topology),
    check=check_overrides,
    trained=lambda flags, model: with_overrides(flags, model, _recipe(flags)),
    expand=lambda flags: refuse_unsearched("nemo", flags),
    has_overrides=True,
)
