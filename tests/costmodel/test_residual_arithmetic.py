"""Covariances of two rows' residuals of time and memory, compared with closed forms."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pytest

from tests.mixtures import TINY_EXPERTS
from tuner.core.catalog import cluster
from tuner.core.columns import Columns
from tuner.core.domain import Topology, Workload
from tuner.costmodel.calibration import Calibration
from tuner.costmodel.constants import (
    CLIFF_DEVIATION,
    KERNEL_DEVIATION,
    PERIOD_DEVIATION,
    REDUCTION_DEVIATION,
    SHAPE_DEVIATION,
    SHAPE_LENGTH_SCALE,
)
from tuner.costmodel.residual_features import SMOOTH, UNSEEN, Features, covariance, joined
from tuner.search.constants import OWN_DEVIATION
from tuner.search.memory_posterior import memory_covariance
from tuner.search.observations import Jobs, Trust
from tuner.search.time_prior import TimePrior


def features(
    smooth: float = 0.0, cliff: float = 1.0, sp: bool = False, kernel: str = "k", period: str = "p"
) -> Features:
    """Return the features of one row, with `smooth` doublings as the first smooth feature."""
    row = np.zeros((1, len(SMOOTH)))
    row[0, 0] = smooth
    return Features(
        smooth=row,
        cliff=np.array([[cliff, 2.0, 3.0]]),
        kernel=np.array([kernel]),
        sequence_parallel=np.array([sp]),
        period=np.array([period]),
    )


@pytest.mark.parametrize(
    ("changes", "near", "cliff", "reduction", "kernel", "period"),
    [
        ({}, 1, 1, 1, 1, 1),
        ({"smooth": 2.0}, math.exp(-0.5 * float(np.ravel(2.0 / np.asarray(SHAPE_LENGTH_SCALE))[0]) ** 2), 1, 1, 1, 1),
        ({"cliff": 9.0}, 1, 0, 0, 1, 1),
        ({"sp": True}, 1, 1, 0, 1, 1),
        ({"kernel": "x"}, 1, 1, 1, 0, 1),
        ({"period": "x"}, 1, 1, 1, 1, 0),
    ],
)
def test_rows_share_what_they_have_in_common(
    changes: dict[str, Any], near: float, cliff: int, reduction: int, kernel: int, period: int
) -> None:
    """Covariance is shape^2 exp(-d^2 / 2) + cliff^2 + reduction^2 + kernel^2 + period^2 of what both rows share.

    For memory it is (1 + kernel + exp(-d^2 / 2)) / 3.
    """
    expected = SHAPE_DEVIATION**2 * near + CLIFF_DEVIATION**2 * cliff + REDUCTION_DEVIATION**2 * reduction
    expected += KERNEL_DEVIATION**2 * kernel + PERIOD_DEVIATION**2 * period
    assert covariance(features(), features(**changes)) == pytest.approx(np.array([[expected]]))
    assert memory_covariance(features(), features(**changes)) == pytest.approx(np.array([[(1 + kernel + near) / 3]]))
    assert covariance(features(), features())[0, 0] < UNSEEN**2


def test_jobs_share_their_own_residual_with_those_of_the_same_candidate() -> None:
    """The covariance of two jobs is that of their features, and `own` more for jobs of one candidate."""
    prior = TimePrior.of(Trust(unsure=2.0), Trust(unsure=2.0), Calibration(), elsewhere=False)
    rows = [features(smooth=number / 4, kernel=str(number % 2)) for number in range(20)]
    jobs = [Jobs(row, np.array([number % 3]), (None,)) for number, row in enumerate(rows)]
    seen = reduce(Jobs.plus, jobs)
    expected = 2.0**2 * covariance(rows[1], joined(rows))[0] + (2.0 * OWN_DEVIATION) ** 2 * (np.arange(20) % 3 == 1)
    assert prior.covariance(jobs[1], seen)[0] == pytest.approx(expected)
    assert prior.covariance(jobs[1], seen.rows(slice(5)))[0] == pytest.approx(expected[:5])


def test_kernels_differ_by_the_dispatcher_only_where_there_are_experts() -> None:
    """With experts, the dispatcher is part of the kernel, and ep and etp are part of the cliff feature beside tp."""
    topology = Topology(nodes=1, tp=2, pp=1, dp=4, micro_batch=1, ep=4, etp=2)
    others = [topology, replace(topology, dispatcher="deepep"), replace(topology, ep=2), replace(topology, etp=1)]
    machines = cluster("bloom-48")
    mixed = Features.of(Columns.of(others, Workload(model=TINY_EXPERTS, global_batch=8), machines))
    words = [word.split()[-1] for word in mixed.kernel]
    assert words == ["alltoall", "deepep", "alltoall", "alltoall"]
    assert mixed.cliff[:, 2].tolist() == [
        2 + 2**15 * (ep + 2**15 * etp) for ep, etp in ((4, 2), (4, 2), (2, 2), (4, 1))
    ]
    dense = Columns.of(others[:2], Workload(model=replace(TINY_EXPERTS, experts=None), global_batch=8), machines)
    first, second = Features.of(dense).kernel
    assert first == second
    assert first.split()[-1].isdecimal()
    assert Features.of(dense).cliff[:, 2].tolist() == [2, 2]
