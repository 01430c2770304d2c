"""Flags of Megatron and of what is built on it that not every job can have: some are refused, others left out of jobs.

Read in NVIDIA/Megatron-LM at d98e8a64, `megatron/training/arguments.py`, `megatron/core/model_parallel_config.py` and
`megatron/core/transformer/transformer_config.py`, and in NVIDIA-NeMo/Megatron-Bridge at
067f987d, `src/megatron/bridge/training/config.py`: a file of `--yaml-cfg` replaces all parsed flags, and arguments from
a checkpoint replace most of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tuner.core.domain import Topology, Workload
from tuner.core.errors import InputError
from tuner.core.text import listed
from tuner.launch.trainers.kind import Flags
from tuner.launch.trainers.megatron_arguments import SET_BY_JOBS

_OVERRIDING: Final[Mapping[str, str]] = {
    "--yaml-cfg": "whose file replaces all flags; write its settings as flags",
    "--use-checkpoint-args": "with which a checkpoint replaces flags; write the checkpoint's arguments as flags",
    "--use-mp-args-from-checkpoint-args": "with which a checkpoint replaces the parallel degrees; remove it",
}
"""Flags whose file or checkpoint overrides the flags of each job."""
_FSDP: Final = ("use_megatron_fsdp", "use_torch_fsdp2", "use_custom_fsdp", "trainer.strategy.fsdp")
_OFFLOAD: Final = ("cpu_offloading", "cpu_offloading_num_layers", "fine_grained_activation_offloading")
"""Offload of activations."""
_OF_OPTIMIZER: Final = "optimizer_cpu_offload"
"""Offload of the optimizer, which only the jobs of --trainer megatron-lm set."""
CONDITIONAL: Final[Mapping[str, Callable[[Topology], bool]]] = {
    "--tp-comm-overlap": lambda topology: topology.tp > 1 and topology.sequence_parallel,
    "--distribute-saved-activations": lambda topology: (
        topology.tp > 1 and topology.recompute == "full" and not topology.sequence_parallel
    ),
    "--defer-embedding-wgrad-compute": lambda topology: topology.pp > 1,
    "--overlap-param-gather-with-optimizer-step": lambda topology: topology.zero == 1 and topology.vpp > 1,
    "--overlap-p2p-communication-warmup-flush": lambda topology: topology.vpp > 1,
    "--moe-shared-expert-overlap": lambda topology: topology.dispatcher != "allgather" and not topology.moe_overlap,
}
"""Switches with which Megatron-LM starts only at some topologies."""
_NOT_ON: Final = ("false", "0", "none", "null", "no")

_OVERLAPS: Final = tuple(f"--{name.replace('_', '-')}" for name in SET_BY_JOBS)
OFF: Final = ("--moe-permute-fusion", *_OVERLAPS)
"""Switches that are off without a flag, unless jobs set them."""


def refuse_unsearched(trainer: str, flags: Flags) -> Flags:
    """Return the flags; raise if a file or checkpoint overrides those of the jobs, or for FSDP and offload.

    The search supposes ZeRO 0 and 1 without offload of activations, and its jobs set them.
    """
    if found := [flag for flag in _OVERRIDING if flag in flags]:
        raise InputError(
            f"--trainer {trainer} cannot set the topology of a command with {found[0]}, {_OVERRIDING[found[0]]}."
        )
    unset = _OFFLOAD if trainer == "megatron-lm" else (*_OFFLOAD, _OF_OPTIMIZER)
    if found := _switched_on(flags, (*_FSDP, *unset)):
        kind = "FSDP" if _switched_on(flags, _FSDP) else "offload"
        raise InputError(
            f"--trainer {trainer} does not search {kind}, which {listed(found)} in --command would use in each job; "
            "remove it, or write a template with fields in --command, without --trainer."
        )
    return flags


def conditional(flags: Flags, topology: Topology) -> list[str]:
    """Return the switches of the command with which Megatron-LM starts only at some topologies, this among them."""
    return [flag for flag, starts in CONDITIONAL.items() if flag in flags and starts(topology)]


def of_optimizer(flags: Flags, workload: Workload, words: Sequence[str]) -> list[str]:
    """Return the flags of a job without those that Megatron-LM's optimizer excludes or brings along.

    Until April 2026, Muon excluded overlaps, and dist_muon the distributed optimizer (NVIDIA/Megatron-LM at a2381d80,
    megatron/training/arguments.py).
    """
    dropped = [flag for flag in _OVERLAPS if workload.optimizer == "muon" and flag not in flags]
    dropped += ["--use-distributed-optimizer"] * (flags.get("--optimizer") == "dist_muon")
    return [word for word in words if word not in dropped]


def _switched_on(flags: Flags, names: tuple[str, ...]) -> list[str]:
    """Return the flags with these names, in the spelling and section of each trainer, that are not off."""
    return [
        flag
        for flag, value in flags.items()
        for name in [flag.lstrip("-+").replace("-", "_")]
        if (name in names or name.rpartition(".")[2] in names) and value.lower() not in _NOT_ON
    ]
