"""The cost model's constants of Gated DeltaNet and of gated attention, each with its unit and its source.

None is fitted to training runs. `RECORDS` has the record of each by name.
"""

from __future__ import annotations

from typing import Final

from tuner.costmodel.constants import ConstantRecords

RECORDS: Final = ConstantRecords()
_constant: Final = RECORDS.add

_kernels: Final = (
    "QwenLM/FlashQLA at c18a4860, benchmark/benchmark_results_H200.txt and benchmark_results_GB200.txt: FLA 0.5, heads "
    "of 128, sequences of 2,048 to 32,768; straight lines through one sequence of 8,192 with 4 to 64 heads"
)

DELTA_RULE_SECONDS: Final = _constant(
    "DELTA_RULE_SECONDS",
    {"hopper": ((1.27e-9, 18.3e-9), (3.65e-9, 59e-9)), "blackwell": ((1.06e-9, 25.4e-9), (3.68e-9, 71.8e-9))},
    "seconds per token and head, and per token of a scan, by pass",
    _kernels,
)
"""Kernels of the gated delta rule, forward and backward, on an H200 and a GB200."""

DELTA_HEADS: Final = _constant("DELTA_HEADS", 64.0, "heads", _kernels)
"""Heads of all sequences up to which the scan over chunks takes as long as one."""

DELTA_WIDTH: Final = _constant("DELTA_WIDTH", 128.0, "elements", _kernels)
"""Width of the benchmarks' heads."""

DELTA_REFERENCES: Final = _constant(
    "DELTA_REFERENCES",
    {"hopper": (132, 989e12), "blackwell": (148, 2500e12)},
    "SMs, and FLOP/s in bf16",
    "vendors' data sheets: H200, GB200",
)
"""The GPUs of these figures."""

DELTA_TENSOR_SHARE: Final = _constant(
    "DELTA_TENSOR_SHARE",
    0.14,
    "share",
    "MoonshotAI/FlashKDA at 1ce47ea3, BENCHMARK_H20.md: fla_chunk_gdn takes 2.01 ms for 64 heads on an H20, with 78 "
    "multiprocessors of a quarter of an H200's tensor rate each, 0.13 ms of it for a norm; an H200 takes 0.81 ms",
)
"""Share of their time on an H200 that follows the rate of products; the rest follows the multiprocessors."""

GATE_BYTES: Final = _constant(
    "GATE_BYTES", 6.0, "bytes per token and column, forward", "counted: two reads and a write of 16-bit values"
)
"""Traffic of the gate of attention's output."""
