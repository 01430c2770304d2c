"""A search states at its start whether its winner can be exported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.conftest import ROOT, Run
from tuner.core.frameworks import FrameworkChoice
from tuner.export.support import export_note
from tuner.space.build import space_for


@pytest.mark.parametrize(
    ("framework", "model", "note"),
    [
        ("megatron-deepspeed", "bloom-176b", ""),
        ("torchtitan", "llama-3-8b", ""),
        ("any", "bloom-176b", ""),
        (
            "torchtitan",
            "bloom-176b",
            "for torchtitan, tuner exports only Llama 3 1B, 3B, 8B, 70B, 405B and Qwen3 30B-A3B, 235B-A22B, not this "
            "model; --framework megatron-deepspeed, deepspeed or fsdp2 can.",
        ),
        (
            "torchtitan",
            "qwen3-30b-a3b",
            "tuner export cannot write this model for torchtitan: no format expresses 128 experts with 8 per token "
            "(the model has a load-balancing loss of 0.001, and torchtitan's Qwen3 has a softmax router with "
            "normalized weights and no shared experts, load-balancing loss or limit on an expert's tokens; to train "
            "without this loss, set aux_loss = 0 in a TOML file of the model); --framework megatron-core, deepspeed or"
            " fsdp2 can.",
        ),
    ],
)
def test_a_model_without_any_format_is_named(framework: FrameworkChoice, model: str, note: str) -> None:
    space = space_for(framework=framework, model=model, nodes=2)
    assert export_note(space.workload, space.cluster) == note


def test_properties_that_tuner_does_not_understand_are_enumerated() -> None:
    space = space_for(model="llama-3-8b", nodes=2)
    odd = replace(space.workload.model, not_understood=("a", "b", "c"))
    note = export_note(replace(space.workload, model=odd), space.cluster)
    assert "no format expresses a, b and c" in note


def test_a_users_program_may_train_models_that_the_worker_lacks() -> None:
    space = space_for(framework="deepspeed", model="tests/data/huggingface/gemma-2-9b.json", nodes=2)
    assert "soft-capping" in export_note(space.workload, space.cluster)
    assert export_note(space.workload, space.cluster, command="train.py --config {ds_config}") == ""


def test_a_search_warns_at_its_start(run: Run) -> None:
    arguments = ("--launcher", "simulated", "--budget", "1", "--study", "titan", "--runs", "runs")
    done = run("optimize", "--framework", "torchtitan", "--nodes", "2", *arguments)
    assert "note: for torchtitan, tuner exports only Llama 3" in done.err


def test_each_property_has_its_reason() -> None:
    """ERNIE's experts are refused for their balancing bias, whatever else is."""
    space = space_for(model=ROOT / "tests/data/huggingface/ernie-4.5-21b-a3b.json", nodes=2)
    assert "64 experts with 6 per token (a balancing bias under softmax) and 1,728 frozen" in export_note(
        space.workload, space.cluster
    )
