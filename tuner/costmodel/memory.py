"""Bytes on one GPU of a pipeline stage, by named terms that add up.

The peak is either at the end of a forward pass, with all microbatches of the schedule in flight, or in the optimizer's
step. There are two implementations of a layer: Megatron's under DeepSpeed, and plain PyTorch layers.

Constants marked "fitted" are one fit to BLOOM's and Enoki's memory figures and to two tables that are not shipped, one
of them only by which of its layouts ran out of memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tuner.core.columns import Columns, FloatArray, IntArray
from tuner.core.domain import OFFLOAD, RECOMPUTE, MemoryKind, MemoryStage, Workload
from tuner.costmodel.constants import (
    BUCKET_ELEMENTS,
    CACHED_SHARE,
    COMMUNICATOR_BYTES,
    CONTEXT_BYTES,
    DROPOUT_MASK_BYTES,
    FLAT_GRADIENT_BYTES,
    FRAGMENT_SHARE,
    GATED_MLP_COPIES,
    GATHER_COPY_BYTES,
    GATHERED_LOGIT_BYTES,
    LOGIT_BYTES,
    OPTIMIZER_STATE_BYTES,
    PLAIN_CUT_BYTES,
    PLAIN_LOGIT_BYTES,
    PLAIN_TABLE_BYTES,
    PLAIN_WHOLE_BYTES,
    SCORE_BYTES,
    SCORE_BYTES_WITHOUT_DROPOUT,
    STEP_COPY_BYTES,
    UNFUSED_NORM_COPY_BYTES,
    USABLE_SHARE,
    WHOLE_NORM_BYTES,
)
from tuner.costmodel.expert_memory import dispatcher_buffers, expert_activations
from tuner.costmodel.expert_shapes import expert_ffn, expert_tokens, routed_weights, shared_ffn
from tuner.costmodel.framework_terms import gradient_bytes, recomputed_modules, terms_of
from tuner.costmodel.kernels import copies_flash_output, saved_bytes, size_of, workspaces
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stack_constants import IN_PLACE_LOGIT_BYTES
from tuner.costmodel.stages import Stages

_SELECTIVE, _FULL = RECOMPUTE.index("selective"), RECOMPUTE.index("full")
_OF_PARAMETERS = OFFLOAD.index("optimizer+parameters")

STATIC: Final = ("weights", "gradients", "optimizer", "frozen")
WORKSPACE_TERM: Final = "workspaces"
"""The libraries' buffers for products that PyTorch allocates; part of the terms of Megatron-Core."""
OFFLOAD_TERM: Final = "offload"
"""What offload takes on the GPU; part of the terms where some row offloads."""
LOOSE: Final = ("activations", "working", "logits", "buckets")
"""What comes and goes in pieces of many sizes, between which the allocator loses some."""
DYNAMIC: Final = (*LOOSE, "gathered")


def memory_terms(stage: Stages, site: SiteFactors) -> dict[str, FloatArray]:
    """What the stage cannot do without, bytes on a GPU by term, at its fullest moment.

    Where that is the optimizer's step, `step` is what it takes beyond the room that the activations have left.
    """
    terms = _tensors(stage, site)
    terms["fragments"] = FRAGMENT_SHARE * sum((terms[name] for name in LOOSE), start=np.zeros_like(terms["weights"]))
    terms["step"] = np.maximum(0.0, terms["step"] - sum(terms[name] for name in (*DYNAMIC, "fragments")))
    terms["context"] = _context(stage.columns, site)
    return terms


def needed_bytes(stage: Stages, site: SiteFactors) -> FloatArray:
    """The sum of the terms."""
    terms = _tensors(stage, site)
    return _fuller_moment(terms, lost=FRAGMENT_SHARE) + _context(stage.columns, site)


def shown_bytes(columns: Columns, site: SiteFactors, kind: MemoryKind, at: MemoryStage = "first") -> FloatArray:
    """What a published figure would be: usually of the first stage's GPU, on which people look and whose rank prints.

    nvidia-smi shows all that PyTorch has ever held and the context, `reserved` the former, `allocated` the fullest
    moment's tensors. No figure exceeds the card.
    """
    stage = Stages.last(columns) if at == "last" else Stages.first(columns)
    terms = _tensors(stage, site)
    fullest = _fuller_moment(terms, lost=0.0)
    if kind == "allocated":
        return fullest
    held = sum(terms.values(), start=np.zeros_like(fullest)) + CACHED_SHARE * terms["activations"] + _flat_copy(stage)
    if kind == "smi":
        held = held + _context(columns, site)
    return np.minimum(held, np.maximum(columns.cluster.gpu.memory, fullest))


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What each row needs on its worst stage, and which that is."""

    total: FloatArray
    stage: IntArray


def worst_need(columns: Columns, site: SiteFactors) -> Need:
    """The stage that needs most: the first, one of the middle, or the last."""
    stages = Stages.ends_and_middle(columns)
    needs = needed_bytes(stages, site)
    worst, rows = np.argmax(needs, axis=0), np.arange(len(columns.tp))
    return Need(total=needs[worst, rows], stage=stages.at[worst, rows])


def limit(columns: Columns) -> float:
    """Bytes that a process can have of the card."""
    return columns.cluster.gpu.memory * USABLE_SHARE


def _fuller_moment(terms: dict[str, FloatArray], *, lost: float) -> FloatArray:
    zeros = np.zeros_like(terms["weights"])
    static = sum((terms[name] for name in (*STATIC, WORKSPACE_TERM, OFFLOAD_TERM) if name in terms), start=zeros)
    loose = sum((terms[name] for name in LOOSE), start=zeros)
    fuller: FloatArray = static + np.maximum(loose * (1 + lost) + terms["gathered"], terms["step"])
    return fuller


def _tensors(stage: Stages, site: SiteFactors) -> dict[str, FloatArray]:
    """What PyTorch holds, the step's copies at their whole size."""
    columns = stage.columns
    workload, zero = columns.workload, columns.zero
    size, experts = size_of(workload), workload.model.experts
    scores = _scores(columns)
    layer = _expert_layer(stage, scores) if experts else _layer(columns, scores, columns.ffn)
    freed = _freed(stage, scores)
    working = np.where(columns.recompute == _FULL, layer, freed)  # what is computed again, meanwhile
    if experts:
        working = working + dispatcher_buffers(columns)
    parameters = stage.elements(sharded=False)
    shard = {least: stage.elements(zero >= least) for least in (1, 2, 3)}
    logits = stage.is_last * _logits(columns)
    copy = 4.0 if size < 4 else 0.0  # the fp32 weights that 16-bit training keeps beside its own
    weights: Any
    gradients: Any
    if workload.plain_layers:
        weights = 4.0 * shard[3]  # autocast makes its 16-bit copies as it goes
        gradients = 4.0 * (columns.microbatches > 1) * shard[2]  # the first ones replace activations
        copy = copies = 0.0
    else:
        weights = size * shard[3]
        gradients = gradient_bytes(workload) * shard[2]
        copies = STEP_COPY_BYTES if copy and terms_of(workload).step_copies else 0.0
    terms = {
        "weights": weights,
        "gradients": gradients,
        "optimizer": (copy + OPTIMIZER_STATE_BYTES[workload.optimizer]) * shard[1],
        "frozen": size
        * workload.model.frozen_params
        / (columns.tp * columns.pp * np.where(zero >= 3, columns.shards, 1)),
        "activations": _kept(stage, layer - freed) * site.activations,
        "working": working * site.activations,
        "logits": logits * site.activations,
        "buckets": _buckets(workload) * np.minimum(BUCKET_ELEMENTS, parameters),
        "gathered": _gathered(stage),
        "step": copies * shard[1],
    }
    if experts and workload.framework is None and workload.stack is None:
        terms |= _megatron_core(stage)
    if terms_of(workload).transformer_engine:
        terms[WORKSPACE_TERM] = workspaces(columns.cluster.gpu, workload) + np.zeros_like(parameters)
    return _offloaded(stage, terms) if columns.offload.any() else terms


def _megatron_core(stage: Stages) -> dict[str, FloatArray]:
    """Return what a run of experts without a named framework has, which is Megatron-Core's.

    Gradients are added up in one fp32 buffer, which is reduced and stepped from in place: no buckets and no copies
    (Megatron-LM, core/distributed/param_and_grad_buffer.py; --accumulate-allreduce-grads-in-fp32 follows --bf16).
    """
    nothing = np.zeros_like(stage.elements(sharded=False))
    return {"gradients": 4.0 * stage.elements(stage.columns.zero >= 2), "buckets": nothing, "step": nothing}


def _buckets(workload: Workload) -> float:
    """Return the bytes of each bucketed element: a gradient on its way, and an updated weight."""
    separate = terms_of(workload).separate_buckets and not workload.plain_layers
    return gradient_bytes(workload) + size_of(workload) if separate else 0.0


def _offloaded(stage: Stages, terms: dict[str, FloatArray]) -> dict[str, FloatArray]:
    """Return what stays on the GPU where states or parameters lie in main memory, and a buffer for a gradient.

    The optimizer's states and its step leave. ZeRO 1 adds up whole gradients on the GPU; ZeRO 2 and 3 send theirs to
    main memory bucket by bucket (DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py: temp_grad_buffer_for_gpu_offload).
    """
    columns = stage.columns
    off, parameters_too = columns.offload > 0, columns.offload == _OF_PARAMETERS
    left = {name: np.where(off, 0.0, terms[name]) for name in ("optimizer", "step")}
    left["gradients"] = np.where(off & (columns.zero >= 2), 0.0, terms["gradients"])
    left |= {name: np.where(parameters_too, 0.0, terms[name]) for name in ("weights", "frozen")}
    matrix = np.maximum(columns.padded_vocab, columns.ffn) * columns.hidden / columns.tp
    buffered = off & (columns.zero <= 2) & (columns.workload.framework != "megatron-core")
    left[OFFLOAD_TERM] = np.where(buffered, size_of(columns.workload) * matrix, np.zeros_like(terms["weights"]))
    return terms | left


def _gathered(stage: Stages) -> FloatArray:
    """What of a fully sharded model is whole: the layer in use, the next on its way, embedding and head.

    What plain layers keep whole of embedding and head beside their weights, they keep at every ZeRO stage.
    """
    columns = stage.columns
    size, table = size_of(columns.workload), stage.table_parameters
    plain, elsewhere = columns.workload.plain_layers, 1 - 1 / columns.shards
    if columns.offload.any():
        elsewhere = np.where(columns.offload == _OF_PARAMETERS, 1.0, elsewhere)
    if not (plain or (columns.zero == 3).any()):
        return np.zeros_like(table)
    layers = np.minimum(2, stage.layers) * (stage.parameters - table) / np.maximum(1, stage.layers)
    gathered: FloatArray = np.where(columns.zero == 3, size * (layers + (0.0 if plain else table)) * elsewhere, 0.0)
    if columns.workload.model.experts:
        whole = np.minimum(2, stage.moe_layers) * routed_weights(columns) * (1 - 1 / columns.expert_shards)
        gathered = gathered + np.where(columns.zero == 3, size * whole, 0.0)
    if plain:
        shards = np.where(columns.zero == 3, columns.shards, 1)
        gathered = gathered + (PLAIN_TABLE_BYTES - 4.0 / shards) * table
    return gathered


def _flat_copy(stage: Stages) -> FloatArray:
    columns = stage.columns
    alone = (columns.pp == 1) & (columns.copies > 1) & (columns.zero >= 1) & (columns.zero <= 2)
    alone &= (columns.offload == 0) & terms_of(columns.workload).step_copies
    copies: FloatArray = FLAT_GRADIENT_BYTES * alone * stage.elements(sharded=False)
    return copies


def _context(columns: Columns, site: SiteFactors) -> FloatArray:
    degrees = [columns.tp, columns.pp, columns.cp]
    if columns.workload.model.experts:
        degrees.append(columns.ep * columns.etp)
    kinds = 1 + sum((degree > 1).astype(np.int64) for degree in degrees)
    return np.asarray((CONTEXT_BYTES + COMMUNICATOR_BYTES * kinds) * site.context, dtype=np.float64)


def _tokens(columns: Columns) -> FloatArray:
    tokens: FloatArray = columns.micro_batch * columns.workload.model.seq / columns.cp
    return tokens


def _kept(stage: Stages, layer: FloatArray) -> FloatArray:
    """Activations of all microbatches in flight, and each one's output, which the pipeline holds for its backward."""
    columns = stage.columns
    output = _input(columns)
    each = np.where(columns.recompute == _FULL, output, layer)
    flying = stage.layers_in_flight
    outputs = np.where(columns.pp > 1, flying / np.maximum(1, stage.layers), 0.0) * output
    kept: FloatArray = each * flying + outputs
    if terms_of(columns.workload).transformer_engine:  # elsewhere the fitted constants contain it
        kept = kept + stage.is_last * 2 * output  # the last norm's input and output
    return kept


def _freed(stage: Stages, scores: FloatArray) -> FloatArray:
    """Return what a layer keeps less in rows with selective recomputation (NVIDIA/Megatron-LM at d98e8a64,
    megatron/core/transformer/transformer_config.py: recompute_modules)."""
    columns = stage.columns
    modules, latent = recomputed_modules(columns.workload), columns.workload.model.latent
    freed = scores if "core_attn" in modules else np.zeros_like(scores)
    element = _tokens(columns) * size_of(columns.workload)
    if latent and "mla_up_proj" in modules:
        freed = freed + element * columns.heads * (2 * latent.key_size + latent.value_size) / columns.tp
    if "layernorm" in modules:  # the outputs of two norms
        freed = freed + 2 * _tokens(columns) * saved_bytes(columns.workload) * columns.hidden / _whole(columns)
    dense = element * _mlp_copies(columns) * columns.ffn / columns.tp if "mlp" in modules else np.zeros_like(scores)
    if columns.workload.model.experts:
        share = stage.moe_layers / np.maximum(1, stage.layers)
        routed = np.zeros_like(scores)
        if "moe" in modules:
            routed = expert_activations(columns)
        elif "moe_act" in modules:
            routed = expert_tokens(columns) * saved_bytes(columns.workload) * expert_ffn(columns) / columns.etp
        if {"moe", "shared_experts"} & set(modules):
            routed = routed + element * _mlp_copies(columns) * shared_ffn(columns) / columns.tp
        dense = share * routed + (1 - share) * dense
    return np.where(columns.recompute == _SELECTIVE, freed + dense, 0.0)


def _mlp_copies(columns: Columns) -> float:
    """Return how many values of its width an MLP keeps for each token."""
    workload = columns.workload
    if terms_of(workload).transformer_engine:  # inputs of the activation, and its output for the product behind it
        return (2.0 if workload.model.gated_mlp else 1.0) + saved_bytes(workload) / size_of(workload)
    return GATED_MLP_COPIES if workload.model.gated_mlp else 2.0


def _whole(columns: Columns) -> Any:
    """Ranks that share what tensor parallelism leaves whole: all with sequence parallelism."""
    return np.where(columns.sequence_parallel == 1, columns.tp, 1)


def _input(columns: Columns) -> FloatArray:
    kept: FloatArray = _tokens(columns) * columns.hidden * size_of(columns.workload) / _whole(columns)
    return kept


def _expert_layer(stage: Stages, scores: FloatArray) -> FloatArray:
    """Activations that an average layer of the stage keeps, of those with experts and those without."""
    columns = stage.columns
    share = stage.moe_layers / np.maximum(1, stage.layers)
    routed = _layer(columns, scores, shared_ffn(columns)) + expert_activations(columns)
    return share * routed + (1 - share) * _layer(columns, scores, columns.ffn)


def _layer(columns: Columns, scores: FloatArray, ffn: Any) -> FloatArray:
    """Activations that one layer with an MLP of this width keeps for its backward pass when nothing is recomputed."""
    workload = columns.workload
    model, halves = workload.model, size_of(workload) / 2
    width: Any = columns.head_size * (columns.heads + 2 * columns.kv_heads)
    output: Any = columns.head_size * columns.heads
    if latent := model.latent:
        width, output = columns.heads * (2 * latent.key_size + latent.value_size), columns.heads * latent.value_size
    mlp = _mlp_copies(columns) * ffn
    whole = (
        WHOLE_NORM_BYTES
        + (0.0 if model.gated_mlp else DROPOUT_MASK_BYTES)
        + (0.0 if workload.fused_norms else UNFUSED_NORM_COPY_BYTES)
    )
    cut: Any = 2 * (width + output + mlp) / columns.hidden
    if (saved := saved_bytes(workload)) < size_of(workload):  # attention keeps its output beside the cast one
        whole, cut = whole - 2 * (2 - saved), cut + saved * output / columns.hidden
    if workload.plain_layers:
        whole, cut = PLAIN_WHOLE_BYTES, PLAIN_CUT_BYTES
    norms = model.norms_per_layer - 2
    whole += 2 * norms if norms > 0 else 4 * norms  # one that follows its layer keeps only its input
    if model.qk_norm:  # keeps its inputs beside its outputs, which attention keeps
        cut = cut + 2 * columns.head_size * (columns.heads + columns.kv_heads) / columns.hidden
    each = _tokens(columns) * columns.hidden * halves
    layer: FloatArray = each * (whole / _whole(columns) + cut / columns.tp) + scores
    return layer


def _scores(columns: Columns) -> FloatArray:
    """What attention keeps: every score, or with flash attention one sum in fp32 for each row of them."""
    workload = columns.workload
    rows = _tokens(columns) * columns.heads / columns.tp
    kernels = SCORE_BYTES_WITHOUT_DROPOUT if workload.model.gated_mlp else SCORE_BYTES
    if workload.attention not in kernels:
        apart = 1.0 if workload.attention == "flash1" else 0.0  # its first version packs queries, keys and values
        if copies_flash_output(columns.cluster.gpu, workload):
            apart += size_of(workload)
        flash: FloatArray = 4.0 * rows + apart * rows * columns.head_size
        return flash
    scores: FloatArray = kernels[workload.attention] * size_of(workload) / 2 * rows * workload.model.seq
    return scores


def _logits(columns: Columns) -> FloatArray:
    each = _tokens(columns) * columns.padded_vocab
    if columns.workload.parallel_loss:
        in_place = terms_of(columns.workload).in_place_loss
        megatron: FloatArray = (IN_PLACE_LOGIT_BYTES if in_place else LOGIT_BYTES) * each / columns.tp
        return megatron
    if columns.workload.plain_layers:
        plain: FloatArray = PLAIN_LOGIT_BYTES * each
        return plain
    gathered: FloatArray = each * np.where(
        columns.tp > 1, GATHERED_LOGIT_BYTES + GATHER_COPY_BYTES, GATHERED_LOGIT_BYTES
    )
    return gathered
