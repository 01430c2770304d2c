"""Precisions in which matrices are multiplied, and how fp8 and fp4 tensors are scaled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, get_args

from tuner.core.domain import Gpu, Precision, PrecisionRecipe, Workload, scales
from tuner.core.errors import InputError
from tuner.core.frameworks import record_of
from tuner.core.text import either, listed, shown

STORED_IN_FP8: Final[Mapping[str, tuple[PrecisionRecipe, ...]]] = {
    "megatron-bridge": ("delayed", "tensorwise", "mxfp8"),
    "nemo": ("delayed", "tensorwise"),
}
"""Scaling whose recipes store the layers' weights in fp8 unless a field overrides that (fp8_param_gather of
NVIDIA-NeMo/Megatron-Bridge v0.2.0 to v0.4.0 and 067f987d, src/megatron/bridge/training/mixed_precision.py; NVIDIA/NeMo
at 0a07447c, nemo/collections/llm/recipes/precision/mixed_precision.py)."""

_ADA: Final = ("L4", "RTX")
"""Beginnings of the names of GPUs with fp8 and without fp4 that precede Hopper."""


def recipe_of(workload: Workload) -> PrecisionRecipe | None:
    """Return how fp8 or fp4 tensors are scaled: as stated, or by the framework's default; None in other precisions."""
    if not workload.is_quantized:
        return None
    stated = (workload.precision_recipe,) if workload.precision_recipe else ()
    known = record.precision_recipe.value if (record := record_of(workload)) else ()
    every: tuple[PrecisionRecipe, ...] = (*stated, *known, "delayed", "nvfp4")
    return next(one for one in every if scales(one) == workload.precision)


def check_precision(precision: str, gpu: Gpu, recipe: str | None = None) -> None:
    """Raise `InputError` if the GPU lacks the precision or its recipe."""
    if precision not in gpu.peak_flops:
        supported = [known for known in gpu.peak_flops if known in get_args(Precision)]
        raise InputError(f"{gpu.name} supports {listed(supported)}, not {precision}.")
    if precision == "fp4" and gpu.is_amd:
        raise InputError(
            f"{gpu.name} multiplies in fp4, but tuner does not model mxfp4, the recipe of ROCm's Transformer Engine; "
            "use --precision fp8, for example with --precision-recipe mxfp8."
        )
    if precision == "fp8" and recipe == "mxfp8" and "fp4" not in gpu.peak_flops:
        raise InputError(
            f"{gpu.name} does not support mxfp8, which needs the tensor cores of a B200, MI350X or later GPU; use "
            "another --precision-recipe."
        )
    if precision == "fp8" and recipe == "blockwise" and (lack := _lacks_blockwise(gpu)):
        others = ("delayed", "tensorwise", *(("mxfp8",) if "fp4" in gpu.peak_flops else ()))
        raise InputError(f"{gpu.name} has no blockwise recipe, {lack}; use --precision-recipe {either(others)}.")


def _lacks_blockwise(gpu: Gpu) -> str:
    """Return why Transformer Engine does not scale by blocks on the GPU; empty if it does.

    From check_fp8_block_scaling_support in transformer_engine/pytorch/quantization.py of NVIDIA/TransformerEngine at
    d0067d0d, which requires compute capability 9.0, and of ROCm/TransformerEngine at 030b7921.
    """
    if gpu.is_amd:
        return "which ROCm's Transformer Engine does not support"
    is_ada = gpu.name.startswith(_ADA) and "fp4" not in gpu.peak_flops
    return "which Transformer Engine supports on Hopper and later GPUs" if is_ada else ""


def bf16_layers(workload: Workload) -> tuple[int, int]:
    """Return how many first and last layers stay in 16 bits beside fp8 or fp4 layers."""
    kept = workload.stack.bf16_layers if workload.stack and workload.is_quantized else None
    return kept or (0, 0)


def parse_bf16_layers(text: str) -> tuple[int, int]:
    """Return the two numbers of layers in a text such as `1,4`; raise `InputError` for anything else."""
    found = re.fullmatch(r"\s*(\d{1,6})\s*[, ]\s*(\d{1,6})\s*", text, re.ASCII)
    if not found:
        raise InputError(f"the layers in bf16 must be two numbers, of first and of last layers, not {shown(text)}.")
    return int(found[1]), int(found[2])


def bf16_layer_words(workload: Workload) -> str:
    """Return which layers stay in 16 bits beside fp8 or fp4 layers, as words; empty without any."""
    first, last = bf16_layers(workload)
    ends = [
        f"the {end} {many} layers" if many > 1 else f"the {end} layer" * many
        for end, many in (("first", first), ("last", last))
    ]
    return f"{listed(filter(None, ends))} in bf16" if first or last else ""


def stores_fp8_weights(workload: Workload) -> bool:
    """Return whether the parameters of fp8 layers are stored in fp8."""
    return workload.precision == "fp8" and workload.stack is not None and bool(workload.stack.quantized_weights)


def check_bf16_layers(workload: Workload) -> None:
    """Raise `InputError` unless the framework can keep as many layers in bf16 beside fp8 or fp4."""
    kept = sum(bf16_layers(workload))
    if not workload.is_quantized:
        raise InputError(f"--bf16-layers needs --precision fp8 or fp4, not {workload.precision}.")
    if workload.framework != "megatron-core":
        raise InputError(
            "--bf16-layers is Megatron-Core's --first-last-layers-bf16 and does not apply to "
            f"{workload.framework or 'any framework'}; use --framework megatron-core."
        )
    if recipe_of(workload) == "delayed":
        raise InputError("--bf16-layers is not possible with delayed scaling; use another --precision-recipe.")
    if kept > workload.model.layers:
        raise InputError(f"--bf16-layers names {kept} layers, but the model has {workload.model.layers}.")


def check_fp8_weights(workload: Workload) -> None:
    """Raise `InputError` unless the framework can store the layers' weights in fp8."""
    if workload.precision != "fp8":
        raise InputError(f"--fp8-weights needs --precision fp8, not {workload.precision}.")
    if workload.framework != "megatron-core":
        raise InputError(
            "--fp8-weights is Megatron-Core's --fp8-param-gather and does not apply to "
            f"{workload.framework or 'any framework'}; use --framework megatron-core."
        )
