"""A topology under FSDP: an `accelerate` config, and the arguments of `torch.distributed.fsdp`.

Names and values are those of accelerate 1.x's config file with `fsdp_version: 1` and of PyTorch's
`FullyShardedDataParallel`, spelt as attributes of their modules.
"""

from __future__ import annotations

import json
from typing import Any, Final

from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.errors import InputError

_DTYPES: Final = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_SHARDING: Final = {0: "NO_SHARD", 1: "SHARD_GRAD_OP", 2: "SHARD_GRAD_OP", 3: "FULL_SHARD"}
"""What a ZeRO stage is under FSDP, which shards the optimizer's state and gradients together: it has no stage 1."""

LAYER: Final = "TransformerBlock"
"""The class that holds one layer where nobody says what it is called."""


def _check(workload: Workload, topology: Topology) -> None:
    if topology.pp > 1 or topology.cp > 1:
        raise InputError(f"FSDP has no pipeline and no context parallelism; {topology.key} asks for them.")
    if workload.precision not in _DTYPES:
        raise InputError(f"FSDP's mixed precision knows no {workload.precision}; it has fp32, bf16 and fp16.")


def accelerate_config(workload: Workload, topology: Topology, cluster: Cluster, *, layer: str = LAYER) -> str:
    """The YAML file that `accelerate launch --config_file` takes."""
    _check(workload, topology)
    precision = {"fp32": "no"}.get(workload.precision, workload.precision)
    lines = [
        "compute_environment: LOCAL_MACHINE",
        "debug: false",
        "distributed_type: FSDP",
        "downcast_bf16: 'no'",
        "enable_cpu_affinity: false",
        "fsdp_config:",
        f"  fsdp_activation_checkpointing: {_yaml(topology.recompute == 'full')}",
        "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP",
        "  fsdp_backward_prefetch: BACKWARD_PRE",
        "  fsdp_cpu_ram_efficient_loading: true",
        "  fsdp_forward_prefetch: false",
        "  fsdp_offload_params: false",
        f"  fsdp_sharding_strategy: {_SHARDING[topology.zero]}",
        "  fsdp_state_dict_type: SHARDED_STATE_DICT",
        "  fsdp_sync_module_states: true",
        f"  fsdp_transformer_layer_cls_to_wrap: {layer}",
        "  fsdp_use_orig_params: true",
        "  fsdp_version: 1",
        "machine_rank: 0",
        "main_training_function: main",
        f"mixed_precision: '{precision}'",
        f"num_machines: {topology.nodes}",
        f"num_processes: {min(topology.gpus, cluster.gpus)}",
        "rdzv_backend: static",
        "same_network: true",
        "use_cpu: false",
    ]
    if topology.tp > 1:
        lines += [
            "# Tensor parallelism is not accelerate's FSDP 1 to do: the program makes the mesh of fsdp.json and cuts",
            "# its layers (torch.distributed.tensor.parallel) before it wraps them.",
        ]
    return "\n".join([*lines, ""])


def fsdp_arguments(workload: Workload, topology: Topology, *, layer: str = LAYER) -> dict[str, Any]:
    """What `torch.distributed.fsdp.FullyShardedDataParallel` is to be given, enums as their names."""
    _check(workload, topology)
    dtype = f"torch.{_DTYPES[workload.precision]}"
    asked = workload.as_in(topology)
    step = topology.micro_batch * topology.dp
    return {
        "device_mesh": {"mesh_shape": [topology.dp, topology.tp], "mesh_dim_names": ["dp", "tp"]}
        if topology.tp > 1
        else {"mesh_shape": [topology.dp], "mesh_dim_names": ["dp"]},
        "sharding_strategy": f"ShardingStrategy.{_SHARDING[topology.zero]}",
        "auto_wrap_policy": {"transformer_auto_wrap_policy": {"transformer_layer_cls": [layer]}},
        "mixed_precision": {"param_dtype": dtype, "reduce_dtype": "torch.float32", "buffer_dtype": dtype},
        "backward_prefetch": "BackwardPrefetch.BACKWARD_PRE",
        "forward_prefetch": False,
        "limit_all_gathers": True,
        "use_orig_params": True,
        "cpu_offload": None,
        "activation_checkpointing": topology.recompute == "full",
        "micro_batch": topology.micro_batch,
        "gradient_accumulation_steps": max(1, asked.global_batch // step),
        "global_batch": asked.global_batch,
    }


def fsdp_files(workload: Workload, topology: Topology, cluster: Cluster, *, layer: str = LAYER) -> dict[str, str]:
    """Both as files."""
    arguments = fsdp_arguments(workload, topology, layer=layer)
    return {
        "accelerate.yaml": accelerate_config(workload, topology, cluster, layer=layer),
        "fsdp.json": json.dumps(arguments, indent=2) + "\n",
    }


def _yaml(flag: bool) -> str:
    return "true" if flag else "false"
