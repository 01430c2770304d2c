"""`--trainer megatron-deepspeed`, checked against the flags recorded from its argument parser."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.core import catalog
from tuner.core.domain import Topology, Workload
from tuner.core.errors import InputError
from tuner.core.model import Model
from tuner.export.flag_table import flag_table
from tuner.launch.contract import Job
from tuner.launch.program import program_of
from tuner.launch.trainers.command import TrainerCommand

COMMAND = (
    "python pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --num-key-value-heads 4 "
    "--seq-length 2048 --max-position-embeddings 2048 --swiglu --normalization rmsnorm --disable-bias-linear "
    "--use-rotary-position-embeddings --untie-embeddings-and-output-weights --vocab-size 50257 --fp16 --lr 1e-4 "
    "--tensor-model-parallel-size 8 --no-pipeline-parallel --zero-stage 3 --deepspeed --deepspeed_config mine.json "
    "--global-batch-size 64 --save /checkpoints --eval-interval 10 --data-path 0.5 /a 0.5 /b --rampup-batch-size 1 1 9"
)


@pytest.fixture(autouse=True)
def _own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.json").write_text('{"gradient_clipping": 0.5, "zero_optimization": {"stage": 3}}')
    monkeypatch.chdir(tmp_path)


TOPOLOGY = Topology(nodes=1, tp=2, pp=2, dp=2, micro_batch=2, zero=1, recompute="full")
MODEL = Model(
    layers=24,
    hidden=2048,
    heads=16,
    kv_heads=4,
    vocab=50257,
    seq=2048,
    ffn=5440,
    gated_mlp=True,
    norm="rmsnorm",
    positions="rotary",
    tied_embeddings=False,
    qkv_bias=False,
    attention_bias=False,
    mlp_bias=False,
    attention_dropout=0.1,
    hidden_dropout=0.1,
)
WORKLOAD = Workload(model=MODEL, global_batch=64, precision="fp16", attention="flash2", framework="megatron-deepspeed")


def read(**changes: Any) -> Any:
    words = TrainerCommand.parse("megatron-deepspeed", COMMAND).job(
        WORKLOAD, replace(TOPOLOGY, **changes), Path("/job/ds_config.json")
    )
    assert len([word for word in words if word.startswith("--")]) == len({w for w in words if w.startswith("--")})
    return flag_table("megatron-deepspeed").parser.parse_args(words[2:])


def test_the_parser_reads_a_pipeline() -> None:
    found = read()
    assert (found.tensor_model_parallel_size, found.pipeline_model_parallel_size, found.zero_stage) == (2, 2, 1)
    assert (found.micro_batch_size, found.global_batch_size, found.rampup_batch_size) == (2, 64, None)
    assert (found.deepspeed, found.deepspeed_config, found.no_pipeline_parallel) == (True, "/job/ds_config.json", False)
    assert (found.checkpoint_activations, found.deepspeed_activation_checkpointing) == (True, True)
    assert (found.log_interval, found.eval_iters, found.save) == (1, 0, None)
    assert (found.num_layers, found.lr, found.data_path) == (24, 1e-4, ["0.5", "/a", "0.5", "/b"])


def test_the_parser_reads_sharding_without_a_pipeline() -> None:
    found = read(pp=1, dp=4, zero=3, recompute="selective", offload="optimizer+parameters")
    assert (found.zero_stage, found.no_pipeline_parallel, found.recompute_granularity) == (3, True, "selective")
    assert (found.checkpoint_activations, found.cpu_optimizer, found.remote_device) == (False, True, "cpu")
    found = read(pp=1, dp=4, zero=2, recompute="none", offload="optimizer")
    assert (found.recompute_granularity, found.cpu_optimizer, found.remote_device) == (None, True, "none")


def test_the_arguments_describe_the_model() -> None:
    found = TrainerCommand.parse("megatron-deepspeed", COMMAND).completed({})
    model = found["model"]
    assert (model.layers, model.hidden, model.heads, model.kv_heads, model.ffn) == (24, 2048, 16, 4, 5440)
    assert (model.norm, model.positions, model.tied_embeddings, model.mlp_bias) == ("rmsnorm", "rotary", False, False)
    assert (found["framework"], found["precision"], found["seq"]) == ("megatron-deepspeed", "fp16", 2048)
    assert found["settings"] == ("partition=layers",)


@pytest.mark.parametrize(
    ("more", "given", "sentence"),
    [
        ("--num-experts 8", {}, "--trainer megatron-deepspeed does not understand --num-experts; describe the model"),
        ("--embed-layernorm", {}, "and --embed-layernorm belongs to BigScience's fork; write a template with fields"),
        ("--fp8-hybrid", {}, "tuner does not model fp8 for --trainer megatron-deepspeed; leave --fp8-hybrid out of"),
        ("", {"seq": 4096}, "--seq 4096 contradicts --seq-length 2048"),
        ("", {"settings": ("partition=embedding",)}, "--trainer megatron-deepspeed does not support --set"),
        ("", {"framework": "deepspeed"}, "--trainer megatron-deepspeed runs megatron-deepspeed, not deepspeed"),
    ],
)
def test_unsupported_topologies_are_refused(more: str, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        TrainerCommand.parse("megatron-deepspeed", f"{COMMAND} {more}").completed(given)


def test_distillation_and_dropped_tokens_are_not_exported_without_a_word() -> None:
    """The study's model names what its jobs train besides, so other formats refuse it."""
    more = (
        *("--kd", "--load-teacher", "--num-layers-teacher", "--mos", "--random-ltd", "--train-data-exact-num-epochs"),
        *("--data-efficiency-curriculum-learning", "--embedding-weights-in-fp32"),
    )
    trainer = TrainerCommand.parse("megatron-deepspeed", f"{COMMAND} {' '.join(more)}")
    assert {*trainer.trained(WORKLOAD).model.not_understood} == {*more}


def test_another_model_is_refused() -> None:
    trainer = TrainerCommand.parse("megatron-deepspeed", COMMAND)
    trainer.check(MODEL)
    with pytest.raises(
        InputError, match="--num-key-value-heads 4 in --command contradicts the model, whose value is 8"
    ):
        trainer.check(replace(MODEL, kv_heads=8))
    with pytest.raises(InputError, match="--command lacks --num-experts, unlike the model 'qwen3-30b-a3b'"):
        trainer.check(catalog.model("qwen3-30b-a3b"))


def test_the_config_leaves_the_optimizer_to_megatron(tmp_path: Path) -> None:
    """The config has no optimizer, because DeepSpeed's would ignore the learning rate of the command."""
    program = program_of(COMMAND, accelerator="cuda", trainer="megatron-deepspeed")
    cluster = catalog.cluster("bloom-48")
    job = Job(number=0, tag="t", folder=tmp_path, workload=WORKLOAD, cluster=cluster, topology=TOPOLOGY)
    spec = program.prepare(job)
    assert str(tmp_path / "ds_config.json") in spec.arguments
    config = json.loads((tmp_path / "ds_config.json").read_text())
    assert (config["train_batch_size"], config["zero_optimization"]["stage"]) == (64, 1)
    assert "optimizer" not in config
    assert config["gradient_clipping"] == 0.5  # of the user's own config
