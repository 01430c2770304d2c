"""The rows of a report: each topology once, the measured ones first, the best of them on top."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.outcomes import Outcome
from tuner.costmodel.flops import hardware_flops, per_gpu
from tuner.study.ranking import RankedTrial
from tuner.study.result import StudyResult
from tuner.study.store.trial import Trial

GIB = 2.0**30


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderboardRow:
    """One topology of a study, and what came of it."""

    key: str
    topology: Topology
    workload: Workload
    """As the topology has it: its own heads, shape and batch."""
    cluster: Cluster
    outcome: str
    place: RankedTrial | None
    """Where it stands; None where it was not measured."""
    memory: float | None
    """Bytes on the fullest GPU."""
    flops: float | None
    """FLOP/s of each GPU in use, recompute included."""
    era: str
    trials: tuple[int, ...]
    why: str
    """Why it was proposed."""
    ended: str
    """Why it ended otherwise than measured, in the words of the search or of the job's log."""

    @property
    def notes(self) -> str:
        """What the columns of the BLOOM report have no place for."""
        topology, own = self.topology, self.workload.model
        parts = [f"ZeRO {topology.zero}"]
        parts += [f"vpp {topology.vpp}"] * (topology.vpp > 1)
        parts += [f"cp {topology.cp}"] * (topology.cp > 1)
        parts += ["sequence parallel"] * topology.sequence_parallel
        parts += [f"{'no' if topology.recompute == 'none' else topology.recompute} recompute"]
        parts += ["embedding and head count as layers"] * (topology.partition == "embedding")
        parts += [f"{own.heads} heads"] * (topology.heads is not None)
        parts += [f"{own.hidden} x {own.layers}"] * (topology.shape is not None)
        return ", ".join(parts)

    @property
    def other_model(self) -> bool:
        """Whether it trains another model than the study's own."""
        return self.topology.heads is not None or self.topology.shape is not None


def rows_of(study: StudyResult) -> list[LeaderboardRow]:
    """All topologies whose jobs were launched."""
    tried: dict[int, list[Trial]] = {}
    for trial in study.launched:
        tried.setdefault(trial.proposal.candidate, []).append(trial)
    places = {place.candidate: place for place in study.places}
    rates = _rates(study)
    measured = [_row(study, tried[place.candidate], place, rates[place.candidate]) for place in study.places]
    others = [_row(study, own, None, None) for candidate, own in tried.items() if candidate not in places]
    return measured + sorted(others, key=lambda row: (_ORDER.get(row.outcome, 99), row.trials))


_ORDER = {outcome.value: place for place, outcome in enumerate(Outcome)}


def _rates(study: StudyResult) -> dict[int, float]:
    """FLOP/s of a GPU for each measured topology: of all in one go, for a study may hold thousands."""
    seconds = np.ones(len(study.pool))
    for place in study.places:
        seconds[place.candidate] = place.seconds
    parts = zip(study.pool.parts, np.split(seconds, study.pool.starts[1:-1]), strict=True)
    rates = np.concatenate([per_gpu(hardware_flops(columns), own, columns) for columns, own in parts])
    return {place.candidate: float(rates[place.candidate]) for place in study.places}


def _row(study: StudyResult, own: list[Trial], place: RankedTrial | None, rate: float | None) -> LeaderboardRow:
    (workload, cluster), topology = study.setting(own[0]), study.topology(own[0])
    endings = [trial.ending for trial in own if trial.ending]
    last = endings[-1] if endings else None
    memory = max((ending.peak_memory for ending in endings if ending.peak_memory), default=None)
    return LeaderboardRow(
        key=own[0].proposal.key,
        topology=topology,
        workload=workload.as_in(topology),
        cluster=cluster,
        outcome=Outcome.MEASURED.value if place else last.outcome.value if last else "RUNNING",
        place=place,
        memory=memory,
        flops=rate,
        era=_words(study.labels[trial.number] for trial in own),
        trials=tuple(trial.number for trial in own),
        why=own[0].proposal.why,
        ended="" if place or last is None else last.evidence or last.reason,
    )


def _words(labels: Iterable[str]) -> str:
    """The eras of some trials; the first one has no name."""
    return ", ".join(dict.fromkeys(label or "era 1" for label in labels))


def size(parameters: int) -> str:
    """`181B`, as reports name models."""
    for unit, scale in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if parameters >= scale:
            return f"{parameters / scale:.3g}{unit}"
    return f"{parameters / 1e3:.3g}K"
