"""Domain types: frozen values whose properties depend only on their fields.

Units are bytes, seconds and FLOP/s. Violations, estimates, measurements and failures are in `outcomes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, get_args

from tuner.core.errors import InputError
from tuner.core.model import Model
from tuner.core.offload import OFFLOAD_KEYS, Offload
from tuner.core.recompute import RECOMPUTE_KEYS, check_recompute
from tuner.core.shape import Shape
from tuner.core.stack import Stack, representation
from tuner.core.validation import check_fields

Precision = Literal["fp32", "fp16", "bf16", "fp8", "fp4"]
Attention = Literal["eager", "fused", "flash1", "flash2"]
Optimizer = Literal["adam", "adam-bf16", "adam8bit", "adafactor", "sgd", "muon"]
Partition = Literal["layers", "embedding", "layout"]
Fabric = Literal["infiniband", "roce", "omni-path"]
MemoryKind = Literal["smi", "reserved", "allocated"]
MemoryStage = Literal["first", "last"]
Dispatcher = Literal["allgather", "alltoall", "deepep", "hybridep"]
Routing = Literal["balanced", "round-robin", "natural"]
Framework = Literal["megatron-core", "megatron-deepspeed", "deepspeed", "fsdp2", "torchtitan"]
PrecisionRecipe = Literal["delayed", "tensorwise", "rowwise", "blockwise", "mxfp8", "nvfp4"]

PARTITION: Final[tuple[Partition, ...]] = get_args(Partition)
EVEN_PARTITION: Final[tuple[Partition, ...]] = PARTITION[:2]
"""The partitions that give each stage as many units."""
COUNTED, LAYOUT = (PARTITION.index(partition) for partition in ("embedding", "layout"))
"""Indices into `PARTITION`: embedding and head count as layers; the last chunk has fewer layers."""
PARTITION_WORDS: Final[Mapping[Partition, str]] = {
    "layers": "",
    "embedding": "embedding and head count as layers",
    "layout": "the last stage has fewer layers",
}
"""The printed name of each partition."""
PARTITION_KEYS: Final[Mapping[Partition, str]] = {"embedding": "emb", "layout": "lay"}
"""Parts of a topology's key."""
DISPATCHERS: Final[tuple[Dispatcher, ...]] = get_args(Dispatcher)


QUANTIZED: Final[tuple[Precision, ...]] = ("fp8", "fp4")
"""Precisions of fewer than 16 bits."""


def scales(recipe: PrecisionRecipe) -> Precision:
    """Return the precision of the tensors that a recipe scales."""
    return "fp4" if recipe == "nvfp4" else "fp8"


HOST: Final = "CPU"
"""Name of the GPU of a machine without accelerators."""


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
    nvlink_domain: int | None = field(default=None, repr=False, compare=False)
    """GPUs that share NVLink in the system of this GPU, where none are stated; None: those of a node."""
    gpus_per_node: int | None = field(default=None, repr=False, compare=False)
    """GPUs of a node in the system of this GPU, where none are stated; None: those of the default cluster."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def is_host(self) -> bool:
        """Whether it stands for a rank's share of a machine without accelerators."""
        return self.name == HOST

    @property
    def is_amd(self) -> bool:
        """Whether it is one of AMD's, whose frameworks are ROCm's forks."""
        return self.name.startswith("MI")

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
    host_memory: float = field(default=0.0, repr=False)
    """Bytes of a node's main memory, which offloaded states share; 0: not specified."""
    nvlink_domain: int | None = None
    """GPUs of whole nodes that reach each other over the intra-node fabric, as in an NVL72 rack; None: a node's."""
    fabric: Fabric | None = None
    """Kind of the network between nodes; None, not specified, is estimated as InfiniBand."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.nvlink_domain is not None and self.nvlink_domain % self.gpus_per_node:
            raise InputError(
                f"nvlink_domain is {self.nvlink_domain}, which is not a number of whole nodes of {self.gpus_per_node} "
                f"GPUs; give a multiple of {self.gpus_per_node} with --nvlink-domain."
            )

    @property
    def gpus(self) -> int:
        """All GPUs of all nodes."""
        return self.nodes * self.gpus_per_node

    @property
    def node_gpus(self) -> str:
        """The GPUs of a node in words: `8 H100-80GB-SXM`, `2 CPUs`."""
        plural = "s" if self.gpu.is_host and self.gpus_per_node > 1 else ""
        return f"{self.gpus_per_node} {self.gpu.name}{plural}"

    @property
    def domain(self) -> int:
        """GPUs of an NVLink domain, which may be a node."""
        return self.nvlink_domain or self.gpus_per_node


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
    framework: Framework | None = None
    """The training framework; None: not specified, as in studies started before it was recorded."""
    precision_recipe: PrecisionRecipe | None = None
    """How fp8 and fp4 tensors are scaled; None: the framework's default."""
    routing: Routing = "balanced"
    """Whether every expert gets as many tokens, as benchmarks force it, from any tokens or each token's from
    consecutive experts, or as many as a router sends it."""
    ramp: Ramp | None = None
    """How the batch grows at the start; the exact `ramp-up` rule then replaces the rules that approximate it."""
    stack: Stack | None = None
    """Deviations of the software from the framework's usual settings; None: it has none."""

    def __post_init__(self) -> None:
        check_fields(self)

    def __repr__(self) -> str:
        """Return the fields, without a `stack` of None: runs are identified by it."""
        return representation(self, {"stack"})

    @property
    def is_quantized(self) -> bool:
        """Whether the layers' matrices are multiplied in fewer than 16 bits; everything else is in bf16."""
        return self.precision in QUANTIZED

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
    recompute: str = "full"
    """One of `RECOMPUTE`."""
    partition: Partition = "layers"
    """What is spread over the stages: the layers evenly, or the layers with embedding and head as one layer each; or as
    many layers on each chunk as there are at most, and the rest on the last one, beside the head (`layout`)."""
    offload: Offload = "none"
    """What is in the node's main memory: the optimizer's states, whose step the CPUs then take, a share of them, or the
    parameters too."""
    hsdp: int = 1
    """Replica groups of hybrid sharding: dp / hsdp ranks share one set of shards."""
    ep: int = 1
    """Ranks that share one set of a layer's experts, each with count / ep of them."""
    etp: int = 1
    """Expert tensor parallelism: ranks that share each expert. The default is 1 and not tp, as in Megatron-Core, whose
    `--expert-tensor-parallel-size` is therefore always written."""
    dispatcher: Dispatcher = "alltoall"
    """How tokens reach their experts and return: `DISPATCHERS`."""
    moe_overlap: bool = False
    """Whether the exchange of tokens overlaps with another microbatch's pass."""
    heads: int | None = None
    """None: the model's own."""
    shape: Shape | None = None
    """None: the model's own."""
    global_batch: int | None = None
    """None: the workload's own."""

    def __post_init__(self) -> None:
        check_fields(self, may_be_zero=frozenset({"zero"}))
        check_recompute(self.recompute)

    def __repr__(self) -> str:
        """Return the fields, without those of `OPT_IN` at their defaults: stored studies identify runs by it."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        named = [f"{name}={value!r}" for name, value in values.items() if name not in OPT_IN or value != OPT_IN[name]]
        return f"Topology({', '.join(named)})"

    @property
    def gpus(self) -> int:
        """Number of GPUs: tp x pp x cp x dp."""
        return self.tp * self.pp * self.cp * self.dp

    @property
    def ranks_per_node(self) -> int:
        """Ranks on each node, on the last perhaps fewer."""
        return -(-self.gpus // self.nodes)

    @property
    def step_batch(self) -> int:
        """Sequences of one microbatch on every replica: micro_batch x dp."""
        return self.micro_batch * self.dp

    def microbatches(self, global_batch: int) -> int:
        """Return the microbatches of each replica in a step of so many sequences."""
        return global_batch // self.step_batch

    def split_units(self, layers: int) -> int:
        """Return the units that the stages share: the layers, and embedding and output layer if they count."""
        return layers + 2 * (self.partition == "embedding")

    @property
    def key(self) -> str:
        """The topology as one word, such as `tp8-pp12-dp4-mbs2-z1`; defaults are left out."""
        parts = [f"tp{self.tp}", f"pp{self.pp}", f"dp{self.dp}", f"mbs{self.micro_batch}", f"z{self.zero}"]
        parts += [f"vpp{self.vpp}"] * (self.vpp != 1)
        parts += [f"cp{self.cp}"] * (self.cp != 1)
        parts += ["sp"] * self.sequence_parallel
        parts += [RECOMPUTE_KEYS.get(self.recompute, f"r{self.recompute}")] * (self.recompute != "full")
        parts += [PARTITION_KEYS[self.partition]] if self.partition != "layers" else []
        parts += [OFFLOAD_KEYS[self.offload]] if self.offload != "none" else []
        parts += [f"hsdp{self.hsdp}"] * (self.hsdp != 1)
        parts += [f"ep{self.ep}"] * (self.ep != 1)
        parts += [f"etp{self.etp}"] * (self.etp != 1)
        parts += [self.dispatcher] if self.dispatcher != "alltoall" else []
        parts += ["overlap"] * self.moe_overlap
        parts += [f"h{self.heads}"] * (self.heads is not None)
        parts += [str(self.shape)] * (self.shape is not None)
        parts += [f"gbs{self.global_batch}"] * (self.global_batch is not None)
        return "-".join(parts)


EXPERT_AXES: Final[Mapping[str, Any]] = {"ep": 1, "etp": 1, "dispatcher": "alltoall", "moe_overlap": False}
"""Fields of a topology that only a mixture of experts has, with their defaults."""

OPT_IN: Final[Mapping[str, Any]] = {"offload": "none", "hsdp": 1, **EXPERT_AXES}
"""Fields of a topology that are searched only on request or for a mixture of experts, with their defaults. Documents
leave them out at their defaults, so that they are the same as before the field existed."""


def partition_for(layers: int, stages: int, uneven: Partition = "layers") -> Partition:
    """Return the partition for which units divide by stages, preferring `layers`; `uneven` if neither divides."""
    if layers % stages == 0:
        return "layers"
    return "embedding" if (layers + 2) % stages == 0 else uneven


def layout_chunks(layers: Any, chunks: Any) -> tuple[Any, Any]:
    """Return the layers of every chunk of a `layout` but the last, and those of the last; numbers or arrays."""
    most = -(-layers // chunks)
    return most, layers - most * (chunks - 1)


def nodes_in_domain(topology: Topology, cluster: Cluster) -> int:
    """Return how many consecutive nodes the estimate assumes to share an NVLink domain; 0 if none do.

    These are all nodes of a job that fits into one, else those of the widest group that does, in equal parts of the
    job's nodes if a domain has room for that.
    """
    nodes, ranks = topology.nodes, topology.ranks_per_node
    if nodes > 1 and topology.gpus <= cluster.domain:
        return nodes
    groups = (topology.tp, topology.tp * topology.cp, topology.ep * topology.etp)
    widest = max(size for size in (1, *groups) if size <= cluster.domain)
    if widest <= ranks:
        return 0
    least = -(-widest // ranks)
    return next((size for size in range(least, cluster.domain // ranks + 1) if nodes % size == 0), least)
