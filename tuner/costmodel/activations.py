"""Bytes of activations that one layer keeps for its backward pass, one of Megatron's or a plain PyTorch one."""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.core.columns import Columns, FloatArray
from tuner.core.domain import Workload
from tuner.core.recompute import FULL
from tuner.costmodel.constants import (
    DROPOUT_MASK_BYTES,
    GATED_MLP_COPIES,
    PLAIN_CUT_BYTES,
    PLAIN_WHOLE_BYTES,
    SCORE_BYTES,
    SCORE_BYTES_WITHOUT_DROPOUT,
    UNFUSED_NORM_COPY_BYTES,
    WHOLE_NORM_BYTES,
)
from tuner.costmodel.delta_net import delta_net_of, kept_values
from tuner.costmodel.expert_memory import expert_activations
from tuner.costmodel.expert_shapes import expert_ffn, expert_tokens, shared_ffn
from tuner.costmodel.framework_terms import recomputed_norms, terms_of
from tuner.costmodel.kernels import copies_flash_output, saved_bytes, size_of
from tuner.costmodel.matrices import attention_widths, gate_width
from tuner.costmodel.stack_constants import COMPILED_MLP_COPIES
from tuner.costmodel.stages import Stages


def layer_activations(stage: Stages) -> FloatArray:
    """Bytes that an average layer of the stage keeps when nothing is recomputed."""
    return stage.averaged(_kept)


def freed_by_selection(stage: Stages) -> FloatArray:
    """Return the bytes that a layer saves in rows with selective recompute (NVIDIA/Megatron-LM at d98e8a64,
    megatron/core/transformer/transformer_config.py: recompute_modules)."""
    return stage.averaged(_freed)


def _kept(stage: Stages) -> FloatArray:
    columns = stage.columns
    if not columns.workload.model.experts:
        return _layer(columns, columns.ffn)
    routed = _layer(columns, shared_ffn(columns)) + expert_activations(columns)
    return stage.moe_share * routed + (1 - stage.moe_share) * _layer(columns, columns.ffn)


def _freed(stage: Stages) -> FloatArray:
    columns, model = stage.columns, stage.columns.workload.model
    scores = score_bytes(columns)
    freed: FloatArray = columns.recomputes("core_attn") * scores
    if not columns.selects_modules:
        return freed
    latent, element = model.latent, columns.tokens * size_of(columns.workload)
    if latent:
        up = element * columns.heads * (2 * latent.key_size + latent.value_size) / columns.tp
        freed = freed + columns.recomputes("mla_up_proj") * up
    dense = columns.recomputes("mlp") * element * _mlp_copies(columns) * columns.ffn / columns.tp
    moe = np.zeros_like(scores)
    if model.experts:
        outputs = expert_tokens(columns) * saved_bytes(columns.workload) * expert_ffn(columns) / columns.etp
        moe = np.where(columns.recomputes("moe"), expert_activations(columns), columns.recomputes("moe_act") * outputs)
        shared = columns.recomputes("moe", "shared_experts")
        moe = moe + shared * element * _mlp_copies(columns) * shared_ffn(columns) / columns.tp
    norm = columns.tokens * saved_bytes(columns.workload) * columns.hidden / columns.sequence_shards
    norms = columns.recomputes("layernorm") * recomputed_norms(model, stage.moe_share)
    total: FloatArray = freed + norms * norm + stage.moe_share * moe + (1 - stage.moe_share) * dense
    return total


def score_bytes(columns: Columns) -> FloatArray:
    """Bytes that attention keeps: every score, or with flash attention one fp32 sum per row of scores."""
    workload = columns.workload
    if delta_net_of(columns):
        return np.zeros(np.shape(columns.tokens))
    rows = columns.tokens * columns.heads / columns.tp
    kernels = SCORE_BYTES_WITHOUT_DROPOUT if workload.model.gated_mlp else SCORE_BYTES
    if workload.attention not in kernels:
        apart = 1.0 if workload.attention == "flash1" else 0.0  # its first version packs queries, keys and values
        if copies_flash_output(columns.cluster.gpu, workload):
            apart += size_of(workload)
        flash: FloatArray = 4.0 * rows + apart * rows * columns.head_size
        return flash
    scores: FloatArray = kernels[workload.attention] * size_of(workload) / 2 * rows * workload.model.seq
    return scores


def layer_input(columns: Columns) -> FloatArray:
    """The input that each layer gets from the previous one."""
    kept: FloatArray = columns.tokens * columns.hidden * size_of(columns.workload) / columns.sequence_shards
    return kept


def kept_in_flight(stage: Stages, layer: FloatArray) -> FloatArray:
    """Activations of all microbatches in flight, and each one's output, which the pipeline holds for its backward.

    A layer of multi-token prediction is in the last chunk, which has one microbatch in flight. Besides a layer's, it
    keeps the embedding that it normalises, the projection's input, and the last norm's input and output.
    """
    columns = stage.columns
    output = layer_input(columns)
    each = np.where(columns.recompute == FULL, output, layer)
    flying = stage.layers_in_flight
    outputs = np.where(columns.pp > 1, flying / np.maximum(1, stage.layers), 0.0) * output
    kept: FloatArray = each * flying + outputs
    if terms_of(columns.workload).transformer_engine:  # elsewhere the fitted constants contain it
        kept = kept + stage.is_last * 2 * output  # the last norm's input and output
    if columns.workload.model.mtp_layers:
        around = np.where(columns.recompute == FULL, 3, 5) * output  # full recompute repeats the projection
        kept = kept + stage.predictors * (each + around)
    return kept


def _mlp_copies(columns: Columns) -> float:
    """Return how many values of its width an MLP keeps for each token."""
    workload = columns.workload
    if terms_of(workload).transformer_engine:  # inputs of the activation, and its output for the product behind it
        return (2.0 if workload.model.gated_mlp else 1.0) + saved_bytes(workload) / size_of(workload)
    return gated_copies(workload, GATED_MLP_COPIES) if workload.model.gated_mlp else 2.0


def gated_copies(workload: Workload, eager: float) -> float:
    """Return how many values of its width PyTorch's own gated MLP keeps for each token, given those without a
    compiler."""
    return COMPILED_MLP_COPIES if terms_of(workload).compiled else eager


def mixing_values(columns: Columns) -> tuple[Any, Any]:
    """Return the values that attention or Gated DeltaNet keeps for a token, and the last projection's inputs of them.

    A gate keeps itself and attention's output before it.
    """
    queries, keys, output = attention_widths(columns)
    if delta := delta_net_of(columns):
        return kept_values(delta), output
    return queries + keys + output + 2 * gate_width(columns), output


def _layer(columns: Columns, ffn: Any) -> FloatArray:
    """Activations that one layer with an MLP of this width keeps for its backward pass when nothing is recomputed."""
    workload = columns.workload
    model, halves = workload.model, size_of(workload) / 2
    mixing, output = mixing_values(columns)
    mlp = _mlp_copies(columns) * ffn
    whole = (
        WHOLE_NORM_BYTES
        + (0.0 if model.gated_mlp else DROPOUT_MASK_BYTES)
        + (0.0 if workload.fused_norms else UNFUSED_NORM_COPY_BYTES)
    )
    cut: Any = 2 * (mixing + mlp) / columns.hidden
    if (saved := saved_bytes(workload)) < size_of(workload):  # attention keeps its output beside the cast one
        whole, cut = whole - 2 * (2 - saved), cut + saved * output / columns.hidden
    if workload.plain_layers:
        whole, cut = PLAIN_WHOLE_BYTES, PLAIN_CUT_BYTES
    norms = model.norms_per_layer - 2
    whole += 2 * norms if norms > 0 else 4 * norms  # one that follows its layer keeps only its input
    if model.qk_norm and not model.delta_net:  # keeps its inputs beside its outputs, which attention keeps
        cut = cut + 2 * columns.head_size * (columns.heads + columns.placed_kv_heads) / columns.hidden
    each = columns.tokens * columns.hidden * halves
    layer: FloatArray = each * (whole / columns.sequence_shards + cut / columns.tp) + score_bytes(columns)
    return layer
