"""The course of a virtual job, decided at its submission, and the file that records it.

Nothing runs: the status at any time follows from the start. The course as text is the job's handle, from which another
process derives the same results.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any, Final

from tuner.core.atomic_write import read_object, write_object
from tuner.core.domain import MemoryKind
from tuner.core.outcomes import Failure, Measurement, Outcome
from tuner.launch.contract import JobResult, JobState, JobStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualJob:
    """The course of a virtual job; times are seconds since its start."""

    cluster: str
    """Name of its cluster."""
    tag: str
    folder: str
    run: str
    """Key that all runs of one topology share."""
    nodes: int
    submitted: float
    """By the cluster's clock."""
    order: int
    """Number of jobs submitted before, which orders jobs submitted at the same time."""
    start_up: float
    """When the first iteration starts."""
    steps: tuple[float, ...]
    """Seconds of each iteration, including those that the job does not reach."""
    measured: tuple[int, ...]
    outcome: Outcome
    stops: float
    """When progress stops; a job that hangs does not end then."""
    simulated: bool
    memory: float | None = None
    memory_kind: MemoryKind = "smi"
    """What a table's figure counts; the simulated cluster's is complete."""
    tflops: float | None = None
    evidence: str = ""
    batches: int = 1
    """Global batches that the job measures one after the other, each with as many of the steps."""

    @property
    def ends(self) -> float:
        """Return when the job ends by itself."""
        return math.inf if self.outcome is Outcome.HUNG else self.stops

    @property
    def moments(self) -> tuple[float, ...]:
        """Return the times of its events: each start and end of an iteration, and the end of the job."""
        seen = [moment for moment in marks(self.start_up, self.steps) if moment < self.stops]
        return (*seen, self.stops)

    def status(self, began: float, now: float) -> JobStatus:
        """Return the status at `now`, if the job started at `began` and was not cancelled."""
        if now >= began + self.ends:
            return self._at(JobState.ENDED, began, began + self.stops)
        return self._at(JobState.RUNNING, began, now)

    def _at(self, state: JobState, began: float, now: float) -> JobStatus:
        seen = marks(self.start_up, self.steps)
        moved = min(now, began + self.stops)
        # An iteration that ends exactly at the stop counts for a measured job only.
        whole = self.outcome is Outcome.MEASURED
        passed = sum(began + mark <= moved and (whole or mark < self.stops) for mark in seen)
        done = max(0, passed - 1)
        since = began + seen[done] if done else began
        share = None
        if passed and state is JobState.RUNNING:
            share = min(1.0, max(0.0, (moved - began - seen[done]) / self.steps[done]))
        return JobStatus(
            state=state,
            began=began,
            iterations=done,
            seconds_in=max(0.0, now - since),
            share=share,
            moved=moved if passed else began,
        )

    def result(self) -> JobResult:
        """Return its result; a measurement is the median of the measured iterations."""
        if self.outcome is not Outcome.MEASURED:
            failure = Failure(kind=self.outcome.value, evidence=self.evidence)
            return JobResult(outcome=self.outcome, failure=failure, elapsed=self.stops)
        steps = len(self.steps) // self.batches
        seconds = tuple(
            median(self.steps[batch * steps + number - 1] for number in self.measured) for batch in range(self.batches)
        )
        measurement = Measurement(
            seconds=seconds[-1],
            batch_seconds=seconds if self.batches > 1 else (),
            iterations=self.measured,
            tflops=self.tflops,
            peak_memory=self.memory,
            memory_kind=None if self.simulated else self.memory_kind,
            simulated=self.simulated,
        )
        return JobResult(outcome=self.outcome, measurement=measurement, elapsed=self.stops)

    def text(self) -> str:
        """Return the course as one line of ASCII."""
        return json.dumps(self.document(), separators=(",", ":"), sort_keys=True)

    def document(self) -> dict[str, Any]:
        """Return the course as JSON, without the usual values of fields that earlier versions lack."""
        return {name: value for name, value in asdict(self).items() if name not in _USUAL or _USUAL[name] != value}

    @classmethod
    def of_text(cls, text: str) -> VirtualJob | None:
        """Parse the output of `text`; None for anything else."""
        try:
            return cls.of(json.loads(text))
        except (ValueError, RecursionError):
            return None

    @classmethod
    def of(cls, document: object) -> VirtualJob | None:
        """Parse a JSON document; None if it is another kind of document."""
        if not isinstance(document, Mapping) or set(document) | set(_USUAL) != set(_READERS):
            return None
        document = {**_USUAL, **document}
        try:
            life = cls(**{name: read(document[name]) for name, read in _READERS.items()})
        except (TypeError, ValueError, OverflowError):
            return None
        steps = len(life.steps) // life.batches if life.batches > 0 else 0
        return life if life.measured and 1 <= min(life.measured) <= max(life.measured) <= steps else None


_USUAL: Final[Mapping[str, Any]] = {"batches": 1, "memory_kind": "smi"}
"""The usual values of fields that earlier versions do not store."""


def marks(start_up: float, steps: tuple[float, ...]) -> tuple[float, ...]:
    """The moments at which the first iteration starts and each one ends; the last is where a measured job stops."""
    return tuple(accumulate(steps, initial=start_up))


def _maybe(value: Any) -> float | None:
    return None if value is None else float(value)


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    **{field.name: str for field in fields(VirtualJob)},
    **dict.fromkeys(("nodes", "order", "batches"), int),
    **dict.fromkeys(("submitted", "start_up", "stops"), float),
    "steps": lambda values: tuple(float(value) for value in values),
    "measured": lambda values: tuple(int(value) for value in values),
    "outcome": Outcome,
    "simulated": bool,
    **dict.fromkeys(("memory", "tflops"), _maybe),
}


SCHEMA: Final = "tuner/virtual-job/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualJobRecord:
    """The content of the file; times are by the cluster's clock."""

    life: VirtualJob
    began: float | None = None
    cancelled: float | None = None


def read(path: Path) -> VirtualJobRecord | None:
    """Read the record; None if there is none, or something else."""
    document = read_object(path)
    if document.get("schema") != SCHEMA:
        return None
    life, moments = VirtualJob.of(document.get("life")), (document.get("began"), document.get("cancelled"))
    if life is None or not all(moment is None or isinstance(moment, int | float) for moment in moments):
        return None
    return VirtualJobRecord(life=life, began=moments[0], cancelled=moments[1])


def written(path: Path, record: VirtualJobRecord) -> None:
    """Write the record atomically; `OSError` leaves nothing behind."""
    document = {
        "schema": SCHEMA,
        "simulated": record.life.simulated,
        "life": record.life.document(),
        "began": record.began,
        "cancelled": record.cancelled,
    }
    creates_folder = not path.parent.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        write_object(path, document)
    except OSError:
        if creates_folder:
            with contextlib.suppress(OSError):
                path.parent.rmdir()
        raise
