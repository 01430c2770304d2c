"""A study read again, with nothing launched: what it is about, what it believed in the end, who is ahead.

Only the topologies that were tried are asked for, so that a study of a thousand jobs is read in a moment: what is
believed of one of them does not depend on those that nobody tried.

What a study has found: the winner, how sure it is, what it is worth and what it cost.

Nodes that have failed under a study's jobs, and jobs that were begun anew for it, as people are told.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from tuner.core.columns import Columns
from tuner.core.documents import cluster_of, topology_of, workload_of
from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.errors import NothingUsable, StudyError
from tuner.core.outcomes import Outcome
from tuner.core.text import ResultTable, column, counted, listed, node_time, seconds
from tuner.costmodel.calibration import Calibration, MeasuredRows, calibrate
from tuner.costmodel.estimate import CostModel
from tuner.costmodel.site_file import site_of
from tuner.launch.excluded_nodes import excluded_nodes
from tuner.search.candidates import CandidatePool
from tuner.search.surrogate import Observation, Surrogate
from tuner.study import drift
from tuner.study.drift import SpeedPeriod
from tuner.study.limits import trust_for
from tuner.study.loop import StudyLoop
from tuner.study.ranking import DAY, INTERVAL, RankedTrial, noise, rivals, standings
from tuner.study.state import seen_in
from tuner.study.store.trial import Trial
from tuner.study.store.trial_store import TrialStore
from tuner.study.warm_start import existing

NEAR: Final = 250
"""Topologies, the best ones, of which a study's belief is worked out again: the time that takes grows with the square
of their number. The places behind them are told by their own runs alone."""

LISTED: Final = 10
"""Topologies that a notebook shows."""

TAUGHT: Final = 60
"""Topologies, the best ones, whose runs teach the model that explains them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResult:
    """A study as it stands."""

    name: str
    url: str
    folder: Path
    launcher: str
    settings: Mapping[str, Any]
    trials: tuple[Trial, ...]
    """All, by number; candidates are numbered within `pool`."""
    pool: CandidatePool
    """Every topology that was tried."""
    places: tuple[RankedTrial, ...]
    """All measured topologies, the best first."""
    equals: tuple[RankedTrial, ...]
    """Those that cannot be told apart from the best."""
    eras: tuple[drift.SpeedPeriod, ...]
    labels: Mapping[int, str]
    """The era of each trial; empty names where there is but one."""
    model: CostModel
    """The physics as the study's own measurements have taught it, for the era in which it ended."""
    spread: float
    """Deviation of the logarithm of two runs of one topology."""

    excluded: Mapping[str, str]
    """Nodes that have failed and are left out, and why."""

    @property
    def mishaps(self) -> str:
        """A sentence about these, and about jobs that were run again; empty where there are none."""
        return mishaps(self.excluded, self.trials)

    @property
    def best(self) -> RankedTrial | None:
        """The winner."""
        return self.places[0] if self.places else None

    @property
    def launched(self) -> list[Trial]:
        """Trials whose jobs were launched."""
        return [trial for trial in self.trials if trial.launched]

    @property
    def simulated(self) -> bool:
        """Whether the simulated cluster has answered."""
        return self.launcher == "simulated"

    @property
    def node_hours(self) -> float:
        """What all jobs have cost."""
        return sum(trial.ending.node_hours for trial in self.trials if trial.ending)

    @property
    def outcomes(self) -> dict[str, int]:
        """How many jobs ended how, the most frequent first."""
        return dict(Counter(trial.ending.outcome.value for trial in self.launched if trial.ending).most_common())

    @property
    def searched(self) -> Mapping[str, Sequence[Any]]:
        """The values on each axis; nothing for a replay, which has rows and no axes."""
        axes: Mapping[str, Sequence[Any]] = self.settings.get("axes", {})
        return axes

    @property
    def workload(self) -> Workload:
        """The training that the study is about."""
        return self.pool.workload

    def topology(self, place: RankedTrial | Trial) -> Topology:
        """What was tried."""
        return self.pool.topology(place.candidate if isinstance(place, RankedTrial) else place.proposal.candidate)

    def setting(self, place: RankedTrial | Trial) -> tuple[Workload, Cluster]:
        """What it trained, and on which machines."""
        return self.pool.setting(place.candidate if isinstance(place, RankedTrial) else place.proposal.candidate)

    def place_of(self, key: str) -> RankedTrial:
        """The measured topology of that key."""
        for place in self.places:
            if place.key == key:
                return place
        measured = ", ".join(place.key for place in self.places[:5])
        raise NothingUsable(f"study {self.name} has measured no {key}; it has {measured or 'measured nothing'}.")

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        return self._shown().html()

    def _repr_markdown_(self) -> str:
        return self._shown().markdown()

    def _shown(self) -> ResultTable:
        label = "SIMULATED: " if self.simulated else ""
        ends = ", ".join(f"{count} {outcome.lower()}" for outcome, count in self.outcomes.items())
        left_out = [f"{len(self.places) - LISTED} more were measured."] * (len(self.places) > LISTED)
        equals = listed([place.key for place in self.equals], limit=5)
        unit, each = column([place.days for place in self.places])
        close = [f"The first cannot be told apart from {equals}."] * bool(self.equals)
        return ResultTable(
            title=f"{label}study {self.name}: {counted(len(self.launched), 'job')} ({ends or 'none has ended'}), "
            f"{node_time(self.node_hours)}",
            headers=("Topology", "Sec/it", unit, "80% between", "Runs", "P(sooner)"),
            words=frozenset({"Topology", "80% between"}),
            rows=[
                (
                    place.key,
                    seconds(place.seconds),
                    f"{place.days * each:,.1f}",
                    f"{place.low * each:,.1f} to {place.high * each:,.1f}",
                    str(place.runs),
                    f"{place.rival:.0%}" if place is not self.best else "-",
                )
                for place in self.places[:LISTED]
            ],
            notes=(*left_out, *close),
        )


def reopened(name: str, *, runs: Path, storage: str | None = None) -> StudyResult:
    """The study of that name, read and closed again."""
    study = existing(name, runs=runs, storage=storage)
    try:
        return _read(study, runs / name)
    finally:
        study.close()


def _read(study: TrialStore, folder: Path) -> StudyResult:
    settings, attributes = study.settings, study.attributes
    found = _settings_of(settings, study.name)
    pool, trials = _tried(found, study.trials())
    eras = drift.eras_of(attributes.get("eras", []))
    calibration = site_of(attributes["site"], f"the study {study.name}") if attributes.get("site") else Calibration()
    trust = trust_for(settings)
    now = drift.present(eras, calibration.era)
    near = _near(trials)
    own = [trial for trial in trials if trial.proposal.candidate in near]
    places: list[RankedTrial] = []
    if own:
        belief = Surrogate(pool, calibration, era=now, trust=trust)
        belief.learn(
            [each for trial in own for each in _times(trial, drift.label(trial.number, eras, calibration.era))]
        )
        places = standings(belief, own)
        places += _others(pool, [trial for trial in trials if trial.proposal.candidate not in near], eras)
    return StudyResult(
        name=study.name,
        url=study.url,
        folder=folder,
        launcher=str(settings.get("launcher", "")),
        settings=settings,
        trials=tuple(trials),
        pool=pool,
        places=tuple(places),
        equals=tuple(rivals(places)),
        eras=tuple(eras),
        labels=drift.labels(trials, eras),
        model=_taught(pool, own, places, eras, calibration),
        spread=noise(trials, usual=trust.repeat),
        excluded=excluded_nodes(folder),
    )


def _times(trial: Trial, era: str) -> list[Observation]:
    """What a trial shows of time: whether something fitted moves no time."""
    seen = [each for each in seen_in(trial, era) if each.seconds is not None]
    return [replace(each, memory=None, fits=None) for each in seen]


def _near(trials: Sequence[Trial]) -> set[int]:
    """The topologies that the belief is asked about: all but in a very long study, where it is the best ones."""
    best: dict[int, float] = {}
    for trial in trials:
        ending, candidate = trial.ending, trial.proposal.candidate
        if ending is not None and (ending.objective or ending.forecast):
            objective = ending.objective if ending.objective is not None else math.inf
            best[candidate] = min(best.get(candidate, math.inf), objective)
    return set(sorted(best, key=lambda candidate: best[candidate])[:NEAR])


def _others(pool: CandidatePool, trials: Sequence[Trial], eras: Sequence[drift.SpeedPeriod]) -> list[RankedTrial]:
    """The places behind, by their own runs alone."""
    runs: dict[int, list[Trial]] = {}
    for trial in trials:
        if trial.measured:
            runs.setdefault(trial.proposal.candidate, []).append(trial)
    spread = noise(trials)
    found = []
    for candidate, own in runs.items():
        since = [math.prod(era.factor for era in eras if era.first > trial.number) for trial in own]
        mean = sum(math.log(trial.seconds * factor) for trial, factor in zip(own, since, strict=True)) / len(own)
        finish, width = mean + float(pool.work[candidate]), INTERVAL * spread / math.sqrt(len(own))
        place = RankedTrial(
            candidate=candidate,
            key=own[0].proposal.key,
            seconds=math.exp(mean),
            days=math.exp(finish) / DAY,
            low=math.exp(finish - width) / DAY,
            high=math.exp(finish + width) / DAY,
            runs=len(own),
            trials=tuple(trial.number for trial in own),
        )
        found.append(place)
    return sorted(found, key=lambda place: (place.days, place.trials))


def _taught(
    pool: CandidatePool,
    trials: Sequence[Trial],
    places: Sequence[RankedTrial],
    eras: Sequence[drift.SpeedPeriod],
    begun: Calibration,
) -> CostModel:
    """The model as it explains the best of what was measured, residual included."""
    near = {place.candidate for place in places[:TAUGHT]}
    own = [trial for trial in trials if trial.measured and trial.proposal.candidate in near]
    if not own:
        return CostModel(calibration=begun)
    measured = []
    for part in range(len(pool.parts)):
        ours = [trial for trial in own if pool.part(trial.proposal.candidate) == part]
        if ours:
            columns = pool.parts[part]
            rows = np.array([trial.proposal.candidate - pool.starts[part] for trial in ours])
            measured.append(
                MeasuredRows(
                    columns=columns.rows(rows),
                    seconds=np.array([trial.seconds for trial in ours]),
                    era=tuple(drift.label(trial.number, eras, "") for trial in ours),
                )
            )
    return CostModel(calibration=replace(calibrate(measured), era=drift.present(eras, "")))


def _settings_of(settings: Mapping[str, Any], name: str) -> list[tuple[Workload, Cluster]]:
    """Workload and cluster of each part of the pool that the study searched."""
    parts = [settings] if "workload" in settings else settings.get("parts", [])
    if not parts:
        raise StudyError(f"study {name!r} does not say what it is about; it was begun by an older version.")
    return [(workload_of(part["workload"]), cluster_of(part["cluster"])) for part in parts]


def _tried(settings: Sequence[tuple[Workload, Cluster]], trials: Sequence[Trial]) -> tuple[CandidatePool, list[Trial]]:
    """Each topology of the trials once, and the trials with its number."""
    topologies: list[dict[str, Topology]] = [{} for _ in settings]
    for trial in trials:
        topologies[trial.proposal.setting].setdefault(trial.proposal.key, topology_of(trial.proposal.topology))
    parts: list[Columns] = []
    places: dict[tuple[int, str], int] = {}
    start = 0
    for setting, ((workload, cluster), own) in enumerate(zip(settings, topologies, strict=True)):
        parts.append(Columns.of(own.values(), workload, cluster))
        places |= {(setting, key): start + place for place, key in enumerate(own)}
        start += len(own)
    numbered = [
        replace(each, proposal=replace(each.proposal, candidate=places[each.proposal.setting, each.proposal.key]))
        for each in trials
    ]
    kept = tuple(part for part in parts if len(part.tp)) or tuple(parts[:1])
    return CandidatePool(workload=settings[0][0], parts=kept), numbered


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Of a study as it stands."""

    study: str
    launcher: str
    simulated: bool
    trials: tuple[Trial, ...]
    places: tuple[RankedTrial, ...]
    """All measured topologies, the best first."""
    equals: tuple[RankedTrial, ...]
    """Those that cannot be told apart from the best."""
    first: RankedTrial | None
    """The first topology that was measured."""
    favourite: Trial | None
    """The first one proposed: what the model alone would have chosen."""
    outcomes: dict[str, int]
    jobs: int
    node_hours: float
    eras: tuple[SpeedPeriod, ...]
    ended: str
    """Why nothing more is launched; empty where it was interrupted."""
    running: tuple[Trial, ...]
    excluded: dict[str, str]
    """Nodes that have failed and are left out, and why."""

    @property
    def mishaps(self) -> str:
        """A sentence about these, and about jobs that were run again; empty where there are none."""
        return mishaps(self.excluded, self.trials)

    @property
    def best(self) -> RankedTrial | None:
        """The winner."""
        return self.places[0] if self.places else None


def answer(tuning: StudyLoop) -> Answer:
    """What is known now."""
    known = tuning.known
    launched = [trial for trial in known.trials if trial.launched]
    measured = [trial for trial in launched if trial.measured]
    return Answer(
        study=tuning.study.name,
        launcher=tuning.launcher.name,
        simulated=tuning.launcher.simulated,
        trials=tuple(known.trials),
        places=tuple(known.places),
        equals=tuple(rivals(known.places)),
        first=_place_of(known.places, measured[0]) if measured else None,
        favourite=launched[0] if launched else None,
        outcomes=dict(Counter(trial.ending.outcome.value for trial in launched if trial.ending).most_common()),
        jobs=len(launched),
        node_hours=known.node_hours,
        eras=tuple(known.eras),
        ended=tuning.chooser.finished or "",
        running=tuple(trial for trial in launched if trial.ending is None),
        excluded=excluded_nodes(tuning.setup.folder),
    )


def gain(answer: Answer, over: RankedTrial | None) -> float | None:
    """By what share the winner finishes sooner than another one."""
    if answer.best is None or over is None:
        return None
    return 1 - answer.best.days / over.days


def favourite_place(answer: Answer) -> RankedTrial | None:
    """Where the model's own favourite has ended; None where it was not measured."""
    trial = answer.favourite
    if trial is None or trial.ending is None or trial.ending.outcome is not Outcome.MEASURED:
        return None
    return _place_of(answer.places, trial)


def _place_of(places: Sequence[RankedTrial], trial: Trial) -> RankedTrial | None:
    return next((place for place in places if place.candidate == trial.proposal.candidate), None)


SAID: Final = 8
"""Nodes, and trials, that are named."""


def mishaps(excluded: Mapping[str, str], trials: Sequence[Trial]) -> str:
    """One sentence; empty where nothing has happened. `excluded` are nodes that are left out, and why each is."""
    nodes = [f"{name} ({why})" for name, why in excluded.items()]
    reasons = [(trial.number, trial.ending.retried) for trial in trials if trial.ending is not None]
    again = [f"trial {number} was run again ({reason})" for number, reason in reasons if reason]
    parts = [f"left out, for they have failed: {listed(nodes, limit=SAID)}"] * bool(nodes)
    parts += [listed(again, limit=SAID)] * bool(again)
    said = "; ".join(parts)
    return f"{said[0].upper()}{said[1:]}." if said else ""
