"""The one topology, but for its micro batch, that a space's pinned axes leave, and the options that several make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any, Final, Literal

from tuner.core.domain import Topology, Workload, partition_for
from tuner.core.errors import InputError
from tuner.core.text import listed
from tuner.space.space import Space
from tuner.tables import Row

Stack = Literal["fsdp", "megatron"]

USUAL: Final = {
    "tp": 1,
    "pp": 1,
    "cp": 1,
    "vpp": 1,
    "sequence_parallel": False,
    "recompute": "none",
    "zero": 3,
}
"""What an axis is where nobody pins it: fully sharded data parallel, nothing recomputed."""

_FREE: Final = ("micro_batch", "global_batch", "shape", "heads", "nodes", "partition")


def options(space: Space, *, zero: int = 3) -> list[Topology]:
    """Every topology that the pinned axes make, with micro batch 1; all nodes are used."""
    pinned = {
        axis: values
        for axis, values in space.axes.items()
        if axis not in _FREE and values != space.unpinned.get(axis, ())
    }
    usual = {**USUAL, "zero": zero}
    axes = [pinned.get(axis, (value,)) for axis, value in usual.items()]
    made = []
    for values in product(*axes):
        chosen: dict[str, Any] = dict(zip(usual, values, strict=True))
        replica = chosen["tp"] * chosen["pp"] * chosen["cp"]
        degrees = space.dp or (max(1, space.cluster.gpus // replica),)
        for dp in degrees:
            if replica * dp > space.cluster.gpus:
                raise InputError(
                    f"tp({chosen['tp']}) x pp({chosen['pp']}) x cp({chosen['cp']}) x dp({dp}) = {replica * dp} GPUs, "
                    f"and the cluster has {space.cluster.gpus}."
                )
            partition = partition_for(space.workload.model.layers, chosen["pp"] * chosen["vpp"])
            nodes = -(-replica * dp // space.cluster.gpus_per_node)
            made.append(Topology(nodes=nodes, dp=dp, micro_batch=1, partition=partition, **chosen))
    return made


def only_option(space: Space, *, zero: int = 3) -> Topology:
    """The one topology; `InputError` where an axis has several values."""
    made = options(space, zero=zero)
    if len(made) > 1:
        several = [axis for axis in (*USUAL, "dp") if len({getattr(each, axis) for each in made}) > 1]
        raise InputError(
            f"max-batch tries one topology: pin {listed(several)} to one value; tuner compare takes several."
        )
    return made[0]


def stacked(workload: Workload, stack: Stack | None, *, zero: int) -> Workload:
    """The workload as its layers are written: plain PyTorch layers under FSDP, or Megatron's.

    Where nobody says, a fully sharded model is FSDP's, as in measured tables.
    """
    plain = (stack or ("fsdp" if zero == 3 else "megatron")) == "fsdp"
    return replace(workload, plain_layers=plain, parallel_loss=not plain)


def asked_rows(rows: Sequence[Row], *, group: str | None, model: Any, settings: Sequence[str]) -> list[Row]:
    """The rows of a table that a command asks for: of a group, of a model, of the axes' values."""
    from tuner.space.axes import parse_setting

    pinned = dict(parse_setting(text) for text in settings)
    found = []
    for row in rows:
        if row.run is None or (group is not None and row.group != group):
            continue
        own, topology = row.run.workload.model, row.run.topology
        if model is not None and (own.layers, own.hidden, own.heads) != (model.layers, model.hidden, model.heads):
            continue
        if all(getattr(topology, axis, None) in values for axis, values in pinned.items()):
            found.append(row)
    return found
