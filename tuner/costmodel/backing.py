"""Which measured tables back an estimate, and how much less certain it is without any."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tuner.core.domain import Cluster, Framework, Workload
from tuner.core.text import listed
from tuner.costmodel.calibration import Calibration

MEASURED_GPUS: Final = ("A100", "V100", "H100", "H200", "B200", "B300", "GB200", "GB300")
"""GPUs with timed training runs on several of them in corpus/, by the first word of their names in the catalog."""

MEASURED_FRAMEWORKS: Final[tuple[Framework, ...]] = ("megatron-core", "megatron-deepspeed", "fsdp2", "torchtitan")
"""Frameworks with timed training runs on several GPUs in corpus/; BLOOM's tables and those before it are
Megatron-DeepSpeed's."""


def unmeasured(workload: Workload, cluster: Cluster) -> str:
    """Return a sentence about the GPU, kind of layers or framework without measurements; empty if all have some."""
    family = cluster.gpu.name.split("-", maxsplit=1)[0]
    missing = [family] * (family not in MEASURED_GPUS) + ["Gated DeltaNet"] * (workload.model.delta_net is not None)
    if workload.framework is not None and workload.framework not in MEASURED_FRAMEWORKS:
        missing.append(workload.framework)
    if not missing:
        return ""
    names = " or ".join(missing)
    return f"not validated: tuner has no measurements of several GPUs for {names}, so intervals are wider"


def calibrated_on(calibration: Calibration, workload: Workload, cluster: Cluster) -> str:
    """Return what a calibration was measured on, in words; empty if it was measured on nothing."""
    if calibration.is_unplaced:
        return "a GPU that its file does not name"
    if calibration.known is None and not calibration.weighed and not calibration.measured_on:
        return ""
    if calibration.simulated:
        return "SIMULATED measurements"
    return _places(calibration) if calibration.elsewhere(workload, cluster) else "this site"


def mismatch(calibration: Calibration, settings: Iterable[tuple[Workload, Cluster]]) -> str:
    """Return a sentence about the GPUs and frameworks on which nothing was measured; empty if there are none."""
    if calibration.is_unplaced:
        return (
            "the calibration does not record the GPU on which it was measured: estimates may be off, and intervals are "
            "at least as wide as without calibration; recreate it with tuner doctor --measure or tuner calibrate."
        )
    stated = any(framework for _, framework in calibration.measured_on)
    cards = {gpu for gpu, _ in calibration.measured_on}
    others, unstated = list[str](), False
    for workload, cluster in settings:
        if calibration.elsewhere(workload, cluster):
            same_card = cluster.gpu.name in cards
            others.append(_place(cluster.gpu.name, workload.framework if stated or same_card else None))
            unstated |= same_card and not stated
    if not others:
        return ""
    missing = " with no framework stated" if unstated else ""
    remedy = "; if the framework is the same, calibrate with --default framework=NAME" if unstated else ""
    return (
        f"the calibration was measured on {_places(calibration)}{missing}, not on "
        f"{listed(dict.fromkeys(others), limit=4)}: estimates may be off, and intervals are at least as wide as "
        f"without calibration{remedy}."
    )


def _places(calibration: Calibration) -> str:
    return listed((_place(gpu, framework) for gpu, framework in sorted(calibration.measured_on)), limit=4)


def _place(gpu: str, framework: str | None) -> str:
    return f"{gpu} with {framework}" if framework else gpu
