"""The process that keeps a job step: the shell that runs its script, beside the tuner that has started it."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from socket import gethostname
from typing import Any, Final

from tuner.launch import supervisor as keeper

NODES: Final = "SLURM_JOB_NODELIST"
"""The variable by which a script is told its nodes, with commas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptProcess:
    """The process that keeps a job, once it was started."""

    pid: int
    host: str
    nodes: tuple[str, ...]
    own: bool
    """Whether it is our child."""

    @classmethod
    def of(cls, document: Any) -> ScriptProcess | None:
        """The script of a job's note; None where it was not started."""
        with suppress(TypeError, KeyError, ValueError):
            nodes = tuple(map(str, document["nodes"]))
            return cls(pid=int(document["pid"]), host=str(document["host"]), nodes=nodes, own=False)
        return None

    @classmethod
    def found(cls, tag: str, file: Path) -> ScriptProcess | None:
        """The script of a job that was started and not noted, by the tag in its environment."""
        pid = min((each for each in keeper.members(tag) if _runs(each, file)), default=None)
        with suppress(OSError):
            words = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
            nodes = next((word.partition("=")[2] for word in words if word.startswith(f"{NODES}=")), "")
            if pid is not None:
                return cls(pid=pid, host=gethostname(), nodes=tuple(nodes.split(",")), own=False)
        return None

    def document(self) -> dict[str, Any]:
        """As a job's note has it."""
        return {"pid": self.pid, "host": self.host, "nodes": list(self.nodes)}

    @property
    def near(self) -> bool:
        """Whether we can see it."""
        return self.host == gethostname()

    def lives(self, file: Path) -> bool:
        """Whether it is there: our child, or another's, told by what it runs, since numbers are used again."""
        if self.own:
            with suppress(ChildProcessError):
                return os.waitpid(self.pid, os.WNOHANG) == (0, 0)
            return False
        return self.near and _runs(self.pid, file)


def _runs(pid: int, file: Path) -> bool:
    """Whether a process is the shell of a script."""
    with suppress(OSError):
        return os.fsencode(file) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return False
