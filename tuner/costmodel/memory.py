"""Bytes on one GPU of a pipeline stage, by named terms that add up.

The peak is either at the end of a forward pass, with all microbatches of the schedule in flight, or in the optimizer's
step. There are three implementations of a layer: Megatron's, plain PyTorch layers under autocast, which Enoki has, and
those of `fully_sharded`.

Constants marked "fitted" are one fit to BLOOM's and Enoki's memory figures and to two tables that are not shipped, one
of them only by which of its layouts ran out of memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tuner.core.columns import Columns, FloatArray, IntArray
from tuner.core.domain import MemoryKind, MemoryStage, Workload
from tuner.core.precision import bf16_layers, recipe_of
from tuner.core.recompute import FULL
from tuner.costmodel.activations import freed_by_selection, kept_in_flight, layer_activations
from tuner.costmodel.constants import (
    BUCKET_ELEMENTS,
    CACHED_SHARE,
    COMMUNICATOR_BYTES,
    CONTEXT_BYTES,
    FLAT_GRADIENT_BYTES,
    FRAGMENT_SHARE,
    GATHER_COPY_BYTES,
    GATHERED_LOGIT_BYTES,
    LOGIT_BYTES,
    OPTIMIZER_STATE_BYTES,
    PLAIN_LOGIT_BYTES,
    PLAIN_TABLE_BYTES,
    STEP_COPY_BYTES,
    USABLE_SHARE,
)
from tuner.costmodel.expert_memory import dispatcher_buffers
from tuner.costmodel.framework_terms import gradient_bytes, terms_of
from tuner.costmodel.fully_sharded import fully_sharded_terms
from tuner.costmodel.kernels import beside_layers, quantized_weight_bytes, size_of, workspaces
from tuner.costmodel.matrices import routed_weights
from tuner.costmodel.muon import dealt_elements
from tuner.costmodel.offload import OFFLOAD_TERM, offloaded_memory, offloads_parameters
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stack_constants import (
    FP32_GRADIENT_BYTES,
    FUSED_LOGIT_BYTES,
    IN_PLACE_LOGIT_BYTES,
    MUON_TABLE_BYTES,
)
from tuner.costmodel.stages import Stages

STATIC: Final = ("weights", "gradients", "optimizer", "frozen")
WORKSPACE_TERM: Final = "workspaces"
"""The libraries' buffers for products that PyTorch allocates; part of the terms of Megatron-Core."""
LOOSE: Final = ("activations", "working", "logits", "buckets")
"""Memory allocated and freed in pieces of many sizes, which fragments."""
DYNAMIC: Final = (*LOOSE, "gathered")


def memory_terms(stage: Stages, site: SiteFactors) -> dict[str, FloatArray]:
    """Bytes on a GPU of the stage at its peak, by term.

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
    if not terms_of(columns.workload).step_copies:  # one tensor a parameter, in the room that activations have left
        terms["step"] = np.maximum(0.0, terms["step"] - sum(terms[name] for name in DYNAMIC))
    held = sum(terms.values(), start=np.zeros_like(fullest)) + CACHED_SHARE * terms["activations"] + _flat_copy(stage)
    if kind == "smi":
        held = held + _context(columns, site)
    return np.minimum(held, np.maximum(columns.cluster.gpu.memory, fullest))


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The memory of each row on its worst stage, and that stage."""

    total: FloatArray
    stage: IntArray


def worst_need(columns: Columns, site: SiteFactors) -> Need:
    """The stage that needs most: the first, an inner one, or the last."""
    stages = Stages.ends_and_inner(columns)
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
    """Tensors that PyTorch allocates, with the step's copies at full size."""
    columns, workload = stage.columns, stage.columns.workload
    terms = (fully_sharded_terms if terms_of(workload).fully_sharded else _megatron_terms)(stage, site)
    if workload.model.experts and workload.framework is None and workload.stack is None:
        terms |= _megatron_core(stage)
    if terms_of(workload).transformer_engine:
        terms[WORKSPACE_TERM] = workspaces(columns.cluster.gpu, workload) + np.zeros_like(terms["weights"])
    return offloaded_memory(stage, terms) if columns.offload.any() else terms


def _megatron_terms(stage: Stages, site: SiteFactors) -> dict[str, FloatArray]:
    """Memory of Megatron's layers under DeepSpeed or Megatron-Core, and of plain layers under autocast."""
    columns = stage.columns
    workload, zero = columns.workload, columns.zero
    size = size_of(workload)
    layer, freed = layer_activations(stage), freed_by_selection(stage)
    if any(bf16_layers(workload)):
        halves = Stages(columns.under(beside_layers(columns.cluster.gpu, workload)), stage.at)
        layer = layer + stage.bf16_share * (layer_activations(halves) - layer)
        freed = freed + stage.bf16_share * (freed_by_selection(halves) - freed)
    working = np.where(columns.recompute == FULL, layer, freed)  # what is computed again, meanwhile
    if workload.model.experts:
        beside = columns.moe_overlap == 1  # the next microbatch's layer, while this one's is not yet free
        working = working + (1 + beside) * dispatcher_buffers(columns) + beside * (layer - freed)
    parameters = stage.elements(sharded=False)
    shard = {least: stage.elements(zero >= least) for least in (1, 2, 3)}
    if workload.optimizer == "muon":
        more, own = dealt_elements(stage)
        shard = {1: own, 2: shard[2] + more, 3: shard[3] + more}
    logits = stage.is_last * (_logits(columns) + workload.model.mtp_layers * _kept_logits(columns))
    copy = 4.0 if size < 4 else 0.0  # the fp32 weights that 16-bit training keeps beside its own
    weights: Any
    gradients: Any
    if workload.plain_layers:
        weights = 4.0 * shard[3]  # autocast makes its 16-bit copies as it goes
        gradients = 4.0 * (columns.microbatches > 1) * shard[2]  # the first ones replace activations
        copy = copies = 0.0
    else:
        weights = size * shard[3] + _quantized_weights(stage)
        gradients = gradient_bytes(workload) * shard[2]
        copies = _step_copies(workload) if copy else 0.0
    return {
        "weights": weights,
        "gradients": gradients,
        "optimizer": (copy + OPTIMIZER_STATE_BYTES[workload.optimizer]) * shard[1] + _table_states(stage),
        "frozen": size * stage.frozen,
        "activations": kept_in_flight(stage, layer - freed) * site.activations,
        "working": working * site.activations,
        "logits": logits * site.activations,
        "buckets": _buckets(workload) * np.minimum(BUCKET_ELEMENTS, parameters),
        "gathered": _gathered(stage),
        "step": copies * shard[1],
    }


def _megatron_core(stage: Stages) -> dict[str, FloatArray]:
    """Return the memory terms of experts without a named framework, which are Megatron-Core's.

    Gradients are added up in one fp32 buffer, which is reduced and stepped from in place: no buckets and no copies
    (Megatron-LM, core/distributed/param_and_grad_buffer.py; --accumulate-allreduce-grads-in-fp32 follows --bf16).
    """
    nothing = np.zeros_like(stage.elements(sharded=False))
    return {"gradients": 4.0 * stage.elements(stage.columns.zero >= 2), "buckets": nothing, "step": nothing}


def _quantized_weights(stage: Stages) -> FloatArray | float:
    """Return the bytes of fp8 or fp4 weights beside those in 16 bits, or more than them if they take their place.

    Embedding and head stay in 16 bits. Copies last from microbatch to microbatch (NVIDIA/Megatron-LM at d98e8a64,
    megatron/core/extensions/transformer_engine.py: is_first_microbatch), but not of weights that are sharded too.
    """
    columns, workload = stage.columns, stage.columns.workload
    each = quantized_weight_bytes(columns.cluster.gpu, workload)
    if not each:
        return 0.0
    sharded, stored = columns.zero >= 3, terms_of(workload).quantized_weights
    matrices = stage.elements(sharded) - stage.table_parameters / np.where(sharded, columns.shards, 1)
    matrices = matrices * (1 - stage.bf16_share)
    return (each - size_of(workload)) * matrices if stored else np.where(sharded, 0.0, each * matrices)


def _step_copies(workload: Workload) -> float:
    """Return the bytes of the gradients' copies in the optimizer's step for each parameter of the shard."""
    if terms_of(workload).step_copies:
        return STEP_COPY_BYTES
    reads_16_bits = workload.optimizer == "adam-bf16" and recipe_of(workload) in (None, "delayed")
    return FP32_GRADIENT_BYTES if gradient_bytes(workload) < 4 and not reads_16_bits else 0.0


def _buckets(workload: Workload) -> float:
    """Return the bytes of each bucketed element: a gradient on its way, and an updated weight."""
    separate = terms_of(workload).separate_buckets and not workload.plain_layers
    return gradient_bytes(workload) + size_of(workload) if separate else 0.0


def _gathered(stage: Stages) -> FloatArray:
    """What of a fully sharded model is whole: the layer in use, the next on its way, embedding and head.

    What plain layers keep whole of embedding and head beside their weights, they keep at every ZeRO stage.
    """
    columns = stage.columns
    size, table = size_of(columns.workload), stage.table_parameters
    plain, elsewhere = columns.workload.plain_layers, 1 - 1 / columns.shards
    if columns.offload.any():
        elsewhere = np.where(offloads_parameters(columns), 1.0, elsewhere)
    if not (plain or (columns.zero == 3).any()):
        return np.zeros_like(table)
    layers = np.minimum(2, stage.layers) * stage.average_layer
    gathered: FloatArray = np.where(columns.zero == 3, size * (layers + (0.0 if plain else table)) * elsewhere, 0.0)
    if columns.workload.model.experts:
        whole = np.minimum(2, stage.moe_layers) * routed_weights(columns) * (1 - 1 / columns.expert_shards)
        gathered = gathered + np.where(columns.zero == 3, size * whole, 0.0)
    if plain:
        shards = np.where(columns.zero == 3, columns.shards, 1)
        gathered = gathered + (PLAIN_TABLE_BYTES - 4.0 / shards) * table
    return gathered


def _table_states(stage: Stages) -> FloatArray | float:
    """Return what the optimizer keeps of embedding and head beyond its bytes per parameter."""
    columns = stage.columns
    if columns.workload.optimizer != "muon":
        return 0.0
    return MUON_TABLE_BYTES * stage.table_parameters / np.where(columns.zero >= 1, columns.shards, 1)


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


def _kept_logits(columns: Columns) -> FloatArray:
    """Return what a loss of multi-token prediction keeps while the next one is computed: its softmax in fp32, or
    gradients in place of the logits (NVIDIA/Megatron-LM at d98e8a64, megatron/core/transformer/
    multi_token_prediction.py: MTPLossAutoScaler)."""
    each = FUSED_LOGIT_BYTES if terms_of(columns.workload).fused_loss else 4.0
    shards = columns.tp if columns.workload.parallel_loss else 1
    kept: FloatArray = each * columns.tokens * columns.padded_vocab / shards
    return kept


def _logits(columns: Columns) -> FloatArray:
    each = columns.tokens * columns.padded_vocab
    if columns.workload.parallel_loss:
        terms = terms_of(columns.workload)
        copies = IN_PLACE_LOGIT_BYTES if terms.in_place_loss else LOGIT_BYTES
        megatron: FloatArray = (FUSED_LOGIT_BYTES if terms.fused_loss else copies) * each / columns.tp
        return megatron
    if columns.workload.plain_layers:
        plain: FloatArray = PLAIN_LOGIT_BYTES * each
        return plain
    gathered: FloatArray = each * np.where(
        columns.tp > 1, GATHERED_LOGIT_BYTES + GATHER_COPY_BYTES, GATHERED_LOGIT_BYTES
    )
    return gathered
