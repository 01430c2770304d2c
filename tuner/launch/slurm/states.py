"""The states of a Slurm job, and the observations that change them; `transitions.py` has the rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tuner.launch.slurm.parsing import QueuedJob

MIN_SIGNAL_EXIT_CODE: Final = 128
"""The smallest exit code that represents a signal; a requeued job ends with one."""

ALLOCATION_ENDED: Final = "ALLOCATION_ENDED"
"""The state of a job step whose allocation has ended; Slurm has no such state."""

SCRIPT_KILLED: Final = "KILLED"
"""The state of a job step whose script was killed; Slurm has no such state."""


# -- what the script and the queue report


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRun:
    """One execution of the job's script, from `began.json`."""

    restart: int
    """How often Slurm had restarted the job before."""
    began: float
    nodes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptExit:
    """The exit of the job's script, from `ended.json`."""

    restart: int
    began: float
    ended: float
    code: int | None
    signalled: bool = False
    """Whether the script was asked to stop, as it is before a requeue."""

    @property
    def final(self) -> bool:
        """Whether the script ended by itself, so that Slurm does not requeue the job."""
        return not self.signalled and self.code is not None and self.code < MIN_SIGNAL_EXIT_CODE


@dataclass(frozen=True, slots=True, kw_only=True)
class EndReport:
    """The end of a job as the queue or the launcher reports it, if the script has not reported one."""

    state: str
    """Slurm's state, `ALLOCATION_ENDED` or `SCRIPT_KILLED`."""
    reason: str = ""
    at: float = 0.0
    began: float | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptFiles:
    """The files of the script at one moment, by the launcher's clock."""

    now: float
    run: ScriptRun | None = None
    exit: ScriptExit | None = None


# -- states


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The script has not started: the job is queued, for the first time or again."""

    last_seen: float | None = None
    """When the job was last known to wait; None if this process has not seen it wait."""
    reason: str = "queued"
    """The reason to print if the queue has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The script has started and has not reported an exit."""

    run: ScriptRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited:
    """The script was ended by a signal: Slurm may requeue the job."""

    run: ScriptRun | None
    exit: ScriptExit


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The job is over."""

    run: ScriptRun | None = None
    exit: ScriptExit | None = None
    report: EndReport | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsettled:
    """A job step has ended, and Slurm has not reported yet whether its nodes failed and it must be rerun."""

    ended: Ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The queue has no such job, and nothing reports how it ended."""

    run: ScriptRun | None = None


Phase = Waiting | Running | Exited | Unsettled | Ended | Lost


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """The job in the queue, as last read."""

    row: QueuedJob | None = None
    absences: int = 0
    """Consecutive readings without the job."""
    reachable: bool = True
    """Whether the controller answered the last query."""
    over_since: float | None = None
    """When the queue first reported the job as over or preempted."""
    resumed: float = 0.0
    """When the job last ceased to be suspended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmState:
    """Everything that is known about a submitted job."""

    phase: Phase = field(default_factory=Waiting)
    queue: QueueView = field(default_factory=QueueView)
    requeueable: bool = True
    """Whether Slurm may run the job again; it never reruns a job step."""
    last_requeued: int = -1
    """The last restart that ended with a requeue; files of runs up to this one are stale."""
    earlier_seconds: float = 0.0
    """Seconds for which requeued runs occupied their nodes."""
    failed_nodes: str = ""
    """Nodes whose failure caused the last requeue."""
    nodes: str = ""
    """Nodes of the current run, as Slurm writes a list of nodes."""
    suspect_nodes: str = ""
    """Nodes of which at least one may have failed; not yet checked with Slurm."""
    cancel_reason: str = ""
    """Why the tuner cancels the job; empty if it does not."""

    @property
    def over(self) -> bool:
        """Whether the job is over or lost."""
        return isinstance(self.phase, Ended | Lost)

    @property
    def finished(self) -> bool:
        """Whether the job no longer runs, whether over or unsettled."""
        return isinstance(self.phase, Unsettled | Ended | Lost)

    @property
    def run(self) -> ScriptRun | None:
        """The current run, or the last one."""
        phase = self.phase.ended if isinstance(self.phase, Unsettled) else self.phase
        return None if isinstance(phase, Waiting) else phase.run

    @property
    def exit(self) -> ScriptExit | None:
        """The exit that the script of the current run has reported."""
        phase = self.phase.ended if isinstance(self.phase, Unsettled) else self.phase
        return phase.exit if isinstance(phase, Exited | Ended) else None

    @property
    def report(self) -> EndReport | None:
        """The end as the queue or the launcher reports it."""
        phase = self.phase.ended if isinstance(self.phase, Unsettled) else self.phase
        return phase.report if isinstance(phase, Ended) else None

    @property
    def restart(self) -> int:
        """The restart number of the current run; -1 if none has started."""
        return max((source.restart for source in (self.run, self.exit) if source is not None), default=-1)


# -- observations


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesRead:
    """The script's files were read."""

    files: ScriptFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRead:
    """The queue was read, and the script's files after it."""

    row: QueuedJob | None
    """None if the queue has no such job."""
    files: ScriptFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerQueried:
    """The controller was queried about the job."""

    answered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StillWaiting:
    """The launcher has not started the job yet, or has just done so."""

    reason: str = "queued"
    last_seen: float | None = None
    """When the job was found waiting; None: no news."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """The tuner is about to cancel the job."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelConfirmed:
    """The job is gone after a cancel."""

    row: QueuedJob | None
    files: ScriptFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptGone:
    """The process that runs a step's script is gone, and its exit file is missing."""

    now: float
    confirmed: bool
    """Whether Slurm confirms that the step is gone too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptAlive:
    """The process that runs a step's script exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingFound:
    """Neither a process nor a file of a step was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitCodeRead:
    """Slurm reports the exit code of a script that reported none."""

    code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesExamined:
    """Slurm reports which of the suspect nodes have failed."""

    failed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndChecked:
    """Slurm was queried whether the nodes of an ended step have failed."""

    answered: bool
    final: bool = True
    """Whether the answer will not change: Slurm may notice a failed node late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationEnded:
    """A step has ended because its allocation has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartedElsewhere:
    """The launcher reruns a step on other nodes, because its own have failed."""

    failed_nodes: str
    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteRead:
    """The job's note, in which another process may have recorded a cancel or an end."""

    cancel_reason: str
    report: EndReport | None
    last_requeued: int
    nodes: str
    files: ScriptFiles


Observation = (
    FilesRead
    | QueueRead
    | ControllerQueried
    | StillWaiting
    | CancelRequested
    | CancelConfirmed
    | ScriptGone
    | ScriptAlive
    | NothingFound
    | ExitCodeRead
    | NodesExamined
    | EndChecked
    | AllocationEnded
    | RestartedElsewhere
    | NoteRead
)
