"""Many topologies at once: one array of integers per axis, row by row the same topology.

Rules and cost terms are written once, over columns; a single topology is columns of one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, ClassVar, Final, overload

import numpy as np
import numpy.typing as npt

from tuner.core.domain import PARTITION, RECOMPUTE, Cluster, Shape, Topology, Workload

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

AXES: Final = (
    "shape",
    "global_batch",
    "nodes",
    "tp",
    "pp",
    "cp",
    "micro_batch",
    "heads",
    "partition",
    "vpp",
    "sequence_parallel",
    "zero",
    "recompute",
)
"""The dimensions of the search, in the order in which a grid is numbered: the last one turns fastest. `dp` follows."""


class Column:
    """An attribute of `Columns` that is one of its arrays."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, columns: None, owner: type) -> Column: ...
    @overload
    def __get__(self, columns: Columns, owner: type) -> IntArray: ...
    def __get__(self, columns: Columns | None, owner: type) -> Column | IntArray:
        return self if columns is None else columns.arrays[self._name]


class Columns:
    """Topologies of one workload on one cluster, as arrays; an array that is not known yet raises `KeyError`.

    What follows from the arrays is worked out once: they are not to be changed after it has been read.
    """

    nodes = Column()
    tp = Column()
    pp = Column()
    vpp = Column()
    cp = Column()
    dp = Column()
    sequence_parallel = Column()
    """0 or 1."""
    zero = Column()
    micro_batch = Column()
    recompute = Column()
    """Place in `RECOMPUTE`: 0 none, 1 selective, 2 full."""
    partition = Column()
    """Place in `PARTITION`: 0 by layers, 1 with embedding and head as layers."""
    heads = Column()
    hidden = Column()
    layers = Column()
    global_batch = Column()

    def __init__(self, workload: Workload, cluster: Cluster, arrays: Mapping[str, IntArray]) -> None:
        self.workload = workload
        self.cluster = cluster
        self.arrays = arrays

    names: ClassVar[tuple[str, ...]]
    """Of all arrays."""

    @classmethod
    def of(cls, topologies: Iterable[Topology], workload: Workload, cluster: Cluster) -> Columns:
        """Columns with one row for each topology."""
        rows = [_numbers(topology, workload) for topology in topologies]
        arrays = {name: np.array([row[name] for row in rows], dtype=np.int64) for name in Columns.names}
        return cls(workload, cluster, arrays)

    def rows(self, places: IntArray | slice) -> Columns:
        """The rows at these places, of every column; a slice of them copies nothing."""
        return Columns(self.workload, self.cluster, {name: self.arrays[name][places] for name in Columns.names})

    @cached_property
    def replica(self) -> IntArray:
        """GPUs that hold one copy of the model."""
        return self.tp * self.pp * self.cp

    @cached_property
    def copies(self) -> IntArray:
        """GPUs that hold the same weights, add up their gradients and share out ZeRO's shards: dp x cp."""
        return self.dp * self.cp

    @cached_property
    def ffn(self) -> IntArray:
        """Width of the MLP, which keeps its ratio to hidden."""
        model = self.workload.model
        return self.hidden * model.ffn // model.hidden

    @cached_property
    def kv_heads(self) -> IntArray:
        """Key/value heads: they follow heads in a model without grouped queries."""
        model = self.workload.model
        return self.heads if model.kv_heads == model.heads else np.full_like(self.heads, model.kv_heads)

    @cached_property
    def head_size(self) -> FloatArray:
        """The width of one attention head: the model's own where it fixes one."""
        fixed = self.workload.model.head_size
        return np.full(np.shape(self.heads), float(fixed)) if fixed else self.hidden / self.heads

    @cached_property
    def layer_matrices(self) -> FloatArray:
        """Weights of one layer's matrices: what each of its tokens is multiplied by."""
        attention = 2 * self.hidden * self.head_size * (self.heads + self.kv_heads)
        matrices: FloatArray = attention + (3 if self.workload.model.gated_mlp else 2) * self.hidden * self.ffn
        return matrices

    @cached_property
    def units(self) -> IntArray:
        """What the pipeline's stages share out: layers, and the embedding and the head where they count as layers."""
        return self.layers + 2 * self.partition

    @cached_property
    def stage_units(self) -> IntArray:
        """Units per pipeline stage, rounded up."""
        return -(-self.units // self.pp)

    @cached_property
    def microbatches(self) -> IntArray:
        """Steps of accumulation in one iteration."""
        return self.global_batch // (self.micro_batch * self.dp)

    @cached_property
    def padded_vocab(self) -> IntArray:
        """The vocabulary as Megatron pads it for `tp` ranks."""
        model = self.workload.model
        multiple = model.vocab_multiple * self.tp
        if not model.vocab_multiple:
            return np.full_like(self.tp, model.vocab)
        return -(-model.vocab // multiple) * multiple

    def topology(self, row: int) -> Topology:
        """The topology of one row; what equals the workload's own value is left to the workload."""
        model = self.workload.model
        at = {name: int(self.arrays[name][row]) for name in Columns.names}
        own_shape = (at["hidden"], at["layers"]) == (model.hidden, model.layers)
        return Topology(
            nodes=at["nodes"],
            tp=at["tp"],
            pp=at["pp"],
            vpp=at["vpp"],
            cp=at["cp"],
            dp=at["dp"],
            sequence_parallel=bool(at["sequence_parallel"]),
            zero=at["zero"],
            micro_batch=at["micro_batch"],
            recompute=RECOMPUTE[at["recompute"]],
            partition=PARTITION[at["partition"]],
            heads=None if at["heads"] == model.heads else at["heads"],
            shape=None if own_shape else Shape(hidden=at["hidden"], layers=at["layers"]),
            global_batch=None if at["global_batch"] == self.workload.global_batch else at["global_batch"],
        )


Columns.names = tuple(name for name, value in vars(Columns).items() if isinstance(value, Column))


def _numbers(topology: Topology, workload: Workload) -> dict[str, Any]:
    """One topology as the integers of its columns."""
    asked = workload.as_in(topology)
    return {
        "nodes": topology.nodes,
        "tp": topology.tp,
        "pp": topology.pp,
        "vpp": topology.vpp,
        "cp": topology.cp,
        "dp": topology.dp,
        "sequence_parallel": int(topology.sequence_parallel),
        "zero": topology.zero,
        "micro_batch": topology.micro_batch,
        "recompute": RECOMPUTE.index(topology.recompute),
        "partition": PARTITION.index(topology.partition),
        "heads": asked.model.heads,
        "hidden": asked.model.hidden,
        "layers": asked.model.layers,
        "global_batch": asked.global_batch,
    }
