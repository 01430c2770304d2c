"""What comes of a topology: a violation, an estimate, a measurement, a failure.

They are different types, so that a prediction can never pass for an observation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A rule that a topology breaks, with the numbers."""

    rule: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TermSum:
    """A predicted quantity by named terms."""

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
    """What a job that ran has shown. Never a prediction."""

    seconds: float
    """Seconds of the measured iteration."""
    iterations: tuple[int, ...] = (2,)
    """Which iterations were measured."""
    tflops: float | None = None
    """Per GPU, as the job itself reported it."""
    peak_memory: float | None = None
    """Bytes on the fullest GPU, all that its process held."""
    fullest: bool = True
    """Whether that is so; a published figure may be of another GPU, or leave out what is not PyTorch's."""
    simulated: bool = False
    """Whether the simulated cluster answered; such a figure is labelled wherever it is printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a job ended without a measurement; the evidence is the line of its log that says so."""

    kind: str
    evidence: str
    meaning: str = ""
    """The kind in plain words, where more is known than that."""


class Outcome(str, Enum):
    """How a trial ended."""

    MEASURED = "MEASURED"
    OOM = "OOM"
    HUNG = "HUNG"
    CRASHED = "CRASHED"
    TIMED_OUT = "TIMED_OUT"
    PREEMPTED = "PREEMPTED"
    PRUNED = "PRUNED"
    """Stopped while running, because it could no longer win."""
    REJECTED = "REJECTED"
    """Never launched: it breaks a rule."""
    CANCELLED = "CANCELLED"
