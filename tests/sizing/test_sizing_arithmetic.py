"""Searches for the largest batch, probe by probe, and their answers in closed form."""

from __future__ import annotations

import re
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.core.domain import MemoryKind, Topology
from tuner.core.errors import InputError
from tuner.costmodel.constants import COMMUNICATOR_BYTES, CONTEXT_BYTES, FRAGMENT_SHARE, USABLE_SHARE
from tuner.sizing.api import _check_numbers, batch_steps
from tuner.sizing.fit import BatchOutcome, BatchResult, Fit, Pressure, fitted, pressures, ratio_at
from tuner.sizing.max_batch import answer, throughput_of
from tuner.sizing.probes import MAX_MICRO_BATCH, grid_for, held_back, usable_bytes
from tuner.sizing.strategies import BatchBounds, BatchGrid, BatchSearch, look_for
from tuner.space.build import space_for

approx: Any = pytest.approx


def ran(batch: int, memory: float | None = None, seconds: float | None = None) -> BatchResult:
    """A batch that ran."""
    return BatchResult(micro_batch=batch, outcome="MEASURED", peak_memory=memory, seconds=seconds)


def probed(strategy: str, grid: BatchGrid, limit: int, memory: float | None = None, base: float = 0) -> list[int]:
    """The batches that a strategy tries where those up to `limit` run, each with `memory` bytes and a base."""

    def probe(batch: int) -> BatchResult:
        if batch > limit:
            return BatchResult(micro_batch=batch, outcome="OOM")
        return ran(batch, None if memory is None else base + memory * batch)

    return [result.micro_batch for result in look_for(strategy, grid, probe).attempts]


TENS = tuple(range(1, 101))


@pytest.mark.parametrize(
    ("start", "limit", "tried"),
    [
        (1, 5, [1, 2, 4, 8, 6, 5]),
        (1, 100, [1, 2, 4, 8, 16, 32, 64, 100]),
        (8, 3, [8, 4, 2, 3]),
        (8, 0, [8, 4, 2, 1]),
    ],
)
def test_bisection_doubles_and_then_halves_the_gap(start: int, limit: int, tried: list[int]) -> None:
    """Indices are batch - 1: between index 3 (runs) and 7 (fails) comes (3 + 7) // 2 = 5, then 4."""
    assert probed("bisect", BatchGrid(batches=TENS, start=start), limit) == tried


@pytest.mark.parametrize(
    ("start", "limit", "tried"),
    [(64, 90, [64, 80, 96, 88, 92, 90, 91]), (64, 40, [64, 32, 48, 40, 44, 42, 41]), (64, 100, [64, 80, 96, 100])],
)
def test_a_ramp_goes_up_by_its_increment_and_halves_a_start_that_fails(
    start: int, limit: int, tried: list[int]
) -> None:
    assert probed("ramp", BatchGrid(batches=TENS, start=start), limit) == tried


@pytest.mark.parametrize(
    ("room", "beside", "lost", "limit", "tried"),
    [
        (1000.0, 0.0, 0.0, 45, [1, 2, 45, 46]),
        (1100.0, 100.0, 0.0, 45, [1, 2, 45, 46]),
        (1000.0, 0.0, 0.5, 30, [1, 2, 30, 31]),
        (1000.0, 0.0, 0.0, 44, [1, 2, 45, 44]),
    ],
)
def test_the_model_predicts_the_batch_that_fills_the_room(
    room: float, beside: float, lost: float, limit: int, tried: list[int]
) -> None:
    """100 + 20 x batch bytes: (room - beside - 100) / (20 x (1 + lost)); two batches make the line."""
    grid = BatchGrid(batches=TENS, room=room, beside=beside, lost=lost)
    assert probed("model", grid, limit, memory=20.0, base=100.0) == tried


def test_without_memory_figures_the_model_bisects() -> None:
    assert probed("model", BatchGrid(batches=TENS), 5) == [1, 2, 4, 8, 6, 5]
    assert probed("model", BatchGrid(batches=TENS, start=8), 3) == [8, 4, 2, 3]


def test_after_four_predictions_the_model_bisects() -> None:
    """The room says 100 but 10 is the limit: 100, 99 down by one would take for ever."""
    tried = probed("model", BatchGrid(batches=tuple(range(1, 1001)), room=1e9), 10, memory=1.0)
    assert tried[:6] == [1, 2, 1000, 999, 998, 997]
    assert tried[6] == (1 + 996) // 2 + 1


def test_indices_stay_on_the_grid_and_inside_the_bounds() -> None:
    grid = BatchGrid(batches=(2, 4, 8))
    assert [grid.index(batch) for batch in (1, 2, 3, 4, 7.9, 8, 99)] == [0, 0, 0, 1, 1, 2, 2]
    assert grid.top == 2
    bounds = BatchBounds(grid)
    assert (bounds.low, bounds.high, bounds.found) == (-1, 3, False)
    assert [bounds.clamp(index) for index in (-5, 0, 2, 9)] == [0, 0, 2, 2]
    bounds.update(1, ran(4))
    bounds.update(0, ran(2))
    assert (bounds.low, bounds.found) == (1, False)
    assert [bounds.clamp(index) for index in (0, 9)] == [2, 2]
    bounds.update(2, BatchResult(micro_batch=8, outcome="OOM"))
    assert (bounds.high, bounds.found) == (2, True)


def test_a_search_knows_its_bounds_and_whether_the_grid_ended_it() -> None:
    grid = BatchGrid(batches=(1, 2, 4))
    whole = look_for("bisect", grid, ran)
    assert (whole.largest, whole.smallest_failed, whole.open_end, whole.stopped) == (4, None, True, None)
    half = look_for(
        "bisect", grid, lambda batch: ran(batch) if batch < 4 else BatchResult(micro_batch=4, outcome="OOM")
    )
    assert (half.largest, half.smallest_failed, half.open_end) == (2, 4, False)
    outcomes: list[BatchOutcome] = ["CRASHED", "MEASURED", "CRASHED", "CRASHED"]

    def failing(batch: int) -> BatchResult:
        return BatchResult(micro_batch=batch, outcome=outcomes.pop(0))

    ended = look_for("bisect", grid, failing)
    assert [result.micro_batch for result in ended.attempts] == [1, 1, 2, 2]
    assert ended.stopped is ended.attempts[-1]


def test_a_rising_line_predicts_memory() -> None:
    """100 + 20 x 5 = 200. A falling or level line is none."""
    line = Fit(per_sample=20, at_zero=100, stderr=None, points=2)
    assert line.at(5) == 200
    assert fitted([ran(1, 10.0), ran(2, 10.0)]) is None
    assert fitted([ran(1, 10.0), BatchResult(micro_batch=2, outcome="OOM", peak_memory=30.0)]) is None
    found = fitted([ran(1, 10.0), ran(2, 16.0), ran(3, 16.0), ran(6, 30.0)])
    assert found is not None
    assert (found.per_sample, found.at_zero) == (approx(27 / 7), approx(18 - 3 * 27 / 7))
    squares = sum((memory - found.at(batch)) ** 2 for batch, memory in [(1, 10), (2, 16), (3, 16), (6, 30)])
    assert found.stderr == approx((squares / 2 / 14) ** 0.5)


@pytest.mark.parametrize(
    ("seconds", "slower"), [((1.0, 2.0, 4.8), 0.2), ((2.0, 1.0, 1.2), 0.2), ((1.0, 2.0, 4.6), None)]
)
def test_pressure_is_the_excess_over_the_line_of_two_batches(
    seconds: tuple[float, float, float], slower: float | None
) -> None:
    """1 s at 1 and 2 s at 2 make 4 s at 4; times that fall count as level: 1 s. 15% is not slow yet."""
    results = [ran(batch, 80.0, time) for batch, time in zip((1, 2, 4), seconds, strict=True)]
    found = pressures(results, 100.0)
    assert [(one.micro_batch, one.share) for one in found] == ([] if slower is None else [(4, 0.8)])
    if slower is not None:
        assert found[0].slower == approx(slower)


@pytest.mark.parametrize(("share", "near"), [(0.74, False), (0.75, True), (None, False)])
def test_near_the_limit_begins_at_three_quarters(share: float | None, near: bool) -> None:
    assert Pressure(micro_batch=1, slower=0.2, share=share).near_limit is near


@pytest.mark.parametrize(("claim", "batch"), [(10.0, 1), (5.5, 2), (5.44, 2), (5.6, None), (7.75, None)])
def test_a_ratio_is_recognised_to_half_its_last_digit(claim: float, batch: int | None) -> None:
    """10 / 1 and 11 / 2 bytes a sample, to a digit of 0.15."""
    found = ratio_at(claim, [ran(1, 10.0), ran(2, 11.0)], 0.15)
    assert (found and found.micro_batch) == batch
    nearest = ratio_at(10.3, [ran(1, 10.0), ran(1, 10.4)], 1.0)
    assert nearest is not None
    assert nearest.peak_memory == 10.4


@pytest.mark.parametrize(
    ("global_batch", "steps", "exact"), [(None, 1, True), (64, 4, True), (65, 5, False), (8, 1, False)]
)
def test_throughput_is_tokens_of_all_ranks_per_second(global_batch: int | None, steps: int, exact: bool) -> None:
    """4 x 4 sequences of 1000 tokens in 2 s are 8000 tokens/s; 8000 x 86400 tokens take a day."""
    found = throughput_of(ran(4, seconds=2.0), dp=4, seq=1000, global_batch=global_batch, tokens=8000 * 86400.0)
    assert (found.step_batch, found.acc_steps, found.exact) == (16, steps, exact)
    assert (found.tokens_per_second, found.days) == (8000, approx(1.0))
    timeless = throughput_of(ran(4), dp=4, seq=1000, global_batch=64, tokens=1.0)
    assert (timeless.tokens_per_second, timeless.days) == (None, None)


@pytest.mark.parametrize(
    ("usable", "failed", "margin", "safe"),
    [(1000.0, None, 0.1, 4), (1000.0, 10, 0.1, 4), (180.0, None, 0.1, 3), (1000.0, 5, 0.1, 4), (1000.0, 5, 0.25, 2)],
)
def test_a_safe_batch_keeps_its_margin_from_the_lesser_ceiling(
    usable: float, failed: int | None, margin: float, safe: int
) -> None:
    """100 + 20 x batch: 160 at 3, 180 at 4, 200 at 5, the line at the batch that failed.

    0.9 x 180 = 162 holds 3; 0.9 x 200 = 180 holds 4; 0.75 x 200 = 150 holds 2.
    """
    attempts = [ran(1, 120.0, 1.0), ran(4, 180.0, 2.0)]
    if failed:
        attempts.append(BatchResult(micro_batch=failed, outcome="OOM"))
    found = answer(
        BatchSearch(attempts=tuple(attempts)),
        source="jobs",
        strategy="bisect",
        batches=TENS,
        card=2000.0,
        usable=usable,
        margin=margin,
        topology=Topology(nodes=1, tp=1, pp=1, dp=1, micro_batch=1),
        workload=space_for(model="llama-3-8b").workload,
        global_batch=None,
    )
    assert (found.safe, found.peak) == (safe, 180.0)
    assert [one.micro_batch for one in found.worth] == [1, 4]


@pytest.mark.parametrize(
    ("kind", "left_out"),
    [
        ("smi", {}),
        ("reserved", {"beside": CONTEXT_BYTES + COMMUNICATOR_BYTES}),
        ("allocated", {"beside": CONTEXT_BYTES + COMMUNICATOR_BYTES, "lost": FRAGMENT_SHARE}),
    ],
)
def test_figures_leave_out_the_context_and_fragments(kind: MemoryKind, left_out: dict[str, float]) -> None:
    assert held_back(kind) == left_out


def test_a_process_can_use_a_share_of_its_card() -> None:
    cluster: Any = SimpleNamespace(gpu=SimpleNamespace(memory=1000.0))
    assert usable_bytes(cluster) == approx(1000 * USABLE_SHARE)


@pytest.mark.parametrize(
    ("start", "strategy", "first"), [(None, "ramp", 64), (None, "bisect", 2), (None, "model", 2), (8, "ramp", 8)]
)
def test_a_search_starts_at_the_smallest_batch_and_a_ramp_at_64(start: int | None, strategy: str, first: int) -> None:
    grid = grid_for((2, 4, 8), start=start, strategy=strategy, room=5.0, beside=1.0)
    assert (grid.start, grid.increment, grid.room, grid.beside, grid.lost) == (first, 16, 5.0, 1.0, 0.0)


@pytest.mark.parametrize(
    ("step", "most", "batches"),
    [
        (None, 3, [1, 2, 3]),
        (3, 8, [3, 6]),
        ("3", 9, [3, 6, 9]),
        (4, 4, [4]),
        ("x2", 9, [1, 2, 4, 8]),
        ("x2", 8, [1, 2, 4, 8]),
        (2048, None, [2048, 4096]),
    ],
)
def test_batches_are_multiples_of_a_step_or_powers_of_two(step: Any, most: int | None, batches: list[int]) -> None:
    assert list(batch_steps(step, most)) == batches


@pytest.mark.parametrize(("step", "most"), [(0, 4), (5, 4), ("x3", 4), (MAX_MICRO_BATCH + 1, None)])
def test_a_step_is_no_more_than_the_largest_batch(step: Any, most: int | None) -> None:
    with pytest.raises(InputError, match=f"is neither x2 nor a number from 1 to {most or MAX_MICRO_BATCH}"):
        batch_steps(step, most)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, ""),
        ({"margin": 0.0, "limit": 0.001, "most": 1, "start": None}, ""),
        ({"margin": 0.9}, ""),
        ({"margin": -0.01}, "--margin must be between 0 and 0.9 (got -0.01)"),
        ({"margin": 0.91}, "--margin must be between 0 and 0.9 (got 0.91)"),
        ({"limit": 0.0}, "--limit must be positive (got 0.0)"),
        ({"limit": -1.0}, "--limit must be positive (got -1.0)"),
        ({"start": 3, "most": 0}, "--most must be at least 1 (got 0)"),
    ],
)
def test_numbers_of_a_search_for_batches_have_bounds(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)) if words else nullcontext():
        _check_numbers(**{"margin": 0.1, **given})
