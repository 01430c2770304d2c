"""Embedding, output layer and loss, with the vocabulary sharded over the tensor parallel ranks."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, embedding

from tuner.core.domain import Workload
from tuner.worker.linear import Maker, Recipe, norm_of, shard_of
from tuner.worker.mesh import Mesh
from tuner.worker.parallel import column_product, gathered_last, reduced, split


class Words(nn.Module):
    """This rank's rows of the embedding, which may also serve as the output layer."""

    def __init__(self, recipe: Recipe, maker: Maker) -> None:
        super().__init__()
        model = recipe.workload.model
        self.mesh = maker.mesh
        self.rows = shard_of(model.padded_vocab(maker.mesh.tp), maker.mesh)
        self.weight = maker.part("weight").matrix([self.rows], range(model.hidden), model.init_std, sharded=True)

    def forward(self, inputs: Tensor, as_head: bool = False) -> Tensor:
        """Map tokens (batch, sequence) to vectors (sequence, batch, hidden) or, as the head, the stream to logits."""
        if as_head:
            return column_product(inputs, self.weight, None, self.mesh.tp_group, self.mesh.sequence_parallel)
        local = inputs.t() - self.rows.start
        elsewhere = (local < 0) | (local >= len(self.rows))
        found = embedding(local.masked_fill(elsewhere, 0), self.weight).masked_fill(elsewhere[..., None], 0.0)
        return reduced(found, self.mesh.tp_group)


def words_as_head(words: Words, stream: Tensor) -> Tensor:
    """Return the logits of the tied output layer."""
    logits: Tensor = words(stream, as_head=True)
    return logits


class Positions(nn.Module):
    """The step between embedding and first layer: learned positions, a norm, and the split along the sequence."""

    def __init__(self, recipe: Recipe, maker: Maker) -> None:
        super().__init__()
        model, mesh = recipe.workload.model, maker.mesh
        self.mesh = mesh
        learned = model.positions == "learned"
        whole = [range(model.max_positions)], range(model.hidden)
        self.weight = maker.part("weight").matrix(*whole, model.init_std, sharded=False) if learned else None
        self.norm = norm_of(recipe.workload, maker.part("norm")) if model.embedding_norm else None
        self.scale = model.embedding_scale

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the input of the first layer."""
        if self.scale != 1.0:
            vectors = vectors * self.scale
        if self.weight is not None:
            vectors = vectors + self.weight[: vectors.shape[0], None]
        if self.mesh.sequence_parallel:
            vectors = split(vectors, self.mesh.tp_group)
        return vectors if self.norm is None else self.norm(vectors)


class FinalNorm(nn.Module):
    """The norm after the last layer."""

    def __init__(self, recipe: Recipe, maker: Maker) -> None:
        super().__init__()
        self.norm = norm_of(recipe.workload, maker)

    def forward(self, stream: Tensor) -> Tensor:
        """Return the input of the output layer."""
        normed: Tensor = self.norm(stream)
        return normed


class Head(nn.Module):
    """An output layer that is not tied to the embedding."""

    def __init__(self, recipe: Recipe, maker: Maker) -> None:
        super().__init__()
        model = recipe.workload.model
        self.mesh = maker.mesh
        rows = shard_of(model.padded_vocab(maker.mesh.tp), maker.mesh)
        self.weight = maker.part("weight").matrix([rows], range(model.hidden), model.init_std, sharded=True)
        self.bias = maker.part("bias").vector(len(rows), 0.0, sharded=True) if model.head_bias else None

    def forward(self, stream: Tensor) -> Tensor:
        """Return this rank's logits."""
        return column_product(stream, self.weight, self.bias, self.mesh.tp_group, self.mesh.sequence_parallel)


class Loss:
    """Mean cross entropy of next tokens, from sharded logits or from gathered ones."""

    def __init__(self, workload: Workload, mesh: Mesh) -> None:
        self.parallel = workload.parallel_loss
        self.group = mesh.tp_group
        rows = shard_of(workload.model.padded_vocab(mesh.tp), mesh)
        self.start, self.vocab = rows.start, workload.model.vocab
        self.scale, self.softcap = workload.model.logit_scale, workload.model.logit_softcap

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of logits (sequence, batch, vocabulary) and labels (batch, sequence)."""
        labels, start = labels.t(), self.start
        if self.scale != 1.0:
            logits = logits * self.scale
        if self.softcap:
            logits = self.softcap * torch.tanh(logits / self.softcap)
        if self.group is not None and not self.parallel:
            logits, start = gathered_last(logits, self.group), 0
        # Mask the padding of the vocabulary: the loss must not depend on its size.
        if start + logits.shape[-1] > self.vocab:
            words = torch.arange(start, start + logits.shape[-1], device=logits.device)
            logits = logits.masked_fill(words >= self.vocab, torch.finfo(logits.dtype).min)
        if self.group is not None and self.parallel:
            losses: Tensor = _ParallelLoss.apply(logits, labels, start, self.group)
            return losses.mean()
        return cross_entropy(logits.float().flatten(0, 1), labels.flatten())


class _ParallelLoss(torch.autograd.Function):
    """Cross entropy of logits whose vocabulary is sharded over the ranks."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, start: int, group: Any) -> Tensor:
        largest = logits.amax(-1).float()
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
        shifted = logits.float() - largest[..., None]
        local = labels - start
        elsewhere = (local < 0) | (local >= logits.shape[-1])
        local = local.masked_fill(elsewhere, 0)
        right = shifted.gather(-1, local[..., None])[..., 0].masked_fill(elsewhere, 0.0)
        weights = shifted.exp_()
        sums = torch.stack((weights.sum(-1), right))
        dist.all_reduce(sums, group=group)
        total, right = sums
        ctx.save_for_backward(weights.div_(total[..., None]), local, elsewhere)
        ctx.dtype = logits.dtype
        return total.log() - right

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        weights, local, elsewhere = ctx.saved_tensors
        # In place, as in Megatron: the softmax becomes the gradient.
        weights.scatter_add_(-1, local[..., None], -(~elsewhere)[..., None].to(weights.dtype))
        return weights.mul_(gradient[..., None]).to(ctx.dtype), None, None, None
