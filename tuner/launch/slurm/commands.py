"""Slurm's commands, each asked with a limit of time; and the pace at which the controller is asked."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tuner.core.errors import MissingDependency, TunerError
from tuner.core.text import listed
from tuner.launch.slurm.states import unreachable

NEEDED: Final = ("sbatch", "squeue", "scancel", "scontrol", "sinfo")

PATIENCE: Final = 60.0
"""Seconds that one command may take: while the controller is down each takes nine by itself."""


class ControllerUnreachable(TunerError):
    """The controller does not answer: nothing is known, and nothing has failed."""


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """What a command has answered."""

    code: int
    out: str
    err: str


class SlurmCommands:
    """The commands of the cluster that this process's environment names."""

    def __init__(self) -> None:
        missing = [name for name in NEEDED if shutil.which(name) is None]
        if missing:
            raise MissingDependency(
                f"--launcher slurm needs {listed(missing)}, which this machine lacks; run it on a login node."
            )

    def ask(self, *words: str, lock: int | None = None) -> CommandOutput:
        """Run one; `ControllerUnreachable` where the controller does not answer; `lock` is held open."""
        try:
            done = subprocess.run(  # noqa: S603 - an argument list, no shell
                words,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=PATIENCE,
                check=False,
                env=own_environment(os.environ),
                pass_fds=() if lock is None else (lock,),
                start_new_session=True,  # Ctrl-C is for the tuner, not for a submission under way
            )
        except subprocess.TimeoutExpired:
            raise ControllerUnreachable(f"{words[0]} has not answered for {PATIENCE:.0f} s") from None
        except BlockingIOError:
            raise ControllerUnreachable(
                f"{words[0]} cannot be started now: this machine has too many processes"
            ) from None
        except OSError as error:
            raise MissingDependency(f"{words[0]} cannot be run: {error.strerror or error}.") from None
        said = CommandOutput(
            done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        )
        if said.code and unreachable(said.err):
            raise ControllerUnreachable(said.err.strip().splitlines()[-1])
        return said


def own_environment(found: Mapping[str, str]) -> dict[str, str]:
    """Ours, without what belongs to a job that the tuner itself runs in and would stand above the script's lines."""
    kept = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT")
    ours = {
        name: value
        for name, value in found.items()
        if name in kept or not name.startswith(("SLURM_", "SLURMD_", "SBATCH_"))
    }
    ours.pop("SLURM_TIME_FORMAT", None)
    return ours


@dataclass(slots=True)
class PollInterval:
    """When the controller is asked next: soon after something has stirred, and ever more seldom while nothing does."""

    first: float = 1.0
    growth: float = 1.5
    most: float = 60.0
    interval: float = 0.0
    due: float = 0.0

    def __post_init__(self) -> None:
        self.interval = self.first

    def asked(self, now: float, *, stirred: bool) -> None:
        """The queue has been read, and something in it has changed or nothing has."""
        self.interval = self.first if stirred else min(self.most, self.growth * self.interval)
        self.due = now + self.interval

    def stir(self, now: float) -> None:
        """A job has begun, ended or been submitted: what follows is worth seeing."""
        self.interval = self.first
        self.due = min(self.due, now + self.first)
