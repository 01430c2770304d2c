"""Quantities of matrix products that the rules evaluate, and messages for violations.

The functions that return a message take columns with one row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from tuner.core.columns import Columns
from tuner.core.domain import COUNTED, LAYOUT, Workload, layout_chunks
from tuner.core.offload import OFFLOAD, OFFLOAD_ZERO
from tuner.core.text import counted, listed

LONGEST_FUSED: Final = 4096
"""Maximum sequence length of Megatron's fused softmax kernel."""

NARROWEST_HEAD: Final = 64
WIDEST_HEAD: Final = 256
"""Range of head sizes for which FlashAttention 3 has kernels."""

NEEDED_ZERO: Final = np.array([OFFLOAD_ZERO[offload] for offload in OFFLOAD])
"""The lowest ZeRO stage for each value of `OFFLOAD`."""

_HOST_BYTES: Final = 16.0
"""Bytes of a node's main memory per offloaded parameter: weights, gradients and two moments in fp32 (DeepSpeed 0.19.8,
runtime/zero/stage_1_and_2.py and stage3.py), without 16-bit buffers."""


def host_bytes(columns: Columns) -> Any:
    """Return the bytes of a node's main memory that the offloaded states of its ranks take."""
    if not np.any(columns.offload):
        return np.zeros(np.shape(columns.tp))
    return columns.offloaded_share * _HOST_BYTES * stepped(columns) * columns.cluster.gpus_per_node


def stepped(columns: Columns) -> Any:
    """Return the parameters whose states a rank has, of an average stage, if they are sharded."""
    model = columns.workload.model
    tables = (1 if model.tied_embeddings else 2) * columns.padded_vocab * columns.hidden
    dense = columns.layers * columns.layer_matrices + tables
    share = (model.parameters - model.routed_parameters if model.experts else dense) / (columns.tp * columns.shards)
    share = share + model.routed_parameters / (columns.etp * columns.ep * columns.expert_shards)
    return share / columns.pp


def softmax_block(seq: int) -> int:
    """Return the number of attention batches per block of Megatron's fused softmax kernel.

    A block has 128 threads, which are four warps; each warp processes two rows of up to 128 keys, or one longer row
    (Megatron-LM, scaled_masked_softmax.h, get_batch_per_block).
    """
    return 8 if seq <= 128 else 4


def longest_flash_head(columns: Columns) -> int:
    """Return the maximum head size of the workload's flash attention kernel."""
    return 256 if columns.workload.attention == "flash2" else 128


def fp8_sizes(columns: Columns) -> dict[str, Any]:
    """Return the sizes of a rank's matrices that are multiplied in fp8 or fp4, by owner; experts are whole."""
    model, tp = columns.workload.model, columns.tp
    keys = np.maximum(columns.kv_heads / tp, 1) * columns.head_size
    sizes = {"hidden": columns.hidden, "queries": columns.heads * columns.head_size / tp, "keys": keys}
    if delta := model.delta_net:
        sizes["Gated DeltaNet"], sizes["its output"] = delta.projected / tp, delta.value_width / tp
    if model.dense_mlp_layers:
        sizes["MLP"] = columns.ffn / tp
    if experts := model.experts:
        sizes["experts"] = expert_width(columns)
        sizes["shared experts"] = columns.hidden * experts.shared_ffn / model.hidden / tp
    return sizes


def expert_width(columns: Columns) -> Any:
    """Return the width of an expert, which has its share of a shape's hidden size."""
    model = columns.workload.model
    return columns.hidden * (model.experts.ffn if model.experts else 0) / model.hidden


def fp8_unit(workload: Workload) -> int:
    """Return the number by which the sizes of fp8 and fp4 matrices must be divisible."""
    return 32 if workload.precision_recipe == "mxfp8" else 16


def uneven_fp8_sizes(columns: Columns, sizes: Mapping[str, Any], split: str) -> str:
    """Return a message with the sizes that do not divide, by a degree."""
    unit, precision = fp8_unit(columns.workload), columns.workload.precision
    uneven = [f"{size:g} ({name})" for name, size in sizes.items() if size % unit]
    return f"{listed(uneven)} of a rank's columns at {split} are not divisible by {unit}, which {precision} needs"


def attention_mask(workload: Workload) -> str:
    """Return the model's attention mask other than the causal one; empty without one."""
    if workload.model.windowed_share:
        return f"sliding window of {workload.model.window} tokens"
    return "ALiBi" if workload.model.positions == "alibi" else ""


def head_weight(columns: Columns) -> Any:
    """Return the output layer's matrix-product work relative to that of an average layer, of which a token passes
    through the shared experts and those that it is routed to."""
    model, layer = columns.workload.model, columns.layer_matrices
    if experts := model.experts:
        width = experts.token_ffn * columns.hidden / model.hidden
        share = experts.moe_layers_before(columns.layers) / columns.layers
        layer = layer + share * (3 if model.gated_mlp else 2) * columns.hidden * (width - columns.ffn)
    scores = 2 * model.seq * columns.heads * columns.head_size * columns.attention_layers / columns.layers
    return columns.hidden * model.vocab / (layer + scores)


def stage_excess(columns: Columns) -> Any:
    """Return the relative excess of work of the fullest pipeline stage over the average."""
    head = head_weight(columns)
    share, last = columns.units / columns.pp, columns.units / columns.pp - (columns.partition == COUNTED)
    if np.any(columns.partition == LAYOUT):
        most, rest = layout_chunks(columns.layers, columns.pp * columns.vpp)
        share = np.where(columns.partition == LAYOUT, most * columns.vpp, share)
        last = np.where(columns.partition == LAYOUT, most * (columns.vpp - 1) + rest, last)
    fullest = np.maximum(share, last + head)
    return np.where(columns.pp > 1, fullest / ((columns.layers + head) / columns.pp) - 1, 0.0)


def wave_efficiency(columns: Columns) -> Any:
    """Return the fraction of its waves of 256 x 128 tiles that the MLP's first product fills; gated ones are twice as
    wide."""
    model = columns.workload.model
    tokens = np.maximum(1, columns.micro_batch * model.seq // columns.cp)
    tiles = -(-tokens // 256) * -(-(1 + model.gated_mlp) * columns.ffn // (128 * columns.tp))
    sms = columns.cluster.gpu.sms
    return tiles / (-(-tiles // sms) * sms)


def fused_softmax_refuses(columns: Columns) -> Any:
    """Return whether Megatron's kernel is unavailable (is_kernel_available in its fused_softmax.py)."""
    seq, precision = columns.workload.model.seq, columns.workload.precision
    never = precision not in ("fp16", "bf16") or not 16 < seq <= LONGEST_FUSED or seq % 4 != 0
    return never | (columns.heads * columns.micro_batch % (softmax_block(seq) * columns.tp) != 0)


def ramp_breaks(columns: Columns) -> Any:
    """Return whether a batch of the ramp-up is not divisible, or the ramp-up never reaches the global batch."""
    ramp = columns.workload.ramp
    if ramp is None:
        return np.False_
    step = columns.micro_batch * columns.dp
    unreached = (columns.global_batch < ramp.start) | ((columns.global_batch - ramp.start) % ramp.increment != 0)
    return (ramp.start % step != 0) | (ramp.increment % step != 0) | unreached


def leaves_nvlink_domain(columns: Columns) -> Any:
    """Return whether tensor parallel ranks reach beyond an NVLink domain, or share a node unevenly with others."""
    tp, node = columns.tp, columns.cluster.gpus_per_node
    return (tp > columns.cluster.domain) | ((node % tp != 0) & (tp % node != 0))


def nvlink_domain(columns: Columns) -> str:
    """Return a message about the tensor parallel ranks that do not fit into nodes or domains."""
    node, domain = columns.cluster.gpus_per_node, columns.cluster.nvlink_domain
    if domain and columns.tp > domain:
        return f"tp={columns.tp} does not fit into an NVLink domain of {domain} GPUs"
    return f"tp={columns.tp} does not fit evenly into nodes of {node} GPUs"


def fused_softmax(columns: Columns) -> str:
    """Return a message about the kernel's condition that fails."""
    seq, block = columns.workload.model.seq, softmax_block(columns.workload.model.seq)
    if columns.workload.precision not in ("fp16", "bf16"):
        return f"the kernel supports fp16 or bf16, not {columns.workload.precision}"
    if not 16 < seq <= LONGEST_FUSED or seq % 4:
        return f"the kernel supports sequences of 20 to {LONGEST_FUSED} tokens in multiples of 4, not {seq}"
    batches = columns.heads * columns.micro_batch / columns.tp
    return (
        f"(heads/tp) x micro_batch = ({columns.heads}/{columns.tp}) x {columns.micro_batch} = {batches:g} "
        f"is not a multiple of {block}"
    )


def gpus(columns: Columns) -> str:
    """Return a message about the product of degrees that does not equal the number of GPUs."""
    available = columns.nodes * columns.cluster.gpus_per_node
    cp = f" x cp({columns.cp})" if columns.cp > 1 else ""
    if available % columns.replica:
        return f"tp({columns.tp}) x pp({columns.pp}){cp} = {columns.replica} does not divide {available} GPUs"
    used = columns.replica * columns.dp
    product = f"tp({columns.tp}) x pp({columns.pp}){cp} x dp({columns.dp}) = {used}"
    return f"{product} is not the {counted(available, 'GPU')} of {counted(columns.nodes, 'node')}"


def stages(columns: Columns) -> str:
    """Return a message about the layers that are not divisible by the stages."""
    if columns.partition == COUNTED:
        units = f"{columns.layers} layers, embedding and head make {columns.units}"
        return f"{units}, which pp={columns.pp} does not divide"
    return f"{columns.layers} layers cannot be divided into pp={columns.pp} stages"


def ramp(columns: Columns) -> str:
    """Return a message about the batch of the ramp-up that is not divisible or not reached."""
    ramp = columns.workload.ramp
    if ramp is None:
        return ""
    step = f"micro_batch x dp = {columns.micro_batch} x {columns.dp} = {columns.micro_batch * columns.dp}"
    if ramp.start % (columns.micro_batch * columns.dp) or ramp.increment % (columns.micro_batch * columns.dp):
        return f"the ramp-up from {ramp.start} by {ramp.increment} has batches that are not divisible by {step}"
    return f"the ramp-up from {ramp.start} by {ramp.increment} never reaches global batch {columns.global_batch}"
