"""A trial as the product knows it: what was proposed and why, and what came of it. Storage keeps it as attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, Literal

from tuner.core.outcomes import Outcome

Kind = Literal["search", "reference", "final"]
"""Why a job was proposed: to find a better one, to see whether the cluster has changed, to tell the best few apart."""

_EARLIER_NAMES: Final = {"held": "elapsed", "again": "retried"}
"""Fields of an ending under the names that studies of earlier versions store."""

NOT_RUN: Final = frozenset({Outcome.REJECTED})
"""Outcomes of trials that were never launched and count in no budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What is to be launched, and why."""

    key: str
    params: Mapping[str, Any]
    """The value on each axis."""
    topology: Mapping[str, Any]
    candidate: int = -1
    """Its place in the pool."""
    nodes: int = 0
    kind: Kind = "search"
    repeat: int = 0
    """How many times the same topology was proposed before."""
    setting: int = 0
    """The part of the pool that the candidate is of."""
    why: str = ""
    estimate_sec: float | None = None
    estimate_low: float | None = None
    estimate_high: float | None = None
    """Between them 80% of measurements are expected."""
    estimate_gib: float | None = None
    out_of_memory: float | None = None
    """Probability."""
    tag: str = ""
    """The job's, by which it is found again."""
    worker: Mapping[str, Any] = field(default_factory=dict)
    """The process that watches it: host, pid and when that began."""

    @property
    def claim(self) -> tuple[str, int, int]:
        """What no two trials may share."""
        return self.key, self.setting, self.repeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What came of a trial."""

    outcome: Outcome
    objective: float | None = None
    """Days until the training is finished, at equal compute."""
    seconds: float | None = None
    tflops: float | None = None
    peak_memory: float | None = None
    """Bytes on the fullest GPU."""
    fullest: bool = True
    """Whether they are that, and not a published figure of some GPU."""
    iterations: tuple[int, ...] = ()
    reason: str = ""
    evidence: str = ""
    forecast: float | None = None
    """Seconds of one iteration that a pruned job was heading for."""
    elapsed: float = 0.0
    """Seconds for which its nodes were held."""
    node_hours: float = 0.0
    retried: str = ""
    """Why its job was begun anew, and which nodes failed under it; empty where it was not."""
    clock: float = 0.0
    """When it ended, by the launcher's clock."""
    simulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One trial of a study."""

    number: int
    proposal: Proposal
    ending: Ending | None = None
    """None: it is running, or whoever watched it is gone."""
    handle: str | None = None
    """The launcher's word for its job, once it has one."""

    @property
    def launched(self) -> bool:
        """Whether it counts in a budget."""
        return self.ending is None or self.ending.outcome not in NOT_RUN

    @property
    def measured(self) -> bool:
        """Whether it has a time."""
        return self.ending is not None and self.ending.outcome is Outcome.MEASURED

    @property
    def seconds(self) -> float:
        """Of one iteration; only of a measured trial."""
        if self.ending is None or self.ending.seconds is None:
            raise ValueError(f"trial {self.number} has no time")
        return self.ending.seconds


def ending_document(ending: Ending) -> dict[str, Any]:
    """An ending as JSON; `held` and `again` are the names that earlier versions read."""
    document = {**asdict(ending), "outcome": ending.outcome.value, "iterations": list(ending.iterations)}
    return {**document, **{old: document[new] for old, new in _EARLIER_NAMES.items()}}


def ending_of(document: Mapping[str, Any]) -> Ending:
    """The ending of a document; what a later version has added is left out."""
    known = {each.name for each in fields(Ending)}
    current = {**{new: document[old] for old, new in _EARLIER_NAMES.items() if old in document}, **document}
    given = {name: value for name, value in current.items() if name in known}
    given["outcome"] = Outcome(given["outcome"])
    given["iterations"] = tuple(given.get("iterations", ()))
    return Ending(**given)


def proposal_document(proposal: Proposal) -> dict[str, Any]:
    """A proposal as JSON holds it; the axes stand apart."""
    document = asdict(proposal)
    del document["params"]
    return document


def proposal_of(document: Mapping[str, Any], params: Mapping[str, Any]) -> Proposal:
    """The proposal of a document."""
    known = {each.name for each in fields(Proposal)}
    given = {name: value for name, value in document.items() if name in known}
    return Proposal(**{**given, "params": dict(params)})
