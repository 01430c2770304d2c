"""Parse topology keys such as `tp8-pp12-dp4-mbs2-z1`.

`Topology.key` writes them. Omitted parts have their defaults; an omitted `dp` is derived from the nodes.
"""

from __future__ import annotations

import re
from typing import Any, Final

from tuner.core.domain import DISPATCHERS, PARTITION_KEYS, Cluster, Topology, Workload, partition_for
from tuner.core.errors import BadKey
from tuner.core.offload import OFFLOAD_KEYS
from tuner.core.recompute import MODULES, RECOMPUTE_KEYS, selecting
from tuner.core.shape import Shape
from tuner.core.text import listed, shown

LOOKS_LIKE: Final = "expected a key like tp8-pp12-dp4-mbs2-z1-rsel; docs/explain.md#keys lists all parts"

NUMBERED: Final = {
    "tp": "tp",
    "pp": "pp",
    "dp": "dp",
    "mbs": "micro_batch",
    "z": "zero",
    "vpp": "vpp",
    "cp": "cp",
    "h": "heads",
    "gbs": "global_batch",
    "hsdp": "hsdp",
    "ep": "ep",
    "etp": "etp",
}
"""Words of a key that a number follows, and the fields of a topology that they set."""
_WORDS: Final[dict[str, tuple[str, object]]] = {
    "sp": ("sequence_parallel", True),
    **{word: ("recompute", recompute) for recompute, word in RECOMPUTE_KEYS.items()},
    **{word: ("partition", partition) for partition, word in PARTITION_KEYS.items()},
    **{word: ("offload", offload) for offload, word in OFFLOAD_KEYS.items()},
    **{dispatcher: ("dispatcher", dispatcher) for dispatcher in DISPATCHERS},
    "overlap": ("moe_overlap", True),
}
_MAX_DIGITS: Final = 9
"""Digits of the largest number in a key, without leading zeros."""

_REQUIRED: Final = ("tp", "pp", "mbs", "z")


def parse_key(
    key: str, *, workload: Workload, cluster: Cluster, nodes: int | None = None, dp: int | None = None
) -> Topology:
    """Return the topology that a key describes.

    The number of nodes follows from the number of GPUs. A key without `dp` takes the argument `dp`, or else the largest
    degree that fits on `nodes` (by default, the whole cluster). If the layers divide by the stages only together with
    embedding and head, the partition is `embedding`. Heads, shape and batch that equal the workload's become None, so
    that each topology has exactly one key.
    """
    values = parts_of(key)
    missing = [part for part in _REQUIRED if NUMBERED[part] not in values]
    if missing:
        raise BadKey(f"invalid topology key {key!r}: {listed(missing)} missing; {LOOKS_LIKE}.")
    replica = values["tp"] * values["pp"] * values.get("cp", 1)
    if "dp" not in values and dp is None:
        values["nodes"] = nodes or cluster.nodes
        values["dp"] = max(1, values["nodes"] * cluster.gpus_per_node // max(1, replica))
    else:
        values.setdefault("dp", dp)
        values["nodes"] = max(1, -(-replica * values["dp"] // cluster.gpus_per_node))
    layers = values["shape"].layers if "shape" in values else workload.model.layers
    stages = values["pp"] * values.get("vpp", 1)
    if "partition" not in values and stages:
        values["partition"] = partition_for(layers, stages)
    preset = {"heads": workload.model.heads, "shape": workload.model.shape, "global_batch": workload.global_batch}
    return Topology(**{axis: value for axis, value in values.items() if axis not in preset or preset[axis] != value})


def parts_of(key: str) -> dict[str, Any]:
    """Return the fields of a topology that a key states, which may be any of them."""
    values: dict[str, Any] = {}
    for part in key.strip().casefold().split("-"):
        axis, value = _part(part, key)
        if axis in values:
            raise BadKey(f"invalid topology key {key!r}: {axis} occurs twice; {LOOKS_LIKE}.")
        values[axis] = value
    return values


def _part(part: str, key: str) -> tuple[str, object]:
    if part in _WORDS:
        return _WORDS[part]
    if part.startswith("r") and (modules := part[1:].split("+")) and set(modules) <= set(MODULES):
        return "recompute", selecting(modules)
    if shape := re.fullmatch(r"([0-9]+)x([0-9]+)", part):
        return "shape", Shape(hidden=_number(shape[1], part, key), layers=_number(shape[2], part, key))
    numbered = re.fullmatch(r"([a-z]+)([0-9]+)", part)
    if numbered and numbered[1] in NUMBERED:
        return NUMBERED[numbered[1]], _number(numbered[2], part, key)
    raise BadKey(f"invalid topology key {key!r}: unknown part {part!r}; {LOOKS_LIKE}.")


def _number(digits: str, part: str, key: str) -> int:
    if len(digits.lstrip("0")) > _MAX_DIGITS:
        raise BadKey(f"invalid topology key {key!r}: the number in {shown(part)} is too large; {LOOKS_LIKE}.")
    return int(digits.lstrip("0") or "0")
