"""The software of a study as its command, and of a measured run as its log, state it: overlap, fusion, CUDA graphs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.launch.test_megatron_offload import MEGATRON_ARGUMENTS
from tests.launch.test_optimizer import HF, LM
from tests.launch.test_stated_length import local
from tests.launch.test_torchtitan_trainer import REGISTERED, toml
from tests.mixtures import QWEN3_30B
from tuner.core.domain import Topology
from tuner.core.errors import OtherStudy
from tuner.core.stack import Stack
from tuner.costmodel.framework_terms import terms_of
from tuner.launch.trainers.command import TrainerCommand
from tuner.launch.trainers.megatron_lm import megatron_flags
from tuner.logs.arguments import argument
from tuner.logs.workload import described
from tuner.space.build import space_for
from tuner.study.api import study_settings
from tuner.study.settings import StudySettings
from tuner.study.setup import open_loop

__all__ = ["toml"]

BRIDGE = "python scripts/training/run_recipe.py --recipe qwen3_30b_a3b_pretrain_config"
NEMO2 = "nemo llm pretrain --factory llama3_8b"
PADDED, GRAPHS = "model.moe_pad_expert_input_to_capacity=true", "++model.cuda_graph_impl=transformer_engine"
PARTS = "++model.cuda_graph_scope"
ACCELERATE = "accelerate launch {more} train.py"


def stack_of(trainer: str, command: str, model: Any = "llama-3-8b", **stated: Any) -> Stack | None:
    """Return the stack of a study of the command."""
    framework: Any = TrainerCommand.parse(trainer, command).kind.framework({})
    parsed = TrainerCommand.parse(trainer, command)
    optimizer = parsed.kind.optimizer(parsed.fixed)
    workload = space_for(model=model, gpu="H100-80GB-SXM", nodes=1, framework=framework, optimizer=optimizer).workload
    workload = replace(workload, stack=Stack(**stated) if stated else None)
    return parsed.trained(workload).stack


@pytest.mark.parametrize(
    ("more", "fields"),
    [
        ("", {}),
        ("--overlap-grad-reduce --overlap-param-gather", {}),
        ("--tp-comm-overlap", {"overlap_tp": 0.94}),
        ("--grad-reduce-in-bf16", {"grad_precision": "bf16"}),
        ("--main-grads-dtype bf16", {"grad_precision": "bf16"}),
        ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl te", {"fused_loss": True}),
        ("--cross-entropy-fusion-impl te", {}),
        ("--cross-entropy-loss-fusion", {}),
        ("--cuda-graph-impl local", {"cuda_graph": "partial"}),
        ("--cuda-graph-impl full_iteration", {"cuda_graph": "full"}),
        ("--enable-cuda-graph --cuda-graph-scope full_iteration", {"cuda_graph": "full"}),
        ("--external-cuda-graph", {"cuda_graph": "partial"}),
        ("--external-cuda-graph --cuda-graph-scope full", {"cuda_graph": "partial"}),
        ("--cuda-graph-impl none", {}),
        ("--cuda-graph-impl local --cuda-graph-modules full_iteration", {"cuda_graph": "full"}),
        ("--cuda-graph-impl local --cuda-graph-modules attn full_iteration_inference", {"cuda_graph": "partial"}),
        ("--optimizer muon", {"overlap_grad": 0.0, "overlap_param": 0.0}),
        ("--optimizer muon --overlap-grad-reduce", {"overlap_param": 0.0}),
        ("--cp-comm-type a2a", {"cp_comm": "a2a"}),
        ("--cp-comm-type p2p p2p", {"cp_comm": "p2p"}),
        ("--cp-comm-type p2p a2a", {}),
        ("--cp-comm-type a2a+p2p", {}),
    ],
)
def test_megatrons_flags_say_what_overlaps_and_is_fused(more: str, fields: dict[str, Any]) -> None:
    assert stack_of("megatron-lm", f"{LM} {more}") == (Stack(**fields) if fields else None)


@pytest.mark.parametrize(("more", "fused"), [("", False), ("--moe-permute-fusion", None)])
def test_megatron_sorts_tokens_by_pytorch_unless_a_flag_fuses_it(more: str, fused: bool | None) -> None:
    found = stack_of("megatron-lm", f"python pretrain_gpt.py {more}", QWEN3_30B)
    assert (found and found.fused_permutation) == fused


@pytest.mark.parametrize(
    ("trainer", "command", "fields"),
    [
        ("nemo", BRIDGE, {}),
        ("nemo", f"{BRIDGE} comm_overlap.tp_comm_overlap=true", {"overlap_tp": 0.94}),
        ("nemo", f"{BRIDGE} ddp.grad_reduce_in_fp32=false", {"grad_precision": "bf16"}),
        ("nemo", f"{BRIDGE} ddp.grad_reduce_in_fp32=true ddp.overlap_grad_reduce=false", {}),
        ("nemo", f"{BRIDGE} model.cross_entropy_fusion_impl='te'", {"fused_loss": True}),
        ("nemo", f"{BRIDGE} model.moe_permute_fusion=false", {"fused_permutation": False}),
        ("nemo", f"{BRIDGE} model.moe_pad_expert_input_to_capacity=true", {"padded_experts": True}),
        ("nemo", f"{BRIDGE} ++model.cuda_graph_impl=transformer_engine", {"cuda_graph": "partial"}),
        ("nemo", f"{BRIDGE} {PADDED} {GRAPHS}", {"padded_experts": True, "cuda_graph": "full"}),
        ("nemo", f"{BRIDGE} {PADDED} {GRAPHS} {PARTS}=[attn,moe]", {"padded_experts": True, "cuda_graph": "full"}),
        ("nemo", f"{BRIDGE} {PADDED} {GRAPHS} {PARTS}=[attn]", {"padded_experts": True, "cuda_graph": "partial"}),
        ("nemo", f"{NEMO2} model.config.enable_cuda_graph=True", {"cuda_graph": "partial"}),
        ("torchtitan", REGISTERED, {}),
        ("torchtitan", f"{REGISTERED} --compile.enable", {"compiled": True, "fused_loss": True}),
        ("torchtitan", f"{REGISTERED} --compile.enable --compile.components model", {"compiled": True}),
        ("torchtitan", f"{REGISTERED} --compile.enable --compile.components loss", {"fused_loss": True}),
        ("torchtitan", f"{REGISTERED} --compile.components model", {}),
        ("torchtitan", f"{REGISTERED.replace('8b', '405b')} --compile.components loss", {"fused_loss": True}),
        ("torchtitan", REGISTERED.replace("8b", "8b_mxfp8"), {"compiled": True}),
        ("torchtitan", f"{REGISTERED.replace('8b', '8b_mxfp8')} --compile.no-enable", {}),
        (
            "torchtitan",
            f"{REGISTERED} --compile.enable --compile.enable_async_tensor_parallel",
            {"compiled": True, "fused_loss": True, "overlap_tp": 0.875},
        ),
        ("hf", HF, {}),
        ("hf", f"{HF} --torch_compile", {"compiled": True}),
        ("hf", f"{HF} --torch_compile False", {}),
        ("hf", f"{HF} --gradient_checkpointing_kwargs '{{\"use_reentrant\": true}}'", {"early_stop": False}),
        ("hf", f"{HF} --gradient_checkpointing_kwargs '{{\"use_reentrant\": false}}'", {}),
        ("hf", f"{HF} --torch-compile-mode max-autotune", {"compiled": True}),
        ("hf", f"{HF} --use_liger_kernel True", {"compiled": True, "fused_loss": True}),
        ("accelerate", ACCELERATE.format(more=""), {}),
        ("accelerate", ACCELERATE.format(more="--dynamo_backend inductor"), {"compiled": True}),
        ("accelerate", ACCELERATE.format(more="--dynamo_backend no"), {}),
        ("accelerate", f"{ACCELERATE.format(more='')} --use_liger_kernel", {"compiled": True, "fused_loss": True}),
    ],
)
def test_each_trainers_command_says_what_it_changes(trainer: str, command: str, fields: dict[str, Any]) -> None:
    model = QWEN3_30B if trainer == "nemo" else "llama-3-8b"
    assert stack_of(trainer, command, model) == (Stack(**fields) if fields else None)


def test_a_job_config_in_toml_states_it_too_and_computes_its_loss_at_once(toml: str) -> None:
    assert stack_of("torchtitan", toml) == Stack(loss_chunks=1)
    config = Path(toml.split()[-1])
    config.write_text(f'{config.read_text()}\n[compile]\nenable = true\ncomponents = ["model"]\n')
    assert stack_of("torchtitan", toml) == Stack(loss_chunks=1, compiled=True)
    assert stack_of("torchtitan", f"{toml} --compile.no-enable") == Stack(loss_chunks=1)


@pytest.mark.parametrize(
    ("config", "fields"),
    [
        ({}, {}),
        ({"zero_optimization": {"overlap_comm": True}}, {"overlap_grad": 1.0}),
        ({"zero_optimization": {"overlap_comm": "auto"}}, {}),
        ({"data_types": {"grad_accum_dtype": "fp32"}}, {"grad_precision": "fp32"}),
        ({"data_types": {"grad_accum_dtype": None}}, {}),
        ({"data_types": "fp32"}, {}),
    ],
)
def test_deepspeeds_config_says_it_too(config: dict[str, Any], fields: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps(config))
    command = f"{HF} --torch_compile --deepspeed {tmp_path / 'ds.json'}"
    assert stack_of("hf", command) == Stack(compiled=True, **fields)
    fields.pop("overlap_grad", None)  # which DeepSpeed disables where there are pipelines
    piped = stack_of("megatron-deepspeed", f"python pretrain_gpt.py --deepspeed_config {tmp_path / 'ds.json'}")
    assert piped == (Stack(**fields) if fields else None)


def test_what_options_state_stays() -> None:
    found = stack_of("megatron-lm", f"{LM} --tp-comm-overlap", bf16_layers=(1, 1))
    assert found == Stack(overlap_tp=0.94, bf16_layers=(1, 1))


def test_a_study_is_estimated_as_its_command_trains() -> None:
    settings = study_settings(
        trainer="megatron-lm", command=f"{LM} --grad-reduce-in-bf16", launcher="slurm", nodes=1, budget=1
    )
    assert not terms_of(settings.space.workload).fp32_gradients


@pytest.mark.parametrize(
    ("optimizer", "more", "flags"),
    [
        ("adam", "", {"--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather"}),
        ("muon", "", {"--use-distributed-optimizer"}),
        ("muon", "--overlap-grad-reduce", {"--use-distributed-optimizer", "--overlap-grad-reduce"}),
        ("dist_muon", "", set()),
    ],
)
def test_jobs_overlap_with_muon_only_as_the_command_says(optimizer: str, more: str, flags: set[str]) -> None:
    """Releases before April 2026 refuse the others, and for dist_muon the distributed optimizer."""
    command = TrainerCommand.parse("megatron-lm", f"{LM} --optimizer {optimizer} {more}")
    workload = space_for(
        model="llama-3-8b", gpu="H100-80GB-SXM", nodes=1, optimizer=command.kind.optimizer(command.fixed)
    ).workload
    topology = Topology(nodes=1, tp=1, pp=1, dp=8, micro_batch=1, zero=1, recompute="none")
    job = set(command.job(workload, topology, Path("x")))
    assert {flag for flag in job if flag.startswith("--overlap-") or "distributed" in flag} == flags


def test_a_replay_study_is_not_resumed_with_a_command(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("layers,hidden,heads,tp,sec_per_iter\n4,1024,8,1,0.05\n4,1024,8,2,0.04\n")
    with open_loop(study_settings(launcher="replay", table=table, study="s", runs=tmp_path)):
        pass
    with pytest.raises(OtherStudy, match="--launcher replay, not local"), open_loop(local(tmp_path, "")):
        pass


@pytest.mark.parametrize("optional", [None, (1, 1)])
def test_a_study_that_predates_it_continues_with_the_usual_software(
    optional: tuple[int, int] | None, tmp_path: Path
) -> None:
    """But for what options state: with another command, or with those options changed, it is another study."""
    kept: dict[str, Any] = {} if optional is None else {"bf16_layers": optional}
    usual = Stack(**kept) if kept else None

    def settings(more: str = "--grad-reduce-in-bf16") -> StudySettings:
        found = local(tmp_path, more)
        workload = found.space.workload
        stack = replace(workload.stack or Stack(), **kept)
        return replace(found, space=replace(found.space, workload=replace(workload, stack=stack)))

    with open_loop(settings()) as loop:
        assert loop.settings.space.workload.stack == Stack(grad_precision="bf16", **kept)
        stored = loop.store.settings
        del stored["command_stack"], stored["workload"]["stack"]
        stored["workload"] |= {"stack": {"bf16_layers": list(optional)}} if optional else {}
        loop.store.set_attribute("settings", stored)
    with open_loop(settings()) as loop:
        assert loop.settings.space.workload.stack == usual
    with pytest.raises(OtherStudy, match="command"), open_loop(settings("--tp-comm-overlap")):
        pass


def test_a_study_that_took_muon_for_adam_continues_with_adam(tmp_path: Path) -> None:
    """And with it as a setting that no field expressed."""
    with open_loop(local(tmp_path, "--optimizer muon --eod-mask-loss --muon-momentum 0.95")) as loop:
        assert loop.settings.space.workload.optimizer == "muon"
        stored = loop.store.settings
        del stored["command_stack"]
        stored["workload"].pop("stack")
        stored["workload"]["optimizer"] = "adam"
        stored["workload"]["model"]["not_understood"] = ["--eod-mask-loss", "--optimizer muon"]
        loop.store.set_attribute("settings", stored)
    with open_loop(local(tmp_path, "--optimizer muon --eod-mask-loss --muon-momentum 0.95")) as loop:
        assert loop.settings.space.workload.optimizer == "adam"


@pytest.mark.parametrize(
    ("change", "overlaps"),
    [({"dp": 4}, True), ({"dp": 1, "cp": 2}, True), ({"dp": 1}, False), ({"dp": 1, "tp": 8, "ep": 2}, True)],
)
def test_gradients_are_reduced_beside_the_pass_without_the_distributed_optimizer_too(
    change: dict[str, Any], overlaps: bool
) -> None:
    workload = space_for(model="llama-3-8b", gpu="H100-80GB-SXM", nodes=1).workload
    topology = Topology(**{"nodes": 1, "tp": 1, "pp": 1, "micro_batch": 1, "zero": 0, "recompute": "none", **change})
    flags = megatron_flags(workload, topology)
    assert ("--overlap-grad-reduce" in flags) == overlaps
    assert not {"--overlap-param-gather", "--use-distributed-optimizer"} & set(flags)


@pytest.mark.parametrize(
    ("printed", "fields"),
    [
        ({}, {}),
        ({"overlap_grad_reduce": "True", "overlap_param_gather": "True"}, {}),
        ({"overlap_grad_reduce": "False", "tp_comm_overlap": "False"}, {"overlap_grad": 0.0}),
        ({"overlap_param_gather": "False", "tp_comm_overlap": "True"}, {"overlap_param": 0.0, "overlap_tp": 0.94}),
        ({"moe_permute_fusion": "False"}, {}),
        ({"grad_reduce_in_bf16": "True"}, {"grad_precision": "bf16"}),
        ({"main_grads_dtype": "torch.bfloat16"}, {"grad_precision": "bf16"}),
        ({"main_grads_dtype": "torch.float32", "cuda_graph_impl": "none"}, {}),
        (
            {"cuda_graph_impl": "transformer_engine", "cp_comm_type": "['p2p']"},
            {"cuda_graph": "partial", "cp_comm": "p2p"},
        ),
    ],
)
def test_the_arguments_of_a_log_say_it_of_a_measured_run(printed: dict[str, str], fields: dict[str, Any]) -> None:
    found = described(MEGATRON_ARGUMENTS | printed, 8).workload
    assert found is not None
    assert found.stack == (Stack(**fields) if fields else None)


@pytest.mark.parametrize("printed", ["['p2p']", "['a2a+p2p']", "[<CudaGraphScope.full_iteration: 1>]", "None"])
def test_lists_of_words_and_of_an_enumeration_are_read_from_a_log(printed: str) -> None:
    assert argument(f"  cp_comm_type .................................... {printed}") == ("cp_comm_type", printed)
