"""The shortlist of open candidates with the best acquisition; pools that are extended by tried topologies."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution

from tests.search.test_search_arithmetic import phi, pool, two_parts
from tests.workers import ONE
from tuner.core.columns import Columns
from tuner.search import acquisition
from tuner.search.acquisition import improvement, net_saving
from tuner.search.candidates import CandidatePool
from tuner.search.parameter_space import SETTING, ParameterSpace
from tuner.space.build import space_for


class Posterior:
    """A posterior of five candidates that take 10 down to 6 s; the best known one takes 9.5 s."""

    mean, risk = np.log([10.0, 9.0, 8.0, 7.0, 6.0]), np.array([0.0, 0.0, 0.5, 1.0, 0.0])
    most_deviation, own = np.full(5, 0.1), np.array([0.09, 0.001, 0.002, 0.03, 0.04])
    """Bounds of the deviations, far above them, and the deviations."""
    pool = SimpleNamespace(work=np.log(np.full(5, 2.0)))
    error_sizes = ((0.9, 0.8), (2.0, 0.2))
    trust = SimpleNamespace(repeat=0.0)
    evaluated: list[list[int]]

    def __init__(self) -> None:
        self.evaluated = []
        self.time = self.memory = self

    def log_seconds(self) -> Any:
        """Return half of these seconds, because the work is 2."""
        return self.mean - math.log(2)

    def soonest(self, _work: Any) -> None:
        """Return no leader: candidates share no error with it."""

    def out_of_memory(self) -> Any:
        """Return the risks: the third candidate may not fit, and the fourth does not."""
        return self.risk

    def deviation(self, candidates: Any) -> Any:
        """Return the deviations of some candidates, and record which."""
        self.evaluated.append(candidates.tolist())
        return self.own[candidates]


@pytest.mark.parametrize(
    ("first", "count", "evaluated"), [(9, 3, [0, 1, 2]), (9, 2, [0, 1, 2]), (2, 3, [1, 2]), (1, 3, [2])]
)
def test_a_shortlist_has_the_open_candidates_that_save_most(
    first: int, count: int, evaluated: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shortlist has the open candidates with the largest net savings.

    At least `FIRST_EVALUATED` candidates are evaluated, those with the largest possible savings first.
    """
    monkeypatch.setattr(acquisition, "FIRST_EVALUATED", first)
    belief: Any = Posterior()
    is_open, best = np.array([True, True, True, True, False]), math.log(9.5)
    found = acquisition.shortlist(belief, best=best, open_to=is_open, count=count)
    sizes = belief.error_sizes
    gains = sum(share * improvement(belief.mean, ratio * belief.own, best) for ratio, share in sizes)
    savings = [float(net_saving(gain=gains[row], risk=belief.risk[row])) for row in range(3)]
    assert sorted(belief.evaluated[0]) == sorted(evaluated)
    assert [one.candidate for one in found] == sorted(evaluated, key=lambda row: -savings[row])[:count]
    for one in found:
        z = (best - belief.mean[one.candidate]) / belief.own[one.candidate]
        assert one.gain == pytest.approx(gains[one.candidate])
        assert one.out_of_memory == belief.risk[one.candidate]
        assert one.chance == pytest.approx(sum(share * phi(z / ratio) for ratio, share in sizes), abs=1e-6)


def test_a_pool_is_extended_by_missing_topologies() -> None:
    space = space_for(model="gpt-1.3b", nodes=4)
    ones = [replace(ONE, micro_batch=size) for size in (1, 2)]
    part = Columns.of(ones, space.workload, space.cluster)
    small = CandidatePool(workload=space.workload, parts=(part,), values={"tp": np.array([1, 2])})
    assert small.extended(ones) is small
    more = small.extended([replace(ONE, micro_batch=size) for size in (4, 2, 8, 4)])
    assert more.column("micro_batch").tolist() == [1, 2, 4, 8]
    assert more.values is small.values
    assert more.parts[0].workload is space.workload


def test_the_part_of_a_candidate_is_an_axis_if_there_are_several() -> None:
    assert SETTING not in ParameterSpace(pool()).distributions
    parts = ParameterSpace(two_parts())
    assert parts.distributions[SETTING] == CategoricalDistribution((0, 1))
    assert [parts.values(candidate)[SETTING] for candidate in range(6)] == [0, 0, 0, 0, 1, 1]
    assert parts.axes == len(parts.distributions) == 4
    assert parts.agreeing({SETTING: 1, "micro_batch": 1}).tolist() == [1, 0, 1, 1, 1, 2]
