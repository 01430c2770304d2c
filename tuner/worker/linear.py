"""Modules with sharded weights: column and row parallel linears, and norms.

Each parameter is created and initialized as its shard, on its device and in its dtype, so that no rank ever allocates
a whole matrix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear, rms_norm

from tuner.core.domain import Workload
from tuner.core.experts import Experts
from tuner.core.model import Model
from tuner.worker.mesh import Mesh
from tuner.worker.parallel import column_product, copied, reduced, reduced_shard
from tuner.worker.weights import DEVIATION, draw

PIECE = 2**24
"""Frozen parameters per tensor: ZeRO 3 shards each one before the next is created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """Creates parameters for a mesh, from the job's seed and the name of the current module."""

    mesh: Mesh
    seed: int
    name: str = ""

    def part(self, name: str) -> Maker:
        """Return the maker for a submodule, with its name appended."""
        return Maker(mesh=self.mesh, seed=self.seed, name=f"{self.name}.{name}" if self.name else name)

    def matrix(self, rows: Sequence[range], columns: range, deviation: float, *, sharded: bool) -> nn.Parameter:
        """Return the given rows and columns of the matrix with this maker's name."""
        weight = torch.empty(
            sum(map(len, rows)), len(columns), device=self.mesh.device, dtype=self.mesh.dtype, requires_grad=False
        )
        draw(weight, name=self.name, seed=self.seed, rows=rows, columns=columns, deviation=deviation)
        return self._parameter(weight, sharded)

    def vector(self, size: int, value: float, *, sharded: bool) -> nn.Parameter:
        """Return a constant vector: a bias or the weight of a norm."""
        return self._parameter(torch.full((size,), value, device=self.mesh.device, dtype=self.mesh.dtype), sharded)

    def _parameter(self, tensor: Tensor, sharded: bool) -> nn.Parameter:
        parameter = nn.Parameter(tensor)
        mark(parameter, counts=sharded or self.mesh.tp_rank == 0)
        return parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Settings that all layers of a model share."""

    workload: Workload
    """With the heads, shape and batch of the topology."""
    recompute_attention: bool
    """Whether the backward pass recomputes the core of the attention."""
    microbatches: int
    """Microbatches of one replica in an iteration, over which DeepSpeed averages gradients."""

    @property
    def experts(self) -> Experts:
        """Sizes of the experts of a model that has some."""
        return cast("Experts", self.workload.model.experts)

    @property
    def head_size(self) -> int:
        """Width of one head."""
        return self.workload.model.query_width // self.workload.model.heads

    @property
    def deviation(self) -> float:
        """Standard deviation of the matrices that write to the residual stream, as in Megatron."""
        return self.workload.model.init_std / math.sqrt(2 * self.workload.model.layers)

    def turned(self, number: int) -> bool:
        """Whether layer `number`, counted from 0, has rotary positions."""
        model = self.workload.model
        return model.positions == "rotary" and not (model.rotary_skip and (number + 1) % model.rotary_skip == 0)


class Beside(nn.Module):
    """This rank's share of the model's additional frozen parameters, which only occupy memory."""

    def __init__(self, model: Model, mesh: Mesh) -> None:
        super().__init__()
        whole, rest = divmod(-(-model.frozen_params // (mesh.tp * mesh.stages)), PIECE)
        for number, size in enumerate([PIECE] * whole + [rest] * (rest > 0)):
            piece = torch.zeros(size, device=mesh.device, dtype=mesh.dtype)
            self.register_parameter(f"frozen{number}", nn.Parameter(piece, requires_grad=False))


def mark(parameter: nn.Parameter, *, counts: bool) -> None:
    """Set whether this rank's gradient counts in DeepSpeed's norm for gradient clipping.

    DeepSpeed counts parameters with this attribute on every rank, and others only on the first tensor parallel rank; a
    replicated parameter must count once.
    """
    setattr(parameter, "tensor_model_parallel", counts)  # noqa: B010 - no field of a Parameter that a checker knows


def shard_of(total: int, mesh: Mesh, *, offset: int = 0) -> range:
    """Return this rank's range of a dimension that starts at `offset`."""
    size = total // mesh.tp
    return range(offset + size * mesh.tp_rank, offset + size * (mesh.tp_rank + 1))


class ColumnLinear(nn.Module):
    """A linear whose output columns are sharded over the tensor parallel ranks."""

    def __init__(
        self, maker: Maker, inputs: int, outputs: Sequence[range], *, bias: bool, deviation: float = DEVIATION
    ) -> None:
        super().__init__()
        self.mesh = maker.mesh
        self.weight = maker.part("weight").matrix(outputs, range(inputs), deviation, sharded=True)
        size = sum(map(len, outputs))
        self.bias = maker.part("bias").vector(size, 0.0, sharded=True) if bias else None

    def forward(self, inputs: Tensor) -> Tensor:
        """Map the whole hidden dimension to this rank's columns."""
        return column_product(inputs, self.weight, self.bias, self.mesh.tp_group, self.mesh.sequence_parallel)


class CopiedLinear(ColumnLinear):
    """A column linear whose columns are replicated on several ranks: key/value heads if tp exceeds their number."""

    def __init__(
        self, maker: Maker, inputs: int, outputs: Sequence[range], *, bias: bool, deviation: float = DEVIATION
    ) -> None:
        super().__init__(maker, inputs, outputs, bias=bias, deviation=deviation)
        for parameter in self.parameters():
            mark(parameter, counts=self.mesh.first_of_kv_copies)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute a column linear; the backward pass sums the gradients of the replicas."""
        mesh = self.mesh
        weight = copied(self.weight, mesh.kv_group)
        bias = None if self.bias is None else copied(self.bias, mesh.kv_group)
        return column_product(inputs, weight, bias, mesh.tp_group, mesh.sequence_parallel)


class RowLinear(nn.Module):
    """A linear whose input columns are sharded over the tensor parallel ranks; the products are summed over ranks."""

    def __init__(self, maker: Maker, inputs: int, outputs: int, *, bias: bool, deviation: float) -> None:
        super().__init__()
        self.mesh = maker.mesh
        columns = shard_of(inputs, maker.mesh)
        self.weight = maker.part("weight").matrix([range(outputs)], columns, deviation, sharded=True)
        self.bias = maker.part("bias").vector(outputs, 0.0, sharded=False) if bias else None

    def forward(self, inputs: Tensor) -> Tensor:
        """Map this rank's columns to the whole hidden dimension, of all or a share of the sequence."""
        product = linear(inputs, self.weight)
        total = reduced_shard if self.mesh.sequence_parallel else reduced
        product = total(product, self.mesh.tp_group)
        return product if self.bias is None else product + shared(self.bias, self.mesh)


class Norm(nn.Module):
    """LayerNorm or RMSNorm, as one fused kernel or as separate operations."""

    def __init__(
        self,
        maker: Maker,
        size: int,
        *,
        kind: str,
        fused: bool,
        epsilon: float = 1e-5,
        offset: bool = False,
        biased: bool = True,
        cut: bool = False,
    ) -> None:
        super().__init__()
        self.mesh = maker.mesh
        self.size, self.fused, self.epsilon = size, fused, epsilon
        self.one = float(offset)
        """Offset of the stored weight: 1 if it is stored as its difference from one."""
        self.group: Any = maker.mesh.tp_group if cut or maker.mesh.sequence_parallel else None
        """Group that sums the gradients: ranks that normalize different values with the same weight."""
        self.weight = maker.part("weight").vector(size, 1.0 - self.one, sharded=False)
        self.centred = kind == "layernorm"
        self.bias = maker.part("bias").vector(size, 0.0, sharded=False) if self.centred and biased else None

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise the last dimension."""
        weight = copied(self.weight, self.group)
        weight = weight + self.one if self.one else weight
        bias = None if self.bias is None else copied(self.bias, self.group)
        if self.fused:
            if not self.centred:
                return rms_norm(inputs, (self.size,), weight, self.epsilon)
            return layer_norm(inputs, (self.size,), weight, bias, self.epsilon)
        values = inputs.float()
        if self.centred:
            values = values - values.mean(-1, keepdim=True)
        values = values * torch.rsqrt(values.square().mean(-1, keepdim=True) + self.epsilon)
        values = values.to(inputs.dtype) * weight
        return values if bias is None else values + bias


def norm_of(workload: Workload, maker: Maker, size: int = 0, *, fused: bool | None = None, cut: bool = False) -> Norm:
    """Return a norm as the model has them, of hidden width unless a `size` is given."""
    model = workload.model
    return Norm(
        maker,
        size or model.hidden,
        kind=model.norm,
        fused=workload.fused_norms if fused is None else fused,
        epsilon=model.norm_epsilon,
        offset=model.norm_offset,
        biased=model.norm_bias,
        cut=cut,
    )


def shared(parameter: Tensor, mesh: Mesh) -> Tensor:
    """Return a replicated parameter, whose gradients are summed if sequence parallelism splits the tokens."""
    return copied(parameter, mesh.tp_group) if mesh.sequence_parallel else parameter
