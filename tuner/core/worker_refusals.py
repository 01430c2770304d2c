"""Checks for jobs that the worker cannot run: unsupported features, and topologies that are not legal.

The rules of the search cover the latter too; these checks apply to the model and DeepSpeed config of the actual job.
An export of the worker makes the same checks, so this module imports neither torch nor DeepSpeed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields
from functools import lru_cache
from typing import Any, Final, NamedTuple

from tuner.core.domain import Topology, Workload
from tuner.core.errors import InputError
from tuner.core.model import PARTS, Model
from tuner.core.offload import OFFLOAD_WHOLE, OFFLOAD_ZERO
from tuner.core.recompute import GRANULARITIES
from tuner.core.text import counted, either, listed, shown

BUILT: Final = frozenset(
    {"name", "layers", "hidden", "heads", "vocab", "seq", "kv_heads", "ffn", "head_size", "gated_mlp"}
    | {"tied_embeddings", "positions", "max_positions", "norm", "norms_per_layer", "qk_norm", "embedding_norm"}
    | {"final_norm", "qkv_bias", "attention_bias", "mlp_bias", "head_bias", "embedding_size", "vocab_multiple"}
    | {"frozen_params", "read_as", "activation", "norm_epsilon", "norm_offset", "norm_placement", "norm_bias"}
    | {"qk_norm_span", "rotary_base", "rotary_fraction", "rotary_interleaved", "rotary_local_base", "rotary_skip"}
    | {"rotary_scaling", "parallel_attention", "sliding_window", "window_start", "window_skip", "attention_softcap"}
    | {"logit_softcap", "attention_scale", "embedding_scale", "residual_scale", "logit_scale", "init_std"}
)
"""Fields of the model that the worker builds, or whose unsupported values are refused by name below."""

BUILT_OF_EXPERTS: Final = frozenset(
    {"count", "top_k", "ffn", "shared_ffn", "shared_gate", "dense_layers", "period", "normalized", "scale"}
    | {"aux_loss", "aux_loss_per_sequence", "z_loss"}
)
"""Fields of the experts that the worker builds."""

MAX_ZERO_WITH_EP: Final = 2
"""DeepSpeed 0.19.8, runtime/engine.py, _validate_zero3_moe_compatibility: no ZeRO 3 with its own MoE."""

WORKER_OPTIMIZERS: Final = ("adam", "sgd", "adafactor")
ACTIVATIONS: Final = ("gelu", "gelu_tanh", "quick_gelu", "relu", "relu2", "silu")
NORM_PLACEMENTS: Final = ("before", "after", "around")
ROTARY_SCALINGS: Final = ("linear", "llama3")


_KEPT: Final = (None, "none")
"""Devices of DeepSpeed's offload options that leave states on the GPU."""


class Refusal(NamedTuple):
    """Why a job cannot be run."""

    field: str
    """The field of the model, workload or topology that the worker cannot implement."""
    sentence: str


def refuse(workload: Workload, topology: Topology, ds_config: dict[str, Any]) -> None:
    """Raise `InputError` with the first reason why this job cannot be run, if any."""
    for _, sentence in refusals(workload, topology):
        raise InputError(sentence)
    for sentence in _schedule(workload, topology, ds_config):
        raise InputError(sentence)


@lru_cache(64)
def refusals(workload: Workload, topology: Topology) -> tuple[Refusal, ...]:
    """Return the reasons why the worker cannot train this model, or not on this topology.

    An export asks once for each property of a run.
    """
    found = (
        *_parts(workload, topology),
        *_identity(workload, topology),
        *_features(workload),
        *_shards(workload.model, topology),
        *_experts(workload, topology),
        *_attention(workload),
    )
    return tuple(Refusal(name, sentence) for name, sentence in found)


Named = Iterator[tuple[str, str]]


def _parts(workload: Workload, topology: Topology) -> Named:
    if topology.cp > 1:
        yield "cp", f"the worker has no context parallelism, but cp is {topology.cp}; use cp=1."
    if topology.vpp > 1:
        yield "vpp", f"the worker's pipeline does not interleave, but vpp is {topology.vpp}; use vpp=1."
    if topology.hsdp > 1:
        yield "hsdp", f"DeepSpeed's ZeRO has no replica groups, but hsdp is {topology.hsdp}; use hsdp=1."
    if topology.etp > 1:
        yield "etp", f"the worker has no expert tensor parallelism, but etp is {topology.etp}; use etp=1."
    if topology.dispatcher != "alltoall":
        yield "dispatcher", f"the worker has no dispatcher {topology.dispatcher}; use alltoall."
    if topology.moe_overlap:
        yield "moe_overlap", "the worker does not overlap the exchange of tokens; use moe_overlap=off."
    if topology.recompute not in GRANULARITIES:
        yield "recompute", f"the worker recomputes {either(GRANULARITIES)}, not {topology.recompute}."
    if topology.offload not in OFFLOAD_WHOLE:
        yield "offload", f"the worker offloads {either(OFFLOAD_WHOLE[1:])}, not {topology.offload}."
    if topology.zero < OFFLOAD_ZERO[topology.offload]:
        needed = OFFLOAD_ZERO[topology.offload]
        yield "offload", f"offload {topology.offload} needs ZeRO {needed} or more, not {topology.zero}."
    if workload.optimizer not in WORKER_OPTIMIZERS:
        yield "optimizer", f"the worker has the optimizers {listed(WORKER_OPTIMIZERS)}, not {workload.optimizer}."
    if workload.is_quantized:
        yield "precision", f"the worker computes in fp32, bf16 or fp16, not in {workload.precision}."
    if workload.attention == "fused":
        yield "attention", "the worker has no fused attention, which is Megatron's kernel; use eager, flash1 or flash2."
    if workload.plain_layers:
        yield (
            "plain_layers",
            "the worker has Megatron's layers, not plain layers under autocast; leave plain_layers out.",
        )


def _identity(workload: Workload, topology: Topology) -> Named:
    """Yield properties of the model that the worker does not train."""
    model = workload.model
    if model.not_understood:
        yield (
            "not_understood",
            f"the worker cannot build a model with {listed(model.not_understood)}, which tuner does not understand.",
        )
    if model.latent:
        yield "latent", "the worker has no latent attention."
    if model.delta_net:
        yield "delta_net", "the worker has no Gated DeltaNet."
    for field in fields(model):
        value = getattr(model, field.name)
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        if field.name not in {*BUILT, *PARTS, "not_understood"} and value != default:
            yield field.name, f"the worker has no {field.name}, which the model sets to {shown(value)}."
    if model.mlp_activation not in ACTIVATIONS:
        yield "activation", f"the worker's activation is {either(ACTIVATIONS)}, not {model.mlp_activation}."
    if model.norm_placement not in NORM_PLACEMENTS:
        yield "norm_placement", f"the worker's norm_placement is {either(NORM_PLACEMENTS)}, not {model.norm_placement}."
    if model.qk_norm and model.norm == "layernorm":
        yield "qk_norm", "the worker's qk_norm is an RMSNorm, but the model's norms are LayerNorms."
    if model.qk_norm and model.qk_norm_span not in ("head", "width"):
        yield "qk_norm_span", f"the worker's qk_norm_span is head or width, not {model.qk_norm_span}."
    if model.qk_norm and model.qk_norm_span == "width" and topology.tp > 1:
        yield "qk_norm_span", f"the worker's qk_norm over the whole width (qk_norm_span) needs tp=1, not {topology.tp}."
    if model.rotary_scaling and model.rotary_scaling.kind not in ROTARY_SCALINGS:
        yield "rotary_scaling", f"the worker's rotary_scaling is linear or llama3, not {model.rotary_scaling.kind}."
    if model.rotary_scaling and model.rotary_scaling.kind == "llama3" and not model.rotary_scaling.original_seq:
        yield "rotary_scaling", "llama3's rotary_scaling needs the length of sequences before scaling (original_seq)."
    kernel = {"sliding_window": model.window, "attention_softcap": model.attention_softcap}
    for name, value in kernel.items():
        if value and workload.attention != "eager":
            yield name, f"torch's flash kernel has no {name} (the model's: {value:g}); use eager attention."


def _features(workload: Workload) -> Named:
    model = workload.model
    expected = (1, 2) if model.parallel_attention else (4,) if model.norm_placement == "around" else (2,)
    if model.parallel_attention and model.norm_placement != "before":
        yield (
            "parallel_attention",
            f"the worker's parallel_attention has its norms before it, not {model.norm_placement} it.",
        )
    elif model.norms_per_layer not in expected:
        yield (
            "norms_per_layer",
            f"the worker's layers have {either(str(count) for count in expected)} norms where norm_placement is "
            f"{model.norm_placement}, but the model has {model.norms_per_layer}.",
        )
    if model.embedding_size != model.hidden:
        yield (
            "embedding_size",
            f"the worker does not project embeddings ({model.embedding_size} to hidden {model.hidden}).",
        )
    if model.head_bias and model.tied_embeddings:
        yield "head_bias", "the worker's tied output layer has no bias; untie the embeddings or leave head_bias out."
    if model.positions == "learned" and model.max_positions < model.seq:
        yield (
            "max_positions",
            f"{model.max_positions} learned positions are fewer than the sequence's {model.seq} tokens.",
        )
    if model.positions == "alibi" and workload.attention != "eager":
        yield (
            "positions",
            f"torch's flash kernel takes no linear biases (alibi); use eager attention, not {workload.attention}.",
        )


def _shards(model: Model, topology: Topology) -> Named:
    tp = topology.tp
    if not model.head_size and model.hidden % model.heads:
        yield "heads", f"hidden {model.hidden} is not divisible by {model.heads} heads."
    if model.heads % model.kv_heads:
        yield "kv_heads", f"{model.heads} heads are not divisible by {model.kv_heads} key/value heads."
    named = {
        "heads": model.heads,
        "hidden": model.hidden,
        "ffn": model.ffn,
        "the padded vocabulary": model.padded_vocab(tp),
    }
    for name, size in named.items():
        if size % tp:
            yield "tp", f"{name} ({size}) is not divisible by tp={tp}."
    if model.kv_heads % tp and tp % model.kv_heads:
        yield "tp", f"neither {model.kv_heads} key/value heads nor tp={tp} divides the other."
    if topology.sequence_parallel and tp == 1:
        yield "sequence_parallel", "sequence parallelism splits work among tensor-parallel ranks, but tp is 1."
    if topology.sequence_parallel and model.seq % tp:
        yield (
            "sequence_parallel",
            f"sequence length {model.seq} is not divisible by tp={tp}, which sequence parallelism needs.",
        )
    size = model.query_width // model.heads
    if model.positions == "rotary" and int(size * model.rotary_fraction) % 2:
        turned = "" if model.rotary_fraction == 1 else f" x rotary_fraction {model.rotary_fraction:g}"
        yield "positions", f"rotary positions need an even head size, not {size}{turned}."


def _experts(workload: Workload, topology: Topology) -> Named:
    model, experts, ep = workload.model, workload.model.experts, topology.ep
    if experts is None:
        if ep > 1:
            yield "ep", f"{shown(model.name)} has no experts to spread over ep={ep} ranks; use ep=1."
        return
    for field in fields(experts):
        value = getattr(experts, field.name)
        if field.name not in BUILT_OF_EXPERTS and value != field.default:
            yield "experts", f"the worker's experts have no {field.name}, which the model sets to {shown(value)}."
    if workload.precision == "fp16":
        yield "experts", "the worker's experts train in fp32 or bf16, not in fp16; use bf16."
    if experts.count % ep:
        yield "ep", f"{experts.count} experts are not divisible by ep={ep}."
    ranks = topology.tp * topology.dp
    if ranks % ep:
        yield "ep", f"tp x dp = {topology.tp} x {topology.dp} = {ranks} ranks are not divisible by ep={ep}."
    if ep > 1 and topology.zero > MAX_ZERO_WITH_EP:
        yield (
            "zero",
            f"DeepSpeed's expert parallelism (ep={ep}) does not support ZeRO {topology.zero}; use ZeRO 0, 1 or 2.",
        )
    if experts.shared_ffn % topology.tp:
        yield "tp", f"the shared experts' width ({experts.shared_ffn}) is not divisible by tp={topology.tp}."
    first = topology.split_units(model.layers) // topology.pp - (topology.partition == "embedding")
    needed = experts.dense_layers + experts.period
    if ep > 1 and topology.pp > 1 and topology.zero and first < needed:
        yield (
            "pp",
            f"DeepSpeed's ZeRO {topology.zero} with ep={ep} hangs unless every stage has experts, but the first of "
            f"pp={topology.pp} stages has {counted(first, 'layer')} and needs {needed} to have one; use ZeRO 0 or "
            "fewer stages.",
        )
    if topology.tp > 1 and not topology.sequence_parallel:
        yield "sequence_parallel", f"experts need sequence parallelism over tp={topology.tp} ranks."


def _attention(workload: Workload) -> Named:
    if workload.attention not in ("flash1", "flash2"):
        return
    size, maximum = workload.model.query_width // workload.model.heads, 256 if workload.attention == "flash2" else 128
    if workload.precision == "fp32":
        yield "attention", f"{workload.attention} computes in 16 bits, but the precision is fp32; use eager attention."
    if size > maximum:
        yield "attention", f"head size {size} is more than the {maximum} of {workload.attention}; use eager attention."


def _schedule(workload: Workload, topology: Topology, ds_config: dict[str, Any]) -> Iterator[str]:
    model, pp = workload.model, topology.pp
    step = topology.step_batch
    if workload.global_batch % step:
        yield (
            f"global batch {workload.global_batch} is not divisible by micro_batch x dp = "
            f"{topology.micro_batch} x {topology.dp} = {step}."
        )
    units = topology.split_units(model.layers)
    if topology.partition == "layout":
        yield "the worker does not support partition layout; choose a pp that divides the layers."
    elif units % pp:
        yield f"{units} layers, counted by {topology.partition}, are not divisible by pp={pp}."
    if topology.partition == "embedding" and pp > 1 and units < 2 * pp:
        yield f"{model.layers} layers, embedding and head over pp={pp} stages leave a stage with the embedding alone."
    wanted = {
        "train_batch_size": workload.global_batch,
        "train_micro_batch_size_per_gpu": topology.micro_batch,
        "gradient_accumulation_steps": workload.global_batch // step,
    }
    for name, value in wanted.items():
        if ds_config.get(name) != value:
            yield f"ds_config has {name} {ds_config.get(name)}, but {topology.key} needs {value}."
    zero = ds_config.get("zero_optimization", {})
    stage = zero.get("stage", 0)
    if stage != topology.zero:
        yield f"ds_config has ZeRO stage {stage}, but {topology.key} needs {topology.zero}."
    offloaded = [part for part in ("optimizer", "param") if zero.get(f"offload_{part}", {}).get("device") not in _KEPT]
    offload = "+".join(offloaded).replace("param", "parameters") or "none"
    if offload != topology.offload:
        yield f"ds_config has offload {offload}, but {topology.key} needs {topology.offload}."
