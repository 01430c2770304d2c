"""The length of the training that a trainer's command states."""

from __future__ import annotations

import shlex
import warnings
from pathlib import Path
from typing import Any

import pytest

from tuner.cli.live import opening
from tuner.core.errors import TunerWarning
from tuner.study.api import study_settings
from tuner.study.settings import StudySettings
from tuner.study.setup import open_loop

MEGATRON = (
    "python t.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 --vocab-size 50257 "
    "--global-batch-size 64 --bf16"
)
DEEPSPEED = MEGATRON.replace("python", "deepspeed")
HF = "python t.py --per_device_train_batch_size 4 --bf16 --block_size 1024"
ACCELERATE = "accelerate launch --mixed_precision bf16 t.py --per_device_train_batch_size 4 --block_size 1024"
TITAN = "python -m torchtitan.train --module llama3 --config llama3_8b --training.seq_len 4096"
BRIDGE = "python run_recipe.py --recipe llama3_8b_bf16 train.global_batch_size=64 dataset.seq_length=2048"
NEMO = "nemo llm pretrain --factory llama3_8b trainer.plugins=bf16_mixed data.global_batch_size=64 data.seq_length=2048"


def settings_of(trainer: str, command: str, **given: Any) -> StudySettings:
    """Return the settings of a study on 8 GPUs."""
    model = {} if trainer.startswith("megatron") else {"model": "llama-3-8b"}
    description = {**model, "nodes": 1, "gpus_per_node": 8, "gpu": "H100-80GB-SXM", **given}
    return study_settings(trainer=trainer, command=command, launcher="slurm", **description)


@pytest.mark.parametrize(
    ("trainer", "command", "tokens", "flag"),
    [
        ("megatron-lm", f"{MEGATRON} --train-iters 1000", 1000 * 64 * 2048, "--train-iters 1000"),
        ("megatron-lm", f"{MEGATRON} --train-iters=1_000", 1000 * 64 * 2048, "--train-iters 1_000"),
        ("megatron-lm", f"{MEGATRON} --train-samples 500000", 500000 * 2048, "--train-samples 500000"),
        (
            *("megatron-lm", f"{MEGATRON} --rampup-batch-size 32 32 1000 --train-samples 500000"),
            *(500000 * 2048, "--train-samples 500000"),
        ),
        (
            "megatron-deepspeed",
            f"{DEEPSPEED} --train-samples 50_000_000 --train-tokens 99_000_000_000",
            99e9,
            "--train-tokens 99_000_000_000",
        ),
        ("hf", f"{HF} --max_steps 3000000", 3000000 * 4 * 8 * 1024, "--max_steps 3000000"),
        ("hf", f"{HF} --max-steps=3000000", 3000000 * 4 * 8 * 1024, "--max_steps 3000000"),
        ("accelerate", f"{ACCELERATE} --max_train_steps 3000000", 3000000 * 4 * 8 * 1024, "--max_train_steps 3000000"),
        ("torchtitan", f"{TITAN} --training.steps 3000000 --training.global_batch_size 16", 3000000 * 16 * 4096, None),
        ("nemo", f"{BRIDGE} train.train_iters=3000000", 3000000 * 64 * 2048, "train.train_iters=3000000"),
        ("nemo", f"{BRIDGE} train.train_samples=3000000", 3000000 * 2048, "train.train_samples=3000000"),
        ("nemo", f"{NEMO} trainer.max_steps=3000000", 3000000 * 64 * 2048, "trainer.max_steps=3000000"),
    ],
)
def test_the_length_of_a_command_is_that_of_the_training(
    trainer: str, command: str, tokens: int, flag: str | None
) -> None:
    """Steps count with the global batch; the search then also ends when jobs cost more than they save."""
    found = settings_of(trainer, command)
    assert found.space.workload.tokens == tokens
    assert found.tokens_from == (flag or "--training.steps 3000000")
    assert found.limits.stop_when_unprofitable


def test_the_length_of_a_job_config_is_read(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('[model]\nname = "llama3"\nflavor = "8B"\n[training]\nsteps = 5000\nglobal_batch_size = 32\n')
    found = settings_of("torchtitan", f"python -m torchtitan.train --job.config_file {path}")
    assert (found.space.workload.tokens, found.tokens_from) == (5000 * 32 * 8192, "--training.steps 5000")


@pytest.mark.parametrize(
    ("trainer", "command"),
    [
        ("megatron-lm", MEGATRON),
        ("hf", f"{HF} --max_steps -1 --num_train_epochs 2"),
        ("hf", f"{HF} --max_steps {{iterations}}"),
        ("hf", f"{HF} --max_steps 0"),
    ],
)
def test_a_command_without_a_length_leaves_the_default(trainer: str, command: str) -> None:
    found = settings_of(trainer, command)
    assert (found.space.workload.tokens, found.tokens_from) == (0, None)
    assert not found.limits.stop_when_unprofitable


def test_a_command_of_few_steps_is_a_test_run() -> None:
    """With so short a training no search would pay, and the study would end after its first jobs."""
    note = "--train-iters 999 in --command, fewer than 1,000 steps, is taken for a test run; set the training length"
    with pytest.warns(TunerWarning, match=note):
        found = settings_of("megatron-lm", f"{MEGATRON} --train-iters 999")
    assert (found.space.workload.tokens, found.tokens_from) == (0, None)


def test_tokens_replace_the_length_of_the_command_with_a_note() -> None:
    note = r"--tokens 1T replaces the training length of --command, 131M tokens \(--train-iters 1000\)\."
    with pytest.warns(TunerWarning, match=note):
        found = settings_of("megatron-lm", f"{MEGATRON} --train-iters 1000", tokens="1T")
    assert (found.space.workload.tokens, found.tokens_from) == (1e12, None)


def test_tokens_that_agree_with_the_command_are_not_noted() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", TunerWarning)
        assert settings_of("megatron-lm", f"{MEGATRON} --train-iters 1000", tokens="131M").tokens_from is None


SMALL = (
    "python t.py --num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 128 --vocab-size 1024 "
    "--max-position-embeddings 128 --global-batch-size 16 --bf16"
)


def local(folder: Path, more: str, **given: Any) -> StudySettings:
    """Return the settings of a study on this machine."""
    words: dict[str, Any] = {
        "launcher": "local",
        "trainer": "megatron-lm",
        "gpus_per_node": 2,
        "budget": 1,
        "study": "s",
    }
    return study_settings(command=shlex.join([*SMALL.split(), *more.split()]), runs=folder, **words, **given)


def test_the_header_names_the_flag(tmp_path: Path) -> None:
    with open_loop(local(tmp_path, "--train-iters 1000")) as loop:
        assert "training on 2.05M tokens (--train-iters 1000 in --command)" in opening(loop)


def test_a_study_that_predates_the_length_of_commands_continues_with_the_default(tmp_path: Path) -> None:
    settings = local(tmp_path, "--train-iters 1000")
    with open_loop(settings) as loop:
        stored = loop.store.settings
        assert stored.pop("tokens_from") == "--train-iters 1000"
        stored["workload"]["tokens"] = 0.0
        loop.store.set_attribute("settings", stored)
    with open_loop(settings) as loop:
        assert loop.settings.space.workload.tokens == 0
        assert not loop.settings.limits.stop_when_unprofitable
        assert any("(20 per parameter; set with --tokens)" in line for line in opening(loop))


def test_a_study_continues_with_the_same_tokens_from_either_source(tmp_path: Path) -> None:
    with open_loop(local(tmp_path, "--train-iters 1000")):
        pass
    with open_loop(local(tmp_path, "--train-iters 1000", tokens=1000 * 16 * 128)) as loop:
        assert loop.settings.space.workload.tokens == 1000 * 16 * 128
