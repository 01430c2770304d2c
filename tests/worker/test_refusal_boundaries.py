"""The smallest jobs that the worker refuses, and the neighbouring ones that it accepts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import tests.worker.test_worker_arithmetic  # noqa: F401 - skips without torch, and imports DeepSpeed for a CPU
from tests.workers import WORKLOAD, mixture, tiny, topology
from tuner.core.delta_net import DeltaNet
from tuner.core.domain import Topology, Workload
from tuner.core.errors import InputError
from tuner.core.experts import Latent
from tuner.core.worker_refusals import refuse

FLASH = replace(WORKLOAD, precision="bf16", attention="flash2")


def config(job: Workload, chosen: Topology, **changes: Any) -> dict[str, Any]:
    """Return the DeepSpeed config of a job with changed fields."""
    parts = [part for part in ("optimizer", "param") if part in chosen.offload]
    return {
        "train_batch_size": job.global_batch,
        "train_micro_batch_size_per_gpu": chosen.micro_batch,
        "gradient_accumulation_steps": job.global_batch // (chosen.micro_batch * chosen.dp),
        "zero_optimization": {"stage": chosen.zero} | {f"offload_{part}": {"device": "cpu"} for part in parts},
    } | changes


def of(**sizes: Any) -> Workload:
    """Return the workload of a tiny model with these sizes."""
    return replace(WORKLOAD, model=tiny(**sizes))


MIXTURE = replace(WORKLOAD, model=mixture())


def with_experts(**sizes: Any) -> Workload:
    """Return the workload of the tiny mixture with these expert sizes."""
    return replace(WORKLOAD, model=mixture(**sizes))


ALLOWED: list[tuple[Workload, dict[str, Any]]] = [
    (WORKLOAD, {}),
    (WORKLOAD, {"tp": 4, "sequence_parallel": True}),
    (WORKLOAD, {"tp": 2}),
    (WORKLOAD, {"pp": 4}),
    (WORKLOAD, {"dp": 2, "zero": 3}),
    (WORKLOAD, {"dp": 2, "micro_batch": 1, "zero": 2}),
    (WORKLOAD, {"dp": 2, "zero": 1, "offload": "optimizer"}),
    (WORKLOAD, {"dp": 2, "zero": 3, "offload": "optimizer+parameters"}),
    (of(layers=6), {"pp": 4, "partition": "embedding"}),
    (of(layers=5), {"partition": "embedding"}),
    (of(seq=33), {"tp": 2}),
    (of(seq=33), {}),
    (of(hidden=60, head_size=16), {"tp": 2}),
    (of(kv_heads=2), {"tp": 4}),
    (of(kv_heads=1), {"tp": 2}),
    (of(kv_heads=2), {}),
    (of(hidden=48, heads=12, kv_heads=6), {"tp": 3}),
    (of(max_positions=32), {}),
    (of(max_positions=16, positions="alibi"), {}),
    (of(positions="rotary", max_positions=8), {}),
    (of(hidden=60, positions="alibi"), {}),
    (of(head_bias=True, tied_embeddings=False), {}),
    (of(frozen_params=7), {"tp": 2}),
    (of(vocab=127), {"tp": 2}),
    (replace(WORKLOAD, precision="bf16"), {}),
    (replace(FLASH, model=tiny(hidden=1024)), {}),
    (replace(FLASH, attention="flash1", model=tiny(hidden=512)), {}),
    (replace(WORKLOAD, model=tiny(hidden=2048)), {}),
    (replace(FLASH, precision="fp16"), {}),
    (of(sliding_window=16), {}),
    (of(attention_softcap=50.0), {}),
    (MIXTURE, {}),
    (MIXTURE, {"dp": 4, "micro_batch": 2, "ep": 4, "zero": 2}),
    (MIXTURE, {"dp": 2, "zero": 3}),
    (MIXTURE, {"tp": 2, "ep": 2, "sequence_parallel": True}),
    (MIXTURE, {"pp": 2, "dp": 2, "ep": 2, "zero": 1}),
    (MIXTURE, {"pp": 4, "dp": 2, "ep": 2}),
    (replace(MIXTURE, precision="bf16"), {"dp": 2, "ep": 2}),
]


@pytest.mark.parametrize(("job", "axes"), ALLOWED)
def test_a_supported_job_is_accepted(job: Workload, axes: dict[str, Any]) -> None:
    chosen = topology(**axes)
    refuse(job, chosen, config(job, chosen))


LATENT = Latent(kv_rank=8, nope_size=8, rope_size=8, value_size=16)
DELTA_NET = DeltaNet(key_heads=2, value_heads=4, period=2)
REFUSED: list[tuple[Workload, dict[str, Any], str]] = [
    (WORKLOAD, {"cp": 2}, "no context parallelism, but cp is 2"),
    (WORKLOAD, {"vpp": 2, "pp": 2}, "does not interleave, but vpp is 2"),
    (WORKLOAD, {"dp": 4, "zero": 2, "hsdp": 2}, "no replica groups, but hsdp is 2"),
    (
        replace(WORKLOAD, optimizer="adam-bf16"),
        {},
        "the worker has the optimizers adam, sgd and adafactor, not adam-bf16",
    ),
    (WORKLOAD, {"zero": 1, "offload": "optimizer-50"}, "worker offloads optimizer or .*, not optimizer-50"),
    (WORKLOAD, {"offload": "optimizer"}, "offload optimizer needs ZeRO 1 or more, not 0"),
    (
        WORKLOAD,
        {"dp": 2, "zero": 2, "offload": "optimizer+parameters"},
        "offload optimizer.parameters needs ZeRO 3 or more, not 2",
    ),
    (WORKLOAD, {"recompute": "core_attn+mlp"}, "recomputes none, selective or full, not core_attn.mlp"),
    (replace(WORKLOAD, precision="fp8"), {}, "not in fp8"),
    (replace(WORKLOAD, attention="fused"), {}, "no fused attention"),
    (replace(WORKLOAD, plain_layers=True), {}, "not plain layers under autocast"),
    (of(norms_per_layer=4), {}, "2 norms where norm_placement is before, but the model has 4"),
    (of(norms_per_layer=1), {}, "2 norms where norm_placement is before, but the model has 1"),
    (of(embedding_size=32), {}, "does not project embeddings .32 to hidden 64."),
    (of(head_bias=True), {}, "tied output layer has no bias"),
    (of(max_positions=31), {}, "31 learned positions are fewer than the sequence's 32"),
    (replace(FLASH, model=tiny(positions="alibi")), {}, "not flash2"),
    (of(hidden=62), {}, "hidden 62 is not divisible by 4 heads"),
    (of(kv_heads=3), {}, "4 heads are not divisible by 3 key/value heads"),
    (of(heads=8), {"tp": 16}, "heads .8. is not divisible by tp=16"),
    (of(hidden=62, head_size=16), {"tp": 4}, "hidden .62. is not divisible by tp=4"),
    (of(ffn=129), {"tp": 2}, "ffn .129. is not divisible by tp=2"),
    (of(vocab=127, vocab_multiple=0), {"tp": 2}, "the padded vocabulary .127. is not divisible by tp=2"),
    (of(hidden=48, heads=12, kv_heads=4), {"tp": 6}, "neither 4 key/value heads nor tp=6"),
    (WORKLOAD, {"sequence_parallel": True}, "but tp is 1"),
    (of(seq=33), {"tp": 2, "sequence_parallel": True}, "sequence length 33 is not divisible by tp=2"),
    (of(hidden=60, positions="rotary"), {}, "even head size, not 15"),
    (replace(WORKLOAD, attention="flash1"), {}, "flash1 computes in 16 bits"),
    (replace(WORKLOAD, attention="flash2"), {}, "flash2 computes in 16 bits"),
    (replace(FLASH, model=tiny(hidden=1028)), {}, "head size 257 is more than the 256 of flash2"),
    (replace(FLASH, attention="flash1", model=tiny(hidden=516)), {}, "head size 129 is more than the 128 of flash1"),
    (replace(FLASH, model=tiny(sliding_window=16)), {}, "flash kernel has no sliding_window .the model's: 16."),
    (replace(FLASH, model=tiny(attention_softcap=50.0)), {}, "flash kernel has no attention_softcap .the model's: 50."),
    (WORKLOAD, {"dp": 2, "ep": 2}, "'tiny' has no experts to spread over ep=2 ranks"),
    (MIXTURE, {"dp": 2, "etp": 2}, "has no expert tensor parallelism, but etp is 2"),
    (MIXTURE, {"dp": 2, "ep": 2, "dispatcher": "allgather"}, "no dispatcher allgather; use alltoall"),
    (MIXTURE, {"dp": 2, "ep": 2, "zero": 3}, "ep=2. does not support ZeRO 3; use ZeRO 0, 1 or 2"),
    (with_experts(count=6), {"dp": 4, "micro_batch": 2, "ep": 4}, "6 experts are not divisible by ep=4"),
    (MIXTURE, {"dp": 2, "ep": 4}, "tp x dp = 1 x 2 = 2 ranks are not divisible by ep=4"),
    (with_experts(shared_ffn=33), {"tp": 2, "sequence_parallel": True}, "width .33. is not divisible by tp=2"),
    (MIXTURE, {"tp": 2}, "experts need sequence parallelism over tp=2 ranks"),
    (MIXTURE, {"pp": 4, "dp": 2, "ep": 2, "zero": 1}, "first of pp=4 stages has 1 layer and needs 2"),
    (with_experts(period=2), {"pp": 2, "dp": 2, "ep": 2, "zero": 1}, "pp=2 stages has 2 layers and needs 3"),
    (replace(MIXTURE, precision="fp16"), {}, "experts train in fp32 or bf16, not in fp16"),
    (with_experts(router="sigmoid"), {}, "have no router, which the model sets to 'sigmoid'"),
    (with_experts(router_bias=True), {}, "have no router_bias"),
    (with_experts(router_linear_bias=True), {}, "have no router_linear_bias"),
    (with_experts(router_groups=2, router_top_groups=1), {}, "have no router_groups"),
    (with_experts(weights_before=True), {}, "have no weights_before"),
    (with_experts(capacity_factor=1.25), {}, "have no capacity_factor, which the model sets to 1.25"),
    (with_experts(expert_bias=True), {}, "have no expert_bias"),
    (replace(MIXTURE, model=replace(MIXTURE.model, mtp_layers=1)), {}, "no mtp_layers, which the model sets to 1"),
    (replace(MIXTURE, model=replace(MIXTURE.model, latent=LATENT)), {}, "has no latent attention."),
    (replace(WORKLOAD, model=replace(WORKLOAD.model, delta_net=DELTA_NET)), {}, "has no Gated DeltaNet."),
    (WORKLOAD, {"micro_batch": 3}, "8 is not divisible by micro_batch x dp = 3 x 1 = 3"),
    (WORKLOAD, {"dp": 4, "micro_batch": 4}, "8 is not divisible by micro_batch x dp = 4 x 4 = 16"),
    (WORKLOAD, {"pp": 3}, "4 layers, counted by layers, are not divisible by pp=3"),
    (WORKLOAD, {"pp": 4, "partition": "embedding"}, "6 layers, counted by embedding, are not divisible by pp=4"),
    (WORKLOAD, {"pp": 6, "partition": "embedding"}, "4 layers, embedding and head over pp=6 stages"),
]


@pytest.mark.parametrize(("job", "axes", "sentence"), REFUSED)
def test_an_unsupported_job_is_refused_with_the_reason(job: Workload, axes: dict[str, Any], sentence: str) -> None:
    chosen = topology(**axes)
    with pytest.raises(InputError, match=sentence):
        refuse(job, chosen, config(job, chosen))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"train_batch_size": 16}, "train_batch_size 16, but .* needs 8"),
        ({"train_micro_batch_size_per_gpu": 1}, "train_micro_batch_size_per_gpu 1, but .* needs 2"),
        ({"gradient_accumulation_steps": 4}, "gradient_accumulation_steps 4, but .* needs 2"),
        ({"zero_optimization": {"stage": 1}}, "ZeRO stage 1, but .* needs 2"),
        ({"zero_optimization": {}}, "ZeRO stage 0, but .* needs 2"),
        (
            {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}},
            "offload optimizer, but .* needs none",
        ),
        (
            {"zero_optimization": {"stage": 2, "offload_param": {"device": "nvme"}}},
            "offload parameters, but .* needs none",
        ),
    ],
)
def test_a_config_of_another_topology_is_refused(change: dict[str, Any], sentence: str) -> None:
    """Batch 8 with micro batch 2 on 2 replicas accumulates 2 steps."""
    chosen = topology(dp=2, micro_batch=2, zero=2)
    with pytest.raises(InputError, match=sentence):
        refuse(WORKLOAD, chosen, config(WORKLOAD, chosen, **change))


def test_an_offload_missing_in_the_config_is_refused() -> None:
    chosen = topology(dp=2, zero=2, offload="optimizer")
    lacking = config(WORKLOAD, chosen, zero_optimization={"stage": 2, "offload_optimizer": {"device": "none"}})
    with pytest.raises(InputError, match=r"offload none, but .* needs optimizer"):
        refuse(WORKLOAD, chosen, lacking)


def test_a_config_without_zero_may_omit_the_stage() -> None:
    given = config(WORKLOAD, topology())
    del given["zero_optimization"]
    refuse(WORKLOAD, topology(), given)
