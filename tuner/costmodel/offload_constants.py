"""The cost model's constants of offload, each with its unit and its source; `RECORDS` has each one's record."""

from __future__ import annotations

from typing import Final

from tuner.costmodel.constants import ConstantRecords

RECORDS: Final = ConstantRecords()
_constant: Final = RECORDS.add

HOST_LINK_BANDWIDTH: Final = _constant(
    "HOST_LINK_BANDWIDTH", 25e9, "bytes per second, one way", "80% of PCIe 4.0 x16's 31.5e9; no source for the share"
)
"""A GPU's link to the main memory of its node, for offloaded states."""

CPU_ADAM_SECONDS: Final = _constant(
    "CPU_ADAM_SECONDS",
    2.5e-9,
    "seconds per parameter of a node",
    "fitted to LLaMA-7B on 8 A800 and two Xeon 8358 (https://gist.github.com/chenyaofo/d4cd6a20ab4b95cb3a49491747e2139a)",
)
"""Time of the step of DeepSpeed's Adam on the CPUs of a node, which its ranks share."""

TORCH_ADAM_SECONDS: Final = _constant(
    "TORCH_ADAM_SECONDS",
    0.19e-9,
    "seconds per parameter of a node",
    "fitted to Megatron-Bridge's Qwen3-30B on H100 with and without offload (corpus/modern/bridge-skills-h100.csv)",
)
"""Time of the step of PyTorch's fused AdamW on the CPUs of a node, which its ranks share."""

MASTER_BYTES: Final = _constant("MASTER_BYTES", 4.0, "bytes per parameter", "counted: fp32")
"""The weight that Megatron-Core's offloaded optimizer updates and returns, and keeps on the GPU unless it is
precision-aware."""
