"""The model that Megatron's arguments describe is the one that they train and that an export trains."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest

from tests.export.test_megatron_core import DENSE, hugging_face_run
from tuner.core.errors import InputError
from tuner.core.model import Model
from tuner.export.flag_table import flag_table
from tuner.export.formats import ExportOptions
from tuner.export.megatron_core import MEGATRON_CORE, megatron_core_flags
from tuner.launch.trainers.command import TrainerCommand
from tuner.launch.trainers.megatron_arguments import OF_DEEPSPEEDS_FORK, OTHER_LAYERS, OTHER_TRAINING
from tuner.launch.trainers.megatron_lm import MEGATRON_LM, megatron_model
from tuner.launch.trainers.megatron_precision import EXPORTED_VALUES, NUMERICS
from tuner.launch.trainers.nemo import NEMO


def described_by_arguments(name: str) -> bool:
    """Return whether Megatron-LM trains a model, whose arguments have no experts, linear or latent attention, window or
    yarn."""
    run = hugging_face_run(name)
    model, scaling = run.workload.model, run.workload.model.rotary_scaling
    windowed = 0 < model.sliding_window < model.seq
    other = model.experts or model.latent or model.delta_net or windowed or (scaling and scaling.kind == "yarn")
    return not other and not MEGATRON_CORE.refusals(run, ExportOptions())


@pytest.mark.parametrize("name", [name for name in DENSE if described_by_arguments(name)])
def test_the_arguments_of_an_export_describe_the_exported_model(name: str) -> None:
    """A study of a command exports what the command trains, down to dropout, rotary base and norm epsilon."""
    run = hugging_face_run(name)
    model = run.workload.model
    found = megatron_model({flag: " ".join(values) for flag, *values in megatron_core_flags(run)})
    assert found.mlp_activation == model.mlp_activation
    found = replace(found, name=model.name, vocab_multiple=model.vocab_multiple, activation=model.activation)
    assert found == replace(model, max_positions=found.max_positions)


def test_a_size_of_the_model_must_be_a_number() -> None:
    with pytest.raises(InputError, match="--norm-epsilon 'small' in --command is not a number"):
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
    "name",
    ["qwen3-235b-a22b", "deepseek-v3", "glm-4.5", "mixtral-8x7b", "llama-3-70b", "gpt-oss-120b", "qwen3-next-80b-a3b"],
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
        ("qwen3.8-27b", "--linear-num-value-heads", "--linear-num-value-heads 32"),
        ("qwen3-next-80b-a3b", "--experimental-attention-variant", "none"),
        ("qwen3-next-80b-a3b", "--attention-output-gate", ""),
        ("qwen3-next-80b-a3b", "--linear-attention-freq", ""),
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
    with pytest.raises(InputError, match="default of --moe-ffn-hidden-size 12288 contradicts the model"):
        MEGATRON_LM.check({**flags, "--ffn-hidden-size": "12288"}, model)


@pytest.mark.parametrize(
    ("name", "without", "extra", "sentence"),
    [
        ("llama-3-70b", "--swiglu", "", "no gated mlp, but --model has gated mlp; correct --model or --swiglu"),
        ("llama-3-70b", "--normalization", "", "norm layernorm, but --model has norm rmsnorm"),
        ("llama-3-70b", "--disable-bias-linear", "", "qkv bias, but --model has no qkv bias"),
        ("llama-3-70b", "--untie-embeddings-and-output-weights", "", "tied embeddings, but --model has no tied"),
        ("llama-3-70b", "--position-embedding-type", "", "positions learned, but --model has positions rotary"),
        ("llama-3-70b", "--rotary-base", "", "rotary base 10000, but --model has rotary base 500000"),
        ("llama-3-70b", "--attention-dropout", "", "attention dropout 0.1, but --model has attention dropout 0"),
        ("llama-3-70b", "", "--qk-layernorm", "qk norm, but --model has no qk norm"),
        ("llama-3-70b", "", "--apply-layernorm-1p", "norm offset, but --model has no norm offset"),
        ("llama-3-70b", "", "--use-rope-scaling", "--command has --use-rope-scaling, unlike the model"),
        ("qwen3-235b-a22b", "--qk-layernorm", "", "no qk norm, but --model has qk norm"),
        ("mixtral-8x7b", "--swiglu", "", "no gated mlp"),
    ],
)
def test_arguments_of_another_model_are_refused(name: str, without: str, extra: str, sentence: str) -> None:
    """What Megatron-LM assumes for missing flags counts: the jobs would measure it, and an export train the model."""
    flags = arguments_of(name, *without.split())
    with pytest.raises(InputError, match=sentence):
        MEGATRON_LM.check({**flags, **dict.fromkeys(extra.split(), "")}, hugging_face_run(name).workload.model)


@pytest.mark.parametrize(
    ("flag", "size", "refused"),
    [
        ("--vocab-size", "128256", False),
        ("--vocab-size", "128255", False),
        ("--vocab-size", "128200", False),
        ("--vocab-size", "128257", True),
        ("--vocab-size", "5000", True),
        ("--padded-vocab-size", "129024", True),
    ],
)
def test_vocabularies_are_compared_as_padded(flag: str, size: str, refused: bool) -> None:
    """NullTokenizer has one token more than its size; 128,256 is a multiple of 128."""
    model = hugging_face_run("llama-3-70b").workload.model
    flags = arguments_of("llama-3-70b", "--vocab-size", "--padded-vocab-size")
    with pytest.raises(InputError, match=f"{flag} {size} in --command contradicts") if refused else nullcontext():
        MEGATRON_LM.check({**flags, flag: size}, model)


def test_arguments_in_a_file_that_is_not_read_are_not_compared() -> None:
    MEGATRON_LM.check({"--swiglu": "", "--qk-layernorm": ""}, Model(layers=2, hidden=64, heads=4, vocab=100, seq=32))


def test_what_no_field_expresses_keeps_a_described_model_from_being_exported() -> None:
    flags = dict.fromkeys(("--num-layers", "--hidden-size", "--num-attention-heads", "--seq-length"), "8")
    found = megatron_model(
        {**flags, "--vocab-size": "8", "--padded-vocab-size": "256", "--optimizer": "soap", "--eod-mask-loss": ""}
    )
    assert found.not_understood == ("--eod-mask-loss", "--optimizer soap")
    assert found.vocab == 256


@pytest.mark.parametrize(
    "flag",
    [
        *("--sft", "--freeze-all-layers", "--fp32-residual-connection", "--decoupled-lr", "--moe-router-force-biased"),
        *("--moe-router-quantile-balancing-ema", "--moe-expert-rank-capacity-factor"),
    ],
)
def test_a_command_that_trains_otherwise_is_only_exported_whole(flag: str) -> None:
    flags = dict.fromkeys(("--num-layers", "--hidden-size", "--num-attention-heads", "--seq-length"), "8")
    assert megatron_model({**flags, "--vocab-size": "8", flag: ""}).not_understood == (flag,)


def test_the_flags_that_train_otherwise_are_flags_of_megatron() -> None:
    core, fork = (set(flag_table(name).flags) for name in ("megatron-core", "megatron-deepspeed"))
    assert {*OTHER_TRAINING, *OTHER_LAYERS} - {*OF_DEEPSPEEDS_FORK} <= core
    assert {*OF_DEEPSPEEDS_FORK} <= fork - core
    assert {*NUMERICS, *EXPORTED_VALUES} <= core | fork


def test_a_ramp_of_the_command_is_that_of_the_study() -> None:
    trainer = TrainerCommand.parse("megatron-lm", "python pretrain_gpt.py --rampup-batch-size 32 16 1000")
    model = Model(layers=2, hidden=64, heads=4, vocab=100, seq=32)
    assert trainer.completed({"model": model})["ramp"] == "32,16"
    with pytest.raises(InputError, match="--ramp 8,8 contradicts --rampup-batch-size 32 16 1000 in --command"):
        trainer.completed({"model": model, "ramp": "8,8"})


@pytest.mark.parametrize(("window", "flag", "refused"), [(64, True, False), (64, False, False), (16, False, True)])
def test_a_window_of_a_whole_sequence_need_not_be_given(window: int, flag: bool, refused: bool) -> None:
    usual = Model(layers=2, hidden=64, heads=4, vocab=100, seq=32, ffn=256)
    model = replace(usual, sliding_window=window, attention_dropout=0.1, hidden_dropout=0.1)
    flags = {"--num-layers": "2", "--hidden-size": "64", "--num-attention-heads": "4"}
    flags |= {"--window-size": f"{window - 1},0"} if flag else {}
    with pytest.raises(InputError, match="--command lacks --window-size") if refused else nullcontext():
        MEGATRON_LM.check(flags, model)
