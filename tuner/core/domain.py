"""Domain types: frozen values whose properties depend only on their fields.

Units are bytes, seconds and FLOP/s. Violations, estimates, measurements and failures are in `outcomes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from tuner.core.validation import check_fields

Precision = Literal["fp32", "fp16", "bf16", "fp8"]
Attention = Literal["eager", "fused", "flash1", "flash2"]
Optimizer = Literal["adam", "adam8bit", "adafactor", "sgd"]
Recompute = Literal["none", "selective", "full"]
Partition = Literal["layers", "embedding"]
Positions = Literal["learned", "rotary", "alibi", "none"]
Norm = Literal["layernorm", "rmsnorm"]
MemoryKind = Literal["smi", "reserved", "allocated"]

RECOMPUTE: Final[tuple[Recompute, ...]] = get_args(Recompute)
PARTITION: Final[tuple[Partition, ...]] = get_args(Partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator, as its data sheet describes it."""

    name: str
    memory: float
    """Bytes on the card."""
    memory_bandwidth: float
    """Bytes a second."""
    sms: int
    """Streaming multiprocessors, or compute units."""
    peak_flops: Mapping[str, float]
    """Dense peak in FLOP/s by precision."""
    intra_node_bandwidth: float
    """Bandwidth to the other GPUs of the node in bytes/s, one direction."""
    inter_node_bandwidth: float
    """Network bandwidth per GPU of a typical node in bytes/s, one direction."""
    attention: Attention = "flash2"
    """The fastest attention kernel that the GPU supports."""
    achievable: float = 0.8
    """Fraction of its peak that a large matrix product reaches in practice."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def kernels(self) -> tuple[Attention, ...]:
        """Supported attention kernels, slowest first: the fastest one and all before it."""
        every: tuple[Attention, ...] = get_args(Attention)
        return every[: every.index(self.attention) + 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Bandwidth and latency of a connection."""

    bandwidth: float
    """Bytes a second, one direction."""
    latency: float
    """Seconds for an empty message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The nodes that a study may use, and their links."""

    name: str
    nodes: int
    gpus_per_node: int
    gpu: Gpu
    intra_node: Link
    """One GPU's share of the intra-node fabric."""
    inter_node: Link
    """Network link of a whole node."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def gpus(self) -> int:
        """All GPUs of all nodes."""
        return self.nodes * self.gpus_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A model's width and depth, written `14336x72` (hidden x layers) as in the BLOOM report."""

    hidden: int
    layers: int

    def __post_init__(self) -> None:
        check_fields(self)

    def __str__(self) -> str:
        return f"{self.hidden}x{self.layers}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A dense decoder-only transformer. Sizes left at zero get a default that the field documents."""

    name: str = "unnamed"
    layers: int
    hidden: int
    heads: int
    vocab: int
    seq: int
    """Tokens in a training sequence."""
    kv_heads: int = 0
    """Key/value heads; 0: as many as heads."""
    ffn: int = 0
    """Width of the MLP; 0: four times hidden."""
    head_size: int = 0
    """Width of one head; 0: hidden / heads."""
    gated_mlp: bool = False
    """Three MLP matrices (SwiGLU, GeGLU) instead of two."""
    tied_embeddings: bool = True
    """The output layer shares the input embedding's weights."""
    positions: Positions = "learned"
    max_positions: int = 0
    """Rows of the learned position embedding; 0: as many as seq."""
    norm: Norm = "layernorm"
    norms_per_layer: int = 2
    qk_norm: bool = False
    """RMSNorm of one head's width on queries and on keys."""
    embedding_norm: bool = False
    final_norm: bool = True
    qkv_bias: bool = True
    attention_bias: bool = True
    """Bias of the attention's output projection."""
    mlp_bias: bool = True
    head_bias: bool = False
    embedding_size: int = 0
    """Width of an embedding that is projected to hidden; 0: hidden, without a projection."""
    vocab_multiple: int = 128
    """Megatron pads the vocabulary to a multiple of this times tp; 0: no padding."""
    frozen_params: int = 0
    """Parameters with neither gradient nor optimizer state, in addition to the trained ones."""

    def __post_init__(self) -> None:
        check_fields(self, may_be_zero=_FOLLOWING)
        follows = {
            "kv_heads": self.heads,
            "ffn": 4 * self.hidden,
            "max_positions": self.seq,
            "embedding_size": self.hidden,
        }
        for name, value in follows.items():
            if getattr(self, name) == 0:
                object.__setattr__(self, name, value)

    @property
    def shape(self) -> Shape:
        """Width and depth."""
        return Shape(hidden=self.hidden, layers=self.layers)

    @property
    def query_width(self) -> int:
        """Columns of the query projection."""
        return self.heads * self.head_size if self.head_size else self.hidden

    @property
    def kv_width(self) -> int:
        """Columns of the key projection, and of the value projection."""
        return self.kv_heads * self.head_size if self.head_size else self.hidden * self.kv_heads // self.heads

    @property
    def layer_parameters(self) -> int:
        """Parameters of one transformer layer."""
        hidden, query, key_value = self.hidden, self.query_width, self.kv_width
        attention = hidden * (query + 2 * key_value) + query * hidden
        attention += self.qkv_bias * (query + 2 * key_value) + self.attention_bias * hidden
        attention += self.qk_norm * 2 * (self.head_size or hidden // self.heads)
        inputs = 2 if self.gated_mlp else 1
        mlp = (inputs + 1) * hidden * self.ffn + self.mlp_bias * (inputs * self.ffn + hidden)
        return attention + mlp + self.norms_per_layer * self._norm_parameters

    @property
    def embedding_parameters(self) -> int:
        """Parameters before the first layer: words, positions, the projection to hidden, and the embedding's norm."""
        words = self.vocab * self.embedding_size
        positions = self.max_positions * self.hidden if self.positions == "learned" else 0
        projection = 2 * self.embedding_size * self.hidden if self.embedding_size != self.hidden else 0
        return words + positions + projection + self.embedding_norm * self._norm_parameters

    @property
    def head_parameters(self) -> int:
        """Parameters after the last layer; the output matrix counts only if it is not tied to the embedding."""
        matrix = 0 if self.tied_embeddings else self.vocab * self.embedding_size
        return matrix + self.head_bias * self.vocab + self.final_norm * self._norm_parameters

    @property
    def parameters(self) -> int:
        """Trained parameters, each counted once, with the unpadded vocabulary."""
        return self.layers * self.layer_parameters + self.embedding_parameters + self.head_parameters

    @property
    def _norm_parameters(self) -> int:
        return self.hidden * (2 if self.norm == "layernorm" else 1)

    def with_heads(self, heads: int) -> Model:
        """Return the model with another number of heads; without grouped-query attention, key/value heads follow."""
        kv_heads = heads if self.kv_heads == self.heads else self.kv_heads
        return replace(self, heads=heads, kv_heads=kv_heads)

    def with_shape(self, shape: Shape) -> Model:
        """Return the model with another width and depth; the MLP keeps its ratio to hidden."""
        ffn = self.ffn * shape.hidden // self.hidden
        embedding = 0 if self.embedding_size == self.hidden else self.embedding_size
        return replace(self, hidden=shape.hidden, layers=shape.layers, ffn=ffn, embedding_size=embedding)


_FOLLOWING: Final = frozenset(
    {"kv_heads", "ffn", "head_size", "max_positions", "embedding_size", "vocab_multiple", "frozen_params"}
    | {"norms_per_layer"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """A batch-size ramp-up from `start` sequences in steps of `increment` to the global batch."""

    start: int
    increment: int

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The model to train and how to train it, independent of the topology."""

    model: Model
    global_batch: int
    """Sequences in one step of the optimizer."""
    precision: Precision = "fp16"
    attention: Attention = "fused"
    fused_norms: bool = True
    """Whether one kernel computes a norm and its residual, instead of one kernel per operation."""
    plain_layers: bool = False
    """Whether the layers are plain PyTorch under autocast instead of Megatron's."""
    parallel_loss: bool = True
    """Whether each tensor parallel rank keeps its part of the logits; otherwise the loss gathers them."""
    optimizer: Optimizer = "adam"
    tokens: float = 0.0
    """Tokens of the whole training; 0: twenty per parameter (Hoffmann et al. 2022, arXiv 2203.15556)."""
    ramp: Ramp | None = None
    """How the batch grows at the start; the exact `ramp-up` rule then replaces its shorthand rules."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def training_tokens(self) -> float:
        """Tokens of the whole training."""
        return self.tokens or 20.0 * self.model.parameters

    def as_in(self, topology: Topology) -> Workload:
        """Return the workload with the heads, shape and batch that the topology overrides."""
        model = self.model.with_shape(topology.shape) if topology.shape else self.model
        model = model.with_heads(topology.heads) if topology.heads else model
        return replace(self, model=model, global_batch=topology.global_batch or self.global_batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """How the model and the batch are distributed over GPUs."""

    nodes: int
    tp: int
    pp: int
    dp: int
    micro_batch: int
    """Sequences per forward pass of one replica."""
    zero: int = 1
    vpp: int = 1
    """Model chunks on each pipeline stage; more than one interleaves the schedule."""
    cp: int = 1
    sequence_parallel: bool = False
    recompute: Recompute = "full"
    partition: Partition = "layers"
    """What is spread evenly over the stages: the layers, or the layers with embedding and head as one layer each."""
    heads: int | None = None
    """None: the model's own."""
    shape: Shape | None = None
    """None: the model's own."""
    global_batch: int | None = None
    """None: the workload's own."""

    def __post_init__(self) -> None:
        check_fields(self, may_be_zero=frozenset({"zero"}))

    @property
    def gpus(self) -> int:
        """Number of GPUs: tp x pp x cp x dp."""
        return self.tp * self.pp * self.cp * self.dp

    @property
    def key(self) -> str:
        """The topology as one word, such as `tp8-pp12-dp4-mbs2-z1`; defaults are left out."""
        parts = [f"tp{self.tp}", f"pp{self.pp}", f"dp{self.dp}", f"mbs{self.micro_batch}", f"z{self.zero}"]
        parts += [f"vpp{self.vpp}"] * (self.vpp != 1)
        parts += [f"cp{self.cp}"] * (self.cp != 1)
        parts += ["sp"] * self.sequence_parallel
        parts += [{"none": "rnone", "selective": "rsel", "full": ""}[self.recompute]] * (self.recompute != "full")
        parts += ["emb"] * (self.partition == "embedding")
        parts += [f"h{self.heads}"] * (self.heads is not None)
        parts += [str(self.shape)] * (self.shape is not None)
        parts += [f"gbs{self.global_batch}"] * (self.global_batch is not None)
        return "-".join(parts)


def partition_for(layers: int, stages: int) -> Partition:
    """Return the partition for which units divide by stages, preferring `layers`; `layers` if neither divides."""
    return "embedding" if layers % stages and (layers + 2) % stages == 0 else "layers"
