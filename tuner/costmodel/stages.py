"""Contents of a pipeline stage: layers, microbatches in flight, and share of embedding and head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from tuner.core.columns import BoolArray, Columns, FloatArray, IntArray, distinct_rows
from tuner.core.domain import COUNTED, LAYOUT, layout_chunks
from tuner.core.precision import bf16_layers
from tuner.costmodel.framework_terms import terms_of
from tuner.costmodel.matrices import layer_weights, routed_biases, routed_weights


@dataclass(frozen=True)  # without slots, which cached_property does not support
class Stages:
    """One stage of every row; `at` is its index in that row's pipeline, from 0.

    `at` may be two-dimensional: each line then contains one stage of every row.
    """

    columns: Columns
    at: IntArray

    @classmethod
    def first(cls, columns: Columns) -> Stages:
        """Return the stage with the embedding, which has the most microbatches in flight."""
        return cls(columns, np.zeros_like(columns.pp))

    @classmethod
    def middle(cls, columns: Columns) -> Stages:
        """Return a stage with a full share of layers: the second one, or the first in a pipeline of at most two."""
        return cls(columns, np.where(columns.pp > 2, 1, 0))

    @classmethod
    def last(cls, columns: Columns) -> Stages:
        """Return the stage with the head and the loss."""
        return cls(columns, columns.pp - 1)

    @classmethod
    def _inner(cls, columns: Columns) -> list[IntArray]:
        """Return places between the first and the last stage: a middle one, and of a model with linear or windowed
        attention the first ones with most layers of each kind."""
        middle = cls.middle(columns).at
        if np.all(columns.whole_share == 1):
            return [middle]
        first, distinct = distinct_rows(_pipelines(columns))
        some = columns.rows(first)
        at = np.arange(1, max(2, int(some.pp.max(initial=1)) - 1))[:, np.newaxis]
        every = cls(some, np.clip(at, np.minimum(1, some.pp - 1), np.maximum(0, some.pp - 2)))
        layers, whole = every.layers, every._whole_layers
        more = 1 + layers.max(initial=0)
        most = [np.argmax(more * kind + layers, axis=0) for kind in (whole, layers - whole)]
        return [middle, *(every.at[line, np.arange(len(first))][distinct] for line in most)]

    @classmethod
    def ends_and_inner(cls, columns: Columns) -> Stages:
        """Return the first, a middle one, further inner ones and the last stage as lines; one of them needs most time,
        or nearly so, and one most memory."""
        return cls(columns, np.stack([cls.first(columns).at, *cls._inner(columns), cls.last(columns).at]))

    def second_where(self, second: BoolArray | bool) -> Stages:
        """Return the second of two lines where `second` holds, else the first; sizes are picked from theirs."""
        chosen = Stages(self.columns, np.where(second, self.at[1], self.at[0]))
        for name in _SIZES:
            sizes = np.broadcast_to(getattr(self, name), self.at.shape)
            vars(chosen)[name] = np.where(second, sizes[1], sizes[0])  # where cached_property stores them
        return chosen

    def averaged(self, estimate: Callable[[Stages], FloatArray]) -> FloatArray:
        """Return the average over the stage's layers of an estimate for a stage with layers of one kind."""
        if len(self.columns.kinds) == 1:
            return estimate(self)
        (_, attended), (_, linear) = self.columns.kinds
        share = self.whole_layers / np.maximum(1, self.layers)
        return share * estimate(Stages(attended, self.at)) + (1 - share) * estimate(Stages(linear, self.at))

    @cached_property
    def is_first(self) -> BoolArray:
        """Whether the stage contains the input embedding."""
        first: BoolArray = self.at == 0
        return first

    @cached_property
    def is_last(self) -> BoolArray:
        """Whether the stage contains the head."""
        last: BoolArray = self.at == self.columns.pp - 1
        return last

    @cached_property
    def layers(self) -> IntArray:
        """Layers of the stage. A remainder goes to the first stages, one layer each.

        So do DeepSpeed (runtime/utils.py: partition_uniform, and partition_balanced over equal layers) and torchtitan
        (distributed/pipeline_parallel.py: generate_llm_fqn_per_model_part). Megatron-Core refuses a remainder unless
        it is given a layout, whose last chunk has what the others leave.
        """
        columns = self.columns
        units = columns.units // columns.pp + (self.at < columns.units % columns.pp)
        layers: IntArray = units - (columns.partition == COUNTED) * (self.is_first.astype(np.int64) + self.is_last)
        if not (columns.partition == LAYOUT).any():
            return layers
        most, last = layout_chunks(columns.layers, columns.pp * columns.vpp)
        return np.where(columns.partition == LAYOUT, most * columns.vpp - self.is_last * (most - last), layers)

    @cached_property
    def whole_layers(self) -> IntArray:
        """Layers of the stage that attend to all tokens.

        Rows that agree in their pipelines share one computation.
        """
        columns = self.columns
        first, distinct = distinct_rows((*_pipelines(columns), *np.atleast_2d(self.at)))
        return Stages(columns.rows(first), self.at[..., first])._whole_layers[..., distinct]

    @property
    def _whole_layers(self) -> IntArray:
        columns = self.columns
        found = np.zeros(np.shape(self.layers), dtype=np.int64)
        for chunk in range(int(columns.vpp.max(initial=1))):
            start, end = (self._layers_before(chunk * columns.pp + self.at + further) for further in (0, 1))
            found += (chunk < columns.vpp) * (columns.whole_before(end) - columns.whole_before(start))
        return found

    def _layers_before(self, chunk: IntArray) -> IntArray:
        """Return the layers before a chunk, counted from the first one of the pipeline."""
        columns = self.columns
        chunks = columns.pp * columns.vpp
        before = chunk * (columns.units // chunks) + np.minimum(chunk, columns.units % chunks)
        before = before - (columns.partition == COUNTED) * (chunk > 0)
        if (columns.partition == LAYOUT).any():
            before = np.where(columns.partition == LAYOUT, chunk * layout_chunks(columns.layers, chunks)[0], before)
        limited: IntArray = np.minimum(before, columns.layers)
        return limited

    @cached_property
    def whole_surplus(self) -> FloatArray:
        """Layers that attend to all tokens beyond the average of the model; negative on stages with fewer."""
        return self.whole_layers - self.layers * self.columns.whole_share

    @cached_property
    def layers_in_flight(self) -> FloatArray:
        """Layers times microbatches whose activations the stage stores at the peak of the schedule.

        1F1B: pp - at microbatches. Interleaved: 2 (pp - 1 - at) + (vpp - 1) pp + 1
        chunks of 1/vpp of its layers (Narayanan et al. 2021, arXiv 2104.04473, section 2.2, and Megatron-LM's
        `schedules.py`). Both are limited by the number of microbatches.
        """
        columns = self.columns
        left = columns.pp - 1 - self.at
        plain = np.minimum(left + 1, columns.microbatches)
        chunks = np.minimum(2 * left + (columns.vpp - 1) * columns.pp + 1, columns.vpp * columns.microbatches)
        flying: FloatArray = self.layers * np.where(columns.vpp > 1, chunks / columns.vpp, plain)
        return flying

    @cached_property
    def parameters(self) -> FloatArray:
        """Trained parameters on one GPU of the stage, without routed experts."""
        columns, model = self.columns, self.columns.workload.model
        layer = self._sized_layer if model.experts or model.latent else layer_parameters(columns)
        found: FloatArray = self.layers * layer + self.table_parameters
        if model.mtp_layers:
            found = found + self.predictors * predictor_weights(columns)
        if len(columns.kinds) > 1:
            difference = columns.attention_matrices - columns.delta_net_matrices
            found = found + self.whole_surplus * difference / columns.tp
        return found

    @cached_property
    def predictors(self) -> IntArray:
        """Layers of multi-token prediction, which are on the last stage."""
        predictors: IntArray = self.is_last * self.columns.workload.model.mtp_layers
        return predictors

    @cached_property
    def average_layer(self) -> FloatArray:
        """Parameters of an average layer of the stage on one GPU, without routed experts."""
        layers = self.parameters - self.table_parameters
        if self.columns.workload.model.mtp_layers:
            layers = layers - self.predictors * predictor_weights(self.columns)
        average: FloatArray = layers / np.maximum(1, self.layers)
        return average

    @cached_property
    def moe_layers(self) -> FloatArray:
        """Layers of the stage with experts. The leading dense layers are in the first chunks of the first stages."""
        experts = self.columns.workload.model.experts
        if experts is None:
            return np.zeros(np.shape(self.layers))
        chunk = self.layers / self.columns.vpp
        leading = np.clip(experts.dense_layers - self.at * chunk, 0, chunk)
        return (self.layers - leading) / experts.period

    @cached_property
    def bf16_layers(self) -> FloatArray:
        """Layers of the stage in 16 bits beside fp8 or fp4 layers: the first ones of its first chunk and the last ones
        of its last."""
        first, last = bf16_layers(self.columns.workload)
        chunk = self.layers / self.columns.vpp
        after = self.columns.pp - 1 - self.at
        return np.clip(first - self.at * chunk, 0, chunk) + np.clip(last - after * chunk, 0, chunk)

    @cached_property
    def bf16_share(self) -> FloatArray:
        """Share of the stage's layers in 16 bits beside fp8 or fp4 layers."""
        share: FloatArray = np.minimum(1.0, self.bf16_layers / np.maximum(1, self.layers))
        return share

    @cached_property
    def moe_share(self) -> FloatArray:
        """Share of the stage's layers with experts."""
        return self.moe_layers / np.maximum(1, self.layers)

    @cached_property
    def expert_parameters(self) -> FloatArray | float:
        """Parameters of the routed experts on one GPU of the stage; 0 in a dense model."""
        model = self.columns.workload.model
        if not model.experts:
            return 0.0
        predictors = self.predictors * model.is_moe_layer(model.layers - 1)
        layer = routed_weights(self.columns) + routed_biases(self.columns)
        return (self.moe_layers + predictors) * layer

    @cached_property
    def frozen(self) -> FloatArray:
        """Parameters on one GPU that are not trained."""
        columns = self.columns
        shards = columns.tp * columns.pp * np.where(columns.zero >= 3, columns.shards, 1)
        frozen: FloatArray = columns.workload.model.frozen_params / shards
        return frozen

    def elements(self, sharded: BoolArray | bool) -> FloatArray:
        """Return the trained parameters of a GPU, or its shard of them among the GPUs that hold the same."""
        columns = self.columns
        if not np.any(sharded):
            return self._trained
        found: FloatArray = self.parameters / np.where(sharded, columns.shards, 1)
        if columns.workload.model.experts:
            found = found + self.expert_parameters / np.where(sharded, columns.expert_shards, 1)
        return found

    @cached_property
    def _trained(self) -> FloatArray:
        """All trained parameters of a GPU."""
        return self.parameters + self.expert_parameters

    @property
    def _sized_layer(self) -> FloatArray:
        """Parameters of an average layer of the stage, without routed experts."""
        columns = self.columns
        share = self.moe_share if columns.workload.model.experts else 0.0
        return layer_weights(columns, share) + _norms(columns)

    @cached_property
    def table_parameters(self) -> FloatArray:
        """Parameters of embedding and head on one GPU.

        Megatron copies to the last stage an embedding that is tied, or that multi-token prediction looks up
        (NVIDIA/Megatron-LM at d98e8a64, megatron/core/models/gpt/gpt_model.py: mtp_process).
        """
        columns, model = self.columns, self.columns.workload.model
        table = columns.padded_vocab * columns.hidden / columns.tp
        positions = model.max_positions * columns.hidden if model.positions == "learned" else 0
        alone_tied = (columns.pp == 1) & model.tied_embeddings
        embedding = table * columns.tp if terms_of(columns.workload).whole_embedding else table
        tables: FloatArray = self.is_first * (embedding + positions) + self.is_last * np.where(alone_tied, 0, table)
        if model.mtp_layers and not model.tied_embeddings:
            tables = tables + self.is_last * np.where(columns.pp > 1, embedding, 0)
        return tables


_SIZES: Final = ("layers", "parameters", "table_parameters", "expert_parameters")


def _pipelines(columns: Columns) -> tuple[IntArray, ...]:
    """Return what decides which layers a stage has."""
    return columns.layers, columns.pp, columns.vpp, columns.partition


def layer_parameters(columns: Columns) -> FloatArray:
    """Return a layer's parameters on one tensor parallel rank: sharded matrices, replicated norms and row biases."""
    model = columns.workload.model
    norms = _norms(columns)
    row_biases = (int(model.attention_bias) + int(model.mlp_bias)) * columns.hidden
    column_biases = int(model.qkv_bias) * columns.head_size * (columns.heads + 2 * columns.kv_heads)
    column_biases = column_biases + int(model.mlp_bias) * (2 if model.gated_mlp else 1) * columns.ffn
    parameters: FloatArray = (columns.layer_matrices + column_biases) / columns.tp + norms + row_biases
    return parameters


def predictor_weights(columns: Columns) -> FloatArray:
    """Return the parameters of a layer of multi-token prediction on one GPU, without routed experts.

    It has attention and an MLP like the last layer's, a projection of the hidden state and the next token's embedding,
    and three norms.
    """
    model, (_, attended) = columns.workload.model, columns.kinds[0]
    matrices = layer_weights(attended, float(model.is_moe_layer(model.layers - 1)))
    norms = (3 + model.norms_per_layer) * _norm(columns)
    weights: FloatArray = matrices + 2 * columns.hidden**2 / columns.tp + norms
    return weights


def _norms(columns: Columns) -> IntArray:
    return columns.workload.model.norms_per_layer * _norm(columns)


def _norm(columns: Columns) -> IntArray:
    return (2 if columns.workload.model.norm == "layernorm" else 1) * columns.hidden
