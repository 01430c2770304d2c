"""Jobs on several machines: the bundled worker under DeepSpeed's launcher, which reaches them with pdsh or mpirun."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

from tuner.core.atomic_write import write_whole
from tuner.core.catalog import read_text
from tuner.core.errors import InputError, LaunchError, UnknownName
from tuner.core.ports import free_port
from tuner.core.text import counted, shown
from tuner.launch.contract import Job
from tuner.launch.program import ProcessSpec, WorkerProgram

PROGRAMS: Final = {"pdsh": "pdsh", "openmpi": "mpirun"}
"""The ways of DeepSpeed's launcher to reach other machines, and the program of each."""
OVER: Final = tuple(PROGRAMS)

GRACE: Final = 10.0
"""Seconds for DeepSpeed's launcher to reach the other machines and end their ranks, which it does on SIGTERM."""

_LINE: Final = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.:-]{0,252})\s+slots=([0-9]{1,4})")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
"""DeepSpeed passes paths unquoted to shells on other machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A machine and its number of ranks."""

    name: str
    slots: int


def read_hostfile(path: Path) -> tuple[Host, ...]:
    """Read lines `HOST slots=N`; empty lines and comments after # are ignored."""
    lines = read_text(path).splitlines()
    hosts: dict[str, Host] = {}
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        found = _LINE.fullmatch(text)
        if found is None or not int(found[2]):
            raise InputError(
                f"{path}, line {number}: {shown(text)} is not of the form HOST slots=N, as in node-1 slots=8."
            )
        if found[1] in hosts:
            raise InputError(f"{path}, line {number}: duplicate host {found[1]}.")
        hosts[found[1]] = Host(name=found[1], slots=int(found[2]))
    if not hosts:
        raise InputError(f"{path} has no host; add a line such as node-1 slots=8 for each.")
    return tuple(hosts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class HostfileProgram:
    """The bundled worker on the first of the machines, as many as a job needs."""

    worker: WorkerProgram
    hosts: tuple[Host, ...]
    over: str = "pdsh"
    python: str = field(default_factory=lambda: sys.executable)
    measured_by_log: ClassVar[bool] = WorkerProgram.measured_by_log
    step_pattern: ClassVar[None] = WorkerProgram.step_pattern
    several_batches: ClassVar[bool] = WorkerProgram.several_batches

    def __post_init__(self) -> None:
        if self.over not in OVER:
            raise UnknownName("way to reach the hosts", self.over, OVER)

    @property
    def on_host(self) -> bool:
        """Whether ranks compute on the CPU."""
        return self.worker.on_host

    def dumps_on_signal(self, pid: int) -> bool:
        """Whether a process is a rank on this machine that writes its stacks on SIGUSR1."""
        return self.worker.dumps_on_signal(pid)

    def prepare(self, job: Job) -> ProcessSpec:
        """Write the worker's files and the job's hostfile; return DeepSpeed's launcher."""
        folder = job.folder.resolve()
        if not _PLAIN.fullmatch(str(folder)) or not _PLAIN.fullmatch(self.python):
            raise LaunchError(
                f"DeepSpeed's launcher cannot use the path {shown(str(folder))}: only letters, digits and "
                f"_@%+=:,./- are allowed."
            )
        hosts = self._chosen(job)
        start, port = self.worker.prepare(job), free_port("")  # most likely free on the first host too
        write_whole(folder / "hostfile", "".join(f"{host.name} slots={host.slots}\n" for host in hosts))
        variables = {**start.environment, **job.environment, "TUNER_JOB": job.tag}
        if self.over == "openmpi":
            variables |= {"MASTER_ADDR": hosts[0].name, "MASTER_PORT": str(port)}
        # DeepSpeed exports the variables of this file in its working directory to all machines.
        write_whole(folder / ".deepspeed_env", "".join(f"{name}={value}\n" for name, value in variables.items()))
        return ProcessSpec(
            arguments=arguments(folder, hosts, port, self.over, self.python),
            environment={**start.environment, "PATH": _with_python(self.python)},
            cwd=folder,
            result=start.result,
            grace=GRACE,
        )

    def _chosen(self, job: Job) -> tuple[Host, ...]:
        nodes, ranks = job.topology.nodes, job.topology.gpus
        if ranks % nodes or nodes > len(self.hosts):
            raise LaunchError(f"{job.topology.key} needs {counted(nodes, 'node')}; the hostfile has {len(self.hosts)}.")
        chosen = self.hosts[:nodes]
        if short := next((host for host in chosen if host.slots < ranks // nodes), None):
            raise LaunchError(f"{short.name} has {counted(short.slots, 'slot')}; the job needs {ranks // nodes}.")
        return tuple(Host(name=host.name, slots=ranks // nodes) for host in chosen)


def arguments(folder: Path, hosts: Sequence[Host], port: int, over: str, python: str) -> tuple[str, ...]:
    """Return the command line of DeepSpeed's launcher."""
    return (
        *(python, "-m", "deepspeed.launcher.runner"),
        *("--hostfile", str(folder / "hostfile")),
        *("--launcher", over, "--force_multi", "--no_ssh_check"),
        *("--master_addr", hosts[0].name, "--master_port", str(port)),
        *("--module", "--no_local_rank", "tuner.worker", "--job", str(folder / "assignment.json")),
    )


def _with_python(python: str) -> str:
    return os.pathsep.join((str(Path(python).parent), os.environ.get("PATH", os.defpath)))
