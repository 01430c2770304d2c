"""The Slurm allocation that this process runs in, as `salloc` or `sbatch` describes it in the environment."""

from __future__ import annotations

import fcntl
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tuner.core.errors import InputError, LaunchError
from tuner.core.quantity import whole
from tuner.core.text import listed, shown
from tuner.launch.slurm.commands import ControllerUnreachable, SlurmCommands, no_answer
from tuner.launch.slurm.site_profile import SiteProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The nodes of a Slurm job."""

    number: str
    nodes: tuple[str, ...]
    cores: int | None
    """Cores of its smallest node, if known."""

    @classmethod
    def current(cls, environment: Mapping[str, str], commands: SlurmCommands) -> Allocation:
        """Return the allocation that this process runs in; raise if there is none."""
        count = nodes_allocated(environment)
        number, nodelist = environment["SLURM_JOB_ID"], environment["SLURM_JOB_NODELIST"]
        nodes = hostnames(nodelist, commands, f"allocation {number}")
        if len(nodes) != count:
            raise LaunchError(
                f"allocation {number} has {count} nodes, but SLURM_JOB_NODELIST = {shown(nodelist)} names {len(nodes)}."
            )
        cores = re.findall(r"(\d+)(?:\(x\d+\))?", environment.get("SLURM_JOB_CPUS_PER_NODE", ""))
        return cls(number=number, nodes=nodes, cores=min(map(int, cores), default=None))

    def nodes_by_site(self, site: SiteProfile, commands: SlurmCommands) -> tuple[str, ...]:
        """Return the nodes without those that the site excludes; raise if one of its `nodelist` is missing."""
        nodes = self.nodes
        if site.exclude:
            without = hostnames(",".join(site.exclude), commands, "`exclude` in the site profile")
            nodes = tuple(name for name in nodes if name not in without)
        if site.nodelist:
            named = hostnames(site.nodelist, commands, "`nodelist` in the site profile")
            if other := [name for name in nodes if name not in named]:
                raise InputError(
                    f"allocation {self.number} has {listed(other)}, which nodelist = {shown(site.nodelist)} of the "
                    "site profile does not list; exclude them there, or remove nodelist."
                )
        return nodes

    def lock(self, folder: Path) -> IO[str] | None:
        """Keep other tuners with the same folder out of the allocation; None if the folder does not support locks."""
        with suppress(OSError):  # an unwritable folder is reported elsewhere; some file systems have no locks
            folder.mkdir(parents=True, exist_ok=True)
            lock = (folder / f".allocation-{self.number}").open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                raise LaunchError(
                    f"another tuner uses the nodes of allocation {self.number}; to run trials side by side, give one "
                    "tuner --jobs 4."
                ) from None
            return lock
        return None


def hostnames(nodes: str, commands: SlurmCommands, source: str) -> tuple[str, ...]:
    """Expand a list in Slurm's notation, n[1-2]; errors name `source` as its origin."""
    try:
        output = commands.run("scontrol", "show", "hostnames", nodes)
    except ControllerUnreachable as error:
        raise no_answer(error) from None
    if output.code:
        raise LaunchError(f"Slurm cannot expand the nodes of {source}: {shown(output.err)}.")
    return tuple(output.out.split())


def nodes_allocated(environment: Mapping[str, str]) -> int:
    """Return the number of nodes of the current allocation; raise if there is none."""
    count = whole(environment.get("SLURM_JOB_NUM_NODES") or environment.get("SLURM_NNODES") or "")
    there = whole(environment.get("SLURM_JOB_ID", "")) and environment.get("SLURM_JOB_NODELIST")
    if not there or not count:
        raise InputError(
            "--within-allocation needs a Slurm allocation, and SLURM_JOB_ID is not set; start tuner with "
            "salloc --nodes N --exclusive --no-kill, or leave the option out to give each job its own allocation."
        )
    return count
