"""Scaled positions of a Megatron command without `--model`, which is not compared with itself."""

from __future__ import annotations

import pytest

from tuner.core.rotary_scaling import RotaryScaling
from tuner.launch.trainers.megatron_lm import megatron_model
from tuner.study.api import study_settings

SIZES = ("--num-layers", "--hidden-size", "--num-attention-heads", "--seq-length", "--vocab-size")
LLAMA = (
    "python pretrain_gpt.py --num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --vocab-size 128 "
    "--position-embedding-type rope --global-batch-size 8"
)


@pytest.mark.parametrize(
    ("more", "scaling", "skip"),
    [
        ("--use-rope-scaling", RotaryScaling(kind="llama3", factor=8.0, original_seq=8192), 0),
        ("--use-rope-scaling --rope-scaling-factor 32", RotaryScaling(kind="llama3", factor=8.0, original_seq=8192), 0),
        ("--rotary-seq-len-interpolation-factor 4", RotaryScaling(kind="linear", factor=4.0), 0),
        ("--no-rope-freq 4", None, 4),
    ],
)
def test_a_study_reads_the_scaled_positions_of_a_command_without_a_model(
    more: str, scaling: RotaryScaling | None, skip: int
) -> None:
    """pretrain_gpt.py parses --rope-scaling-factor and always scales by 8."""
    settings = study_settings(
        trainer="megatron-lm", command=f"{LLAMA} {more}", launcher="slurm", nodes=1, gpus_per_node=2, budget=1
    )
    model = settings.space.workload.model
    assert (model.rotary_scaling, model.rotary_skip, model.not_understood) == (scaling, skip, ())


@pytest.mark.parametrize(
    "more",
    [
        "--use-rope-scaling --rotary-seq-len-interpolation-factor 4",
        "--no-rope-freq ([0,1]*4)",
        "--softmax-type learnable",
        "--glu-linear-offset 1",
        "--activation-func-clamp-value 7",
        "--window-attn-skip-freq 2",
        "--qk-l2-norm",
    ],
)
def test_a_model_is_not_compared_with_the_arguments_that_it_is_read_from(more: str) -> None:
    """What no field is read from keeps the study from being exported; there is no --model to correct."""
    settings = study_settings(
        trainer="megatron-lm", command=f"{LLAMA} {more}", launcher="slurm", nodes=1, gpus_per_node=2, budget=1
    )
    named = [word for word in more.split() if word.startswith("--")]
    assert sorted(settings.space.workload.model.not_understood) == sorted(named)


def test_a_model_of_megatron_arguments_has_positions_of_its_type_only() -> None:
    learned = dict(zip(SIZES, ("8", "64", "4", "32", "128"), strict=True))
    learned |= {"--position-embedding-type": "learned_absolute", "--use-rope-scaling": ""}
    assert megatron_model(learned).rotary_scaling is None
    assert megatron_model(learned).not_understood == ("--use-rope-scaling",)
