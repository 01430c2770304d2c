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

EXPERT_HOST_SECONDS: Final = _constant(
    "EXPERT_HOST_SECONDS",
    0.45e-3,
    "seconds, in either pass",
    "counted: 40 operations of 8 us, two exchanges, and a wait for the number of tokens of each expert",
)
"""Extra host time of a layer with experts."""

LAUNCH_SECONDS: Final = _constant("LAUNCH_SECONDS", 5e-6, "seconds", "counted: a launch by cuBLAS, without Python")
"""Host time of one kernel of the grouped products, which Transformer Engine launches expert by expert."""

ALL_TO_ALL_SHARE: Final = _constant(
    "ALL_TO_ALL_SHARE",
    0.8,
    "share",
    "DeepEP at 0297fc80, README: 726 of 900 GB/s between 8 B200; its first version 153 of 200 GB/s between 8 H800",
)
"""Share of a GPU's one-way bandwidth in its NVLink domain that an all-to-all reaches."""

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
"""Multiprocessors that an exchange takes from the computing beside it; of NCCL's exchanges no source."""

EXPERT_LOAD_DEVIATION: Final = _constant(
    "EXPERT_LOAD_DEVIATION",
    0.45,
    "relative standard deviation of an expert's tokens",
    "no source; with natural routing published runs were 33 to 47% slower",
)
"""How unequally a router that is balanced by a loss loads the experts."""


EXPERT_MLP_COPIES: Final = _constant(
    "EXPERT_MLP_COPIES",
    3.0,
    "copies of an expert's width",
    "counted: gate, up and the output of one kernel that also multiplies by the router's weights, or the activation's "
    "input, its output and that times the weights (NVIDIA/Megatron-LM at d98e8a64, megatron/core/transformer/moe/"
    "experts.py: bias_act_func)",
)
"""Activations of an expert between its products."""
