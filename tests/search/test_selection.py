"""Selection of the topologies to search in a very large space, and studies of a selection."""

from __future__ import annotations

import gc
import weakref
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tuner.core.columns import IntArray
from tuner.costmodel.estimate import CostModel
from tuner.search.candidates import CandidatePool
from tuner.search.observations import Observation
from tuner.search.parameter_space import ParameterSpace
from tuner.search.selection import Selection, _region, _thinned, bound, selected
from tuner.search.surrogate import Surrogate
from tuner.space.build import space_for
from tuner.space.space import Space
from tuner.study import api


def space() -> Space:
    """A space of some thousand topologies."""
    return space_for(model="gpt-1.3b", nodes=4, framework="any")


def points() -> IntArray:
    """All legal points of the space."""
    return np.concatenate(list(space().blocks()))


def pieces(size: int) -> list[IntArray]:
    """All legal points in blocks of a given size."""
    return np.split(points(), range(size, len(points()), size))


@pytest.mark.parametrize("model", ["gpt-1.3b", "qwen3-30b-a3b", "gpt-oss-20b", "deepseek-v3", "qwen3-next-80b-a3b"])
def test_scored_columns_are_freed_at_once(model: str) -> None:
    """Columns that refer to themselves would stay until the garbage collector runs, which arrays do not wake."""
    where = space_for(model=model, gpu="H100-80GB-SXM", nodes=4)
    block = next(where.blocks())[:100]
    gc.disable()
    try:
        columns = where.columns(block)
        bound(columns)
        _region(columns)
        scores = CostModel().score(columns)
        assert len(scores.training) == len(scores.interval[0]) == len(block)
        seen = weakref.ref(columns)
        del columns, scores
        assert seen() is None
    finally:
        gc.enable()


def test_posteriors_that_are_replaced_are_freed_at_once() -> None:
    """One that refers to itself would stay until the garbage collector runs, with a row of every group for each run."""
    belief = Surrogate(CandidatePool.of_points(space(), [points()[:100]]))
    belief.learn([Observation(candidate=0, seconds=9.0, memory=3e10, fits=True)])
    every = np.arange(len(belief.pool))
    gc.disable()
    try:
        belief.time.deviation(every)
        belief.time.log_seconds()
        belief.memory.out_of_memory()
        time, memory = weakref.ref(belief.time), weakref.ref(belief.memory)
        del belief
        assert time() is None
        assert memory() is None
    finally:
        gc.enable()


def test_a_small_space_is_searched_whole() -> None:
    found = selected(space(), pieces(100), most=len(points()), sampled=10)
    assert found.values is None
    assert (found.points == points()).all()


def test_the_best_candidates_and_the_best_of_each_region_are_kept() -> None:
    """The 300 best points are kept, then 400 more: the best of each region, its second best, and so on."""
    every, columns = points(), space().columns(points())
    bounds, regions = bound(columns), _region(columns)
    found = selected(space(), pieces(1000), most=700, sampled=400).points
    kept = np.isin(every, found)
    order = np.argsort(bounds)
    assert len(found) == 700
    assert kept[order[:300]].all()
    others = order[300:]
    own = [others[regions[others] == region] for region in np.unique(regions[others])]
    most = max(int(kept[rows].sum()) for rows in own)
    assert len(own) < 400, "fewer regions than samples"
    for rows in own:
        assert kept[rows].sum() >= min(len(rows), most - 1)
        assert bounds[rows[kept[rows]]].max(initial=-np.inf) <= bounds[rows[~kept[rows]]].min(initial=np.inf)


def test_a_region_is_a_split_with_its_kernels() -> None:
    """A region ignores the micro batch and the ZeRO stage below 3, and distinguishes all other axes."""
    axes = {"tp": (1, 2), "pp": (1, 3), "cp": (1, 2), "ep": (1, 4), "recompute": (0, 1, 2), "sequence_parallel": (0, 1)}
    names = [*axes, "zero", "offload", "micro_batch"]
    rows = np.array(list(product(*axes.values(), (1, 2, 3), (0, 1, 2), (1, 8)))).T
    columns: Any = SimpleNamespace(**dict(zip(names, rows, strict=True)))
    regions = _region(columns)
    kinds = np.vstack([rows[: len(axes)], columns.zero == 3, columns.offload])
    of_kind: dict[tuple[int, ...], set[int]] = {}
    for kind, region in zip(kinds.T.tolist(), regions.tolist(), strict=True):
        of_kind.setdefault(tuple(kind), set()).add(region)
    assert all(len(found) == 1 for found in of_kind.values())
    assert len(set.union(*of_kind.values())) == len(of_kind) == 2**4 * 3 * 2 * 2 * 3


@pytest.mark.parametrize("size", [71, 333, 100_000])
def test_the_selection_does_not_depend_on_the_blocks(size: int) -> None:
    once, again = (selected(space(), pieces(size), most=500, sampled=100) for size in (size, 2500))
    bounds = [np.sort(bound(space().columns(found.points))) for found in (once, again)]
    assert bounds[0] == pytest.approx(bounds[1])


def test_the_axes_of_a_selection_are_those_of_the_whole_space() -> None:
    """A selection has the distributions of the whole space, because Optuna rejects a study whose axes change."""
    found = selected(space(), pieces(1000), most=100, sampled=20)
    whole = ParameterSpace(CandidatePool.of_space(space()))
    some = ParameterSpace(_pool(found))
    assert some.distributions == whole.distributions


def _pool(found: Selection) -> CandidatePool:
    pool = CandidatePool.of_points(space(), [found.points])
    return CandidatePool(workload=pool.workload, parts=pool.parts, values=found.values)


def test_fast_candidates_that_fit_have_the_lowest_bound() -> None:
    """Bounds order rows that certainly fit by time at equal compute; rows that cannot fit come last."""
    columns = space().columns(points())
    scores, bounds, work = CostModel().score(columns), bound(columns), CandidatePool.of_space(space()).work
    safe = scores.out_of_memory < 1e-6
    finish = np.log(scores.seconds) + work
    assert bounds[safe] - finish[safe] == pytest.approx((bounds[safe] - finish[safe]).mean(), abs=1e-3)
    hopeless = scores.out_of_memory > 0.999999
    assert (bounds - finish)[hopeless].min() > (bounds - finish)[safe].max() + 1


def test_a_study_of_a_selection_can_be_resumed_with_another_selection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed study finds its trials by topology, not by candidate number, and repeats none by mistake."""
    small = space()
    first = api.optimize(small, sampler="random", seed=1, budget=10, study="large", runs=tmp_path)
    monkeypatch.setattr("tuner.search.selection.selected.__kwdefaults__", {"most": 40, "sampled": 10})
    chosen = {topology.key for topology in small.topologies(selected(small, small.blocks()).points)}
    tried = {trial.proposal.key for trial in first.trials if trial.measured}
    assert len(chosen) == 40
    assert tried - chosen, "a first study that shows nothing"
    found = api.optimize(small, seed=1, budget=18, study="large", runs=tmp_path)
    assert len(found.launched) > 10
    new = [trial.proposal for trial in found.trials[len(first.trials) :]]
    assert not [proposal for proposal in new if proposal.kind == "search" and proposal.key in tried]
    runs = {ranked.key: ranked.runs for ranked in found.ranking}
    measured = [trial.proposal.key for trial in found.trials if trial.measured]
    assert runs == {key: measured.count(key) for key in measured}


def test_the_requested_number_of_points_is_kept_unchanged() -> None:
    scored = (np.array([3, 1, 2]), np.array([0.3, 0.1, 0.2]), np.array([7, 7, 8]))
    assert _thinned(scored, 3, 0) is scored
    assert _thinned(scored, 4, 2) is scored


@pytest.mark.parametrize(
    ("regions", "most", "sampled", "kept"),
    [
        ([5, 5, 5, 5, 5, 5], 4, 2, [10, 11, 12, 13]),  # one region
        ([5, 5, 6, 6, 5, 7], 4, 2, [10, 11, 12, 14]),  # the best of regions 6 and 5
        ([5, 5, 6, 6, 5, 7], 5, 3, [10, 11, 12, 14, 15]),
        ([5, 5, 6, 6, 5, 7], 5, 4, [10, 11, 12, 13, 15]),  # 11, 12 and 15, then 13, the second best of 6
        ([5, 5, 6, 6, 6, 6], 3, 0, [10, 11, 12]),
        ([5, 5, 6, 6, 6, 6], 3, 3, [10, 11, 12]),  # the best of each, then the second best of the first
    ],
)
def test_regions_take_turns_after_the_best_points(regions: list[int], most: int, sampled: int, kept: list[int]) -> None:
    """The points with the best bounds are kept, then one per region in turn, all in the order of the input."""
    rows = np.array([4, 0, 5, 2, 1, 3])
    points, bounds = np.arange(10, 16), np.arange(6) / 10
    found = _thinned((points[rows], bounds[rows], np.array(regions)[rows]), most, sampled)
    assert [part.tolist() for part in found] == [
        [point for point in points[rows].tolist() if point in kept],
        [(point - 10) / 10 for point in points[rows].tolist() if point in kept],
        [regions[point - 10] for point in points[rows].tolist() if point in kept],
    ]
