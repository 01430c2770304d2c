"""Read the workload and topology from the arguments that a log prints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tuner.core.domain import Attention, Framework, Optimizer, Partition, Precision, Topology, Workload
from tuner.core.errors import InputError
from tuner.core.experts import Experts
from tuner.core.megatron_stack import CORE_OPTIMIZERS, SETTINGS, stack_of_core
from tuner.core.model import Model
from tuner.core.offload import OFFLOAD_OF_OPTIMIZER, OFFLOADED_SHARE, Offload
from tuner.core.recompute import MODULES, selecting
from tuner.core.stack import Stack
from tuner.core.text import listed
from tuner.logs.runs import LogRun

_FLASH: Final = ("use_flash_attn", "use_flash_attn_v2", "use_flash_attn_triton")
_SHARDING: Final = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
"""ZeRO stages by the values of Megatron-LM's `data_parallel_sharding_strategy`."""

_DEEPSPEED_ARGUMENTS: Final = frozenset(
    {"pp_partition_method", "zero_stage", "zero_optimization_stage", "train_batch_size", "steps_per_print"}
)
"""Arguments that DeepSpeed's configuration or Megatron-DeepSpeed prints, and Megatron-LM does not."""
_FRAMEWORKS: Final[Mapping[str, Framework]] = {
    "torchtitan": "torchtitan",
    **dict.fromkeys(("nemo", "step time"), "megatron-core"),
    **dict.fromkeys(("pipeline engine", "throughput timer", "wall-clock breakdown", "flops profiler"), "deepspeed"),
}
"""The framework by the source of the iterations. Forks of both Megatrons print Megatron's lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedWorkload:
    """The workload and topology described by the arguments, and what is missing for a measurement, if anything."""

    workload: Workload | None = None
    topology: Topology | None = None
    lacks: str = ""


class _Arguments:
    """Typed access to printed values; `None`, which Megatron prints for unset arguments, counts as missing."""

    def __init__(self, printed: Mapping[str, str]) -> None:
        self._printed = printed

    def number(self, *names: str) -> int:
        for name in names:
            if re.fullmatch(r"[0-9]{1,12}", value := self._printed.get(name, "")):
                return int(value)
        return 0

    def share(self, name: str) -> float:
        """Return a share, 1 if none is printed."""
        return float(value) if re.fullmatch(r"[01]?(\.\d*)?", value := self.word(name) or "1") else 1.0

    def word(self, name: str) -> str:
        value = self._printed.get(name, "")
        return "" if value in ("None", "False") else value

    def has(self, name: str) -> bool:
        return name in self._printed

    def on(self, *names: str) -> bool:
        return any(self._printed.get(name) == "True" for name in names)


def framework_of(run: LogRun) -> Framework | None:
    """Return the framework that printed the arguments or iterations of a run; None if several might have."""
    megatron = "tensor_model_parallel_size" in run.arguments
    if _DEEPSPEED_ARGUMENTS & run.arguments.keys():
        return "megatron-deepspeed" if megatron or run.source == "megatron" else "deepspeed"
    return "megatron-core" if megatron else _FRAMEWORKS.get(run.source or "")


def described(printed: Mapping[str, str], gpus_per_node: int) -> LoggedWorkload:
    """Return as much of the workload and topology as the printed arguments describe; never raise."""
    arguments = _Arguments(printed)
    try:
        return LoggedWorkload(
            workload=_workload(arguments), topology=_topology(arguments, gpus_per_node), lacks=_lacks(arguments)
        )
    except InputError as error:
        return LoggedWorkload(lacks=f"the arguments in the log cannot be used: {error}")


def _lacks(arguments: _Arguments) -> str:
    if not arguments.number("num_layers"):
        return "the log does not print the arguments of its model"
    other = arguments.word("experimental_attention_variant") or arguments.word("linear_attention_type")
    if other or arguments.on("attention_output_gate"):
        return f"the log is of a model with {other or 'gated attention'}, whose operations are not counted"
    if arguments.number("num_experts") > 1 and (unclear := _unclear_experts(arguments)):
        return f"the log is of a mixture of experts {unclear}"
    needs = {
        "a vocabulary": ("padded_vocab_size",),
        "a hidden size": ("hidden_size",),
        "heads": ("num_attention_heads",),
        "a sequence length": ("seq_length",),
        "a micro-batch size": ("micro_batch_size", "train_micro_batch_size_per_gpu"),
        "a number of GPUs": ("world_size", "data_parallel_size"),
    }
    missing = [need for need, names in needs.items() if not arguments.number(*names)]
    return f"the arguments in the log do not name {listed(missing, last='or')}" if missing else ""


def _workload(arguments: _Arguments) -> Workload | None:
    if _lacks(arguments):
        return None
    heads = arguments.number("num_attention_heads")
    groups = arguments.number("num_query_groups") if arguments.on("group_query_attention") else 0
    hidden, channels = arguments.number("hidden_size"), arguments.number("kv_channels")
    model = Model(
        name="the log's model",
        layers=arguments.number("num_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=groups or arguments.number("num_key_value_heads"),
        head_size=channels if channels * heads != hidden else 0,
        ffn=arguments.number("ffn_hidden_size"),
        gated_mlp=arguments.on("swiglu") or bool(arguments.word("glu_activation")),
        vocab=arguments.number("padded_vocab_size"),
        vocab_multiple=0,  # already padded
        seq=arguments.number("seq_length"),
        tied_embeddings=not arguments.on("untie_embeddings_and_output_weights"),
        experts=_experts(arguments),
    )
    batch = arguments.number("global_batch_size", "train_batch_size")
    return Workload(
        model=model,
        global_batch=batch or arguments.number("micro_batch_size") * max(1, arguments.number("data_parallel_size")),
        precision=_precision(arguments),
        attention=_attention(arguments),
        optimizer=_optimizer(arguments),
        routing="natural" if model.experts and not arguments.on("moe_router_force_load_balancing") else "balanced",
        stack=_stack(arguments, model),
    )


def _stack(arguments: _Arguments, model: Model) -> Stack | None:
    printed = {name: arguments.word(name) or "false" for name in SETTINGS if arguments.has(name)}
    found = stack_of_core(printed, has_experts=model.experts is not None)
    return Stack(**found) if found else None


def _unclear_experts(arguments: _Arguments) -> str:
    """Return why the FLOPs of a mixture cannot be counted; empty if they can."""
    if not arguments.number("moe_router_topk"):
        return "and does not print how many of them a token passes through"
    if arguments.on("multi_latent_attention"):
        return "with latent attention, whose operations are not counted"
    if arguments.number("mtp_num_layers"):
        return "with layers of multi-token prediction, whose operations are not counted"
    if _moe_layers(arguments) is None:
        return "in layers of no known pattern"
    return ""


def _experts(arguments: _Arguments) -> Experts | None:
    count, layers = arguments.number("num_experts"), _moe_layers(arguments)
    if count <= 1 or layers is None:
        return None
    dense, period = layers
    return Experts(
        count=count,
        top_k=arguments.number("moe_router_topk"),
        ffn=arguments.number("moe_ffn_hidden_size", "ffn_hidden_size"),
        shared_ffn=arguments.number("moe_shared_expert_intermediate_size"),
        shared_gate=arguments.on("moe_shared_expert_gate"),
        dense_layers=dense,
        period=period,
    )


def _moe_layers(arguments: _Arguments) -> tuple[int, int] | None:
    """Return the leading layers without experts and the period of those with experts, from moe_layer_freq."""
    printed = arguments.word("moe_layer_freq")
    if printed in ("", "1"):
        return 0, 1
    pattern = [int(digit) for digit in re.findall(r"[01]", printed)] if re.fullmatch(r"\[[01, ]+\]", printed) else []
    for dense in range(len(pattern)):
        for period in range(1, len(pattern) - dense + 1):
            experts = Experts(count=1, top_k=1, ffn=1, dense_layers=dense, period=period)
            if [int(experts.is_moe_layer(layer)) for layer in range(len(pattern))] == pattern:
                return dense, period
    return None


def _topology(arguments: _Arguments, gpus_per_node: int) -> Topology | None:
    if _lacks(arguments):
        return None
    tp = arguments.number("tensor_model_parallel_size") or 1
    pp = arguments.number("pipeline_model_parallel_size", "transformer_pipeline_model_parallel_size") or 1
    cp = arguments.number("context_parallel_size") or 1
    dp = arguments.number("data_parallel_size") or max(1, arguments.number("world_size") // (tp * pp * cp))
    return Topology(
        nodes=-(-tp * pp * cp * dp // gpus_per_node),
        tp=tp,
        pp=pp,
        cp=cp,
        dp=dp,
        vpp=arguments.number("virtual_pipeline_model_parallel_size") or 1,
        ep=arguments.number("expert_model_parallel_size") or 1,
        moe_overlap=arguments.on("overlap_moe_expert_parallel_comm"),
        sequence_parallel=arguments.on("sequence_parallel"),
        zero=_zero(arguments),
        micro_batch=arguments.number("micro_batch_size", "train_micro_batch_size_per_gpu"),
        recompute=_recompute(arguments),
        partition=_partition(arguments),
        offload=_offload(arguments),
    )


def _precision(arguments: _Arguments) -> Precision:
    if arguments.word("fp8"):
        return "fp8"
    if arguments.word("fp4"):
        return "fp4"
    return "bf16" if arguments.on("bf16") else "fp16" if arguments.on("fp16") else "fp32"


def _optimizer(arguments: _Arguments) -> Optimizer:
    """Return the optimizer; those that tuner does not know have the states of Adam."""
    found = CORE_OPTIMIZERS.get(arguments.word("optimizer"), "adam")
    in_bf16 = {arguments.word("exp_avg_dtype"), arguments.word("exp_avg_sq_dtype")} == {"torch.bfloat16"}
    return "adam-bf16" if found == "adam" and in_bf16 else found


def _attention(arguments: _Arguments) -> Attention:
    if arguments.on("use_flash_attn_v1"):
        return "flash1"
    if arguments.on(*_FLASH):
        return "flash2"
    return "fused" if arguments.on("masked_softmax_fusion", "scaled_masked_softmax_fusion") else "eager"


def _recompute(arguments: _Arguments) -> str:
    if arguments.word("recompute_granularity") == "full" or arguments.on("checkpoint_activations"):
        return "full"
    if arguments.word("recompute_granularity") != "selective" and not arguments.on("recompute_activations"):
        return "none"
    printed = re.findall(r"\w+", arguments.word("recompute_modules")) or ["core_attn"]
    return selecting(module for module in printed if module in MODULES)


def _zero(arguments: _Arguments) -> int:
    stage = arguments.number("zero_stage", "zero_optimization_stage")
    of_muon = arguments.on("use_layer_wise_distributed_optimizer") or arguments.word("optimizer") == "dist_muon"
    if of_muon or arguments.on("use_distributed_optimizer"):
        stage = max(stage, _SHARDING.get(arguments.word("data_parallel_sharding_strategy"), 1), 1)
    return stage


def _offload(arguments: _Arguments) -> Offload:
    if not arguments.on("cpu_optimizer", "optimizer_cpu_offload"):
        return "none"
    if arguments.word("remote_device") == "cpu":
        return "optimizer+parameters"
    share = arguments.share("optimizer_offload_fraction")
    return min(OFFLOAD_OF_OPTIMIZER, key=lambda offload: abs(OFFLOADED_SHARE[offload] - share))


def _partition(arguments: _Arguments) -> Partition:
    return "embedding" if "embedding" in arguments.word("pp_partition_method") else "layers"
