"""The model that Megatron's arguments describe is the one that they train and that an export trains."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest

from tests.export.test_megatron_core import DENSE, hugging_face_run
from tuner.core.errors import InputError
from tuner.core.model import Model
from tuner.export.formats import ExportOptions
from tuner.export.megatron_core import MEGATRON_CORE, megatron_core_flags
from tuner.launch.trainers.command import TrainerCommand
from tuner.launch.trainers.megatron_lm import MEGATRON_LM, megatron_model
from tuner.launch.trainers.nemo import NEMO


def described_by_arguments(name: str) -> bool:
    """Return whether Megatron-LM trains a model, whose arguments have no experts, latent attention, window or yarn."""
    run = hugging_face_run(name)
    model, scaling = run.workload.model, run.workload.model.rotary_scaling
    windowed = 0 < model.sliding_window < model.seq
    other = model.experts or model.latent or windowed or (scaling and scaling.kind == "yarn")
    return not other and not MEGATRON_CORE.refusals(run, ExportOptions())


@pytest.mark.parametrize("name", [name for name in DENSE if described_by_arguments(name)])
def test_the_arguments_of_an_export_describe_the_exported_model(name: str) -> None:
    """A study of a command exports what the command trains, down to dropout, rotary base and norm epsilon."""
    run = hugging_face_run(name)
    model = run.workload.model
    found = megatron_model({flag: " ".join(values) for flag, *values in megatron_core_flags(run)})
    if model.rotary_scaling or model.rotary_skip:
        assert found.not_understood
        return
    assert found.mlp_activation == model.mlp_activation
    found = replace(found, name=model.name, vocab_multiple=model.vocab_multiple, activation=model.activation)
    assert found == replace(model, max_positions=found.max_positions)


def test_a_size_of_the_model_must_be_a_number() -> None:
    with pytest.raises(InputError, match="--norm-epsilon 'small' of --command is not a number"):
        megatron_model(
            {
                "--num-layers": "1",
                "--hidden-size": "8",
                "--num-attention-heads": "1",
                "--seq-length": "8",
                "--vocab-size": "8",
                "--norm-epsilon": "small",
            }
        )


@pytest.mark.parametrize(
    ("flags", "refused"),
    [
        ("--rotary-base 500000", True),
        ("--attention-dropout 0.1", True),
        ("--norm-epsilon 1e-05 --rotary-base 10000", False),
    ],
)
def test_numbers_of_the_command_must_be_those_of_the_model(flags: str, refused: bool) -> None:
    """The jobs train the command, and an export trains the model."""
    model = Model(layers=24, hidden=2048, heads=16, kv_heads=4, ffn=5440, vocab=50257, seq=2048, positions="rotary")
    trainer = TrainerCommand.parse("megatron-lm", f"python pretrain_gpt.py {flags}")
    with pytest.raises(InputError, match="contradicts the model") if refused else nullcontext():
        trainer.check(model)


def arguments_of(name: str, *without: str) -> dict[str, str]:
    """Return the flags with which a catalog model is exported, without some of them."""
    flags = {flag: " ".join(values) for flag, *values in megatron_core_flags(hugging_face_run(name))}
    assert set(without) <= flags.keys()
    return {flag: value for flag, value in flags.items() if flag not in without}


@pytest.mark.parametrize(
    "name", ["qwen3-235b-a22b", "deepseek-v3", "glm-4.5", "mixtral-8x7b", "llama-3-70b", "gpt-oss-120b"]
)
def test_the_flags_of_an_export_are_those_of_its_model(name: str) -> None:
    MEGATRON_LM.check(arguments_of(name), hugging_face_run(name).workload.model)


@pytest.mark.parametrize(
    ("name", "missing", "default"),
    [
        ("qwen3-235b-a22b", "--kv-channels", "--kv-channels 64"),
        ("qwen3-235b-a22b", "--group-query-attention", "--num-query-groups 64"),
        ("qwen3-235b-a22b", "--num-query-groups", "--num-query-groups 1"),
        ("qwen3-235b-a22b", "--moe-router-topk", "--moe-router-topk 2"),
        ("llama-3-70b", "--ffn-hidden-size", "--ffn-hidden-size 21824"),
        ("deepseek-v3", "--moe-ffn-hidden-size", "--moe-ffn-hidden-size 18432"),
        ("deepseek-v3", "--moe-shared-expert-intermediate-size", "--moe-shared-expert-intermediate-size 0"),
        ("deepseek-v3", "--moe-layer-freq", ""),
    ],
)
def test_a_missing_size_means_megatrons_default(name: str, missing: str, default: str) -> None:
    """The jobs would measure another model than the one that --model describes and an export trains."""
    with pytest.raises(InputError, match=f"--command lacks {missing}, .*{default}"):
        MEGATRON_LM.check(arguments_of(name, missing), hugging_face_run(name).workload.model)


def test_the_width_of_an_mlp_that_no_layer_has_is_not_compared() -> None:
    """Qwen3-235B's config.json and NVIDIA's recipes set 12288, which no layer uses."""
    flags = arguments_of("qwen3-235b-a22b")
    model = hugging_face_run("qwen3-235b-a22b").workload.model
    MEGATRON_LM.check({**flags, "--ffn-hidden-size": "12288"}, model)
    NEMO.check({"model.ffn_hidden_size": "12288"}, model)
    del flags["--moe-ffn-hidden-size"]
    with pytest.raises(InputError, match="--moe-ffn-hidden-size 12288 without it contradicts the model"):
        MEGATRON_LM.check({**flags, "--ffn-hidden-size": "12288"}, model)
