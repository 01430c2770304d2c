"""The site factors at which the surrogate evaluates the cost model."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.search.surrogate import settled


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
