"""Seconds of one iteration, by named terms that add up.

A 1F1B schedule takes as long as its slowest stage needs for all microbatches, and the fill and drain through the
others: M t_slowest + (t_1 + ... + t_pp - t_slowest) / vpp (Narayanan et al. 2021, arXiv 2104.04473, section 2.2).
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

import numpy as np

from tuner.core.columns import Columns, FloatArray, IntArray
from tuner.costmodel.constants import (
    END_STAGE_SEND_SHARE,
    LOSS_BYTES,
    OPTIMIZER_STEP_BYTES,
    OVERLAPPED_GATHER_SHARE,
    SHARDED_LAYER_HOST_SECONDS,
    STEP_LAYER_SECONDS,
    STEP_SECONDS,
)
from tuner.costmodel.kernels import beside_layers, linear, size_of, traffic_rate
from tuner.costmodel.layer import Layer, layer_seconds
from tuner.costmodel.links import Links, all_reduce, gather
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stages import Stages

TERMS: Final = (
    *(field.name for field in fields(Layer)),
    *("head", "pipeline", "bubble", "data_parallel", "sharding", "optimizer"),
)
"""The names of the terms, in the order in which they are shown. `head` is what output layer, loss and embedding make
their stage slower than the others."""


def time_terms(columns: Columns, site: SiteFactors) -> dict[str, FloatArray]:
    """Seconds of one iteration by term; none is negative."""
    layer, head, embedding = _of_distinct(columns, site)
    stage = Stages.middle(columns)
    microbatches = columns.microbatches
    times = stage.layers * microbatches
    links = Links(columns, site)
    each, sends = layer.total, _sends(columns, links)
    slowest = _slowest(stage, each, embedding, head, sends)
    beside = np.maximum(0, slowest - stage.layers * each)
    through = columns.layers * each + head + embedding + columns.pp * sends
    terms = {name: seconds * times for name, seconds in layer.terms().items()}
    terms["head"] = np.maximum(0, beside - sends) * microbatches
    terms["pipeline"] = np.minimum(sends, beside) * microbatches
    terms["bubble"] = np.where(columns.pp > 1, np.maximum(0, through - slowest) / columns.vpp, 0.0)
    terms |= _data_parallel(columns, site, stage, each, links)
    terms["optimizer"] = _step(columns, site, stage)
    return terms


def seconds(columns: Columns, site: SiteFactors) -> FloatArray:
    """Seconds of one iteration."""
    total: FloatArray = sum(time_terms(columns, site).values(), start=np.zeros(len(columns.tp)))
    return total


def _of_distinct(columns: Columns, site: SiteFactors) -> tuple[Layer, FloatArray, FloatArray]:
    """Seconds of a layer, of the head and of the embedding for one microbatch.

    Computed once for each kind of row: few differ in what they depend on.
    """
    more = (columns.microbatches > 1).astype(np.int64)
    parts = (
        *(columns.tp, columns.cp, columns.micro_batch, columns.sequence_parallel),
        *(columns.recompute, columns.heads, columns.hidden, more),
    )
    code: IntArray = np.zeros(len(columns.tp), dtype=np.int64)
    span = 1
    for part in parts:
        size = int(part.max(initial=0)) + 1
        span *= size
        code = code * size + part
    if span >= 2**62:  # the code of a row would not fit an integer
        return _of_each(columns, site)
    _, first, back = np.unique(code, return_index=True, return_inverse=True)
    if len(first) * 2 > len(code):
        return _of_each(columns, site)
    layer, head, embedding = _of_each(columns.rows(first), site)
    spread = Layer(**{name: values[back] for name, values in layer.terms().items()})
    return spread, head[back], embedding[back]


def _of_each(columns: Columns, site: SiteFactors) -> tuple[Layer, FloatArray, FloatArray]:
    links = Links(columns, site)
    return layer_seconds(columns, site, links), _head(columns, site, links), _embedding(columns, site, links)


def _head(columns: Columns, site: SiteFactors, links: Links) -> FloatArray:
    """The output layer and the loss of one microbatch."""
    gpu = columns.cluster.gpu
    workload = beside_layers(gpu, columns.workload)
    tokens = columns.micro_batch * workload.model.seq / columns.cp
    forward, backward = linear(gpu, workload, site, tokens, columns.padded_vocab / columns.tp, columns.hidden)
    bandwidth, latency = links.tensor
    logits = tokens * columns.padded_vocab
    shared = all_reduce(tokens * columns.hidden * size_of(workload), columns.tp, bandwidth, latency)
    if workload.parallel_loss:
        logits = logits / columns.tp
    else:
        shared = shared + gather(logits * size_of(workload), columns.tp, bandwidth, latency)
    return forward + backward + logits * LOSS_BYTES / traffic_rate(gpu, site) + shared


def _embedding(columns: Columns, site: SiteFactors, links: Links) -> FloatArray:
    """Looking up one microbatch and adding its gradients, and the sum over the ranks that hold the table."""
    size = columns.micro_batch * columns.workload.model.seq / columns.cp * columns.hidden * size_of(columns.workload)
    bandwidth, latency = links.tensor
    return 6 * size / traffic_rate(columns.cluster.gpu, site) + all_reduce(size, columns.tp, bandwidth, latency)


def _sends(columns: Columns, links: Links) -> FloatArray:
    """A middle stage's sends for one microbatch, activations onward and gradients back, once for each chunk."""
    kept = np.where(columns.sequence_parallel == 1, columns.tp, 1)
    size = columns.micro_batch * columns.workload.model.seq / columns.cp * columns.hidden / kept
    bandwidth, latency = links.pipeline
    each = 2 * (size * size_of(columns.workload) / bandwidth + latency)
    return np.where(columns.pp > 1, each * columns.vpp, 0.0)


def _slowest(
    middle: Stages, each: FloatArray, embedding: FloatArray, head: FloatArray, sends: FloatArray
) -> FloatArray:
    """Seconds of one microbatch on the stage that needs the most; without a pipeline one stage has both ends."""
    columns = middle.columns
    first, last = Stages.first(columns).layers * each, Stages.last(columns).layers * each
    outer = np.maximum(first + embedding, last + head) + END_STAGE_SEND_SHARE * sends
    longest = np.where(columns.pp > 2, np.maximum(middle.layers * each + sends, outer), outer)
    return np.where(columns.pp > 1, longest, first + embedding + head)


def _data_parallel(
    columns: Columns, site: SiteFactors, stage: Stages, each: FloatArray, links: Links
) -> dict[str, FloatArray]:
    """Gradients and weights that data and context parallel ranks exchange.

    ZeRO 0 and 1 reduce once an iteration, after the last microbatch; 1 and 2 gather the stepped weights. ZeRO 2 keeps
    no whole gradients, so that it reduces in each microbatch, and 3 gathers each layer for both passes as well: these
    hide behind the products as far as `OVERLAPPED` says (DeepSpeed, stage_1_and_2.py and stage3.py).
    """
    bandwidth, latency = links.data
    size = size_of(columns.workload)
    weights = stage.layers * columns.layer_matrices / columns.tp * size
    table = columns.padded_vocab * columns.hidden / columns.tp * size
    gathered = gather(weights + table, columns.copies, bandwidth, latency)
    once = np.where(columns.zero == 0, 2 * gathered, 3 * gathered)
    if not (columns.zero >= 2).any():
        return {"data_parallel": once, "sharding": np.zeros_like(once)}
    often = columns.microbatches * np.where(
        columns.zero == 2, gathered, 3 * gather(weights, columns.copies, bandwidth, stage.layers * latency)
    )
    behind = columns.microbatches * stage.layers * each
    exposed = np.maximum((1 - OVERLAPPED_GATHER_SHARE) * often, often - behind)
    host = SHARDED_LAYER_HOST_SECONDS * site.host * stage.layers * columns.microbatches
    return {
        "data_parallel": np.where(columns.zero <= 1, once, np.where(columns.zero == 2, gathered, 0.0)),
        "sharding": np.where(columns.zero == 2, exposed, np.where(columns.zero == 3, exposed + host, 0.0)),
    }


def _step(columns: Columns, site: SiteFactors, stage: Stages) -> FloatArray:
    shard = stage.parameters / np.where(columns.zero >= 1, columns.copies, 1)
    moved: Any = OPTIMIZER_STEP_BYTES * shard / traffic_rate(columns.cluster.gpu, site)
    step: FloatArray = moved + STEP_SECONDS + STEP_LAYER_SECONDS * site.host * stage.layers
    return step
