"""The process of a job step: the shell that runs its script, on the machine of the tuner that started it."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from socket import gethostname
from typing import Any, Final

from tuner.launch import supervisor
from tuner.launch.command_line import runs

NODES: Final = "SLURM_JOB_NODELIST"
"""The variable that names a script's nodes, separated by commas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptProcess:
    """The process that runs a job's script."""

    pid: int
    host: str
    nodes: tuple[str, ...]
    child: bool
    """Whether it is a child of this process."""

    @classmethod
    def of(cls, document: Any) -> ScriptProcess | None:
        """Return the process recorded in a job's note; None if the script was not started."""
        with suppress(TypeError, KeyError, ValueError):
            nodes = tuple(map(str, document["nodes"]))
            return cls(pid=int(document["pid"]), host=str(document["host"]), nodes=nodes, child=False)
        return None

    @classmethod
    def found(cls, tag: str, file: Path) -> ScriptProcess | None:
        """Find the process of a started script that was not recorded, by the tag in its environment."""
        pid = min((pid for pid in supervisor.members(tag) if runs(pid, file)), default=None)
        with suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
            nodes = next((value.removeprefix(f"{NODES}=") for value in variables if value.startswith(f"{NODES}=")), "")
            if pid is not None:
                return cls(pid=pid, host=gethostname(), nodes=tuple(nodes.split(",")), child=False)
        return None

    def document(self) -> dict[str, Any]:
        """Return the process as a job's note records it."""
        return {"pid": self.pid, "host": self.host, "nodes": list(self.nodes)}

    @property
    def on_this_host(self) -> bool:
        """Whether the process runs on this machine."""
        return self.host == gethostname()

    def alive(self, file: Path) -> bool:
        """Whether the process runs: as a child, or by its command line, because process ids are reused."""
        if self.child:
            with suppress(ChildProcessError):
                return os.waitpid(self.pid, os.WNOHANG) == (0, 0)
            return False
        return self.on_this_host and runs(self.pid, file)
