"""The site factors at which the surrogate evaluates the cost model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tuner.costmodel.site_factors import TIME_FACTORS
from tuner.search.surrogate import Surrogate

AT_FIRST: dict[str, Any] = {
    "_reference": np.array([0.0]),
    "_nearest": lambda _: np.array([0.0]),
    "_calibration": SimpleNamespace(site="first"),
}
"""A surrogate that evaluates the model at the factors of its calibration."""


@pytest.mark.parametrize(("moves", "evaluated"), [([0.1], 0), ([0.11, -0.2, 0.1], 2), ([0.2] * 9, 5)])
def test_the_model_is_evaluated_again_while_its_factors_move_far(moves: list[float], evaluated: int) -> None:
    """The model is evaluated again, at most five times, while a factor moves by more than 0.1; trends do not count."""
    left, calls = list(moves), list[Any]()

    def shift() -> tuple[Any, None]:
        return np.array([0.0] * (len(TIME_FACTORS) - 1) + [left[0], 9.0]), None

    def refer(site: str) -> None:
        calls.append(site)
        belief._reference = np.array([float(len(calls))])
        left.pop(0)

    belief: Any = SimpleNamespace(_shift=shift, _refer=refer, site="site", reference_site="", **AT_FIRST)
    Surrogate._settle(belief)
    assert calls == ["site"] * evaluated


@pytest.mark.parametrize(
    ("reference", "rebuild", "begun"), [(0.0, False, []), (0.0, True, ["first"]), (0.2, False, ["first"])]
)
def test_linearization_starts_at_the_calibration(reference: float, rebuild: bool, begun: list[str]) -> None:
    calls = list[str]()
    still = np.zeros(len(TIME_FACTORS)), None
    given = AT_FIRST | {"_reference": np.array([reference])}
    belief: Any = SimpleNamespace(_shift=lambda: still, _refer=calls.append, reference_site="", **given)
    Surrogate._settle(belief, rebuild=rebuild)
    assert calls == begun


@pytest.mark.parametrize("start", [0, 1, 2])
def test_cycling_factors_settle_where_they_move_least(start: int) -> None:
    """If the factors cycle between 1 and 2, the surrogate settles where they move least within the cycle.

    A starting point outside the cycle is not chosen, even if the factors move less there.
    """
    moves, following = [0.15, 0.4, 0.2], [1, 2, 1]

    def shift() -> tuple[Any, None]:
        return np.full(len(TIME_FACTORS), moves[belief.reference_site]), None

    def refer(site: int) -> None:
        belief._reference, belief.reference_site, belief.site = np.array([float(site)]), site, following[site]

    belief: Any = SimpleNamespace(_shift=shift, _refer=refer, **AT_FIRST)
    belief._nearest = lambda _: belief._reference
    refer(start)
    Surrogate._settle(belief)
    assert belief.reference_site == 2
