"""The cost model's constants of experts, each with its unit and its source; `RECORDS` has each one's record."""

from __future__ import annotations

from typing import Final

from tuner.costmodel.constants import ConstantRecords

RECORDS: Final = ConstantRecords()
_constant: Final = RECORDS.add

ROUTER_BYTES: Final = _constant(
    "ROUTER_BYTES", 40.0, "bytes per token and expert, forward", "counted: ten reads or writes of fp32 scores"
)
"""Traffic of the router: scores, their softmax or sigmoid, the choice of the highest, and the balancing loss."""

ROUTER_CAST_BYTES: Final = _constant(
    "ROUTER_CAST_BYTES",
    16.0,
    "bytes per token and column of hidden, backward",
    "counted in NVIDIA/Megatron-LM at d98e8a64, megatron/core/transformer/moe/moe_utils.py: RouterGatingLinearFunction "
    "casts its input to fp32 (6) and its gradient back (6), and both products read and write 4 bytes instead of 2",
)
"""Traffic of the router's backward pass in fp32, --moe-router-dtype; forward its product reads 16 bits."""

EXPERT_HOST_SECONDS: Final = _constant(
    "EXPERT_HOST_SECONDS",
    0.45e-3,
    "seconds, in either pass",
    "counted: 40 operations of 8 us, two exchanges, and the number of tokens of each expert",
)
"""Extra host time of a layer with experts."""

COUNTED_TOKENS_SECONDS: Final = _constant(
    "COUNTED_TOKENS_SECONDS",
    0.1e-3,
    "seconds",
    "counted in NVIDIA/Megatron-LM at d98e8a64: twelve operations of 8 us from the event that tells the host the "
    "number of tokens to the kernel for which the GPU waits (moe/token_dispatcher.py: the all-to-all, behind a "
    "permutation that is already running; moe/fused_a2a.py: the first products behind HybridEP's permutation)",
)
"""Time in which the GPU has nothing to do, because the host did not know the number of tokens of each expert."""

EXPERT_MODULE_SECONDS: Final = _constant(
    "EXPERT_MODULE_SECONDS",
    (1.6e-3, 2.4e-3),
    "seconds, forward and backward",
    "measured on one H200: a layer of Qwen3-30B with 16 experts takes 16 ms of a host that launches dense layers 1.5 "
    "to 2.4 times as slowly as HOST_SECONDS, so 7 ms or more, of which 2.7 are counted elsewhere; two fifths forward",
)
"""Host time of an x86 host in the Python modules of a layer with experts."""

LAUNCH_SECONDS: Final = _constant("LAUNCH_SECONDS", 5e-6, "seconds", "counted: a launch by cuBLAS, without Python")
"""Host time of one kernel of the grouped products, which Transformer Engine launches expert by expert."""

EXPERT_PRODUCT_SECONDS: Final = _constant(
    "EXPERT_PRODUCT_SECONDS",
    13.5e-6,
    "seconds",
    "taken to be LINEAR_LAUNCH_SECONDS, since each product is launched apart; four of five sources of published runs "
    "give 11 to 18 us, whichever is left out (docs/log.md). Alone in a loop, products of 8 and 16 experts take only "
    "1.1 us longer than in one kernel (NVIDIA/TransformerEngine pull request 2045, on H100)",
)
"""GPU time of one expert's product in a kernel of its own, beyond that of its operations."""

ALL_TO_ALL_SHARE: Final = _constant(
    "ALL_TO_ALL_SHARE",
    0.8,
    "share",
    "DeepEP at 0297fc80, README: 726 of 900 GB/s between 8 B200",
)
"""Share of a GPU's one-way bandwidth in its NVLink domain that an all-to-all reaches."""

DEEPEP_SHARES: Final = _constant(
    "DEEPEP_SHARES",
    {"hopper": 0.68, "blackwell": 0.38, "blackwell-ultra": 0.38},
    "share of the one-way bandwidth, by GPU generation",
    "deepseek-ai/DeepEP, first README: 155 of 200 GB/s between 8 H800, of which an eighth stays on the GPU; at "
    "41cad944, docs/README_Hybrid-EP.md: 389 of 900 GB/s between 8 B200 with 20 multiprocessors, interpolated, and the "
    "mean of dispatch and combine",
)
"""The same for DeepEP's first kernels, which Megatron-Core calls with 20 multiprocessors."""

HYBRIDEP_SHARES: Final = _constant(
    "HYBRIDEP_SHARES",
    ((8, 0.70), (16, 0.66), (24, 0.64), (32, 0.63), (36, 0.62)),
    "ranks, share of the one-way bandwidth",
    "deepseek-ai/DeepEP at 41cad944, docs/README_Hybrid-EP.md: kernels on GB200 with 16 multiprocessors, dispatch of "
    "bf16 750 to 613 GB/s and combine 684 to 543, less what stays on the GPU",
)
"""The same for HybridEP by the ranks in a domain; between them and beyond, by the logarithm of the ranks."""

EXCHANGE_SECONDS: Final = _constant(
    "EXCHANGE_SECONDS",
    50e-6,
    "seconds",
    "deepseek-ai/DeepEP at 41cad944, docs/README_Hybrid-EP.md: the mean of the twelve exchanges of bf16 on B200 and "
    "GB200 with 16 multiprocessors, by the Torch API less the kernel and less a copy of what arrives at 5.3 TB/s; "
    "tests/test_hybrid_ep.py names device_sync and update_flag",
)
"""GPU time of a HybridEP exchange outside its kernel and the copies that `routing` counts."""

RDMA_SHARE: Final = _constant(
    "RDMA_SHARE",
    0.9,
    "share",
    "DeepEP at 0297fc80, README: 61 GB/s over 4 nodes, of which a quarter stays in the node, on links of 50 GB/s",
)
"""Share of a GPU's network link that DeepEP's and HybridEP's exchanges between nodes reach."""

EXCHANGE_SMS: Final = _constant(
    "EXCHANGE_SMS",
    20.0,
    "SMs",
    "NVIDIA/Megatron-LM, core/transformer/transformer_config.py: moe_deepep_num_sms 20, moe_hybridep_num_sms 16",
)
"""Multiprocessors that an exchange takes from concurrent compute; no source for NCCL's exchanges."""

SUMMED_BYTES: Final = _constant(
    "SUMMED_BYTES",
    4.0,
    "bytes per element",
    "NVIDIA/Megatron-LM at d98e8a64, megatron/core/transformer/moe/token_dispatcher.py: "
    "MoEAllGatherTokenDispatcher.token_combine casts to the dtype of the router's weights, which is fp32",
)
"""Outputs of experts, which the ranks of an all-gather sum."""

EXPERT_LOAD_DEVIATION: Final = _constant(
    "EXPERT_LOAD_DEVIATION",
    0.45,
    "relative standard deviation of an expert's tokens",
    "no source; with natural routing published runs were 33 to 47% slower",
)
"""Imbalance of the experts' load under a router that is balanced by a loss."""


EXPERT_BIAS_BYTES: Final = _constant(
    "EXPERT_BIAS_BYTES",
    (28.0, 40.0),
    "bytes per token and output column of an expert, forward and backward",
    "counted in NVIDIA/Megatron-LM at d98e8a64, megatron/core/transformer/moe/experts.py: _apply_bias multiplies the "
    "output's bias by the fp32 weights of the router, adds, concatenates and casts in kernels of their own",
)
"""Traffic of the bias of an expert's output."""

WEIGHTED_BYTES: Final = _constant(
    "WEIGHTED_BYTES",
    6.0,
    "bytes per token and column of an expert's width, backward",
    "counted in NVIDIA/Megatron-LM at d98e8a64, megatron/core/fusions/fused_bias_swiglu.py: weighted_swiglu_back reads "
    "gate, up and the gradient again for the router's weights, since PyTorch's compiler fuses no sum over the width "
    "with gradients concatenated to twice the width (torch/_inductor/lowering.py: cat)",
)
"""Traffic of the gradient of the router's weights, by which a gated activation is multiplied."""

CLAMP_BYTES: Final = _constant(
    "CLAMP_BYTES",
    (16.0, 30.0),
    "bytes per token and column of an expert's width, forward and backward",
    "counted in NVIDIA/Megatron-LM at d98e8a64, megatron/core/fusions/fused_bias_geglu.py: "
    "weighted_bias_quick_geglu_impl clamps gate and up and concatenates them in kernels of their own; backward "
    "PyTorch's clamp_backward makes and applies a mask of one bound (8) and of two (14), and a split concatenates (8)",
)
"""Traffic of the clamp of a quick GeGLU, as in gpt-oss; that of a SwiGLU is fused with it."""

EXPERT_MLP_COPIES: Final = _constant(
    "EXPERT_MLP_COPIES",
    3.0,
    "copies of an expert's width",
    "counted: gate, up and the output of one kernel that also multiplies by the router's weights, or the activation's "
    "input, its output and that times the weights (NVIDIA/Megatron-LM at d98e8a64, megatron/core/transformer/moe/"
    "experts.py: bias_act_func)",
)
"""Activations of an expert between its products."""

EXPERT_MEMORY_DEVIATION: Final = _constant(
    "EXPERT_MEMORY_DEVIATION",
    0.12,
    "standard deviation of a logarithm",
    "how far the 14 published figures with experts in corpus/modern/bridge-skills-h100.csv are from the estimates",
)
"""Uncertainty of memory with experts before any measurement: buffers of fused dispatchers are not modelled."""
