"""Run Slurm's commands, each with a timeout, and limit how often the controller is queried."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tuner.core.errors import LaunchError, MissingDependency, TunerError
from tuner.core.text import listed
from tuner.launch.slurm.parsing import unreachable

REQUIRED_COMMANDS: Final = ("sbatch", "squeue", "scancel", "scontrol", "sinfo")

COMMAND_TIMEOUT: Final = 60.0
"""Seconds that one command may take; each retries for nine by itself while the controller is down."""


class ControllerUnreachable(TunerError):
    """The controller does not answer: the state of its jobs is unknown."""


def no_answer(error: ControllerUnreachable) -> LaunchError:
    """Return the error of a command that needs an answer of Slurm."""
    if "configuration source" in str(error):
        return LaunchError(
            f"Slurm is not configured on this machine ({error}); run tuner on a login node, or set SLURM_CONF."
        )
    return LaunchError(f"Slurm does not answer ({error}); try again later, or check `scontrol ping`.")


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


class SlurmCommands:
    """The commands of the cluster that the environment selects."""

    def __init__(self) -> None:
        missing = [name for name in REQUIRED_COMMANDS if shutil.which(name) is None]
        if missing:
            raise MissingDependency(
                f"--launcher slurm needs {listed(missing)}, not installed on this machine; run it on a login node."
            )

    def run(self, *command: str, lock: int | None = None) -> CommandOutput:
        """Run a command, which inherits the file `lock`; raise `ControllerUnreachable` without an answer."""
        try:
            done = subprocess.run(  # noqa: S603 - an argument list, no shell
                command,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=COMMAND_TIMEOUT,
                check=False,
                env=tuner_environment(os.environ),
                pass_fds=() if lock is None else (lock,),
                start_new_session=True,  # Ctrl-C must not interrupt a submission in progress
            )
        except subprocess.TimeoutExpired:
            raise ControllerUnreachable(f"{command[0]} has not answered for {COMMAND_TIMEOUT:.0f} s") from None
        except BlockingIOError:
            raise ControllerUnreachable(f"{command[0]} cannot start: too many processes on this machine") from None
        except OSError as error:
            raise MissingDependency(f"{command[0]} cannot run: {error.strerror or error}.") from None
        output = CommandOutput(
            done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        )
        if output.code and unreachable(output.err):
            raise ControllerUnreachable(output.err.strip().splitlines()[-1])
        return output


_OPTION_VARIABLES: Final = (
    *("SLURM_", "SLURMD_", "SBATCH_", "SALLOC_", "SRUN_", "SCANCEL_", "SQUEUE_", "SACCT_", "SINFO_", "SCONTROL_"),
)
"""Prefixes of the variables by which Slurm's commands take options from the environment."""


def tuner_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without variables that change what Slurm's commands do, such as `SBATCH_TEST_ONLY`.

    Variables of an enclosing job would override the options of a script; those that select cluster and user stay.
    """
    return {
        name: value
        for name, value in environment.items()
        if name in ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT") or not name.startswith(_OPTION_VARIABLES)
    }


@dataclass(slots=True)
class PollInterval:
    """Schedules queries of the controller: soon after a change, and less often while nothing changes."""

    first: float = 1.0
    growth: float = 1.5
    most: float = 60.0
    interval: float = 0.0
    due: float = 0.0

    def __post_init__(self) -> None:
        self.interval = self.first

    def polled(self, now: float, *, changed: bool) -> None:
        """Schedule the next query, depending on whether the last one found a change."""
        self.interval = self.first if changed else min(self.most, self.growth * self.interval)
        self.due = now + self.interval

    def reset(self, now: float) -> None:
        """Query soon, because a job has started, ended or been submitted."""
        self.interval = self.first
        self.due = min(self.due, now + self.first)
