"""Parse Slurm's output: rows of jobs, their states, reasons for waiting, refused submissions, nodes, partitions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tuner.core.quantity import whole
from tuner.launch.contract import JobState

SEPARATOR: Final = "\x1f"
"""Separates the fields of a row; no name and no reason contains it."""

QUEUE_FORMAT: Final = SEPARATOR.join(("%i", "%T", "%N", "%r", "%j"))
"""The `--format` of squeue: id, state, nodes, reason, name."""

WAITING_STATES: Final = frozenset(
    ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD", "SUSPENDED")
)
"""Not running now, but perhaps later. A suspended job makes no progress, like one that waits."""

RUNNING_STATES: Final = frozenset(("RUNNING", "COMPLETING", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"))

ENDED_STATES: Final = frozenset(
    ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "REVOKED")
)
"""Final states. PREEMPTED is not among them: Slurm may requeue such a job."""

_NEVER_STARTS: Final = (
    ("PartitionNodeLimit", "its partition has too few nodes", "lower --nodes, or set another partition"),
    ("PartitionTimeLimit", "the partition allows no job of this length", "shorten time"),
    ("PartitionConfig", "the partition cannot run it", "set another partition"),
    ("DependencyNeverSatisfied", "the job that it depends on has failed", "remove the dependency from lines"),
    ("BadConstraints", "no node meets its constraints", "change constraint, nodelist or gres"),
    ("account not known|AccountNotAllowed|InvalidAccount|use this ", "its account has no access", "set account"),
    ("InvalidQOS|QOSNotAllowed|QOS not permitted", "its QOS has no access", "set qos"),
    ("(?:Assoc|QOS)Max(?:Node|Cpu|GRES|Mem|Wall)\\w*PerJob", "it exceeds a job's limits", "lower --nodes"),
    ("ReservationDeleted", "its reservation was deleted", "set another reservation"),
    ("JobHoldMaxRequeue|launch failed requeued held", "Slurm failed to start it repeatedly", "check the nodes"),
)  # fmt: skip
"""Reasons for which a job would wait forever: pattern, meaning, and what to change in the site profile."""

_REFUSED: Final = (
    ("[Ii]nvalid account", "set another account"),
    ("[Ii]nvalid partition|partition name", "set another partition (sinfo -s lists them)"),
    ("[Ii]nvalid qos", "set another qos"),
    ("time limit|--time", "set another time, such as time = 30 or time = \"2:00:00\""),
    ("[Ii]nvalid feature|constraint", "set another constraint (sinfo -o %f lists the features)"),
    ("reservation", "set another reservation (scontrol show reservation lists them)"),
    ("generic resource|gres", "set gres to what the nodes have (sinfo -o %G), or to \"\""),
    ("[Nn]ode count|More processors|node configuration", "request fewer nodes or ranks: --nodes, --gpus-per-node"),
    ("[Ii]nvalid node name", "set another exclude or nodelist"),
    ("policy|MaxSubmit|QOSMax|AssocMax|limit", "lower --jobs, or set another qos: the site's limits are reached"),
    ("denied|not permitted", "ask the site which account and partition may submit"),
    ("[Uu]nrecognized option|[Ii]nvalid option|invalid argument", "remove the option from lines"),
)  # fmt: skip
"""Refusals of sbatch: pattern, and what to change in the site profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """A job in the queue or the accounting."""

    id: str
    state: str
    nodes: str
    """In Slurm's notation: n[1-2]."""
    reason: str
    name: str

    @property
    def job_state(self) -> JobState | None:
        """Return the job's state; None if it may still be requeued (preempted) or Slurm's state is unknown."""
        if self.state in WAITING_STATES:
            return JobState.WAITING
        if self.state in RUNNING_STATES:
            return JobState.RUNNING
        return JobState.ENDED if self.state in ENDED_STATES else None

    @property
    def suspended(self) -> bool:
        """Whether the job is stopped on its nodes."""
        return self.state == "SUSPENDED"


def queue_rows(text: str) -> list[QueuedJob]:
    """Parse the rows that `squeue` printed; other lines are skipped."""
    found = []
    for line in text.splitlines():
        fields = line.split(SEPARATOR)
        if len(fields) == 5 and fields[0]:
            job, state, nodes, reason, name = fields
            found.append(QueuedJob(id=job, state=state, nodes=nodes, reason=reason, name=name))
    return found


def accounting_rows(text: str) -> list[QueuedJob]:
    """Parse the rows that `sacct -n -P -X -o JobID,JobName,State,NodeList` printed."""
    found = []
    for line in text.splitlines():
        if line.count("|") < 3:
            continue
        job, rest = line.split("|", 1)
        name, state, nodes = rest.rsplit("|", 2)
        words = state.split()  # CANCELLED by 1000
        if words:
            nodes = "" if nodes == "None assigned" else nodes
            found.append(QueuedJob(id=job, state=words[0].rstrip("+"), nodes=nodes, reason=state, name=name))
    return found


def why_never_starts(reason: str) -> str | None:
    """Return why a job that waits for this reason can never start; None if it may still start."""
    for pattern, meaning, change in _NEVER_STARTS:
        if re.search(pattern, reason):
            return f"{meaning} (Slurm: {reason}); {change}"
    return None


def waiting_reason(row: QueuedJob) -> str:
    """Return why a job waits, for users."""
    if row.suspended:
        return "suspended"
    if row.reason in ("JobHeldUser", "JobHeldAdmin") or row.state in ("REQUEUE_HOLD", "SPECIAL_EXIT"):
        return f"{row.reason or row.state}: release the job with `scontrol release {row.id}`"
    return row.reason if row.reason not in ("", "None", "(null)") else "queued"


def printed_job_id(stdout: str) -> str | None:
    """Return the job id that `sbatch --parsable` printed on a line of its own; None if there are none or several."""
    found = re.findall(r"^(?:Submitted batch job )?(\d+)(?:;\S+| on cluster \S+)?\s*$", stdout, re.MULTILINE)
    return found[0] if len(set(found)) == 1 else None


def refusal(stderr: str) -> str:
    """Return why `sbatch` refused a job, with a remedy."""
    lines = [re.sub(r"^sbatch: (?:error: )?", "", line).strip() for line in stderr.splitlines() if line.strip()]
    why = next(
        (line for line in lines if "Batch job submission failed" in line), lines[-1] if lines else "no reason given"
    )
    why = why.removeprefix("Batch job submission failed: ").rstrip(".")
    change = next((change for pattern, change in _REFUSED if re.search(pattern, " ".join(lines))), None)
    return f"sbatch: {why}" + (f"; {change} (in the file of --site-profile)" if change else "")


def unreachable(stderr: str) -> bool:
    """Whether a command failed because the controller did not answer."""
    return bool(
        re.search(
            r"[Uu]nable to contact slurm controller|Socket timed out|Connection refused|Connection timed out"
            r"|Zero Bytes were transmitted|Unable to connect|Transport endpoint|not responding|Slurm backup controller",
            stderr,
        )
    )


def failed_nodes(text: str) -> dict[str, str]:
    """Return the nodes that cannot run jobs, and why, from the output of `sinfo -h -N -o '%N|%T|%E'`."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, _, rest = line.partition("|")
        state, _, why = rest.partition("|")
        bad = state.endswith("*") or any(word in state for word in ("down", "fail", "drain", "unk", "no_respond"))
        if bad:
            found[name] = f"{state.rstrip('*')}{', not responding' if state.endswith('*') else ''}: {why}".rstrip(": ")
    return found


def partitions(text: str) -> dict[str, int]:
    """Return the number of nodes of each partition that is up, from the output of `sinfo -h -o '%R|%a|%D'`."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, available, nodes = [*line.split("|"), "", "", ""][:3]
        if available == "up":
            found[name] = found.get(name, 0) + (whole(nodes) or 0)
    return found


def largest_partition(found: dict[str, int], wanted: Iterable[str]) -> int | None:
    """Return the number of nodes of the largest wanted partition, or of any; None if Slurm lists none."""
    named = [found[name] for name in wanted if name in found] if wanted else list(found.values())
    return max(named, default=None)
