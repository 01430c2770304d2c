"""Figures of a node, of a microbatch or of all GPUs, which are no figures of an iteration or of one GPU."""

from __future__ import annotations

import pytest

from tuner.tables.headers import header_of


@pytest.mark.parametrize(
    ("header", "column"),
    [
        ("step time (s/microbatch)", "sec_per_iter"),
        ("step time (s per epoch)", "sec_per_iter"),
        ("Mem (GB/node)", "mem_gib"),
        ("memory (GB, all GPUs)", "mem_gib"),
        ("mem_gib (sum)", "mem_gib"),
        ("TFLOPs (total)", "tflops"),
        ("TFLOPs (per node)", "tflops"),
        ("TFLOPs (cluster)", "tflops"),
        ("TFLOPs (PF)", "tflops"),
        ("GBS (per GPU)", "gbs"),
        ("global batch size (M)", "gbs"),
    ],
)
def test_a_figure_of_another_scope_is_refused(header: str, column: str) -> None:
    assert f"is not a unit of {column}" in header_of(header).refused


@pytest.mark.parametrize(
    ("header", "unit"),
    [
        ("step time (s/it)", ""),
        ("Mem (MiB/GPU)", "mib"),
        ("Mem (GiB per rank)", ""),
        ("TFLOPs (per GPU)", ""),
        ("GBS", ""),
    ],
)
def test_a_figure_of_one_gpu_or_iteration_is_read(header: str, unit: str) -> None:
    assert (header_of(header).unit, header_of(header).refused) == (unit, "")
