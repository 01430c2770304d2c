"""Checks for jobs that the worker cannot run: unsupported features, and topologies that are not legal.

The rules of the search cover the latter too; these checks apply to the model and DeepSpeed config of the actual job.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tuner.core.domain import Model, Topology, Workload
from tuner.core.errors import InputError
from tuner.worker.vocabulary import padded_vocab


def refuse(workload: Workload, topology: Topology, ds_config: dict[str, Any]) -> None:
    """Raise `InputError` with the first reason why this job cannot be run, if any."""
    model = workload.model
    reasons = (
        *_parts(workload, topology),
        *_features(workload),
        *_shards(model, topology),
        *_attention(workload),
        *_schedule(workload, topology, ds_config),
    )
    for reason in reasons:
        raise InputError(reason)


def _parts(workload: Workload, topology: Topology) -> Iterator[str]:
    if topology.cp > 1:
        yield f"the worker has no context parallelism, and cp is {topology.cp}; use cp=1."
    if topology.vpp > 1:
        yield f"the worker's pipeline does not interleave, and vpp is {topology.vpp}; use vpp=1."
    if workload.precision == "fp8":
        yield "the worker computes in fp32, bf16 or fp16, not in fp8."
    if workload.attention == "fused":
        yield "the worker has no fused attention, which is Megatron's kernel; use eager, flash1 or flash2."
    if workload.plain_layers:
        yield "the worker has Megatron's layers and no plain ones under autocast; leave plain_layers out."


def _features(workload: Workload) -> Iterator[str]:
    model = workload.model
    if model.norms_per_layer != 2:
        yield f"the worker's layers have two norms each, not {model.norms_per_layer}."
    if model.embedding_size != model.hidden:
        yield f"the worker does not project embeddings ({model.embedding_size} to hidden {model.hidden})."
    if model.head_bias and model.tied_embeddings:
        yield "the worker's tied output layer has no bias; untie the embeddings or leave head_bias out."
    if model.positions == "learned" and model.max_positions < model.seq:
        yield f"{model.max_positions} learned positions are fewer than the sequence's {model.seq} tokens."
    if model.positions == "alibi" and workload.attention != "eager":
        yield f"torch's flash kernel takes no linear biases (alibi); use eager attention, not {workload.attention}."


def _shards(model: Model, topology: Topology) -> Iterator[str]:
    tp = topology.tp
    if not model.head_size and model.hidden % model.heads:
        yield f"hidden {model.hidden} does not divide by {model.heads} heads."
    if model.heads % model.kv_heads:
        yield f"{model.heads} heads do not divide by {model.kv_heads} key/value heads."
    named = {
        "heads": model.heads,
        "hidden": model.hidden,
        "ffn": model.ffn,
        "the padded vocabulary": padded_vocab(model, tp),
    }
    for name, size in named.items():
        if size % tp:
            yield f"{name} ({size}) does not divide by tp={tp}."
    if model.kv_heads % tp and tp % model.kv_heads:
        yield f"{model.kv_heads} key/value heads and tp={tp} do not divide one another."
    if topology.sequence_parallel and tp == 1:
        yield "sequence parallelism shares work among tensor parallel ranks, and tp is 1."
    if topology.sequence_parallel and model.seq % tp:
        yield f"sequence length {model.seq} does not divide by tp={tp}, which sequence parallelism needs."
    if model.positions == "rotary" and model.query_width // model.heads % 2:
        yield f"rotary positions need an even head size, not {model.query_width // model.heads}."


def _attention(workload: Workload) -> Iterator[str]:
    if workload.attention not in ("flash1", "flash2"):
        return
    size, maximum = workload.model.query_width // workload.model.heads, 256 if workload.attention == "flash2" else 128
    if workload.precision == "fp32":
        yield f"{workload.attention} computes in 16 bits, and the precision is fp32; use eager attention."
    if size > maximum:
        yield f"head size {size} is more than the {maximum} of {workload.attention}; use eager attention."


def _schedule(workload: Workload, topology: Topology, ds_config: dict[str, Any]) -> Iterator[str]:
    model, pp = workload.model, topology.pp
    step = topology.micro_batch * topology.dp
    if workload.global_batch % step:
        yield (
            f"global batch {workload.global_batch} does not divide by micro_batch x dp = "
            f"{topology.micro_batch} x {topology.dp} = {step}."
        )
    units = model.layers + 2 * (topology.partition == "embedding")
    if units % pp:
        yield f"{units} layers, counted by {topology.partition}, do not divide by pp={pp}."
    if topology.partition == "embedding" and pp > 1 and units < 2 * pp:
        yield f"{model.layers} layers, embedding and head over pp={pp} stages leave the embedding alone."
    wanted = {
        "train_batch_size": workload.global_batch,
        "train_micro_batch_size_per_gpu": topology.micro_batch,
        "gradient_accumulation_steps": workload.global_batch // step,
    }
    for name, value in wanted.items():
        if ds_config.get(name) != value:
            yield f"ds_config has {name} {ds_config.get(name)}, and {topology.key} means {value}."
    stage = ds_config.get("zero_optimization", {}).get("stage", 0)
    if stage != topology.zero:
        yield f"ds_config has ZeRO stage {stage}, and {topology.key} means {topology.zero}."
