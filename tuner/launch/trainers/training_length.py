"""The length of the training that a trainer's command states."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Final

from tuner.core.errors import TunerWarning
from tuner.core.quantity import format_count
from tuner.launch.trainers.command import TrainerCommand
from tuner.space.space import Space

SHORTEST: Final = 1000
"""Optimizer steps below which a command's length is that of a test run, for which no search would pay."""


def with_length(command: TrainerCommand, space: Space) -> tuple[Space, str | None]:
    """Return the space with the training tokens of the command, and the flag that states them.

    A space that has tokens keeps them, with a warning if the command states another length. A command with few steps
    is a test run.
    """
    workload, stated = space.workload, command.length(space.workload)
    if stated is None:
        return space, None
    tokens, flag = stated
    if not workload.tokens and tokens < SHORTEST * workload.model.seq * workload.global_batch:
        warnings.warn(
            TunerWarning(
                f"{flag} in --command, fewer than {SHORTEST:,} steps, is taken for a test run; set the training "
                "length with --tokens."
            ),
            stacklevel=3,
        )
        return space, None
    if not workload.tokens:
        return replace(space, workload=replace(workload, tokens=tokens)), flag
    given, replaced = format_count(workload.tokens), format_count(tokens)
    if given != replaced:
        warnings.warn(
            TunerWarning(f"--tokens {given} replaces the training length of --command, {replaced} tokens ({flag})."),
            stacklevel=3,
        )
    return space, None
