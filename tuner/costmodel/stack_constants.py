"""The cost model's constants of GPU generations and software stacks, each with its unit and its source.

None is fitted to training runs: they are published kernel figures, counts, or without a source. `RECORDS` has the
record of each by name.
"""

from __future__ import annotations

from typing import Final

from tuner.costmodel.constants import ConstantRecords

RECORDS: Final = ConstantRecords()
_constant: Final = RECORDS.add

UNSTATED_CHANCE: Final = _constant("UNSTATED_CHANCE", 0.25, "probability", "no source")
"""Probability that a run's recompute differs from the assumed one, if its table has none."""

UNMEASURED_DEVIATION: Final = _constant(
    "UNMEASURED_DEVIATION",
    0.12,
    "standard deviation of a logarithm",
    "half of the sources that no constant was fitted to are missed by more than 8% in the median (docs/model.md)",
)
"""Further uncertainty of time on a GPU or framework that no measured table is of."""

BACKWARD_SHARE: Final = _constant(
    "BACKWARD_SHARE", 2 / 3, "share", "counted: two products of three, Narayanan et al. 2021 (arXiv 2104.04473)"
)
"""Share of the backward pass in a microbatch, with which the reduction of gradients may overlap."""

REDUCE_BUCKET: Final = _constant(
    "REDUCE_BUCKET",
    (40e6, 1e6),
    "elements, and elements per rank",
    "NVIDIA/Megatron-LM at d98e8a64, megatron/core/distributed/distributed_data_parallel.py: bucket_size",
)
"""Minimum size of the buckets in which Megatron-Core reduces gradients during the backward pass."""

STRAGGLER_DEVIATION: Final = _constant(
    "STRAGGLER_DEVIATION",
    0.015,
    "relative standard deviation",
    "Sinha et al. 2022 (arXiv 2208.11035): GPUs of one cluster differ by 8% on average, taken for the whiskers of a "
    "box plot, 5.4 standard deviations",
)
"""The variation in speed among the GPUs of a cluster."""

STRAGGLER_BASE: Final = _constant(
    "STRAGGLER_BASE", 8.0, "GPUs", "counted: a node, whose slowest GPU the rates of kernels contain"
)
"""Number of GPUs up to which no straggler term is needed."""

GENERATIONS: Final = _constant(
    "GENERATIONS",
    {
        **dict.fromkeys(("H100", "H800", "H200", "GH200"), "hopper"),
        **dict.fromkeys(("B200", "GB200"), "blackwell"),
        **dict.fromkeys(("B300", "GB300"), "blackwell-ultra"),
    },
    "GPU generation by the first word of the catalog's name",
    "vendors' data sheets; the H20, whose products are slower than its attention kernels, is left out",
)
"""Generations whose attention kernels are known apart; all others are taken for Ampere."""

ATTENTION_RATES: Final = _constant(
    "ATTENTION_RATES",
    {
        ("hopper", "flash2"): (191e12, 267e12, 299e12, 325e12, 329e12, 341e12, 345e12),
        ("hopper", "cudnn"): (315e12, 410e12, 484e12, 591e12, 644e12, 673e12),
        ("blackwell", "flash2"): (163e12, 255e12, 336e12, 387e12, 414e12, 430e12),
        ("blackwell", "cudnn"): (408e12, 733e12, 1022e12, 1297e12, 1563e12, 1646e12),
        ("blackwell-ultra", "flash2"): (163e12, 255e12, 336e12, 387e12, 414e12, 430e12),
        ("blackwell-ultra", "cudnn"): (408e12, 733e12, 1265e12, 1679e12, 1927e12, 1998e12),
    },
    "FLOP/s of the causal half, forward, at 512, 1k, 2k, 4k, 8k, 16k and 32k tokens as far as known",
    "causal, head size 128; H100 at 512, of cuDNN up to 1k: FlashAttention-3 (arXiv 2407.08608), figure 5; H200 with "
    "FlashAttention-2, measured with PyTorch 2.11 (benchmarks/gpu/h200.jsonl), and from 2k on with cuDNN "
    "9.19.1 (NVIDIA/cudnn-frontend, benchmark/sdpa_benchmark_training, llama3.1 at df73764); GB200 and GB300: the same "
    "with cuDNN 9.18.1 (at 9072c4e and b8c0656); up to 1k, and for FlashAttention-2, the GB200 with cuDNN 9.17 and "
    "PyTorch (at d48a60e)",
)
"""Published rates of attention kernels by generation; Ampere's is fitted (`FLASH_SPEED`)."""

ATTENTION_BACKWARD_RATES: Final = _constant(
    "ATTENTION_BACKWARD_RATES",
    {
        ("hopper", "flash2"): (119e12, 169e12, 214e12, 248e12, 276e12, 301e12, 316e12),
        ("hopper", "cudnn"): (241e12, 313e12, 370e12, 474e12, 541e12, 579e12),
        ("blackwell", "flash2"): (146e12, 207e12, 268e12, 311e12, 338e12, 352e12),
        ("blackwell", "cudnn"): (329e12, 527e12, 824e12, 1105e12, 1279e12, 1371e12),
        ("blackwell-ultra", "flash2"): (146e12, 207e12, 268e12, 311e12, 338e12, 352e12),
        ("blackwell-ultra", "cudnn"): (329e12, 527e12, 900e12, 1198e12, 1391e12, 1494e12),
    },
    "FLOP/s of the causal half, backward, at the same numbers of tokens",
    "as ATTENTION_RATES; on Hopper cuDNN up to 1k in proportion to the forward pass, and FlashAttention-2 at 512 in "
    "proportion to the GB200's",
)
"""The same of the backward pass."""

EARLIER_CUDNN_SPEEDS: Final = _constant(
    "EARLIER_CUDNN_SPEEDS",
    {"blackwell": (0.90, 0.87), "blackwell-ultra": (0.85, 0.85)},
    "relative to the rates with cuDNN 9.18, forward and backward",
    "16k tokens with cuDNN 9.13.1 on the B200, in proportion to its peak, and the GB300 (NVIDIA/cudnn-frontend at "
    "be6c079, benchmark/sdpa_benchmark_training/artifacts); shorter sequences' times there include the launch",
)
"""Attention with cuDNN up to 9.13."""

HEAD_SPEEDS: Final = _constant(
    "HEAD_SPEEDS",
    {
        "hopper": ((0.77, 0.86), (1.0, 1.0), (1.0, 0.85)),
        "blackwell": ((0.62, 0.82), (1.0, 1.0), (1.0, 0.92)),
        "blackwell-ultra": ((0.61, 0.79), (1.0, 1.0), (1.0, 0.92)),
    },
    "relative to heads of 128, of those of 64, 128 and 192, forward and backward",
    "NVIDIA/cudnn-frontend, benchmark/sdpa_benchmark_training, bf16, H200, GB200 and GB300: gpt_oss (64, windows of "
    "1,024 at 4k to 32k tokens) beside llama3.1 at as many keys, with cuDNN 9.19 (df73764); dsv3 (192 and 128) beside "
    "llama3.1 at 4k tokens (3929da2e)",
)
"""cuDNN's attention by the width of a head: each score costs an exponential, whatever its width."""

ATTENTION_PEAK: Final = _constant(
    "ATTENTION_PEAK",
    {"hopper": 989.4e12, "blackwell": 2500e12, "blackwell-ultra": 2500e12},
    "FLOP/s in bf16",
    "peaks of the H100 and H200 SXM, the GB200 and the GB300; the H100 PCIe, the B200 and the B300 clock lower",
)
"""Peak of the GPUs that the rates of attention are of, by generation."""

WINDOW_TILE: Final = _constant(
    "WINDOW_TILE",
    64,
    "elements",
    "so that with HEAD_SPEEDS the published rates in windows of 1,024 and of 128 keys agree: 165 and 175 TFLOPS, "
    "forward and backward, in 128 on GB200, and 165 and 187 as published (NVIDIA/cudnn-frontend at 3929da2e, gpt_oss)",
)
"""Keys that flash attention computes in vain for a token of a layer with a sliding window."""

FULLY_SHARDED_DEVIATION: Final = _constant(
    "FULLY_SHARDED_DEVIATION",
    0.09,
    "standard deviation of a logarithm",
    "18 published runs of KempnerForge and torchtitan, before it was known which embeddings are whole",
)
"""Uncertainty of memory for PyTorch's own layers under fully_shard, compiled or not."""

IN_PLACE_LOGIT_BYTES: Final = _constant(
    "IN_PLACE_LOGIT_BYTES",
    6.0,
    "bytes per logit",
    "counted: 2 for logits or their gradient, 4 for the fp32 copy, in which softmax and gradient are computed; "
    "NVIDIA/Megatron-LM at d98e8a64, megatron/core/tensor_parallel/cross_entropy.py",
)
"""Logits while Megatron-Core's parallel loss is computed."""

FUSED_LOSS_BYTES: Final = _constant(
    "FUSED_LOSS_BYTES",
    10.0,
    "bytes per logit",
    "counted: a read for the sums, a read and a write of the gradient, and both again to scale it, in 16 bits "
    "(NVIDIA/TransformerEngine v2.9, pytorch/triton/cross_entropy.py)",
)
"""Traffic of Transformer Engine's fused loss, forward and backward."""

FUSED_LOGIT_BYTES: Final = _constant(
    "FUSED_LOGIT_BYTES",
    2.0,
    "bytes per logit",
    "counted: the gradient replaces the logit (NVIDIA/TransformerEngine v2.9, pytorch/triton/cross_entropy.py)",
)
"""Logits while Transformer Engine's fused loss is computed."""

WORKSPACE_BYTES: Final = _constant(
    "WORKSPACE_BYTES",
    {"hopper": (32 * 2.0**20, 32 * 2.0**20), "other": (8.125 * 2**20, 4 * 2.0**20)},
    "bytes on Hopper and Blackwell, and on other GPUs: PyTorch's workspace and each one of Transformer Engine",
    "PyTorch, aten/src/ATen/cuda/CublasHandlePool.cpp: 32 MiB, or 2 x 4096 + 8 x 16 KiB; NVIDIA/TransformerEngine, "
    "pytorch/module/base.py: get_cublas_workspace_size_bytes",
)
"""Buffers of cuBLAS that PyTorch allocates."""

GROUPED_PRODUCT_STREAMS: Final = _constant(
    "GROUPED_PRODUCT_STREAMS", 4, "streams", "NVIDIA/TransformerEngine, pytorch/module/base.py: _multi_stream_cublas"
)
"""Streams on which grouped products of experts run, each with a workspace."""

FP8_ACHIEVABLE: Final = _constant(
    "FP8_ACHIEVABLE",
    {
        "H100": 0.709,
        "H800": 0.709,
        "GH200": 0.776,
        "H200": 0.734,
        "B200": 0.763,
        "GB200": 0.723,
        "B300": 0.745,
        "MI300X": 0.379,
        "MI325X": 0.445,
    },
    "share of the dense fp8 peak, by the first word of the catalog's name",
    "Machine Learning Engineering open book at 744d01e, compute/accelerator: table of maximum achievable matmul FLOPS "
    "in fp8; the H800 by the H100; the MI300X, 990 TFLOPS, by SemiAnalysis (MI300X vs H100 vs H200 Benchmark Part 1: "
    "Training, December 2024), and the MI325X in proportion to bf16",
)
"""Share of its fp8 peak that a large product reaches; of other GPUs, the share of the bf16 peak."""

PRODUCT_POWER: Final = _constant(
    "PRODUCT_POWER",
    {"B200": 1000.0, "GB200": 1048.0, "B300": 1100.0, "GB300": 1400.0},
    "watts, by the first word of the catalog's name",
    "maximum thermal design power: NVIDIA's HGX B200 specification, https://verda.com/blog/gb300-nvl72-architecture; "
    "the GB200, configurable up to 1,200 W, reaches 1.043 times a B200's products in bf16 and 1.053 times in fp8 (the "
    "table that FP8_ACHIEVABLE names), and so is taken for 1.048 times its power",
)
"""Power at which Blackwell GPUs multiply matrices."""

PRODUCT_FLOPS_PER_JOULE: Final = _constant(
    "PRODUCT_FLOPS_PER_JOULE",
    1845e12 / 1400,
    "FLOP per joule in bf16; fp32 by its peak, fp8 and fp4 by QUANTIZED_FLOPS_PER_JOULE",
    "pytorch/pytorch pull request 196944: 1,845 TFLOPS of a GB300, taken for its rate at 1,400 W",
)
"""Products that Blackwell's silicon does for the energy that it gets, where the power limit bounds them.

The larger shares of its peak that `Gpu.achievable` has for the B200 are of short runs.
"""

QUANTIZED_FLOPS_PER_JOULE: Final = _constant(
    "QUANTIZED_FLOPS_PER_JOULE",
    {"fp8": 2.0, "fp4": 4.0},
    "relative to bf16",
    "counted: a half and a quarter of the bits. B200's products in nvfp4 reach 5.4 to 5.5 PFLOPS (pytorch/ao pull "
    "request 2427, sizes 6,144 and 8,192), here 5.3. Blackwell Ultra's peak in fp4 is 1.5 times as high, yet its "
    "measured products are 7/5 of a GB200's (NVIDIA, NVFP4 Trains with Precision of 16-Bit, figure 1), as its power is",
)
"""Products in fp8 and fp4 for the energy of one in bf16."""

FILLING_ELEMENTS: Final = _constant(
    "FILLING_ELEMENTS",
    {"hopper": 710.0},
    "elements of the inner size in fp8, half as many in 16 bits, by GPU generation",
    "DeepGEMM's first README (February 2025), fp8 on an H800 with at least 4,096 rows: 590, 990, 1,072, 1,296 and "
    "1,358 TFLOPS at inner sizes of 512, 1,536, 2,048, 7,168 and 16,384, to within 4%; Ampere's fitted rates contain "
    "it, and of Blackwell no source",
)
"""Elements that a tensor core could multiply while a tile is filled before its products and stored after them."""

FILLED_SIZE: Final = _constant(
    "FILLED_SIZE", 16384.0, "elements", "counted: the greatest inner size of the figures in FILLING_ELEMENTS"
)
"""Inner size at which a product reaches the rate of its GPU."""

CAST_READS: Final = _constant(
    "CAST_READS",
    {"delayed": 1, "tensorwise": 2, "rowwise": 2, "blockwise": 1, "mxfp8": 1, "nvfp4": 2},
    "passes over each value, by recipe",
    "counted: one to cast, and one before that for the scales of tensorwise, rowwise and nvfp4 "
    "(NVIDIA/TransformerEngine at d0067d0d, pytorch/csrc/quantizer.cpp: nvte_hadamard_transform_amax)",
)
"""Passes over the input of a product that is cast to fp8 or fp4."""

QUANTIZED_BYTES: Final = _constant(
    "QUANTIZED_BYTES",
    {
        **dict.fromkeys(("delayed", "tensorwise", "rowwise"), 1.0),
        "blockwise": 1 + 4 / 128,
        "mxfp8": 1 + 1 / 32,
        "nvfp4": 0.5 + 1 / 16,
    },
    "bytes per element, by recipe",
    "counted: 8 bits, with 32 bits for 128 values or 8 bits for 32; 4 bits, with 8 bits for 16 values "
    "(NVIDIA/TransformerEngine at d0067d0d, common/recipe/__init__.py)",
)
"""Size of what Transformer Engine keeps of a product's input for the gradient of its weight."""

QUANTIZED_WEIGHT_BYTES: Final = _constant(
    "QUANTIZED_WEIGHT_BYTES",
    {**QUANTIZED_BYTES, "blockwise": 1.0},
    "bytes per weight, by recipe",
    "as QUANTIZED_BYTES; blockwise has a scale for 128 x 128 weights",
)
"""Size of a weight as one direction of a product reads it: by rows forward, by columns backward."""

CAST_DIRECTIONS: Final = _constant(
    "CAST_DIRECTIONS",
    {"blackwell": 1, "blackwell-ultra": 1, "other": 2},
    "copies by GPU generation, with one scale per tensor",
    "NVIDIA/TransformerEngine at d0067d0d, pytorch/utils.py: is_non_tn_fp8_gemm_supported",
)
"""Orientations in which weights and inputs of products are kept: Blackwell's products read rows in both directions."""

FP32_GRADIENT_BYTES: Final = _constant(
    "FP32_GRADIENT_BYTES",
    4.0,
    "bytes per parameter of the shard",
    "NVIDIA/Megatron-LM at d98e8a64, megatron/core/optimizer/distrib_optimizer.py: _copy_model_grads_to_main_grads",
)
"""Copy of 16-bit gradients in fp32 during Megatron-Core's step, from which Adam updates fp32 weights."""

FUSED_SWIGLU_BYTES: Final = _constant(
    "FUSED_SWIGLU_BYTES", 6.0, "bytes per token and MLP column, forward", "counted: two reads and a write"
)
"""Traffic of SiLU and product in one kernel."""

NORM_BYTES: Final = _constant(
    "NORM_BYTES", 4.0, "bytes per token and normalised column, forward", "counted: a read and a write"
)
"""Traffic of a norm beyond the two of a plain layer: of queries and keys, or after attention and MLP."""

FUSED_ROTARY_BYTES: Final = _constant(
    "FUSED_ROTARY_BYTES", 4.0, "bytes per token and rotated column, forward", "counted: a read and a write"
)
"""Traffic of rotary embeddings in one kernel."""

COMPILED_BYTES: Final = _constant(
    "COMPILED_BYTES",
    18.0,
    "bytes per token and column, forward",
    "counted: a norm's read and write, a sum's two reads and its write in one kernel with the write of the norm behind "
    "it, and the layer's last sum, which has no norm of its own graph behind it",
)
"""Traffic of two norms and two residuals where torch.compile fuses them."""

COMPILED_MLP_COPIES: Final = _constant(
    "COMPILED_MLP_COPIES",
    3.0,
    "copies of the MLP's width",
    "counted with torch 2.13, autograd.graph.saved_tensors_hooks, on a compiled layer: gate, up and their product",
)
"""Activations of a gated MLP that torch.compile keeps."""

DTENSOR_HOST_SECONDS: Final = _constant(
    "DTENSOR_HOST_SECONDS",
    (2.4e-3, 2.9e-3),
    "seconds per layer, forward and backward",
    "measured: torchtitan 0.2.2's Llama layers with and without tensor parallelism, torch 2.11 on a CPU with a fake "
    "process group (docs/log.md, 2026-11-28)",
)
"""Extra host time of a layer whose weights and activations are sharded tensors, each operation of which PyTorch
dispatches in Python; torch.compile does that once."""

MERGE_BYTES: Final = _constant(
    "MERGE_BYTES",
    (10.0, 6.0),
    "bytes per token and column, forward and backward",
    "counted: reading a 16-bit part, then reading and writing the fp32 output, or the 16-bit gradients (NVIDIA, "
    "TransformerEngine, pytorch/attention/dot_product_attention/context_parallel.py)",
)
"""Traffic of merging a step of ring attention into the steps before it."""

GRACE_HOST_RATIO: Final = _constant(
    "GRACE_HOST_RATIO",
    2.6,
    "ratio",
    "NVIDIA/TransformerEngine issue 2053: one PyTorch linear layer takes 37.1 us of the host on GB200 and 33.2 us on "
    "GH200, 13.5 us on a DGX H100; the mean of both ratios",
)
"""Time in which a Grace host launches a kernel over that of an x86 host."""

NEWTON_SCHULZ_STEPS: Final = _constant(
    "NEWTON_SCHULZ_STEPS",
    5,
    "passes of the iteration",
    "NVIDIA/Megatron-LM at d98e8a64, megatron/core/optimizer/optimizer_config.py: muon_num_ns_steps",
)
"""Steps in which Muon makes an update orthogonal."""

MUON_TABLE_BYTES: Final = _constant(
    "MUON_TABLE_BYTES", 4.0, "bytes per parameter", "counted: embedding and head have both of Adam's moments"
)
"""Optimizer state of embedding and head beyond that of matrices that Muon trains."""

LINEAR_LAUNCH_SECONDS: Final = _constant(
    "LINEAR_LAUNCH_SECONDS",
    13.5e-6,
    "seconds",
    "NVIDIA/TransformerEngine issue 2053: the host time of PyTorch's linear layer in bf16 on a DGX H100 (Xeon 8480C)",
)
"""Time in which an x86 host launches a linear layer; `tuner doctor --measure` compares this machine's with it."""
