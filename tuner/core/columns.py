"""Many topologies as arrays: one integer array per axis, one row per topology.

Rules and cost terms are functions of columns; a single topology is a `Columns` with one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Final, overload

import numpy as np
import numpy.typing as npt

from tuner.core.domain import COUNTED, DISPATCHERS, PARTITION, Cluster, Topology, Workload
from tuner.core.offload import OFFLOAD, OFFLOADED_SHARE
from tuner.core.recompute import GRANULARITIES, MODULE_BITS, MODULES, RECOMPUTE, SELECTIVE
from tuner.core.shape import Shape

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
    "offload",
    "hsdp",
    "ep",
    "etp",
    "dispatcher",
    "moe_overlap",
)
"""The dimensions of the search in grid order: the last one varies fastest. `dp` is derived from the others."""

CHOICES: Final[Mapping[str, tuple[Any, ...]]] = {
    "sequence_parallel": (False, True),
    "recompute": RECOMPUTE,
    "partition": PARTITION,
    "offload": OFFLOAD,
    "dispatcher": DISPATCHERS,
    "moe_overlap": (False, True),
}
"""The values of the axes that are no numbers; a column has their places in these."""

CHUNK: Final = 8192
"""Rows that are scored at once."""
_MODULE_BITS: Final = np.array(MODULE_BITS)
_OFFLOADED: Final = np.array([OFFLOADED_SHARE[offload] for offload in OFFLOAD])


class Column:
    """Descriptor that reads one array of `Columns`."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, columns: None, owner: type) -> Column: ...
    @overload
    def __get__(self, columns: Columns, owner: type) -> IntArray: ...
    def __get__(self, columns: Columns | None, owner: type) -> Column | IntArray:
        return self if columns is None else columns.arrays[self._name]


class Columns:
    """Topologies of one workload on one cluster, as arrays. Reading an array that is not yet known raises `KeyError`.

    Derived quantities are cached: do not change the arrays after reading one.
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
    """Index into `RECOMPUTE`: 0 none, 1 selective, 2 full, then sets of modules."""
    partition = Column()
    """Index into `PARTITION`: 0 layers only, 1 embedding and head count as layers, 2 fewer layers on the last chunk."""
    offload = Column()
    """Index into `OFFLOAD`: 0 none, 1 the optimizer, 2 the optimizer and the parameters, then shares of the former."""
    hsdp = Column()
    ep = Column()
    etp = Column()
    dispatcher = Column()
    """Index into `DISPATCHERS`."""
    moe_overlap = Column()
    """0 or 1."""
    heads = Column()
    hidden = Column()
    layers = Column()
    global_batch = Column()

    def __init__(self, workload: Workload, cluster: Cluster, arrays: Mapping[str, IntArray]) -> None:
        self.workload = workload
        self.cluster = cluster
        self.arrays = arrays

    names: ClassVar[tuple[str, ...]]
    """Names of all arrays."""

    @classmethod
    def of(cls, topologies: Iterable[Topology], workload: Workload, cluster: Cluster) -> Columns:
        """Return columns with one row per topology."""
        rows = list(topologies)
        trained = [workload.as_in(topology) for topology in rows]
        values = {name: [getattr(topology, name) for topology in rows] for name in ("dp", *AXES)}
        values |= {name: [words.index(value) for value in values[name]] for name, words in CHOICES.items()}
        values |= {name: [getattr(own.model, name) for own in trained] for name in ("heads", "hidden", "layers")}
        values["global_batch"] = [own.global_batch for own in trained]
        return cls(workload, cluster, {name: np.array(values[name], dtype=np.int64) for name in Columns.names})

    def under(self, workload: Workload) -> Columns:
        """Return the same topologies of another workload."""
        return Columns(workload, self.cluster, self.arrays)

    def whole_before(self, layers: IntArray) -> IntArray:
        """Return how many of the first layers attend to all tokens: leading ones, and the last one of each period."""
        model, leading, period = self.workload.model, 0, 1
        if model.delta_net:
            period = model.delta_net.period
        elif model.window:
            leading, period = model.window_start, model.window_skip
        after = np.maximum(0, layers - leading)
        before: IntArray = layers - after + (after // period if period else 0)
        return before

    @cached_property
    def attention_layers(self) -> FloatArray:
        """Layers with attention, all but those with Gated DeltaNet."""
        found: FloatArray = (self.whole_before(self.layers) if self.workload.model.delta_net else self.layers) / 1.0
        return found

    @cached_property
    def whole_share(self) -> FloatArray | float:
        """Share of the layers that attend to all tokens, all but those with Gated DeltaNet or a window."""
        model = self.workload.model
        return self.attention_layers / self.layers if model.delta_net else 1 - model.windowed_share

    @property
    def kinds(self) -> list[tuple[FloatArray | float, Columns]]:
        """The kinds of layers, those with attention and those with Gated DeltaNet: the share of each, and the same
        topologies of a model with no other layers."""
        # Not cached: columns that refer to themselves stay until the garbage collector runs, which arrays do not wake.
        return self._two_kinds or [(1.0, self)]

    @cached_property
    def _two_kinds(self) -> list[tuple[FloatArray | float, Columns]]:
        """The kinds of a model that has both; empty for others."""
        model, delta = self.workload.model, self.workload.model.delta_net
        if delta is None or delta.period == 0:
            return []
        share = self.whole_share
        models = (replace(model, delta_net=None), replace(model, delta_net=replace(delta, period=0)))
        parts = [self.under(replace(self.workload, model=one)) for one in models]
        return [(share, parts[0]), (1 - share, parts[1])]

    def rows(self, rows: IntArray | slice) -> Columns:
        """Return the selected rows of every column; a slice copies nothing."""
        return Columns(self.workload, self.cluster, {name: self.arrays[name][rows] for name in Columns.names})

    @cached_property
    def replica(self) -> IntArray:
        """GPUs that share one copy of the model."""
        return self.tp * self.pp * self.cp

    @cached_property
    def copies(self) -> IntArray:
        """GPUs that store the same weights and reduce their gradients together: dp x cp."""
        return self.dp * self.cp

    @cached_property
    def shards(self) -> IntArray:
        """GPUs that share one set of ZeRO's shards: all copies, or those of one replica group."""
        shards: IntArray = np.maximum(1, self.copies // self.hsdp)
        return shards

    @cached_property
    def expert_shards(self) -> IntArray:
        """Expert data parallelism, the GPUs that share one set of shards of the same experts: tp x cp x dp = etp x ep x
        this, with hybrid sharding within each replica group (pytorch/torchtitan, distributed/parallel_dims.py)."""
        ranks: IntArray = np.maximum(1, self.tp * self.shards // (self.etp * self.ep))
        return ranks

    @cached_property
    def sequence_shards(self) -> IntArray:
        """Ranks that share what tensor parallelism leaves whole: all of them with sequence parallelism."""
        ranks: IntArray = np.where(self.sequence_parallel == 1, self.tp, 1)
        return ranks

    @cached_property
    def granularity(self) -> IntArray:
        """Index into `GRANULARITIES`: sets of modules are selective."""
        index: IntArray = np.where(self.recompute < len(GRANULARITIES), self.recompute, SELECTIVE)
        return index

    @cached_property
    def modules(self) -> IntArray:
        """The modules that are recomputed, one bit for each of `MODULES`; none with full recompute."""
        return _MODULE_BITS[self.recompute]

    @cached_property
    def selects_modules(self) -> bool:
        """Whether any row selects more for recompute than a granularity says."""
        return bool((self.recompute >= len(GRANULARITIES)).any())

    def recomputes(self, *modules: str) -> BoolArray:
        """Return, for each row, whether it selects any of the modules for recompute."""
        return (self.modules & sum(1 << MODULES.index(module) for module in modules)) > 0

    @cached_property
    def tokens(self) -> FloatArray:
        """Tokens of one microbatch on one context parallel rank."""
        tokens: FloatArray = self.micro_batch * self.workload.model.seq / self.cp
        return tokens

    @cached_property
    def ffn(self) -> IntArray:
        """Width of the MLP, in the model's ratio to hidden."""
        model = self.workload.model
        return self.hidden * model.ffn // model.hidden

    @cached_property
    def kv_heads(self) -> IntArray:
        """Key/value heads; equal to heads in a model without grouped-query attention."""
        model = self.workload.model
        return self.heads if model.kv_heads == model.heads else np.full_like(self.heads, model.kv_heads)

    @cached_property
    def head_size(self) -> FloatArray:
        """Width of one attention head: the model's fixed size, or hidden / heads; of a key with latent
        attention."""
        model = self.workload.model
        fixed = model.latent.key_size if model.latent else model.head_size
        return np.full(np.shape(self.heads), float(fixed)) if fixed else self.hidden / self.heads

    @cached_property
    def offloaded_share(self) -> FloatArray:
        """The share of the optimizer's states and step that leaves the GPU."""
        share: FloatArray = _OFFLOADED[self.offload]
        return share

    @cached_property
    def query_width(self) -> FloatArray:
        """Columns of the query projection."""
        width: FloatArray = self.head_size * self.heads
        return width

    @cached_property
    def placed_kv_heads(self) -> IntArray:
        """Key/value heads of all tensor parallel ranks, each of which has at least one."""
        heads: IntArray = np.maximum(self.kv_heads, self.tp)
        return heads

    @cached_property
    def kv_width(self) -> FloatArray:
        """Columns of the key projection, and of the value projection; with latent attention, of all heads' keys."""
        width: FloatArray = self.head_size * self.kv_heads
        return width

    @cached_property
    def attention_matrices(self) -> FloatArray:
        """Weights in the matrices of attention of one layer that has it."""
        model = self.workload.model
        if model.latent:
            latent: FloatArray = 1.0 * model.latent.matrices(self.hidden, self.heads)
            return latent
        matrices: FloatArray = self.hidden * ((2 + model.attention_gate) * self.query_width + 2 * self.kv_width)
        return matrices

    @cached_property
    def mixing_matrices(self) -> FloatArray:
        """Weights in the matrices of attention or Gated DeltaNet of one layer, in the mean."""
        model = self.workload.model
        if model.delta_net is None:
            return self.attention_matrices
        share = self.whole_share
        matrices: FloatArray = share * self.attention_matrices + (1 - share) * self.delta_net_matrices
        return matrices

    @cached_property
    def delta_net_matrices(self) -> IntArray:
        """Weights in the matrices of Gated DeltaNet of one layer that has it; 0 in a model without."""
        delta = self.workload.model.delta_net
        return self.hidden * (delta.projected + delta.value_width if delta else 0)

    @cached_property
    def layer_matrices(self) -> FloatArray:
        """Weights in the matrices of one layer with an MLP."""
        mlp = (3 if self.workload.model.gated_mlp else 2) * self.hidden * self.ffn
        matrices: FloatArray = self.mixing_matrices + mlp
        return matrices

    @cached_property
    def units(self) -> IntArray:
        """Units that are spread over pipeline stages: layers, plus embedding and head if they count as layers."""
        units: IntArray = self.layers + 2 * (self.partition == COUNTED)
        return units

    @cached_property
    def microbatches(self) -> IntArray:
        """Microbatches per replica in one iteration."""
        return self.global_batch // (self.micro_batch * self.dp)

    @cached_property
    def padded_vocab(self) -> IntArray:
        """Vocabulary size after Megatron's padding for `tp` ranks."""
        model = self.workload.model
        multiple = model.vocab_multiple * self.tp
        if not model.vocab_multiple:
            return np.full_like(self.tp, model.vocab)
        return -(-model.vocab // multiple) * multiple

    def topology(self, row: int) -> Topology:
        """Return the topology of one row; heads, shape and batch that equal the workload's are left as None."""
        model = self.workload.model
        values: dict[str, Any] = {name: int(self.arrays[name][row]) for name in Columns.names}
        values |= {name: words[values[name]] for name, words in CHOICES.items()}
        hidden, layers = values.pop("hidden"), values.pop("layers")
        own_shape = (hidden, layers) == (model.hidden, model.layers)
        own = {"heads": model.heads, "global_batch": self.workload.global_batch}
        values |= {name: None for name, value in own.items() if values[name] == value}
        return Topology(**values, shape=None if own_shape else Shape(hidden=hidden, layers=layers))


Columns.names = tuple(name for name, value in vars(Columns).items() if isinstance(value, Column))


def chunks(rows: int) -> list[slice]:
    """Return slices of so many rows, at least one, whose intermediate arrays stay in the processor's cache."""
    return [slice(start, start + CHUNK) for start in range(0, max(1, rows), CHUNK)]


def chunked(parts: Iterable[Columns]) -> list[Columns]:
    """Return the columns in such chunks."""
    return [part.rows(rows) for part in parts for rows in chunks(len(part.tp))]


def distinct_rows(parts: Sequence[IntArray | BoolArray]) -> tuple[IntArray, IntArray]:
    """Return the first row of each group of equal rows, and the group of each row."""
    code: IntArray = np.zeros(len(parts[0]), dtype=np.int64)
    codes = 1
    for part in parts:
        least, most = (int(part.min()), int(part.max())) if len(part) else (0, 0)
        values = most - least + 1
        if codes * values > _MAX_CODES:
            known, code = np.unique(code, return_inverse=True)
            codes = len(known)
        code = code * values + (part - least)
        codes *= values
    _, first, back = np.unique(code, return_index=True, return_inverse=True)
    return first, back


_MAX_CODES: Final = 1 << 62
"""Codes that fit in an integer."""
