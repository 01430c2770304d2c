"""The Slurm allocation that this process runs in, as `salloc` or `sbatch` describes it in the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.core.errors import InputError, LaunchError
from tuner.core.text import shown
from tuner.launch.slurm.commands import ControllerUnreachable, SlurmCommands


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The nodes of a Slurm job."""

    number: str
    nodes: tuple[str, ...]
    cores: int | None
    """Cores of its smallest node, where known."""

    @classmethod
    def current(cls, environment: Mapping[str, str], commands: SlurmCommands) -> Allocation:
        """Return the allocation that this process runs in; raise where there is none."""
        count = nodes_allocated(environment)
        number, nodelist = environment["SLURM_JOB_ID"], environment["SLURM_JOB_NODELIST"]
        nodes = hostnames(nodelist, commands, f"allocation {number}")
        if len(nodes) != count:
            raise LaunchError(
                f"allocation {number} has {count} nodes, but SLURM_JOB_NODELIST = {shown(nodelist)} names {len(nodes)}."
            )
        cores = re.findall(r"(\d+)(?:\(x\d+\))?", environment.get("SLURM_JOB_CPUS_PER_NODE", ""))
        return cls(number=number, nodes=nodes, cores=min(map(int, cores), default=None))


def hostnames(nodes: str, commands: SlurmCommands, source: str) -> tuple[str, ...]:
    """Return the names in a list in Slurm's notation, n[1-2]; `source` says in an error where the list is from."""
    try:
        output = commands.run("scontrol", "show", "hostnames", nodes)
    except ControllerUnreachable as error:
        raise LaunchError(f"Slurm does not answer ({error}); try again later, or check `scontrol ping`.") from None
    if output.code:
        raise LaunchError(f"Slurm cannot expand the nodes of {source}: {shown(output.err)}.")
    return tuple(output.out.split())


def nodes_allocated(environment: Mapping[str, str]) -> int:
    """Return the number of nodes of the current allocation; raise where there is none."""
    count = environment.get("SLURM_JOB_NUM_NODES") or environment.get("SLURM_NNODES") or ""
    there = environment.get("SLURM_JOB_ID", "").isdigit() and environment.get("SLURM_JOB_NODELIST")
    if not there or not count.isdigit() or int(count) < 1:
        raise InputError(
            "--within-allocation needs a Slurm allocation, and SLURM_JOB_ID is not set; start tuner with "
            "salloc --nodes N --exclusive --no-kill, or leave the option out to give each job its own allocation."
        )
    return int(count)
