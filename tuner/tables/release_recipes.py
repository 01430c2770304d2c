"""What the performance recipes of Megatron-Bridge's releases run for mixtures of experts.

Published tables print degrees and batch, not the dispatcher, the overlap, CUDA graphs and recomputed modules of their
recipes. `tuner/data/recipes/megatron-bridge.csv` has these by model, GPU, release and precision; its first line names
the sources. Where a release has recipes for two batches, those of the larger one count.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import lru_cache

from tuner.core.catalog import known_model, read_text
from tuner.core.resources import folder


def release_recipe(cells: Mapping[str, str]) -> dict[str, str]:
    """Return what the recipe runs of the release, model, GPU and precision that the cells name in lower case."""
    model, gpu = known_model(cells.get("model", "")), cells.get("gpu", "").split("-")[0]
    precision = cells.get("precision_recipe") or cells.get("precision", "")
    for row in _recipes():
        named = model and model.name == row["model"] and row["gpu"].lower() == gpu
        if named and cells.get("release") in row["releases"].split() and _covers(row["precisions"].split(), precision):
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


@lru_cache(maxsize=1)
def _recipes() -> list[dict[str, str]]:
    _, *lines = read_text(folder("data") / "recipes" / "megatron-bridge.csv").splitlines()
    return list(csv.DictReader(lines))
