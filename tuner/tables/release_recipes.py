"""What the performance recipes of Megatron-Bridge's releases run for mixtures of experts.

Published tables print degrees and batch, not the dispatcher, the overlap, CUDA graphs and recomputed modules of their
recipes. `tuner/data/recipes/megatron-bridge.csv` has these by model, GPU, release and precision; its first line names
the sources. Where a release has recipes for two batches, those of the larger one count.
"""

from __future__ import annotations

from collections.abc import Mapping

from tuner.core.catalog import model_name
from tuner.core.recorded import recorded


def release_recipe(cells: Mapping[str, str]) -> dict[str, str]:
    """Return what the recipe runs of the release, model, GPU and precision that the cells name in lower case."""
    model, gpu = model_name(cells.get("model", "")), cells.get("gpu", "").split("-")[0]
    precision = cells.get("precision_recipe") or cells.get("precision", "")
    for row in recorded("recipes", "megatron-bridge")[1]:
        named = row["model"] == model and row["gpu"].lower() == gpu and cells.get("release") in row["releases"].split()
        if named and _covers(row["precisions"].split(), precision):
            return _cells(row, cells)
    return {}


def _covers(precisions: list[str], precision: str) -> bool:
    """Whether a recipe is for this precision; fp8 without a recipe is the first one with any."""
    narrow = set(precisions) - {"bf16"}
    return not precisions or precision in precisions or (precision == "fp8" and bool(narrow))


def _cells(recipe: Mapping[str, str], cells: Mapping[str, str]) -> dict[str, str]:
    """Return the recipe's cells for a row with its own degrees."""
    found = {column: recipe[column] for column in ("dispatcher", "moe_overlap", "cuda_graph")}
    if cells.get("pp", "1") != "1" and cells.get("vpp", "1") == "1":
        del found["moe_overlap"]  # it needs chunks in a pipeline
    if recipe["recompute_modules"] and not cells.get("recompute"):
        found |= {"recompute": "selective", "recompute_modules": recipe["recompute_modules"]}
    return found
