"""One transformer layer: tensor parallel attention and MLP, each after a norm."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import gelu, scaled_dot_product_attention, silu
from torch.utils.checkpoint import checkpoint

from tuner.core.domain import Workload
from tuner.worker.linear import ColumnLinear, CopiedLinear, Maker, Norm, RowLinear, shard_of
from tuner.worker.weights import DEVIATION


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Settings that all layers of a model share."""

    workload: Workload
    """With the heads, shape and batch of the topology."""
    recompute_attention: bool
    """Whether the backward pass recomputes the core of the attention."""

    @property
    def head_size(self) -> int:
        """Width of one head."""
        return self.workload.model.query_width // self.workload.model.heads

    @property
    def deviation(self) -> float:
        """Standard deviation of the matrices that write to the residual stream, as in Megatron."""
        return DEVIATION / math.sqrt(2 * self.workload.model.layers)


def recomputed(function: Callable[..., Any], *inputs: Any) -> Any:
    """Return the function's value; the backward pass recomputes its intermediate activations."""
    return checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False)


class Block(nn.Module):
    """A transformer layer, which maps the residual stream to itself."""

    def __init__(self, recipe: Recipe, maker: Maker) -> None:
        super().__init__()
        model, fused = recipe.workload.model, recipe.workload.fused_norms
        self.before_attention = Norm(maker.part("norm1"), model.hidden, kind=model.norm, fused=fused)
        self.attention = Attention(recipe, maker.part("attention"))
        self.before_mlp = Norm(maker.part("norm2"), model.hidden, kind=model.norm, fused=fused)
        self.mlp = Mlp(recipe, maker.part("mlp"))

    def forward(self, stream: Tensor) -> Tensor:
        """Add the attention and the MLP to the residual stream."""
        stream = stream + self.attention(self.before_attention(stream))
        return stream + self.mlp(self.before_mlp(stream))


class Mlp(nn.Module):
    """An MLP of two matrices with GELU, or of three with a SiLU gate."""

    def __init__(self, recipe: Recipe, maker: Maker) -> None:
        super().__init__()
        model, mesh = recipe.workload.model, maker.mesh
        self.gated = model.gated_mlp
        parts = [shard_of(model.ffn, mesh, offset=model.ffn * part) for part in range(1 + self.gated)]
        self.up = ColumnLinear(maker.part("up"), model.hidden, parts, bias=model.mlp_bias)
        self.down = RowLinear(
            maker.part("down"), model.ffn, model.hidden, bias=model.mlp_bias, deviation=recipe.deviation
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the MLP's contribution to the residual stream."""
        inner = self.up(inputs)
        if self.gated:
            gate, value = inner.chunk(2, -1)
            return self.down(silu(gate) * value)
        return self.down(gelu(inner, approximate="tanh"))


class Attention(nn.Module):
    """Causal self-attention over this rank's share of query and key/value heads."""

    def __init__(self, recipe: Recipe, maker: Maker) -> None:
        super().__init__()
        model, mesh = recipe.workload.model, maker.mesh
        self.recipe, self.mesh = recipe, mesh
        self.heads, self.kv_heads = model.heads // mesh.tp, max(1, model.kv_heads // mesh.tp)
        queries = shard_of(model.query_width, mesh)
        bias = model.qkv_bias
        if mesh.kv_copies == 1:
            keys = [shard_of(model.kv_width, mesh, offset=model.query_width + model.kv_width * part) for part in (0, 1)]
            self.qkv: nn.Module = ColumnLinear(maker.part("qkv"), model.hidden, [queries, *keys], bias=bias)
        else:
            self.qkv = _Apart(recipe, maker.part("qkv"), queries)
        self.out = RowLinear(
            maker.part("out"), model.query_width, model.hidden, bias=model.attention_bias, deviation=recipe.deviation
        )
        if model.qk_norm:
            self.norms = nn.ModuleList(
                Norm(maker.part(name), recipe.head_size, kind="rmsnorm", fused=True, cut=True)
                for name in ("query_norm", "key_norm")
            )

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the attention's contribution to the residual stream."""
        size, model = self.recipe.head_size, self.recipe.workload.model
        heads = self.qkv(inputs).unflatten(-1, (-1, size))
        query, key, value = heads.split((self.heads, self.kv_heads, self.kv_heads), 2)
        if model.qk_norm:
            query, key = self.norms[0](query), self.norms[1](key)
        if model.positions == "rotary":
            query, key = rotated(query), rotated(key)
        core = self._core
        context = recomputed(core, query, key, value) if self.recipe.recompute_attention else core(query, key, value)
        return self.out(context)

    def _core(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Compute attention: (sequence, batch, heads, size) to (sequence, batch, width)."""
        query, key, value = (part.permute(1, 2, 0, 3) for part in (query, key, value))
        if self.recipe.workload.attention == "eager":
            context = eager_attention(query, key, value, self._slopes(query))
        else:
            with _flash(query):
                context = scaled_dot_product_attention(
                    query, key, value, is_causal=True, enable_gqa=self.kv_heads != self.heads
                )
        return context.permute(2, 0, 1, 3).flatten(2)

    def _slopes(self, like: Tensor) -> Tensor | None:
        """Return the slopes of this rank's heads for linear biases (Press et al. 2021, arXiv 2108.12409), or None."""
        model = self.recipe.workload.model
        if model.positions != "alibi":
            return None
        heads = torch.arange(1, model.heads + 1, device=like.device)[self.mesh.tp_rank * self.heads :][: self.heads]
        return torch.pow(2.0, -8.0 * heads / model.heads).to(like.dtype)


class _Apart(nn.Module):
    """Projections of queries and of replicated key/value heads, for tp greater than the number of key/value heads."""

    def __init__(self, recipe: Recipe, maker: Maker, queries: range) -> None:
        super().__init__()
        model, mesh, size = recipe.workload.model, maker.mesh, recipe.head_size
        first_row = mesh.tp_rank // mesh.kv_copies * size
        starts = [model.query_width + first_row, model.query_width + model.kv_width + first_row]
        keys = [range(start, start + size) for start in starts]
        # Both are rows of one matrix and share its parameter name, so that the initial values do not depend on tp.
        self.query = ColumnLinear(maker, model.hidden, [queries], bias=model.qkv_bias)
        self.key_value = CopiedLinear(maker, model.hidden, keys, bias=model.qkv_bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return queries, keys and values, concatenated."""
        return torch.cat((self.query(inputs), self.key_value(inputs)), -1)


def eager_attention(query: Tensor, key: Tensor, value: Tensor, slopes: Tensor | None) -> Tensor:
    """Compute attention with materialized scores; tensors are (batch, heads, sequence, size)."""
    batch, heads, length, size = query.shape
    kv_heads = key.shape[1]
    # Stack the queries of each key/value head, so that no key or value is copied.
    stacked = query.reshape(batch, kv_heads, -1, size)
    scores = (stacked @ key.transpose(-1, -2)).view(batch, heads, length, length) / math.sqrt(size)
    if slopes is not None:
        scores = scores + slopes[:, None, None] * torch.arange(length, device=query.device, dtype=query.dtype)
    future = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
    weights = scores.masked_fill(future, float("-inf")).float().softmax(-1).to(query.dtype)
    return (weights.view(batch, kv_heads, -1, length) @ value).view(batch, heads, length, size)


def rotated(heads: Tensor) -> Tensor:
    """Apply rotary positions to whole heads (Su et al. 2021, arXiv 2104.09864): (sequence, batch, heads, size)."""
    length, size = heads.shape[0], heads.shape[-1]
    rates = 10000.0 ** (-torch.arange(0, size, 2, device=heads.device, dtype=torch.float32) / size)
    angles = torch.arange(length, device=heads.device, dtype=torch.float32)[:, None] * rates
    cosine, sine = (part.to(heads.dtype)[:, None, None, :] for part in (angles.cos(), angles.sin()))
    first, second = heads.chunk(2, -1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)


def _flash(like: Tensor) -> AbstractContextManager[Any]:
    """Return a context that, on an accelerator, allows only the flash kernel: a fallback would distort measurements."""
    return nullcontext() if like.device.type == "cpu" else sdpa_kernel(SDPBackend.FLASH_ATTENTION)
