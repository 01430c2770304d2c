"""What the plots show, as numbers: computed here, drawn in `figures`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from tuner.core.columns import Columns
from tuner.core.domain import Shape, Topology
from tuner.costmodel.memory import limit, memory_terms
from tuner.costmodel.stages import Stages
from tuner.report.sentences import account
from tuner.search.candidates import CandidatePool
from tuner.study.leaderboard import GIB, LeaderboardRow
from tuner.study.ranking import DAY
from tuner.study.result import StudyResult

TOP = 5
"""Topologies whose time is taken apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestSoFar:
    """The best so far, job by job."""

    days: Sequence[float | None]
    """Of each job, as its own run has it; None where it was not measured."""
    outcomes: Sequence[str]
    best: Sequence[float | None]
    """The least mean of a topology's runs so far: it rises where a lucky run is not repeated."""
    node_hours: Sequence[float]
    """Spent when it ended."""


def progress(study: StudyResult) -> BestSoFar:
    """In the order in which jobs ended."""
    ended = sorted(
        ((trial.ending, trial) for trial in study.launched if trial.ending),
        key=lambda pair: (pair[0].clock, pair[1].number),
    )
    days = [ending.objective if trial.measured else None for ending, trial in ended]
    runs: dict[int, list[float]] = {}
    best: list[float | None] = []
    for each, (_, trial) in zip(days, ended, strict=True):
        if each is not None:
            runs.setdefault(trial.proposal.candidate, []).append(each)
        best.append(min(map(fmean, runs.values()), default=None))
    return BestSoFar(
        days=days,
        outcomes=[ending.outcome.value for ending, _ in ended],
        best=best,
        node_hours=list(np.cumsum([ending.node_hours for ending, _ in ended])),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """An estimate made before its job ran, and what the job then took; seconds of an iteration."""

    key: str
    estimate: float
    low: float
    high: float
    measured: float
    repeat: bool


def guesses(study: StudyResult) -> list[Prediction]:
    """Of every measured job that was estimated first."""
    found = []
    for trial in study.launched:
        proposal = trial.proposal
        if trial.measured and proposal.estimate_sec and proposal.estimate_low and proposal.estimate_high:
            found.append(
                Prediction(
                    key=proposal.key,
                    estimate=proposal.estimate_sec,
                    low=proposal.estimate_low,
                    high=proposal.estimate_high,
                    measured=trial.seconds,
                    repeat=proposal.repeat > 0,
                )
            )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBreakdown:
    """Where a topology's time goes, by the model, beside what it took."""

    key: str
    terms: Mapping[str, float]
    measured: float


def accounts(study: StudyResult, rows: Sequence[LeaderboardRow]) -> list[TimeBreakdown]:
    """Of the best few."""
    return [
        TimeBreakdown(key=row.key, terms=account(study, row).estimate.time.terms, measured=row.place.seconds)
        for row in rows[:TOP]
        if row.place
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBreakdown:
    """GiB on a GPU of each pipeline stage, by the model; what a process can have of the card; what was measured."""

    key: str
    terms: Mapping[str, Sequence[float]]
    usable: float
    measured: float | None


def memory(study: StudyResult, row: LeaderboardRow) -> MemoryBreakdown:
    """Of one topology, stage by stage."""
    workload, cluster = study.pool.setting(row.place.candidate) if row.place else (row.workload, row.cluster)
    columns = Columns.of([row.topology] * row.topology.pp, workload, cluster)
    terms = memory_terms(Stages(columns, np.arange(row.topology.pp)), study.model.calibration.site)
    return MemoryBreakdown(
        key=row.key,
        terms={name: [float(each) / GIB for each in values] for name, values in terms.items()},
        usable=limit(columns) / GIB,
        measured=row.memory / GIB if row.memory else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchSeries:
    """Topologies that differ in their micro batch alone, and in what follows from it."""

    label: str
    micro_batches: Sequence[int]
    samples: Sequence[float]
    """Sequences a second."""
    memory: Sequence[float | None]
    """GiB, as measured."""


def ladders(rows: Sequence[LeaderboardRow], *, most: int = 5) -> list[MicroBatchSeries]:
    """Those with the most steps, the best first among equals; none where no two topologies differ in that alone."""
    alike: dict[Topology, list[LeaderboardRow]] = {}
    for row in rows:
        if row.place:
            alike.setdefault(replace(row.topology, micro_batch=1), []).append(row)
    steps = [own for own in alike.values() if len(own) > 1]
    longest = sorted(steps, key=len, reverse=True)[:most]  # among equals as they came: the best first
    ladders = []
    for own in longest:
        own = sorted(own, key=lambda row: row.topology.micro_batch)
        one = own[0].topology
        ladders.append(
            MicroBatchSeries(
                label=own[0].key.replace(f"-mbs{one.micro_batch}", ""),
                micro_batches=[row.topology.micro_batch for row in own],
                samples=[row.workload.global_batch / row.place.seconds for row in own if row.place],
                memory=[row.memory / GIB if row.memory else None for row in own],
            )
        )
    return ladders


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The best of all topologies of one tp and pp; days are None where none of them was measured."""

    tp: int
    pp: int
    days: float | None
    tried: int
    outcome: str


def cells(rows: Sequence[LeaderboardRow]) -> list[Cell]:
    """The map of tp and pp."""
    found: dict[tuple[int, int], list[LeaderboardRow]] = {}
    for row in rows:
        found.setdefault((row.topology.tp, row.topology.pp), []).append(row)
    return [
        Cell(
            tp=tp,
            pp=pp,
            days=min((row.place.days for row in own if row.place), default=None),
            tried=len(own),
            outcome=own[0].outcome,
        )
        for (tp, pp), own in sorted(found.items())
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cliff:
    """Heads or hidden size against time at equal compute: what was measured, and the model for the winner's layout."""

    axis: str
    measured: Sequence[tuple[int, float]]
    """The value, and the days of a topology that has it."""
    modelled: Sequence[tuple[int, float]]


def cliffs(study: StudyResult, rows: Sequence[LeaderboardRow]) -> list[Cliff]:
    """One for each axis of the model that was searched."""
    if not rows or rows[0].place is None:
        return []
    found = []
    searched = study.searched
    if len(searched.get("heads", ())) > 1:
        found.append(
            _cliff(study, rows, "heads", [replace(rows[0].topology, heads=int(each)) for each in searched["heads"]])
        )
    if len(searched.get("shape", ())) > 1:
        shapes = [[int(part) for part in str(each).split("x")] for each in searched["shape"]]
        wanted = [replace(rows[0].topology, shape=Shape(hidden=hidden, layers=layers)) for hidden, layers in shapes]
        found.append(_cliff(study, rows, "hidden", wanted))
    return found


def _cliff(study: StudyResult, rows: Sequence[LeaderboardRow], axis: str, wanted: Sequence[Topology]) -> Cliff:
    def value(model: object) -> int:
        return int(getattr(model, axis))

    place = rows[0].place
    workload, cluster = study.pool.setting(place.candidate) if place else (study.workload, rows[0].cluster)
    columns = Columns.of(wanted, workload, cluster)
    works = [workload.as_in(topology).model for topology in wanted]
    # the pool's own measure of equal compute, over topologies that nobody tried
    work = CandidatePool(workload=study.workload, parts=(columns,)).work
    finish = study.model.score(columns).seconds * np.exp(work) / DAY
    legal = [
        topology.tp <= model.heads and model.heads % topology.tp == 0
        for topology, model in zip(wanted, works, strict=True)
    ]
    even = [model.hidden % model.heads == 0 for model in works]
    modelled = [
        (value(model), float(days))
        for model, days, fits, divides in zip(works, finish, legal, even, strict=True)
        if fits and divides
    ]
    measured = [(value(row.workload.model), row.place.days) for row in rows if row.place]
    return Cliff(axis=axis, measured=measured, modelled=sorted(modelled))


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedSeries:
    """Measured over expected seconds, job by job, and where eras begin."""

    numbers: Sequence[int]
    ratios: Sequence[float]
    """Of a repeat: to the first run of its topology. Of any other: to what was expected of it."""
    repeats: Sequence[bool]
    begins: Sequence[tuple[int, float]]
    """The first trial of an era, and its factor on the era before."""


def drift(study: StudyResult) -> SpeedSeries | None:
    """Nothing where the cluster was as fast from the first job to the last."""
    if not study.eras:
        return None
    first: dict[int, float] = {}
    numbers, ratios, repeats = [], [], []
    for trial in study.launched:
        if trial.measured and (expected := first.get(trial.proposal.candidate) or trial.proposal.estimate_sec):
            repeats.append(trial.proposal.candidate in first)
            first.setdefault(trial.proposal.candidate, trial.seconds)
            numbers.append(trial.number)
            ratios.append(trial.seconds / expected)
    return SpeedSeries(
        numbers=numbers,
        ratios=ratios,
        repeats=repeats,
        begins=[(era.first, era.factor) for era in study.eras],
    )
