"""Time and memory of an optimizer, or a part of it, in main memory: its step on the CPUs, and the copies."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tuner.core.columns import BoolArray, Columns, FloatArray
from tuner.core.offload import OFFLOAD
from tuner.costmodel.framework_terms import terms_of, waiting_gradients
from tuner.costmodel.kernels import size_of
from tuner.costmodel.offload_constants import CPU_ADAM_SECONDS, HOST_LINK_BANDWIDTH, MASTER_BYTES, TORCH_ADAM_SECONDS
from tuner.costmodel.stages import Stages

HOST_LINK: Final = "host_link"
"""The term of copies between GPU and main memory; part of the terms of time where some row offloads."""
OFFLOAD_TERM: Final = "offload"
"""GPU memory of offloading; part of the terms of memory where some row offloads."""

_PARAMETERS: Final = OFFLOAD.index("optimizer+parameters")


def offloads_parameters(columns: Columns) -> BoolArray:
    """Return where parameters are in main memory too."""
    parameters_too: BoolArray = columns.offload == _PARAMETERS
    return parameters_too


def offloaded_step(
    columns: Columns, stage: Stages, visits: FloatArray, terms: dict[str, FloatArray]
) -> dict[str, FloatArray]:
    """Return the terms of the optimizer's step and of copies, where the part that stays steps beside the other.

    The shards of all ranks of a node share its CPUs; `visits` is what a step takes besides.
    """
    framework, share = terms_of(columns.workload), columns.offloaded_share
    each = TORCH_ADAM_SECONDS if framework.torch_adam else CPU_ADAM_SECONDS
    on_cpus = each * columns.cluster.gpus_per_node * stage.elements(sharded=True)
    copies = share * _copies(columns, stage)
    if framework.overlap_offload:
        copies = np.maximum(0.0, copies - share * on_cpus)
    beside = np.maximum(share * on_cpus + visits, (1 - share) * terms["optimizer"])
    return {"optimizer": np.where(share > 0, beside, terms["optimizer"]), HOST_LINK: copies}


def _copies(columns: Columns, stage: Stages) -> FloatArray:
    """Estimate the copies of a whole shard between GPU and main memory, without overlap.

    Each iteration sends the gradients in fp32 and, where the parameters stay on the GPU, returns the updated ones.
    DeepSpeed's ZeRO 2 and 3 add up the gradients of M microbatches in main memory: 2 M - 1 copies; ZeRO 1 makes two if
    M > 1. Parameters in main memory are sent for the forward and for the backward pass of each microbatch (DeepSpeed
    0.19.8, runtime/zero/stage_1_and_2.py and stage3.py). Megatron-Core adds up gradients on the GPU and returns fp32
    weights (core/optimizer/cpu_offloading/hybrid_optimizer.py).
    """
    size, count = size_of(columns.workload), columns.microbatches
    summed = np.where(columns.zero >= 2, 2 * count - 1, 2 * (count > 1))
    sent: Any = 4.0 + size * (summed + np.where(offloads_parameters(columns), 2 * count, 1))
    if terms_of(columns.workload).overlap_offload:
        sent = 4.0 + MASTER_BYTES
    copies: FloatArray = sent * stage.elements(sharded=True) / HOST_LINK_BANDWIDTH
    return copies


def offloaded_memory(stage: Stages, terms: dict[str, FloatArray]) -> dict[str, FloatArray]:
    """Return the bytes that stay on the GPU with offloading, and a buffer for a gradient.

    The optimizer's states and its step leave, or a part of them. Its fp32 weights and gradients stay unless it is
    precision-aware (NVIDIA/Megatron-LM at d98e8a64, megatron/core/optimizer/distrib_optimizer.py:
    _copy_model_grads_to_main_grads). ZeRO 1 adds up whole gradients on the GPU; ZeRO 2 and 3 send theirs to main memory
    bucket by bucket (DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py: temp_grad_buffer_for_gpu_offload). Under
    PyTorch's fully_shard only reduced gradients leave, not whole ones that wait for the last microbatch.
    """
    columns = stage.columns
    framework, share, off = terms_of(columns.workload), columns.offloaded_share, columns.offload > 0
    left = {name: (1 - share) * terms[name] for name in ("optimizer", "step")}
    if not framework.precision_aware_optimizer and size_of(columns.workload) < MASTER_BYTES:
        masters = MASTER_BYTES * stage.elements(sharded=True)
        left = {"optimizer": left["optimizer"] + share * masters, "step": terms["step"]}
    sent = off & (columns.zero >= 2) & ~waiting_gradients(columns)
    left["gradients"] = np.where(sent, 0.0, terms["gradients"])
    left |= {name: np.where(offloads_parameters(columns), 0.0, terms[name]) for name in ("weights", "frozen")}
    matrix = np.maximum(columns.padded_vocab, columns.ffn) * columns.hidden / columns.tp
    buffered = off & (columns.zero <= 2) & (columns.workload.framework != "megatron-core")
    left[OFFLOAD_TERM] = np.where(buffered, size_of(columns.workload) * matrix, np.zeros_like(terms["weights"]))
    return terms | left
