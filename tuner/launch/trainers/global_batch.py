"""The global batch of a trainer's command, which follows from the number of GPUs unless a flag states it."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from tuner.core.errors import TunerWarning
from tuner.core.text import counted
from tuner.launch.trainers.command import TrainerCommand
from tuner.space.build import SpaceArguments
from tuner.space.space import Space


def with_batch(
    command: TrainerCommand, description: SpaceArguments, describe: Callable[[SpaceArguments], Space]
) -> SpaceArguments:
    """Return the description of a space with the global batch of the command, unless it has one; warn of any other.

    `describe` makes the space.
    """
    if any(flag in command.fixed for flag in command.kind.global_batch):
        return description
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the description, which is read once more
        space = describe(description)
    gpus, used = space.cluster.gpus, space.workload.global_batch
    stated, given = command.batch_on(gpus), description.get("global_batch")
    if stated is None and given is None:
        warnings.warn(
            TunerWarning(f"--command does not state the global batch, so it is {used:,}; set it with --global-batch."),
            stacklevel=3,
        )
    elif stated is not None and given is None:
        if origin := _origin(command, gpus):
            warnings.warn(
                TunerWarning(
                    f"--command does not state the global batch, so it is {stated:,}, {origin}; set it with "
                    "--global-batch."
                ),
                stacklevel=3,
            )
        return {**description, "global_batch": stated}
    elif stated not in (None, given) and any(flag in command.fixed for flag in command.kind.batch_flags):
        ranks = counted(command.ranks_on(gpus), "GPU")
        warnings.warn(
            TunerWarning(f"--global-batch {given} replaces that of --command, which is {stated:,} on {ranks}."),
            stacklevel=3,
        )
    return description


def _origin(command: TrainerCommand, gpus: int) -> str:
    """Return how a batch follows from the number of GPUs, where a user may expect another; empty where none does."""
    kind, ranks = command.kind, command.ranks_on(gpus)
    if ranks != gpus:
        return f"that of its {ranks:,} process{'es' * (ranks > 1)} ({kind.processes}), on {counted(gpus, 'GPU')}"
    file, stated = command.fixed.get("--config"), all(flag in command.fixed for flag in kind.batch_flags)
    if file and not kind.global_batch and not stated:
        return f"as its flags and defaults give on {counted(gpus, 'GPU')} (the file of --config {file} is not read)"
    depends = command.batch_on(gpus) != command.batch_on(2 * gpus)
    return f"as {kind.name} computes it on {counted(gpus, 'GPU')}" if kind.global_batch and depends else ""
