"""Jobs on several machines: the shipped worker under DeepSpeed's launcher, which reaches them over pdsh or mpirun."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tuner.core.atomic_write import write_whole
from tuner.core.catalog import read_text
from tuner.core.errors import InputError, LaunchError, UnknownName
from tuner.core.text import counted, shown
from tuner.launch.contract import Job
from tuner.launch.machine import free_port
from tuner.launch.program import ProcessSpec, WorkerProgram

PROGRAMS: Final = {"pdsh": "pdsh", "openmpi": "mpirun"}
"""What DeepSpeed's launcher may reach the machines by, and the program of each."""
OVER: Final = tuple(PROGRAMS)

_LINE: Final = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.:-]{0,252})\s+slots=([0-9]{1,4})")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
"""DeepSpeed hands paths to shells of other machines without quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A machine and how many ranks it takes."""

    name: str
    slots: int


def read_hostfile(path: Path) -> tuple[Host, ...]:
    """`HOST slots=N` a line; empty lines and what follows a # do not count."""
    lines = read_text(path).splitlines()
    hosts: dict[str, Host] = {}
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        found = _LINE.fullmatch(text)
        if found is None or not int(found[2]):
            raise InputError(f"{path}, line {number}: {shown(text)} is not HOST slots=N such as node-1 slots=8.")
        if found[1] in hosts:
            raise InputError(f"{path}, line {number}: {found[1]} stands there twice.")
        hosts[found[1]] = Host(name=found[1], slots=int(found[2]))
    if not hosts:
        raise InputError(f"{path} names no host; write a line such as node-1 slots=8 for each.")
    return tuple(hosts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class HostfileProgram:
    """The shipped worker on the first of so many machines as a job wants."""

    worker: WorkerProgram
    hosts: tuple[Host, ...]
    over: str = "pdsh"
    python: str = field(default_factory=lambda: sys.executable)

    def __post_init__(self) -> None:
        if self.over not in OVER:
            raise UnknownName("way to reach the hosts", self.over, OVER)

    @property
    def measured_by_log(self) -> bool:
        """No: the worker ends by itself."""
        return self.worker.measured_by_log

    @property
    def on_host(self) -> bool:
        """Whether ranks compute on the hosts."""
        return self.worker.on_host

    def dumps_on_signal(self, pid: int) -> bool:
        """Those on this machine do."""
        return self.worker.dumps_on_signal(pid)

    def prepare(self, job: Job) -> ProcessSpec:
        """The worker's files, a hostfile of the job's own, and DeepSpeed's launcher."""
        folder = job.folder.resolve()
        if not _PLAIN.fullmatch(str(folder)) or not _PLAIN.fullmatch(self.python):
            raise LaunchError(
                f"DeepSpeed's launcher cannot work in {shown(str(folder))}: its path may hold letters, digits and "
                f"_@%+=:,./- only."
            )
        hosts = self._chosen(job)
        start, port = self.worker.prepare(job), free_port("")  # most likely the first host's too
        write_whole(folder / "hostfile", "".join(f"{host.name} slots={host.slots}\n" for host in hosts))
        told = {**start.environment, **job.environment, "TUNER_JOB": job.tag}
        if self.over == "openmpi":
            told |= {"MASTER_ADDR": hosts[0].name, "MASTER_PORT": str(port)}
        # DeepSpeed exports what this file of its working directory says to all machines.
        write_whole(folder / ".deepspeed_env", "".join(f"{name}={value}\n" for name, value in told.items()))
        return ProcessSpec(
            arguments=arguments(folder, hosts, port, self.over, self.python),
            environment={**start.environment, "PATH": _with_python(self.python)},
            cwd=folder,
            result=start.result,
        )

    def _chosen(self, job: Job) -> tuple[Host, ...]:
        nodes, ranks = job.topology.nodes, job.topology.gpus
        if ranks % nodes or nodes > len(self.hosts):
            raise LaunchError(f"{job.topology.key} wants {counted(nodes, 'node')}; {len(self.hosts)} stand there.")
        chosen = self.hosts[:nodes]
        if short := next((host for host in chosen if host.slots < ranks // nodes), None):
            raise LaunchError(f"{short.name} has {counted(short.slots, 'slot')} where {ranks // nodes} are wanted.")
        return tuple(Host(name=host.name, slots=ranks // nodes) for host in chosen)


def arguments(folder: Path, hosts: Sequence[Host], port: int, over: str, python: str) -> tuple[str, ...]:
    """DeepSpeed's launcher and what it is told."""
    return (
        *(python, "-m", "deepspeed.launcher.runner"),
        *("--hostfile", str(folder / "hostfile")),
        *("--launcher", over, "--force_multi", "--no_ssh_check"),
        *("--master_addr", hosts[0].name, "--master_port", str(port)),
        *("--module", "--no_local_rank", "tuner.worker", "--job", str(folder / "assignment.json")),
    )


def _with_python(python: str) -> str:
    return os.pathsep.join((str(Path(python).parent), os.environ.get("PATH", os.defpath)))
