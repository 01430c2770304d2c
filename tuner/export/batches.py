"""The fragment of a training's config that fixes batch sizes, for each number of GPUs."""

from __future__ import annotations

from collections.abc import Iterable


def batch_fragment(gpu: str, target: float, rows: Iterable[tuple[int, int]]) -> str:
    """YAML: `rows` are numbers of GPUs and the batch on each."""
    lines = [f"# {gpu}: made by tuner memory", "training:", "  batch_config:"]
    for ranks, batch in rows:
        lines += [
            f"    gpus_{ranks}:",
            f"      batch_size: {batch}",
            f"      effective_batch_size: {batch * ranks}",
            f"      elastic_target_util: {target:.2f}",
        ]
    return "\n".join([*lines, ""])
