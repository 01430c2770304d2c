"""Laws of selective recompute by modules."""

from __future__ import annotations

from typing import Any, Final

from tuner.core.columns import Columns
from tuner.core.domain import Workload
from tuner.core.frameworks import record_of
from tuner.core.model import Model
from tuner.core.precision import recipe_of
from tuner.core.recompute import MODULES, RECOMPUTE, modules_of
from tuner.core.text import listed
from tuner.space.rules.rule import MEGATRON, Rule

_CONFIG: Final = MEGATRON + "core/transformer/transformer_config.py: recompute_modules"
_WITHIN_MOE: Final = ("moe_act", "shared_experts")


def _selects_modules(workload: Workload) -> bool:
    """Return whether the framework, if any, recomputes by modules."""
    record = record_of(workload)
    return record is None or set(MODULES) <= set(record.recompute.value)


def _lacking(model: Model) -> list[str]:
    """Return the modules that the model does not have."""
    experts, latent = model.experts, model.latent is not None
    has = {
        "core_attn": True,
        "layernorm": latent or experts is not None,
        "mla_up_proj": latent,
        "mlp": model.dense_mlp_layers > 0,
        "moe": experts is not None,
        "moe_act": experts is not None,
        "shared_experts": experts is not None and experts.shared_ffn > 0,
    }
    return [module for module in MODULES if not has[module]]


def _unselectable(columns: Columns) -> Any:
    """Return whether a row selects a module that the model lacks, or one twice."""
    twice = columns.recomputes("moe") & columns.recomputes(*_WITHIN_MOE)
    return columns.recomputes(*_lacking(columns.workload.model)) | twice


def _unselectable_words(columns: Columns) -> str:
    modules = modules_of(RECOMPUTE[int(columns.recompute)])
    if lacking := [module for module in modules if module in _lacking(columns.workload.model)]:
        return f"recompute selects {listed(lacking)}, but none of the model's {columns.layers} layers has it"
    return f"in {columns.layers} layers, moe already recomputes {listed(set(modules) & set(_WITHIN_MOE))}"


RECOMPUTE_LAWS: Final[tuple[Rule, ...]] = (
    Rule(
        name="recompute-modules",
        level="law",
        sentence="selective recompute selects modules that the model has, each once",
        source=_CONFIG + "; core/models/gpt/gpt_layer_specs.py: other norms are fused with the product behind them",
        reads=("recompute", "layers"),
        vary=("recompute",),
        broken=_unselectable,
        numbers=_unselectable_words,
        binding=_selects_modules,
    ),
    Rule(
        name="recompute-delayed-fp8",
        level="law",
        sentence="with fp8's delayed scaling, neither layernorm nor moe_act is recomputed",
        source=_CONFIG,
        reads=("recompute",),
        vary=("recompute",),
        broken=lambda c: c.recomputes("layernorm", "moe_act"),
        numbers=lambda c: f"fp8 with delayed scaling excludes recompute of {RECOMPUTE[int(c.recompute)]}",
        hint="or --precision-recipe tensorwise",
        binding=lambda workload: workload.framework == "megatron-core" and recipe_of(workload) == "delayed",
    ),
    Rule(
        name="recompute-moe-act",
        level="law",
        sentence="recompute of moe_act needs grouped GEMMs, which eager attention (Megatron's local layers) excludes",
        source=_CONFIG,
        reads=("recompute",),
        vary=("recompute",),
        broken=lambda c: c.recomputes("moe_act"),
        numbers=lambda c: f"eager attention excludes recompute of {RECOMPUTE[int(c.recompute)]}",
        hint="or --attention flash2",
        binding=lambda workload: (
            workload.framework == "megatron-core"
            and workload.attention == "eager"
            and workload.model.experts is not None
        ),
    ),
)
