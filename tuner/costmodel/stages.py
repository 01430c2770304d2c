"""What a pipeline stage holds: its layers, the microbatches in flight, its share of embedding and head."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tuner.core.columns import BoolArray, Columns, FloatArray, IntArray


@dataclass(frozen=True)  # without slots, which have no room for what is worked out once
class Stages:
    """One stage of every row; `at` is its place in that row's pipeline, from 0.

    `at` may have more lines than one, each with a stage of every row.
    """

    columns: Columns
    at: IntArray

    @classmethod
    def first(cls, columns: Columns) -> Stages:
        """The stage with the embedding, on which most microbatches are in flight."""
        return cls(columns, np.zeros_like(columns.pp))

    @classmethod
    def middle(cls, columns: Columns) -> Stages:
        """A stage with as many layers as any, by the even share."""
        return cls(columns, np.where(columns.pp > 2, 1, 0))

    @classmethod
    def last(cls, columns: Columns) -> Stages:
        """The stage with the head and the loss."""
        return cls(columns, columns.pp - 1)

    @classmethod
    def ends_and_middle(cls, columns: Columns) -> Stages:
        """First, middle and last as three lines: among them is the stage that needs most of anything."""
        return cls(columns, np.stack([stage(columns).at for stage in (cls.first, cls.middle, cls.last)]))

    @cached_property
    def is_first(self) -> BoolArray:
        """Whether it holds the input embedding."""
        first: BoolArray = self.at == 0
        return first

    @cached_property
    def is_last(self) -> BoolArray:
        """Whether it holds the head."""
        last: BoolArray = self.at == self.columns.pp - 1
        return last

    @cached_property
    def layers(self) -> IntArray:
        """Its layers. Where they do not divide evenly, every stage is taken for as full as the fullest."""
        columns = self.columns
        return columns.stage_units - columns.partition * (self.is_first.astype(np.int64) + self.is_last)

    @cached_property
    def layers_in_flight(self) -> FloatArray:
        """Layers times microbatches whose activations it keeps at the fullest moment of the schedule.

        1F1B: as many microbatches as stages are left, itself included. Interleaved: 2 (pp - 1 - at) + (vpp - 1) pp + 1
        chunks of 1/vpp of its layers (Narayanan et al. 2021, arXiv 2104.04473, section 2.2, and Megatron-LM's
        `schedules.py`). Never more than the microbatches there are.
        """
        columns = self.columns
        left = columns.pp - 1 - self.at
        plain = np.minimum(left + 1, columns.microbatches)
        chunks = np.minimum(2 * left + (columns.vpp - 1) * columns.pp + 1, columns.vpp * columns.microbatches)
        flying: FloatArray = self.layers * np.where(columns.vpp > 1, chunks / columns.vpp, plain)
        return flying

    @cached_property
    def parameters(self) -> FloatArray:
        """Trained parameters on one GPU of it."""
        return self.layers * layer_parameters(self.columns) + self.table_parameters

    @cached_property
    def table_parameters(self) -> FloatArray:
        """Of the embedding and the head, those on one GPU: Megatron copies a tied embedding to the last stage."""
        columns, model = self.columns, self.columns.workload.model
        table = columns.padded_vocab * columns.hidden / columns.tp
        positions = model.max_positions * columns.hidden if model.positions == "learned" else 0
        alone_tied = (columns.pp == 1) & model.tied_embeddings
        tables: FloatArray = self.is_first * (table + positions) + self.is_last * np.where(alone_tied, 0, table)
        return tables


def layer_parameters(columns: Columns) -> FloatArray:
    """Parameters of one layer on one tensor parallel rank: matrices cut, norms and row biases whole."""
    model = columns.workload.model
    norms = model.norms_per_layer * (2 if model.norm == "layernorm" else 1) * columns.hidden
    row_biases = (int(model.attention_bias) + int(model.mlp_bias)) * columns.hidden
    column_biases = int(model.qkv_bias) * columns.head_size * (columns.heads + 2 * columns.kv_heads)
    column_biases = column_biases + int(model.mlp_bias) * (2 if model.gated_mlp else 1) * columns.ffn
    parameters: FloatArray = (columns.layer_matrices + column_biases) / columns.tp + norms + row_biases
    return parameters
