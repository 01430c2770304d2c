"""The topologies, without a micro batch, that the pinned axes of a space leave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any, Final, Literal

from tuner.core.columns import Columns
from tuner.core.domain import OPT_IN, Partition, Topology, Workload, partition_for
from tuner.core.errors import InputError, NothingUsable
from tuner.core.frameworks import record_of
from tuner.core.keys import parts_of
from tuner.core.model import Model
from tuner.core.text import axis_value, either, listed
from tuner.space.axes import Axes, default_axes, parse_setting
from tuner.space.rules import RULES
from tuner.space.space import Space
from tuner.tables import Row, Table

Stack = Literal["fsdp", "megatron"]

DEFAULT_AXES: Final = {
    "tp": 1,
    "pp": 1,
    "cp": 1,
    "vpp": 1,
    "sequence_parallel": False,
    "recompute": "none",
    "zero": 3,
    **OPT_IN,
}
"""Values of the axes that are not pinned, where no law requires another: fully sharded data parallelism without
recompute."""

_UNDECIDED: Final = {
    *("fill-nodes", "enough-nodes", "batch-by-dp", "microbatches-by-pp"),  # the batch is sought, on whatever ranks
    *("one-partition", "one-dispatcher"),  # these count equal topologies once
}
LAWS: Final = tuple(rule for rule in RULES if rule.level == "law" and rule.name not in _UNDECIDED)
"""The laws that an option must satisfy."""

_FREE: Final = ("micro_batch", "global_batch", "shape", "heads", "nodes", "partition")
_ELSEWHERE: Final = {"global_batch": "--global-batch", "heads": "--model", "shape": "--model"}
"""Parts of a key that these commands take as an option."""


def pinned_axes(space: Space) -> dict[str, tuple[Any, ...]]:
    """Return the axes to which the user gave values, with these."""
    named = {axis for axis, _ in map(parse_setting, space.arguments.get("settings", ()))}
    return {
        axis: values
        for axis, values in space.axes.items()
        if axis not in _FREE and (axis in named or values != space.unpinned.get(axis, ()))
    }


def settings_of(key: str) -> tuple[str, ...]:
    """Return a key's axes as `--set` has them, without its micro batch, which is sought.

    Sequence parallelism and recompute are those of the key even if it omits them.

    >>> settings_of("tp2-pp1-mbs4-z1-ep8")
    ('sequence_parallel=off', 'recompute=full', 'tp=2', 'pp=1', 'zero=1', 'ep=8')
    """
    stated = parts_of(key)
    if foreign := [_ELSEWHERE[axis] for axis in stated if axis in _ELSEWHERE]:
        raise InputError(f"{key} states more than parallelism; give {listed(dict.fromkeys(foreign))} instead.")
    axes = {"sequence_parallel": False, "recompute": "full", **stated}
    if stated.get("tp") == 1 and not stated.get("sequence_parallel"):
        del axes["sequence_parallel"]
    return tuple(f"{axis}={axis_value(value)}" for axis, value in axes.items() if axis not in _FREE)


def options(space: Space, *, zero: int = 3, pinned: Axes | None = None) -> list[Topology]:
    """Return every topology of the pinned axes, by default the user's, on all nodes, with micro batch 1.

    Where ZeRO is not pinned, its stage is `zero`, or the nearest that the framework has.
    """
    framework = record_of(space.workload)
    if framework is not None:
        zero = min(framework.zero.value, key=lambda stage: abs(stage - zero))
    pinned = pinned_axes(space) if pinned is None else pinned
    defaults = {**DEFAULT_AXES, "zero": zero}
    axes = [pinned.get(axis, (value,)) for axis, value in defaults.items()]
    topologies = []
    for values in product(*axes):
        chosen: dict[str, Any] = dict(zip(defaults, values, strict=True))
        chosen |= {axis: value for axis, value in _implied(chosen, space.workload).items() if axis not in pinned}
        if chosen["tp"] == 1 < max(pinned.get("tp", (1,))):
            chosen["sequence_parallel"] = False  # a pinned value is that of the larger tp
        replica = chosen["tp"] * chosen["pp"] * chosen["cp"]
        degrees = space.dp or (max(1, space.cluster.gpus // replica),)
        for dp in degrees:
            if replica * dp > space.cluster.gpus:
                raise InputError(
                    f"tp({chosen['tp']}) x pp({chosen['pp']}) x cp({chosen['cp']}) x dp({dp}) = {replica * dp} GPUs, "
                    f"but the cluster has {space.cluster.gpus}."
                )
            uneven: Partition = "layout" if "layout" in space.axes["partition"] else "layers"
            partition = partition_for(space.workload.model.layers, chosen["pp"] * chosen["vpp"], uneven)
            nodes = -(-replica * dp // space.cluster.gpus_per_node)
            topologies.append(Topology(nodes=nodes, dp=dp, micro_batch=1, partition=partition, **chosen))
            _refuse_illegal(space, topologies[-1])
    return list(dict.fromkeys(topologies))


def recomputed(space: Space, topology: Topology) -> list[Topology]:
    """Return the topology with each value of recompute that is searched by default and legal, the least first."""
    found = []
    for value in default_axes(space.workload, space.cluster)["recompute"]:
        with suppress(InputError):
            _refuse_illegal(space, made := replace(topology, recompute=value))
            found.append(made)
    return found


def fixed_axes(space: Space, topologies: Sequence[Topology], *, compared: Iterable[str] = ()) -> Axes:
    """Return the axes whose values neither the user nor a comparison chose, with these; none that has no effect."""
    chosen = {*pinned_axes(space), *compared}
    affected: dict[str, Sequence[Topology]] = {
        "vpp": [topology for topology in topologies if topology.pp > 1],
        "sequence_parallel": [topology for topology in topologies if topology.tp > 1],
    }
    axes = [axis for axis in DEFAULT_AXES if axis not in OPT_IN] + ["ep"] * bool(space.workload.model.experts)
    return {
        axis: tuple(dict.fromkeys(getattr(topology, axis) for topology in affected.get(axis, topologies)))
        for axis in axes
        if axis not in chosen and affected.get(axis, topologies)
    }


def widest_tensor_parallelism(space: Space) -> int:
    """Return the largest tp within a node that the laws allow, at the pinned values of the other axes."""
    node = space.cluster.gpus_per_node
    for degree in (degree for degree in range(node, 1, -1) if node % degree == 0):
        with suppress(InputError):
            options(space.where(tp=(degree,)))
            return degree
    return 1


def _implied(chosen: Mapping[str, Any], workload: Workload) -> dict[str, Any]:
    """Return further values that laws require, and sequence parallelism where framework and sequence allow it."""
    implied: dict[str, Any] = {}
    framework, divides = record_of(workload), workload.model.seq % (chosen["tp"] * chosen["cp"]) == 0
    if chosen["pp"] > 1 and chosen["zero"] > 1 and not (framework and framework.sharding_with_pp.value):
        implied["zero"] = 1  # ZeRO 2 and 3 exclude a pipeline
    available = framework is not None and framework.sequence_parallel.value and divides
    if chosen["tp"] > 1 and (workload.model.experts or available):
        implied["sequence_parallel"] = True
    return implied


def _refuse_illegal(space: Space, topology: Topology) -> None:
    """Raise if the topology breaks a law."""
    columns = Columns.of([topology], space.workload, space.cluster)
    for rule in LAWS:
        if rule.binding(space.workload) and (broken := rule.violation(columns)):
            raise InputError(f"{broken.message}; correct the key or --set.")


def differing(topologies: Iterable[Topology]) -> list[str]:
    """Return the axes in which topologies differ."""
    made = list(topologies)
    return [axis for axis in (*DEFAULT_AXES, "dp") if len({getattr(topology, axis) for topology in made}) > 1]


def distinguishing(topologies: Sequence[Topology], axes: Sequence[str]) -> list[str]:
    """Return these axes, and of the others those that tell more topologies apart."""
    found = list(axes)
    for axis in differing(topologies):
        before, after = (
            len({tuple(getattr(topology, each) for each in those) for topology in topologies})
            for those in (found, [*found, axis])
        )
        if after > before:
            found.append(axis)
    return found


def only_option(space: Space, *, zero: int = 3) -> Topology:
    """Return the one topology; raise if an axis has several values."""
    topologies = options(space, zero=zero)
    if len(topologies) > 1:
        several = listed(differing(topologies))
        raise InputError(f"max-batch tries one topology: pin {several} to one value, or use tuner compare for several.")
    return topologies[0]


def stacked(workload: Workload, stack: Stack | None, *, zero: int) -> Workload:
    """Return the workload with the layers of its framework, or of a stack: plain PyTorch layers under FSDP, or
    Megatron's.

    By default ZeRO 3 stands for FSDP, as in measured tables.
    """
    if workload.framework is not None:
        if stack is not None:
            raise InputError(
                f"--stack {stack} and --framework {workload.framework} both select the layers: use one of them."
            )
        return workload
    plain = (stack or ("fsdp" if zero == 3 else "megatron")) == "fsdp"
    return replace(workload, plain_layers=plain, parallel_loss=not plain)


def asked_rows(rows: Sequence[Row], *, group: str | None, model: Model | None, settings: Sequence[str]) -> list[Row]:
    """Return the rows of a table that match a group, a model and values of axes."""
    pinned = dict(parse_setting(text) for text in settings)
    found = []
    for row in rows:
        if row.run is None or (group is not None and row.group != group):
            continue
        row_model, topology = row.run.workload.model, row.run.topology
        if model is not None and (row_model.layers, row_model.hidden, row_model.heads) != (
            model.layers,
            model.hidden,
            model.heads,
        ):
            continue
        if all(getattr(topology, axis, None) in values for axis, values in pinned.items()):
            found.append(row)
    return found


def require_values(table: Table, *, model: Model | None, settings: Sequence[str]) -> None:
    """Raise `NothingUsable` for a value of an axis that no row of a table has, among those that match the rest."""
    for text in settings:
        axis, values = parse_setting(text)
        rest = [other for other in settings if other != text]
        runs = [row.run for row in asked_rows(table.rows, group=None, model=model, settings=rest) if row.run]
        known = {getattr(run.topology, axis, None) for run in runs}
        if runs and (lacking := [value for value in values if value not in known]):
            has = listed(map(axis_value, sorted(known, key=lambda value: (str(type(value)), value))))
            raise NothingUsable(
                f"{table.name} has no row with {axis}={either(map(axis_value, lacking))}; it has {has}."
            )
