"""What `--trainer` reads of the fp8 and fp4 recipe, stored weights and layers in bf16 of a command."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from tuner.core.catalog import model
from tuner.core.domain import Workload
from tuner.core.errors import InputError, TunerWarning
from tuner.core.precision import recipe_of
from tuner.launch.trainers.command import TrainerCommand
from tuner.space.build import space_for
from tuner.study.api import study_settings


@pytest.mark.parametrize(
    ("name", "more", "recipe", "stored"),
    [
        ("megatron-lm", "--bf16 --fp8-format hybrid", "delayed", False),
        ("megatron-lm", "--bf16 --fp8-format e4m3 --fp8-recipe blockwise", "blockwise", False),
        ("megatron-lm", "--bf16 --fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather", "mxfp8", True),
        ("nemo", "mixed_precision=bf16_with_fp8_current_scaling_mixed", "tensorwise", True),
        ("nemo", "mixed_precision=bf16_with_fp8_subchannel_scaling_mixed", "blockwise", False),
        ("nemo", "--recipe llama3_8b_pretrain_8gpu_gb200_fp8mx_config", "mxfp8", True),
        ("nemo", "mixed_precision=bf16_with_mxfp8_mixed mixed_precision.fp8_param_gather=False", "mxfp8", False),
        ("nemo", "--factory f trainer.plugins=bf16_with_mxfp8_mixed", "mxfp8", False),
        ("nemo", "--factory f trainer.plugins=bf16_with_fp8_mixed", "delayed", True),
        ("torchtitan", "--model.converters mx", "mxfp8", None),
        ("torchtitan", "--model.converters quantize.linear.mx", "mxfp8", None),
        ("torchtitan", "--model.converters float8", "tensorwise", None),
        ("torchtitan", "--model.converters=other,quantize.linear.float8", "tensorwise", None),
        ("torchtitan", "--model.converters float8 --quantize.linear.float8.recipe_name rowwise", "rowwise", None),
        ("torchtitan", "--model.converters float8 --float8.recipe_name=rowwise", "rowwise", None),
        ("torchtitan", "--quantize.linear.float8.recipe_name rowwise", None, None),
        ("torchtitan", "--module llama3 --config llama3_405b", "rowwise", None),
        ("torchtitan", "--module llama3 --config llama3_8b_mxfp8", "mxfp8", None),
        ("torchtitan", "--module torchtitan.models.llama3 --config llama3_70b", None, None),
        ("megatron-lm", "--bf16", None, None),
        ("nemo", "mixed_precision=bf16_mixed", None, None),
        ("nemo", "mixed_precision=nanov2_bf16_with_fp8_current_scaling_mixed", "blockwise", True),
    ],
)
def test_the_recipe_and_the_stored_weights_of_a_command_in_fp8_are_read(
    name: str, more: str, recipe: str | None, stored: bool | None
) -> None:
    found = TrainerCommand.parse(name, f"python x.py {more}").completed({"model": "llama-3-8b"})
    assert (found.get("precision_recipe"), found.get("fp8_weights")) == (recipe, stored)


@pytest.mark.parametrize(
    ("name", "more", "layers"),
    [
        ("megatron-lm", "--bf16 --fp8-format hybrid --fp8-recipe tensorwise --first-last-layers-bf16", "1,1"),
        ("megatron-lm", "--bf16 --fp4-format e2m1 --first-last-layers-bf16 --num-layers-at-start-in-bf16 0", "0,1"),
        ("megatron-lm", "--bf16 --fp4-format e2m1 --num-layers-at-end-in-bf16 4", None),
        ("nemo", "mixed_precision=bf16_with_fp8_current_scaling_mixed", "1,1"),
        ("nemo", "--factory f trainer.plugins=bf16_with_fp8_current_scaling_mixed", "1,1"),
        ("nemo", "mixed_precision=nemotron_h_bf16_with_fp8_current_scaling_mixed", "2,2"),
        ("nemo", "mixed_precision=nemotron_3_super_bf16_with_nvfp4_mixed", "0,14"),
        ("nemo", "mixed_precision=bf16_with_nvfp4_mixed", None),
        (
            "nemo",
            "mixed_precision=bf16_with_nvfp4_mixed mixed_precision.first_last_layers_bf16=True "
            "mixed_precision.num_layers_at_end_in_bf16=4",
            "0,4",
        ),
        (
            "nemo",
            "mixed_precision=bf16_with_fp8_current_scaling_mixed mixed_precision.first_last_layers_bf16=False",
            None,
        ),
        ("nemo", "mixed_precision=bf16_with_mxfp8_mixed", None),
    ],
)
def test_the_layers_in_bf16_of_a_command_in_fp8_or_fp4_are_read(name: str, more: str, layers: str | None) -> None:
    found = TrainerCommand.parse(name, f"python x.py {more}").completed({"model": "llama-3-8b"})
    assert found["bf16_layers"] == layers


AMAX = "--fp8-amax-history-len 1024 --fp8-amax-compute-algo max"


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ("--bf16 --fp8-format hybrid --fp8-recipe tensorwise", ()),
        (f"--bf16 --fp8-format hybrid {AMAX}", ()),
        ("--bf16 --fp8-format e4m3 --fp8-recipe tensorwise", ("--fp8-format e4m3",)),
        (
            "--bf16 --fp8-format hybrid --fp8-amax-history-len 16 --fp8-amax-compute-algo most_recent",
            ("--fp8-amax-history-len 16", "--fp8-amax-compute-algo most_recent"),
        ),
        (
            "--bf16 --fp8-format hybrid",
            ("--fp8-amax-history-len 1 (the default)", "--fp8-amax-compute-algo most_recent (the default)"),
        ),
        (
            "--bf16 --fp8-format e4m3 --fp8-recipe mxfp8 --no-fp8-wgrad --fp8-margin 2 --fp8-output-proj",
            ("--no-fp8-wgrad", "--fp8-margin", "--fp8-output-proj"),
        ),
        ("--bf16 --te-precision-config-file f.yaml", ("--te-precision-config-file",)),
        ("--bf16 --accumulate-allreduce-grads-in-fp32 --moe-router-dtype fp32", ()),
        ("--fp16 --accumulate-allreduce-grads-in-fp32", ("--accumulate-allreduce-grads-in-fp32",)),
        ("--bf16 --output-logit-dtype bf16 --moe-router-dtype fp64", ("--output-logit-dtype", "--moe-router-dtype")),
        ("--bf16 --fp16-lm-cross-entropy", ("--fp16-lm-cross-entropy",)),
        ("--bf16 --moe-dispatch-fwd-dtype mxfp8", ("--moe-dispatch-fwd-dtype",)),
        ("--bf16 --moe-combine-bwd-dtype mxfp8", ("--moe-combine-bwd-dtype",)),
        ("--bf16 --iterations-to-skip 3", ("--iterations-to-skip",)),
        ("--bf16 --mtp-hsm", ("--mtp-hsm",)),
    ],
)
def test_a_precision_with_which_no_export_trains_is_named(more: str, named: tuple[str, ...]) -> None:
    """Exports write one number format per recipe and Transformer Engine's history of maxima."""
    command = TrainerCommand.parse("megatron-lm", f"python x.py {more}")
    found = set(command.trained(Workload(model=model("llama-3-8b"), global_batch=8)).model.not_understood)
    assert found == set(named)


@pytest.mark.parametrize(
    ("more", "precision"),
    [
        ("llama3 --config llama3_8b", "bf16"),
        ("llama3 --config llama3_8b --training.mixed_precision_param float32", "fp32"),
        ("llama3 --config llama3_405b", "fp8"),
        ("llama3 --config llama3_8b_mine_float8", None),
        ("llama3 --config llama3_8b_max", None),
        ("mine --config llama3_8b", None),
        ("qwen3 --config qwen3_32b", None),
        ("deepseek_v3 --config deepseek_v3_671b_float8", "fp8"),
    ],
)
def test_the_precision_of_a_registered_config_is_that_of_its_registry(more: str, precision: str | None) -> None:
    """The name of a config does not determine its precision: tuner knows torchtitan's own, and you state any other."""
    command = TrainerCommand.parse("torchtitan", f"python x.py --module {more}")
    assert command.completed({"model": "llama-3-8b"})["precision"] == precision
    stated = precision or "fp8"
    assert command.completed({"model": "llama-3-8b", "precision": stated})["precision"] == stated


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (
            "--model.converters float8 --quantize.linear.float8.recipe_name rowwise_with_gw_hp",
            "--quantize.linear.float8.recipe_name 'rowwise_with_gw_hp' in --command is not modeled, only tensorwise",
        ),
        ("--model.converters mx --quantize.linear.mx.recipe_name mxfp4_cutlass", "'mxfp4_cutlass' in --command is not"),
        (
            "--module llama3 --config llama3_8b_first_85_pct_layers_nvfp4",
            "llama3_8b_first_85_pct_layers_nvfp4 in --command trains in NVFP4, which tuner does not model for",
        ),
    ],
)
def test_precisions_of_torchtitan_that_are_not_modeled_are_refused(more: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        TrainerCommand.parse("torchtitan", f"python x.py {more}").completed({"model": "llama-3-8b"})


def test_the_recipe_in_nested_tables_of_a_job_config_is_read(tmp_path: Path) -> None:
    """Release 0.2 scales fp8 tensors by tensor unless the table says otherwise, which tuner estimates for it."""
    path = tmp_path / "job.toml"
    job = '[model]\nconverters = ["quantize.linear.float8"]\n[quantize.linear.float8]\n'
    command = f"python -m torchtitan.train --job.config_file {path}"
    for table, recipe in (
        ("enable_fsdp_float8_all_gather = true", "tensorwise"),
        ('recipe_name = "rowwise"', "rowwise"),
    ):
        path.write_text(f"{job}{table}\n")
        found = TrainerCommand.parse("torchtitan", command).completed({"model": "llama-3-8b"})
        assert (found["precision"], found["precision_recipe"]) == ("fp8", recipe)
        space = space_for(**found, gpu="H100-80GB-SXM", nodes=1)
        assert (space.workload.framework, recipe_of(space.workload)) == ("torchtitan", recipe)
    command = f"{command} --quantize.linear.float8.recipe_name tensorwise"
    assert TrainerCommand.parse("torchtitan", command).completed({"model": "x"})["precision_recipe"] == "tensorwise"


def test_layers_in_bf16_other_than_those_of_the_command_are_refused() -> None:
    command = TrainerCommand.parse("nemo", "python x.py mixed_precision=bf16_with_nvfp4_mixed")
    with pytest.raises(InputError, match="--bf16-layers 0,4 contradicts the flags in --command"):
        command.completed({"model": "llama-3-8b", "bf16_layers": "0,4"})


@pytest.mark.parametrize(
    ("trainer", "command"),
    [
        ("torchtitan", "python x.py --module llama3 --config llama3_8b_max --training.global_batch_size 64"),
        ("nemo", "nemo llm pretrain --factory llama3_8b data.global_batch_size=64"),
    ],
)
def test_a_precision_that_no_flag_determines_is_noted(trainer: str, command: str) -> None:
    given: dict[str, Any] = {"model": "llama-3-8b", "nodes": 1, "gpu": "H100-80GB-SXM", "launcher": "slurm"}
    note = r"--command does not determine the precision, so bf16 is assumed; set it with --precision\."
    with pytest.warns(TunerWarning, match=note):
        found = study_settings(trainer=trainer, command=command, **given)
    assert found.space.workload.precision == "bf16"
    with warnings.catch_warnings():
        warnings.simplefilter("error", TunerWarning)
        study_settings(trainer=trainer, command=command, precision="bf16", **given)
