"""Exports for FSDP 2, checked with accelerate's own classes, and with torchtitan's if it is installed."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.export.test_export import LLAMA, bloom, example, exported
from tests.workers import ENVIRONMENT, needs_deepspeed
from tuner.core import catalog
from tuner.core.errors import InputError
from tuner.core.model import Model
from tuner.export.production import ProductionRun
from tuner.export.torchtitan import MIXTURES, flavor_of

FLASH = {**LLAMA, "attention": "flash2"}

ACCELERATE = """
import json, os, sys
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.launch import prepare_multi_gpu_env
words = ["--config_file", sys.argv[1], "--machine_rank", "1", "--main_process_ip", "10.0.0.1", "train.py"]
arguments, _, _ = _validate_launch_command(launch_command_parser().parse_args(words))
os.environ.update(prepare_multi_gpu_env(arguments))
mesh, plugin = ParallelismConfig(), FullyShardedDataParallelPlugin()
print(json.dumps({
    "nodes": int(arguments.num_machines), "ranks": int(arguments.num_processes), "precision": arguments.mixed_precision,
    "mesh": [mesh.dp_replicate_size, mesh.dp_shard_size, mesh.cp_size, mesh.tp_size],
    "version": plugin.fsdp_version, "reshard": plugin.reshard_after_forward,
    "checkpointing": plugin.activation_checkpointing, "offload": str(plugin.cpu_offload),
}))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "precision"),
    [
        ("tp2-pp1-dp16-mbs1-z3-rnone", "bf16"),
        ("tp1-pp1-dp32-mbs2-z2", "fp32"),
        ("tp1-pp1-cp2-dp16-mbs1-z3-rnone", "bf16"),
    ],
)
def test_accelerates_own_classes_accept_its_config(key: str, precision: str, tmp_path: Path) -> None:
    needs_deepspeed()
    if key.startswith("tp2") and not importlib.util.find_spec("transformers"):
        pytest.skip("accelerate asks transformers for its version where tp is above 1")
    run = bloom(key, **{**FLASH, "precision": precision, "attention": "flash2" if precision == "bf16" else "eager"})
    (tmp_path / "accelerate.yaml").write_text(exported(run, "accelerate")["accelerate.yaml"])
    command = [sys.executable, "-c", ACCELERATE, str(tmp_path / "accelerate.yaml")]
    said = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout.splitlines()[-1])
    chosen = run.topology
    assert (found["nodes"], found["ranks"]) == (chosen.nodes, chosen.gpus)
    assert found["mesh"] == [1, chosen.dp, chosen.cp, chosen.tp]
    assert str(found["precision"]) == {"fp32": "no"}.get(precision, precision)
    assert (found["version"], found["reshard"]) == (2, chosen.zero == 3)
    assert found["checkpointing"] == (chosen.recompute == "full")


REFUSED: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "a pipeline": ("accelerate", "tp1-pp2-dp16-mbs1-z0", {}, "pipeline parallelism 2"),
    "ZeRO 1": ("accelerate", "tp1-pp1-dp32-mbs1-z1", {}, "ZeRO stage 1"),
    "selective recompute": ("accelerate", "tp1-pp1-dp32-mbs1-z3-rsel", {}, "selective recompute"),
    "sequence parallelism": ("accelerate", "tp2-pp1-dp16-mbs1-z3-sp", {}, "sequence parallelism"),
    "replicas": ("torchtitan", "tp1-pp1-dp32-mbs1-z0", {}, "ZeRO stage 0"),
    "fp16": ("torchtitan", "tp1-pp1-dp32-mbs1-z3", {"precision": "fp16"}, "fp16 precision"),
    "another model": (
        "torchtitan",
        "tp1-pp1-dp32-mbs1-z3",
        {"model": "gpt-1.3b"},
        r"tuner's recipe for torchtitan does not .* \(tuner exports only Llama 3",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_properties_that_fsdp_lacks_are_refused_by_name(case: str) -> None:
    format_name, key, given, label = REFUSED[case]
    with pytest.raises(InputError, match=label):
        exported(bloom(key, **{**FLASH, **given}), format_name)


def test_a_users_program_is_launched_by_accelerate() -> None:
    text = exported(example("accelerate"), "accelerate", command="python train.py --mbs {micro_batch}")["launch.sh"]
    assert '--config_file "$folder/accelerate.yaml"' in text
    assert '--no_python python train.py --mbs 1 "$@"' in text
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in text  # FSDP overlaps on several queues


CONFIGS = ROOT / "tests/data/huggingface"


@pytest.mark.parametrize("flavor", ["8B", "70B", "405B"])
def test_the_registered_sizes_are_those_of_llama_3_1(flavor: str) -> None:
    run = bloom("tp1-pp1-dp32-mbs1-z3", **{**FLASH, "model": str(CONFIGS / f"llama-3.1-{flavor.lower()}.json")})
    assert flavor_of(run.workload.model) == flavor
    assert f"model_registry({flavor!r})" in exported(run, "torchtitan")["recipe.py"]


def test_torchtitan_refuses_every_other_property_of_a_model() -> None:
    run = bloom("tp1-pp1-dp32-mbs1-z3", **FLASH)
    changes: dict[str, Any] = {"layers": 31, "kv_heads": 4, "ffn": 14080, "tied_embeddings": True, "vocab": 128128}
    changes |= {"activation": "gelu_tanh", "gated_mlp": False, "norm": "layernorm", "qkv_bias": True, "qk_norm": True}
    changes |= {"attention_dropout": 0.1, "hidden_dropout": 0.1, "rotary_fraction": 0.5, "sliding_window": 4096}
    changes |= {"logit_softcap": 30.0, "embedding_scale": 2.0, "init_std": 0.01, "parallel_attention": True}
    for name, value in changes.items():
        model: Model = replace(run.workload.model, **{name: value})
        with pytest.raises(InputError, match="torchtitan does not support"):
            exported(replace(run, workload=replace(run.workload, model=model)), "torchtitan")


def recipe_of(key: str, **given: Any) -> tuple[str, dict[str, dict[str, Any]]]:
    """Return the recipe of a topology, and the arguments of its configs by class."""
    text = exported(bloom(key, **{**FLASH, **given}), "torchtitan")["recipe.py"]
    found = {}
    for call in ast.walk(ast.parse(text)):
        name = call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""
        if isinstance(call, ast.Call) and name in ("ParallelismConfig", "TrainingConfig"):
            found[name] = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    return text, found


KEYS = ("tp2-pp4-dp4-mbs1-z2-vpp2-sp", "tp1-pp1-cp2-dp16-mbs2-z3-rnone", "tp4-pp2-dp4-mbs1-z3-rsel-sp")


@pytest.mark.parametrize("key", KEYS)
def test_a_recipe_has_the_topology_and_the_batch(key: str) -> None:
    run = bloom(key, **FLASH)
    chosen = run.topology
    text, configs = recipe_of(key)
    mesh = configs["ParallelismConfig"]
    degrees = [mesh[f"{name}_degree"] for name in ("tensor_parallel", "pipeline_parallel", "context_parallel")]
    assert degrees == [chosen.tp, chosen.pp, chosen.cp]
    assert (mesh["data_parallel_replicate_degree"], mesh["data_parallel_shard_degree"]) == (1, chosen.dp)
    assert mesh["fsdp_reshard_after_forward"] == ("always" if chosen.zero == 3 else "never")
    assert mesh["enable_sequence_parallel"] == chosen.sequence_parallel
    training = configs["TrainingConfig"]
    assert training["num_tokens_per_microbatch_per_dp_rank"] == chosen.micro_batch * 8192
    assert training["num_tokens_per_train_step"] == 512 * 8192
    if chosen.pp > 1:
        assert mesh["pipeline_parallel_layers_per_stage"] == 32 // (chosen.pp * chosen.vpp)
        assert mesh["num_pp_microbatches"] == run.microbatches
    assert ("FullAC" in text, "SelectiveAC" in text) == (chosen.recompute == "full", chosen.recompute == "selective")


@pytest.mark.parametrize(
    ("recipe", "converter", "layers"),
    [
        (None, "Float8Linear", "filter_fqns=['lm_head']"),
        ("rowwise", "Float8Linear", "filter_fqns=['lm_head']"),
        ("mxfp8", "MXFP8Linear", "fqns=['layers.']"),
    ],
)
def test_a_recipe_in_fp8_converts_the_layers_alone(recipe: str | None, converter: str, layers: str) -> None:
    """By default, both converters also convert the output layer, which stays in bf16, as in torchtitan's own 405B."""
    run = bloom("tp1-pp1-dp32-mbs1-z3", **FLASH)
    workload = replace(run.workload, precision="fp8", precision_recipe=recipe)  # type: ignore[arg-type]
    text = exported(replace(run, workload=workload), "torchtitan")["recipe.py"]
    assert f"converters = [{converter}Converter.Config({layers}, model_compile_enabled=True)]" in text
    assert "CompileConfig(enable=True" in text


QWEN = replace(catalog.model("qwen3-30b-a3b"), seq=4096)
"""With a load-balancing loss, as in its config.json."""


def mixture(key: str, model: Model | None = None, **changes: Any) -> ProductionRun:
    """Return a run of Qwen3-30B-A3B without a load-balancing loss, with changes to its experts."""
    base = model or QWEN
    assert base.experts
    trained = replace(base, experts=replace(base.experts, **{"aux_loss": 0.0, **changes}))
    return bloom(key, **{**FLASH, "model": trained, "framework": "torchtitan"})


@pytest.mark.parametrize(
    ("key", "name", "bias"),
    [
        ("tp1-pp1-dp32-mbs1-z3-ep8", "standard", False),
        ("tp2-pp2-dp8-mbs1-z2-sp-ep16-deepep", "deepep", True),
        ("tp1-pp1-dp32-mbs1-z3-hsdp4-ep8-hybridep", "hybridep", False),
    ],
)
def test_a_recipe_of_a_mixture_has_its_experts_and_parallel_degrees(key: str, name: str, bias: bool) -> None:
    """The recipe has the registered sizes, the dispatcher, the balancing bias and the degrees."""
    run = mixture(key, router_bias=bias)
    text = exported(run, "torchtitan")["recipe.py"]
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    found = {node.func.id: node for node in calls if isinstance(node.func, ast.Name)}
    registered = found["model_registry"]
    assert ast.literal_eval(registered.args[0]) == "30B-A3B"
    assert {word.arg: ast.literal_eval(word.value) for word in registered.keywords} == {"moe_comm_backend": name}
    mesh = {str(word.arg): ast.literal_eval(word.value) for word in found["ParallelismConfig"].keywords}
    assert (mesh["expert_parallel_degree"], mesh["tensor_parallel_degree"]) == (run.topology.ep, run.topology.tp)
    assert "from torchtitan.models.qwen3 import model_registry" in text
    assert f"layer.moe.load_balance_coeff = {1e-3 if bias else None}" in text
    assert "layer.attention.qk_norm.eps = 1e-06" in text


def test_a_torchtitan_run_saves_checkpoints() -> None:
    """torchtitan saves none by default."""
    run = bloom("tp1-pp1-dp32-mbs1-z3", **FLASH)
    text = exported(run, "torchtitan")["recipe.py"]
    folder = 'folder=os.path.abspath(os.environ["CHECKPOINTS"])'
    assert f"enable=True, {folder}, interval={run.save_interval}\n" in text
    assert run.save_interval == round(3 * 3600 / run.expected.sec_per_iter)


def test_a_recipe_of_a_llama_sets_its_initialization() -> None:
    """torchtitan would initialize embeddings with a deviation of one and the output layer by its width."""
    untied, _ = recipe_of("tp1-pp1-dp32-mbs1-z3")
    assert "initial = partial(nn.init.normal_, std=0.02)" in untied
    assert 'model.lm_head.param_init = {"weight": initial, "bias": nn.init.zeros_}' in untied
    assert 'model.tok_embeddings.param_init = {"weight": initial}' in untied
    tied, _ = recipe_of("tp1-pp1-dp32-mbs1-z3", model=str(CONFIGS / "llama-3.2-1b.json"))
    assert "model.lm_head.param_init" in tied
    assert "tok_embeddings" not in tied  # the output layer's weights
    assert "nn.init" not in exported(mixture("tp1-pp1-dp32-mbs1-z3"), "torchtitan")["recipe.py"]


def test_torchtitan_has_no_pipeline_with_tied_embeddings() -> None:
    """torchtitan raises NotImplementedError in models/common/decoder.py."""
    run = bloom("tp1-pp2-dp16-mbs1-z3", **{**FLASH, "model": str(CONFIGS / "llama-3.2-1b.json")})
    with pytest.raises(InputError, match=r"pipeline parallelism 2 \(with tied embeddings\)"):
        exported(run, "torchtitan")


def test_torchtitan_experts_run_only_in_bf16() -> None:
    """models/common/moe.py casts their inputs and weights to bfloat16."""
    run = mixture("tp1-pp1-dp32-mbs1-z3")
    with pytest.raises(InputError, match="fp32 precision"):
        exported(replace(run, workload=replace(run.workload, precision="fp32")), "torchtitan")


@pytest.mark.parametrize("seq", [4096, 65536])
def test_the_rotary_embedding_covers_the_sequence(seq: int) -> None:
    """torchtitan registers Qwen3 with 40,960 positions and refuses longer sequences."""
    text = exported(mixture("tp1-pp1-dp32-mbs1-z3", replace(QWEN, seq=seq)), "torchtitan")["recipe.py"]
    assert f"layer.attention.rope.max_context_length = {seq}\n" in text


def test_torchtitan_refuses_unsupported_experts_by_name() -> None:
    """The preset has a load-balancing loss, which torchtitan lacks; the remedy keeps everything else."""
    without = "to train without this loss, set aux_loss = 0 in a TOML file of the model"
    key = "tp1-pp1-dp32-mbs1-z3-ep8"
    for changes, words in (
        ({"aux_loss": 0.001}, "a load-balancing loss of 0.001"),
        ({"router": "sigmoid"}, "a sigmoid router"),
        ({"shared_ffn": 768}, "shared experts"),
        ({"normalized": False, "scale": 2.5}, "weights that are not normalized and weights times 2.5"),
    ):
        with pytest.raises(
            InputError,
            match=rf"128 experts with 8 per token \(the model has {words}, and torchtitan's Qwen3 has a softmax",
        ) as refused:
            exported(mixture(key, **changes), "torchtitan")
        assert (without in str(refused.value)) == ("aux_loss" in changes)
    for changed in (replace(QWEN, qk_norm=False), replace(QWEN, layers=47), replace(QWEN, head_size=64)):
        with pytest.raises(InputError, match="torchtitan does not support"):
            exported(mixture(key, changed), "torchtitan")
    one = mixture(key)
    narrow = replace(one, topology=replace(one.topology, hsdp=8))
    with pytest.raises(InputError, match="expert parallelism 8"):
        exported(narrow, "torchtitan")
    with pytest.raises(InputError, match="the allgather dispatcher"):
        exported(replace(one, topology=replace(one.topology, dispatcher="allgather")), "torchtitan")
    with pytest.raises(InputError, match="fp8"):
        exported(replace(one, workload=replace(one.workload, precision="fp8")), "torchtitan")


TITAN = os.environ.get("TORCHTITAN", "")


@pytest.mark.skipif(not TITAN, reason="TORCHTITAN names no checkout of pytorch/torchtitan")
def test_the_registered_mixtures_are_those_of_qwen3() -> None:
    """The sizes are those of torchtitan's source."""
    source = ast.parse(Path(TITAN, "torchtitan/models/qwen3/__init__.py").read_text())
    functions = {node.name: node for node in source.body if isinstance(node, ast.FunctionDef)}
    names = {"hidden": "dim", "layers": "n_layers", "heads": "n_heads", "kv_heads": "n_kv_heads"}
    names |= {"count": "num_experts", "top_k": "top_k", "ffn": "moe_hidden_dim"}
    for flavor, numbers in MIXTURES.items():
        found: dict[str, Any] = {}
        for node in ast.walk(functions[f"_{flavor.lower().replace('-', '_')}"]):
            if isinstance(node, ast.keyword) and isinstance(node.value, ast.Constant):
                found[str(node.arg)] = node.value.value
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                found[ast.unparse(node.targets[0])] = node.value.value
        assert {name: found[theirs] for name, theirs in names.items()} == numbers
        assert (found["vocab_size"], found["head_dim"]) == (151936, 128)


RECIPE = """
import importlib.util, sys, types
from pathlib import Path
from unittest.mock import MagicMock
checkout, folder = sys.argv[1:3]
spec = importlib.util.spec_from_file_location("torchtitan.config", Path(checkout, "torchtitan/config/configs.py"))
configs = importlib.util.module_from_spec(spec)
sys.modules["torchtitan.config"] = configs
spec.loader.exec_module(configs)
family, size, layers = sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
parts = ("checkpointer", "data", "loss", "optimizer", "quantization")
names = " ".join(f"components.{part}" for part in parts)
names += " distributed.activation_checkpoint hf_datasets.text_datasets models.common.config_utils"
for name in f"{names} models.{family} trainer".split():
    sys.modules[f"torchtitan.{name}"] = MagicMock()
vocab = {"llama3": 128256, "qwen3": 151936}[family]
model = types.SimpleNamespace(
    dim=size, vocab_size=vocab, layers=[MagicMock() for _ in range(layers)],
    **{name: MagicMock() for name in ("norm", "lm_head", "tok_embeddings")},
)
sys.modules[f"torchtitan.models.{family}"].model_registry.return_value.model = model
sys.path.insert(0, folder)
import recipe
recipe.run()
made = sys.modules["torchtitan.trainer"].Trainer.Config.call_args.kwargs
assert type(made["parallelism"]) is configs.ParallelismConfig, made
assert type(made["training"]) is configs.TrainingConfig
assert model.layers[0].attention.rope.theta == {"llama3": 5e5, "qwen3": 1e6}[family]
"""
"""Runs a recipe with torchtitan's own configuration classes; its other modules need packages for GPUs."""


@pytest.mark.skipif(not TITAN, reason="TORCHTITAN names no checkout of pytorch/torchtitan")
@pytest.mark.slow
@pytest.mark.parametrize("key", [*KEYS, "tp2-pp2-dp8-mbs1-z2-sp-ep16-deepep"])
def test_torchtitans_own_classes_accept_a_recipe(key: str, tmp_path: Path) -> None:
    needs_deepspeed()
    own = mixture(key) if "-ep" in key else bloom(key, **FLASH)
    (tmp_path / "recipe.py").write_text(exported(own, "torchtitan")["recipe.py"])
    sizes = ("qwen3", "2048", "48") if "-ep" in key else ("llama3", "4096", "32")
    command = [sys.executable, "-c", RECIPE, TITAN, str(tmp_path), *sizes]
    env = {**ENVIRONMENT, "TOKENIZER": "x", "CHECKPOINTS": str(tmp_path / "saved"), "DATASET": "c4"}
    said = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert said.returncode == 0, said.stderr
