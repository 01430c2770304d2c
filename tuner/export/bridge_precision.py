"""Megatron Bridge's mixed precision recipes, with the fields that differ from the Megatron-LM export."""

from __future__ import annotations

from typing import Final

from tuner.core.precision import bf16_layers, recipe_of, stores_fp8_weights
from tuner.export.megatron_common import LOSS_SCALE_WINDOW
from tuner.export.production import ProductionRun
from tuner.launch.trainers.megatron_lm import FIRST_LOSS_SCALE
from tuner.launch.trainers.megatron_precision import DELAYED_SCALING, RECIPE_FORMATS

PRECISIONS: Final = {
    "delayed": "bf16_with_fp8_delayed_scaling_mixed",
    "tensorwise": "bf16_with_fp8_current_scaling_mixed",
    "blockwise": "bf16_with_fp8_subchannel_scaling_mixed",
    "mxfp8": "bf16_with_mxfp8_mixed",
    "nvfp4": "bf16_with_nvfp4_mixed",
}
"""Names of Bridge's recipes in FP8 and FP4."""


def precision_fields(run: ProductionRun) -> dict[str, object]:
    """Return the fields that make Bridge's precision recipes equal to the Megatron-LM export.

    In FP8 and FP4, all layers are quantized but those that the run keeps in bf16, and weights are in bf16 unless the
    run stores them in fp8. In fp16, Bridge's first loss scale is 2^32.
    """
    recipe = recipe_of(run.workload)
    if run.workload.precision == "fp16":
        return {"initial_loss_scale": float(FIRST_LOSS_SCALE), "loss_scale_window": float(LOSS_SCALE_WINDOW)}
    if recipe is None:
        return {}
    name = run.workload.precision
    kept = bf16_layers(run.workload)
    fields: dict[str, object] = {name: RECIPE_FORMATS[recipe], "first_last_layers_bf16": any(kept)}
    if any(kept):
        fields["num_layers_at_start_in_bf16"], fields["num_layers_at_end_in_bf16"] = kept
    fields[f"{name}_param_gather"] = stored = stores_fp8_weights(run.workload)
    if name == "fp8":
        fields["reuse_grad_buf_for_mxfp8_param_ag"] = stored and recipe == "mxfp8"
    return {**fields, **(DELAYED_SCALING if recipe == "delayed" else {})}


def mixed_precision(run: ProductionRun) -> str:
    """Return the name of Bridge's mixed precision recipe."""
    if recipe := recipe_of(run.workload):
        return PRECISIONS[recipe]
    return f"{run.workload.precision}_mixed"
