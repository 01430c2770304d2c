"""FSDP files of a topology: an `accelerate` config and the arguments of `torch.distributed.fsdp`.

Names and values are those of accelerate 1.x's config file with `fsdp_version: 1` and of PyTorch's
`FullyShardedDataParallel`, spelt as attributes of their modules.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from typing import Any, Final

from tuner.core.atomic_write import write_files
from tuner.core.catalog import known_model
from tuner.core.columns import Columns
from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.errors import InputError
from tuner.core.model import Model
from tuner.core.quantity import GIB
from tuner.core.text import listed
from tuner.costmodel.estimate import CostModel
from tuner.export.rendering import as_json, as_yaml
from tuner.launch.ds_config import ds_config
from tuner.launch.trainers.accelerate import PRECISIONS
from tuner.sizing.compare import Comparison, fastest
from tuner.sizing.probes import usable_bytes

_DTYPES: Final = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_SHARDING: Final = {0: "NO_SHARD", 1: "SHARD_GRAD_OP", 2: "SHARD_GRAD_OP", 3: "FULL_SHARD"}
"""FSDP strategy of each ZeRO stage. FSDP shards optimizer state and gradients together, so stage 1 becomes 2."""

_LAYER_CLASSES: Final = (
    (r"bloom-176b", "BloomBlock"),
    (r"deepseek-v2.*", "DeepseekV2DecoderLayer"),
    (r"deepseek-v3|kimi-k2|moonlight-.*", "DeepseekV3DecoderLayer"),
    (r"glm-4\.5.*", "Glm4MoeDecoderLayer"),
    (r"gpt-oss-.*", "GptOssDecoderLayer"),
    (r"llama-4-.*", "Llama4TextDecoderLayer"),
    (r"llama-.*", "LlamaDecoderLayer"),
    (r"mixtral-.*", "MixtralDecoderLayer"),
    (r"olmoe-.*", "OlmoeDecoderLayer"),
    (r"qwen2\.5-.*", "Qwen2DecoderLayer"),
    (r"qwen3-next-.*", "Qwen3NextDecoderLayer"),
    (r"qwen3\.[5-8]-.*-a.*", "Qwen3_5MoeDecoderLayer"),
    (r"qwen3\.[5-8]-.*", "Qwen3_5DecoderLayer"),
    (r"qwen3-.*-a.*", "Qwen3MoeDecoderLayer"),
    (r"qwen3-.*", "Qwen3DecoderLayer"),
)
"""Names of presets, and the class of their layers in transformers 5.23; the first match counts."""


def layer_class(model: Model) -> str | None:
    """Return the transformers class of the layers of a preset; None for any other model."""
    preset = known_model(model.name)
    if preset is None or replace(model, seq=preset.seq, max_positions=preset.max_positions) != preset:
        return None
    return next((name for pattern, name in _LAYER_CLASSES if re.fullmatch(pattern, preset.name)), None)


def unwrapped_note(model: Model) -> str:
    """Return what to do about a layer class that is unknown; empty if it is known."""
    if layer_class(model):
        return ""
    return (
        f"The class of {model.name}'s layers is unknown. Accelerate wraps the classes in _no_split_modules, which "
        "models of transformers have; for another model, set fsdp_transformer_layer_cls_to_wrap. Without accelerate, "
        "set transformer_layer_cls in fsdp.json."
    )


def _check(workload: Workload, topology: Topology) -> None:
    unsupported = {
        "pipeline parallelism": topology.pp > 1,
        "context parallelism": topology.cp > 1,
        "expert parallelism": topology.ep > 1,
        "replica groups": topology.hsdp > 1,
        "selective recomputation": topology.recompute not in ("none", "full"),
        "offload": topology.offload != "none",
    }
    if found := [name for name, is_used in unsupported.items() if is_used]:
        raise InputError(f"the FSDP files of {topology.key} cannot express {listed(found, last='or')}.")
    if workload.precision not in _DTYPES:
        raise InputError(f"FSDP's mixed precision supports fp32, bf16 and fp16, not {workload.precision}.")


def accelerate_config(workload: Workload, topology: Topology, cluster: Cluster) -> str:
    """Return the YAML config for `accelerate launch --config_file`."""
    document = {
        "compute_environment": "LOCAL_MACHINE",
        "debug": False,
        "distributed_type": "FSDP",
        "downcast_bf16": "no",
        "enable_cpu_affinity": False,
        "fsdp_config": {
            "fsdp_activation_checkpointing": topology.recompute == "full",
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_backward_prefetch": "BACKWARD_PRE",
            "fsdp_cpu_ram_efficient_loading": True,
            "fsdp_forward_prefetch": False,
            "fsdp_offload_params": False,
            "fsdp_sharding_strategy": _SHARDING[topology.zero],
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
            "fsdp_sync_module_states": True,
            **({"fsdp_transformer_layer_cls_to_wrap": name} if (name := layer_class(workload.model)) else {}),
            "fsdp_use_orig_params": True,
            "fsdp_version": 1,
        },
        "machine_rank": 0,
        "main_training_function": "main",
        "mixed_precision": PRECISIONS[workload.precision],
        "num_machines": topology.nodes,
        "num_processes": min(topology.gpus, cluster.gpus),
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": False,
    }
    comment = fill(unwrapped_note(workload.model), 100, initial_indent="# ", subsequent_indent="# ")
    return as_yaml(document) + _SPLIT_BY_PROGRAM * (topology.tp > 1) + (f"{comment}\n" if comment else "")


_SPLIT_BY_PROGRAM: Final = """\
# accelerate's FSDP 1 has no tensor parallelism: your program must create the device mesh of fsdp.json
# and split its layers (torch.distributed.tensor.parallel) before wrapping them.
"""


def fsdp_arguments(workload: Workload, topology: Topology) -> dict[str, Any]:
    """Return the arguments of `torch.distributed.fsdp.FullyShardedDataParallel`, with enums as names."""
    dtype = f"torch.{_DTYPES[workload.precision]}"
    global_batch, name = workload.as_in(topology).global_batch, layer_class(workload.model)
    return {
        "device_mesh": {"mesh_shape": [topology.dp, topology.tp], "mesh_dim_names": ["dp", "tp"]}
        if topology.tp > 1
        else {"mesh_shape": [topology.dp], "mesh_dim_names": ["dp"]},
        "sharding_strategy": f"ShardingStrategy.{_SHARDING[topology.zero]}",
        "auto_wrap_policy": {"transformer_auto_wrap_policy": {"transformer_layer_cls": [name] if name else None}},
        "mixed_precision": {"param_dtype": dtype, "reduce_dtype": "torch.float32", "buffer_dtype": dtype},
        "backward_prefetch": "BackwardPrefetch.BACKWARD_PRE",
        "forward_prefetch": False,
        "limit_all_gathers": True,
        "use_orig_params": True,
        "cpu_offload": None,
        "activation_checkpointing": topology.recompute == "full",
        "micro_batch": topology.micro_batch,
        "gradient_accumulation_steps": max(1, topology.microbatches(global_batch)),
        "global_batch": global_batch,
    }


def fsdp_files(workload: Workload, topology: Topology, cluster: Cluster) -> dict[str, str]:
    """Return both files by name; raise `InputError` for a topology that they cannot express."""
    _check(workload, topology)
    return {
        "accelerate.yaml": accelerate_config(workload, topology, cluster),
        "fsdp.json": as_json(fsdp_arguments(workload, topology)),
    }


def _check_memory(workload: Workload, topology: Topology, cluster: Cluster, model: CostModel) -> None:
    """Raise if a topology is predicted to run out of memory as accelerate runs it.

    Between the microbatches of a step, accelerate does not reduce gradients (accelerator.py: no_sync), so that each GPU
    adds them up whole.
    """
    run = replace(workload, framework="fsdp2", plain_layers=False, parallel_loss=True)
    sharded = replace(topology, zero=2 if topology.zero == 1 else topology.zero)
    columns = Columns.of([sharded], run, cluster)
    scores, steps = model.score(columns), int(columns.microbatches[0])
    if scores.fits[0]:
        return
    whole = f", where each GPU has whole gradients until the last of {steps} accumulation steps" if steps > 1 else ""
    term, size = max(scores.estimate(0).memory.terms.items(), key=lambda part: part[1])
    raise InputError(
        f"{topology.key} is estimated to run out of memory with accelerate{whole}: it needs "
        f"{scores.memory[0] / GIB:,.1f} of {usable_bytes(cluster) / GIB:,.1f} usable GiB, {size / GIB:,.1f} of them "
        f"for {term}; use --framework fsdp2 to compare options as accelerate runs them."
    )


def write_comparison(comparison: Comparison, folder: str | Path) -> list[Path]:
    """Write the FSDP and DeepSpeed configs of each model's option with the highest throughput; return their paths.

    Raise `InputError` for an option that the files cannot express, or that does not fit as accelerate runs it.
    """
    written = []
    for options in comparison.models:
        best = fastest(options)
        if not best.fastest:
            continue
        step = best.fastest.step_batch
        global_batch = comparison.global_batch
        batch = global_batch if global_batch and global_batch % step == 0 else step
        workload = replace(best.workload, global_batch=batch)
        topology = replace(best.topology, micro_batch=best.fastest.micro_batch)
        files = fsdp_files(workload, topology, best.cluster)
        if comparison.source == "estimate":
            _check_memory(workload, topology, best.cluster, comparison.cost_model)
        files["ds_config.json"] = as_json(ds_config(workload, topology))
        several = len(comparison.models) > 1
        target = Path(folder) / f"{best.model.name}-h{best.model.heads}" if several else Path(folder)
        written += write_files(target, files, option="--export")
    return written
