"""The golden table of the export formats: the properties of many runs, and what each format refuses or writes for them.

`python -m tests.golden_formats` rewrites `tests/data/golden/formats.json`; review the change as a diff.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tests.data.huggingface.record import CONFIGS, has_tower, text_config
from tests.export.test_export import bloom
from tests.export.test_megatron_core import hugging_face_run
from tuner.core.catalog import model as catalog_model
from tuner.core.offload import Offload
from tuner.core.rotary_scaling import RotaryScaling
from tuner.export.bundle import FORMATS
from tuner.export.deepspeed import DEEPSPEED_FORMATS
from tuner.export.formats import ExportOptions
from tuner.export.identity import PROPERTIES
from tuner.export.production import ProductionRun

GOLDEN: Final = Path(__file__).parent / "data" / "golden" / "formats.json"

MODELS: Final[dict[str, dict[str, Any]]] = {
    "linear scaling": {"rotary_scaling": RotaryScaling(kind="linear", factor=2.0)},
    "scaling of learned positions": {
        "positions": "learned",
        "rotary_scaling": RotaryScaling(kind="linear", factor=2.0),
    },
    "Llama 3's scaling": {"rotary_scaling": RotaryScaling(kind="llama3", factor=8.0, original_seq=8192)},
    "Llama 3's scaling from 4096": {"rotary_scaling": RotaryScaling(kind="llama3", factor=8.0, original_seq=4096)},
    "yarn": {"rotary_scaling": RotaryScaling(kind="yarn", factor=8.0, original_seq=8192)},
    "yarn from its usual factor": {
        "rotary_scaling": RotaryScaling(
            kind="yarn", factor=8.0, original_seq=8192, attention_factor=0.1 * math.log(8) + 1
        )
    },
    "yarn of another attention": {
        "rotary_scaling": RotaryScaling(kind="yarn", factor=8.0, original_seq=8192, attention_factor=1.5)
    },
    "rotary base with a fraction": {"rotary_base": 10000.5},
    "half of each head rotated": {"rotary_fraction": 0.5},
    "neighbours rotated": {"rotary_interleaved": True},
    "window": {"sliding_window": 512},
    "window in every other layer": {"sliding_window": 512, "window_skip": 2},
    "biases": {"qkv_bias": True, "attention_bias": True, "mlp_bias": True},
    "query bias": {"qkv_bias": True},
    "norm on queries and keys": {"qk_norm": True},
    "layernorm": {"norm": "layernorm"},
    "ALiBi": {"positions": "alibi"},
    "learned positions": {"positions": "learned"},
    "no positions": {"positions": "none"},
    "parallel attention": {"parallel_attention": True},
    "norms after": {"norm_placement": "after"},
    "norm of the embedding": {"embedding_norm": True},
    "tied": {"tied_embeddings": True},
    "unpadded vocabulary": {"vocab_multiple": 0},
    "dropout": {"attention_dropout": 0.1, "hidden_dropout": 0.2, "embedding_dropout": 0.3},
    "head size": {"head_size": 160},
    "attention scale": {"attention_scale": 0.125},
    "plain MLP": {"gated_mlp": False, "activation": "gelu"},
    "squared ReLU": {"gated_mlp": False, "activation": "relu2"},
    "capped logits": {"logit_softcap": 30.0},
}
"""Changes of one property of Llama-3-8B."""

WORKLOADS: Final[dict[str, dict[str, Any]]] = {
    "fp32": {"precision": "fp32", "attention": "eager"},
    "fp16": {"precision": "fp16", "attention": "fused"},
    "fp8": {"precision": "fp8"},
    "mxfp8": {"precision": "fp8", "precision_recipe": "mxfp8"},
    "eager": {"attention": "eager"},
    "8-bit Adam": {"optimizer": "adam8bit"},
    "SGD": {"optimizer": "sgd"},
}


def runs() -> Iterator[tuple[str, ProductionRun]]:
    """Yield every run with its name: one config per model family, and variations of Llama-3-8B."""
    llama = hugging_face_run("llama-3-8b")
    yield "usual", llama
    families = {text_config(path)["model_type"]: path for path in sorted(CONFIGS, key=has_tower)[::-1]}
    for path in sorted(families.values()):
        yield path.stem, replace(llama, workload=replace(llama.workload, model=catalog_model(str(path))))
    for name, fields in MODELS.items():
        model = replace(llama.workload.model, **fields)
        yield name, replace(llama, workload=replace(llama.workload, model=model))
    for name, fields in WORKLOADS.items():
        yield name, replace(llama, workload=replace(llama.workload, **fields))
    for key in (
        "tp2-pp2-dp8-mbs1-z1",
        "tp2-pp2-dp8-mbs2-z1-vpp2-sp",
        "tp4-pp1-cp2-dp4-mbs1-z1",
        "tp1-pp1-dp32-mbs1-z0",
    ):
        yield key, bloom(key, model="llama-3-8b", gpu="H100-80GB-SXM", nodes=4, global_batch=512)
    base = bloom("tp2-pp1-dp16-mbs1-z3", model="llama-3-8b", gpu="H100-80GB-SXM", nodes=4, global_batch=512)
    offloads: tuple[Offload, ...] = ("optimizer", "optimizer+parameters", "optimizer-50")
    recomputes = ("none", "selective", "full", "core_attn+mlp")
    for zero in (1, 2, 3):
        for hsdp in (1, 4):
            yield f"ZeRO {zero}, {hsdp} replicas", replace(base, topology=replace(base.topology, zero=zero, hsdp=hsdp))
        for offload in offloads:
            topology = replace(base.topology, zero=zero, offload=offload)
            yield f"ZeRO {zero}, offload {offload}", replace(base, topology=topology)
    for recompute in recomputes:
        yield f"recompute {recompute}", replace(base, topology=replace(base.topology, zero=1, recompute=recompute))


def table() -> dict[str, Any]:
    """Return the properties of each run, and for each format what it refuses or else its settings.

    Only differences from the first run are listed.

    One of DeepSpeed's formats represents all of them, because they train the same.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        named = dict(runs())
    labels = {name: [each.labelled(run) for each in PROPERTIES.values()] for name, run in named.items()}
    found: dict[str, Any] = {
        "properties": {
            name: "; ".join(label for label in own if name == "usual" or label not in labels["usual"])
            for name, own in labels.items()
        }
    }
    for one in (DEEPSPEED_FORMATS[0], *(each for each in FORMATS.values() if each not in DEEPSPEED_FORMATS)):
        usual: dict[str, str] = {}
        rows = found[one.name] = dict[str, str]()
        for name, run in named.items():
            if one.framework in ("fsdp2", "torchtitan") and run.topology.zero == 1:  # these always shard
                run = replace(run, topology=replace(run.topology, zero=3))
            if refused := one.refusals(run, ExportOptions()):
                rows[name] = f"refuses {'; '.join(refused)}"
                continue
            settings = {key: " ".join(words) for key, *words in one.settings(run, ExportOptions())}
            changed = [key for key in {**settings, **usual} if settings.get(key) != usual.get(key)]
            rows[name] = " ".join(f"{key}={settings.get(key)}" for key in changed)
            usual = usual or settings
    return found


def main() -> None:
    """Write the table."""
    GOLDEN.write_text(json.dumps(table(), indent=1) + "\n")


if __name__ == "__main__":
    main()
