"""Micro-batches that are tried."""

from __future__ import annotations

import pytest

from tests.workers import ONE
from tuner.sizing.probes import doubled, one_batch


@pytest.mark.parametrize(("most", "sizes"), [(1, (1,)), (2, (1, 2)), (7, (1, 2, 4)), (8, (1, 2, 4, 8))])
def test_sizes_double_from_one_up_to_the_largest(most: int, sizes: tuple[int, ...]) -> None:
    assert doubled(most) == sizes


def test_a_probe_runs_one_micro_batch_on_each_replica() -> None:
    from dataclasses import replace

    made = one_batch(replace(ONE, dp=4), 3)
    assert (made.micro_batch, made.global_batch) == (3, 12)
