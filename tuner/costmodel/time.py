"""Estimate the seconds of one iteration as a sum of named terms.

A 1F1B schedule takes the time of its slowest stage for all M microbatches plus the fill and drain of the others:
M t_slowest + (t_1 + ... + t_pp - t_slowest) / vpp (Narayanan et al. 2021, arXiv 2104.04473, section 2.2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np

from tuner.core.columns import BoolArray, Columns, FloatArray, IntArray, chunks
from tuner.core.precision import bf16_layers, recipe_of
from tuner.costmodel.constants import (
    BUCKET_ELEMENTS,
    END_STAGE_SEND_SHARE,
    OPTIMIZER_STEP_BYTES,
    OVERLAPPED_GATHER_SHARE,
    SHARDED_LAYER_HOST_SECONDS,
    STEP_LAYER_SECONDS,
    STEP_SECONDS,
)
from tuner.costmodel.framework_terms import gradient_bytes, terms_of, waiting_gradients
from tuner.costmodel.kernels import gathered_weight_bytes, host_pace, size_of, traffic_rate
from tuner.costmodel.layer import Layer
from tuner.costmodel.links import Links, all_reduce_between, gather
from tuner.costmodel.microbatch import MicrobatchTimes
from tuner.costmodel.muon import orthogonal_seconds
from tuner.costmodel.normal import expected_maximum
from tuner.costmodel.offload import offloaded_step
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stack_constants import (
    BACKWARD_SHARE,
    REDUCE_BUCKET,
    STRAGGLER_BASE,
    STRAGGLER_DEVIATION,
)
from tuner.costmodel.stages import Stages

TERMS: Final = (
    *(field.name for field in fields(Layer)),
    *("head", "pipeline", "bubble", "stragglers", "data_parallel", "sharding", "optimizer"),
)
"""Names of the terms in display order. `head` is the extra time of the slowest stage for output layer, loss and
embedding; `stragglers` what all ranks wait for the slowest GPU."""


def time_terms(columns: Columns, site: SiteFactors, times: MicrobatchTimes | None = None) -> dict[str, FloatArray]:
    """Estimate the seconds of one iteration by term, if need be from those of a microbatch; no term is negative."""
    times = times or MicrobatchTimes.of(columns, site)
    layer, head, embedding = times.layer(columns), times.head, times.embedding
    if mtp := columns.workload.model.mtp_layers:  # each a layer and a head of its own, on the last stage
        head = head + mtp * (times.predictor(layer) + head)
    microbatches = columns.microbatches
    links = Links(columns, site)
    layer_time, sends = layer.total, _sends(columns, links)
    stages = Stages.ends_and_inner(columns)
    fullest = np.maximum(stages.layers[0], stages.layers[1])
    others = _others(columns, times, layer)
    waits = sends
    if terms_of(columns.workload).overlap_sends:
        waits = np.where(columns.vpp > 1, np.maximum(0, sends - fullest * layer_time), sends)
    slowest, at = _slowest(stages, layer_time, others, embedding, head, waits)
    layers = stages.layers[at] if others else fullest
    layers_time = layers * layer_time
    pipeline_pass = columns.layers * layer_time + head + embedding + columns.pp * sends
    terms = {name: seconds * (layers * microbatches) for name, seconds in layer.terms().items()}
    for other in others:
        count = other.count(stages)[at]
        layers_time, pipeline_pass = layers_time + count * other.total, pipeline_pass + other.layers * other.total
        added = {name: terms[name] + seconds * (count * microbatches) for name, seconds in other.terms.items()}
        terms |= {name: np.maximum(0.0, seconds) for name, seconds in added.items()}  # a sum of 0 is rounded
    extra = np.maximum(0, slowest - layers_time)
    terms["head"] = np.maximum(0, extra - waits) * microbatches
    terms["pipeline"] = np.minimum(waits, extra) * microbatches
    terms["bubble"] = np.where(columns.pp > 1, np.maximum(0, pipeline_pass - slowest) / columns.vpp, 0.0)
    terms["stragglers"] = _straggling(columns) * (sum(terms.values()) - terms["pipeline"])
    both = Stages(columns, np.stack([Stages.first(columns).at, Stages.middle(columns).at]))
    stage = both.second_where(True)
    terms |= _data_parallel(columns, site, _exchanging(both), layer_time, links)
    if recipe_of(columns.workload) == "delayed" and terms_of(columns.workload).transformer_engine:
        terms["data_parallel"] = np.add(terms["data_parallel"], _delayed_scales(columns, links))
    terms["optimizer"] = _step(columns, site, stage)
    if columns.offload.any():
        terms |= offloaded_step(columns, stage, _visits(columns, site, stage), terms)
    return terms


def seconds(columns: Columns, site: SiteFactors) -> FloatArray:
    """Estimate the seconds of one iteration."""
    times, total = MicrobatchTimes.of(columns, site), np.zeros(len(columns.tp))
    for rows in chunks(len(total)):
        total[rows] = sum(time_terms(columns.rows(rows), site, times.rows(rows)).values())
    return total


def _straggling(columns: Columns) -> FloatArray:
    """Return the share by which passes are slower because every rank waits for the slowest GPU."""
    gpus = np.maximum(STRAGGLER_BASE, columns.replica * columns.dp)
    extra = expected_maximum(gpus) - expected_maximum(np.array(STRAGGLER_BASE))
    return np.asarray(STRAGGLER_DEVIATION * extra, dtype=np.float64)


def _sends(columns: Columns, links: Links) -> FloatArray:
    """Estimate a middle stage's sends per microbatch: activations forward and gradients back, once per chunk.

    With split sends each tensor parallel rank sends its part, and the ranks of the next stage gather them.
    """
    split = terms_of(columns.workload).split_sends
    shards = columns.tp if split else columns.sequence_shards
    size = columns.tokens * columns.hidden * size_of(columns.workload)
    bandwidth, latency = links.pipeline
    way = size / shards / bandwidth + latency
    if split:
        way = way + np.where(columns.sequence_parallel == 1, 0.0, gather(size, columns.tp, *links.tensor))
    return np.where(columns.pp > 1, 2 * way * columns.vpp, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Others:
    """Layers that differ from the one that a stage's layers are taken to be."""

    terms: dict[str, FloatArray]
    """By how much the terms of one of them differ."""
    count: Callable[[Stages], FloatArray]
    """Their number on a stage."""
    layers: FloatArray | float
    """Their number in the model."""

    @property
    def total(self) -> FloatArray:
        """By how many seconds one of them differs."""
        return np.asarray(sum(self.terms.values()), dtype=np.float64)


def _others(columns: Columns, times: MicrobatchTimes, layer: Layer) -> list[_Others]:
    """Return the layers in 16 bits beside fp8 or fp4, and those that attend to all tokens beyond the average."""
    found = []
    if times.in_16_bits is not None:
        own = layer.terms()
        terms = {name: seconds - own[name] for name, seconds in times.in_16_bits.layer(columns).terms().items()}
        found += [
            _Others(terms=terms, count=lambda stage: stage.bf16_layers, layers=sum(bf16_layers(columns.workload)))
        ]
    if more := times.more_of_whole():
        surplus = columns.whole_before(columns.layers) - columns.layers * columns.whole_share
        found += [_Others(terms=more, count=lambda stage: stage.whole_surplus, layers=surplus)]
    return found


def _slowest(
    stages: Stages,
    layer_time: FloatArray,
    others: list[_Others],
    embedding: FloatArray,
    head: FloatArray,
    sends: FloatArray,
) -> tuple[FloatArray, tuple[IntArray, IntArray]]:
    """Return the seconds of one microbatch on the slowest of the stages, and its places among them.

    Without a pipeline, one stage has both ends.
    """
    columns = stages.columns
    passes = sum((other.count(stages) * other.total for other in others), start=stages.layers * layer_time)
    first, last = passes[0] + embedding, passes[-1] + head
    middle, rows = 1 + np.argmax(passes[1:-1], axis=0), np.arange(len(columns.tp))
    slowest_inner = passes[middle, rows] + sends
    outer = np.maximum(first, last) + END_STAGE_SEND_SHARE * sends
    inside, alone = (columns.pp > 2) & (slowest_inner > outer), columns.pp == 1
    longest = np.where(alone, first + head, np.where(inside, slowest_inner, outer))
    at = np.where(inside, middle, np.where(first > last, 0, len(passes) - 1))
    return longest, (at, rows)


def _data_parallel(
    columns: Columns, site: SiteFactors, stage: Stages, layer_time: FloatArray, links: Links
) -> dict[str, FloatArray]:
    """Estimate the exchange of gradients and weights among data and context parallel ranks.

    ZeRO 0 and 1 reduce once per iteration, after the last microbatch; 1 and 2 gather the updated weights. ZeRO 2 stores
    no whole gradients and therefore reduces in each microbatch, unless the framework puts that off to the last; ZeRO 3
    also gathers each layer for both passes, and embedding and head once.
    With hybrid sharding these stay in a shard group, and the gradient shards are reduced over the replica groups: layer
    by layer in each microbatch, once with ZeRO 1. Compute hides at most the framework's share of these (DeepSpeed,
    stage_1_and_2.py and stage3.py).
    """
    bandwidth, latency = links.data
    framework, size, gradient = terms_of(columns.workload), size_of(columns.workload), gradient_bytes(columns.workload)
    layers, table = stage.layers, stage.table_parameters
    weights = stage.parameters - table
    hybrid = bool((columns.hsdp > 1).any())
    if hybrid:
        bandwidth, latency = links.shard
    parts = _buckets(columns, weights + table)
    step, latency = latency, parts * latency
    updated_size = gathered_weight_bytes(columns.workload)
    gathered = gather(weights * updated_size + table * size, columns.shards, bandwidth, latency)
    same = gradient == size == updated_size
    reduced = gathered if same else gather((weights + table) * gradient, columns.shards, bandwidth, latency)
    mixture = columns.workload.model.experts
    if mixture:
        own, summed = (
            gather(stage.expert_parameters * each, columns.expert_shards, *links.expert_data)
            for each in (updated_size, gradient)
        )
        gathered, reduced = gathered + own, reduced + summed
    whole = np.where(columns.zero == 0, 2.0, 1.0 if framework.scattered else 2.0) * reduced
    if hybrid:
        whole = whole + _replicas(columns, parts, stage, links)
    once = _exposed(whole, framework.overlap_grad, BACKWARD_SHARE * layers * layer_time)
    updated = _exposed(gathered, framework.overlap_param, (1 - BACKWARD_SHARE) * layers * layer_time)
    once = once + np.where(columns.zero == 0, 0.0, updated)
    if not (columns.zero >= 2).any():
        return {"data_parallel": once, "sharding": np.zeros_like(once)}
    microbatches: Any = columns.microbatches
    reductions = np.where(waiting_gradients(columns), 1, microbatches)
    gathers = gather(2 * updated_size * weights, columns.shards, bandwidth, 2 * layers * step)
    scattered = gather(gradient * (weights + table), columns.shards, bandwidth, gradient / size * layers * step)
    if mixture:
        gathers, scattered = gathers + 2 * own, scattered + summed
    exchanged = np.where(columns.zero == 2, reductions * reduced, microbatches * gathers + reductions * scattered)
    kept = _kept_for_the_next(columns) & framework.fully_sharded
    tables = gather(size * table, columns.shards, bandwidth, 0.0)
    exchanged = exchanged + np.where(columns.zero == 3, np.where(kept, 1, microbatches) * tables, 0.0)
    if framework.fully_sharded:  # ZeRO 2 gathers in each forward pass, in a pipeline once
        exchanged = exchanged - np.where(kept, (microbatches - 1) / 2 * gathers, 0.0)
        repeated = np.where(columns.pp > 1, 1, microbatches) * gathered
        exchanged, gathered = exchanged + np.where(columns.zero == 2, repeated, 0.0), np.zeros_like(gathered)
    if hybrid:
        exchanged = exchanged + reductions * _replicas(columns, layers, stage, links)
    compute = microbatches * layers * layer_time
    hidden = OVERLAPPED_GATHER_SHARE if framework.overlap_sharding is None else framework.overlap_sharding
    exposed = np.maximum((1 - hidden) * exchanged, exchanged - compute)
    host = SHARDED_LAYER_HOST_SECONDS * host_pace(columns.cluster.gpu, site) * layers * columns.microbatches
    return {
        "data_parallel": np.where(columns.zero <= 1, once, np.where(columns.zero == 2, gathered, 0.0)),
        "sharding": np.where(columns.zero == 2, exposed, np.where(columns.zero == 3, exposed + host, 0.0)),
    }


def _exchanging(first_and_middle: Stages) -> Stages:
    """Return the stage whose exchange ends last: the first one, or a middle one with more parameters.

    The last stage has the whole pipeline's drain and fill for its own.
    """
    first, middle = first_and_middle.elements(sharded=False)
    return first_and_middle.second_where(middle > first)


def _delayed_scales(columns: Columns, links: Links) -> FloatArray:
    """Estimate the exchange of the maxima that delayed scaling takes its scales from.

    Behind each pass of a chunk, all ranks of a stage reduce them (NVIDIA/Megatron-LM at d98e8a64, megatron/core/
    transformer/transformer_block.py: outer_quantization_context; parallel_state.py: get_amax_reduction_group;
    NVIDIA/TransformerEngine, pytorch/quantization.py: reduce_and_update_fp8_tensors).
    """
    seconds: FloatArray = links.stage * 2 * columns.vpp * columns.microbatches
    return seconds


def _kept_for_the_next(columns: Columns) -> BoolArray:
    """Return where a forward pass finds the weights that the backward pass before it has gathered.

    So it is with ZeRO 3 in a pipeline of PyTorch's without interleaved stages, which reshards nothing behind a backward
    pass but the last (torch 2.13, distributed/pipelining/stage.py: backward_maybe_with_nosync).
    """
    found: BoolArray = (columns.zero == 3) & (columns.pp > 1) & (columns.vpp == 1)
    return found


def _exposed(seconds: FloatArray, share: float, beside: FloatArray) -> FloatArray:
    """Return the exposed time of an exchange, a share of which may overlap with other work."""
    return np.maximum((1 - share) * seconds, seconds - beside) if share else seconds


def _buckets(columns: Columns, elements: FloatArray) -> FloatArray:
    """Return in how many collectives gradients are reduced, and updated weights gathered."""
    bucket: Any = BUCKET_ELEMENTS
    if terms_of(columns.workload).small_buckets:
        bucket = np.maximum(REDUCE_BUCKET[0], REDUCE_BUCKET[1] * columns.copies)
    parts: FloatArray = np.ceil(elements / bucket)
    return parts


def _replicas(columns: Columns, parts: Any, stage: Stages, links: Links) -> FloatArray:
    """Estimate the all-reduce of gradient shards over the replica groups, in so many parts."""
    bandwidth, latency = links.replica
    size = stage.elements(sharded=True) * gradient_bytes(columns.workload)
    return all_reduce_between(size, columns.hsdp, bandwidth, latency, parts)


def _step(columns: Columns, site: SiteFactors, stage: Stages) -> FloatArray:
    shard = stage.elements(columns.zero >= 1)
    moved: Any = OPTIMIZER_STEP_BYTES * shard / traffic_rate(columns.cluster.gpu, site)
    step: FloatArray = moved + _visits(columns, site, stage)
    return step + orthogonal_seconds(columns, site, stage) if columns.workload.optimizer == "muon" else step


def _visits(columns: Columns, site: SiteFactors, stage: Stages) -> FloatArray:
    """Estimate what a step takes besides its traffic: for the iteration, and for each layer that it visits."""
    layers: Any = STEP_LAYER_SECONDS * host_pace(columns.cluster.gpu, site) * stage.layers
    visits: FloatArray = STEP_SECONDS + layers
    return visits
