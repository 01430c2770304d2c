"""Tensor and expert parallel operations with the communication of their forward and backward passes.

After Shoeybi et al. 2019 (arXiv 1909.08053) and, for sequence parallelism, Korthikanti et al. 2022 (arXiv 2205.05198).
Activations have the layout (sequence, batch, hidden), so that a rank's share of the sequence is contiguous. A group of
None means a single rank, without communication.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import linear

_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def gathered(shard: Tensor, group: Any, *, wait: bool = True) -> tuple[Tensor, Any]:
    """All-gather shards along the first dimension; return the result and, with `wait=False`, a handle."""
    shard = shard.contiguous()
    whole = shard.new_empty((shard.shape[0] * dist.get_world_size(group), *shard.shape[1:]))
    handle = _gather(whole, shard, group=group, async_op=True)
    return whole, handle.wait() if wait else handle


def scattered(whole: Tensor, group: Any, *, wait: bool = True) -> tuple[Tensor, Any]:
    """Reduce-scatter along the first dimension; return this rank's shard and, with `wait=False`, a handle."""
    whole = whole.contiguous()
    shard = whole.new_empty((whole.shape[0] // dist.get_world_size(group), *whole.shape[1:]))
    handle = _scatter(shard, whole, group=group, async_op=True)
    return shard, handle.wait() if wait else handle


def own_shard(whole: Tensor, group: Any) -> Tensor:
    """Return this rank's shard of the first dimension."""
    return whole.chunk(dist.get_world_size(group))[dist.get_rank(group)]


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        total = gradient.clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Any) -> Tensor:  # noqa: ARG004 - autograd's signature
        total = tensor.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ARG004 - autograd's signature
        return gradient, None


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return scattered(tensor, group)[0]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gathered(gradient, ctx.group)[0], None


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return own_shard(tensor, group).clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gathered(gradient, ctx.group)[0], None


class _GatherLast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return gathered(tensor.movedim(-1, 0), group)[0].movedim(0, -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return own_shard(gradient.movedim(-1, 0), ctx.group).movedim(0, -1), None


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, sent: list[int], received: list[int], group: Any) -> Tensor:
        ctx.sent, ctx.received, ctx.group = sent, received, group
        return _all_to_all(rows, sent, received, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return _all_to_all(gradient, ctx.received, ctx.sent, ctx.group), None, None, None


def _all_to_all(rows: Tensor, sent: list[int], received: list[int], group: Any) -> Tensor:
    arrived = rows.new_empty((sum(received), *rows.shape[1:]))
    dist.all_to_all_single(arrived, rows.contiguous(), received, sent, group=group)
    return arrived


def copied(tensor: Tensor, group: Any) -> Tensor:
    """Return a replicated tensor; the backward pass sums its gradient over the ranks."""
    return tensor if group is None else _Copy.apply(tensor, group)


def reduced(tensor: Tensor, group: Any) -> Tensor:
    """Return the sum over the ranks, on every rank."""
    return tensor if group is None else _Reduce.apply(tensor, group)


def reduced_shard(tensor: Tensor, group: Any) -> Tensor:
    """Return this rank's share, along the sequence, of the sum over the ranks."""
    return tensor if group is None else _ReduceScatter.apply(tensor, group)


def split(tensor: Tensor, group: Any) -> Tensor:
    """Return this rank's share, along the sequence, of a replicated tensor."""
    return tensor if group is None else _Split.apply(tensor, group)


def gathered_last(tensor: Tensor, group: Any) -> Tensor:
    """All-gather shards along the last dimension; later computation is replicated."""
    return tensor if group is None else _GatherLast.apply(tensor, group)


def exchanged(rows: Tensor, sent: list[int], received: list[int], group: Any) -> Tensor:
    """Send each rank its number of rows, in order; return the rows from all ranks, in order."""
    arrived: Tensor = _Exchange.apply(rows, sent, received, group)
    return arrived


class _ColumnProduct(torch.autograd.Function):
    """`input @ weight.T + bias` with output columns sharded over the ranks.

    The backward pass overlaps the reduction of the input's gradient with the computation of the weight's gradient. If
    the input is a share of the sequence, only that share is saved, and the backward pass gathers the whole again.
    """

    @staticmethod
    def forward(ctx: Any, shard: Tensor, weight: Tensor, bias: Tensor | None, group: Any, sequence: bool) -> Tensor:
        ctx.save_for_backward(shard, weight)
        ctx.group, ctx.sequence = group, sequence
        return linear(gathered(shard, group)[0] if sequence else shard, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        shard, weight = ctx.saved_tensors
        of_input, of_weight, of_bias = ctx.needs_input_grad[:3]
        whole, arriving = shard, None
        if ctx.sequence and of_weight:
            whole, arriving = gathered(shard, ctx.group, wait=False)
        for_input, leaving = None, None
        if of_input:
            for_input = gradient @ weight
            if ctx.sequence:
                for_input, leaving = scattered(for_input, ctx.group, wait=False)
            elif ctx.group is not None:
                leaving = dist.all_reduce(for_input, group=ctx.group, async_op=True)
        if arriving is not None:
            arriving.wait()
        for_weight = gradient.flatten(0, 1).t() @ whole.flatten(0, 1) if of_weight else None
        for_bias = gradient.sum((0, 1)) if of_bias else None
        if leaving is not None:
            leaving.wait()
        return for_input, for_weight, for_bias, None, None


def column_product(inputs: Tensor, weight: Tensor, bias: Tensor | None, group: Any, sequence: bool) -> Tensor:
    """Return the product with this rank's columns; with sequence parallelism, the input is a share of the sequence."""
    product: Tensor = _ColumnProduct.apply(inputs, weight, bias, group, sequence and group is not None)
    return product
