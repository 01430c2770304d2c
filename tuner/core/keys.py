"""Topology keys read back: `tp8-pp12-dp4-mbs2-z1`.

`Topology.key` writes them. What a key leaves out is at its default, and `dp` may be left out too: it follows.
"""

from __future__ import annotations

import re
from typing import Any, Final

from tuner.core.domain import Cluster, Shape, Topology, Workload, partition_for
from tuner.core.errors import BadKey
from tuner.core.text import listed

LOOKS_LIKE: Final = (
    "a key looks like tp8-pp12-dp4-mbs2-z1, after which may stand vpp2, cp2, sp, rnone or rsel (recompute; left out: "
    "full), emb (embedding and head count as layers), h112 (heads), 13824x78 (hidden x layers) and gbs1920"
)

_NUMBERED: Final = {
    "tp": "tp",
    "pp": "pp",
    "dp": "dp",
    "mbs": "micro_batch",
    "z": "zero",
    "vpp": "vpp",
    "cp": "cp",
    "h": "heads",
    "gbs": "global_batch",
}
_WORDS: Final[dict[str, tuple[str, object]]] = {
    "sp": ("sequence_parallel", True),
    "rnone": ("recompute", "none"),
    "rsel": ("recompute", "selective"),
    "rfull": ("recompute", "full"),
    "emb": ("partition", "embedding"),
}
_REQUIRED: Final = ("tp", "pp", "mbs", "z")


def parse_key(
    key: str, *, workload: Workload, cluster: Cluster, nodes: int | None = None, dp: int | None = None
) -> Topology:
    """The topology that a key names.

    Its nodes follow from its GPUs. Without a `dp` part it has `dp` as given, else it fills `nodes`, else the whole
    cluster. A pipeline that divides the layers only together with embedding and head is partitioned so. What the key
    says as the workload has it is left to the workload, so that one topology has one key.
    """
    given = _parts(key)
    missing = [part for part in _REQUIRED if _NUMBERED[part] not in given]
    if missing:
        raise BadKey(f"{key!r} lacks {listed(missing)}: {LOOKS_LIKE}.")
    replica = given["tp"] * given["pp"] * given.get("cp", 1)
    if "dp" not in given and dp is None:
        given["nodes"] = nodes or cluster.nodes
        given["dp"] = max(1, given["nodes"] * cluster.gpus_per_node // max(1, replica))
    else:
        given.setdefault("dp", dp)
        given["nodes"] = max(1, -(-replica * given["dp"] // cluster.gpus_per_node))
    layers = given["shape"].layers if "shape" in given else workload.model.layers
    stages = given["pp"] * given.get("vpp", 1)
    if "partition" not in given and stages:
        given["partition"] = partition_for(layers, stages)
    own = {"heads": workload.model.heads, "shape": workload.model.shape, "global_batch": workload.global_batch}
    return Topology(**{axis: value for axis, value in given.items() if axis not in own or own[axis] != value})


def _parts(key: str) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for part in key.strip().casefold().split("-"):
        axis, value = _part(part, key)
        if axis in given:
            raise BadKey(f"{key!r} names {axis} twice: {LOOKS_LIKE}.")
        given[axis] = value
    return given


def _part(part: str, key: str) -> tuple[str, object]:
    if part in _WORDS:
        return _WORDS[part]
    if shape := re.fullmatch(r"([0-9]{1,9})x([0-9]{1,9})", part):
        return "shape", Shape(hidden=int(shape[1]), layers=int(shape[2]))
    numbered = re.fullmatch(r"([a-z]+)([0-9]{1,9})", part)
    if numbered and numbered[1] in _NUMBERED:
        return _NUMBERED[numbered[1]], int(numbered[2])
    raise BadKey(f"{key!r} is not a topology key, because of {part!r}: {LOOKS_LIKE}.")
