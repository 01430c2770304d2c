"""Compare the logits of Megatron Bridge's model, built from exported recipes, with those of transformers, on a CPU.

    python tests/export/bridge_logits.py NAME...

Prints one JSON object with the largest difference of a logit for each config. Kernels that need a GPU are replaced by
megatron-core's local ones, which compute the same.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.export.bridge_provider import GPU_ONLY, OPTIONAL, PARTS, configured
from tests.export.megatron_logits import difference, groups, prepared
from tests.export.test_export import exported
from tests.record_flags import Mocks
from tuner.export.production import ProductionRun

CORE = ("models.gpt.gpt_model", "models.gpt.gpt_layer_specs", "distributed", "optimizer")
"""Modules of megatron-core that Bridge imports; they are imported first, to see that Transformer Engine is missing."""
_OFF = (
    *("moe_grouped_gemm", "moe_permute_fusion", "gradient_accumulation_fusion", "persist_layer_norm"),
    *("masked_softmax_fusion", "cross_entropy_loss_fusion", "bias_dropout_fusion", "apply_rope_fusion"),
)
INSTEAD: dict[str, Any] = {
    **dict.fromkeys(_OFF, False),
    **dict.fromkeys(("recompute_granularity", "recompute_method", "recompute_num_layers"), None),
    "transformer_impl": "local",
    "moe_token_dispatcher_type": "allgather",
    "use_cpu_initialization": True,
    "params_dtype": torch.float32,
}


def bridge(run: ProductionRun) -> Any:
    """Return the model that Bridge builds from the exported recipe of a run."""
    recipe = exported(run, "megatron-bridge")["recipe.py"]
    provider = configured(recipe, **{name: SimpleNamespace() for name in PARTS}).model
    specs = importlib.import_module("megatron.core.models.gpt.gpt_layer_specs")
    for name, value in INSTEAD.items():
        setattr(provider, name, value)
    provider.attention_backend = importlib.import_module("megatron.core.transformer.enums").AttnBackend.local
    provider.transformer_layer_spec = partial(specs.get_gpt_decoder_block_spec, use_transformer_engine=False)
    provider.finalize()
    provider._pg_collection = groups()
    return provider.provide(pre_process=True, post_process=True).float().eval()


def main() -> None:
    """Print the differences for the configs in the arguments."""
    prepared()
    with contextlib.redirect_stdout(io.StringIO()):
        for name in CORE:
            importlib.import_module(f"megatron.core.{name}")
        importlib.import_module("megatron.core.transformer.moe.moe_utils").te_general_gemm = None  # type: ignore[attr-defined]
        sys.meta_path.insert(0, Mocks(*GPU_ONLY, *OPTIONAL))
        found = {name: difference(name, bridge) for name in sys.argv[1:]}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
