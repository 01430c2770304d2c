"""Estimate the exchanges among tensor and context parallel ranks within one layer, for one microbatch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tuner.core.columns import Columns, FloatArray
from tuner.core.domain import Workload
from tuner.core.frameworks import context_exchange
from tuner.costmodel.framework_terms import terms_of
from tuner.costmodel.kernels import gathered_bytes, size_of, traffic_rate
from tuner.costmodel.links import Links, all_reduce, gather
from tuner.costmodel.matrices import attention_widths, gate_width
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stack_constants import MERGE_BYTES

Passes = tuple[FloatArray, FloatArray]
"""Seconds of the forward and of the backward pass."""


class Exchanges(NamedTuple):
    """Seconds of the exchanges among tensor parallel ranks."""

    ahead: FloatArray
    """Those of the forward pass."""
    back: FloatArray
    """Those of the backward pass."""
    each_sum: FloatArray
    """One of the forward pass that sums over the ranks: a scatter with sequence parallelism, else an all-reduce."""


def tensor_exchanges(
    columns: Columns, tokens: Any, site: SiteFactors, links: Links, number: int, products: FloatArray
) -> Exchanges:
    """Estimate so many all-reduces in each pass, less what overlaps with the products of a forward pass.

    With sequence parallelism each is a gather and a scatter, of which only the scatter is always in 16 bits. Nothing
    overlaps without it (NVIDIA/Megatron-LM at d98e8a64, megatron/training/arguments.py: tp_comm_overlap).
    """
    terms = terms_of(columns.workload)
    sharded, overlapped = columns.sequence_parallel == 1, terms.overlap_tp
    whole, (bandwidth, latency) = size_of(columns.workload), links.tensor

    def exposed(gathered: float) -> FloatArray:
        each: Any = whole
        if gathered != whole:
            each = np.where(sharded, (gathered + whole) / 2, whole)
        seconds = number * all_reduce(tokens * columns.hidden * each, columns.tp, bandwidth, latency)
        if not overlapped:
            return seconds
        left = np.maximum((1 - overlapped) * seconds, seconds - products)
        return np.where((columns.tp <= columns.cluster.domain) & sharded, left, seconds)

    forward, backward = gathered_bytes(columns.workload)
    ahead = exposed(forward)
    back = ahead if backward == forward else exposed(backward)
    gathers, sums = exchanged_inputs(columns.workload, number)
    if sums != number:
        ahead = ahead * np.where(sharded, (gathers + number) / (2 * number), 1.0)
        back = back * np.where(sharded, (sums + number) / (2 * number), sums / number)
    each_sum = ahead / np.where(sharded, gathers + number, number)
    if terms.transformer_engine:
        heads = _gathered_heads(columns, tokens, links)
        ahead, back = ahead + heads, back + heads
    if not terms.batch_first or overlapped:
        return Exchanges(ahead, back, each_sum)
    scattered, gathered = _sequence_copies(columns, tokens, site)
    ahead = ahead + gathers * gathered + number * scattered
    return Exchanges(ahead, back + number * gathered + sums * scattered, each_sum + scattered)


def _gathered_heads(columns: Columns, tokens: Any, links: Links) -> FloatArray | float:
    """Estimate the gather of queries, keys and values among more tensor parallel ranks than there are key/value heads,
    and the scatter of their gradients.

    Megatron-Core divides their projection evenly, so that a rank needs parts of the others' outputs (NVIDIA/Megatron-LM
    at d98e8a64, megatron/core/transformer/attention.py: all_gather_last_dim_from_tensor_parallel_region).
    """
    model, few = columns.workload.model, columns.tp > columns.kv_heads
    if model.latent or model.delta_net or not few.any():
        return 0.0
    width = columns.query_width + gate_width(columns) + 2 * columns.kv_width
    gathered: FloatArray = gather(tokens * width * size_of(columns.workload), columns.tp, *links.tensor)
    return np.where(few, gathered, 0.0)


def _sequence_copies(columns: Columns, tokens: Any, site: SiteFactors) -> Passes:
    """Estimate the copies before a scatter and behind a gather of a sequence that lies behind the batch's dimension,
    the latter unless that has one entry (torch 2.13, distributed/_functional_collectives.py: reduce_scatter_single,
    _maybe_view_chunk_cat)."""
    moved = 2 * size_of(columns.workload) * tokens * columns.hidden  # a read and a write
    copied = (columns.tp > 1) & (columns.sequence_parallel == 1)
    copy = np.where(copied, moved / traffic_rate(columns.cluster.gpu, site), 0.0)
    return copy, np.where(columns.micro_batch > 1, copy, 0.0)


def exchanged_inputs(workload: Workload, number: int) -> tuple[int, int]:
    """Return how many inputs of attention and MLP tensor parallel ranks gather, and of how many they sum gradients.

    There is one each, or where each product does so for itself, those of queries, keys and values, gate and up
    (transformers 5.23, distributed/tensor_parallel.py: ColwiseParallel). torch.compile merges equal gathers, but no
    gradients.
    """
    terms = terms_of(workload)
    if not terms.separate_inputs:
        return number, number
    own = 3 + (number > 1) * (2 if workload.model.gated_mlp else 1)
    return number if terms.compiled else own, own


def context_exchanges(columns: Columns, tokens: Any, site: SiteFactors, links: Links, attention: Passes) -> Passes:
    """Estimate the exchange among context parallel ranks that attention does not hide, and merging its parts.

    In a ring keys and values go round, and backward also their gradients, beside the attention to other parts. A gather
    runs beside the attention to a rank's own part (PyTorch) or before it (Transformer Engine); backward the gradients
    go round or are scattered. Ulysses exchanges queries, keys, values and outputs before and after attention.
    """
    kind, (scores, scores_back) = context_exchange(columns.workload), attention
    if columns.workload.model.delta_net:  # its state passes along whole sequences
        kind = "a2a"
    if kind == "a2a":
        queries, keys, output = attention_widths(columns)
        moved = (
            (queries + output + keys) * tokens / columns.tp * size_of(columns.workload) * (columns.cp - 1) / columns.cp
        )
        bandwidth, latency = links.heads
        exchanged = moved / bandwidth + np.where(columns.cp > 1, 2 * latency, 0.0)
        return exchanged, exchanged
    ring = _ring(columns, tokens, *(links.context if kind == "all_gather" else links.context_sends))
    if kind == "all_gather" and terms_of(columns.workload).transformer_engine:
        return ring, 2 * ring
    merged, merged_back = _merges(columns, tokens, site)
    if kind == "all_gather":
        ahead, back = (np.maximum(0, ring - each / columns.cp) for each in attention)
        return ahead + merged, back + np.maximum(0, ring - scores_back) + merged_back
    return np.maximum(0, ring - scores) + merged, np.maximum(0, 2 * ring - scores_back) + merged_back


def _merges(columns: Columns, tokens: Any, site: SiteFactors) -> tuple[FloatArray, FloatArray]:
    """Estimate the cp - 1 times at which ring attention merges its parts: outputs, and gradients backward."""
    width, keys, _ = attention_widths(columns)
    seconds = (columns.cp - 1) * tokens / columns.tp / traffic_rate(columns.cluster.gpu, site)
    return seconds * MERGE_BYTES[0] * width, seconds * MERGE_BYTES[1] * (width + keys)


def _ring(columns: Columns, tokens: Any, bandwidth: FloatArray, latency: FloatArray) -> FloatArray:
    """Estimate the seconds in which each rank receives the keys and values of the cp - 1 others (Liu et al. 2023, arXiv
    2310.01889). No published table validates this term."""
    _, keys, _ = attention_widths(columns)
    moved = tokens * keys / columns.tp * size_of(columns.workload)
    ring: FloatArray = (columns.cp - 1) * (moved / bandwidth + latency)
    return ring
