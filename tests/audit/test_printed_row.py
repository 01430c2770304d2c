"""What a printed row implies."""

from __future__ import annotations

import pytest

from tuner.audit.evidence import figures
from tuner.audit.printed_row import PrintedRow
from tuner.tables import table_of

HEADER = "gpu,gpus_per_node,nodes,layers,hidden,heads,tp,pp,vpp,dp,mbs,gbs,precision,sec_per_iter,tflops\n"


def printed(cells: str) -> PrintedRow:
    (row,) = table_of(HEADER + cells + "\n", "t.csv").rows
    assert row.run
    return PrintedRow(row=row, run=row.run)


def test_microbatches_and_bubble_follow_from_the_degrees() -> None:
    """512 sequences in micro-batches of 2 on 4 replicas are 64; 5 stages wait, two chunks halve that."""
    row = printed("A100-80GB-SXM,8,24,24,4096,32,8,6,2,4,2,512,bf16,10.0,100")
    assert (row.micro_batch, row.gpus, row.microbatches) == (2, 192, 64)
    assert row.bubble == pytest.approx(1 + 5 / (2 * 64))
    assert row.peak == pytest.approx(312e12)


def test_a_figure_is_rounded_by_half_of_its_last_digit() -> None:
    row = printed("A100-80GB-SXM,8,1,24,4096,32,8,1,1,1,2,512,bf16,10.0,100")
    assert row.rounding("sec_per_iter") == pytest.approx(0.05 / 10)
    assert row.rounding("tflops") == pytest.approx(0.5 / 100)
    assert row.rounding("mem_gib") == 0.0
    assert row.text("sec_per_iter") == "10.0"


def test_a_figure_is_printed_in_the_unit_of_its_column() -> None:
    row = printed("A100-80GB-SXM,8,1,24,4096,32,8,1,1,1,2,512,bf16,13500 ms,100 TFLOPs")
    assert (row.text("sec_per_iter"), row.text("tflops"), row.text("mem_gib")) == ("13.5", "100", "nothing")
    assert figures(row.row) == "13.5 s, 100 TFLOPs"
