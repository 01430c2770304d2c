"""Studies on a cluster that changes speed, on a steady one, and on one with two equal winners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from benchmarks.judging import memory_store
from tuner.core.columns import Columns, FloatArray
from tuner.launch.virtual.ground_truth import GroundTruth
from tuner.launch.virtual.simulated import SimulatedLauncher, SpeedChange
from tuner.search.candidates import CandidatePool
from tuner.space.build import space_for
from tuner.space.space import Space, space_document
from tuner.study.limits import Limits
from tuner.study.loop import StudyLoop
from tuner.study.result import StudyResult
from tuner.study.settings import StudyEvent, StudySettings
from tuner.study.store.storage import sqlite_url
from tuner.study.store.trial_store import TrialStore

SINCE = 8
"""Number of jobs after which the drifting cluster becomes slower."""


@dataclass(frozen=True, kw_only=True)
class Searched:
    """A finished study with its regret and its events."""

    found: StudyResult
    regret: float
    events: Sequence[StudyEvent]


def small_space() -> Space:
    """Return a space of a few thousand topologies, which is fast to search."""
    settings = ("nodes=4", "tp=1,2,4", "recompute=none")
    return space_for(model="gpt-1.3b", nodes=4, settings=settings, framework="any")


def searched(seed: int, folder: Path, drift: SpeedChange | None = None, budget: int = 40) -> Searched:
    """Run a study on a seed's simulated cluster; its regret is the winner's slowdown relative to the true best."""
    events: list[StudyEvent] = []
    limits = Limits(budget=budget)
    settings = StudySettings(
        space=small_space(),
        limits=limits,
        seed=seed,
        drift=drift,
        runs=folder / str(seed),
        on_event=events.append,
    )
    launcher = SimulatedLauncher(4, seed=seed, drift=drift)
    store = memory_store(space_document(settings.space))
    loop = StudyLoop(settings, pool=small_pool(), launcher=launcher, store=store)
    loop.run()
    found = loop.result()
    return Searched(
        found=found, regret=_regret(loop.pool, launcher.truth, loop.state.ranking[0].candidate), events=events
    )


@cache
def small_pool() -> CandidatePool:
    """Return the candidates of `small_space`."""
    return CandidatePool.of_space(small_space())


def _regret(pool: CandidatePool, truth: GroundTruth, best: int) -> float:
    finish = np.concatenate([truth.seconds(part) for part in pool.parts]) * np.exp(pool.work)
    fits = np.concatenate([truth.fits(part) for part in pool.parts])
    return float(finish[best] / finish[fits].min() - 1)


@pytest.mark.slow
def test_a_drift_of_five_percent_is_noticed_and_the_winner_is_still_found(tmp_path: Path) -> None:
    """A slowdown of 5% is noticed in four fifths of the studies that continue for four jobs after it.

    The period begins within four trials of the truth, and no winner is more than 1% slower than the best.
    """
    noticed = lasting = 0
    for seed in range(10):
        study = searched(seed, tmp_path, SpeedChange(factor=1.05, after_jobs=SINCE))
        assert study.regret <= 0.01, seed
        lasting += len(study.found.launched) >= SINCE + 5
        if study.found.speed_periods:
            noticed += 1
            nearest = min(study.found.speed_periods, key=lambda era: abs(era.first - SINCE))
            assert abs(nearest.first - SINCE) <= 4, seed
            assert 1.02 < nearest.factor < 1.10, seed
            assert any(event.kind == "era" and "slower" in event.text for event in study.events)
    assert noticed >= 0.8 * lasting
    assert lasting >= 4


@pytest.mark.slow
def test_without_drift_no_speed_period_is_opened(tmp_path: Path) -> None:
    """At most 1 in 20 studies on steady clusters finds drift; no winner is more than 1% slower than the best."""
    studies = [searched(seed, tmp_path) for seed in range(40)]
    assert sum(bool(study.found.speed_periods) for study in studies) <= len(studies) / 20
    assert max(study.regret for study in studies) <= 0.01


class Twins(GroundTruth):
    """A truth in which the best two topologies take the same time and are 5% faster than all others."""

    def __init__(self, seed: int, pool: CandidatePool) -> None:
        super().__init__(seed)
        seconds = np.concatenate([super(Twins, self).seconds(part) for part in pool.parts])
        fits = np.concatenate([self.fits(part) for part in pool.parts])
        first, second = np.argsort(np.where(fits, seconds, np.inf))[:2]
        self.keys = {pool.topology(int(first)).key, pool.topology(int(second)).key}
        self._best = 0.95 * float(seconds[first])

    def seconds(self, columns: Columns) -> FloatArray:
        """Return the usual seconds, except for the twins."""
        seconds = super().seconds(columns)
        twins = [columns.topology(row).key in self.keys for row in range(len(columns.tp))]
        return np.where(twins, self._best, seconds)


@pytest.mark.slow
def test_two_equal_winners_are_tied(tmp_path: Path) -> None:
    """If both of two equally fast topologies ran, the result reports them as tied."""
    space, pool = small_space(), small_pool()
    both_ran = told_apart = 0
    for seed in range(3):
        truth = Twins(seed, pool)
        store = TrialStore.open(sqlite_url(tmp_path / f"{seed}.db"), "twins", space_document(space))
        loop = StudyLoop(
            StudySettings(space=space, limits=Limits(budget=30), study=str(seed), runs=tmp_path),
            pool=pool,
            launcher=SimulatedLauncher(4, seed=seed, truth=truth),
            store=store,
        )
        loop.run()
        found = loop.result()
        store.close()
        assert found.best is not None
        assert found.best.key in truth.keys
        named = {found.best.key, *(place.key for place in found.ties)}
        if truth.keys <= {ranked.key for ranked in found.ranking}:
            both_ran += 1
            told_apart += not truth.keys <= named
    assert told_apart == 0
    assert both_ran >= 2
