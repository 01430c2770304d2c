"""Possible results for a topology: a violation, an estimate, a measurement or a failure.

They are separate types, so that a prediction cannot be mistaken for an observation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from tuner.core.domain import MemoryKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A rule that a topology breaks, and a message with the numbers."""

    rule: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TermSum:
    """A predicted quantity as a sum of named terms."""

    terms: Mapping[str, float]

    @property
    def total(self) -> float:
        """The sum of the terms."""
        return sum(self.terms.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Predicted time and memory of a topology. Never an observation."""

    memory: TermSum
    """Bytes on the fullest GPU."""
    time: TermSum
    """Seconds per iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Time and memory measured in a job. Never a prediction."""

    seconds: float
    """Seconds of the measured iteration."""
    iterations: tuple[int, ...] = (2,)
    """Numbers of the measured iterations, as the job numbers them."""
    tflops: float | None = None
    """TFLOP/s per GPU, as reported by the job."""
    peak_memory: float | None = None
    """Peak bytes of the process on the fullest GPU."""
    memory_kind: MemoryKind | None = None
    """What `peak_memory` counts, where it may be of another GPU than the fullest; None: all of the fullest GPU."""
    note: str = ""
    """Notes on the figures: iterations averaged in one line, iterations left out."""
    simulated: bool = False
    """Whether the simulated cluster produced the measurement; output labels such figures."""
    batch_seconds: tuple[float, ...] = ()
    """Seconds of an iteration at each global batch of a job that measured several; `seconds` is the last of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a job ended without a measurement; the evidence is the log line that shows it."""

    kind: str
    evidence: str
    meaning: str = ""
    """A plain-language explanation, if more than the kind is known."""

    @classmethod
    def because(cls, reason: str) -> Failure:
        """Return a failure with a reason only, such as that of a job ended by tuner."""
        return cls(kind="", evidence="", meaning=reason)


class Outcome(str, Enum):
    """How a trial ended."""

    MEASURED = "MEASURED"
    OOM = "OOM"
    HUNG = "HUNG"
    CRASHED = "CRASHED"
    TIMED_OUT = "TIMED_OUT"
    PREEMPTED = "PREEMPTED"
    PRUNED = "PRUNED"
    """Stopped while running, because it could no longer become the fastest."""
    REJECTED = "REJECTED"
    """Never launched, because it breaks a rule."""
    CANCELLED = "CANCELLED"
    UNREADABLE = "UNREADABLE"
    """Ended well, but its log has no iteration that can be measured."""


def outcome_word(outcome: str) -> str:
    """Return an outcome as it is written in a sentence: `timed out`, `OOM`."""
    return outcome if outcome == Outcome.OOM.value else outcome.lower().replace("_", " ")
