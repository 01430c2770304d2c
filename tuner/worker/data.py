"""Synthetic tokens: what sample holds which token is a hash of the seed, so that every rank can make its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from tuner.core.domain import Topology, Workload
from tuner.worker.weights import name_seed, uniform

Batch = tuple[Tensor, Tensor]


def batch_of(first: int, samples: int, workload: Workload, seed: int) -> Batch:
    """Tokens and the tokens that follow them, (samples, sequence), of the samples from number `first` on.

    Low tokens are likelier than high ones, so that there is something to learn and the loss falls.
    """
    model = workload.model
    rows, columns = torch.arange(first, first + samples), torch.arange(model.seq + 1)
    drawn = uniform(rows, columns, name_seed(seed, "tokens")).double()
    text = (drawn**3 * model.vocab).long()
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def microbatches(
    workload: Workload, topology: Topology, replica: int, seed: int, begins: Callable[[int, int], None]
) -> Iterator[Batch]:
    """This replica's microbatches, iteration after iteration; `begins` hears of each one that is taken."""
    in_all = workload.global_batch // (topology.micro_batch * topology.dp)
    taken = 0
    while True:
        iteration, place = divmod(taken, in_all)
        begins(iteration + 1, place)
        first = (taken * topology.dp + replica) * topology.micro_batch
        yield batch_of(first, topology.micro_batch, workload, seed)
        taken += 1
