"""The leaderboard of a study: each topology once, the measured ones first, the best on top."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tuner.core.domain import PARTITION_WORDS, Cluster, Topology, Workload
from tuner.core.offload import offload_words
from tuner.core.outcomes import Outcome
from tuner.costmodel.flops import hardware_flops, per_gpu
from tuner.launch.contract import JobResult
from tuner.study.ranking import RankedTrial
from tuner.study.result import StudyResult
from tuner.study.store.trial import Trial

EXTRAPOLATED = "EXTRAPOLATED"
"""The outcome shown for a topology that was measured at a reduced size only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderboardRow:
    """One topology of a study, and its outcome."""

    key: str
    topology: Topology
    workload: Workload
    """The workload with the topology's own heads, shape and batch."""
    cluster: Cluster
    outcome: str
    ranked: RankedTrial | None
    """Its rank; None if it was not measured."""
    extrapolated: RankedTrial | None
    """What its trials at a reduced size predict; None if it was measured at full size, or at none."""
    memory: float | None
    """Bytes on the fullest GPU, of jobs at full size: a reduced one shards its states less."""
    flops: float | None
    """FLOP/s of each GPU in use, recompute included."""
    era: str
    """The speed periods in which it ran."""
    trials: tuple[int, ...]
    why: str
    """Why it was proposed."""
    ended: str
    """Why it was not measured: the log line, or the search's reason."""

    @property
    def notes(self) -> str:
        """Settings for which the columns of the BLOOM report have no room."""
        topology, own = self.topology, self.workload.model
        parts = [f"ZeRO {topology.zero}"]
        parts += [f"vpp {topology.vpp}"] * (topology.vpp > 1)
        parts += [f"cp {topology.cp}"] * (topology.cp > 1)
        parts += ["sequence parallel"] * topology.sequence_parallel
        parts += [f"{'no' if topology.recompute == 'none' else topology.recompute} recompute"]
        parts += [PARTITION_WORDS[topology.partition]] * (topology.partition != "layers")
        parts += [offload_words(topology.offload)] * (topology.offload != "none")
        parts += [f"{topology.hsdp} replica groups"] * (topology.hsdp > 1)
        exchange = f"{topology.dispatcher}{', overlapped' * topology.moe_overlap}"
        parts += [f"expert parallelism {topology.ep} ({exchange})"] * (topology.ep > 1)
        parts += [f"expert tensor parallelism {topology.etp}"] * (topology.etp > 1)
        parts += [f"{own.heads} heads"] * (topology.heads is not None)
        parts += [f"{own.hidden} x {own.layers}"] * (topology.shape is not None)
        return ", ".join(parts)

    @property
    def other_model(self) -> bool:
        """Whether it changes the model's heads or shape."""
        return self.topology.heads is not None or self.topology.shape is not None


def rows_of(study: StudyResult) -> list[LeaderboardRow]:
    """Return all topologies whose jobs were launched."""
    tried: dict[int, list[Trial]] = {}
    for trial in study.launched:
        tried.setdefault(trial.proposal.candidate, []).append(trial)
    rates = _rates(study)
    measured = [_row(study, tried[ranked.candidate], ranked, rates[ranked.candidate]) for ranked in study.ranking]
    predicted = {trial.candidate: trial for trial in study.extrapolated}
    rest = tried.keys() - rates.keys() - predicted.keys()
    extrapolated = [_row(study, tried[candidate], None, None, trial) for candidate, trial in predicted.items()]
    others = [_row(study, own, None, None) for candidate, own in tried.items() if candidate in rest]
    return measured + extrapolated + sorted(others, key=lambda row: (_ORDER.get(row.outcome, 99), row.trials))


_ORDER = {outcome.value: index for index, outcome in enumerate(Outcome)}


def _rates(study: StudyResult) -> dict[int, float]:
    """Return FLOP/s per GPU of each measured topology, all computed at once: a study may hold thousands."""
    seconds = np.ones(len(study.pool))
    for ranked in study.ranking:
        seconds[ranked.candidate] = ranked.seconds
    parts = zip(study.pool.parts, np.split(seconds, study.pool.starts[1:-1]), strict=True)
    rates = np.concatenate([per_gpu(hardware_flops(columns), own, columns) for columns, own in parts])
    return {ranked.candidate: float(rates[ranked.candidate]) for ranked in study.ranking}


def _row(
    study: StudyResult,
    own: list[Trial],
    ranked: RankedTrial | None,
    rate: float | None,
    extrapolated: RankedTrial | None = None,
) -> LeaderboardRow:
    (workload, cluster), topology = study.setting(own[0]), study.topology(own[0])
    results = [trial.result for trial in own if trial.result]
    last = results[-1] if results else None
    whole = [trial.result for trial in own if trial.result and not trial.reduced]
    memory = max((result.peak_memory for result in whole if result.peak_memory), default=None)
    return LeaderboardRow(
        key=own[0].proposal.key,
        topology=topology,
        workload=workload.as_in(topology),
        cluster=cluster,
        outcome=_outcome(ranked, last),
        ranked=ranked,
        extrapolated=ranked if ranked is not None and ranked.extrapolated else extrapolated,
        memory=memory,
        flops=rate,
        era=_words(study.period_labels[trial.number] for trial in own),
        trials=tuple(trial.number for trial in own),
        why=own[0].proposal.why,
        ended="" if ranked or last is None else last.evidence or last.reason,
    )


def _outcome(ranked: RankedTrial | None, last: JobResult | None) -> str:
    """Return how a topology's trials ended; one that was only extrapolated counts as no measurement."""
    if ranked is not None:
        return EXTRAPOLATED if ranked.extrapolated else Outcome.MEASURED.value
    if last is None:
        return "RUNNING"
    return EXTRAPOLATED if last.outcome is Outcome.MEASURED else last.outcome.value


def _words(labels: Iterable[str]) -> str:
    """Return the names of speed periods, in order; the first has no label."""
    return ", ".join(dict.fromkeys(label or "era 1" for label in labels))
