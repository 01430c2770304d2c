"""Synthetic tokens: each token is a hash of seed, sample and position, so that every rank can generate its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

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
    workload: Workload,
    topology: Topology,
    replica: int,
    seed: int,
    batches: Sequence[int],
    begins: Callable[[int, int, int], None],
) -> Iterator[Batch]:
    """Yield this replica's microbatches of iterations with these global batches.

    Calls `begins(iteration, index, microbatches)` before each of them; iterations are counted from 1.
    """
    share, done = topology.step_batch, 0
    for iteration, batch in enumerate(batches, start=1):
        for index in range(batch // share):
            begins(iteration, index, batch // share)
            yield batch_of(done + index * share + replica * topology.micro_batch, topology.micro_batch, workload, seed)
        done += batch
