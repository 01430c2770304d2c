"""What Slurm says of jobs, read: rows, states, reasons for waiting, and why a submission was refused."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tuner.launch.contract import JobState

MARK: Final = "\x1f"
"""Between the fields of a row: it stands in no name and no sentence."""

FORMAT: Final = MARK.join(("%i", "%T", "%N", "%r", "%j"))
"""`squeue -o`: id, state, nodes, reason, name."""

WAITING: Final = frozenset(
    ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD", "SUSPENDED")
)
"""Not running now, and it may be later; a job that is suspended stands still like one that waits."""

RUNNING: Final = frozenset(("RUNNING", "COMPLETING", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"))

OVER: Final = frozenset(
    ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "REVOKED")
)
"""How a job ends. PREEMPTED is none of these: such a job may be started again."""

_NEVER: Final = (
    ("PartitionNodeLimit", "its partition has not so many nodes", "ask for fewer with --nodes, or set partition"),
    ("PartitionTimeLimit", "the partition allows no job of this length", "set a shorter time"),
    ("PartitionConfig", "the partition cannot run it", "set another partition"),
    ("DependencyNeverSatisfied", "the job that it depends on has failed", "take the dependency out of lines"),
    ("BadConstraints", "no node has what it asks for", "change constraint, nodelist or gres"),
    ("account not known|AccountNotAllowed|InvalidAccount|use this ", "its account may not run here", "set account"),
    ("InvalidQOS|QOSNotAllowed|QOS not permitted", "its QOS may not run here", "set qos"),
    ("(?:Assoc|QOS)Max(?:Node|Cpu|GRES|Mem|Wall)\\w*PerJob", "a job may not be so large", "ask for less"),
    ("ReservationDeleted", "its reservation is gone", "set another reservation"),
    ("JobHoldMaxRequeue|launch failed requeued held", "it could not be started time and again", "look at the nodes"),
)  # fmt: skip
"""Reasons for which a job would wait for ever: what they mean, and what to change in the site's file."""

_REFUSED: Final = (
    ("[Ii]nvalid account", "set another account"),
    ("[Ii]nvalid partition|partition name", "set another partition (sinfo -s lists them)"),
    ("[Ii]nvalid qos", "set another qos"),
    ("time limit|--time", "set another time, such as time = 30 or time = \"2:00:00\""),
    ("[Ii]nvalid feature|constraint", "set another constraint (sinfo -o %f lists the features)"),
    ("reservation", "set another reservation (scontrol show reservation lists them)"),
    ("generic resource|gres", "set gres to what the nodes have (sinfo -o %G), or to \"\""),
    ("[Nn]ode count|More processors|node configuration", "ask for fewer nodes or ranks: --nodes, --gpus-per-node"),
    ("[Ii]nvalid node name", "set another exclude or nodelist"),
    ("policy|MaxSubmit|QOSMax|AssocMax|limit", "the site's limits allow no more: fewer --jobs, or another qos"),
    ("denied|not permitted", "ask the site who may submit: account and partition"),
    ("[Uu]nrecognized option|[Ii]nvalid option|invalid argument", "take the option out of lines"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """A job as the queue has it."""

    id: str
    state: str
    nodes: str
    """As Slurm writes a list of nodes: n[1-2]."""
    reason: str
    name: str

    @property
    def where(self) -> JobState | None:
        """Where the job is; None where that is not known yet: it was preempted, or the state is new to us."""
        if self.state in WAITING:
            return JobState.WAITING
        if self.state in RUNNING:
            return JobState.RUNNING
        return JobState.ENDED if self.state in OVER else None


def rows(text: str) -> list[QueuedJob]:
    """The rows that `squeue` printed; what is none is left out."""
    found = []
    for line in text.splitlines():
        fields = line.split(MARK)
        if len(fields) == 5 and fields[0]:
            job, state, nodes, reason, name = fields
            found.append(QueuedJob(id=job, state=state, nodes=nodes, reason=reason, name=name))
    return found


def accounted(text: str) -> list[QueuedJob]:
    """The rows that `sacct -n -P -X -o JobID,JobName,State,NodeList` printed."""
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


def never(reason: str) -> str | None:
    """Why a job that waits for this reason would wait for ever; None where it may yet begin."""
    for pattern, meaning, change in _NEVER:
        if re.search(pattern, reason):
            return f"{meaning} (Slurm: {reason}); {change}"
    return None


def waiting(row: QueuedJob) -> str:
    """Why a job waits, for people."""
    if row.state == "SUSPENDED":
        return "suspended"
    if row.reason in ("JobHeldUser", "JobHeldAdmin") or row.state in ("REQUEUE_HOLD", "SPECIAL_EXIT"):
        return f"{row.reason or row.state}: it is held; scontrol release {row.id} lets it go"
    return row.reason if row.reason not in ("", "None", "(null)") else "queued"


def refused(said: str) -> str:
    """Why `sbatch` refused a job, and what to change."""
    lines = [re.sub(r"^sbatch: (?:error: )?", "", line).strip() for line in said.splitlines() if line.strip()]
    why = next(
        (line for line in lines if "Batch job submission failed" in line), lines[-1] if lines else "no reason given"
    )
    why = why.removeprefix("Batch job submission failed: ").rstrip(".")
    change = next((change for pattern, change in _REFUSED if re.search(pattern, " ".join(lines))), None)
    return f"sbatch refused it: {why}" + (f"; {change} (--slurm-site)" if change else "")


def unreachable(said: str) -> bool:
    """Whether a command failed because the controller did not answer: nothing is known then."""
    return bool(
        re.search(
            r"[Uu]nable to contact slurm controller|Socket timed out|Connection refused|Connection timed out"
            r"|Zero Bytes were transmitted|Unable to connect|Transport endpoint|not responding|Slurm backup controller",
            said,
        )
    )


def unfit(text: str) -> dict[str, str]:
    """Nodes that cannot run anything, and why, by the rows that `sinfo -h -N -o '%N|%T|%E'` printed."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, _, rest = line.partition("|")
        state, _, why = rest.partition("|")
        bad = state.endswith("*") or any(word in state for word in ("down", "fail", "drain", "unk", "no_respond"))
        if name and bad:
            found[name] = f"{state.rstrip('*')}{', not responding' if state.endswith('*') else ''}: {why}".rstrip(": ")
    return found


def partitions(text: str) -> dict[str, int]:
    """Nodes of each partition that takes jobs, by the rows that `sinfo -h -o '%R|%a|%D'` printed."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, available, nodes = [*line.split("|"), "", "", ""][:3]
        if available == "up" and nodes.isdigit():
            found[name] = found.get(name, 0) + int(nodes)
    return found


def fitting(found: dict[str, int], wanted: Iterable[str]) -> int | None:
    """Nodes of the largest of these partitions; None where nothing is known of them."""
    named = [found[name] for name in wanted if name in found] if wanted else list(found.values())
    return max(named, default=None)
