"""The MLP of a layer, or its experts: router, exchange of tokens, routed and shared experts.

Ranks that share one set of experts are neighbours, as in DeepSpeed's and Megatron's groups. With an ep of 1 experts are
parameters like any other; with more, DeepSpeed reduces their gradients over the ranks that hold the same experts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
import torch.distributed as dist
from deepspeed.moe.layer import MoE
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, relu, silu

from tuner.core.model import Activation
from tuner.worker.linear import ColumnLinear, Maker, Recipe, RowLinear, mark, shard_of, shared
from tuner.worker.parallel import copied, exchanged

FUNCTIONS: Final[dict[Activation, Callable[[Tensor], Tensor]]] = {
    "gelu": gelu,
    "gelu_tanh": partial(gelu, approximate="tanh"),
    "quick_gelu": lambda inputs: inputs * torch.sigmoid(1.702 * inputs),
    "relu": relu,
    "relu2": lambda inputs: relu(inputs).square(),
    "silu": silu,
}


class Mlp(nn.Module):
    """An MLP of two matrices with an activation between them, or of three with an activated gate."""

    def __init__(self, recipe: Recipe, maker: Maker, ffn: int = 0) -> None:
        super().__init__()
        model, mesh = recipe.workload.model, maker.mesh
        ffn = ffn or model.ffn
        self.gated, self.activated = model.gated_mlp, FUNCTIONS[model.mlp_activation]
        parts = [shard_of(ffn, mesh, offset=ffn * part) for part in range(1 + self.gated)]
        self.up = ColumnLinear(maker.part("up"), model.hidden, parts, bias=model.mlp_bias, deviation=model.init_std)
        self.down = RowLinear(maker.part("down"), ffn, model.hidden, bias=model.mlp_bias, deviation=recipe.deviation)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the MLP's contribution to the residual stream."""
        return self.down(_activated(self, self.up(inputs)))


def _activated(mlp: Mlp | RoutedExperts, inner: Tensor) -> Tensor:
    """Return the input of an MLP's last matrix."""
    if mlp.gated:
        gate, value = inner.chunk(2, -1)
        return mlp.activated(gate) * value
    return mlp.activated(inner)


class Mixture(nn.Module):
    """A mixture of experts in place of the MLP."""

    def __init__(self, recipe: Recipe, maker: Maker) -> None:
        super().__init__()
        model = recipe.workload.model
        experts = recipe.experts
        self.mesh = maker.mesh
        self.router = Router(recipe, maker.part("router"))
        self.experts = RoutedExperts(recipe, maker.part("experts"))
        self.shared = Mlp(recipe, maker.part("shared"), experts.shared_ffn) if experts.shared_ffn else None
        whole = [range(1)], range(model.hidden), model.init_std
        self.gate = maker.part("gate").matrix(*whole, sharded=False) if experts.shared_gate else None

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the contribution of routed and shared experts to the residual stream."""
        chosen, weights = self.router(inputs)
        total: Tensor = self.experts(inputs.flatten(0, 1), chosen.flatten(0, 1), weights.flatten(0, 1))
        total = total.view_as(inputs)
        if self.shared is None:
            return total
        always: Tensor = self.shared(inputs)
        if self.gate is not None:
            always = always * linear(inputs, shared(self.gate, self.mesh)).sigmoid()
        return total + always


class Router(nn.Module):
    """Chooses the experts of each token by the softmax of a projection, in fp32."""

    def __init__(self, recipe: Recipe, maker: Maker) -> None:
        super().__init__()
        model = recipe.workload.model
        self.mesh, self.sizes, self.seq = maker.mesh, recipe.experts, model.seq
        self.balanced = recipe.workload.routing != "natural"
        self.factor = 1 / recipe.microbatches
        self.weight = maker.part("weight").matrix(
            [range(self.sizes.count)], range(model.hidden), model.init_std, sharded=False
        )

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the chosen experts and their weights, each (sequence, batch, top_k)."""
        logits = linear(inputs.float(), shared(self.weight, self.mesh).float())
        scores = logits.softmax(-1)
        chosen = self._forced(scores) if self.balanced else scores.topk(self.sizes.top_k).indices
        weights = scores.gather(-1, chosen)
        if self.sizes.normalized:
            weights = weights / weights.sum(-1, keepdim=True)
        weights = weights * self.sizes.scale
        if self.sizes.aux_loss or self.sizes.z_loss:
            weights = _WithLoss.apply(weights, self._balance(logits, scores, chosen), self.factor)
        return chosen, weights

    def _forced(self, scores: Tensor) -> Tensor:
        """Return the experts of balanced routing: position p takes the `top_k` after the first p x top_k, in a ring."""
        length, batch, _ = scores.shape
        first = self.mesh.tp_rank * length if self.mesh.sequence_parallel else 0
        top_k, device = self.sizes.top_k, scores.device
        positions = torch.arange(first, first + length, device=device)[:, None, None]
        ring = (positions * top_k + torch.arange(top_k, device=device)) % self.sizes.count
        return ring.expand(length, batch, top_k)

    def _balance(self, logits: Tensor, scores: Tensor, chosen: Tensor) -> Tensor:
        """Return this rank's part of the load-balancing loss and the z-loss, as Megatron-Core computes them.

        `switch_load_balancing_loss_func` and `z_loss_func` in its megatron/core/transformer/moe/moe_utils.py.
        """
        count, top_k, batch = self.sizes.count, self.sizes.top_k, scores.shape[1]
        loads = scores.new_zeros(batch, count)
        picks = chosen.transpose(0, 1).flatten(1)
        loads.scatter_add_(1, picks, torch.ones_like(picks, dtype=loads.dtype))
        if self.mesh.sequence_parallel:
            dist.all_reduce(loads, group=self.mesh.tp_group)
        sums, tokens = scores.sum(0), self.seq
        if not self.sizes.aux_loss_per_sequence:
            loads, sums, tokens = loads.sum(0, keepdim=True), sums.sum(0, keepdim=True), self.seq * batch
        even = (loads * sums).sum(-1).mean() * count / (top_k * tokens**2)
        z_loss = logits.logsumexp(-1).square().sum() / (self.seq * batch)
        return self.sizes.aux_loss * even + self.sizes.z_loss * z_loss


class _WithLoss(torch.autograd.Function):
    """Passes values through; the backward pass adds the gradient of a loss that no later layer sees.

    `factor` is the gradient of DeepSpeed's loss by that of a microbatch, which it divides by their number.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, loss: Tensor, factor: float) -> Tensor:
        ctx.factor, ctx.loss = factor, loss.detach()
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        return gradient, torch.full_like(ctx.loss, ctx.factor), None


class RoutedExperts(nn.Module):
    """This rank's share of the routed experts, whose matrices are stacked."""

    def __init__(self, recipe: Recipe, maker: Maker) -> None:
        super().__init__()
        model, mesh, sizes = recipe.workload.model, maker.mesh, recipe.experts
        self.mesh, self.number = mesh, sizes.count // mesh.ep
        self.gated, self.activated = model.gated_mlp, FUNCTIONS[model.mlp_activation]
        first, last = self.number * mesh.ep_rank, self.number * (mesh.ep_rank + 1)
        tall = (1 + self.gated) * sizes.ffn
        self.up = maker.part("up").matrix(
            [range(first * tall, last * tall)], range(model.hidden), model.init_std, sharded=False
        )
        self.down = maker.part("down").matrix(
            [range(first * model.hidden, last * model.hidden)], range(sizes.ffn), recipe.deviation, sharded=False
        )
        if mesh.ep > 1:
            self.marker = _Marker(sizes.count)
            for parameter in (self.up, self.down):
                mark(parameter, counts=True)
                mark_expert(parameter, mesh.expert_group)

    def forward(self, tokens: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Return the weighted sum of the outputs of each token's experts."""
        top_k = chosen.shape[1]
        order = chosen.flatten().argsort(stable=True)
        loads = chosen.flatten().bincount(minlength=self.number * self.mesh.ep).view(self.mesh.ep, self.number)
        rows = tokens[order // top_k]
        rows = self._elsewhere(rows, loads) if self.mesh.ep > 1 else self._products(rows, loads[0].tolist())
        return (rows[order.argsort()].unflatten(0, (-1, top_k)) * weights[..., None].to(rows.dtype)).sum(1)

    def _elsewhere(self, rows: Tensor, loads: Tensor) -> Tensor:
        """Return the experts' outputs of rows in the order of all experts, each computed by the rank of its expert."""
        arriving = torch.empty_like(loads)
        dist.all_to_all_single(arriving, loads, group=self.mesh.ep_group)
        sent, received = loads.sum(1).tolist(), arriving.sum(1).tolist()
        rows = exchanged(rows, sent, received, self.mesh.ep_group)
        # Rows arrive by rank, and by expert within each rank.
        experts = torch.arange(self.number, device=rows.device).repeat(self.mesh.ep)
        order = experts.repeat_interleave(arriving.flatten()).argsort(stable=True)
        rows = self._products(rows[order], arriving.sum(0).tolist())
        return exchanged(rows[order.argsort()], received, sent, self.mesh.ep_group)

    def _products(self, rows: Tensor, loads: list[int]) -> Tensor:
        """Return the outputs of this rank's experts for rows in their order."""
        # Without expert parallelism tensor parallel ranks have the same experts and other tokens.
        group = self.mesh.tp_group if self.mesh.ep == 1 else None
        up, down = (copied(weight, group).unflatten(0, (self.number, -1)) for weight in (self.up, self.down))
        parts = zip(rows.split(loads), up.unbind(), down.unbind(), strict=True)
        return torch.cat([linear(_activated(self, linear(part, wide)), narrow) for part, wide, narrow in parts])


class _Marker(MoE):  # type: ignore[misc] # DeepSpeed has no types
    """Shows DeepSpeed's engine that the model has experts: it looks for modules of its own layer's class."""

    def __init__(self, count: int) -> None:
        nn.Module.__init__(self)
        self.num_experts = count

    def set_deepspeed_parallelism(self, *_: Any) -> None:
        """The groups exist."""


def mark_expert(parameter: nn.Parameter, group: str) -> None:
    """Have DeepSpeed reduce the gradient over the ranks that hold the same experts, by the name of their group."""
    setattr(parameter, "allreduce", False)  # noqa: B010 - no field of a Parameter that a checker knows
    setattr(parameter, "group_name", group)  # noqa: B010
