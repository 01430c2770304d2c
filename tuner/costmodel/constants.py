"""The cost model's constants, each with its unit and its source.

A constant is a plain number or a table of numbers; `RECORDS` has the record of each by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeVar

T = TypeVar("T")

FITTED: Final = "fitted to the published tables in corpus/"
FITTED_TO_ENOKI: Final = "fitted to Enoki (corpus/enoki-h100.csv)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """The source of a constant."""

    value: Any
    unit: str
    source: str
    """A publication, a program's file, `fitted ...`, `counted ...`, or `no source`."""
    interval: tuple[float, float] | None = None
    """Bounds of the value, where the fit gave them."""
    date: str | None = None
    """Day of the fit, where it is known."""


class ConstantRecords(dict[str, Constant]):
    """The records of a package's constants by name."""

    def add(self, name: str, value: T, unit: str, source: str) -> T:
        """Record a constant and return its value."""
        self[name] = Constant(value=value, unit=unit, source=source)
        return value


RECORDS: Final = ConstantRecords()
_constant: Final = RECORDS.add


# kernels
SUSTAINED_PRODUCT_SHARE: Final = _constant("SUSTAINED_PRODUCT_SHARE", 0.91, "share", FITTED)
"""Share of the achievable product rate (`Gpu.achievable`) that a training run sustains."""

TILE_SPEEDS: Final = _constant(
    "TILE_SPEEDS",
    ((256, 128, 1.0), (128, 128, 0.905), (128, 64, 0.72), (64, 64, 0.50)),
    "rows, columns, speed relative to the largest",
    "NVIDIA, Matrix Multiplication Background User's Guide, Tile Quantization; speeds fitted to corpus/",
)
"""Tile sizes of cuBLAS."""

WAVE_SHARING: Final = _constant("WAVE_SHARING", 0.20, "share", FITTED)
"""Share of a last, half-empty wave that split-K kernels recover."""

ALIGNMENT_SPEEDS: Final = _constant(
    "ALIGNMENT_SPEEDS",
    ((64, 1.0), (32, 0.95), (16, 0.85), (8, 0.50), (1, 0.50)),
    "elements, relative speed",
    "NVIDIA, Matrix Multiplication Background User's Guide; 8 fitted to BLOOM, 16 and 32 interpolated",
)
"""Speed of a product by the largest power of two that divides its inner sizes."""

MEMORY_BANDWIDTH_SHARE: Final = _constant("MEMORY_BANDWIDTH_SHARE", 0.66, "share", FITTED)
"""Share of the data sheet's memory bandwidth that element-wise kernels reach."""


# layer
BATCHED_PRODUCT_SPEED: Final = _constant("BATCHED_PRODUCT_SPEED", 0.64 / 0.79, "relative to a dense product", FITTED)
"""Speed of the batched products of attention scores."""

UNALIGNED_HEAD_SPEED: Final = _constant(
    "UNALIGNED_HEAD_SPEED",
    0.13,
    "relative to aligned heads",
    "fitted to BLOOM's 128 heads at hidden 13824 (width 108), a third slower than 64",
)
"""Speed of attention products when the head width is not a multiple of 8 and tensor cores are unused."""

FLASH_SPEED: Final = _constant(
    "FLASH_SPEED",
    {"flash1": 0.286 / 0.79, "flash2": 0.445 / 0.79},
    "relative to a dense product",
    "FlashAttention 1: Dao et al. 2022 (arXiv 2205.14135), 2: Dao 2023 (arXiv 2307.08691); fitted to corpus/",
)
"""Speed of FlashAttention's forward pass over the causal half."""

FLASH_BACKWARD_SPEED: Final = _constant("FLASH_BACKWARD_SPEED", 0.604, "relative to the forward pass", FITTED)
"""Speed of FlashAttention's backward pass, which recomputes the scores: 5 products for 2."""

SOFTMAX_BYTES: Final = _constant(
    "SOFTMAX_BYTES",
    (10.1, 14.7),
    "bytes per score, forward and backward",
    "fitted to corpus/; 13 and 17 by counting 16-bit reads and writes",
)
"""Traffic of Megatron's fused softmax with dropout."""

DROPOUT_BYTES: Final = _constant("DROPOUT_BYTES", 2.9, "bytes per score", "fitted to corpus/; 5 by counting")
"""Part of the softmax traffic that dropout causes."""

EAGER_BYTES: Final = _constant("EAGER_BYTES", (20.0, 22.1), "bytes per score, forward and backward", FITTED)
"""Extra traffic where scale, mask and softmax are separate kernels."""

ELEMENTWISE_BYTES: Final = _constant(
    "ELEMENTWISE_BYTES", 21.1, "bytes per token and column, forward", "fitted to corpus/; 22 by counting"
)
"""Traffic of two norms, two residuals and dropout."""

UNFUSED_NORM_BYTES: Final = _constant(
    "UNFUSED_NORM_BYTES", 90.0, "bytes per token and column, forward", "fitted to corpus/; 70 to 90 by counting"
)
"""Extra traffic of two norms made of plain fp32 operations."""

GELU_BYTES: Final = _constant("GELU_BYTES", 4.0, "bytes per token and MLP column, forward", "no source")
"""Traffic of bias and GeLU in one kernel."""

SWIGLU_BYTES: Final = _constant(
    "SWIGLU_BYTES", 12.4, "bytes per token and MLP column, forward", "fitted to corpus/; 10 by counting"
)
"""Traffic of SiLU and product in separate kernels."""

ROTARY_BYTES: Final = _constant("ROTARY_BYTES", 14.5, "bytes per token and rotated column, forward", FITTED)
"""Traffic of rotary embeddings on queries and keys."""

BACKWARD_TRAFFIC_RATIO: Final = _constant(
    "BACKWARD_TRAFFIC_RATIO", 1.6, "relative to the forward pass", "no source; each operation also reads what it saved"
)
"""Element-wise traffic of the backward pass."""

HOST_SECONDS: Final = _constant(
    "HOST_SECONDS", (0.48e-3, 0.85e-3), "seconds, forward and backward", "fitted to models of hidden 2048 on one node"
)
"""Time in which the host launches one layer's kernels; a faster GPU waits for it."""

HOST_COLLECTIVE_SECONDS: Final = _constant("HOST_COLLECTIVE_SECONDS", 2.2e-4, "seconds", FITTED)
"""Extra host time per tensor parallel collective."""

ACCUMULATION_PASSES: Final = _constant(
    "ACCUMULATION_PASSES", 4.3 / 2, "passes through memory", "fitted to corpus/; 3 by counting two reads and a write"
)
"""Passes of a layer's gradients through memory when they are added to those of earlier microbatches."""

UPKEEP_SECONDS: Final = _constant("UPKEEP_SECONDS", 0.55e-3, "seconds", FITTED)
"""Time per layer and microbatch that no other term explains."""


# links
NODE_LINK_SHARE: Final = _constant("NODE_LINK_SHARE", 0.91, "share", FITTED)
"""Share of a GPU's one-way bandwidth in its node that collectives reach."""

RING_SHARE: Final = _constant("RING_SHARE", 0.9, "share", "NVIDIA/nccl-tests issue 267: 48 GB/s of 50, less headers")
"""Share of a node's network that a ring reaches which meets no other."""

OMNI_PATH_RING_SHARE: Final = _constant("OMNI_PATH_RING_SHARE", 0.41, "share", FITTED)
"""Share of a node's Omni-Path network that rings reach."""

SEND_SHARE: Final = _constant("SEND_SHARE", 0.80, "share", FITTED)
"""Share of a node's network that sends between stages reach."""

NODE_LATENCY_RATIO: Final = _constant("NODE_LATENCY_RATIO", 3.4, "relative to the catalog's", f"{FITTED}, for NVLink")
"""Latency of a ring step inside a node, launch and wait included."""

NETWORK_LATENCY_RATIO: Final = _constant("NETWORK_LATENCY_RATIO", 1.8, "relative to the catalog's latency", FITTED)
"""Latency of a ring step over the network, launch and wait included."""


# time
LOSS_BYTES: Final = _constant("LOSS_BYTES", 30.0, "bytes per logit", "counted")
"""Traffic of the fp32 loss, forward and backward."""

END_STAGE_SEND_SHARE: Final = _constant("END_STAGE_SEND_SHARE", 0.46, "relative to a middle stage", FITTED)
"""Sends of the first and the last stage, which have one neighbour."""

OPTIMIZER_STEP_BYTES: Final = _constant(
    "OPTIMIZER_STEP_BYTES",
    23.4,
    "bytes per parameter of the shard",
    "fitted to corpus/; 28 by counting four reads and three writes",
)
"""Traffic of a step of Adam."""

STEP_SECONDS: Final = _constant("STEP_SECONDS", 10e-3, "seconds", "no source")
"""Time of an iteration outside its passes: logging, norms, overflow check."""

STEP_LAYER_SECONDS: Final = _constant("STEP_LAYER_SECONDS", 0.2e-3, "seconds per layer", "no source")
"""Extra time per layer whose parameters the step visits."""

SHARDED_LAYER_HOST_SECONDS: Final = _constant(
    "SHARDED_LAYER_HOST_SECONDS", 0.65e-3, "seconds per layer and microbatch", FITTED
)
"""Extra host time of a fully sharded layer."""

OVERLAPPED_GATHER_SHARE: Final = _constant("OVERLAPPED_GATHER_SHARE", 0.71, "share", FITTED)
"""Share of a fully sharded model's gathers that overlaps with its products, bounded by their duration."""


# memory
OPTIMIZER_STATE_BYTES: Final = _constant(
    "OPTIMIZER_STATE_BYTES",
    {"adam": 8.0, "adam-bf16": 4.0, "adam8bit": 2.0, "adafactor": 4.0, "sgd": 4.0, "muon": 4.0},
    "bytes per parameter",
    "counted; bf16: Megatron-Core's --use-precision-aware-optimizer; 8-bit: Dettmers et al. 2021 (arXiv 2110.02861); "
    "Adafactor: arXiv 1804.04235",
)
"""Optimizer state in addition to the fp32 weights: Adam's two moments, Adafactor's first, SGD's and Muon's momentum."""

STEP_COPY_BYTES: Final = _constant(
    "STEP_COPY_BYTES",
    6.0,
    "bytes per parameter of the shard",
    "DeepSpeed, stage_1_and_2.py: flattened 16-bit gradients and their fp32 copy",
)
"""Temporary copies while ZeRO 1 or 2 steps."""

BUCKET_ELEMENTS: Final = _constant(
    "BUCKET_ELEMENTS", 5e8, "elements", "DeepSpeed's default reduce_bucket_size and allgather_bucket_size"
)
"""Size of a communication bucket."""

FLAT_GRADIENT_BYTES: Final = _constant(
    "FLAT_GRADIENT_BYTES",
    2.0,
    "bytes per parameter",
    "inferred from a 1.3B model on V100s, whose runs without a pipeline use that much more",
)
"""Second copy of the gradients where ZeRO 1 or 2 runs without a pipeline on several ranks."""

WHOLE_NORM_BYTES: Final = _constant(
    "WHOLE_NORM_BYTES", 8.0, "bytes per token and column", "Korthikanti et al. 2022 (arXiv 2205.05198), equation 2"
)
"""Inputs and outputs of two norms, which tensor parallelism does not split."""

DROPOUT_MASK_BYTES: Final = _constant(
    "DROPOUT_MASK_BYTES", 2.0, "bytes per token and column", "Korthikanti et al. 2022 (arXiv 2205.05198), equation 2"
)
"""Two masks of one byte."""

UNFUSED_NORM_COPY_BYTES: Final = _constant(
    "UNFUSED_NORM_COPY_BYTES", 14.0, "bytes per token and column", "fitted to corpus/; 16 by counting"
)
"""fp32 copies that unfused norms keep."""

GATED_MLP_COPIES: Final = _constant("GATED_MLP_COPIES", 3.6, "copies of the MLP's width", FITTED)
"""Activations of a gated MLP: gate, up, their product, and most of a fourth copy."""

SCORE_BYTES: Final = _constant(
    "SCORE_BYTES",
    {"fused": 5.0, "eager": 9.0},
    "bytes per attention score",
    "Korthikanti et al. 2022 (arXiv 2205.05198); eager adds an fp32 copy",
)
"""Softmax, mask and dropped softmax, with dropout."""

SCORE_BYTES_WITHOUT_DROPOUT: Final = _constant(
    "SCORE_BYTES_WITHOUT_DROPOUT", {"fused": 6.0, "eager": 4.5}, "bytes per attention score", FITTED
)
"""Attention scores without dropout; the eager kernel frees one copy."""

PLAIN_WHOLE_BYTES: Final = _constant("PLAIN_WHOLE_BYTES", 12.0, "bytes per token and column", FITTED_TO_ENOKI)
"""Activations of plain PyTorch layers under autocast that every tensor parallel rank keeps whole."""

PLAIN_CUT_BYTES: Final = _constant("PLAIN_CUT_BYTES", 36.0, "bytes per token and column", FITTED_TO_ENOKI)
"""Activations of plain PyTorch layers that tensor parallelism splits."""

PLAIN_TABLE_BYTES: Final = _constant("PLAIN_TABLE_BYTES", 14.5, "bytes per parameter", FITTED_TO_ENOKI)
"""Embedding and head of plain layers: fp32 and 16-bit weights with gradients in both, fully sharded or not."""

LOGIT_BYTES: Final = _constant(
    "LOGIT_BYTES", 10.0, "bytes per logit", "counted: 2 for logits, 4 for their fp32 copy, 4 for the softmax"
)
"""Logits while Megatron's parallel loss is computed."""

GATHERED_LOGIT_BYTES: Final = _constant(
    "GATHERED_LOGIT_BYTES", 14.0, "bytes per logit", "fitted to corpus/; 14 by counting"
)
"""Logits of PyTorch's own loss, whose softmax and gradient are separate."""

GATHER_COPY_BYTES: Final = _constant("GATHER_COPY_BYTES", 10.0, "bytes per logit", FITTED)
"""Extra copies of logits gathered over tensor parallel ranks."""

PLAIN_LOGIT_BYTES: Final = _constant("PLAIN_LOGIT_BYTES", 2.0, "bytes per logit", FITTED_TO_ENOKI)
"""16-bit logits that Enoki's loss keeps."""

FRAGMENT_SHARE: Final = _constant(
    "FRAGMENT_SHARE", 0.08, "share of activations", "fitted to which layouts in corpus/ run out of memory"
)
"""Memory lost to fragmentation when memory is tight."""

CACHED_SHARE: Final = _constant(
    "CACHED_SHARE", 0.20, "share of activations", "fitted to BLOOM's nvidia-smi figures (corpus/bloom-a100.csv)"
)
"""Extra memory that the allocator caches when memory is not tight."""

CONTEXT_BYTES: Final = _constant("CONTEXT_BYTES", 0.7e9, "bytes", "no source")
"""CUDA context, kernels and libraries, outside PyTorch's allocator."""

COMMUNICATOR_BYTES: Final = _constant("COMMUNICATOR_BYTES", 0.92e9, "bytes", FITTED)
"""NCCL's buffers per kind of parallelism; data parallelism always counts."""

USABLE_SHARE: Final = _constant("USABLE_SHARE", 0.985, "share", "an A100-80GB shows 79.2 GiB, an H100-80GB 79.1")
"""Share of the card's nominal memory that a process can use."""


# residual_features
PERIOD_DEVIATION: Final = _constant(
    "PERIOD_DEVIATION",
    0.04,
    "standard deviation of a logarithm",
    "BLOOM's cluster got 5% faster in a day (corpus/bloom-a100.csv)",
)
"""Residual shared by the rows of one speed period."""

LIKELY: Final = "chosen by the marginal likelihood of measured and third-party tables; docs/log.md, 2026-11-26"

CLIFF_DEVIATION: Final = _constant("CLIFF_DEVIATION", 0.04, "standard deviation of a logarithm", LIKELY)
"""Residual shared by rows of equal hidden size, head count and tensor parallel degree."""

REDUCTION_DEVIATION: Final = _constant("REDUCTION_DEVIATION", 0.03, "standard deviation of a logarithm", LIKELY)
"""Residual shared by those of them that agree on sequence parallelism."""

KERNEL_DEVIATION: Final = _constant("KERNEL_DEVIATION", 0.02, "standard deviation of a logarithm", LIKELY)
"""Residual shared by rows of equal attention kernel, norms and recompute."""

SHAPE_DEVIATION: Final = _constant("SHAPE_DEVIATION", 0.07, "standard deviation of a logarithm", LIKELY)
"""Residual that fades with the distance of the smooth features."""

NOISE_DEVIATION: Final = _constant(
    "NOISE_DEVIATION",
    0.025,
    "standard deviation of a logarithm",
    "no source; repeated runs of one topology differ by about as much",
)
"""Residual of a single row."""

SHAPE_LENGTH_SCALE: Final = _constant("SHAPE_LENGTH_SCALE", 1.0, "doublings", "no source")
"""Distance in a smooth feature over which the shared residual fades."""


# memory_calibration
MEMORY_DEVIATION: Final = _constant(
    "MEMORY_DEVIATION", 0.06, "standard deviation of a logarithm", "mean error over the published figures: 2 to 6%"
)
"""Uncertainty of memory before any measurement."""

MEMORY_DEVIATION_ROWS: Final = _constant("MEMORY_DEVIATION_ROWS", 6.0, "rows", "no source")
"""Number of measured rows that the prior uncertainty counts as."""

ODD_OUTCOME_SHARE: Final = _constant("ODD_OUTCOME_SHARE", 0.1, "share", "no source")
"""Share of runs whose outcome is uninformative, such as a neighbour on the same card."""


# estimate
PLAIN_DEVIATION: Final = _constant(
    "PLAIN_DEVIATION",
    0.20,
    "standard deviation of a logarithm",
    "published fully sharded runs keep 34 to 48 bytes per token and column",
)
"""Uncertainty of memory for plain PyTorch layers, whose implementations differ."""

GATHERED_DEVIATION: Final = _constant("GATHERED_DEVIATION", 0.08, "standard deviation of a logarithm", "no source")
"""Uncertainty of memory where the loss gathers its logits; implementations differ here too."""

# calibration
SITE_DEVIATIONS: Final = _constant(
    "SITE_DEVIATIONS",
    {
        "products": 0.06,
        "attention": 0.12,
        "traffic": 0.15,
        "inner_link": 0.20,
        "network": 0.30,
        "pipeline_link": 0.30,
        "host": 0.50,
        "upkeep": 0.80,
        "context": 0.30,
        "activations": 0.12,
    },
    "standard deviation of a logarithm, by site factor",
    "products: how far published A100 runs differ in their best rate; links: what a busy network loses; upkeep: runs "
    "with and without CUDA_LAUNCH_BLOCKING=1 (BLOOM); others: no source",
)
"""Prior deviation of a cluster's factors from those of the cost model."""
