"""The allocation of Slurm's that this process runs in, by what `salloc` or `sbatch` has put into its environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.core.errors import InputError, LaunchError
from tuner.core.text import shown
from tuner.launch.slurm.commands import ControllerUnreachable, SlurmCommands


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What `salloc` or `sbatch` has given us."""

    number: str
    nodes: tuple[str, ...]
    cores: int | None
    """On its smallest node, as far as that is told."""

    @classmethod
    def here(cls, environment: Mapping[str, str], commands: SlurmCommands) -> Allocation:
        """The allocation that this process runs in; refused where there is none."""
        count = nodes_allocated(environment)
        number, told = environment["SLURM_JOB_ID"], environment["SLURM_JOB_NODELIST"]
        nodes = hostnames(told, commands, f"allocation {number}")
        if len(nodes) != count:
            raise LaunchError(f"the nodes of allocation {number} cannot be told: {shown(told)} are not {count}.")
        cores = re.findall(r"(\d+)(?:\(x\d+\))?", environment.get("SLURM_JOB_CPUS_PER_NODE", ""))
        return cls(number=number, nodes=nodes, cores=min(map(int, cores), default=None))


def hostnames(nodes: str, commands: SlurmCommands, whose: str) -> tuple[str, ...]:
    """The names in a list as Slurm writes it, n[1-2]; refused where Slurm cannot tell."""
    try:
        said = commands.ask("scontrol", "show", "hostnames", nodes)
    except ControllerUnreachable as silence:
        raise LaunchError(f"Slurm does not answer ({silence}); try again, or ask whether it is down.") from None
    if said.code:
        raise LaunchError(f"the nodes of {whose} cannot be told: {shown(said.err)}.")
    return tuple(said.out.split())


def nodes_allocated(environment: Mapping[str, str]) -> int:
    """How many nodes the allocation has that this process runs in; refused where there is none."""
    count = environment.get("SLURM_JOB_NUM_NODES") or environment.get("SLURM_NNODES") or ""
    there = environment.get("SLURM_JOB_ID", "").isdigit() and environment.get("SLURM_JOB_NODELIST")
    if not there or not count.isdigit() or int(count) < 1:
        raise InputError(
            "--within-allocation runs inside an allocation, and here is none (SLURM_JOB_ID is not set): begin with "
            "salloc --nodes N --exclusive --no-kill, or leave it out for an allocation each."
        )
    return int(count)
