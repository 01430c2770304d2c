"""What runs that fitted or ran out of memory teach about memory, without any figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tuner.core.columns import Columns
from tuner.core.keys import parse_key
from tuner.costmodel.constants import MEMORY_DEVIATION
from tuner.costmodel.memory import limit, worst_need
from tuner.costmodel.memory_calibration import MeasuredMemory, usual_deviation, weigh
from tuner.costmodel.site_factors import SiteFactors
from tuner.space.build import space_for

SPACE = space_for(model="llama-3-8b", gpu="H100-80GB-SXM", nodes=4, global_batch=512)


def run(key: str, share: float, *, fitted: bool = True, times: int = 1, gib: float = np.nan) -> MeasuredMemory:
    """Equal runs on a card of which the estimate needs this share."""
    topology = parse_key(key, workload=SPACE.workload, cluster=SPACE.cluster)
    columns = Columns.of([topology] * times, SPACE.workload, SPACE.cluster)
    need, card = float(worst_need(columns, SiteFactors()).total[0]), SPACE.cluster.gpu
    for _ in range(20):
        card = replace(card, memory=card.memory + need / share - limit(columns))
        columns = Columns(columns.workload, replace(columns.cluster, gpu=card), columns.arrays)
    ran, memory = np.full(times, fitted), np.full(times, gib * 2**30)
    return MeasuredMemory(columns=columns, memory=memory, kind="smi", fitted=ran, failed=~ran)


def activations(*rows: MeasuredMemory) -> float:
    return weigh(rows, SiteFactors())[0].activations


def deviation(*rows: MeasuredMemory) -> float:
    return weigh(rows, SiteFactors())[1]


KEYS = ("tp1-pp1-dp32-mbs1-z1", "tp2-pp1-dp16-mbs2-z1", "tp4-pp1-dp8-mbs4-z1")


def test_a_layout_that_ran_many_times_counts_once() -> None:
    assert activations(run(KEYS[0], 1.05)) < 1
    assert activations(run(KEYS[0], 1.05, times=20)) == activations(run(KEYS[0], 1.05))
    assert activations(*[run(KEYS[0], 1.05)] * 20) == activations(run(KEYS[0], 1.05))
    assert activations(*(run(key, 1.05) for key in KEYS)) < activations(run(KEYS[0], 1.05))


@pytest.mark.parametrize("fitted", [True, False])
def test_an_outcome_far_beyond_the_limit_says_nothing(fitted: bool) -> None:
    """Three deviations are 19.7%; the deviation counts such a run, and the factors do not."""
    assert usual_deviation(SPACE.workload) == MEMORY_DEVIATION

    def shares(off: float) -> Sequence[MeasuredMemory]:
        return [run(key, np.exp(off if fitted else -off), fitted=fitted) for key in KEYS]

    near, far = shares(2.9 * MEMORY_DEVIATION), shares(3.1 * MEMORY_DEVIATION)
    assert activations(*far) == 1.0
    assert weigh(near, SiteFactors())[0] != SiteFactors()
    assert deviation(*far) == pytest.approx(MEMORY_DEVIATION * np.sqrt((6 + 3 * 3.1**2) / 9))


def test_figures_decide_what_is_far() -> None:
    """A run 25% beyond the limit is informative where a figure shows that activations are smaller."""
    plain = float(worst_need(run(KEYS[0], 1.0).columns, SiteFactors()).total[0]) / 2**30
    figures = [run(key, 0.7, gib=0.75 * plain) for key in KEYS[:1] * 8]
    assert activations(*figures, run(KEYS[1], 1.25)) < activations(*figures)


def test_outcomes_that_agree_do_not_change_the_deviation() -> None:
    assert deviation(run(KEYS[0], 0.8), run(KEYS[1], 1.3, fitted=False)) == MEMORY_DEVIATION
    both = [run(KEYS[0], 1.0 + off, fitted=fitted) for off, fitted in ((0.1, True), (-0.1, False))]
    assert deviation(*both) > MEMORY_DEVIATION
