"""Micro-batches that are tried, and the command that tries them."""

from __future__ import annotations

import pytest

from tests.conftest import Run
from tests.workers import ONE
from tuner.sizing.probes import doubled, one_batch


@pytest.mark.parametrize(("most", "sizes"), [(1, (1,)), (2, (1, 2)), (7, (1, 2, 4)), (8, (1, 2, 4, 8))])
def test_sizes_double_from_one_up_to_the_largest(most: int, sizes: tuple[int, ...]) -> None:
    assert doubled(most) == sizes


def test_a_probe_runs_one_micro_batch_on_each_replica() -> None:
    from dataclasses import replace

    made = one_batch(replace(ONE, dp=4), 3)
    assert (made.micro_batch, made.global_batch) == (3, 12)


def test_an_empty_command_is_refused_instead_of_estimated(run: Run) -> None:
    """A script whose variable for the command is empty gets no estimates in place of its jobs' figures."""
    said = run("max-batch", "--model", "tiny", "--command", "")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("tuner: --command is empty; pass for example ")
    assert "requires --launcher local" in run("max-batch", "--command", "", "--launcher", "estimate").err
