"""Megatron-LM's own model, built from exported flags, has the logits of transformers for the same weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.conftest import ROOT

CHECKOUT = os.environ.get("MEGATRON_LM", "")
NAMES = (
    *("llama-3.1-8b", "llama-2-70b", "qwen2-7b", "qwen3-8b", "glm-4-9b", "stablelm-2-1.6b", "smollm3-3b"),
    *("mistral-7b-v0.1", "starcoder2-7b", "mixtral-8x7b", "qwen1.5-moe-a2.7b", "qwen3-30b-a3b", "glm-4.5"),
    *("gpt-oss-20b", "deepseek-v3"),
)


@pytest.mark.slow
@pytest.mark.skipif(not CHECKOUT, reason="MEGATRON_LM names no checkout of Megatron-LM")
@pytest.mark.skipif(not find_spec("transformers"), reason="needs transformers")
def test_megatrons_model_has_the_logits_of_transformers() -> None:
    """The models are small, and include sliding windows, yarn, sinks, latent attention and groups of experts."""
    script = str(ROOT / "tests" / "export" / "megatron_logits.py")
    command = [os.environ.get("MEGATRON_PYTHON", sys.executable), "-W", "ignore", script, *NAMES]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    differences = json.loads(done.stdout)
    assert set(differences) == set(NAMES)
    assert {name: one for name, one in differences.items() if one > 1e-3} == {}
