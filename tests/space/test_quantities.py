"""Quantities used by rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.workers import ONE, WORKLOAD
from tuner.core.catalog import cluster
from tuner.core.columns import Columns
from tuner.core.domain import Attention
from tuner.space.rules.quantities import longest_flash_head, softmax_block


@pytest.mark.parametrize(("attention", "width"), [("flash1", 128), ("flash2", 256)])
def test_each_flash_attention_has_a_maximum_head_size(attention: Attention, width: int) -> None:
    columns = Columns.of([ONE], replace(WORKLOAD, attention=attention), cluster("bloom-48"))
    assert longest_flash_head(columns) == width


@pytest.mark.parametrize(("seq", "batches"), [(64, 8), (128, 8), (129, 4), (2048, 4)])
def test_a_block_of_the_fused_softmax_has_two_rows_per_warp_up_to_128_keys(seq: int, batches: int) -> None:
    assert softmax_block(seq) == batches
