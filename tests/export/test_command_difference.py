"""A note of an export names what it lacks of the study's Megatron command."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.export.test_export import bloom
from tests.export.test_megatron_core import hugging_face_run
from tuner.export.api import program_notes
from tuner.export.bundle import FORMATS
from tuner.export.megatron_core import megatron_core_flags
from tuner.export.production import ProductionRun

QWEN = hugging_face_run("qwen3-30b-a3b")


def note(more: str, run: ProductionRun = QWEN, exported: str = "megatron-core", without: str = "") -> str:
    """Return what the note says of the flags of a command: those of the export, one of them left out, and more."""
    words = [word for flag in megatron_core_flags(run) if flag[0] != without for word in flag]
    settings = {"command": f"python pretrain_gpt.py {' '.join(words)} {more}", "trainer": "megatron-lm"}
    study: Any = SimpleNamespace(settings=settings, name="s")
    (found,) = program_notes(study, run, FORMATS[exported], None)
    assert found.startswith("These files start ")
    return found.partition("exports the command.")[2]


@pytest.mark.parametrize("exported", ["megatron-core", "megatron-bridge"])
@pytest.mark.parametrize(
    ("more", "lacking"),
    [
        ("--seed 4242 --split 100,0,0 --dataloader-type=cyclic", "--seed 4242, --split 100,0,0 and --dataloader-type"),
        ("--loss-scale 128 --attention-softmax-in-fp32", "--loss-scale 128 and --attention-softmax-in-fp32"),
        ("--clip-grad 0.3", "--clip-grad 0.3"),
        ("--in-my-fork 3", "--in-my-fork 3"),
        ("--seed {micro_batch}", "--seed {micro_batch}"),
    ],
)
def test_flags_that_change_the_training_are_named(more: str, lacking: str, exported: str) -> None:
    assert f"They lack {lacking}" in note(more, exported=exported)


def test_flags_with_the_same_training_are_not_named() -> None:
    """Among them are those of the model and of logs, and defaults."""
    same = (
        "--seed 1234 --lr 3e-4 --data-path /a /b --distributed-timeout-minutes 60 --tokenizer-type NullTokenizer "
        "--save /x --num-workers 8 --no-create-attention-mask-in-dataloader --use-mcore-models --eval-iters 10"
    )
    assert note(same) == ""


def test_numerics_that_the_command_does_not_have_are_named() -> None:
    lacking = note("", without="--moe-router-dtype")
    assert lacking == " They set --moe-router-dtype fp32, which it does not have."
    fp16 = replace(QWEN, workload=replace(QWEN.workload, precision="fp16"))
    assert "They set --loss-scale-window 500" in note("", fp16, without="--loss-scale-window")
    assert note("", exported="torchtitan", without="--moe-router-dtype") == ""


def test_another_trainers_command_is_not_compared() -> None:
    study: Any = SimpleNamespace(settings={"command": "python hf.py --seed 3", "trainer": "hf"}, name="s")
    assert "lack" not in program_notes(study, bloom(), FORMATS["megatron-core"], None)[0]


def test_seed_and_data_of_other_trainers_are_named() -> None:
    given = {"nemo": "python r.py rng.seed=7", "torchtitan": "python t.py --module llama3 --debug.seed 7"}
    for trainer, lacking in (("nemo", "rng.seed=7"), ("torchtitan", "--debug.seed 7")):
        study: Any = SimpleNamespace(settings={"command": given[trainer], "trainer": trainer}, name="s")
        assert f"They lack {lacking} of it;" in program_notes(study, QWEN, FORMATS["megatron-core"], None)[0]
