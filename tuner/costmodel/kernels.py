"""Seconds of one kernel on one GPU: dense products by a roofline with tiles and waves, traffic by bandwidth.

The constants marked "fitted" are one fit to five published sources at once (BLOOM's and the 104B's tune-ups, Narayanan
et al. 2021, and two tables that are not shipped); `docs/model.md` says how, and what each source is missed by when it
is left out of the fit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tuner.core.columns import FloatArray
from tuner.core.domain import Gpu, Workload
from tuner.costmodel.constants import (
    ALIGNMENT_SPEEDS,
    MEMORY_BANDWIDTH_SHARE,
    SUSTAINED_PRODUCT_SHARE,
    TILE_SPEEDS,
    WAVE_SHARING,
)
from tuner.costmodel.site_factors import SiteFactors


def size_of(workload: Workload) -> float:
    """Bytes of one activation, weight or gradient."""
    return 4.0 if workload.precision == "fp32" else 2.0


def beside_layers(gpu: Gpu, workload: Workload) -> Workload:
    """The workload as attention's kernel and the head run it: an fp8 training multiplies only its layers' matrices so.

    NVIDIA, Transformer Engine, `LayerNormLinear` and its like; attention in fp8 is opt-in.
    """
    halves = workload.precision == "fp8" and "bf16" in gpu.peak_flops
    return replace(workload, precision="bf16") if halves else workload


def product_rate(gpu: Gpu, workload: Workload, site: SiteFactors) -> float:
    """FLOP/s of a large, well-shaped matrix product."""
    return gpu.peak_flops[workload.precision] * gpu.achievable * SUSTAINED_PRODUCT_SHARE * site.products


def traffic_rate(gpu: Gpu, site: SiteFactors) -> float:
    """Bytes a second of element-wise kernels."""
    return gpu.memory_bandwidth * MEMORY_BANDWIDTH_SHARE * site.traffic


def alignment(size: Any) -> FloatArray:
    """Speed of a product by one of its inner sizes."""
    size = np.asarray(size, dtype=np.int64)
    speed = np.full(size.shape, ALIGNMENT_SPEEDS[-1][1])
    for multiple, factor in reversed(ALIGNMENT_SPEEDS[:-1]):
        speed = np.where(size % multiple == 0, factor, speed)
    return speed


def product(gpu: Gpu, rate: Any, moved: float, m: Any, n: Any, k: Any) -> FloatArray:
    """Seconds of an m x k by k x n product; `moved` is the traffic rate in elements a second."""
    fastest: Any = np.inf
    for tall, wide, speed in TILE_SPEEDS:
        waves = np.ceil(m / tall) * np.ceil(n / wide) / gpu.sms
        waves = np.where(waves > 1, np.ceil(waves) * (1 - WAVE_SHARING) + waves * WAVE_SHARING, 1.0)
        fastest = np.minimum(fastest, waves * (2.0 * tall * wide * gpu.sms / speed))
    by_operations = fastest * k / rate
    by_traffic = (m * k + k * n + m * n) / moved
    seconds: FloatArray = np.maximum(by_operations, by_traffic)
    return seconds


def linear(
    gpu: Gpu, workload: Workload, site: SiteFactors, tokens: Any, n: Any, k: Any
) -> tuple[FloatArray, FloatArray]:
    """Seconds of a linear layer's forward product, and of the two of its backward pass."""
    n, k = np.maximum(1, np.ceil(n)), np.maximum(1, np.ceil(k))
    rate = product_rate(gpu, workload, site) * np.minimum(alignment(n), alignment(k))
    moved = traffic_rate(gpu, site) / size_of(workload)
    inputs, weights = product(gpu, rate, moved, tokens, k, n), product(gpu, rate, moved, k, n, tokens)
    return product(gpu, rate, moved, tokens, n, k), inputs + weights
