"""Seconds of one kernel on one GPU: dense products by a roofline with tiles and waves, traffic by bandwidth.

The constants marked "fitted" are one fit to five published sources at once (BLOOM's and the 104B's tune-ups, Narayanan
et al. 2021, and two tables that are not shipped); `docs/model.md` says how, and what each source is missed by when it
is left out of the fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from tuner.core.columns import FloatArray
from tuner.core.domain import Gpu, Workload
from tuner.core.precision import bf16_layers, recipe_of, stores_fp8_weights
from tuner.costmodel.constants import (
    ALIGNMENT_SPEEDS,
    FLASH_BACKWARD_SPEED,
    FLASH_SPEED,
    MEMORY_BANDWIDTH_SHARE,
    SUSTAINED_PRODUCT_SHARE,
    TILE_SPEEDS,
    WAVE_SHARING,
)
from tuner.costmodel.framework_terms import terms_of
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stack_constants import (
    ATTENTION_BACKWARD_RATES,
    ATTENTION_PEAK,
    ATTENTION_RATES,
    CAST_DIRECTIONS,
    CAST_READS,
    EARLIER_CUDNN_SPEEDS,
    FILLED_SIZE,
    FILLING_ELEMENTS,
    FP8_ACHIEVABLE,
    GENERATIONS,
    GRACE_HOST_RATIO,
    GROUPED_PRODUCT_STREAMS,
    HEAD_SPEEDS,
    PRODUCT_FLOPS_PER_JOULE,
    PRODUCT_POWER,
    QUANTIZED_BYTES,
    QUANTIZED_FLOPS_PER_JOULE,
    QUANTIZED_WEIGHT_BYTES,
    WORKSPACE_BYTES,
)

_GRACE: Final = ("GB200", "GB300", "GH200")
"""Beginnings of the names of GPUs whose host is NVIDIA's Grace."""

_EARLIER_CUDNN: Final = (9, 13)
"""The last version for which `EARLIER_CUDNN_SPEEDS` hold."""

_WHOLE: Final = ("delayed", "tensorwise")
"""Recipes with one scale for a whole tensor."""


def size_of(workload: Workload) -> float:
    """Bytes of one activation, weight or gradient."""
    return 4.0 if workload.precision == "fp32" else 2.0


def saved_bytes(workload: Workload) -> float:
    """Bytes of a value that a product keeps for its weight's gradient: Transformer Engine keeps what it cast to fp8 or
    fp4 (NVIDIA/TransformerEngine, pytorch/module/layernorm_linear.py and linear.py: save_for_backward)."""
    recipe = recipe_of(workload)
    return QUANTIZED_BYTES[recipe] if recipe and terms_of(workload).transformer_engine else size_of(workload)


def gathered_bytes(workload: Workload) -> tuple[float, float]:
    """Bytes of a value that tensor parallel ranks gather: of a product's input, and backward of its output's gradient.

    Transformer Engine gathers what it cast to fp8 or fp4, a gradient in both orientations unless one scale holds for
    all of it (NVIDIA/TransformerEngine at d0067d0d, pytorch/distributed.py: gather_along_first_dim).
    """
    cast, recipe = saved_bytes(workload), recipe_of(workload)
    both = recipe and recipe not in _WHOLE and terms_of(workload).transformer_engine
    return cast, 2 * cast if both else cast


def quantized_weight_bytes(gpu: Gpu, workload: Workload) -> float:
    """Bytes in which Transformer Engine keeps a weight for the products of both directions; 0 outside fp8 and fp4."""
    recipe = recipe_of(workload)
    if not recipe or not terms_of(workload).transformer_engine:
        return 0.0
    return _directions(gpu, recipe) * QUANTIZED_WEIGHT_BYTES[recipe]


def cast_bytes(gpu: Gpu, workload: Workload, *, normed: bool = False) -> float:
    """Return the bytes of traffic to cast a value to fp8 or fp4; 0 in other precisions.

    Transformer Engine's norms find the maximum for a per-tensor scale as they write (`normed`; pytorch/csrc/extensions/
    normalization.cpp at d0067d0d: create_unquantized_tensor_with_amax).
    """
    recipe = recipe_of(workload)
    if not recipe:
        return 0.0
    engine = terms_of(workload).transformer_engine
    passes = 1 if normed and engine and recipe == "tensorwise" else CAST_READS[recipe]
    directions = _directions(gpu, recipe) if engine else 2
    return passes * size_of(workload) + directions * QUANTIZED_BYTES[recipe]


def _directions(gpu: Gpu, recipe: str) -> int:
    """Return the number of orientations in which Transformer Engine keeps a cast tensor."""
    return CAST_DIRECTIONS.get(generation(gpu), CAST_DIRECTIONS["other"]) if recipe in _WHOLE else 2


def gathered_weight_bytes(workload: Workload) -> float:
    """Bytes of a layer's weight in the gather after a step: those stored in fp8 with a scale per tensor or block travel
    in fp8, those in mxfp8 in 16 bits (NVIDIA/Megatron-LM at d98e8a64, --reuse-grad-buf-for-mxfp8-param-ag)."""
    if not stores_fp8_weights(workload) or recipe_of(workload) == "mxfp8":
        return size_of(workload)
    halves = min(1.0, sum(bf16_layers(workload)) / workload.model.layers)
    return 1.0 + halves * (size_of(workload) - 1.0)


def copies_flash_output(gpu: Gpu, workload: Workload) -> bool:
    """Whether attention's output is kept twice: as FlashAttention wrote it and, sequence first, for the projection.

    So it is where Transformer Engine calls FlashAttention, before Hopper (NVIDIA/TransformerEngine, pytorch/attention/
    dot_product_attention/backends.py: FlashAttention.forward transposes and ends in output.contiguous()).
    """
    return workload.attention == "flash2" and terms_of(workload).transformer_engine and not generation(gpu)


def host_pace(gpu: Gpu, site: SiteFactors) -> float:
    """Return the time in which the host launches a kernel, over that of the hosts that its constants are from."""
    return site.host * (GRACE_HOST_RATIO if has_grace(gpu) else 1.0)


def has_grace(gpu: Gpu) -> bool:
    """Whether a GPU's host is NVIDIA's Grace."""
    return gpu.name.startswith(_GRACE)


def workspaces(gpu: Gpu, workload: Workload) -> float:
    """Bytes of the buffers in which cuBLAS puts parts of products: PyTorch's, Transformer Engine's, and one for each
    stream of grouped products."""
    own, engines = WORKSPACE_BYTES["other" if not generation(gpu) else "hopper"]
    return own + engines * (1 + (GROUPED_PRODUCT_STREAMS if workload.model.experts else 0))


def beside_layers(gpu: Gpu, workload: Workload) -> Workload:
    """The workload as attention's kernel and the head run it: only the layers' matrices are multiplied in fp8 or fp4.

    NVIDIA, Transformer Engine, `LayerNormLinear` and its like; attention in fp8 is opt-in.
    """
    halves = workload.is_quantized and "bf16" in gpu.peak_flops
    return replace(workload, precision="bf16") if halves else workload


def product_rate(gpu: Gpu, workload: Workload, site: SiteFactors) -> float:
    """FLOP/s of a large, well-shaped matrix product: what the kernel reaches, or what the power limit allows."""
    achievable, card, peak = gpu.achievable, family(gpu), gpu.peak_flops[workload.precision]
    if workload.is_quantized:
        achievable = FP8_ACHIEVABLE.get(card, achievable)
    rate = peak * achievable
    if card in PRODUCT_POWER and "bf16" in gpu.peak_flops:
        more = QUANTIZED_FLOPS_PER_JOULE.get(workload.precision, peak / gpu.peak_flops["bf16"])
        rate = min(rate, PRODUCT_POWER[card] * PRODUCT_FLOPS_PER_JOULE * more)
    return rate * SUSTAINED_PRODUCT_SHARE * site.products


def inner_speed(gpu: Gpu, workload: Workload, k: Any) -> Any:
    """Speed of a product by its inner size, relative to the longest: each tile is filled and stored once."""
    filling = FILLING_ELEMENTS.get(generation(gpu))
    if filling is None:
        return 1.0
    if workload.precision != "fp8":
        filling = filling / 2
    return (1 + filling / FILLED_SIZE) / (1 + filling / k)


def flash_rates(gpu: Gpu, workload: Workload, site: SiteFactors, seq: float) -> tuple[float, float]:
    """FLOP/s of flash attention over the causal half of sequences of that length, forward and backward.

    On Hopper and Blackwell the published rate of the kernel that the stack runs, as far as training sustains it.
    """
    known = generation(gpu)
    if not known or workload.attention != "flash2":
        rate = product_rate(gpu, beside_layers(gpu, workload), site) * site.attention / site.products
        forward = rate * FLASH_SPEED[workload.attention]
        return forward, forward * FLASH_BACKWARD_SPEED
    terms = terms_of(workload)
    kernel = "cudnn" if terms.transformer_engine else "flash2"
    clock = gpu.peak_flops.get("bf16", ATTENTION_PEAK[known]) / ATTENTION_PEAK[known]
    sustained = SUSTAINED_PRODUCT_SHARE * site.attention * clock
    speed, speed_back = _cudnn_speeds(known, terms.cudnn) if kernel == "cudnn" else (1.0, 1.0)
    forward = _at_length(ATTENTION_RATES[known, kernel], seq) * sustained
    back = _at_length(ATTENTION_BACKWARD_RATES[known, kernel], seq) * sustained
    return speed * forward, speed_back * back


def _cudnn_speeds(known: str, version: str | None) -> tuple[float, float]:
    """Return the relative speed of attention with this version of cuDNN, forward and backward."""
    if version is None or tuple(map(int, version.split(".")[:2])) > _EARLIER_CUDNN:
        return 1.0, 1.0
    return EARLIER_CUDNN_SPEEDS.get(known, (1.0, 1.0))


def head_speeds(gpu: Gpu, workload: Workload, head_size: FloatArray) -> tuple[Any, Any]:
    """Rates of attention with heads of such widths relative to those of `flash_rates`, forward and backward."""
    speeds = HEAD_SPEEDS.get(generation(gpu))
    if speeds is None or workload.attention != "flash2" or not terms_of(workload).transformer_engine:
        return 1.0, 1.0
    forward, backward = (np.interp(head_size, (64, 128, 192), side) for side in zip(*speeds, strict=True))
    return forward, backward


def _at_length(rates: Sequence[float], seq: float) -> float:
    """Return the rate at a number of tokens, of those at 512 and its doublings."""
    return float(np.interp(np.log2(seq), np.arange(len(rates)) + np.log2(512), rates))


def family(gpu: Gpu) -> str:
    """Return the first word of the GPU's name, by which constants of its kind are known."""
    return gpu.name.split("-", maxsplit=1)[0]


def generation(gpu: Gpu) -> str:
    """Return the GPU's generation, of those whose kernels are known apart; empty for any other."""
    return GENERATIONS.get(family(gpu), "")


def traffic_rate(gpu: Gpu, site: SiteFactors) -> float:
    """Bytes a second of element-wise kernels."""
    return gpu.memory_bandwidth * MEMORY_BANDWIDTH_SHARE * site.traffic


def alignment(size: Any) -> FloatArray:
    """Speed of a product by one of its inner sizes."""
    speeds: FloatArray = _ALIGNMENTS[np.asarray(size, dtype=np.int64) % len(_ALIGNMENTS)]
    return speeds


_ALIGNMENTS: Final = np.array(
    [
        next(speed for multiple, speed in ALIGNMENT_SPEEDS if rest % multiple == 0)
        for rest in range(ALIGNMENT_SPEEDS[0][0])
    ]
)
"""By the remainder of a size divided by the largest multiple."""


def product(
    gpu: Gpu, rate: Any, moved: float, m: Any, n: Any, k: Any, *, groups: Any = 1, stored: float = 1.0
) -> FloatArray:
    """Return the seconds of as many m x k by k x n products as there are groups, whose tiles share the waves.

    Rows are padded to whole tiles in every group, so that few tokens per expert make slow products; `moved` is the
    traffic rate in elements a second, and `stored` the traffic of an element of the output in elements.
    """
    fastest: Any = np.inf
    for tall, wide, speed in TILE_SPEEDS:
        waves = groups * np.ceil(m / tall) * np.ceil(n / wide) / gpu.sms
        waves = np.where(waves > 1, np.ceil(waves) * (1 - WAVE_SHARING) + waves * WAVE_SHARING, 1.0)
        fastest = np.minimum(fastest, waves * (2.0 * tall * wide * gpu.sms / speed))
    moving = groups * (m * k + k * n + stored * m * n) / moved
    seconds: FloatArray = np.maximum(fastest * k / rate, moving)
    return seconds


def linear(
    gpu: Gpu, workload: Workload, site: SiteFactors, tokens: Any, n: Any, k: Any
) -> tuple[FloatArray, FloatArray]:
    """Seconds of a linear layer's forward product, and of the two of its backward pass."""
    n, k = np.maximum(1, np.ceil(n)), np.maximum(1, np.ceil(k))
    rate = product_rate(gpu, workload, site) * np.minimum(alignment(n), alignment(k))
    moved = traffic_rate(gpu, site) / size_of(workload)
    tokens, n, k = np.broadcast_arrays(tokens, n, k)
    rows, columns, inner = np.stack([tokens, tokens, k]), np.stack([n, k, n]), np.stack([k, n, tokens])
    forward, of_inputs, of_weights = product(gpu, rate * inner_speed(gpu, workload, inner), moved, rows, columns, inner)
    return forward, of_inputs + of_weights
