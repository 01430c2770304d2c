"""The questions that the launcher asks: the queue, one job of it, the accounting where there is one, the nodes."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

from tuner.core.errors import MissingDependency
from tuner.launch.slurm.commands import CommandOutput, ControllerUnreachable, SlurmCommands
from tuner.launch.slurm.states import FORMAT, MARK, QueuedJob, accounted, partitions, rows, unfit

OVER: Final = "Invalid job id"
"""What `squeue` says of a job that it knows no more."""


class SlurmQueue:
    """What the controller knows; `ControllerUnreachable` where it does not answer."""

    def __init__(self, commands: SlurmCommands) -> None:
        self._ask = commands.ask
        self._accounts = True
        self.read = 0
        """How often the whole queue was read."""

    def every(self) -> dict[str, QueuedJob]:
        """The user's jobs, those that have just ended too, by their ids: one query for all."""
        self.read += 1
        return {row.id: row for row in self._rows()}

    def one(self, name: str, number: str) -> QueuedJob | None:
        """A job, while the queue knows it."""
        return next((row for row in self._rows(f"--name={name}") if row.id == number), None)

    def named(self, name: str) -> QueuedJob | None:
        """The newest job of a name, from wherever it is known."""
        found = [row for row in self._rows(f"--name={name}") if row.name == name]
        if not found:
            found = [row for row in self._accounted(f"--name={name}", "-S", "now-30days") if row.name == name]
        return max(found, key=lambda row: int(row.id) if row.id.isdigit() else 0, default=None)

    def remembered(self, name: str, number: str) -> QueuedJob | None:
        """A job that the queue has forgotten: perhaps the accounting has not."""
        with suppress(ControllerUnreachable):
            return next((row for row in self._accounted("-j", number) if (row.id, row.name) == (number, name)), None)
        return None

    def exit_code(self, name: str, number: str) -> int | None:
        """The exit code of a script that could not write it down; a signal is negative."""
        with suppress(ControllerUnreachable):
            said = self._ask("scontrol", "-o", "show", "job", number)
            if f"JobName={name} " in said.out and (found := re.search(r" ExitCode=(\d+):(\d+)", said.out)):
                return int(found[1]) or -int(found[2])
        return None

    def unfit_among(self, nodes: str) -> dict[str, str] | None:
        """Which of these nodes cannot run anything, and why; None where nobody says."""
        with suppress(ControllerUnreachable):
            return unfit(_heard(self._ask("sinfo", "-h", "-N", "-n", nodes, "-o", "%N|%T|%E")).out)
        return None

    def partitions(self) -> dict[str, int]:
        """Nodes of each partition that takes jobs."""
        return partitions(_heard(self._ask("sinfo", "-h", "-o", "%R|%a|%D")).out)

    def end(self, name: str) -> None:
        """Cancel by the name alone: the id may be another job's by now."""
        self._ask("scancel", "--quiet", "--me", f"--name={name}")

    def steps(self, number: str, name: str) -> list[str]:
        """The steps of a name that run inside a job."""
        said = self._ask("squeue", "--steps", f"--jobs={number}", "--noheader", "--format", f"%i{MARK}%j")
        if said.code and OVER in said.err:
            return []
        rows = (line.split(MARK) for line in _heard(said).out.splitlines())
        return [each[0] for each in rows if each[-1] == name]

    def nodes_of(self, number: str) -> list[str] | None:
        """The nodes that a job has now: none once it is over; None where nobody says."""
        with suppress(ControllerUnreachable):
            said = self._ask("squeue", f"--jobs={number}", "--states=RUNNING,SUSPENDED", "--noheader", "--format", "%N")
            if said.code:
                return [] if OVER in said.err else None
            nodes = said.out.strip()
            return _heard(self._ask("scontrol", "show", "hostnames", nodes)).out.split() if nodes else []
        return None

    def end_steps(self, number: str, name: str) -> bool:
        """Cancel the steps of a name that run inside a job; whether there were any."""
        steps = self.steps(number, name)
        for step in steps:
            self._ask("scancel", "--quiet", step)
        return bool(steps)

    def _rows(self, *words: str) -> list[QueuedJob]:
        return rows(_heard(self._ask("squeue", "--me", "--states=all", "--noheader", "--format", FORMAT, *words)).out)

    def _accounted(self, *words: str) -> list[QueuedJob]:
        if not self._accounts:
            return []
        try:
            said = self._ask("sacct", "-n", "-P", "-X", "-o", "JobID,JobName,State,NodeList", *words)
        except MissingDependency:
            self._accounts = False
            return []
        self._accounts = not (said.code and "disabled" in said.err)
        return accounted(said.out) if not said.code else []


def _heard(said: CommandOutput) -> CommandOutput:
    """What was answered; a failure, whatever it is, is no word about a job or a node."""
    if said.code:
        raise ControllerUnreachable((said.err.strip().splitlines() or ["its command failed"])[-1])
    return said
