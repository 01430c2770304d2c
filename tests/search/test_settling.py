"""The site factors at which the surrogate evaluates the cost model."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.search.test_search_arithmetic import pool
from tuner.search.incremental_gp import IncrementalGP
from tuner.search.observations import Observation
from tuner.search.surrogate import Point, Surrogate, settled


def at(point: int, move: float) -> Any:
    """Return a posterior at a point, and by how much its factors move there."""
    return SimpleNamespace(point=(float(point),), move=move)


@pytest.mark.parametrize(("moves", "evaluated"), [([0.1], 0), ([0.11, 0.2, 0.1], 2), ([0.2] * 9, 5)])
def test_the_model_is_evaluated_again_while_its_factors_move_far(moves: list[float], evaluated: int) -> None:
    """The model is evaluated again, at most five times, while a factor moves by more than 0.1."""
    points = [at(number, move) for number, move in enumerate(moves)]
    following = count(1)
    assert settled(points[0], lambda _: points[next(following)]) is points[evaluated]
    assert next(following) == evaluated + 1


@pytest.mark.parametrize("start", [0, 1, 2])
def test_cycling_factors_settle_where_they_move_least(start: int) -> None:
    """If the factors cycle between 1 and 2, the surrogate settles where they move least within the cycle.

    A starting point outside the cycle is not chosen, even if the factors move less there.
    """
    points = [at(number, move) for number, move in enumerate([0.15, 0.4, 0.2])]
    assert settled(points[start], lambda now: points[[1, 2, 1][int(now.point[0])]]) is points[2]


def test_another_run_costs_the_same_after_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a cluster whose factors lie far from the catalog's, a run is added at each point, and no other run again.

    A point that was not visited before learns all runs once.
    """
    belief, added, known = Surrogate(pool()), list[int](), set[Point]()
    seconds = np.exp(belief.time.log_seconds()) * np.linspace(1.4, 1.6, len(pool()))
    add = IncrementalGP.add

    def counted(field: IncrementalGP, *given: Any) -> None:
        added.append(1)
        add(field, *given)

    monkeypatch.setattr(IncrementalGP, "add", counted)
    beyond = 0
    for number, candidate in enumerate(np.random.default_rng(3).permutation(len(pool()))[:40].tolist()):
        added.clear()
        belief.learn([Observation(candidate=candidate, seconds=float(seconds[candidate]))])
        points = set(belief._posteriors)
        beyond += len(points) > 1
        assert len(added) <= len(points & known) + (number + 1) * len(points - known)
        known = points
    assert beyond > 30, "the factors have moved"
