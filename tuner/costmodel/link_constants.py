"""The cost model's constants of links and of the rings and trees over them, each with its unit and its source.

None is fitted to training runs. `RECORDS` has the record of each by name.
"""

from __future__ import annotations

from typing import Final

from tuner.costmodel.constants import ConstantRecords

RECORDS: Final = ConstantRecords()
_constant: Final = RECORDS.add

MESHES: Final = _constant(
    "MESHES",
    {
        **dict.fromkeys(("V100", "A100", "A800", "H100", "H200", "GH200"), 4),
        **dict.fromkeys(("MI300X", "MI325X", "MI350X", "MI355X"), 8),
    },
    "GPUs of a board by the first word of the catalog's name",
    "NVIDIA's boards of 4 have no NVSwitch (https://devblogs.nvidia.com/introducing-hgx-a100-most-powerful-accelerated-"
    "server-platform-for-ai-hpc/), AMD's of 8 no switch either (ROCm/rccl pull request 1270)",
)
"""Boards without a switch, on which each pair of GPUs has links of its own."""

XGMI_SHARE: Final = _constant(
    "XGMI_SHARE",
    0.75,
    "share",
    "48 of 64 GB/s, less headers and CRC (https://rocm.blogs.amd.com/software-tools-optimization/mi300x-rccl-xgmi)",
)
"""Share of its nominal bandwidth that a link between AMD's GPUs has for data."""

TREE_BANDWIDTH_SHARE: Final = _constant(
    "TREE_BANDWIDTH_SHARE", 0.9, "share", "NVIDIA/nccl at 01afd20a, src/graph/tuning.cc: ncclTopoTuneModel"
)
"""Bandwidth of a tree of nodes over that of a ring."""

COLLIDING_SHARE: Final = _constant("COLLIDING_SHARE", 0.5, "share", "counted: two rings on one link")
"""Rate of a ring that meets another one on a link between switches, over that of a ring alone."""

LEAF_SPAN: Final = _constant(
    "LEAF_SPAN", 256.0, "ranks", "NVIDIA DGX SuperPOD with DGX H100: 32 nodes of 8 GPUs share their leaf switches"
)
"""GPUs over which a ring comes to meet others; on 256 NVIDIA/nccl issue 1218 has 200 of 400 GB/s."""
