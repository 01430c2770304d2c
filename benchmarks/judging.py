"""Runs one study of the search benchmarks to its end in a folder of its own, and compares its result with the truth."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import optuna
from optuna.storages import InMemoryStorage

from tuner.core.columns import FloatArray
from tuner.core.fidelity import FidelityMode
from tuner.core.outcomes import Outcome
from tuner.core.text import DAY
from tuner.launch.contract import Launcher
from tuner.launch.virtual.replay import ReplayedRun, run_word
from tuner.search.candidates import CandidatePool
from tuner.space.build import space_for
from tuner.study.limits import Limits
from tuner.study.loop import StudyLoop
from tuner.study.ranking import RankedTrial
from tuner.study.settings import StudySettings
from tuner.study.store.storage import Storage
from tuner.study.store.trial import Trial
from tuner.study.store.trial_store import TrialStore

BUDGET: Final = 40
NEAR: Final = (0.05, 0.01)
"""Relative distances from the best; the benchmarks count the jobs needed to get this close."""

AFTER: Final = (5, 10, 20, 40)
"""Numbers of jobs after which the regret is recorded."""


FILTER: Final = "+memory-filter"
"""Suffix of the name of a sampler that runs with the memory filter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The result of one study."""

    jobs: int
    until: Mapping[float, int]
    """Jobs launched until one within each distance of the best was measured."""
    out_of_memory: int
    node_hours: float
    regret: Mapping[int, float]
    end: float
    """Regret of the study's winner."""
    covered: int
    """Ranked trials whose 80% interval contains the truth."""
    ranked: int
    winner_covered: bool | None
    """Whether the winner's 80% interval contains the truth; None if the winner did not run more than once."""
    ended: str
    seconds: float
    """CPU time of the study."""
    reduced_jobs: int = 0
    """Jobs at a reduced size."""
    reduced_node_hours: float = 0.0
    confirmed: int = 0
    """Topologies that were measured at full size after a measurement at a reduced size."""
    confirmed_inside: int = 0
    """Confirmed topologies whose full-size measurement lies in the 80% interval of the extrapolation."""


def _silence(launcher: Launcher) -> None:
    poll = launcher.poll
    vars(launcher)["poll"] = lambda handles: {
        handle: replace(status, share=None) for handle, status in poll(handles).items()
    }


def judged_study(
    pool: CandidatePool,
    truth: FloatArray,
    launcher: Launcher,
    *,
    sampler: str,
    seed: int,
    jobs: int = 1,
    silent: bool = False,
    fidelity: FidelityMode = "full",
    budget: int = BUDGET,
) -> Judged:
    """Run a study and judge it; `truth` has the days of each candidate, NaN if the candidate does not run.

    The logs of `silent` jobs show finished iterations only, as those of most trainers do.
    """
    if silent:
        _silence(launcher)
    shared = Path("/dev/shm")  # noqa: S108 - a folder in memory, so that the disk is not timed
    started = time.process_time()
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        store = memory_store()
        settings = StudySettings(
            space=space_for(framework="any"),
            limits=Limits(budget=budget),
            sampler=sampler.removesuffix(FILTER),
            memory_filter=sampler.endswith(FILTER),
            seed=seed,
            jobs=jobs,
            runs=Path(folder),
            fidelity=fidelity,
        )
        loop = StudyLoop(settings, pool=pool, launcher=launcher, store=store)
        loop.run()
        trials = [trial for trial in loop.state.trials if trial.launched]
        ranking, ended = loop.state.ranking, loop.scheduler.finished or ""
    best = float(np.nanmin(truth))
    leaders = _leaders(trials)
    small = [trial for trial in trials if trial.reduced]
    inside = [_inside(trial) for trial in _confirmations(trials)]
    covered = [bool(ranked.low <= truth[ranked.candidate] <= ranked.high) for ranked in ranking]
    return Judged(
        jobs=len(trials),
        until={near: _until(trials, truth, best * (1 + near)) for near in NEAR},
        out_of_memory=sum(trial.result is not None and trial.result.outcome is Outcome.OOM for trial in trials),
        node_hours=sum(trial.result.node_hours for trial in trials if trial.result),
        regret={after: _regret(truth, best, leaders[min(after, len(leaders)) - 1]) for after in AFTER},
        end=_regret(truth, best, ranking[0].candidate if ranking else None),
        covered=sum(covered),
        ranked=len(covered),
        winner_covered=_winner_covered(ranking, covered),
        ended=ended,
        seconds=time.process_time() - started,
        reduced_jobs=len(small),
        reduced_node_hours=sum(trial.result.node_hours for trial in small if trial.result),
        confirmed=len(inside),
        confirmed_inside=sum(inside),
    )


def _confirmations(trials: Sequence[Trial]) -> list[Trial]:
    """Return the first full-size measurement of each topology that was measured at a reduced size before."""
    found, reduced, full = [], set[int](), set[int]()
    for trial in trials:
        candidate = trial.proposal.candidate
        if trial.measured and candidate in reduced - full:
            found.append(trial)
        if trial.measured:
            full.add(candidate)
        if trial.measured_reduced:
            reduced.add(candidate)
    return found


def _inside(trial: Trial) -> bool:
    """Whether a measurement lies in the 80% interval that was predicted for it."""
    low, high = trial.proposal.estimate_low, trial.proposal.estimate_high
    return low is not None and high is not None and low <= trial.seconds <= high


class _MemoryStorage(InMemoryStorage):
    """An in-memory storage for a single process, which needs no heartbeats."""

    def record_heartbeat(self, trial_id: int) -> None:
        """Do nothing."""


def memory_store(settings: Mapping[str, Any] | None = None) -> TrialStore:
    """Return an empty study in memory, because a database would dominate the run time."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = _MemoryStorage()
    study = storage.create_new_study([optuna.study.StudyDirection.MINIMIZE], "benchmark")
    storage.set_study_user_attr(study, "settings", {"schema": "tuner/study/1", **(settings or {})})
    return TrialStore(Storage("memory://", cast(Any, storage), storage, lambda call: call()), "benchmark")


def days_of(pool: CandidatePool, runs: Iterable[ReplayedRun]) -> FloatArray:
    """Return the mean days of each candidate over the rows of a table, NaN if it does not run."""
    found = np.full(len(pool), np.nan)
    seconds: dict[str, list[float]] = {}
    for run in runs:
        if run.seconds is not None:
            seconds.setdefault(run_word(run.workload, run.cluster, run.topology), []).append(run.seconds)
    for candidate in range(len(pool)):
        own = seconds.get(run_word(*pool.setting(candidate), pool.topology(candidate)))
        if own:
            found[candidate] = statistics.fmean(own) * np.exp(pool.work[candidate]) / DAY
    return found


def _until(trials: Sequence[Trial], truth: FloatArray, limit: float) -> int:
    near = (
        index
        for index, trial in enumerate(trials, start=1)
        if trial.measured and truth[trial.proposal.candidate] <= limit
    )
    return next(near, BUDGET + 1)


def _leaders(trials: Sequence[Trial]) -> list[int | None]:
    """Return, for each job, the candidate with the best mean measurement after it, or None."""
    seen: dict[int, list[float]] = {}
    found: list[int | None] = []
    for trial in trials:
        if trial.measured and trial.result is not None and trial.result.objective is not None:
            seen.setdefault(trial.proposal.candidate, []).append(trial.result.objective)
        found.append(min(seen, key=lambda candidate: statistics.fmean(seen[candidate])) if seen else None)
    return found


def _regret(truth: FloatArray, best: float, candidate: int | None) -> float:
    """Return the relative slowdown against the best candidate; infinite if nothing ran."""
    return float("inf") if candidate is None else float(truth[candidate]) / best - 1


def _winner_covered(ranking: Sequence[RankedTrial], covered: Sequence[bool]) -> bool | None:
    return bool(covered[0]) if ranking and ranking[0].runs > 1 else None


def median(figures: Iterable[float]) -> float:
    """Return the median."""
    return float(statistics.median(figures))


def jobs_text(count: float) -> str:
    """Return a number of jobs as text; more jobs than the budget mean that the study never came close enough."""
    return f"over {BUDGET}" if count > BUDGET else f"{count:g}"


def percent(share: float) -> str:
    """Return a share as a percentage."""
    return "none ran" if share == float("inf") else f"{share:.2%}"
