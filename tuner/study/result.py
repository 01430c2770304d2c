"""The result of a study: its trials, the ranking, drift and cost, read from the storage without launching anything.

The surrogate is asked only about topologies that were tried, so that a study of a thousand jobs is read in a moment:
what it predicts for them does not depend on the topologies that were not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tuner.core import keys
from tuner.core.columns import Columns
from tuner.core.documents import topology_of
from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.errors import BadKey, NothingUsable
from tuner.core.outcomes import outcome_word
from tuner.core.quantity import GIB
from tuner.core.text import ResultTable, Tabular, counted, csv_cells, listed, node_time
from tuner.costmodel.calibration import Calibration, MeasuredRows, calibrate
from tuner.costmodel.estimate import CostModel
from tuner.costmodel.site_file import site_of
from tuner.launch.excluded_nodes import excluded_nodes
from tuner.search.candidates import CandidatePool
from tuner.search.observations import Observation
from tuner.search.surrogate import Surrogate
from tuner.study import drift
from tuner.study.limits import trust_for
from tuner.study.ranking import (
    EXTRAPOLATES,
    MARK_MEANING,
    RankedTrial,
    noise,
    rank,
    rank_by_own_runs,
    ranking_table,
    rivals,
)
from tuner.study.state import observation_of
from tuner.study.store.stored import parts_of
from tuner.study.store.trial import Trial
from tuner.study.store.trial_store import TrialStore
from tuner.study.warm_start import existing

if TYPE_CHECKING:
    import pandas

MAX_SURROGATE_TOPOLOGIES: Final = 250
"""Topologies, the best ones, that the surrogate ranks: its time grows with the square of their number. The others are
ranked by their own runs alone."""

MAX_CALIBRATION_TOPOLOGIES: Final = 60
"""Topologies, the best ones, whose runs calibrate the cost model that explains them."""

SHOWN_RANKS: Final = 10
"""Ranked topologies that `print` and notebooks show."""

SHOWN_NAMES: Final = 8
"""Nodes, and trials, that a sentence names."""


@dataclass(frozen=True, kw_only=True, repr=False)
class StudyResult(Tabular):
    """The current state of a study."""

    name: str
    url: str
    folder: Path
    launcher: str
    settings: Mapping[str, Any]
    """The settings that identify the study: launcher, workload, cluster, axes, rules."""
    trials: tuple[Trial, ...]
    """All trials, by number; their candidates are indices into `pool`."""
    pool: CandidatePool
    """Every topology that was tried."""
    ranking: tuple[RankedTrial, ...]
    """All measured topologies, the leader first."""
    extrapolated: tuple[RankedTrial, ...]
    """Those that ran at a reduced size only and are not ranked, the soonest first."""
    speed_periods: tuple[drift.SpeedPeriod, ...]
    calibration: Calibration
    """The calibration that the study started from."""
    noise: float
    """Standard deviation of log seconds between two runs of one topology."""
    excluded_nodes: Mapping[str, str]
    """Nodes that failed and are no longer used, each with the reason."""
    ended: str = ""
    """Why nothing more is launched; empty for a study that was interrupted or only read."""

    @property
    def best(self) -> RankedTrial | None:
        """The leader."""
        return self.ranking[0] if self.ranking else None

    @property
    def best_of_own_model(self) -> RankedTrial | None:
        """The best topology that keeps the model's own heads and shape."""
        return next((ranked for ranked in self.ranking if not self._is_other_model(ranked)), None)

    @property
    def trains_other_models(self) -> bool:
        """Whether a measured topology changes the model's heads or shape."""
        return any(self._is_other_model(ranked) for ranked in self.ranking)

    def _is_other_model(self, ranked: RankedTrial) -> bool:
        own, other = self.workload.model, self.setting(ranked)[0].as_in(self.topology(ranked)).model
        return (other.heads, other.hidden, other.layers) != (own.heads, own.hidden, own.layers)

    @cached_property
    def ties(self) -> tuple[RankedTrial, ...]:
        """The topologies that are statistically tied with the leader."""
        return tuple(rivals(self.ranking))

    @cached_property
    def launched(self) -> list[Trial]:
        """Trials whose jobs were launched."""
        return [trial for trial in self.trials if trial.launched]

    @property
    def running(self) -> list[Trial]:
        """Trials whose jobs have not ended."""
        return [trial for trial in self.launched if trial.result is None]

    @property
    def simulated(self) -> bool:
        """Whether the measurements come from the simulated cluster, if only through a table of it that was replayed."""
        return self.launcher == "simulated" or bool(self.settings.get("simulated"))

    @property
    def node_hours(self) -> float:
        """Node-hours that all jobs have used."""
        return sum(trial.result.node_hours for trial in self.trials if trial.result)

    @property
    def outcomes(self) -> dict[str, int]:
        """Number of jobs by outcome, the most frequent first."""
        return dict(Counter(trial.result.outcome.value for trial in self.launched if trial.result).most_common())

    @property
    def searched(self) -> Mapping[str, Sequence[Any]]:
        """The values on each axis; empty for a replay, which has rows and no axes."""
        axes: Mapping[str, Sequence[Any]] = self.settings.get("axes", {})
        return axes

    @property
    def workload(self) -> Workload:
        """The training that the study is about."""
        return self.pool.workload

    @cached_property
    def period_labels(self) -> Mapping[int, str]:
        """The speed period of each trial, by number; empty names where there is only one."""
        return drift.labels(self.trials, self.speed_periods)

    @property
    def incidents(self) -> str:
        """One sentence about failed nodes and retried jobs; empty if there were none."""
        return incidents(self.excluded_nodes, self.trials)

    @cached_property
    def model(self) -> CostModel:
        """The cost model as the study's own measurements calibrate it, at the speed at which the study ended."""
        return _calibrated(self)

    def topology(self, trial: RankedTrial | Trial) -> Topology:
        """Return the topology of a trial."""
        return self.pool.topology(_candidate(trial))

    def setting(self, trial: RankedTrial | Trial) -> tuple[Workload, Cluster]:
        """Return the workload and the cluster of a trial."""
        return self.pool.setting(_candidate(trial))

    def rank_of(self, trial: Trial) -> RankedTrial | None:
        """Return where a trial's topology is ranked; None if it was not measured."""
        return next((ranked for ranked in self.ranking if ranked.candidate == trial.proposal.candidate), None)

    def ranked(self, key: str) -> RankedTrial:
        """Return the measured topology of that key."""
        if not key.strip():
            raise BadKey(f"invalid topology key {key!r}; {keys.LOOKS_LIKE}.")
        for ranked in self.ranking:
            if ranked.key == key:
                return ranked
        keys.parts_of(key)
        measured = listed([ranked.key for ranked in self.ranking], limit=5) or "nothing"
        raise NothingUsable(f"study {self.name} has not measured {key}; it has measured {measured}.")

    def trials_dataframe(self) -> pandas.DataFrame:
        """Return all trials as a pandas data frame, one row each: outcome, times, cost and the value on each axis."""
        import pandas

        rows = []
        for trial in self.trials:
            proposal, result = trial.proposal, trial.result
            rows.append(
                {
                    "number": trial.number,
                    "key": proposal.key,
                    "kind": proposal.kind,
                    "outcome": result.outcome.value if result else "RUNNING",
                    "sec_per_iter": result.seconds if result else None,
                    "estimate_sec": proposal.estimate_sec,
                    "days": result.objective if result else None,
                    "peak_memory_gib": result.peak_memory / GIB if result and result.peak_memory else None,
                    "node_hours": result.node_hours if result else 0.0,
                    "simulated": self.simulated,
                    "reduced": trial.reduced,
                    **{f"params_{axis}": value for axis, value in proposal.params.items()},
                }
            )
        frame: pandas.DataFrame = pandas.DataFrame(map(csv_cells, rows))
        return frame

    def __repr__(self) -> str:
        best = f", best {self.best.key}" if self.best else ""
        return f"<StudyResult {self.name!r}: {counted(len(self.launched), 'job')}{best}>"

    def _shown(self) -> ResultTable:
        label = "SIMULATED: " if self.simulated else ""
        headers, rows = ranking_table(self.ranking, SHOWN_RANKS)
        outcomes = outcome_counts(self.outcomes)
        more = len(self.ranking) - SHOWN_RANKS
        tied = listed([ranked.key for ranked in self.ties], limit=5)
        return ResultTable(
            title=f"{label}study {self.name}: {counted(len(self.launched), 'job')} ({outcomes or 'none has ended'}), "
            f"{node_time(self.node_hours)}",
            headers=headers,
            words=frozenset({"Topology", "80% interval"}),
            rows=rows,
            notes=(
                *[f"{counted(more, 'more topology')} measured."] * (more == 1),
                *[f"{more} more topologies were measured."] * (more > 1),
                *[f"The leader is statistically tied with {tied}."] * bool(self.ties),
                *[MARK_MEANING] * any(ranked.extrapolated for ranked in self.ranking[:SHOWN_RANKS]),
            ),
        )


def open_study(name: str, *, runs: str | Path = "runs", storage: str | None = None) -> StudyResult:
    """Return the current state of a study; nothing is launched.

    >>> import tempfile, tuner
    >>> with tempfile.TemporaryDirectory() as runs:
    ...     made = tuner.optimize(model="gpt-1.3b", nodes=4, settings=["tp=1,2"], budget=3, study="small", runs=runs)
    ...     study = tuner.open_study("small", runs=runs)
    >>> study
    <StudyResult 'small': 3 jobs, best ...>
    """
    with closing(existing(name, runs=Path(runs), storage=storage)) as store:
        return read_result(store, Path(runs) / name)


def read_result(store: TrialStore, folder: Path, *, ended: str = "") -> StudyResult:
    """Return the result of a study that is open; `ended` says why nothing more is launched.

    A search reads its own result too: its surrogate, which learned one job after the other, may be evaluated at another
    point and differ by a ten-thousandth.
    """
    store.file.check(folder)
    settings, attributes = store.settings, store.attributes
    pool, trials = pool_of_tried(parts_of(settings, store.name), store.trials())
    periods = drift.stored_periods(attributes)
    calibration = site_of(attributes["site"], f"the study {store.name}") if attributes.get("site") else Calibration()
    trust = trust_for(settings)
    labels = drift.labels(trials, periods, calibration.period)
    spread = noise(trials, labels, usual=trust.repeat)
    ranking: list[RankedTrial] = []
    extrapolated: list[RankedTrial] = []
    leading = _leading(trials)
    own = [trial for trial in trials if trial.proposal.candidate in leading]
    if own:
        surrogate = Surrogate(pool, calibration, period=drift.present(periods, calibration.period), trust=trust)
        times = (_time(trial, labels[trial.number], pool) for trial in own)
        surrogate.learn([seen for seen in times if seen is not None])
        surrogate.adapt(lambda usual: noise(own, labels, usual=usual))
        ranking = rank(surrogate, own, labels, extrapolates=bool(attributes.get(EXTRAPOLATES)))
        ranked = {trial.candidate for trial in ranking}
        predicted = rank(surrogate, own, labels, extrapolates=True)
        extrapolated = [trial for trial in predicted if trial.candidate not in ranked]
        others = [trial for trial in trials if trial.proposal.candidate not in leading]
        ranking += rank_by_own_runs(pool, others, drift.slowdowns(others, periods), spread)
    return StudyResult(
        name=store.name,
        url=store.url,
        folder=folder,
        launcher=str(settings.get("launcher", "")),
        settings=settings,
        trials=tuple(trials),
        pool=pool,
        ranking=tuple(ranking),
        extrapolated=tuple(extrapolated),
        speed_periods=tuple(periods),
        calibration=calibration,
        noise=spread,
        excluded_nodes=excluded_nodes(folder),
        ended=ended,
    )


def _candidate(trial: RankedTrial | Trial) -> int:
    return trial.candidate if isinstance(trial, RankedTrial) else trial.proposal.candidate


def _time(trial: Trial, period: str, pool: CandidatePool) -> Observation | None:
    """Return the time that a trial shows, if any; whether a topology fits does not change its time."""
    seen = observation_of(trial, period, pool)
    return replace(seen, memory=None, fits=None) if seen is not None and seen.timed else None


def _leading(trials: Sequence[Trial]) -> set[int]:
    """Return the topologies that the surrogate ranks: all, or in a very long study only the best."""
    best: dict[int, float] = {}
    for trial in trials:
        result, candidate = trial.result, trial.proposal.candidate
        if result is not None and (result.objective or result.forecast):
            objective = result.objective if result.objective is not None else math.inf
            best[candidate] = min(best.get(candidate, math.inf), objective)
    return set(sorted(best, key=lambda candidate: best[candidate])[:MAX_SURROGATE_TOPOLOGIES])


def _calibrated(study: StudyResult) -> CostModel:
    """Return the cost model that explains the best measurements, residual included."""
    best = {ranked.candidate for ranked in study.ranking[:MAX_CALIBRATION_TOPOLOGIES]}
    pool, own = study.pool, [trial for trial in study.trials if trial.measured and trial.proposal.candidate in best]
    if not own:
        return CostModel(calibration=study.calibration)
    measured = []
    for part in range(len(pool.parts)):
        trials = [trial for trial in own if pool.part(trial.proposal.candidate) == part]
        if trials:
            rows = np.array([trial.proposal.candidate - pool.starts[part] for trial in trials])
            measured.append(
                MeasuredRows(
                    columns=pool.parts[part].rows(rows),
                    seconds=np.array([trial.seconds for trial in trials]),
                    period=tuple(drift.label(trial.number, study.speed_periods, "") for trial in trials),
                )
            )
    return CostModel(calibration=replace(calibrate(measured), period=drift.present(study.speed_periods, "")))


def pool_of_tried(
    parts: Sequence[tuple[Workload, Cluster]], trials: Sequence[Trial]
) -> tuple[CandidatePool, list[Trial]]:
    """Return a pool of the topologies that were tried, each once, and the trials with indices into it."""
    topologies: list[dict[str, Topology]] = [{} for _ in parts]
    for trial in trials:
        topologies[trial.proposal.setting].setdefault(trial.proposal.key, topology_of(trial.proposal.topology))
    columns: list[Columns] = []
    candidates: dict[tuple[int, str], int] = {}
    start = 0
    for setting, ((workload, cluster), own) in enumerate(zip(parts, topologies, strict=True)):
        columns.append(Columns.of(own.values(), workload, cluster))
        candidates |= {(setting, key): start + index for index, key in enumerate(own)}
        start += len(own)
    renumbered = [
        replace(
            trial,
            proposal=replace(trial.proposal, candidate=candidates[trial.proposal.setting, trial.proposal.key]),
        )
        for trial in trials
    ]
    used = tuple(part for part in columns if len(part.tp)) or tuple(columns[:1])
    return CandidatePool(workload=parts[0][0], parts=used), renumbered


def outcome_counts(outcomes: Mapping[str, int]) -> str:
    """Return the number of jobs by outcome as words: `3 measured, 1 OOM`."""
    return ", ".join(f"{count} {outcome_word(outcome)}" for outcome, count in outcomes.items())


def incidents(excluded: Mapping[str, str], trials: Sequence[Trial]) -> str:
    """Return one sentence about nodes that failed and jobs that were retried; empty if there are none."""
    nodes = [f"{name} ({why})" for name, why in excluded.items()]
    retried = [(trial.number, trial.result.retried) for trial in trials if trial.result is not None]
    jobs = [f"trial {number} ({reason})" for number, reason in retried if reason]
    parts = [f"failed nodes are excluded: {listed(nodes, limit=SHOWN_NAMES)}"] * bool(nodes)
    parts += [f"jobs were retried: {listed(jobs, limit=SHOWN_NAMES)}"] * bool(jobs)
    sentence = "; ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}." if sentence else ""
