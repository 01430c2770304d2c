"""Query Slurm: the queue, one job, the accounting where there is one, steps, nodes and partitions."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

from tuner.core.errors import MissingDependency
from tuner.core.quantity import whole
from tuner.launch.contract import JobState
from tuner.launch.slurm.commands import CommandOutput, ControllerUnreachable, SlurmCommands
from tuner.launch.slurm.parsing import (
    QUEUE_FORMAT,
    SEPARATOR,
    QueuedJob,
    accounting_rows,
    failed_nodes,
    partitions,
    queue_rows,
)

UNKNOWN_JOB: Final = "Invalid job id"
"""The error of `squeue` for a job that is no longer in the queue."""


class SlurmQueue:
    """Queries to the controller; they raise `ControllerUnreachable` unless None stands for no answer."""

    def __init__(self, commands: SlurmCommands) -> None:
        self._run = commands.run
        self._has_accounting = True
        self.reads = 0
        """Number of times that the whole queue was read."""

    def all(self) -> dict[str, QueuedJob]:
        """Return the user's jobs by id, including those that have just ended, with one query."""
        self.reads += 1
        return {row.id: row for row in self._rows()}

    def one(self, name: str, job_id: str) -> QueuedJob | None:
        """Return a job; None once the queue has forgotten it."""
        return next((row for row in self._rows(f"--name={name}") if row.id == job_id), None)

    def open_names(self) -> set[str]:
        """Return the names of the user's waiting and running jobs."""
        return {row.name for row in self._rows() if row.job_state is not JobState.ENDED}

    def newest(self, name: str) -> QueuedJob | None:
        """Return the newest job of a name, from the queue or else the accounting."""
        found = [row for row in self._rows(f"--name={name}") if row.name == name]
        if not found:
            found = [row for row in self._accounting(f"--name={name}", "-S", "now-30days") if row.name == name]
        return max(found, key=lambda row: whole(row.id) or 0, default=None)

    def accounted(self, name: str, job_id: str) -> QueuedJob | None:
        """Return a job from the accounting; None if it is missing or there is no answer."""
        with suppress(ControllerUnreachable):
            return next((row for row in self._accounting("-j", job_id) if (row.id, row.name) == (job_id, name)), None)
        return None

    def exit_code(self, name: str, job_id: str) -> int | None:
        """Return the exit code of a job, negative for a signal; None if Slurm does not answer."""
        with suppress(ControllerUnreachable):
            output = self._run("scontrol", "-o", "show", "job", job_id)
            if f"JobName={name} " in output.out and (found := re.search(r" ExitCode=(\d+):(\d+)", output.out)):
                return int(found[1]) or -int(found[2])
        return None

    def failed_among(self, nodes: str) -> dict[str, str] | None:
        """Return which of these nodes cannot run jobs, and why; None if Slurm does not answer."""
        with suppress(ControllerUnreachable):
            return failed_nodes(_checked(self._run("sinfo", "-h", "-N", "-n", nodes, "-o", "%N|%T|%E")).out)
        return None

    def partitions(self) -> dict[str, int]:
        """Return the number of nodes of each partition that is up."""
        return partitions(_checked(self._run("sinfo", "-h", "-o", "%R|%a|%D")).out)

    def cancel(self, name: str) -> str:
        """Cancel a job by name only, because its id may have been reused; return scancel's error, if it failed."""
        return _error_of(self._run("scancel", "--quiet", "--me", f"--name={name}"))

    def steps(self, job_id: str, name: str) -> list[str]:
        """Return the ids of the steps of a name inside a job."""
        output = self._run("squeue", "--steps", f"--jobs={job_id}", "--noheader", "--format", f"%i{SEPARATOR}%j")
        if output.code and UNKNOWN_JOB in output.err:
            return []
        rows = (line.split(SEPARATOR) for line in _checked(output).out.splitlines())
        return [row[0] for row in rows if row[-1] == name]

    def nodes_of(self, job_id: str) -> list[str] | None:
        """Return the nodes that a job has now; none once it is over; None if Slurm does not answer."""
        with suppress(ControllerUnreachable):
            output = self._run(
                "squeue", f"--jobs={job_id}", "--states=RUNNING,SUSPENDED", "--noheader", "--format", "%N"
            )
            if output.code:
                return [] if UNKNOWN_JOB in output.err else None
            nodes = output.out.strip()
            return _checked(self._run("scontrol", "show", "hostnames", nodes)).out.split() if nodes else []
        return None

    def cancel_steps(self, job_id: str, name: str) -> dict[str, str]:
        """Cancel the steps of a name inside a job; return scancel's error, or an empty string, for each."""
        return {step: _error_of(self._run("scancel", "--quiet", step)) for step in self.steps(job_id, name)}

    def _rows(self, *options: str) -> list[QueuedJob]:
        return queue_rows(
            _checked(self._run("squeue", "--me", "--states=all", "--noheader", "--format", QUEUE_FORMAT, *options)).out
        )

    def _accounting(self, *options: str) -> list[QueuedJob]:
        if not self._has_accounting:
            return []
        try:
            output = self._run("sacct", "-n", "-P", "-X", "-o", "JobID,JobName,State,NodeList", *options)
        except MissingDependency:
            self._has_accounting = False
            return []
        self._has_accounting = not (output.code and "disabled" in output.err)
        return accounting_rows(output.out) if not output.code else []


def _error_of(output: CommandOutput) -> str:
    """Return the last line of a failed command's output; empty if it succeeded."""
    return (output.err.strip().splitlines() or [f"exit code {output.code}"])[-1] if output.code else ""


def _checked(output: CommandOutput) -> CommandOutput:
    """Return the output of a command; any failure of it counts as no answer."""
    if output.code:
        raise ControllerUnreachable(_error_of(output))
    return output
