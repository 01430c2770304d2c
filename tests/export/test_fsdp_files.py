"""`tuner compare --export`: layers are wrapped by their class, and what accelerate cannot fit is refused."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tuner
from tests.conftest import ROOT, Run
from tuner.core.catalog import catalog, known_model
from tuner.core.domain import Topology, Workload
from tuner.core.errors import InputError
from tuner.export.fsdp import fsdp_files, layer_class, unwrapped_note, write_comparison

QWEN: dict[str, Any] = {"model": "qwen3-30b-a3b", "gpu": "H100-80GB-SXM", "nodes": 4, "global_batch": 256}
LLAMA = ("compare", "--model", "llama-3-8b", "--gpu", "H100-80GB-SXM", "--nodes", "4", "--framework", "fsdp2")


def test_an_option_that_accelerate_cannot_fit_is_refused(tmp_path: Path, run: Run) -> None:
    """With 8 accumulation steps, whole gradients of 30.5 billion parameters take 56.9 GiB of each GPU."""
    with pytest.raises(InputError) as refused:
        write_comparison(tuner.compare(**QWEN, settings=["tp=1", "recompute=none"]), tmp_path)
    key = "tp1-pp1-dp32-mbs1-z3-rnone"
    explained = json.loads(
        run("explain", key, *_options(QWEN), "--framework", "fsdp2", "--json").out,
    )["estimate"]
    needed = f"it needs {explained['memory_gib']:.1f} of 78.8 usable GiB, 56.9 of them for gradients;"
    assert not explained["fits"]
    assert needed in str(refused.value)
    assert f"{key} is estimated to run out of memory with accelerate, where each GPU has whole" in str(refused.value)
    assert "until the last of 8 accumulation steps" in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_without_accumulation_there_are_no_whole_gradients(tmp_path: Path) -> None:
    """The same option with a global batch of 32 is one step, which fits."""
    made = tuner.compare(**{**QWEN, "global_batch": 32}, settings=["tp=1", "recompute=full"])
    assert len(write_comparison(made, tmp_path)) == 3


def test_a_measured_option_is_not_judged_by_an_estimate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tuner.compare(table=ROOT / "corpus/enoki-h100.csv", settings=["tp=1"], model="enoki-40")
    monkeypatch.setattr("tuner.export.fsdp._check_memory", None)
    assert len(write_comparison(made, tmp_path)) == 3


def test_a_preset_is_wrapped_by_its_class_and_nothing_is_left_to_do(tmp_path: Path, run: Run) -> None:
    said = run(*LLAMA, "--global-batch", "256", "--export", str(tmp_path))
    assert said.code == 0, said.err
    assert 'fsdp_transformer_layer_cls_to_wrap: "LlamaDecoderLayer"\n' in (tmp_path / "accelerate.yaml").read_text()
    policy = json.loads((tmp_path / "fsdp.json").read_text())["auto_wrap_policy"]
    assert policy == {"transformer_auto_wrap_policy": {"transformer_layer_cls": ["LlamaDecoderLayer"]}}
    assert "is unknown" not in said.out
    assert "#" not in (tmp_path / "accelerate.yaml").read_text()


def test_an_unknown_layer_class_is_left_out_with_a_note(tmp_path: Path, run: Run) -> None:
    """No placeholder: accelerate's default needs no name."""
    where = ("--gpu", "H100-80GB-SXM", "--nodes", "1", "--gpus-per-node", "4")
    said = run("compare", "--model", "enoki-40", *where, "--export", str(tmp_path))
    note = "The class of enoki-40's layers is unknown. Accelerate wraps the classes in _no_split_modules"
    assert note in said.out
    config = (tmp_path / "accelerate.yaml").read_text()
    assert 'fsdp_auto_wrap_policy: "TRANSFORMER_BASED_WRAP"\n' in config
    assert "fsdp_transformer_layer_cls_to_wrap:" not in config
    assert note.split(" Accelerate")[0] in config
    policy = json.loads((tmp_path / "fsdp.json").read_text())["auto_wrap_policy"]
    assert policy == {"transformer_auto_wrap_policy": {"transformer_layer_cls": None}}


def test_only_the_preset_itself_has_its_class() -> None:
    """At any sequence length; a model of the same name and other properties may be of any class."""
    preset = known_model("llama-3-8b")
    assert preset is not None
    assert layer_class(replace(preset, seq=2048)) == "LlamaDecoderLayer"
    assert layer_class(replace(preset, layers=31)) is None
    assert layer_class(replace(preset, name="my-llama")) is None
    assert unwrapped_note(preset) == ""
    topology = Topology(nodes=1, tp=1, pp=1, dp=8, micro_batch=1, zero=3)
    workload = Workload(model=replace(preset, name="my-llama"), global_batch=8, precision="bf16")
    files = fsdp_files(workload, topology, tuner.space_for(model="tiny", nodes=1).cluster)
    assert "LlamaDecoderLayer" not in "".join(files.values())


@pytest.mark.slow
def test_classes_of_presets_are_those_of_transformers() -> None:
    """By the model type in the published config of each preset."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    names = {"kimi_k2": "deepseek_v3", "llama4_text": "llama4"}
    checked = set()
    for preset in catalog().model:
        config = ROOT / f"tests/data/huggingface/{ {'bloom-176b': 'bloom'}.get(preset, preset) }.json"
        model = known_model(preset)
        if not config.is_file() or model is None:
            continue
        published = json.loads(config.read_text())["model_type"]
        kind = names.get(published, published)
        module = importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
        assert hasattr(module, layer_class(model) or "nothing"), preset
        assert (layer_class(model) or "").lower().replace("_", "").startswith(kind.replace("_", "")), preset
        checked.add(kind)
    assert {
        "llama",
        "qwen3",
        "qwen3_moe",
        "mixtral",
        "bloom",
        "deepseek_v3",
        "gpt_oss",
        "qwen3_next",
        "qwen3_5",
    } <= checked


def _options(described: dict[str, Any]) -> list[str]:
    return [word for name, value in described.items() for word in (f"--{name.replace('_', '-')}", str(value))]
