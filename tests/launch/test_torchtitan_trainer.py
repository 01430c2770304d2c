"""`--trainer torchtitan`: topologies as flags of its releases, and job configs in TOML."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shlex import split
from typing import Any

import pytest

from tuner.core import catalog
from tuner.core.domain import Topology, Workload
from tuner.core.errors import InputError
from tuner.core.rotary_scaling import RotaryScaling
from tuner.launch.trainers.command import TrainerCommand
from tuner.launch.trainers.torchtitan import _flavor

JOB = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 1
global_batch_size = 64
seq_len = 8192
mixed_precision_param = "bfloat16"
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 1
[activation_checkpoint]
mode = "selective"
selective_ac_option = "2"
[checkpoint]
enable = true
[metrics]
log_freq = 10
"""
REGISTERED = "python -m torchtitan.train --module llama3 --config llama3_8b"
TOPOLOGY = Topology(
    nodes=4, tp=2, pp=2, dp=8, vpp=4, micro_batch=2, zero=3, hsdp=2, sequence_parallel=True, recompute="selective"
)


@pytest.fixture
def toml(tmp_path: Path) -> str:
    (tmp_path / "job.toml").write_text(JOB)
    return f"python -m torchtitan.train --job.config_file {tmp_path / 'job.toml'}"


def workload(**changes: Any) -> Workload:
    model = replace(catalog.model("llama-3-8b"), **changes)
    return Workload(model=model, global_batch=64, precision="bf16", attention="flash2")


def words(command: str, topology: Topology = TOPOLOGY) -> list[str]:
    trainer = TrainerCommand.parse("torchtitan", command)
    return [*trainer.words[3:], *trainer.job_flags(workload(), topology, Path("x"))]


PARALLEL = split(
    "--parallelism.data_parallel_replicate_degree 2 --parallelism.data_parallel_shard_degree 4 "
    "--parallelism.fsdp_reshard_after_forward always --parallelism.tensor_parallel_degree 2 "
    "--parallelism.pipeline_parallel_degree 2 --parallelism.context_parallel_degree 1 "
    "--parallelism.pipeline_parallel_schedule Interleaved1F1B --parallelism.pipeline_parallel_layers_per_stage 4 "
    "--parallelism.pipeline_parallel_first_stage_less_layers 0 --parallelism.pipeline_parallel_last_stage_less_layers 0"
)
BATCH = split("--training.local_batch_size 8 --training.global_batch_size 64 --training.seq_len 8192")
SHORT = split("--metrics.log_freq 1 --checkpoint.no-enable")


def test_each_release_gets_the_topology_in_its_own_flags(toml: str) -> None:
    """The flags are those of release 0.2, of 0.3.0, and of commit b5bcd76 and later, which counts batches in tokens."""
    micro = ["--parallelism.pipeline_parallel_microbatch_size", "2"]
    cpu = ["--training.no-enable-cpu-offload"]
    graphs = ["--training.disable_cuda_graphs"]
    mode = split("--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op")
    assert words(toml)[2:] == [*PARALLEL, *micro, *cpu, *BATCH, *SHORT, "--validation.no-enable", *mode]
    sharded = "--parallelism.enable_sequence_parallel"
    ends = [*SHORT, "--validator.no-enable", "activation-checkpoint:selective"]
    assert words(REGISTERED)[4:] == [*PARALLEL, *micro, sharded, *cpu, *BATCH, *graphs, *ends]
    tokens = split(
        "--training.num_tokens_per_microbatch_per_dp_rank 16384 --training.num_tokens_per_train_step 524288 "
        "--training.max_context_length 8192"
    )
    microbatches = ["--parallelism.num_pp_microbatches", "4"]
    newest = words(f"{REGISTERED} --training.max_context_length 8192")
    assert newest[4:] == [*PARALLEL, *microbatches, sharded, *cpu, *tokens, *graphs, *ends]


def test_cuda_graphs_stay_on_without_a_pipeline() -> None:
    assert "--training.disable_cuda_graphs" not in words(REGISTERED, replace(TOPOLOGY, pp=1, vpp=1, dp=16))


def test_flags_of_the_topology_are_replaced_in_either_spelling(toml: str) -> None:
    more = "--parallelism.tensor-parallel-degree=8 --checkpoint.enable --training.local_batch_size 4 --training.steps 9"
    assert words(f"{toml} {more} --activation_checkpoint.mode full") == [
        *words(toml)[:2],
        "--training.steps",
        "9",
        *words(toml)[2:],
    ]
    given = (
        f"{REGISTERED} --parallelism.no-enable-sequence-parallel activation-checkpoint:full --activation-checkpoint.x"
    )
    assert words(given) == words(REGISTERED)


def test_the_job_config_describes_the_model_and_the_batch(toml: str) -> None:
    found = TrainerCommand.parse("torchtitan", toml).completed({"settings": ("zero=3",)})
    model = found["model"]
    assert (model.layers, model.hidden, model.kv_heads, model.ffn, model.vocab, model.seq) == (
        *(32, 4096, 8, 14336, 128256),
        8192,
    )
    assert (found["global_batch"], found["seq"], found["precision"]) == (64, 8192, "bf16")
    assert found["framework"] == "torchtitan"
    assert found["settings"] == ("zero=3", "etp=1", "dispatcher=alltoall", "tp=1", "sequence_parallel=off")
    shorter = TrainerCommand.parse("torchtitan", f"{toml} --training.seq_len 4096 --model.flavor 70B").completed({})
    assert (shorter["seq"], shorter["model"].seq, shorter["model"].layers) == (4096, 4096, 80)


@pytest.mark.parametrize(
    ("more", "given", "sentence"),
    [
        ("", {"global_batch": 32}, "--global-batch 32 contradicts --training.global_batch_size 64 in --command"),
        ("", {"seq": 4096}, "--seq 4096 contradicts --training.seq_len 8192"),
        ("--model.flavor 9B", {}, "does not describe the model for --trainer torchtitan; add for example --model"),
        ("--training.seq_len big", {}, "--training.seq_len 'big' in --command is not a whole number"),
        ("", {"precision": "fp8"}, "--precision fp8 contradicts --command, whose flags mean bf16"),
        ("--model.converters float8", {"precision": "bf16"}, "contradicts --command, whose flags mean fp8"),
        ("", {"settings": ("tp=1,2",)}, "shards the sequence if tp > 1, so --set tp=1,2 would mix both"),
        ("", {"settings": ("tp=2", "sequence_parallel=off")}, "search --set tp=1, or larger degrees"),
        ("", {"settings": ("etp=2",)}, "--trainer torchtitan does not support --set etp=2"),
    ],
)
def test_contradictions_are_refused(toml: str, more: str, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        TrainerCommand.parse("torchtitan", f"{toml} {more}").completed(given)


def test_the_model_must_be_the_registered_size() -> None:
    trainer = TrainerCommand.parse("torchtitan", REGISTERED)
    trainer.check(workload().model)
    with pytest.raises(InputError, match="trains Llama 3 8B, whose layers is 32, but the model 'llama-3-70b' has 80"):
        trainer.check(catalog.model("llama-3-70b"))
    TrainerCommand.parse("torchtitan", REGISTERED.replace("llama3", "qwen3")).check(catalog.model("llama-3-70b"))


def test_larger_degrees_in_toml_shard_the_sequence(toml: str) -> None:
    found = TrainerCommand.parse("torchtitan", toml).completed({"settings": ("tp=2,4",)})
    assert found["settings"] == ("tp=2,4", "etp=1", "dispatcher=alltoall", "sequence_parallel=on")


@pytest.mark.filterwarnings("ignore")  # raised by torch on import
def test_torchtitans_own_parser_reads_the_topology(toml: str) -> None:
    """torchtitan's own parser reads the topology: release 0.2 from TOML, release 0.3 from its registry."""
    try:
        release = version("torchtitan")
    except PackageNotFoundError:
        pytest.skip("torchtitan is not installed")
    manager = pytest.importorskip("torchtitan.config.manager")
    reads_toml = release.startswith("0.2")
    config = manager.ConfigManager().parse_args(words(toml if reads_toml else REGISTERED))
    degrees, training = config.parallelism, config.training
    assert (degrees.tensor_parallel_degree, degrees.pipeline_parallel_degree) == (2, 2)
    assert (degrees.data_parallel_replicate_degree, degrees.data_parallel_shard_degree) == (2, 4)
    assert (degrees.pipeline_parallel_schedule, degrees.pipeline_parallel_layers_per_stage) == ("Interleaved1F1B", 4)
    assert (degrees.pipeline_parallel_microbatch_size, degrees.fsdp_reshard_after_forward) == (2, "always")
    assert (training.local_batch_size, training.global_batch_size, training.seq_len) == (8, 64, 8192)
    assert (config.metrics.log_freq, config.checkpoint.enable, training.enable_cpu_offload) == (1, False, False)
    if reads_toml:
        assert (config.activation_checkpoint.mode, config.validation.enable) == ("selective", False)
    else:
        assert (type(config.activation_checkpoint).__qualname__, config.validator.enable) == (
            "SelectiveAC.Config",
            False,
        )
        assert degrees.enable_sequence_parallel


@pytest.mark.parametrize(
    ("flags", "flavor"),
    [
        ({"--module": "llama3", "--config": "llama3_8b"}, "8B"),
        ({"--module": "torchtitan.models.llama3", "--config": "llama3_70b_long"}, "70B"),
        ({"--module": "llama3", "--config": "llama3_debugmodel"}, ""),
        ({"--module": "llama3"}, ""),
        ({"--module": "llama4", "--config": "llama3_8b"}, ""),
        ({"--config": "llama3_8b"}, ""),
        ({"--model.flavor": "8B"}, "8B"),
        ({"--model.name": "llama3", "--model.flavor": "405B"}, "405B"),
        ({"--model.name": "llama4", "--model.flavor": "8B"}, ""),
        ({}, ""),
    ],
)
def test_the_registered_size_is_named_by_config_or_flavor(flags: dict[str, str], flavor: str) -> None:
    assert _flavor(flags) == flavor


def test_a_registered_size_scales_the_rotary_embedding(toml: str) -> None:
    """All sizes have `scaling="llama"`, with the constants of Llama 3.1, and so has the recipe of an export."""
    found = TrainerCommand.parse("torchtitan", toml).completed({"model": None, "settings": ()})
    assert found["model"].rotary_scaling == RotaryScaling(kind="llama3", factor=8.0, original_seq=8192)


FILTER = "--quantize.linear.float8.filter_fqns"


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ("--training.dtype bfloat16", "--training.dtype bfloat16"),
        ("--training.dtype float32", ""),
        ("--training.mixed_precision_reduce bfloat16", "--training.mixed_precision_reduce bfloat16"),
        ("--model.converters float8", "the output layer in fp8 (no filter_fqns)"),
        (
            f"--model.converters float8 {FILTER} output --quantize.linear.float8.emulate",
            "--quantize.linear.float8.emulate",
        ),
        (f"--model.converters float8 {FILTER} output", ""),
        (f"--model.converters float8 {FILTER} output,wq", "float8.filter_fqns output,wq"),
        ("--model.converters mx,lora", "--model.converters lora"),
    ],
)
def test_a_precision_with_which_no_export_trains_is_named(more: str, named: str, toml: str) -> None:
    parsed = TrainerCommand.parse("torchtitan", f"{toml} {more}")
    assert parsed.trained(workload()).model.not_understood == ((named,) if named else ())
