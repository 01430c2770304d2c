"""Priors of the fitted constants: first-principles values, where a fit starts, and how far it may move from them.

A name such as `HOST_SECONDS.0` is one element of a constant that is a table. Constants that are fitted to data outside
corpus/ (`CPU_ADAM_SECONDS`) are not listed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """What is known about a constant without any training run."""

    value: float
    deviation: float
    """Standard deviation of its logarithm."""
    reason: str
    most: float = float("inf")
    """Upper bound, 1 for a share."""


def _share(value: float, deviation: float, reason: str) -> Prior:
    return Prior(value=value, deviation=deviation, reason=reason, most=1.0)


def _of(value: float, deviation: float, reason: str) -> Prior:
    return Prior(value=value, deviation=deviation, reason=reason)


_TILES: Final = "between no loss and a loss in proportion to the operands that a tile loads for each operation"
_NCCL: Final = "NVIDIA/nccl at 01afd20a, src/graph/tuning.cc"
_FA2: Final = "FlashAttention-2 (arXiv 2307.08691), abstract"
_A100: Final = 0.869
"""Share of an A100's peak that a large product reaches (catalog)."""

TIME_PRIORS: Final = {
    "SUSTAINED_PRODUCT_SHARE": _share(0.95, 0.06, "large products, a little power and clock lost beside other work"),
    "TILE_SPEEDS.1.2": _share(0.87, 0.15, _TILES),
    "TILE_SPEEDS.2.2": _share(0.71, 0.15, _TILES),
    "TILE_SPEEDS.3.2": _share(0.61, 0.15, _TILES),
    "WAVE_SHARING": _share(0.25, 0.5, "split-K and stream-K kernels are chosen for some shapes; a guess"),
    "ALIGNMENT_SPEEDS.1.1": _share(0.95, 0.1, "rows of 64 bytes: whole sectors of a cache line, not whole lines"),
    "ALIGNMENT_SPEEDS.2.1": _share(0.85, 0.2, "rows of 32 bytes: one sector of four"),
    "ALIGNMENT_SPEEDS.3.1": _share(0.6, 0.3, "rows of 16 bytes: half a sector; the least that tensor cores take"),
    "MEMORY_BANDWIDTH_SHARE": _share(0.85, 0.15, "what streaming kernels reach of a data sheet's bandwidth"),
    "BATCHED_PRODUCT_SPEED": _share(0.8, 0.25, "small products, each too small for the largest tiles"),
    "UNALIGNED_HEAD_SPEED": _share(0.25, 0.5, "A100: 78 TFLOP/s of fp16 without tensor cores of 312 with them"),
    "FLASH_SPEED.flash1": _of(0.325 / _A100, 0.15, f"{_FA2}: FlashAttention reaches 25 to 40% of an A100's peak"),
    "FLASH_SPEED.flash2": _of(0.615 / _A100, 0.15, f"{_FA2}: 50 to 73% of an A100's peak"),
    "FLASH_BACKWARD_SPEED": _share(0.86, 0.2, "FlashAttention-2 (arXiv 2307.08691): at most 63% of peak after 73%"),
    "SOFTMAX_BYTES.0": _of(13.0, 0.25, "counted: 16-bit reads and writes"),
    "SOFTMAX_BYTES.1": _of(17.0, 0.25, "counted: 16-bit reads and writes"),
    "DROPOUT_BYTES": _of(5.0, 0.4, "counted: a read, a write and a mask"),
    "EAGER_BYTES.0": _of(25.0, 0.3, "counted: scale, mask, cast, fp32 softmax and cast, less the fused kernel"),
    "EAGER_BYTES.1": _of(26.0, 0.3, "counted: the same backward"),
    "ELEMENTWISE_BYTES": _of(22.0, 0.15, "counted: two norms, two residuals and dropout"),
    "UNFUSED_NORM_BYTES": _of(80.0, 0.2, "counted: 70 to 90"),
    "SWIGLU_BYTES": _of(10.0, 0.2, "counted: SiLU, then the product"),
    "ROTARY_BYTES": _of(18.0, 0.3, "counted: two products, a rotated copy and a sum in kernels of their own"),
    "HOST_SECONDS.0": _of(0.48e-3, 0.5, "counted: 60 operations of 8 us"),
    "HOST_SECONDS.1": _of(0.80e-3, 0.5, "counted: 100 operations of 8 us"),
    "HOST_COLLECTIVE_SECONDS": _of(1e-4, 0.7, "counted: a call through torch.distributed, two events and two waits"),
    "ACCUMULATION_PASSES": _of(3.0, 0.3, "counted: two reads and a write"),
    "UPKEEP_SECONDS": _of(0.2e-3, 1.0, "some kernels of a few us that no term counts; a guess"),
    "NODE_LINK_SHARE": _share(235 / 300, 0.15, f"{_NCCL}: bus bandwidth of a node of A100 is at most 235 GB/s of 300"),
    "RING_SHARE": _share(0.85, 0.5, "a ring alone on the network reaches about the line rate less its headers"),
    "OMNI_PATH_RING_SHARE": _share(0.85, 0.5, "as on another network"),
    "SEND_SHARE": _share(0.85, 0.3, "one send and one receive at a time, headers and start of each"),
    "NODE_LATENCY_RATIO": _of(1.0, 0.7, f"the catalog has {_NCCL}"),
    "NETWORK_LATENCY_RATIO": _of(1.4, 0.5, f"the catalog has {_NCCL}, which takes 1.9 times as long for long rings"),
    "END_STAGE_SEND_SHARE": _share(0.5, 0.3, "one neighbour of two"),
    "OPTIMIZER_STEP_BYTES": _of(28.0, 0.2, "counted: four reads and three writes in fp32"),
    "SHARDED_LAYER_HOST_SECONDS": _of(0.5e-3, 0.7, "counted: three collectives, each with copies in and out"),
    "OVERLAPPED_GATHER_SHARE": _share(0.85, 0.3, "all but the first gather and the last reduction, which wait"),
}
"""Priors of the time constants."""

MEMORY_PRIORS: Final = {
    "UNFUSED_NORM_COPY_BYTES": _of(16.0, 0.2, "counted: fp32 copies"),
    "GATED_MLP_COPIES": _of(3.5, 0.15, "counted: gate, up and their product; SiLU's output where it is its own kernel"),
    "SCORE_BYTES_WITHOUT_DROPOUT.fused": _of(4.0, 0.3, "counted: scores and softmax in 16 bits"),
    "SCORE_BYTES_WITHOUT_DROPOUT.eager": _of(6.0, 0.3, "counted: the fp32 softmax and its 16-bit copy"),
    "PLAIN_WHOLE_BYTES": _of(14.0, 0.3, "counted: two residuals and two norms under autocast"),
    "PLAIN_CUT_BYTES": _of(34.0, 0.2, "Korthikanti et al. 2022 (arXiv 2205.05198), equation 2, without scores"),
    "PLAIN_TABLE_BYTES": _of(12.0, 0.3, "counted: fp32 and 16-bit weights, gradients in both"),
    "GATHERED_LOGIT_BYTES": _of(14.0, 0.15, "counted: logits, their fp32 copy, softmax and gradient"),
    "GATHER_COPY_BYTES": _of(8.0, 0.5, "counted: a gathered copy, its concatenation, and the gradient of each"),
    "PLAIN_LOGIT_BYTES": _of(4.0, 0.7, "counted: 16-bit logits, and their gradient where it is not in place"),
    "FRAGMENT_SHARE": _share(0.05, 0.7, "a few per cent of a caching allocator's blocks are split; a guess"),
    "CACHED_SHARE": _share(0.15, 0.7, "blocks of other sizes stay cached while memory lasts; a guess"),
    "COMMUNICATOR_BYTES": _of(0.6e9, 0.5, "NCCL: channels, each with buffers of 4 MiB for each peer; a guess"),
}
"""Priors of the memory constants."""
