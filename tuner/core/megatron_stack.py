"""What settings of Megatron-Core say about overlap, fusion, gradients and CUDA graphs, in commands and in logs.

Read in NVIDIA/Megatron-LM at d98e8a64, `megatron/training/arguments.py`, `megatron/core/model_parallel_config.py` and
`megatron/core/transformer/transformer_config.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, get_args

from tuner.core.domain import Optimizer
from tuner.core.stack import OVERLAPPED_TP, ContextExchange

SETTINGS: Final = (
    *("overlap_grad_reduce", "overlap_param_gather", "tp_comm_overlap", "grad_reduce_in_bf16", "main_grads_dtype"),
    *("cross_entropy_loss_fusion", "cross_entropy_fusion_impl", "moe_permute_fusion", "cp_comm_type"),
    "moe_pad_expert_input_to_capacity",
    *("cuda_graph_impl", "cuda_graph_scope", "cuda_graph_modules", "enable_cuda_graph", "external_cuda_graph"),
)
"""The settings that are understood, by the names of their fields; Bridge also has `grad_reduce_in_fp32`."""
TRUE: Final = ("", "true", "1", "yes")
"""Values of a switch that is on, in lower case; the empty one is a flag without a value."""
ADAM: Final = ("adam", "adamw")
CORE_OPTIMIZERS: Final[Mapping[str, Optimizer]] = {
    **dict.fromkeys(ADAM, "adam"),
    "sgd": "sgd",
    **dict.fromkeys(("muon", "dist_muon"), "muon"),
}
"""Optimizers by their names in Megatron-LM; dist_muon brings the distributed optimizer along."""


def stack_of_core(settings: Mapping[str, str], *, has_experts: bool) -> dict[str, Any]:
    """Return the fields of `Stack` that the settings determine; a switch without a value is on."""
    switches = {name: value.lower() in TRUE for name, value in settings.items()}
    found: dict[str, Any] = {
        field: 0.0
        for name, field in (("overlap_grad_reduce", "overlap_grad"), ("overlap_param_gather", "overlap_param"))
        if not switches.get(name, True)
    }
    if switches.get("tp_comm_overlap"):
        found["overlap_tp"] = OVERLAPPED_TP
    in_bf16 = switches.get("grad_reduce_in_bf16") or not switches.get("grad_reduce_in_fp32", True)
    if in_bf16 or settings.get("main_grads_dtype") in ("bf16", "torch.bfloat16"):
        found["grad_precision"] = "bf16"
    if switches.get("cross_entropy_loss_fusion") and settings.get("cross_entropy_fusion_impl") == "te":
        found["fused_loss"] = True
    if has_experts and not switches.get("moe_permute_fusion", True):
        found["fused_permutation"] = False
    if has_experts and switches.get("moe_pad_expert_input_to_capacity"):
        found["padded_experts"] = True
    if graph := _graph(settings, switches):
        found["cuda_graph"] = graph
    kinds = set(re.findall(r"[\w+]+", settings.get("cp_comm_type", "")))
    if len(kinds) == 1 and kinds <= set(get_args(ContextExchange)):
        found["cp_comm"] = kinds.pop()
    return found


def _graph(settings: Mapping[str, str], switches: Mapping[str, bool]) -> str | None:
    """Return what runs as CUDA graphs; graphs of a layer leave out experts that are not padded to a capacity."""
    has_own = switches.get("enable_cuda_graph") or switches.get("external_cuda_graph")
    kind = settings.get("cuda_graph_impl", "none").lower()
    if kind in ("none", "null", "false") and not has_own:
        return None
    named = " ".join(settings.get(f"cuda_graph_{name}", "") for name in ("scope", "modules"))
    parts = set(re.findall(r"\w+", named)) - {"full"}  # the whole layer, in releases before a list of its parts
    padded = switches.get("moe_pad_expert_input_to_capacity", False)
    whole = "full_iteration" in {kind, *parts} or (padded and (not parts or "moe" in parts))
    return "full" if whole else "partial"
