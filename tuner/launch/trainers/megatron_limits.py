"""Flags of Megatron and of what is built on it with which jobs would not run their trial, and which are refused.

Read in NVIDIA/Megatron-LM at d98e8a64, `megatron/training/arguments.py`, and in NVIDIA-NeMo/Megatron-Bridge at
067f987d, `src/megatron/bridge/training/config.py`: a file of `--yaml-cfg` replaces all parsed flags, and arguments from
a checkpoint replace most of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tuner.core.errors import InputError
from tuner.launch.trainers.kind import Flags

_OVERRIDING: Final[Mapping[str, str]] = {
    "--yaml-cfg": "whose file replaces all flags; write its settings as flags",
    "--use-checkpoint-args": "with which a checkpoint replaces flags; write the checkpoint's arguments as flags",
    "--use-mp-args-from-checkpoint-args": "with which a checkpoint replaces the parallel degrees; remove it",
}
"""Flags whose file or checkpoint overrides the flags of each job."""


def refuse_unsearched(trainer: str, flags: Flags) -> Flags:
    """Return the flags; raise if a file or checkpoint overrides those of the jobs."""
    if found := [flag for flag in _OVERRIDING if flag in flags]:
        raise InputError(
            f"--trainer {trainer} cannot set the topology of a command with {found[0]}, {_OVERRIDING[found[0]]}."
        )
    return flags
