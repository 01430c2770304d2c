"""One transformer layer: tensor parallel attention and MLP or experts, with their norms."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from tuner.worker.linear import ColumnLinear, CopiedLinear, Maker, Recipe, RowLinear, norm_of, shard_of
from tuner.worker.mlp import Mixture, Mlp
from tuner.worker.rotary import alibi_slopes, rotated


def recomputed(function: Callable[..., Any], *inputs: Any) -> Any:
    """Return the function's value; the backward pass recomputes its intermediate activations."""
    return checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False)


class Block(nn.Module):
    """A transformer layer, which maps the residual stream to itself."""

    def __init__(self, recipe: Recipe, maker: Maker, number: int) -> None:
        super().__init__()
        model = recipe.workload.model
        self.scale, self.parallel = model.residual_scale, model.parallel_attention
        before, after = model.norm_placement != "after", model.norm_placement != "before"
        shared = self.parallel and model.norms_per_layer == 1
        self.before_attention = norm_of(recipe.workload, maker.part("norm1")) if before else None
        self.attention = Attention(recipe, maker.part("attention"), number)
        self.after_attention = norm_of(recipe.workload, maker.part("norm3")) if after else None
        self.before_mlp = norm_of(recipe.workload, maker.part("norm2")) if before and not shared else None
        self.mlp = (Mixture if model.is_moe_layer(number) else Mlp)(recipe, maker.part("mlp"))
        self.after_mlp = norm_of(recipe.workload, maker.part("norm4")) if after else None

    def forward(self, stream: Tensor) -> Tensor:
        """Add the attention and the MLP to the residual stream."""
        inputs = _normed(stream, self.before_attention)
        attended = _normed(self.attention(inputs), self.after_attention)
        if self.parallel:
            inputs = inputs if self.before_mlp is None else self.before_mlp(stream)
            return stream + self._scaled(attended + _normed(self.mlp(inputs), self.after_mlp))
        stream = stream + self._scaled(attended)
        return stream + self._scaled(_normed(self.mlp(_normed(stream, self.before_mlp)), self.after_mlp))

    def _scaled(self, values: Tensor) -> Tensor:
        return values if self.scale == 1.0 else values * self.scale


def _normed(values: Tensor, norm: nn.Module | None) -> Tensor:
    normed: Tensor = values if norm is None else norm(values)
    return normed


class Attention(nn.Module):
    """Causal self-attention over this rank's share of query and key/value heads."""

    def __init__(self, recipe: Recipe, maker: Maker, number: int) -> None:
        super().__init__()
        model, mesh = recipe.workload.model, maker.mesh
        self.recipe, self.mesh = recipe, mesh
        self.local = model.is_windowed_layer(number)
        self.window = model.window if self.local else 0
        self.turned = recipe.turned(number)
        self.scale = model.attention_scale or 1 / math.sqrt(recipe.head_size)
        self.heads, self.kv_heads = model.heads // mesh.tp, max(1, model.kv_heads // mesh.tp)
        queries = shard_of(model.query_width, mesh)
        if mesh.kv_copies == 1:
            keys = [shard_of(model.kv_width, mesh, offset=model.query_width + model.kv_width * part) for part in (0, 1)]
            self.qkv: nn.Module = ColumnLinear(
                *(maker.part("qkv"), model.hidden, [queries, *keys]), bias=model.qkv_bias, deviation=model.init_std
            )
        else:
            self.qkv = _Apart(recipe, maker.part("qkv"), queries)
        self.out = RowLinear(
            maker.part("out"), model.query_width, model.hidden, bias=model.attention_bias, deviation=recipe.deviation
        )
        if model.qk_norm:
            wide = model.qk_norm_span == "width"
            sizes = (model.query_width, model.kv_width) if wide else (recipe.head_size, recipe.head_size)
            self.norms = nn.ModuleList(
                norm_of(recipe.workload, maker.part(name), size, fused=True, cut=True)
                for name, size in zip(("query_norm", "key_norm"), sizes, strict=True)
            )

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the attention's contribution to the residual stream."""
        size, model = self.recipe.head_size, self.recipe.workload.model
        heads = self.qkv(inputs).unflatten(-1, (-1, size))
        query, key, value = heads.split((self.heads, self.kv_heads, self.kv_heads), 2)
        if model.qk_norm and model.qk_norm_span == "width":
            query, key = (
                norm(part.flatten(2)).view_as(part) for norm, part in zip(self.norms, (query, key), strict=True)
            )
        elif model.qk_norm:
            query, key = self.norms[0](query), self.norms[1](key)
        if self.turned:
            query, key = (rotated(part, model, local=self.local) for part in (query, key))
        core = self._core
        context = recomputed(core, query, key, value) if self.recipe.recompute_attention else core(query, key, value)
        return self.out(context)

    def _core(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Compute attention: (sequence, batch, heads, size) to (sequence, batch, width)."""
        query, key, value = (part.permute(1, 2, 0, 3) for part in (query, key, value))
        if self.recipe.workload.attention == "eager":
            cap = self.recipe.workload.model.attention_softcap
            context = eager_attention(
                query, key, value, self._slopes(query), scale=self.scale, softcap=cap, window=self.window
            )
        else:
            with _flash(query):
                context = scaled_dot_product_attention(
                    query, key, value, is_causal=True, enable_gqa=self.kv_heads != self.heads, scale=self.scale
                )
        return context.permute(2, 0, 1, 3).flatten(2)

    def _slopes(self, like: Tensor) -> Tensor | None:
        """Return the slopes of this rank's heads for linear biases, or None."""
        model = self.recipe.workload.model
        if model.positions != "alibi":
            return None
        return alibi_slopes(model.heads)[self.mesh.tp_rank * self.heads :][: self.heads].to(like)


class _Apart(nn.Module):
    """Projections of queries and of replicated key/value heads, for tp greater than the number of key/value heads."""

    def __init__(self, recipe: Recipe, maker: Maker, queries: range) -> None:
        super().__init__()
        model, mesh, size = recipe.workload.model, maker.mesh, recipe.head_size
        first_row = mesh.tp_rank // mesh.kv_copies * size
        starts = [model.query_width + first_row, model.query_width + model.kv_width + first_row]
        keys = [range(start, start + size) for start in starts]
        # Both are rows of one matrix and share its parameter name, so that the initial values do not depend on tp.
        self.query = ColumnLinear(maker, model.hidden, [queries], bias=model.qkv_bias, deviation=model.init_std)
        self.key_value = CopiedLinear(maker, model.hidden, keys, bias=model.qkv_bias, deviation=model.init_std)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return queries, keys and values, concatenated."""
        return torch.cat((self.query(inputs), self.key_value(inputs)), -1)


def eager_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    slopes: Tensor | None,
    *,
    scale: float | None = None,
    softcap: float = 0.0,
    window: int = 0,
) -> Tensor:
    """Compute attention with materialized scores; tensors are (batch, heads, sequence, size).

    A position attends to itself and the tokens before it, `window` of them in all if that is not zero.
    """
    batch, heads, length, size = query.shape
    kv_heads = key.shape[1]
    # Stack the queries of each key/value head, so that no key or value is copied.
    stacked = query.reshape(batch, kv_heads, -1, size)
    scores = (stacked @ key.transpose(-1, -2)).view(batch, heads, length, length)
    scores = scores * (1 / math.sqrt(size) if scale is None else scale)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if slopes is not None:
        scores = scores + slopes[:, None, None] * torch.arange(length, device=query.device, dtype=query.dtype)
    hidden = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
    if window:
        hidden = hidden | ~torch.ones_like(hidden).triu(1 - window)
    weights = scores.masked_fill(hidden, float("-inf")).float().softmax(-1).to(query.dtype)
    return (weights.view(batch, kv_heads, -1, length) @ value).view(batch, heads, length, size)


def _flash(like: Tensor) -> AbstractContextManager[Any]:
    """Return a context that, on an accelerator, allows only the flash kernel: a fallback would distort measurements."""
    return nullcontext() if like.device.type == "cpu" else sdpa_kernel(SDPBackend.FLASH_ATTENTION)
