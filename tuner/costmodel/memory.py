"""Bytes on one GPU of a pipeline stage, by named terms that add up.

Two moments can be the fullest: the end of a forward pass, with all microbatches of the schedule in flight, and the
optimizer's step. Two stacks are told apart: Megatron's layers under DeepSpeed, and plain PyTorch layers.

Constants marked "fitted" are one fit to BLOOM's and Enoki's memory figures and to two tables that are not shipped, one
of them only by which of its layouts ran out of memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tuner.core.columns import Columns, FloatArray, IntArray
from tuner.core.domain import RECOMPUTE, MemoryKind
from tuner.costmodel.kernels import size_of
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stages import Stages

STATES: Final = {"adam": 8.0, "adam8bit": 2.0, "adafactor": 4.0, "sgd": 4.0}
"""Optimizer state, bytes a parameter, beside the fp32 copy of the weights: Adam two fp32 moments, its 8-bit form two
of one byte (Dettmers et al. 2021, arXiv 2110.02861), Adafactor its first moment, the second one being factored
(Shazeer and Stern 2018, arXiv 1804.04235), SGD its momentum."""

STEP: Final = 6.0
"""Bytes a parameter of the shard while ZeRO 1 or 2 steps: the flattened 16-bit gradients and their fp32 copy
(DeepSpeed, stage_1_and_2.py). BLOOM's fp16 rows want 4.4 bytes a parameter and 18.8 a parameter of the shard."""

BUCKET: Final = 5e8
"""Elements of DeepSpeed's reduce bucket, and of its all-gather bucket, as they are by default."""

FLAT_COPY: Final = 2.0
"""Bytes a parameter of a second copy of the gradients, where ZeRO 1 or 2 runs without a pipeline and reduces over
several ranks; inferred from a 1.3B model on V100s, whose runs without a pipeline hold that much more."""

NORMS: Final = 8.0
"""Bytes a token and column that tensor parallelism leaves whole: inputs and outputs of two norms (Korthikanti et al.
2022, arXiv 2205.05198, equation 2)."""

DROPOUT_MASKS: Final = 2.0
"""Two masks of one byte (the same)."""

UNFUSED: Final = 14.0
"""The fp32 copies that unfused norms keep, fitted; 16 by counting."""

GATED: Final = 3.6
"""Copies of the MLP's width that a gated MLP keeps: gate, up, their product, and most of a fourth (fitted)."""

SCORES: Final = {"fused": 5.0, "eager": 9.0}
"""Bytes kept for each attention score with dropout: softmax, mask and dropped softmax (Korthikanti et al. 2022); the
plain framework's fp32 copy beside them."""

SCORES_WITHOUT_DROPOUT: Final = {"fused": 6.0, "eager": 4.5}
"""The same without dropout, fitted: with a 16-bit and an fp32 copy for each; the plain framework frees one."""

PLAIN_WHOLE: Final = 12.0
"""Bytes a token and column that plain PyTorch layers under autocast keep on every tensor parallel rank, fitted to
Enoki."""

PLAIN_CUT: Final = 36.0
"""What they keep cut by tensor parallelism, fitted to Enoki."""

PLAIN_TABLE: Final = 14.5
"""Bytes a parameter of embedding and head, a rank's shard of them included: they are whole, in fp32 and in 16 bits, and
have gradients in both, in a fully sharded model too. Fitted to Enoki."""

LOGITS: Final = 10.0
"""Bytes for each logit while Megatron's parallel loss is computed: 2 for the logits, 4 for their fp32 copy, 4 for the
softmax, which becomes the gradient in place. By counting, and as runs that ran out of memory want it."""

GATHERED_LOGITS: Final = 14.0
"""The same for PyTorch's own loss: a softmax and a gradient apart. Fitted; 14 by counting."""

GATHER_COPY: Final = 10.0
"""More for each logit that is gathered over tensor parallel ranks: pieces and whole, forward and backward. Fitted."""

PLAIN_LOGITS: Final = 2.0
"""Enoki's loss keeps the 16-bit logits alone, fitted."""

FRAGMENTS: Final = 0.08
"""Share of activations that the allocator loses when memory is tight, fitted to which layouts run out."""

CACHED: Final = 0.20
"""Share of activations that the allocator holds more while it is not, as nvidia-smi shows; fitted to BLOOM."""

CONTEXT: Final = 0.7e9
"""Bytes of CUDA context, kernels and libraries, outside PyTorch's allocator."""

COMMUNICATOR: Final = 0.92e9
"""Bytes of NCCL's buffers for each kind of parallelism, fitted; the data parallel one is always there."""

USABLE: Final = 0.985
"""Share of the card's nominal memory that a process can have: an A100-80GB shows 79.2 GiB, an H100-80GB 79.1."""

_SELECTIVE, _FULL = RECOMPUTE.index("selective"), RECOMPUTE.index("full")

STATIC: Final = ("weights", "gradients", "optimizer", "frozen")
LOOSE: Final = ("activations", "working", "logits", "buckets")
"""What comes and goes in pieces of many sizes, between which the allocator loses some."""
DYNAMIC: Final = (*LOOSE, "gathered")


def memory_terms(stage: Stages, site: SiteFactors) -> dict[str, FloatArray]:
    """What the stage cannot do without, bytes on a GPU by term, at its fullest moment.

    Where that is the optimizer's step, `step` is what it takes beyond the room that the activations have left.
    """
    terms = _tensors(stage, site)
    terms["fragments"] = FRAGMENTS * sum((terms[name] for name in LOOSE), start=np.zeros_like(terms["weights"]))
    terms["step"] = np.maximum(0.0, terms["step"] - sum(terms[name] for name in (*DYNAMIC, "fragments")))
    terms["context"] = _context(stage.columns, site)
    return terms


def needed_bytes(stage: Stages, site: SiteFactors) -> FloatArray:
    """The sum of the terms."""
    terms = _tensors(stage, site)
    return _fuller_moment(terms, lost=FRAGMENTS) + _context(stage.columns, site)


def shown_bytes(columns: Columns, site: SiteFactors, kind: MemoryKind) -> FloatArray:
    """What a published figure would be: of the first stage's GPU, on which people look and whose rank prints.

    nvidia-smi shows all that PyTorch has ever held and the context, `reserved` the former, `allocated` the fullest
    moment's tensors. No figure exceeds the card.
    """
    stage = Stages.first(columns)
    terms = _tensors(stage, site)
    fullest = _fuller_moment(terms, lost=0.0)
    if kind == "allocated":
        return fullest
    held = sum(terms.values(), start=np.zeros_like(fullest)) + CACHED * terms["activations"] + _flat_copy(stage)
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
    return columns.cluster.gpu.memory * USABLE


def _fuller_moment(terms: dict[str, FloatArray], *, lost: float) -> FloatArray:
    zeros = np.zeros_like(terms["weights"])
    static = sum((terms[name] for name in STATIC), start=zeros)
    loose = sum((terms[name] for name in LOOSE), start=zeros)
    fuller: FloatArray = static + np.maximum(loose * (1 + lost) + terms["gathered"], terms["step"])
    return fuller


def _tensors(stage: Stages, site: SiteFactors) -> dict[str, FloatArray]:
    """What PyTorch holds, the step's copies at their whole size."""
    columns = stage.columns
    workload, zero = columns.workload, columns.zero
    size, parameters = size_of(workload), stage.parameters
    scores = _scores(columns)
    layer = _layer(columns, scores)
    again = columns.recompute == _FULL, columns.recompute == _SELECTIVE
    working = np.where(again[0], layer, np.where(again[1], scores, 0.0))  # what is computed again, meanwhile
    shards = {least: np.where(zero >= least, columns.copies, 1) for least in (1, 2, 3)}
    copy = 4.0 if size < 4 else 0.0  # the fp32 weights that 16-bit training keeps beside its own
    weights: Any
    gradients: Any
    if workload.plain_layers:
        weights = 4.0 * parameters / shards[3]  # autocast makes its 16-bit copies as it goes
        gradients = 4.0 * (columns.microbatches > 1) * parameters / shards[2]  # the first ones replace activations
        copy = copies = 0.0
    else:
        weights = size * parameters / shards[3]
        gradients = size * parameters / shards[2]
        copies = STEP if copy else 0.0
    return {
        "weights": weights,
        "gradients": gradients,
        "optimizer": (copy + STATES[workload.optimizer]) * parameters / shards[1],
        "frozen": size * workload.model.frozen_params / (columns.tp * columns.pp * shards[3]),
        "activations": _kept(stage, layer, scores) * site.activations,
        "working": working * site.activations,
        "logits": stage.is_last * _logits(columns) * site.activations,
        "buckets": (0.0 if workload.plain_layers else 2 * size) * np.minimum(BUCKET, parameters),
        "gathered": _gathered(stage),
        "step": copies * parameters / shards[1],
    }


def _gathered(stage: Stages) -> FloatArray:
    """What of a fully sharded model is whole: the layer in use, the next on its way, embedding and head.

    What plain layers keep whole of embedding and head beside their weights, they keep at every ZeRO stage.
    """
    columns = stage.columns
    size, table = size_of(columns.workload), stage.table_parameters
    plain, elsewhere = columns.workload.plain_layers, 1 - 1 / columns.copies
    if not (plain or (columns.zero == 3).any()):
        return np.zeros_like(table)
    layers = np.minimum(2, stage.layers) * (stage.parameters - table) / np.maximum(1, stage.layers)
    gathered: FloatArray = np.where(columns.zero == 3, size * (layers + (0.0 if plain else table)) * elsewhere, 0.0)
    if plain:
        shards = np.where(columns.zero == 3, columns.copies, 1)
        gathered = gathered + (PLAIN_TABLE - 4.0 / shards) * table
    return gathered


def _flat_copy(stage: Stages) -> FloatArray:
    columns = stage.columns
    alone = (columns.pp == 1) & (columns.copies > 1) & (columns.zero >= 1) & (columns.zero <= 2)
    copies: FloatArray = FLAT_COPY * alone * stage.parameters
    return copies


def _context(columns: Columns, site: SiteFactors) -> FloatArray:
    kinds = 1 + sum((degree > 1).astype(np.int64) for degree in (columns.tp, columns.pp, columns.cp))
    return np.asarray((CONTEXT + COMMUNICATOR * kinds) * site.context, dtype=np.float64)


def _tokens(columns: Columns) -> FloatArray:
    tokens: FloatArray = columns.micro_batch * columns.workload.model.seq / columns.cp
    return tokens


def _kept(stage: Stages, layer: FloatArray, scores: FloatArray) -> FloatArray:
    """Activations of all microbatches in flight, and each one's output, which the pipeline holds for its backward."""
    columns = stage.columns
    output = _input(columns)
    each = np.where(
        columns.recompute == _FULL, output, np.where(columns.recompute == _SELECTIVE, layer - scores, layer)
    )
    flying = stage.layers_in_flight
    outputs = np.where(columns.pp > 1, flying / np.maximum(1, stage.layers), 0.0) * output
    kept: FloatArray = each * flying + outputs
    return kept


def _whole(columns: Columns) -> Any:
    """Ranks that share what tensor parallelism leaves whole: all with sequence parallelism."""
    return np.where(columns.sequence_parallel == 1, columns.tp, 1)


def _input(columns: Columns) -> FloatArray:
    kept: FloatArray = _tokens(columns) * columns.hidden * size_of(columns.workload) / _whole(columns)
    return kept


def _layer(columns: Columns, scores: FloatArray) -> FloatArray:
    """Activations that one layer keeps for its backward pass when nothing is recomputed."""
    workload = columns.workload
    model, halves = workload.model, size_of(workload) / 2
    width = columns.head_size * (columns.heads + 2 * columns.kv_heads)
    mlp = (GATED if model.gated_mlp else 2.0) * columns.ffn
    whole = NORMS + (0.0 if model.gated_mlp else DROPOUT_MASKS) + (0.0 if workload.fused_norms else UNFUSED)
    cut: Any = 2 * (width + columns.head_size * columns.heads + mlp) / columns.hidden
    if workload.plain_layers:
        whole, cut = PLAIN_WHOLE, PLAIN_CUT
    each = _tokens(columns) * columns.hidden * halves
    layer: FloatArray = each * (whole / _whole(columns) + cut / columns.tp) + scores
    return layer


def _scores(columns: Columns) -> FloatArray:
    """What attention keeps: every score, or with flash attention one sum in fp32 for each row of them."""
    workload = columns.workload
    rows = _tokens(columns) * columns.heads / columns.tp
    kernels = SCORES_WITHOUT_DROPOUT if workload.model.gated_mlp else SCORES
    if workload.attention not in kernels:
        apart = 1.0 if workload.attention == "flash1" else 0.0  # its first version packs queries, keys and values
        flash: FloatArray = 4.0 * rows + apart * rows * columns.head_size
        return flash
    scores: FloatArray = kernels[workload.attention] * size_of(workload) / 2 * rows * workload.model.seq
    return scores


def _logits(columns: Columns) -> FloatArray:
    each = _tokens(columns) * columns.padded_vocab
    if columns.workload.parallel_loss:
        megatron: FloatArray = LOGITS * each / columns.tp
        return megatron
    if columns.workload.plain_layers:
        plain: FloatArray = PLAIN_LOGITS * each
        return plain
    gathered: FloatArray = each * np.where(columns.tp > 1, GATHERED_LOGITS + GATHER_COPY, GATHERED_LOGITS)
    return gathered
