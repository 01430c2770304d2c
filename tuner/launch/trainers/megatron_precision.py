"""The precision that Megatron's arguments set, and settings of it that an export does not write.

Flags were read in NVIDIA/Megatron-LM at d98e8a64, `megatron/training/arguments.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tuner.core.domain import QUANTIZED
from tuner.core.errors import InputError
from tuner.core.text import listed, shown
from tuner.launch.trainers.kind import Flags, is_on

RECIPE_FORMATS: Final = {
    "delayed": "hybrid",
    "tensorwise": "hybrid",
    "blockwise": "e4m3",
    "mxfp8": "e4m3",
    "nvfp4": "e2m1",
}
"""Number format that Transformer Engine's recipes are used with."""

DELAYED_SCALING: Final[Mapping[str, int | str]] = {"fp8_amax_history_len": 1024, "fp8_amax_compute_algo": "max"}
"""Transformer Engine's own defaults of delayed scaling."""
_MEGATRONS_SCALING: Final = {"fp8_amax_history_len": "1", "fp8_amax_compute_algo": "most_recent"}
"""Megatron-LM's defaults of delayed scaling."""

_RECIPES: Final = ("delayed", "tensorwise", "blockwise", "mxfp8")
"""Values of `--fp8-recipe`."""

NUMERICS: Final = (
    *("--te-precision-config-file", "--no-fp8-wgrad", "--disable-fp8-wgrad", "--fp8-margin", "--fp8-output-proj"),
    *("--fp8-quantizer-factory", "--fp4-quantizer-factory", "--fp4-param-gather", "--output-logit-dtype"),
    *("--fp16-lm-cross-entropy", "--moe-router-dtype", "--moe-dispatch-fwd-dtype", "--moe-combine-bwd-dtype"),
    *("--apply-query-key-layer-scaling", "--disable-bf16-reduced-precision-matmul", "--embedding-weights-in-fp32"),
)
"""Flags of the precision of single tensors and products."""
EXPORTED_VALUES: Final[Mapping[str, str]] = {
    "--fp8-margin": "0",
    "--moe-router-dtype": "fp32",
    "--moe-dispatch-fwd-dtype": "bf16",
    "--moe-combine-bwd-dtype": "bf16",
}
"""Values of these flags with which an export trains."""


def half_precision(flags: Flags) -> str:
    """Return the precision set by `--bf16` and `--fp16`."""
    return next((name for name in ("bf16", "fp16") if is_on(flags, f"--{name}")), "fp32")


def core_precision(flags: Flags) -> str:
    """Return the precision of Megatron-LM's flags."""
    if flags.get("--fp4-format"):
        return "fp4"
    return "fp8" if _format(flags) else half_precision(flags)


def core_scaling(flags: Flags) -> dict[str, str | bool | None]:
    """Return the recipe of the flags, whether weights are stored in fp8, and the layers in bf16."""
    if (precision := core_precision(flags)) not in QUANTIZED:
        return {}
    kept = [flags.get(f"--num-layers-at-{end}-in-bf16", "1") for end in ("start", "end")]
    layers = {"bf16_layers": ",".join(kept) if is_on(flags, "--first-last-layers-bf16") else None}
    if precision != "fp8":
        return {**layers}
    if (recipe := _recipe(flags)) not in _RECIPES:
        raise InputError(f"--fp8-recipe {shown(recipe)} in --command is not modeled, only {listed(_RECIPES)}.")
    return {"precision_recipe": recipe, "fp8_weights": "--fp8-param-gather" in flags, **layers}


def other_numerics(flags: Flags) -> list[str]:
    """Return the settings of precision of a command with which an export would not train."""
    found = [flag for flag in NUMERICS if flag in flags and flags[flag] != EXPORTED_VALUES.get(flag)]
    if half_precision(flags) == "fp16" and "--accumulate-allreduce-grads-in-fp32" in flags:  # bf16 always does so
        found.append("--accumulate-allreduce-grads-in-fp32")
    if core_precision(flags) != "fp8":
        return found
    recipe, given = _recipe(flags), _format(flags)
    if given != RECIPE_FORMATS.get(recipe):
        found.append(f"--fp8-format {given}")
    if recipe == "delayed":
        amax = {name: flags.get(f"--{name.replace('_', '-')}") for name in DELAYED_SCALING}
        found += [
            f"--{name.replace('_', '-')} {value or f'{_MEGATRONS_SCALING[name]} (the default)'}"
            for name, value in amax.items()
            if value != str(DELAYED_SCALING[name])
        ]
    return found


def _format(flags: Flags) -> str:
    return flags.get("--fp8-format") or flags.get("--fp8") or ""


def _recipe(flags: Flags) -> str:
    return flags.get("--fp8-recipe", "delayed")
