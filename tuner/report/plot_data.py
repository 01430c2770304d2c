"""The numbers behind the plots; `figures`, `maps` and `dashboard` draw them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final, Literal

import numpy as np

from tuner.core.columns import Columns
from tuner.core.domain import Topology
from tuner.core.quantity import GIB
from tuner.core.shape import Shape
from tuner.core.text import DAY
from tuner.costmodel.memory import limit, memory_terms
from tuner.costmodel.stages import Stages
from tuner.report.summary import cost_breakdown
from tuner.search.candidates import CandidatePool
from tuner.study.leaderboard import LeaderboardRow
from tuner.study.result import StudyResult

MAX_SHOWN: Final = 1.5
"""Multiple of the fastest training above which a job is off the scale of the plot of progress."""

MAX_BREAKDOWNS: Final = 5
"""Topologies whose time is broken down by term."""

MAX_MICRO_BATCH_LINES: Final = 5
"""Groups of topologies that the micro-batch plot joins by lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestSoFar:
    """The training time of each job and the best so far, in the order in which jobs ended."""

    days: Sequence[float | None]
    """Days to train at the speed of each job; None for jobs without a measurement at full size."""
    extrapolated: Sequence[float | None]
    """Days to train as predicted by each job at a reduced size; None for other jobs."""
    outcomes: Sequence[str]
    best: Sequence[float | None]
    """Least mean over the runs of one topology so far; it rises when a repeat does not confirm a lucky run."""
    node_hours: Sequence[float]
    """Used by all jobs that have ended so far."""
    keys: Sequence[str]
    leader: Sequence[bool]
    """Whether the job ran the topology that leads the study now."""


def progress(study: StudyResult) -> BestSoFar:
    """Return the training time of each job and the best so far."""
    ended = sorted(
        ((trial.result, trial) for trial in study.launched if trial.result),
        key=lambda pair: (pair[0].clock, pair[1].number),
    )
    days = [ending.objective if trial.measured else None for ending, trial in ended]
    work = study.pool.work
    extrapolated = [
        ending.forecast * math.exp(work[trial.proposal.candidate]) / DAY
        if trial.measured_reduced and ending.forecast
        else None
        for ending, trial in ended
    ]
    runs: dict[int, list[float]] = {}
    best: list[float | None] = []
    for value, (_, trial) in zip(days, ended, strict=True):
        if value is not None:
            runs.setdefault(trial.proposal.candidate, []).append(value)
        best.append(min(map(fmean, runs.values()), default=None))
    return BestSoFar(
        days=days,
        extrapolated=extrapolated,
        outcomes=[ending.outcome.value for ending, _ in ended],
        best=best,
        node_hours=list(np.cumsum([ending.node_hours for ending, _ in ended])),
        keys=[trial.proposal.key for _, trial in ended],
        leader=[study.best is not None and trial.proposal.candidate == study.best.candidate for _, trial in ended],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The estimate made before a job ran and the time it then took, in seconds per iteration."""

    key: str
    estimate: float
    low: float
    high: float
    measured: float
    repeat: bool
    leader: bool


def predictions(study: StudyResult) -> list[Prediction]:
    """Return the prediction for every measured job that has one."""
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
                    leader=study.best is not None and proposal.candidate == study.best.candidate,
                )
            )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBreakdown:
    """The time terms of a topology by the cost model, with its time."""

    key: str
    terms: Mapping[str, float]
    seconds: float
    """Measured, or extrapolated from trials at a reduced size."""
    extrapolated: bool


def time_breakdowns(study: StudyResult, rows: Sequence[LeaderboardRow]) -> list[TimeBreakdown]:
    """Return the time terms of the fastest topologies."""
    return [
        TimeBreakdown(
            key=row.key,
            terms=cost_breakdown(study, row).estimate.time.terms,
            seconds=row.ranked.seconds,
            extrapolated=row.ranked.extrapolated,
        )
        for row in rows[:MAX_BREAKDOWNS]
        if row.ranked
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBreakdown:
    """Memory per GPU by term and pipeline stage (cost model), the usable memory and the measured peak, in GiB."""

    key: str
    terms: Mapping[str, Sequence[float]]
    usable: float
    measured: float | None


def memory_breakdown(study: StudyResult, row: LeaderboardRow) -> MemoryBreakdown:
    """Return the memory terms of each pipeline stage of a topology."""
    workload, cluster = study.pool.setting(row.ranked.candidate) if row.ranked else (row.workload, row.cluster)
    columns = Columns.of([row.topology] * row.topology.pp, workload, cluster)
    terms = memory_terms(Stages(columns, np.arange(row.topology.pp)), study.model.calibration.site)
    return MemoryBreakdown(
        key=row.key,
        terms={name: [float(value) / GIB for value in values] for name, values in terms.items()},
        usable=limit(columns) / GIB,
        measured=row.memory / GIB if row.memory else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchSeries:
    """Measured topologies that differ only in micro-batch size."""

    label: str
    micro_batches: Sequence[int]
    samples: Sequence[float]
    """Sequences per second."""
    memory: Sequence[float | None]
    """Measured peak in GiB."""


def micro_batch_series(rows: Sequence[LeaderboardRow]) -> list[MicroBatchSeries]:
    """Return the longest series, the fastest first among equally long ones."""
    alike: dict[Topology, list[LeaderboardRow]] = {}
    for row in rows:
        if row.ranked:
            alike.setdefault(replace(row.topology, micro_batch=1), []).append(row)
    groups = [group for group in alike.values() if len(group) > 1]
    longest = sorted(groups, key=len, reverse=True)[:MAX_MICRO_BATCH_LINES]  # stable: rows come fastest first
    series = []
    for group in longest:
        group = sorted(group, key=lambda row: row.topology.micro_batch)
        series.append(
            MicroBatchSeries(
                label=group[0].key.replace(f"-mbs{group[0].topology.micro_batch}", ""),
                micro_batches=[row.topology.micro_batch for row in group],
                samples=[row.workload.global_batch / row.ranked.seconds for row in group if row.ranked],
                memory=[row.memory / GIB if row.memory else None for row in group],
            )
        )
    return series


@dataclass(frozen=True, slots=True, kw_only=True)
class DegreeCell:
    """The fastest topology with one tp and pp; `days` is None if none of them was measured."""

    tp: int
    pp: int
    days: float | None
    extrapolated: float | None
    """The fewest days that trials at a reduced size predict."""
    tried: int
    outcome: str


def degree_cells(rows: Sequence[LeaderboardRow]) -> list[DegreeCell]:
    """Return one cell for each combination of tp and pp that was tried."""
    found: dict[tuple[int, int], list[LeaderboardRow]] = {}
    for row in rows:
        found.setdefault((row.topology.tp, row.topology.pp), []).append(row)
    return [
        DegreeCell(
            tp=tp,
            pp=pp,
            days=min((row.ranked.days for row in own if row.ranked), default=None),
            extrapolated=min((row.extrapolated.days for row in own if row.extrapolated), default=None),
            tried=len(own),
            outcome=own[0].outcome,
        )
        for (tp, pp), own in sorted(found.items())
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAxisSeries:
    """Training time at equal compute by number of heads or hidden size."""

    axis: Literal["heads", "hidden"]
    measured: Sequence[tuple[int, float]]
    """Value and days of each measured topology."""
    predicted: Sequence[tuple[int, float]]
    """Value and days of the leader's layout, by the cost model, where the study's space has it."""


def model_axes(study: StudyResult, rows: Sequence[LeaderboardRow]) -> list[ModelAxisSeries]:
    """Return one series for each searched axis that changes the model."""
    if not rows or rows[0].ranked is None:
        return []
    leader, axes = rows[0].topology, []
    if len(heads := study.searched.get("heads", ())) > 1:
        axes.append(_model_axis(study, rows, "heads", [replace(leader, heads=int(value)) for value in heads]))
    if len(shapes := study.searched.get("shape", ())) > 1:
        sizes = [[int(part) for part in str(value).split("x")] for value in shapes]
        variants = [replace(leader, shape=Shape(hidden=hidden, layers=layers)) for hidden, layers in sizes]
        axes.append(_model_axis(study, rows, "hidden", variants))
    return axes


def _model_axis(
    study: StudyResult, rows: Sequence[LeaderboardRow], axis: Literal["heads", "hidden"], variants: Sequence[Topology]
) -> ModelAxisSeries:
    leader = rows[0].ranked
    workload, cluster = study.pool.setting(leader.candidate) if leader else (study.workload, rows[0].cluster)
    variants = [topology for topology in variants if study.pool.find(topology) is not None]
    columns = Columns.of(variants, workload, cluster)
    models = [workload.as_in(topology).model for topology in variants]
    # the pool's own measure of equal compute, for topologies that were never tried
    work = CandidatePool(workload=study.workload, parts=(columns,)).work
    days = study.model.score(columns).seconds * np.exp(work) / DAY
    predicted = [(getattr(model, axis), float(value)) for model, value in zip(models, days, strict=True)]
    measured = [(getattr(row.workload.model, axis), row.ranked.days) for row in rows if row.ranked]
    return ModelAxisSeries(axis=axis, measured=measured, predicted=sorted(predicted))


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedSeries:
    """Measured over expected seconds per job, and where speed periods begin."""

    numbers: Sequence[int]
    ratios: Sequence[float]
    """For a repeat: to the first run of its topology. Otherwise: to its estimate."""
    repeats: Sequence[bool]
    periods: Sequence[tuple[int, float]]
    """First trial of each later speed period, and its factor on the time of the one before."""


def cluster_speed(study: StudyResult) -> SpeedSeries | None:
    """Return how fast the cluster was, job by job; None if its speed never changed."""
    if not study.speed_periods:
        return None
    first_runs: dict[int, float] = {}
    numbers, ratios, repeats = [], [], []
    for trial in study.launched:
        candidate = trial.proposal.candidate
        if trial.measured and (expected := first_runs.get(candidate) or trial.proposal.estimate_sec):
            repeats.append(candidate in first_runs)
            first_runs.setdefault(candidate, trial.seconds)
            numbers.append(trial.number)
            ratios.append(trial.seconds / expected)
    return SpeedSeries(
        numbers=numbers,
        ratios=ratios,
        repeats=repeats,
        periods=[(period.first, period.factor) for period in study.speed_periods],
    )
