"""Models built from exported flags and recipes have the logits of transformers for the same weights."""

from __future__ import annotations

import json
import os
import subprocess
from importlib.util import find_spec

import pytest

from tests.conftest import ROOT
from tests.export.test_bridge import PYTHON

CHECKOUT = os.environ.get("MEGATRON_LM", "")
NAMES = (
    *("llama-3.1-8b", "llama-2-70b", "qwen2-7b", "qwen3-8b", "glm-4-9b", "stablelm-2-1.6b", "smollm3-3b"),
    *("mistral-7b-v0.1", "starcoder2-7b", "mixtral-8x7b", "qwen1.5-moe-a2.7b", "qwen3-30b-a3b", "glm-4.5"),
    *("gpt-oss-20b", "deepseek-v3", "afm-4.5b", "ernie-4.5-0.3b", "phi-3-mini-4k"),
)
FUSED = (*NAMES, "minitron-4b")
"""Weights of norms stored as their difference from one need the layers for Transformer Engine."""
BRIDGE = (
    *("llama-3.1-8b", "llama-3.2-1b", "qwen3-8b", "smollm3-3b", "mistral-7b-v0.1", "mixtral-8x7b", "afm-4.5b"),
    *("qwen1.5-moe-a2.7b", "qwen3-30b-a3b", "glm-4.5", "gpt-oss-20b"),
)
"""Without latent attention, for which megatron-core 0.16.1 needs Transformer Engine."""


@pytest.mark.slow
@pytest.mark.skipif(not CHECKOUT or not PYTHON, reason="MEGATRON_LM names no checkout of Megatron-LM")
@pytest.mark.skipif(not find_spec("transformers"), reason="needs transformers")
def test_megatrons_model_has_the_logits_of_transformers() -> None:
    """The models are small, and include sliding windows, yarn, sinks, latent attention and groups of experts."""
    check("megatron_logits.py", NAMES)


@pytest.mark.slow
@pytest.mark.skipif(not CHECKOUT or not PYTHON, reason="MEGATRON_LM names no checkout of Megatron-LM")
@pytest.mark.skipif(not find_spec("transformers"), reason="needs transformers")
def test_the_layers_for_transformer_engine_have_the_logits_of_transformers() -> None:
    """They are what exports run with, and differ from Megatron's local layers in where they put norms."""
    check("megatron_logits.py", FUSED, "--fused")


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="needs Megatron Bridge, here or in MEGATRON_PYTHON")
@pytest.mark.skipif(not find_spec("transformers"), reason="needs transformers")
def test_the_model_of_a_bridge_recipe_has_the_logits_of_transformers() -> None:
    """The models include sliding windows, yarn, sinks, a clamped gate and biases of experts."""
    check("bridge_logits.py", BRIDGE)


def check(script: str, names: tuple[str, ...], *options: str) -> None:
    """Require that a script finds no difference for models of these names."""
    path = str(ROOT / "tests" / "export" / script)
    done = subprocess.run([PYTHON, "-W", "ignore", path, *options, *names], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    differences = json.loads(done.stdout)
    assert set(differences) == set(names)
    assert {name: one for name, one in differences.items() if one > 1e-3} == {}
