"""The global batch and the sequence length that a trainer's command states, and notes on batches that it does not."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tuner.core.domain import Workload
from tuner.core.errors import InputError, TunerWarning
from tuner.study.api import study_settings

HF = "python t.py --per_device_train_batch_size 4 --gradient-accumulation-steps=2 --bf16"
ACCELERATE = "accelerate launch --mixed_precision bf16 t.py --per_device_train_batch_size 4"
MEGATRON = (
    "python t.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 --vocab-size 50257 "
    "--bf16"
)
TOKENS = "python -m torchtitan.train --module llama3 --config llama3_8b --training.max_context_length 4096"


def workload_of(trainer: str, command: str, **given: Any) -> Workload:
    """Return the workload of a study on 8 GPUs."""
    description = {"model": "llama-3-8b", "nodes": 1, "gpus_per_node": 8, "gpu": "H100-80GB-SXM", **given}
    return study_settings(trainer=trainer, command=command, launcher="slurm", **description).space.workload


@pytest.mark.parametrize(
    ("trainer", "command", "batch"),
    [
        ("hf", HF, 4 * 2 * 8),
        ("hf", "python t.py --bf16 --gradient_accumulation_steps 4", 8 * 4 * 8),
        ("hf", "python t.py --bf16", 8 * 8),
        ("accelerate", f"{ACCELERATE} --gradient_accumulation_steps 3", 4 * 3 * 8),
        ("accelerate", ACCELERATE, 4 * 8),
        (
            "accelerate",
            ACCELERATE.replace("t.py", "--use_parallelism_config --parallelism_config_tp_size 2 t.py"),
            4 * 4,
        ),
        ("torchtitan", f"{TOKENS} --training.num_tokens_per_train_step {4096 * 32}", 32),
    ],
)
def test_the_batch_of_a_command_is_that_of_its_flags_on_all_gpus(trainer: str, command: str, batch: int) -> None:
    assert workload_of(trainer, command).global_batch == batch
    assert workload_of(trainer, command, global_batch=batch).global_batch == batch


@pytest.mark.parametrize(
    ("training", "more", "batch"),
    [
        ("local_batch_size = 1\nglobal_batch_size = -1", "", 8),
        ("local_batch_size = 2", "", 16),
        ("", "", 64),
        ("local_batch_size = 2\n[parallelism]\ntensor_parallel_degree = 2\ncontext_parallel_degree = 2", "", 4),
        ("global_batch_size = 48", "--training.global_batch_size -1 --training.local_batch_size 4", 32),
        ("local_batch_size = 2\nglobal_batch_size = 48", "", 48),
    ],
)
def test_the_batch_of_a_job_config_is_that_of_its_ranks(training: str, more: str, batch: int, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(f'[model]\nname = "llama3"\nflavor = "8B"\n[training]\n{training}\n')
    command = f"python -m torchtitan.train --job.config_file {path} {more}"
    noted = pytest.warns(TunerWarning, match=f"so it is {batch}, as torchtitan computes it on 8 GPUs; set it with")
    with nullcontext() if batch == 48 else noted:
        assert workload_of("torchtitan", command).global_batch == batch


@pytest.mark.parametrize("trainer", ["megatron-lm", "megatron-deepspeed"])
@pytest.mark.parametrize(
    ("more", "batch"),
    [("", 16), ("--tensor-model-parallel-size 2", 8), ("--tensor-model-parallel-size 2 --context-parallel-size 2", 4)],
)
def test_the_batch_of_megatron_without_a_flag_is_a_micro_batch_per_replica(trainer: str, more: str, batch: int) -> None:
    command = f"{MEGATRON} --micro-batch-size 2 {more}"
    with pytest.warns(TunerWarning, match=f"so it is {batch}, as {trainer} computes it on 8 GPUs; set it with --glob"):
        assert workload_of(trainer, command, model=None).global_batch == batch
    with pytest.warns(TunerWarning, match=f"--global-batch 64 replaces that of --command, which is {batch} on 8 GPUs"):
        assert workload_of(trainer, command, model=None, global_batch=64).global_batch == 64


@pytest.mark.parametrize(
    "more", ["", "--micro-batch-size 2 --tensor-model-parallel-size 3", "--micro-batch-size {mbs}"]
)
def test_megatron_without_a_micro_batch_has_a_default_batch(more: str) -> None:
    """So it has if the degrees do not divide the GPUs, or a field takes the place of a number."""
    with pytest.warns(TunerWarning, match="does not state the global batch, so it is 2,048; set it with"):
        assert workload_of("megatron-lm", f"{MEGATRON} {more}", model=None).global_batch == 2048


def test_the_processes_of_accelerate_determine_its_batch() -> None:
    command = ACCELERATE.replace("launch", "launch --num_processes 2")
    with pytest.warns(
        TunerWarning, match=r"so it is 8, that of its 2 processes \(--num_processes\), on 8 GPUs; set it"
    ):
        assert workload_of("accelerate", command).global_batch == 8
    with pytest.warns(TunerWarning, match="--global-batch 64 replaces that of --command, which is 8 on 2 GPUs"):
        assert workload_of("accelerate", command, global_batch=64).global_batch == 64
    for words in ("--num_processes 8", "--num-processes={gpus}"):
        assert workload_of("accelerate", ACCELERATE.replace("launch", f"launch {words}")).global_batch == 32


def test_the_deepspeed_config_may_state_the_batch(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps({"train_batch_size": 96}))
    command = f"accelerate launch --use_deepspeed --deepspeed_config_file {tmp_path / 'ds.json'} t.py"
    assert workload_of("accelerate", command).global_batch == 96


@pytest.mark.parametrize(
    ("trainer", "command"),
    [
        ("accelerate", "accelerate launch --mixed_precision bf16 t.py --batch {micro_batch}"),
        ("accelerate", ACCELERATE.replace(" 4", " {micro_batch}")),
        ("hf", HF.replace(" 4", " {micro_batch}").replace("=2", "={microbatches}")),
        ("torchtitan", "python -m torchtitan.train --job.config_file JOB --training.local_batch_size {micro_batch}"),
        ("torchtitan", "python -m torchtitan.train --job.config_file JOB --parallelism.tensor_parallel_degree {tp}"),
        ("nemo", "nemo llm pretrain --factory llama3_8b trainer.plugins=bf16_mixed"),
        ("torchtitan", "python -m torchtitan.train --module llama3 --config llama3_8b"),
    ],
)
def test_a_default_batch_is_noted(trainer: str, command: str, tmp_path: Path) -> None:
    """A command without a batch, or with fields in its place, has tuner's default, and a note says so."""
    (tmp_path / "job.toml").write_text('[model]\nname = "llama3"\nflavor = "8B"\n')
    command = command.replace("JOB", str(tmp_path / "job.toml"))
    with pytest.warns(TunerWarning) as caught:
        assert workload_of(trainer, command).global_batch == 2048
    said = "--command does not state the global batch, so it is 2,048; set it with --global-batch."
    assert [str(warning.message) for warning in caught] == [said]
    assert workload_of(trainer, command, global_batch=16).global_batch == 16


@pytest.mark.parametrize(
    ("more", "batch"),
    [("", 8 * 8), ("--per_device_train_batch_size 2", 2 * 8), ("--gradient_accumulation_steps 2", 8 * 2 * 8)],
)
def test_a_config_file_that_may_state_the_batch_is_noted(more: str, batch: int) -> None:
    """TRL's scripts take a batch from the file of --config, which tuner does not read, unless a flag replaces it."""
    command = f"python sft.py --config sft.yaml --bf16 {more}"
    said = f"so it is {batch}, as its flags and defaults give on 8 GPUs (the file of --config sft.yaml is not read)"
    with pytest.warns(TunerWarning, match=re.escape(said)):
        assert workload_of("hf", command).global_batch == batch
    stated = f"{command} --per_device_train_batch_size 2 --gradient_accumulation_steps 4"
    assert workload_of("hf", stated).global_batch == 64


def test_another_batch_is_noted_if_the_command_states_one() -> None:
    with pytest.warns(TunerWarning, match="--global-batch 512 replaces that of --command, which is 64 on 8 GPUs"):
        assert workload_of("hf", HF, global_batch=512).global_batch == 512
    assert workload_of("hf", "python t.py --bf16", global_batch=512).global_batch == 512


@pytest.mark.parametrize("flag", ["--block_size", "--block-size", "--max_seq_length", "--max_length"])
def test_the_sequence_length_of_a_script_is_read(flag: str) -> None:
    """As with other trainers, the sequence length of the command is that of the model, and contradicts another."""
    assert workload_of("hf", f"{HF} {flag} 1024").model.seq == 1024
    assert workload_of("accelerate", f"{ACCELERATE} {flag}=1024").model.seq == 1024
    with pytest.raises(InputError, match=r"--seq 4096 contradicts --[a-z_]* 1024 in --command; remove one of them"):
        workload_of("hf", f"{HF} {flag} 1024", seq=4096)


@pytest.mark.parametrize("more", ["--block_size {seq}", "--max_length None", "--max_length 20 --max_seq_length 1024"])
def test_an_ambiguous_sequence_length_is_not_read(more: str) -> None:
    assert workload_of("hf", f"{HF} {more}").model.seq == 8192


def test_torchtitans_context_length_is_the_sequence_length() -> None:
    assert workload_of("torchtitan", f"{TOKENS} --training.num_tokens_per_train_step 65536").model.seq == 4096
    with pytest.raises(InputError, match=r"--seq 8192 contradicts --training\.max_context_length 4096 in --command"):
        workload_of("torchtitan", TOKENS, seq=8192)
