"""Bytes on one GPU under PyTorch's fully_shard (FSDP2) with PyTorch's own layers, by term.

Counted, nothing is fitted: PyTorch 2.13, distributed/fsdp/_fully_shard, and pytorch/torchtitan at b5bcd76,
distributed/fsdp.py and distributed/activation_checkpoint.py. The optimizer updates shards of the weights that the
model was created with; a layer's are cast as they are gathered, and freed behind it with ZeRO 3. Its gradients are
whole until they are reduced, which many trainers put off to the last microbatch.

The most is needed either where the backward pass begins, at the head with its logits, or within a layer.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tuner.core.columns import Columns, FloatArray
from tuner.core.domain import Workload
from tuner.core.recompute import FULL, SELECTIVE
from tuner.costmodel.activations import (
    freed_by_selection,
    gated_copies,
    kept_in_flight,
    layer_input,
    mixing_values,
    score_bytes,
)
from tuner.costmodel.constants import OPTIMIZER_STATE_BYTES, UNFUSED_NORM_COPY_BYTES
from tuner.costmodel.expert_memory import dispatcher_buffers
from tuner.costmodel.expert_shapes import expert_ffn, expert_tokens, experts_of, routed_tokens, shared_ffn
from tuner.costmodel.framework_terms import gradient_bytes, state_bytes, terms_of, waiting_gradients
from tuner.costmodel.kernels import size_of
from tuner.costmodel.matrices import attention_widths, routed_weights
from tuner.costmodel.offload import offloads_parameters
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stages import Stages


def fully_sharded_terms(stage: Stages, site: SiteFactors) -> dict[str, FloatArray]:
    """Return the terms of `memory_terms` that need no constant of fragmentation."""
    columns, workload = stage.columns, stage.columns.workload
    state, sharded = state_bytes(workload), columns.zero >= 2
    shard, several = stage.elements(sharded), columns.microbatches > 1
    waits = waiting_gradients(columns)
    layer = stage.averaged(partial(_layer, saved=False))
    if terms_of(workload).saved_products:
        selected = stage.averaged(partial(_layer, saved=True))
    else:
        selected = layer - freed_by_selection(stage)
    kept = np.select(
        [columns.granularity == SELECTIVE, columns.granularity == FULL], [selected, layer_input(columns)], layer
    )
    working = layer - kept
    if workload.model.experts:
        working = working + dispatcher_buffers(columns)
    logits, head, within = _logits(stage), *_gathered(stage, waits)
    return {
        "weights": state * shard,
        "gradients": np.where(waits, gradient_bytes(workload) * stage.elements(sharded=False), state * shard * several),
        "optimizer": _optimizer_bytes(workload) * shard,
        "frozen": size_of(workload) * stage.frozen,
        "activations": kept_in_flight(stage, kept) * site.activations,
        "working": np.maximum(0.0, working * site.activations + within - logits * site.activations - head),
        "logits": logits * site.activations,
        "buckets": np.zeros_like(shard),
        "gathered": head,
        "step": state * shard * ~several,  # gradients that come as activations go
    }


def _optimizer_bytes(workload: Workload) -> float:
    """Return the bytes of the optimizer's states: in the precision of the weights, unless the optimizer has its own."""
    found = float(OPTIMIZER_STATE_BYTES[workload.optimizer])
    return found if workload.optimizer in {"adam-bf16", "adam8bit"} else found * state_bytes(workload) / 4


def _logits(stage: Stages) -> FloatArray:
    """Return the logits, the logarithm of their softmax, and the gradients of both, of a loss that is not compiled.

    Of a loss in chunks these are one chunk's, beside the gradients of all its inputs in fp32. Each loss of multi-token
    prediction has such gradients too, or keeps the logarithm of its softmax, or its logits if it is compiled.
    """
    columns, workload = stage.columns, stage.columns.workload
    chunks, size = terms_of(workload).loss_chunks, size_of(workload)
    loss = 4.0 if terms_of(workload).loss_precision == "fp32" else size
    kept = 2 * size if terms_of(workload).fused_loss else size + 3 * loss
    predicted = workload.model.mtp_layers
    if chunks == 1:
        kept = kept + predicted * (size if terms_of(workload).fused_loss else loss)
    each = kept / np.where(workload.parallel_loss, columns.tp, 1) / chunks
    inputs = 4.0 * columns.hidden * (chunks > 1) * (1 + predicted)
    return stage.is_last * columns.tokens * (columns.padded_vocab * each + inputs)


def _gathered(stage: Stages, waits: Any) -> tuple[FloatArray, FloatArray]:
    """Return the unsharded weights and gradients: of the head, and of layers in use.

    ZeRO 3 has the layer in use and the next on its way; ZeRO 2 and a pipeline's stage have all weights.
    """
    columns = stage.columns
    size, reduced = size_of(columns.workload), gradient_bytes(columns.workload)
    fully, alone = (columns.zero == 3) & (columns.pp == 1), 1.0 * (columns.zero >= 2)
    if state_bytes(columns.workload) == size:  # nothing is cast, so that a shard that is all is no copy
        alone = alone * ((columns.shards > 1) | (offloads_parameters(columns)))
    head = stage.is_last * columns.padded_vocab * columns.hidden / columns.tp
    layer = stage.average_layer
    if columns.workload.model.experts:
        layer = layer + stage.moe_share * routed_weights(columns)
    every = size * stage.elements(sharded=False)
    gradients = size + np.where(waits, 0.0, reduced)  # a whole one, and the copy that is reduced
    at_head = np.where(fully, size * head, every) + gradients * head
    within = np.where(fully, size * np.minimum(2, stage.layers) * layer, every) + gradients * layer
    return at_head * alone, within * alone


def _layer(stage: Stages, *, saved: bool) -> FloatArray:
    """Return the bytes that an average layer of the stage keeps: all, or those saved by torchtitan's selective
    checkpointing."""
    columns = stage.columns
    part = _saved_products if saved else _everything
    if not columns.workload.model.experts:
        return part(columns, columns.ffn, 0.0)
    routed = _saved_dispatch(columns) if saved else _expert_activations(columns)
    with_experts, dense = part(columns, shared_ffn(columns), routed), part(columns, columns.ffn, 0.0)
    return stage.moe_share * with_experts + (1 - stage.moe_share) * dense


def _everything(columns: Columns, ffn: Any, routed: Any) -> FloatArray:
    """Return the activations of a layer: inputs and outputs of its norms, attention, and each step of its MLP.

    Products keep their inputs as they multiply them, gathered from the ranks that share the sequence.
    """
    workload, size = columns.workload, size_of(columns.workload)
    model = workload.model
    mixing, _ = mixing_values(columns)
    inputs: Any = model.norms_per_layer * columns.hidden
    if not workload.fused_norms:
        inputs = inputs + UNFUSED_NORM_COPY_BYTES / 2 * columns.hidden
    cut = mixing + _mlp_copies(workload) * ffn
    if model.qk_norm and not model.delta_net:
        cut = cut + columns.head_size * (columns.heads + columns.placed_kv_heads)
    whole = inputs / columns.sequence_shards + 2 * columns.hidden
    found: FloatArray = columns.tokens * size * (whole + cut / columns.tp) + score_bytes(columns) + routed
    return found


def _mlp_copies(workload: Workload) -> float:
    """Return how many values of its width an MLP keeps for each token: each step's, unless it is compiled."""
    return gated_copies(workload, 4.0) if workload.model.gated_mlp else 2.0


def _saved_products(columns: Columns, ffn: Any, routed: Any) -> FloatArray:
    """Return the bytes that selective checkpointing saves: outputs of every second product, attention and exchanges.

    Of the products of queries, keys, values, attention's output, gate, up and the MLP's output the first is saved, the
    second computed again, and so on; a sum over tensor parallel ranks that is scattered is saved before and after.
    """
    gated, scatters = columns.workload.model.gated_mlp, (columns.tp > 1) & (columns.sequence_parallel == 1)
    queries, keys, output = attention_widths(columns)
    delta = columns.workload.model.delta_net
    cut = ffn + (delta.projected if delta else queries + keys / 2 + output)
    some = np.asarray(ffn > 0)
    whole = columns.hidden * (1 / columns.sequence_shards + (some if gated else 0))
    scattered = np.where(scatters, (1 + some) * columns.hidden / columns.tp, 0.0)
    each = whole + scattered + cut / columns.tp
    found: FloatArray = columns.tokens * size_of(columns.workload) * each + score_bytes(columns) + routed
    return found


def _expert_activations(columns: Columns) -> FloatArray:
    """Return what routed experts keep: their tokens as they came, their outputs, each step between, and the scores
    (torchtitan, models/common/token_dispatcher.py: combine weights the outputs)."""
    between = _mlp_copies(columns.workload) * expert_ffn(columns) / columns.etp
    tokens = expert_tokens(columns) * size_of(columns.workload) * (2 * columns.hidden + between)
    return tokens + 4.0 * routed_tokens(columns) * experts_of(columns).count


def _saved_dispatch(columns: Columns) -> FloatArray:
    """Return the bytes saved for the experts: the tokens after each of the two exchanges."""
    back = routed_tokens(columns) * experts_of(columns).top_k
    moved = size_of(columns.workload) * columns.hidden * (expert_tokens(columns) + back)
    return np.where(columns.ep > 1, moved, 0.0)
