"""One trial of a study: the proposal and the result of its job, and their JSON in the storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal

from tuner.core.atomic_write import read_object, write_object
from tuner.core.errors import StudyError
from tuner.core.fidelity import Fidelity
from tuner.core.outcomes import Failure, Measurement, Outcome
from tuner.launch.contract import Job, JobResult
from tuner.launch.outcome import seconds_of

ProposalKind = Literal["search", "reference", "final"]
"""Why a job is proposed: to find a better topology, to detect drift, or to separate the leader from its rivals."""

_EARLIER_NAMES: Final = {"held": "elapsed", "again": "retried"}
"""Fields of a result under the names that studies of earlier versions store."""

_STORED_AS_IS: Final = ("objective", "forecast", "least", "elapsed", "node_hours", "retried", "clock", "simulated")
"""Fields of a result that a study stores without conversion, besides those of its measurement and failure."""

_RETRY: Final = "-sync"
"""What the folder of a retry has after the name of the first job's."""

NOT_RUN: Final = frozenset({Outcome.REJECTED})
"""Outcomes of trials that were never launched and do not count against the budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A topology to launch, and why."""

    key: str
    params: Mapping[str, Any]
    """The value on each axis."""
    topology: Mapping[str, Any]
    candidate: int = -1
    """Index in the candidate pool."""
    nodes: int = 0
    kind: ProposalKind = "search"
    repeat: int = 0
    """How many times the same topology was launched before."""
    setting: int = 0
    """Index of the part of the pool that holds the candidate."""
    why: str = ""
    estimate_sec: float | None = None
    estimate_low: float | None = None
    estimate_high: float | None = None
    """80% of measurements are expected between the two."""
    out_of_memory: float | None = None
    """Probability of running out of memory."""
    chance: float | None = None
    """Probability that it finishes sooner than the best one known then; None if nothing estimated it."""
    tag: str = ""
    """Unique name of the job, by which another process finds it."""
    worker: Mapping[str, Any] = field(default_factory=dict)
    """The process that owns the job: host, pid and start time."""
    fidelity: Fidelity | None = None
    """The reduced size at which the job runs; None: the full size, as in studies begun before there was another. The
    estimates are of that size."""

    @property
    def claim(self) -> tuple[str, int, int]:
        """The identity that no two trials may share."""
        return self.key, self.setting, self.repeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One trial of a study."""

    number: int
    proposal: Proposal
    result: JobResult | None = None
    """None while the job runs, or where the process that owned it is gone."""
    handle: str | None = None
    """The launcher's handle of the job, once there is one."""
    hung: JobResult | None = None
    """The first attempt's result, where it hung and the job was retried."""

    def job_folder(self, study: Path) -> Path:
        """Return the folder of its job, or of the retry of one that hung, in that of the study."""
        folder = study / "jobs" / f"{self.number:04d}-{self.proposal.key}"
        return retry if _has_job(retry := retry_folder(folder)) else folder

    def was_submitted(self, folder: Path) -> bool:
        """Whether the trial's job was submitted, although its handle may not have been stored."""
        return self.handle is not None or any((folder / name).exists() for name in ("start.json", "slurm.json"))

    @property
    def launched(self) -> bool:
        """Whether the trial counts against the budget."""
        return self.result is None or self.result.outcome not in NOT_RUN

    @property
    def reduced(self) -> bool:
        """Whether the job runs at a reduced size."""
        return self.proposal.fidelity is not None

    @property
    def measured(self) -> bool:
        """Whether the trial has a measured time of the full size."""
        return not self.reduced and self._has_measurement

    @property
    def measured_reduced(self) -> bool:
        """Whether the trial has a measured time of a reduced size."""
        return self.reduced and self._has_measurement

    @property
    def _has_measurement(self) -> bool:
        return self.result is not None and self.result.outcome is Outcome.MEASURED

    @property
    def seconds(self) -> float:
        """Measured seconds per iteration; raises `ValueError` for a trial without a measurement."""
        if self.result is None or self.result.seconds is None:
            raise ValueError(f"trial {self.number} has no measured time")
        return self.result.seconds


def retry_folder(job: Path) -> Path:
    """Return the folder of the retry of a job that hung, given that of the job."""
    return job.with_name(job.name + _RETRY)


def is_retry(folder: Path) -> bool:
    """Whether a job's folder is that of the retry of one that hung."""
    return folder.name.endswith(_RETRY)


def _has_job(folder: Path) -> bool:
    """Whether a folder has more than the record that is written before its job is submitted."""
    with suppress(OSError):
        return any(path.name != "job.json" and not path.name.startswith(".") for path in folder.iterdir())
    return False


def result_document(result: JobResult) -> dict[str, Any]:
    """Return a job's result as JSON, with the field names of earlier versions in addition to the current ones."""
    measurement = result.measurement
    document: dict[str, Any] = {
        "outcome": result.outcome.value,
        "seconds": result.seconds,
        "tflops": result.tflops,
        "peak_memory": result.peak_memory,
        "memory_kind": measurement.memory_kind if measurement else None,
        "iterations": list(measurement.iterations) if measurement else [],
        "note": result.note,
        **({"batch_seconds": list(measurement.batch_seconds)} if measurement and measurement.batch_seconds else {}),
        "reason": result.reason,
        "evidence": result.evidence,
        **{name: getattr(result, name) for name in _STORED_AS_IS},
    }
    return {**document, **{old: document[new] for old, new in _EARLIER_NAMES.items()}}


def result_of(document: Mapping[str, Any]) -> JobResult:
    """Return the result that a document describes; fields that a later version added are ignored."""
    current = {**{new: document[old] for old, new in _EARLIER_NAMES.items() if old in document}, **document}
    reason, evidence = current.get("reason", ""), current.get("evidence", "")
    measurement = None
    if current.get("seconds") is not None:
        measurement = Measurement(
            seconds=current["seconds"],
            iterations=tuple(current.get("iterations", ())),
            tflops=current.get("tflops"),
            peak_memory=current.get("peak_memory"),
            memory_kind=current.get("memory_kind", None if current.get("fullest", True) else "reserved"),
            note=current.get("note", ""),
            batch_seconds=tuple(current.get("batch_seconds", ())),
            simulated=current.get("simulated", False),
        )
    return JobResult(
        outcome=Outcome(current["outcome"]),
        measurement=measurement,
        failure=Failure(kind="", evidence=evidence, meaning=reason) if reason or evidence else None,
        **{name: current[name] for name in _STORED_AS_IS if name in current},
    )


def proposal_document(proposal: Proposal) -> dict[str, Any]:
    """Return a proposal as JSON; its `params` are stored as the trial's parameters."""
    document = asdict(proposal)
    del document["params"]
    del document["fidelity"]
    if proposal.fidelity is not None:
        document["fidelity"] = proposal.fidelity.document()
    return document


def proposal_of(document: Mapping[str, Any], params: Mapping[str, Any]) -> Proposal:
    """Return the proposal that a document and a trial's parameters describe."""
    known = {spec.name for spec in fields(Proposal)}
    given = {name: value for name, value in document.items() if name in known}
    if given.get("fidelity") is not None:
        given["fidelity"] = Fidelity.of(given["fidelity"])
    return Proposal(**{**given, "params": dict(params)})


def write_job_file(job: Job, proposal: Proposal, hung: JobResult | None = None) -> None:
    """Write `job.json` into the job's folder, whole or not at all; from it a lost database is rebuilt.

    `hung` is the result of the first attempt, if the job is a retry.
    """
    document = {
        "schema": "tuner/job/1",
        "number": job.number,
        "tag": job.tag,
        "key": proposal.key,
        "topology": dict(proposal.topology),
        "iterations": list(job.iterations),
        "why": proposal.why,
        "estimate_sec": proposal.estimate_sec,
        "proposal": proposal_document(proposal) | {"params": dict(proposal.params)},
        **({} if hung is None else {"hung": result_document(hung)}),
    }
    try:
        job.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_object(job.folder / "job.json", document)
    except OSError as error:
        raise StudyError(f"{job.folder} cannot be written: {error.strerror or error}.") from None


def cancelled(trial: Trial, reason: str, *, elapsed: float, clock: float) -> JobResult:
    """Return the result of a job that was cancelled or is gone, with the node-hours that its attempts used."""
    elapsed += trial.hung.elapsed if trial.hung else 0.0
    return JobResult(
        outcome=Outcome.CANCELLED,
        failure=Failure.because(reason),
        elapsed=elapsed,
        node_hours=elapsed * trial.proposal.nodes / 3600,
        clock=clock,
    )


def lost(trial: Trial, folder: Path, reason: str, *, clock: float) -> JobResult:
    """Return the result of a job that is gone, which ran for as long as the report of its end says."""
    return cancelled(trial, reason, elapsed=seconds_of(read_object(folder / "ended.json")), clock=clock)


def record_ending(folder: Path, result: JobResult) -> None:
    """Add a job's result to its `job.json`. The database has it too, so a failure to write loses nothing yet."""
    path = folder / "job.json"
    document = read_object(path)
    if document:
        with suppress(OSError):
            write_object(path, document | {"ending": result_document(result)})


def record_owner(folder: Path, owner: Mapping[str, Any]) -> None:
    """Note in a job's `job.json` which process owns it since the one that launched it."""
    path = folder / "job.json"
    document = read_object(path)
    if document:
        with suppress(OSError):
            write_object(path, document | {"worker": dict(owner)})


def next_repeat(candidate: int, trials: Sequence[Trial]) -> int:
    """Return a repeat number that no launched trial of the candidate has, which keeps its claim free.

    Counting the trials is not enough: one that was withdrawn since leaves a gap, and the count names a taken number.
    """
    taken = (trial.proposal.repeat for trial in trials if trial.launched and trial.proposal.candidate == candidate)
    return max(taken, default=-1) + 1
