"""Synthetic tokens: each token is a hash of seed, sample and position, so that every rank can generate its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from tuner.core.domain import Topology, Workload
from tuner.worker.weights import name_seed, uniform

Batch = tuple[Tensor, Tensor]


def batch_of(first: int, samples: int, workload: Workload, seed: int) -> Batch:
    """Return tokens and next tokens, each (samples, sequence), of the samples starting at number `first`.

    Low tokens are more frequent than high ones, so that the model can learn and the loss decreases.
    """
    model = workload.model
    rows, columns = torch.arange(first, first + samples), torch.arange(model.seq + 1)
    drawn = uniform(rows, columns, name_seed(seed, "tokens")).double()
    text = (drawn**3 * model.vocab).long()
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def microbatches(
    workload: Workload, topology: Topology, replica: int, seed: int, begins: Callable[[int, int], None]
) -> Iterator[Batch]:
    """Yield this replica's microbatches indefinitely; call `begins(iteration, index)` before each one."""
    per_iteration = workload.global_batch // (topology.micro_batch * topology.dp)
    count = 0
    while True:
        iteration, index = divmod(count, per_iteration)
        begins(iteration + 1, index)
        first = (count * topology.dp + replica) * topology.micro_batch
        yield batch_of(first, topology.micro_batch, workload, seed)
        count += 1
