"""Which measured tables back an estimate, and how much less certain it is without any."""

from __future__ import annotations

from typing import Final

from tuner.core.domain import Cluster, Framework, Workload

MEASURED_GPUS: Final = ("A100", "V100", "H100", "H200", "B200", "B300", "GB200", "GB300", "MI300X", "MI325X")
"""GPUs with timed trainings in corpus/, by the first word of their names in the catalog."""

MEASURED_FRAMEWORKS: Final[tuple[Framework, ...]] = ("megatron-core", "megatron-deepspeed", "fsdp2", "torchtitan")
"""Frameworks with timed trainings in corpus/; BLOOM's tables and those before it are Megatron-DeepSpeed's."""


def unmeasured(workload: Workload, cluster: Cluster) -> str:
    """Return a sentence about the GPU or framework without a measured table; empty if both have tables."""
    family = cluster.gpu.name.split("-", maxsplit=1)[0]
    missing = [family] * (family not in MEASURED_GPUS)
    if workload.framework is not None and workload.framework not in MEASURED_FRAMEWORKS:
        missing.append(workload.framework)
    return f"no measured {' or '.join(missing)} table behind this estimate" if missing else ""
