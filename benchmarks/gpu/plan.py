"""The rows that the GPU benchmark measures: models, batches and topologies, the most informative first.

Every row is a job of the shipped worker on one rank. Rows differ from a common centre in one property at a time, so
that each column of the table can be evaluated separately. Ladders of micro batches end just beyond the largest batch
that is predicted to fit. A model is either GPT-like and tied or LLaMA-like and untied, the two kinds that a measurement
table can describe.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from tuner.core.catalog import gpu as catalog_gpu
from tuner.core.catalog import make_cluster
from tuner.core.columns import Columns
from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.experts import Experts
from tuner.core.model import Model
from tuner.core.offload import Offload
from tuner.costmodel.estimate import CostModel
from tuner.tables import run_cells
from tuner.tables.described_model import LLAMA_LIKE

GPU: Final = "H200-141GB-SXM"
ITERATIONS: Final = 3
"""Iterations of a job; the table contains the second."""
ROW_SECONDS: Final = 3.0
"""Seconds of a row without its iterations: setup and teardown of process group, weights and DeepSpeed's engine."""
JOB_SECONDS: Final = 15.0
"""Seconds of a separate job without its iterations."""
REPEATED: Final = 10
"""Number of rows that are run three times."""
GROUP: Final = "h200-worker"
"""The group of all rows; different models share it because one machine and one program need one calibration."""
SOURCE: Final = "tuner, benchmarks/gpu"


@dataclass(frozen=True)
class PlannedRow:
    """One row to measure."""

    group: str
    workload: Workload
    topology: Topology
    cluster: Cluster

    @property
    def name(self) -> str:
        """The row's name, unique in the plan."""
        model, parts = self.workload.model, [self.topology.key, f"gbs{self.workload.global_batch}"]
        parts += [self.workload.attention, self.workload.precision] + ["plain-norms"] * (not self.workload.fused_norms)
        return f"{model.name}-s{model.seq}-" + "-".join(parts)

    @cached_property
    def estimate(self) -> tuple[float, bool]:
        """Estimated seconds of an iteration, and whether the row is expected to fit in memory."""
        scores = CostModel().score(Columns.of([self.topology], self.workload, self.cluster))
        return float(scores.seconds[0]), bool(scores.fits[0])

    @property
    def seconds(self) -> float:
        """Estimated seconds of the whole row in the shared process."""
        seconds, fits = self.estimate
        return ROW_SECONDS + ITERATIONS * seconds * fits

    @property
    def cells(self) -> dict[str, str]:
        """The columns of the measurement table that describe the row."""
        return {"group": self.group, **run_cells(self.workload, self.cluster, self.topology), "source": SOURCE}


def gpt(hidden: int, layers: int, *, seq: int = 2048, head: int = 128, vocab: int = 51200, zero: int = 1) -> Model:
    """Return a GPT-like model, tied except under ZeRO 3, because the table's ZeRO 3 rows are read as untied."""
    tied = zero != 3
    name = f"gpt-{hidden}x{layers}-d{head}-v{vocab}" + "-untied" * (not tied)
    return Model(
        name=name, layers=layers, hidden=hidden, heads=hidden // head, vocab=vocab, seq=seq, tied_embeddings=tied
    )


def llama(
    hidden: int, layers: int, *, seq: int = 2048, head: int = 128, vocab: int = 32000, kv_heads: int = 0
) -> Model:
    """Return an untied LLaMA-like model with an MLP width of 8/3 of the hidden size."""
    ffn = -(-8 * hidden // 3 // 256) * 256
    name = f"llama-{hidden}x{layers}-d{head}-v{vocab}" + f"-kv{kv_heads}" * bool(kv_heads)
    return Model(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=hidden // head,
        kv_heads=kv_heads,
        ffn=ffn,
        vocab=vocab,
        seq=seq,
        **LLAMA_LIKE,
    )


def mixture(hidden: int, layers: int, *, count: int = 8, top_k: int = 2, seq: int = 2048) -> Model:
    """Return a LLaMA-like mixture of experts, each half as wide as a dense model's MLP."""
    width = hidden * 3 // 2
    experts = Experts(count=count, top_k=top_k, ffn=width)
    return replace(
        llama(hidden, layers, seq=seq), name=f"moe-{hidden}x{layers}-e{count}k{top_k}", ffn=width, experts=experts
    )


def row(model: Model, micro_batch: int, microbatches: int = 2, **changes: Any) -> PlannedRow:
    """Return the row of a model and a batch; `changes` are fields of the topology or of the workload."""
    asked: dict[str, Any] = {"precision": "bf16", "attention": "flash2", "fused_norms": True, "zero": 1}
    asked |= {"recompute": "none", **changes}
    own = {name: asked.pop(name) for name in ("precision", "attention", "fused_norms")}
    workload = Workload(model=model, global_batch=micro_batch * microbatches, framework="deepspeed", **own)
    topology = Topology(nodes=1, tp=1, pp=1, dp=1, micro_batch=micro_batch, **asked)
    return PlannedRow(GROUP, workload, topology, cluster())


def cluster() -> Cluster:
    """Return a node of one GPU."""
    return make_cluster(name=GPU, nodes=1, gpus_per_node=1, gpu=catalog_gpu(GPU))


def ladder(model: Model, batches: Iterable[int], **changes: Any) -> Iterator[PlannedRow]:
    """Yield rows of several micro batches, followed by three around the largest that is predicted to fit."""
    yield from (row(model, batch, **changes) for batch in batches)
    fits, fails = 1, 2
    while row(model, fails, **changes).estimate[1]:
        fits, fails = fails, 2 * fails
    while fails - fits > 1:
        middle = (fits + fails) // 2
        fits, fails = (middle, fails) if row(model, middle, **changes).estimate[1] else (fits, middle)
    edges = (fits * 7 // 8, -(-fits * 9 // 8), fits * 3 // 2)
    yield from (row(model, max(1, batch), **changes) for batch in edges)


def rows() -> list[PlannedRow]:
    """Return the rows of the dense models."""
    centre = gpt(4096, 4)
    made = [row(centre, 4), row(gpt(2048, 8), 4), row(gpt(1024, 8), 4), row(gpt(8192, 2), 4)]
    made += ladder(centre, (1, 2, 8, 16))
    made += [row(centre, 8, recompute=recompute) for recompute in ("selective", "full")]
    made += [row(centre, 4, recompute=kind, attention="eager") for kind in ("none", "selective", "full")]
    made += [row(llama(8192, 2), 4, zero=zero) for zero in (0, 1, 2, 3)]
    made += [row(gpt(2048, 8, zero=zero), 4, zero=zero) for zero in (0, 2, 3)]
    made += [row(llama(2048, 4, seq=seq), 32768 // seq) for seq in (1024, 4096, 8192, 16384, 32768)]
    made += [row(llama(2048, 4, seq=32768), 1, recompute="full"), row(llama(2048, 4, seq=32768), 2, recompute="full")]
    made += [row(llama(2048, 4, seq=seq), 1, attention="eager") for seq in (4096, 16384)]
    made += [row(llama(2048, 4, seq=16384), 1, attention="eager", recompute="selective")]
    made += [row(gpt(4096, 4, head=head), 4) for head in (64, 256)]
    made += [row(gpt(4096, 4, seq=8192, head=head), 1) for head in (64, 128, 256)]
    made += [row(gpt(4096, 4, head=64), 4, attention="eager")]
    made += [row(gpt(2048, 4, vocab=vocab), 8) for vocab in (32000, 256000)]
    made += [row(llama(2048, 4, vocab=vocab), 8) for vocab in (32000, 128256)]
    made += ladder(llama(8192, 2, seq=4096), (1, 4), recompute="selective", zero=2)
    made += ladder(gpt(1024, 8), (1, 16, 64))
    made += ladder(centre, (32,), recompute="full")
    made += [row(llama(4096, 4, kv_heads=8), 4), row(llama(4096, 4), 4), row(llama(4096, 4, kv_heads=8, seq=8192), 1)]
    made += [row(centre, 4, precision="fp16"), row(gpt(2048, 8), 4, precision="fp16", recompute="full")]
    made += [row(gpt(2048, 4), 4, precision="fp32", attention="eager")]
    made += [row(centre, 4, microbatches) for microbatches in (1, 8)]
    made += [row(llama(4096, 4), 4, fused_norms=False)]
    made += [row(gpt(2048, layers), 4) for layers in (2, 16)]
    made += [row(llama(2048, 8), 4, zero=zero, offload=offload) for zero, offload in _OFFLOADS]
    return unique(made)


_OFFLOADS: Final[Sequence[tuple[int, Offload]]] = (
    (1, "optimizer"),
    (2, "optimizer"),
    (3, "optimizer"),
    (3, "optimizer+parameters"),
)


def repeated(planned: Sequence[PlannedRow]) -> list[PlannedRow]:
    """Return the rows to repeat: an even selection of those predicted to fit, and the first predicted not to."""
    fitting = [each for each in planned if each.estimate[1] and each.topology.offload == "none"]
    step = len(fitting) // (REPEATED - 1)
    over = next(each for each in planned if not each.estimate[1])
    return [*fitting[::step][: REPEATED - 1], over]


def moe_rows() -> list[PlannedRow]:
    """Return the rows of mixtures of experts (8 experts, top 2), and a dense model with the same attention."""
    centre = mixture(2048, 4)
    made = [row(centre, 4), row(llama(2048, 4), 4), row(centre, 1), row(centre, 16)]
    made += [row(centre, 4, recompute=recompute) for recompute in ("selective", "full")]
    made += [row(mixture(2048, 4, top_k=top_k), 4) for top_k in (1, 4)]
    made += [row(centre, 4, zero=zero) for zero in (0, 2)]
    made += [row(mixture(4096, 2), 4), row(mixture(2048, 4, count=64, top_k=6), 4), row(mixture(2048, 4, seq=8192), 1)]
    return unique(made)


def unique(planned: Iterable[PlannedRow]) -> list[PlannedRow]:
    """Return the rows without duplicates."""
    return list({each.name: each for each in planned}.values())


_HUGE: Final[dict[str, Any]] = {
    "name": "huge",
    "layers": 1,
    "hidden": 1_000_000,
    "heads": 1024,
    "ffn": 4,
    "vocab": 2,
    "seq": 4,
    "head_size": 65_536,
    "vocab_multiple": 0,
}
"""A model whose first projection is larger than an address space, so that no machine can allocate it."""


def tiny(planned: Iterable[PlannedRow]) -> list[PlannedRow]:
    """Return rows for a CPU with a tiny model, one for each combination of ZeRO, recompute, offload and MLP type.

    The last row needs more memory than any machine has.
    """
    made: dict[Any, PlannedRow] = {}
    for each in planned:
        if each.workload.precision == "fp16":
            continue
        model, topology = each.workload.model, each.topology
        experts = replace(model.experts, count=4, top_k=2, ffn=64) if model.experts else None
        kept = LLAMA_LIKE if model.gated_mlp else {"tied_embeddings": model.tied_embeddings}
        small = Model(name="tiny", layers=2, hidden=64, heads=4, vocab=128, seq=32, experts=experts, **kept)
        workload = replace(each.workload, model=small, global_batch=4, precision="fp32", attention="eager")
        wanted = (topology.zero, topology.recompute, topology.offload, model.gated_mlp)
        made.setdefault(wanted, PlannedRow(GROUP, workload, replace(topology, micro_batch=2), each.cluster))
    first = next(iter(made.values()))
    huge = replace(first.workload, model=Model(**_HUGE, **LLAMA_LIKE))
    return unique([*made.values(), replace(first, workload=huge)])
