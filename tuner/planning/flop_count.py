"""`tuner.flops`: FLOPs of one iteration, and TFLOPs, MFU and days of training from a measured time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuner.core.columns import Columns
from tuner.core.domain import Topology
from tuner.core.errors import InputError
from tuner.core.keys import parse_key
from tuner.core.text import DAY
from tuner.costmodel.flops import (
    hardware_flops,
    megatron_core_count,
    model_flops,
    older_estimate,
    per_gpu,
    training_seconds,
)
from tuner.space.build import SpaceArguments, space_or
from tuner.space.space import Space

if TYPE_CHECKING:
    from typing_extensions import Unpack


_OLDER: Final = (None, "megatron-deepspeed")
"""Frameworks whose logs may print the older formula; None is any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopCount:
    """FLOPs of one iteration on all GPUs; rates are FLOP/s per GPU, None without a time."""

    topology: Topology
    model: float
    hardware: float
    """With recompute."""
    peak: float
    """The GPU's in the workload's precision."""
    seconds: float | None
    model_rate: float | None
    hardware_rate: float | None
    older_rate: float | None
    """By the formula of Megatron-DeepSpeed before February 2022; None for other frameworks, and for experts."""
    megatron_core: float
    """As Megatron-Core and Megatron-Bridge count: half of the scores, no router, no recompute."""
    megatron_core_rate: float | None
    tokens: float
    days: float | None
    cost: float | None

    @property
    def mfu(self) -> float | None:
        """Return the share of the peak, without recompute."""
        return self.model_rate / self.peak if self.model_rate else None

    @property
    def hfu(self) -> float | None:
        """Return the share of the peak, with recompute."""
        return self.hardware_rate / self.peak if self.hardware_rate else None

    @property
    def gpu_hours(self) -> float | None:
        """Return the GPU-hours of the whole training."""
        return self.days * 24 * self.topology.gpus if self.days else None


def flops(
    key: str,
    space: Space | None = None,
    *,
    seconds: float | None = None,
    price: float | None = None,
    **description: Unpack[SpaceArguments],
) -> FlopCount:
    """Count the FLOPs of one iteration, and convert a measured time to rates and days of training.

    Every argument is the option of `tuner flops` with the same name; a `space`, or the arguments of `space_for`,
    describe the model and the cluster. `price` is that of one GPU-hour.

    >>> import tuner
    >>> counted = tuner.flops("tp8-pp12-dp4-mbs1-z1", seconds=143.31)
    >>> round(counted.hardware_rate / 1e12, 2)
    112.49
    """
    for name, value in (("seconds", seconds), ("price", price)):
        if value is not None and not 0 < value < math.inf:
            raise InputError(f"--{name} must be positive (got {value}).")
    if price is not None and seconds is None:
        raise InputError("--price requires --seconds, to compute the cost of the training.")
    space = space_or(space, description)
    topology = parse_key(key, **space.key_context)
    workload = space.workload.as_in(topology)
    columns = Columns.of([topology], workload, space.cluster)
    counts = [count(columns) for count in (model_flops, hardware_flops, older_estimate, megatron_core_count)]
    rates = [float(per_gpu(count, seconds, columns)[0]) if seconds else None for count in counts]
    days = float(training_seconds(seconds, columns)[0]) / DAY if seconds else None
    return FlopCount(
        topology=topology,
        model=float(counts[0][0]),
        hardware=float(counts[1][0]),
        peak=space.cluster.gpu.peak_flops[workload.precision],
        seconds=seconds,
        model_rate=rates[0],
        hardware_rate=rates[1],
        older_rate=rates[2] if workload.framework in _OLDER and not workload.model.experts else None,
        megatron_core=float(counts[3][0]),
        megatron_core_rate=rates[3],
        tokens=workload.training_tokens,
        days=days,
        cost=price * days * 24 * topology.gpus if price and days else None,
    )
