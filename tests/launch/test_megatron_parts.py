"""Experts, latent attention, windows and positions of a command are those of `--model`."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from tests.export.test_megatron_core import DENSE, hugging_face_run
from tests.launch.test_megatron_arguments import arguments_of
from tuner.core.errors import InputError
from tuner.core.experts import Experts
from tuner.core.model import Model
from tuner.core.rotary_scaling import RotaryScaling
from tuner.export.formats import ExportOptions
from tuner.export.megatron_core import MEGATRON_CORE, megatron_core_flags
from tuner.launch.trainers.megatron_deepspeed import MEGATRON_DEEPSPEED
from tuner.launch.trainers.megatron_lm import MEGATRON_LM
from tuner.study.api import study_settings

QWEN = "qwen3-30b-a3b"
SHAPE = "--num-layers 8 --hidden-size 64 --num-attention-heads 4"


def flags_of(text: str) -> dict[str, str]:
    """Return the flags of a text, each with its values."""
    found: dict[str, str] = {}
    for word in text.split():
        if word.startswith("--"):
            found[word] = ""
        else:
            found[list(found)[-1]] = f"{list(found.values())[-1]} {word}".strip()
    return found


def check(name: str, text: str, *without: str) -> None:
    """Check the flags of an export, without some and with others, against its model."""
    MEGATRON_LM.check({**arguments_of(name, *without), **flags_of(text)}, hugging_face_run(name).workload.model)


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("--moe-layer-freq 2", "--moe-layer-freq 2 in --command contradicts the model, which has experts in other"),
        ("--moe-layer-freq ([0]*3+[1]*45)", "in other layers"),
        ("--moe-layer-freq 1+1", "is neither a number nor a list"),
        ("--moe-layer-freq [1]*99999", "is neither a number nor a list"),
        ("--moe-router-score-function sigmoid", "--moe-router-score-function sigmoid in --command contradicts the"),
        ("--moe-router-pre-softmax", "--command has --moe-router-pre-softmax, unlike the model"),
        ("--moe-router-topk-scaling-factor 2.5", "--moe-router-topk-scaling-factor 2.5 in .* whose value is 1;"),
        ("--moe-router-num-groups 8 --moe-router-group-topk 4", "--moe-router-num-groups 8 in --command"),
        ("--moe-router-enable-expert-bias", "--command has --moe-router-enable-expert-bias, unlike"),
        ("--moe-apply-probs-on-input", "--command has --moe-apply-probs-on-input, unlike"),
        ("--moe-shared-expert-gate", "--command has --moe-shared-expert-gate, unlike"),
        ("--moe-aux-loss-coeff 0.5", "--moe-aux-loss-coeff 0.5 in --command .* whose value is 0.001"),
        ("--moe-router-load-balancing-type seq_aux_loss", "seq_aux_loss in --command .* whose value is aux_loss"),
        ("--moe-latent-size 512", "--command has --moe-latent-size, which no field of the model .* expresses"),
        (
            "--experimental-attention-variant gated_delta_net --linear-attention-freq 4",
            "gated_delta_net in --command contr",
        ),
        (
            "--experimental-attention-variant dsa",
            "--experimental-attention-variant dsa in --command contradicts the model",
        ),
        ("--linear-attention-type gated_delta_net", "gated_delta_net in --command contradicts the model"),
        ("--linear-attention-freq 4", "--command has --linear-attention-freq, unlike the model"),
        ("--attention-output-gate", "--command has --attention-output-gate, unlike the model"),
        ("--qk-l2-norm", "which no field of the model"),
        ("--spec megatron.core.models.x y", "which no field of the model"),
        ("--softmax-type learnable", "--softmax-type learnable in --command contradicts .* whose value is vanilla"),
        ("--position-embedding-type yarn --rotary-scaling-factor 4", "yarn in --command .* whose value is rope"),
        ("--mtp-num-layers 1", "--command has --mtp-num-layers, unlike"),
        ("--window-size 128,0 --window-attn-skip-freq 4", "--command has --window-size, unlike"),
        ("", ""),
        ("--moe-layer-freq 1", ""),
        ("--moe-layer-freq ([1]*48)", ""),
        ("--moe-layer-freq 16*[1]+[1]*32", ""),
        ("--moe-router-topk-scaling-factor 1.0", ""),
        ("--moe-router-num-groups 1 --moe-router-group-topk 1", ""),
        ("--moe-z-loss-coeff 1e-3 --moe-expert-capacity-factor 1.25", ""),
        ("--moe-router-load-balancing-type global_aux_loss", ""),
        ("--moe-router-load-balancing-type none", "none in --command .* whose value is aux_loss"),
        ("--softmax-type vanilla --calculate-per-token-loss --moe-input-jitter-eps 0.1", ""),
    ],
)
def test_a_command_has_the_experts_of_its_model(text: str, flag: str) -> None:
    """The jobs measure what the command trains; an export would train another mixture."""
    with pytest.raises(InputError, match=flag) if flag else nullcontext():
        check(QWEN, text)


@pytest.mark.parametrize(
    ("name", "text", "without", "sentence"),
    [
        (
            "deepseek-v3",
            "",
            "--moe-router-score-function",
            "lacks --moe-router-score-function, and Megatron-LM's .*soft",
        ),
        ("deepseek-v3", "", "--moe-router-topk-scaling-factor", "lacks --moe-router-topk-scaling-factor, and .* 2.5"),
        ("deepseek-v3", "", "--moe-router-enable-expert-bias", "--command lacks --moe-router-enable-expert-bias"),
        ("deepseek-v3", "", "--moe-router-num-groups", "--command lacks --moe-router-num-groups, .* value is 8"),
        ("deepseek-v3", "--moe-router-group-topk 2", "", "--moe-router-group-topk 2 in --command .* value is 4"),
        ("deepseek-v3", "--moe-layer-freq 1", "", "has experts in other layers"),
        ("deepseek-v3", "--kv-lora-rank 256", "", "--kv-lora-rank 256 in --command .* value is 512"),
        (
            "deepseek-v3",
            "",
            "--kv-lora-rank",
            "--command lacks --kv-lora-rank, and Megatron-LM's default of --kv-lora-rank 32",
        ),
        ("deepseek-v3", "", "--q-lora-rank", "--command lacks --q-lora-rank"),
        ("deepseek-v3", "--qk-head-dim 64", "", "--qk-head-dim 64 in --command"),
        ("deepseek-v3", "--qk-pos-emb-head-dim 32", "", "--qk-pos-emb-head-dim 32 in --command"),
        ("deepseek-v3", "--v-head-dim 64", "", "--v-head-dim 64 in --command"),
        ("deepseek-v3", "--rope-type rope", "", "--rope-type rope in --command .* value is yarn"),
        ("deepseek-v3", "--rotary-scaling-factor 4", "", "--rotary-scaling-factor 4 in --command .* value is 40"),
        ("deepseek-v3", "--mtp-num-layers 2", "", "--mtp-num-layers 2 in --command .* value is 1"),
        ("deepseek-v3", "", "--rope-type", ""),
        ("deepseek-v3", "", "--qk-layernorm", "--command lacks --qk-layernorm, unlike the model"),
        ("deepseek-v3", "--mscale 2", "", "--mscale 2 in --command contradicts the model, whose value is 1;"),
        ("deepseek-v3", "--mscale-all-dim 0.5", "", "--mscale-all-dim 0.5 in --command .* whose value is 1;"),
        ("deepseek-v3", "", "--mscale", ""),
        ("deepseek-v3", "", "--mscale-all-dim", "lacks --mscale-all-dim, .* default of --mscale-all-dim 0 .* is 1;"),
        ("llama-3.1-8b", "--rope-scaling-factor 32", "", ""),
        ("gpt-oss-120b", "", "--softmax-type", "--command lacks --softmax-type, .* vanilla contradicts .* learnable"),
        ("gpt-oss-120b", "--position-embedding-type rope", "", "rope in --command .* value is yarn"),
        ("gpt-oss-120b", "--rotary-scaling-factor 8", "", "--rotary-scaling-factor 8 in .* value is 32"),
        ("gpt-oss-120b", "--yarn-original-max-position-embeddings 8192", "", "8192 in --command .* value is 4096"),
        ("gpt-oss-120b", "--yarn-beta-fast 16", "", "--yarn-beta-fast 16"),
        ("gpt-oss-120b", "--yarn-beta-slow 2", "", "--yarn-beta-slow 2 in --command .* whose value is 1;"),
        (
            "gpt-oss-120b",
            "",
            "--no-yarn-correction-range-round-to-int",
            "--command lacks --no-yarn-correction-range-round-to-int, unlike the model",
        ),
        ("gpt-oss-120b", "--mscale 2", "", "multiplies rotated queries and keys by 1.69315, but the model by 1.34657"),
        ("gpt-oss-120b", "--mscale-all-dim 1", "", "with --mscale 1 and --mscale-all-dim 1, Megatron-LM multiplies"),
        ("gpt-oss-120b", "", "--mscale --mscale-all-dim", ""),
        ("gpt-oss-120b", "", "--yarn-original-max-position-embeddings --yarn-beta-fast --yarn-beta-slow", ""),
        ("gpt-oss-120b", "--window-size 127,0", "", ""),
        ("gpt-oss-120b", "--window-size (127,0)", "", ""),
        ("gpt-oss-120b", "--window-size 255,0", "", "--window-size 255,0 in --command .* value is 127,0"),
        ("gpt-oss-120b", "--window-attn-skip-freq 4", "", "which has windows in other layers"),
        ("gpt-oss-120b", "--window-attn-skip-freq ([1,0]*18)", "", ""),
        ("gpt-oss-120b", "", "--window-attn-skip-freq", "--command lacks --window-attn-skip-freq, and without it all"),
        ("gpt-oss-120b", "--activation-func-clamp-value 3", "", "--activation-func-clamp-value 3 in .* value is 7"),
        ("gpt-oss-120b", "--glu-linear-offset 2", "", "--glu-linear-offset 2 in .* value is 1"),
        ("smollm3-3b", "--no-rope-freq 3", "", "which has rotary embeddings in other layers"),
        ("smollm3-3b", "--no-rope-freq ([0,0,0,1]*9)", "", ""),
    ],
)
def test_a_command_has_the_parts_of_its_model(name: str, text: str, without: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) if sentence else nullcontext():
        check(name, text, *without.split())


def test_latent_attention_without_scaling_is_yarn_by_one_or_plain() -> None:
    """Megatron-LM's latent attention takes yarn by default, with the factor 1 of the arguments."""
    run = hugging_face_run("deepseek-v3")
    model = replace(run.workload.model, rotary_scaling=None)
    flags = arguments_of("deepseek-v3", "--rope-type", "--rotary-scaling-factor")
    for more in ("", "--rope-type rope", "--rope-type yarn", "--rope-type rope --rotary-scaling-factor 40"):
        MEGATRON_LM.check({**flags, **flags_of(more)}, model)
    with pytest.raises(InputError, match=r"--rotary-scaling-factor 40 in --command contradicts the model, .* is 1"):
        MEGATRON_LM.check({**flags, "--rotary-scaling-factor": "40"}, model)


@pytest.mark.parametrize(
    ("change", "text", "sentence"),
    [
        ({"original_seq": 8192}, "", "lacks --yarn-original-max-position-embeddings, .* 4096 contradicts .* is 8192;"),
        (
            {"beta_fast": 16.0},
            "",
            "--command lacks --yarn-beta-fast, .* default of --yarn-beta-fast 32 .* value is 16;",
        ),
        ({"beta_slow": 2.0}, "", "--command lacks --yarn-beta-slow, .* default of --yarn-beta-slow 1 .* value is 2;"),
        ({"truncate": True}, "", ""),
        ({"truncate": True}, "--no-yarn-correction-range-round-to-int", "has --no-yarn-correction-range-round-to-int"),
        ({"attention_factor": 1.0}, "", "by 1.34657, but the model by 1;"),
        ({"attention_factor": 1.0}, "--mscale 0.7 --mscale-all-dim 0.7", ""),
    ],
)
def test_missing_flags_of_yarn_mean_megatrons_defaults(change: dict[str, Any], text: str, sentence: str) -> None:
    """They are those of YarnRotaryEmbedding, not the model's."""
    model = hugging_face_run("gpt-oss-120b").workload.model
    assert model.rotary_scaling is not None
    scaled = replace(model, rotary_scaling=replace(model.rotary_scaling, **{"truncate": True, **change}))
    numbers = ("--yarn-original-max-position-embeddings", "--yarn-beta-fast", "--yarn-beta-slow")
    without = (*numbers, "--mscale", "--mscale-all-dim", "--no-yarn-correction-range-round-to-int")
    with pytest.raises(InputError, match=sentence) if sentence else nullcontext():
        MEGATRON_LM.check({**arguments_of("gpt-oss-120b", *without), **flags_of(text)}, scaled)


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("llama-3.1-8b", {}, ""),
        (
            "llama-3.1-8b",
            {"factor": 32.0},
            "--use-rope-scaling of Megatron-LM always scales by 8 from 8192 tokens with",
        ),
        ("llama-3.1-8b", {"original_seq": 4096}, "always scales by 8 from 8192 tokens with frequency factors 1 and 4,"),
        ("llama-3.1-8b", {"low_frequency": 2.0}, "always scales by 8"),
        ("llama-3.1-8b", {"high_frequency": 2.0}, "always scales by 8 .* unlike the model"),
        (
            "deepseek-v3",
            {"beta_fast": 1.0},
            "always has yarn from 4096 tokens with betas 32 and 1, rounded, unlike the",
        ),
        ("deepseek-v3", {"original_seq": 8192}, "always has yarn from 4096 tokens"),
        ("deepseek-v3", {"truncate": False}, "always has yarn from 4096 tokens"),
        ("deepseek-v3", {"kind": "dynamic"}, "always has yarn from 4096 tokens"),
        *(
            ("llama-3.1-8b", {"kind": kind}, f"scaling is linear, llama3 or yarn and never {kind}, unlike the model")
            for kind in ("dynamic", "longrope")
        ),
    ],
)
def test_a_scaling_has_the_constants_of_megatron_lm(name: str, change: dict[str, Any], sentence: str) -> None:
    """Its flags do not set them: Llama 3.2 scales by 32, Kimi-K2's beta_fast is 1, and Phi-4-mini has longrope."""
    model = hugging_face_run(name).workload.model
    assert model.rotary_scaling is not None
    scaled = replace(model, rotary_scaling=replace(model.rotary_scaling, **change))
    with pytest.raises(InputError, match=sentence) if sentence else nullcontext():
        MEGATRON_LM.check(arguments_of(name), scaled)


@pytest.mark.parametrize(("scale", "refused"), [("0.707", False), ("0.7071", True), ("1", True)])
def test_latent_attention_has_the_scales_of_its_model(scale: str, refused: bool) -> None:
    """DeepSeek-V2's are 0.707: both follow from the factors of scores and of rotated keys."""
    model = hugging_face_run("deepseek-v3").workload.model
    latent, scaling = model.latent, model.rotary_scaling
    assert latent
    assert scaling
    growth = 0.0707 * math.log(40) + 1
    model = replace(model, attention_scale=latent.key_size**-0.5 * growth**2)
    model = replace(model, rotary_scaling=replace(scaling, attention_factor=1.0))
    flags = {**arguments_of("deepseek-v3"), "--mscale": scale, "--mscale-all-dim": scale}
    with pytest.raises(InputError, match=r"whose value is 0\.707;") if refused else nullcontext():
        MEGATRON_LM.check(flags, model)


def test_yarn_of_megatron_lm_rotates_whole_heads() -> None:
    model = replace(hugging_face_run("gpt-oss-120b").workload.model, rotary_fraction=0.5)
    with pytest.raises(InputError, match="yarn of Megatron-LM always rotates whole heads in halves, unlike the model"):
        MEGATRON_LM.check({**arguments_of("gpt-oss-120b"), "--rotary-percent": "0.5"}, model)


@pytest.mark.parametrize("tp", [1, 8])
@pytest.mark.parametrize("name", DENSE)
def test_an_exported_command_trains_its_model(name: str, tp: int) -> None:
    """Its vocabulary is padded for its degree of tensor parallelism."""
    run = hugging_face_run(name)
    if not MEGATRON_CORE.refusals(run, ExportOptions()):
        run = replace(run, topology=replace(run.topology, tp=tp, dp=8 // tp, sequence_parallel=tp > 1))
        flags = {flag: " ".join(values) for flag, *values in megatron_core_flags(run)}
        MEGATRON_LM.check(flags, run.workload.model)


def test_a_linear_scaling_has_the_factor_of_its_model() -> None:
    model = Model(layers=8, hidden=64, heads=4, vocab=100, seq=32, positions="rotary", ffn=256)
    model = replace(model, attention_dropout=0.1, hidden_dropout=0.1)
    model = replace(model, rotary_scaling=RotaryScaling(kind="linear", factor=4.0))
    flags = flags_of(f"{SHAPE} --position-embedding-type rope")
    MEGATRON_LM.check({**flags, "--rotary-seq-len-interpolation-factor": "4"}, model)
    with pytest.raises(InputError, match=r"--rotary-seq-len-interpolation-factor 8 in --command .* value is 4"):
        MEGATRON_LM.check({**flags, "--rotary-seq-len-interpolation-factor": "8"}, model)


def test_a_model_with_layers_that_no_field_expresses_may_have_their_flags() -> None:
    """Its description names such layers, and it is not exported."""
    flags = {**arguments_of(QWEN), "--moe-latent-size": "64"}
    model = replace(hugging_face_run(QWEN).workload.model, not_understood=("moe_latent_size",))
    MEGATRON_LM.check(flags, model)
    MEGATRON_LM.check({"--moe-latent-size": "64"}, replace(model, not_understood=()))  # a script sets the sizes


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("--experimental-attention-variant gdn", ""),
        ("--linear-attention-freq ([1]*3+[0])*12", ""),
        (
            "--experimental-attention-variant gdn2",
            "gdn2 in --command .*, whose value is gated_delta_net",
        ),
        ("--linear-attention-freq 3", "which has Gated DeltaNet in other layers"),
        ("--linear-attention-freq ([0]*3+[1])*12", "which has Gated DeltaNet in other layers"),
        (
            "--linear-num-key-heads 32",
            "--linear-num-key-heads 32 in --command .* value is 16",
        ),
    ],
)
def test_a_command_has_the_gated_delta_net_of_its_model(text: str, refused: str) -> None:
    with pytest.raises(InputError, match=refused) if refused else nullcontext():
        check("qwen3-next-80b-a3b", text)


def test_a_study_trains_with_the_losses_and_capacity_of_the_command() -> None:
    """They are settings of training: those of the command count, and an export has them too."""
    run = hugging_face_run(QWEN)
    plain = arguments_of(QWEN, "--moe-aux-loss-coeff", "--moe-router-load-balancing-type")
    text = "--moe-z-loss-coeff 1e-3 --moe-expert-capacity-factor 1.5 --moe-router-bias-update-rate 0.01"
    found = MEGATRON_LM.trained({**plain, **flags_of(text)}, run.workload.model).experts
    assert found is not None
    assert (found.z_loss, found.capacity_factor, found.router_bias_rate, found.aux_loss) == (0.001, 1.5, 0.01, 0.0)
    balanced = flags_of("--moe-aux-loss-coeff 0.01 --moe-router-load-balancing-type seq_aux_loss")
    found = MEGATRON_LM.trained({**plain, **balanced}, run.workload.model).experts
    assert found is not None
    assert (found.aux_loss, found.aux_loss_per_sequence) == (0.01, True)
    assert MEGATRON_LM.trained({"--moe-z-loss-coeff": "1"}, run.workload.model) == run.workload.model
    assert MEGATRON_LM.trained(arguments_of(QWEN), run.workload.model) == run.workload.model


def test_predicted_tokens_have_the_weight_of_the_command() -> None:
    model = hugging_face_run("deepseek-v3").workload.model
    flags = {**arguments_of("deepseek-v3"), "--mtp-loss-scaling-factor": "0.3"}
    assert MEGATRON_LM.trained(flags, model).mtp_loss == 0.3


def test_a_training_that_no_field_expresses_is_not_exported() -> None:
    """A study with `--model` may run it, as one without."""
    run = hugging_face_run(QWEN)
    more = "--eod-mask-loss --optimizer soap --moe-router-load-balancing-type global_aux_loss"
    model = MEGATRON_LM.trained({**arguments_of(QWEN), **flags_of(more)}, run.workload.model)
    named = ("--eod-mask-loss", "--optimizer soap", "--moe-router-load-balancing-type global_aux_loss")
    assert model.not_understood == named
    changed = replace(run, workload=replace(run.workload, model=model))
    assert not MEGATRON_CORE.refusals(run, ExportOptions())
    assert MEGATRON_CORE.refusals(changed, ExportOptions())
    dense = Model(layers=8, hidden=64, heads=4, vocab=100, seq=32)
    optimized = MEGATRON_LM.trained({**arguments_of(QWEN), "--optimizer": "muon"}, run.workload.model)
    assert not optimized.not_understood, "muon is the workload's optimizer"
    flags = flags_of(f"{SHAPE} --eod-mask-loss")
    assert MEGATRON_DEEPSPEED.trained(flags, dense).not_understood == ("--eod-mask-loss",)
    found = MEGATRON_DEEPSPEED.trained({"--eod-mask-loss": ""}, dense)
    assert found.not_understood == ("--eod-mask-loss",), "also if a script, not the command, describes the model"
    sgd = MEGATRON_DEEPSPEED.trained(flags_of(f"{SHAPE} --optimizer sgd"), dense)
    assert sgd.not_understood == ("--optimizer sgd",), "its workload has no optimizer of the command"


def test_the_study_of_a_command_has_the_model_that_it_trains() -> None:
    model = Model(layers=8, hidden=64, heads=4, vocab=100, seq=32, ffn=256, experts=Experts(count=4, top_k=2, ffn=256))
    model = replace(model, attention_dropout=0.1, hidden_dropout=0.1, embedding_dropout=0.1)
    command = f"python pretrain_gpt.py {SHAPE} --num-experts 4 --moe-z-loss-coeff 1e-3 --global-batch-size 8"
    settings = study_settings(trainer="megatron-lm", command=command, model=model, launcher="slurm", nodes=1, budget=1)
    experts = settings.space.workload.model.experts
    assert experts is not None
    assert experts.z_loss == 0.001
