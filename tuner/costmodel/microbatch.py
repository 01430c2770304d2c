"""Estimate the seconds of a layer, the head and the embedding for one microbatch, once for rows that agree in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tuner.core.columns import Columns, FloatArray, IntArray, chunks, distinct_rows
from tuner.core.frameworks import context_exchange
from tuner.core.precision import bf16_layers
from tuner.core.stack import Stack
from tuner.costmodel.constants import LOSS_BYTES
from tuner.costmodel.expert_shapes import moe_share
from tuner.costmodel.expert_time import ExpertLayer, averaged, expert_layer_seconds
from tuner.costmodel.framework_terms import terms_of
from tuner.costmodel.kernels import beside_layers, linear, size_of, traffic_rate
from tuner.costmodel.layer import Layer, layer_seconds
from tuner.costmodel.links import Links, all_reduce, gather
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stack_constants import FUSED_LOSS_BYTES

_Terms = dict[str, FloatArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class MicrobatchTimes:
    """Seconds of a layer, the head and the embedding for one microbatch.

    Rows that agree in all inputs of these estimates share one computation; most rows of a space do.
    """

    distinct: IntArray
    """The computation of each row."""
    layers: _Terms
    """Terms of a layer, by the computation; in a mixture, of one with experts."""
    dense: _Terms
    """Those of a layer without experts, in a mixture that has both."""
    whole: _Terms
    """By how much those of a layer that attends to all tokens differ from those of one that does not, in a model that
    has both."""
    ends: _Terms
    in_16_bits: MicrobatchTimes | None
    """The same in 16 bits, where some layers are beside fp8 or fp4 ones."""

    @classmethod
    def of(cls, columns: Columns, site: SiteFactors) -> MicrobatchTimes:
        """Estimate the seconds of all rows."""
        workload = columns.workload
        first, distinct = distinct_rows(_inputs(columns))
        mixed = workload.model.experts is not None and bool((moe_share(columns) < 1).any())
        computed = [_computed(columns.rows(first[rows]), site, mixed=mixed) for rows in chunks(len(first))]
        layers, dense, whole, ends = (
            {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            for parts in zip(*computed, strict=True)
        )
        halves = None
        if any(bf16_layers(workload)):
            halves = cls.of(columns.under(beside_layers(columns.cluster.gpu, workload)), site)
        return cls(distinct=distinct, layers=layers, dense=dense, whole=whole, ends=ends, in_16_bits=halves)

    def rows(self, rows: slice) -> MicrobatchTimes:
        """Return those of some rows."""
        halves = None if self.in_16_bits is None else self.in_16_bits.rows(rows)
        return replace(self, distinct=self.distinct[rows], in_16_bits=halves)

    def layer(self, columns: Columns) -> Layer:
        """Return a layer of each row; in a mixture, the average of the stage with most of the layers with experts."""
        found = self._spread(self.layers)
        if not columns.workload.model.experts:
            return Layer(**found)
        mixture = ExpertLayer(**found)
        return averaged(columns, mixture, Layer(**self._spread(self.dense))) if self.dense else mixture

    def more_of_whole(self) -> _Terms:
        """Return by how much a layer that attends to all tokens differs from one that does not; none without both."""
        return self._spread(self.whole)

    @property
    def head(self) -> FloatArray:
        """The output layer and the loss of each row."""
        return self.ends["head"][self.distinct]

    def predictor(self, layer: Layer) -> FloatArray:
        """Return a layer of multi-token prediction, which has attention, given an average layer of each row, and the
        projection in front of it."""
        own = self.ends["predictor"][self.distinct] if "predictor" in self.ends else layer.total
        predictor: FloatArray = own + self.ends["projection"][self.distinct]
        return predictor

    @property
    def embedding(self) -> FloatArray:
        """The lookup and the update of the embedding of each row."""
        return self.ends["embedding"][self.distinct]

    def _spread(self, terms: _Terms) -> _Terms:
        return {name: seconds[self.distinct] for name, seconds in terms.items()}


def _inputs(columns: Columns) -> tuple[IntArray, ...]:
    """Return what the estimates of this module depend on."""
    parts: tuple[IntArray, ...] = (
        *(columns.tp, columns.cp, columns.micro_batch, columns.sequence_parallel),
        *(columns.recompute, columns.heads, columns.hidden, (columns.microbatches > 1).astype(np.int64)),
    )
    if columns.workload.model.delta_net:
        parts = (*parts, columns.layers)
    if columns.workload.model.experts:
        parts = (*parts, columns.ep, columns.etp, columns.dispatcher)
        if columns.moe_overlap.any():
            parts = (*parts, columns.moe_overlap, columns.pp, columns.microbatches)
    return parts


def _computed(columns: Columns, site: SiteFactors, *, mixed: bool) -> tuple[_Terms, _Terms, _Terms, _Terms]:
    links = Links(columns, site)
    model, parts = columns.workload.model, [part for _, part in columns.kinds]
    layers = expert_layer_seconds if model.experts else layer_seconds
    kinds = [layers(part, site, links).terms() for part in parts]
    dense = [layer_seconds(part, site, links).terms() for part in parts] if mixed else []
    ends = {"head": _head(columns, site, links), "embedding": _embedding(columns, site, links)}
    if model.mtp_layers:
        gpu, width = columns.cluster.gpu, columns.hidden / columns.tp
        ends["projection"] = np.sum(
            linear(gpu, columns.workload, site, columns.tokens, width, 2 * columns.hidden), axis=0
        )
    if model.mtp_layers and len(parts) > 1:
        ends["predictor"] = np.sum(list(kinds[0].values()), axis=0)
    both = kinds if len(parts) > 1 else [layers(part, site, links).terms() for part in _by_window(columns)]
    more = {name: seconds - both[1][name] for name, seconds in both[0].items()} if both else {}
    return _average(columns, kinds), _average(columns, dense) if mixed else {}, more, ends


def _by_window(columns: Columns) -> list[Columns]:
    """Return the same topologies of a model without windows, and of one with windows in all layers, if it has both."""
    model = columns.workload.model
    if model.windowed_share in (0, 1):
        return []
    workload = columns.workload
    stack = replace(workload.stack or Stack(), cp_comm=context_exchange(workload))  # that of all layers
    models = (replace(model, sliding_window=0), replace(model, window_start=0, window_skip=0))
    return [columns.under(replace(workload, model=one, stack=stack)) for one in models]


def _average(columns: Columns, kinds: Sequence[_Terms]) -> _Terms:
    """Return the terms of an average layer, given those of each kind."""
    if len(kinds) == 1:
        return kinds[0]
    (one, _), (other, _) = columns.kinds
    return {name: one * seconds + other * kinds[1][name] for name, seconds in kinds[0].items()}


def _head(columns: Columns, site: SiteFactors, links: Links) -> FloatArray:
    """Estimate the output layer and the loss of one microbatch."""
    gpu = columns.cluster.gpu
    workload = beside_layers(gpu, columns.workload)
    tokens = columns.tokens
    forward, backward = linear(gpu, workload, site, tokens, columns.padded_vocab / columns.tp, columns.hidden)
    bandwidth, latency = links.tensor
    logits = tokens * columns.padded_vocab
    shared = all_reduce(tokens * columns.hidden * size_of(workload), columns.tp, bandwidth, latency)
    if workload.parallel_loss:
        logits = logits / columns.tp
    else:
        shared = shared + gather(logits * size_of(workload), columns.tp, bandwidth, latency)
    moved = FUSED_LOSS_BYTES if workload.parallel_loss and terms_of(workload).fused_loss else LOSS_BYTES
    return forward + backward + logits * moved / traffic_rate(gpu, site) + shared


def _embedding(columns: Columns, site: SiteFactors, links: Links) -> FloatArray:
    """Estimate the lookup and gradient update of one microbatch, and the all-reduce over the table's shards if it has
    some."""
    size = columns.tokens * columns.hidden * size_of(columns.workload)
    moved = 6 * size / traffic_rate(columns.cluster.gpu, site)
    if terms_of(columns.workload).whole_embedding:
        return moved
    bandwidth, latency = links.tensor
    return moved + all_reduce(size, columns.tp, bandwidth, latency)
