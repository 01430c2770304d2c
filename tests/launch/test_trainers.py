"""`--trainer`: tuner adds the topology to the user's command as the framework's flags, without template fields."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run
from tuner.core import catalog
from tuner.core.domain import Precision, Topology, Workload
from tuner.core.errors import InputError, UnknownName
from tuner.core.model import Model
from tuner.export.flag_table import flag_table
from tuner.launch.contract import Job
from tuner.launch.program import program_of
from tuner.launch.slurm.script import batch_script
from tuner.launch.slurm.site_profile import SiteProfile
from tuner.launch.trainers.command import KINDS, TrainerCommand
from tuner.launch.trainers.megatron_arguments import dense_model, described
from tuner.launch.trainers.megatron_lm import megatron_flags

ARGUMENTS = """
# GPT, as its authors train it
--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048
--group-query-attention --num-query-groups 4 --swiglu --normalization RMSNorm --disable-bias-linear
--position-embedding-type rope --untie-embeddings-and-output-weights --vocab-size 50257
--tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --sequence-parallel
--micro-batch-size 4 --global-batch-size 256 --bf16 --lr 1e-4 --train-iters 100000
--data-path 0.5 /data/a 0.5 /data/b --save /checkpoints --save-interval 1000 --eval-iters 10 --log-interval 100
"""
KEPT = ("--num-layers", "--data-path", "--lr", "--bf16", "--train-iters")

TOPOLOGY = Topology(nodes=1, tp=2, pp=2, dp=2, vpp=3, micro_batch=2, zero=1, sequence_parallel=True, recompute="full")


@pytest.fixture
def command(tmp_path: Path) -> str:
    (tmp_path / "args.txt").write_text(ARGUMENTS)
    return f"python pretrain_gpt.py @{tmp_path / 'args.txt'}"


def workload(global_batch: int = 256) -> Workload:
    model = Model(layers=24, hidden=2048, heads=16, vocab=50257, seq=2048)
    return Workload(model=model, global_batch=global_batch, precision="bf16", attention="flash2")


def test_a_job_has_its_topology_once_and_otherwise_the_users_command(command: str) -> None:
    trainer = TrainerCommand.parse("megatron-lm", command)
    words = [*trainer.words, *trainer.job_flags(workload(), TOPOLOGY, Path("x"))]
    for flag in KEPT:
        assert words.count(flag) == 1
    assert words[words.index("--data-path") + 1 : words.index("--data-path") + 5] == [
        "0.5",
        "/data/a",
        "0.5",
        "/data/b",
    ]
    assert "--save" not in words
    assert "--save-interval" not in words
    for flag in ("--tensor-model-parallel-size", "--micro-batch-size", "--sequence-parallel", "--log-interval"):
        assert words.count(flag) == 1


@pytest.mark.parametrize(
    ("precision", "chosen", "scale"),
    [
        ("fp16", "", "4096"),
        ("fp16", "--loss-scale 1024", None),
        ("fp16", "--initial-loss-scale 8", "8"),
        ("bf16", "", None),
    ],
)
def test_a_short_run_in_fp16_skips_no_step_for_loss_scaling(
    command: str, tmp_path: Path, precision: Precision, chosen: str, scale: str | None
) -> None:
    arguments = tmp_path / "args.txt"
    arguments.write_text(arguments.read_text().replace("--bf16", f"--{precision} {chosen}"))
    trainer = TrainerCommand.parse("megatron-lm", command)
    job = replace(workload(), precision=precision)
    words = [*trainer.words, *trainer.job_flags(job, TOPOLOGY, Path("x"))]
    assert words.count("--initial-loss-scale") == (scale is not None)
    assert scale is None or words[words.index("--initial-loss-scale") + 1] == scale


def test_megatrons_own_parser_reads_the_topology(command: str) -> None:
    """Megatron's flags, types and choices, as recorded from its source, parse the topology's flags."""
    trainer = TrainerCommand.parse("megatron-lm", command)
    words = [*trainer.words[2:], *trainer.job_flags(workload(), TOPOLOGY, Path("x"))]
    read = flag_table("megatron-core").parser.parse_args(words)
    assert (read.tensor_model_parallel_size, read.pipeline_model_parallel_size, read.context_parallel_size) == (2, 2, 1)
    assert (read.micro_batch_size, read.global_batch_size, read.sequence_parallel) == (2, 256, True)
    assert read.num_layers_per_virtual_pipeline_stage == 24 // (2 * 3)
    assert (read.recompute_granularity, read.recompute_method, read.recompute_num_layers) == ("full", "uniform", 1)
    assert read.use_distributed_optimizer
    assert (read.log_interval, read.eval_iters, read.save) == (1, 0, None)
    assert (read.num_layers, read.lr, read.data_path) == (24, 1e-4, ["0.5", "/data/a", "0.5", "/data/b"])


def test_the_arguments_describe_the_model(command: str) -> None:
    found = TrainerCommand.parse("megatron-lm", command).completed({"model": None, "settings": ("vpp=1",)})
    model = found["model"]
    assert (model.layers, model.hidden, model.heads, model.kv_heads, model.seq) == (24, 2048, 16, 4, 2048)
    assert (model.ffn, model.gated_mlp, model.vocab, model.tied_embeddings) == (5440, True, 50257, False)
    assert model.vocab_multiple == 128
    assert (model.norm, model.positions, model.mlp_bias) == ("rmsnorm", "rotary", False)
    assert (found["global_batch"], found["seq"], found["precision"]) == (256, 2048, "bf16")
    assert (found["framework"], found["settings"]) == ("megatron-core", ("vpp=1",))


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("--num-experts 8", "does not understand --num-experts; describe the model with --model"),
        ("--position-embedding-type yarn", "--position-embedding-type yarn is not understood"),
        ("--hidden-size big", "--hidden-size big in --command is not a whole number|--hidden-size 'big'"),
    ],
)
def test_unknown_arguments_are_refused_by_name(more: str, sentence: str, command: str) -> None:
    with pytest.raises(InputError, match=sentence):
        TrainerCommand.parse("megatron-lm", f"{command} {more}").completed({})


def test_help_names_every_trainer(run: Run) -> None:
    text = " ".join(run("optimize", "--help").out.split())
    assert all(name in text.partition("--trainer NAME")[2].partition("--site")[0] for name in KINDS)


def test_missing_arguments_are_named() -> None:
    with pytest.raises(InputError, match="--command lacks --seq-length and --vocab-size; add them"):
        TrainerCommand.parse(
            "megatron-lm", "python p.py --num-layers 2 --hidden-size 64 --num-attention-heads 4"
        ).completed({})


def test_contradictions_are_refused(command: str) -> None:
    trainer = TrainerCommand.parse("megatron-lm", command)
    with pytest.raises(InputError, match="--global-batch 512 contradicts --global-batch-size 256 in --command"):
        trainer.completed({"global_batch": 512})
    llama: dict[str, Any] = {"gated_mlp": True, "norm": "rmsnorm", "positions": "rotary", "tied_embeddings": False}
    llama |= dict.fromkeys(("qkv_bias", "attention_bias", "mlp_bias"), False)
    llama |= dict.fromkeys(("attention_dropout", "hidden_dropout"), 0.1)
    trainer.check(replace(workload().model, kv_heads=4, ffn=5440, **llama))
    with pytest.raises(InputError, match="--num-query-groups 4 in --command contradicts the model, whose value is 16"):
        trainer.check(workload().model)
    with pytest.raises(UnknownName):
        TrainerCommand.parse("megatron", "python x.py")


def test_embedding_and_output_layer_count_as_in_megatron(command: str) -> None:
    """With partition=embedding, 22 layers and 2 further units over 4 stages of 3 chunks give 2 units per chunk."""
    trainer = TrainerCommand.parse("megatron-lm", f"{command} --decoder-first-pipeline-num-layers 4")
    job = replace(workload(), model=replace(workload().model, layers=22))
    flags = trainer.job_flags(job, replace(TOPOLOGY, pp=4, partition="embedding"), Path("x"))
    read = flag_table("megatron-core").parser.parse_args([*trainer.words[2:], *flags])
    assert (read.account_for_embedding_in_pipeline_split, read.account_for_loss_in_pipeline_split) == (True, True)
    assert (read.num_layers_per_virtual_pipeline_stage, read.decoder_first_pipeline_num_layers) == (2, None)
    assert "--account-for-loss-in-pipeline-split" not in megatron_flags(workload(), TOPOLOGY)


@pytest.mark.parametrize("change", [{"offload": "optimizer+parameters", "zero": 3}, {"zero": 2}, {"hsdp": 2}], ids=str)
def test_a_topology_that_the_flags_do_not_set_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(InputError, match="--trainer megatron-lm does not set"):
        megatron_flags(workload(), replace(TOPOLOGY, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (
            "python3 train.py",
            ("python3", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "8", "train.py"),
        ),
        ("torchrun --nproc-per-node 8 train.py", ("torchrun", "--nproc-per-node", "8", "train.py")),
        ("python -m torch.distributed.run train.py", ("python", "-m", "torch.distributed.run", "train.py")),
        ("./train", ("torchrun", "--standalone", "--nproc-per-node", "8", "--no-python", "./train")),
    ],
)
def test_ranks_are_started_unless_the_command_starts_them(command: str, words: tuple[str, ...]) -> None:
    trainer = TrainerCommand.parse("hf", command)
    assert trainer.started(trainer.words, TOPOLOGY) == words


def test_hf_trainer_gets_batch_config_and_checkpointing(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("{}")
    trainer = TrainerCommand.parse(
        "hf", f"python run_clm.py --per_device_train_batch_size=8 --bf16 --deepspeed {tmp_path / 'old.json'}"
    )
    assert trainer.words == ("python", "run_clm.py", "--bf16")
    topology = replace(TOPOLOGY, tp=1, pp=1, vpp=1, dp=8, sequence_parallel=False)
    flags = trainer.job_flags(workload(), topology, Path("/job/ds_config.json"))
    pairs = dict(zip(flags[::2], flags[1::2], strict=True))
    assert pairs["--per_device_train_batch_size"] == "2"
    assert pairs["--gradient_accumulation_steps"] == str(256 // (2 * 8))
    assert (pairs["--deepspeed"], pairs["--gradient_checkpointing"]) == ("/job/ds_config.json", "True")
    found = trainer.completed({"model": "tiny", "settings": ("zero=2",)})
    assert (found["framework"], found["precision"]) == ("deepspeed", "bf16")
    assert found["settings"] == ("zero=2", "tp=1", "pp=1", "cp=1", "ep=1")


def test_slurm_starts_ranks_itself_and_this_machine_with_torchrun(command: str, tmp_path: Path) -> None:
    program = program_of(command, accelerator="cuda", trainer="megatron-lm")
    cluster = catalog.cluster("bloom-48")
    job = Job(number=0, tag="t", folder=tmp_path, workload=workload(), cluster=cluster, topology=TOPOLOGY)
    spec = program.prepare(job)
    assert spec.arguments[:6] == ("python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "8")
    assert spec.each_rank
    assert spec.each_rank[:2] == ("python", "pretrain_gpt.py")
    assert spec.each_rank[2:] == spec.arguments[7:]
    site = SiteProfile(python="/site/python")
    script = batch_script(job, spec, site, accelerators=True)
    assert "python pretrain_gpt.py --num-layers 24" in script
    assert "/site/python" not in script


FAKE = """
import sys, time
import argparse
parser = argparse.ArgumentParser()
for name in sys.argv[1].split(","):
    parser.add_argument(name, type=int, required=True)
given, _ = parser.parse_known_args(sys.argv[2:])
assert given.global_batch_size == 8
for number in range(1, 100):
    time.sleep(0.02)
    print(f" iteration {number:8d}/ 100 | elapsed time per iteration (ms): {100.0 * given.micro_batch_size:.1f} | "
          f"global batch size: 8 | lm loss: 1.0E+01 |", flush=True)
"""


def test_a_megatron_command_without_fields_is_studied(run: Run, tmp_path: Path) -> None:
    """A study runs a Megatron-LM command without fields; a stand-in parses its flags and prints its log format."""
    (tmp_path / "args.txt").write_text(
        "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --vocab-size 512 --global-batch-size 8"
    )
    (tmp_path / "deepspeed").write_text(f"#!{sys.executable}\n{FAKE}")
    (tmp_path / "deepspeed").chmod(0o755)
    needed = "--tensor-model-parallel-size,--pipeline-model-parallel-size,--micro-batch-size,--global-batch-size"
    said = run(
        *("optimize", "--launcher", "local", "--trainer", "megatron-lm", "--nodes", "1", "--gpus-per-node", "4"),
        *("--command", f"{tmp_path / 'deepspeed'} {needed} @{tmp_path / 'args.txt'}", "--budget", "3", "--json"),
        *("--runs", str(tmp_path / "runs"), "--study", "s", "--set", "recompute=none"),
    )
    assert said.code == 0, said.err
    document = json.loads(said.out)
    assert len(document["trials"]) == 3
    for trial in document["trials"]:
        micro_batch = int(trial["key"].partition("mbs")[2].partition("-")[0])
        assert trial["sec_per_iter"] == pytest.approx(0.1 * micro_batch)


MIXTURE = " --num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 768 --moe-token-dispatcher-type allgather"


@pytest.mark.parametrize(
    ("dispatcher", "kind", "backend"),
    [("allgather", "allgather", "deepep"), ("deepep", "flex", "deepep"), ("hybridep", "flex", "hybridep")],
)
def test_megatrons_own_parser_reads_expert_parallelism(dispatcher: str, kind: str, backend: str) -> None:
    """Expert flags are given once, even if the command has them; `etp` is explicit because it defaults to tp."""
    trainer = TrainerCommand.parse("megatron-lm", f"python p.py{MIXTURE} --expert-model-parallel-size 2")
    model = catalog.model("qwen3-30b-a3b")
    topology = replace(TOPOLOGY, vpp=1, dp=8, nodes=4, ep=8, etp=1, dispatcher=dispatcher)  # type: ignore[arg-type]
    words = [*trainer.words[2:], *trainer.job_flags(replace(workload(), model=model), topology, Path("x"))]
    read = flag_table("megatron-core").parser.parse_args(words)
    assert (read.expert_model_parallel_size, read.expert_tensor_parallel_size) == (8, 1)
    assert (read.moe_token_dispatcher_type, read.moe_flex_dispatcher_backend) == (kind, backend)
    assert words.count("--expert-model-parallel-size") == words.count("--moe-token-dispatcher-type") == 1
    assert "--expert-model-parallel-size" not in megatron_flags(workload(), TOPOLOGY)


@pytest.mark.parametrize(
    ("name", "more", "sentence"),
    [
        ("qwen3-30b-a3b", "", "--command lacks --num-experts, unlike the model 'qwen3-30b-a3b'; correct"),
        ("llama-3-8b", MIXTURE, "--command has --num-experts, unlike the model 'llama-3-8b'; correct"),
        ("qwen3-30b-a3b", f"{MIXTURE} --moe-router-topk 2", "--moe-router-topk 2 in --command contradicts the model"),
        ("qwen3-30b-a3b", f"{MIXTURE} --mtp-num-layers 1", "--command has --mtp-num-layers, unlike the model"),
        ("deepseek-v3", " --num-experts 256 --mtp-num-layers 1", "--command lacks --multi-latent-attention, unlike"),
        ("qwen3-30b-a3b", MIXTURE, ""),
    ],
)
def test_a_command_must_train_the_experts_of_the_model(name: str, more: str, sentence: str) -> None:
    model = catalog.model(name)
    trainer = TrainerCommand.parse("megatron-lm", f"python p.py --num-layers {model.layers}{more}")
    with pytest.raises(InputError, match=sentence) if sentence else nullcontext():
        trainer.check(model)


@pytest.mark.parametrize(
    ("name", "more", "given", "sentence"),
    [
        ("hf", "", {"settings": ("tp = 2",)}, "--trainer hf does not support --set tp=2; remove it"),
        ("hf", "", {"settings": ("heads=16,32",)}, "--trainer hf cannot change the model, as --set heads does"),
        ("hf", "", {"settings": ("ep=1,2",)}, "--trainer hf does not support --set ep=1,2"),
        ("hf", "--bf16 True", {"precision": "fp16"}, "--precision fp16 contradicts --command, whose flags mean bf16"),
        ("megatron-lm", "--bf16", {"precision": "fp32"}, "--precision fp32 contradicts --command, whose flags mean"),
        ("megatron-lm", "--bf16 --fp8-format e4m3", {"precision": "bf16"}, "whose flags mean fp8"),
        ("megatron-lm", "--bf16 --fp4-format e2m1", {"precision": "bf16"}, "whose flags mean fp4"),
        (
            "megatron-lm",
            "--fp8-format e4m3 --fp8-recipe custom",
            {},
            "--fp8-recipe 'custom' in --command is not modeled",
        ),
        (
            "megatron-lm",
            "--bf16 --fp8-format e4m3 --fp8-recipe mxfp8",
            {"precision_recipe": "blockwise"},
            "--precision-recipe blockwise contradicts the flags in --command",
        ),
        (
            "megatron-lm",
            "--fp8-format hybrid",
            {"fp8_weights": True},
            "--fp8-weights contradicts the flags in --command",
        ),
        ("megatron-lm", "", {"framework": "deepspeed"}, "--trainer megatron-lm runs megatron-core, not deepspeed"),
        ("megatron-lm", "@none.txt", {}, "the arguments file 'none.txt' in --command cannot be read: No such file"),
    ],
)
def test_unsupported_options_of_a_trainer_are_refused(
    name: str, more: str, given: dict[str, object], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        TrainerCommand.parse(name, f"python x.py {more}").completed({"model": "tiny", **given})


def test_options_that_repeat_the_behaviour_of_a_trainer_are_accepted() -> None:
    given = {"model": "tiny", "settings": ("tp=1",), "precision": "bf16", "framework": "deepspeed"}
    found = TrainerCommand.parse("hf", "python x.py --bf16").completed(given)
    assert (found["precision"], found["settings"]) == ("bf16", ("tp=1", "pp=1", "cp=1", "ep=1"))


@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        ({}, {"head_size": 0, "ffn": 512, "vocab_multiple": 128, "gated_mlp": False, "qkv_bias": True}),
        ({"--kv-channels": "16"}, {"head_size": 0}),
        ({"--kv-channels": "32"}, {"head_size": 32}),
        ({"--swiglu": ""}, {"gated_mlp": True, "ffn": 320}),
        ({"--ffn-hidden-size": "96", "--swiglu": ""}, {"ffn": 96}),
        ({"--make-vocab-size-divisible-by": "64"}, {"vocab_multiple": 64}),
        ({"--disable-bias-linear": ""}, {"qkv_bias": False, "attention_bias": False, "mlp_bias": False}),
        ({"--untie-embeddings-and-output-weights": ""}, {"tied_embeddings": False}),
        ({"--kv": "4"}, {"kv_heads": 4}),
        (
            {},
            {"attention_dropout": 0.1, "hidden_dropout": 0.1, "embedding_dropout": 0.1, "mlp_activation": "gelu_tanh"},
        ),
        ({"--disable-bias-linear": ""}, {"mlp_activation": "gelu"}),
        ({"--no-bias-gelu-fusion": ""}, {"mlp_activation": "gelu"}),
        ({"--quick-geglu": ""}, {"mlp_activation": "quick_gelu", "gated_mlp": True, "ffn": 512}),
        ({"--layernorm-epsilon": "1e-6"}, {"norm_epsilon": 1e-6}),
        ({"--rotary-position-embeddings-theta": "500000"}, {"rotary_base": 500_000.0}),
        ({"--use-rope-scaling": ""}, {"not_understood": ("--use-rope-scaling",)}),
    ],
)
def test_omitted_megatron_flags_have_their_defaults(flags: dict[str, str], fields: dict[str, object]) -> None:
    """Flags that a command omits have Megatron's defaults.

    For hidden size 128, the MLP width is 4 x 128, or with SwiGLU the largest multiple of 64 below two thirds of that.
    """
    sizes = {"--num-layers": "3", "--hidden-size": "128", "--num-attention-heads": "8", "--seq-length": "32"}
    given = {**sizes, "--vocab-size": "500", **flags}
    model = dense_model(given, kv_heads="--kv", fields=described(given, positions="rotary", norm="rmsnorm"))
    assert {name: getattr(model, name) for name in fields} == fields
    assert (model.layers, model.hidden, model.heads, model.seq, model.vocab) == (3, 128, 8, 32, 500)
    assert (model.positions, model.norm, model.kv_heads) == ("rotary", "rmsnorm", int(flags.get("--kv", 8)))
