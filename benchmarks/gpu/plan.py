"""The rows that the GPU benchmark measures: models, batches and topologies, the most informative first.

Every row is a job of the shipped worker on one rank. Rows differ from a common centre in one property at a time, so
that each column of the table can be evaluated separately. Ladders of micro batches end just beyond the largest batch
that is predicted to fit. A model is either GPT-like and tied or LLaMA-like and untied, the two kinds that a measurement
table can describe.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Final

from tuner.core.catalog import gpu as catalog_gpu
from tuner.core.catalog import make_cluster
from tuner.core.catalog import model as catalog_model
from tuner.core.columns import Columns
from tuner.core.domain import Cluster, PrecisionRecipe, Topology, Workload
from tuner.core.experts import Experts
from tuner.core.model import Model
from tuner.core.offload import Offload
from tuner.core.stack import Stack
from tuner.costmodel.estimate import CostModel
from tuner.tables import run_cells
from tuner.tables.described_model import LLAMA_LIKE

GPU: Final = "H100-80GB-SXM"
"""The GPU of a plan that is made on a machine without one."""
ITERATIONS: Final = 3
"""Iterations of a job; the table contains the second."""
MEGATRON_ITERATIONS: Final = 6
"""Iterations of a row under Megatron-Core, whose first ones compile and choose kernels."""
ROW_SECONDS: Final = 2.0
"""Seconds of a row without its iterations: setup and teardown of process group, weights and DeepSpeed's engine."""
JOB_SECONDS: Final = 15.0
"""Seconds of a separate job without its iterations."""
REPEATED: Final = 10
"""Number of rows that are run three times."""
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
        parts += [self.workload.attention, self.workload.precision_recipe or self.workload.precision]
        parts += ["plain-norms"] * (not self.workload.fused_norms) + ["unfused"] * (self.workload.stack is not None)
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


_OFFLOADS: Final[Sequence[tuple[int, Offload]]] = (
    (1, "optimizer"),
    (2, "optimizer"),
    (3, "optimizer"),
    (3, "optimizer+parameters"),
)


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans the rows for a GPU."""

    gpu: str = GPU

    @property
    def name(self) -> str:
        """The GPU's family in lower case, which names the groups of rows.

        All rows of a program are one group: one machine and one program need one calibration.
        """
        return self.gpu.partition("-")[0].lower()

    def row(self, model: Model, micro_batch: int, microbatches: int = 2, **changes: Any) -> PlannedRow:
        """Return the row of a model and a batch; `changes` are fields of the topology or of the workload."""
        asked: dict[str, Any] = {"framework": "deepspeed", "precision": "bf16", "attention": "flash2", "zero": 1}
        asked |= {"recompute": "none", **changes}
        own = {each.name: asked.pop(each.name) for each in fields(Workload) if each.name in asked}
        workload = Workload(model=model, global_batch=micro_batch * microbatches, **own)
        topology = Topology(nodes=1, tp=1, pp=1, dp=1, micro_batch=micro_batch, **asked)
        program = "worker" if workload.framework == "deepspeed" else "megatron"
        return PlannedRow(f"{self.name}-{program}", workload, topology, self.cluster)

    @property
    def cluster(self) -> Cluster:
        """Return a node of one GPU."""
        return make_cluster(name=self.gpu, nodes=1, gpus_per_node=1, gpu=catalog_gpu(self.gpu))

    def ladder(self, model: Model, batches: Iterable[int], **changes: Any) -> Iterator[PlannedRow]:
        """Yield rows of several micro batches, followed by three around the largest that is predicted to fit."""
        yield from (self.row(model, batch, **changes) for batch in batches)
        fits, fails = 1, 2
        while self.row(model, fails, **changes).estimate[1]:
            fits, fails = fails, 2 * fails
        while fails - fits > 1:
            middle = (fits + fails) // 2
            fits, fails = (middle, fails) if self.row(model, middle, **changes).estimate[1] else (fits, middle)
        edges = (fits * 7 // 8, -(-fits * 9 // 8), fits * 3 // 2)
        yield from (self.row(model, max(1, batch), **changes) for batch in edges)

    def rows(self) -> list[PlannedRow]:
        """Return the rows of the dense models."""
        centre = gpt(4096, 4)
        made = [self.row(centre, 4), self.row(gpt(2048, 8), 4), self.row(gpt(1024, 8), 4), self.row(gpt(8192, 2), 4)]
        made += self.ladder(centre, (1, 2, 8, 16))
        made += [self.row(centre, 8, recompute=recompute) for recompute in ("selective", "full")]
        made += [self.row(centre, 4, recompute=kind, attention="eager") for kind in ("none", "selective", "full")]
        made += [self.row(llama(8192, 2), 4, zero=zero) for zero in (0, 1, 2, 3)]
        made += [self.row(gpt(2048, 8, zero=zero), 4, zero=zero) for zero in (0, 2, 3)]
        made += [self.row(llama(2048, 4, seq=seq), 32768 // seq) for seq in (1024, 4096, 8192, 16384, 32768)]
        made += [
            self.row(llama(2048, 4, seq=32768), 1, recompute="full"),
            self.row(llama(2048, 4, seq=32768), 2, recompute="full"),
        ]
        made += [self.row(llama(2048, 4, seq=seq), 1, attention="eager") for seq in (4096, 16384)]
        made += [self.row(llama(2048, 4, seq=16384), 1, attention="eager", recompute="selective")]
        made += [self.row(gpt(4096, 4, head=head), 4) for head in (64, 256)]
        made += [self.row(gpt(4096, 4, seq=8192, head=head), 1) for head in (64, 128, 256)]
        made += [self.row(gpt(4096, 4, head=64), 4, attention="eager")]
        made += [self.row(gpt(2048, 4, vocab=vocab), 8) for vocab in (32000, 256000)]
        made += [self.row(llama(2048, 4, vocab=vocab), 8) for vocab in (32000, 128256)]
        made += self.ladder(llama(8192, 2, seq=4096), (1, 4), recompute="selective", zero=2)
        made += self.ladder(gpt(1024, 8), (1, 16, 64))
        made += self.ladder(centre, (32,), recompute="full")
        made += [
            self.row(llama(4096, 4, kv_heads=8), 4),
            self.row(llama(4096, 4), 4),
            self.row(llama(4096, 4, kv_heads=8, seq=8192), 1),
        ]
        made += [self.row(centre, 4, precision="fp16"), self.row(gpt(2048, 8), 4, precision="fp16", recompute="full")]
        made += [self.row(gpt(2048, 4), 4, precision="fp32", attention="eager")]
        made += [self.row(centre, 4, microbatches) for microbatches in (1, 8)]
        made += [self.row(llama(4096, 4), 4, fused_norms=False)]
        made += [self.row(gpt(2048, layers), 4) for layers in (2, 16)]
        made += [self.row(llama(2048, 8), 4, zero=zero, offload=offload) for zero, offload in _OFFLOADS]
        return unique(made)

    def moe_rows(self) -> list[PlannedRow]:
        """Return the rows of mixtures of experts (8 experts, top 2), and a dense model with the same attention."""
        centre = mixture(2048, 4)
        made = [self.row(centre, 4), self.row(llama(2048, 4), 4), self.row(centre, 1), self.row(centre, 16)]
        made += [self.row(centre, 4, recompute=recompute) for recompute in ("selective", "full")]
        made += [self.row(mixture(2048, 4, top_k=top_k), 4) for top_k in (1, 4)]
        made += [self.row(centre, 4, zero=zero) for zero in (0, 2)]
        made += [
            self.row(mixture(4096, 2), 4),
            self.row(mixture(2048, 4, count=64, top_k=6), 4),
            self.row(mixture(2048, 4, seq=8192), 1),
        ]
        return unique(made)

    def megatron(self, model: Model, micro_batch: int, microbatches: int = 4, **changes: Any) -> PlannedRow:
        """Return the row of a model under Megatron-Core."""
        return self.row(model, micro_batch, microbatches, framework="megatron-core", **changes)

    def megatron_rows(self) -> list[PlannedRow]:
        """Return the rows of Megatron-Core: layers of published models, in bf16 and with FP8's recipes.

        A mixture has as many experts as one GPU holds under expert parallelism; each then gets as many tokens as there.
        """
        small, large = part("llama-3-8b", 4), part("llama-3-70b", 1, vocab=32000)
        mixed, wide = part("qwen3-30b-a3b", 6, experts=16), part("qwen3-235b-a22b", 2, experts=16)
        made = [self.megatron(small, 1), self.megatron(mixed, 1), self.megatron(large, 1), self.megatron(mixed, 4)]
        made += [self.megatron(each, 1, **_fp8("tensorwise")) for each in (small, large, mixed, wide)]
        made += [self.megatron(each, 1, **_fp8("delayed")) for each in (small, large, mixed)]
        made += [self.megatron(each, 1, **_fp8("blockwise")) for each in (large, mixed, wide)]
        made += [self.megatron(mixed, 2), self.megatron(wide, 1), self.megatron(wide, 2)]
        made += [self.megatron(mixed, 4, **_fp8("tensorwise")), self.megatron(mixed, 4, **_fp8("blockwise"))]
        made += [self.megatron(small, 2), self.megatron(small, 1, recompute="full")]
        made += [
            self.megatron(small, 1, recompute="selective"),
            self.megatron(small, 1, 1),
            self.megatron(small, 1, 16),
        ]
        made += [self.megatron(mixed, 1, stack=Stack(fused_permutation=False))]
        made += [self.megatron(part("qwen3-30b-a3b", 3, experts=64), 1), self.megatron(part("mixtral-8x7b", 1), 1)]
        made += [self.megatron(part("qwen3-30b-a3b", 12, experts=16), 1), self.megatron(mixed, 1, recompute="full")]
        latent = part("deepseek-v3", 2, experts=8, vocab=32000)
        made += [self.megatron(latent, 1), self.megatron(latent, 1, **_fp8("blockwise"))]
        made += [self.megatron(part("llama-3-8b", 4, seq=seq), 1) for seq in (4096, 16384)]
        return unique(made)


def _fp8(recipe: PrecisionRecipe) -> dict[str, Any]:
    return {"precision": "fp8", "precision_recipe": recipe}


def part(name: str, layers: int, *, experts: int = 0, vocab: int = 0, seq: int = 0) -> Model:
    """Return layers of a model of the catalog, each with experts if it is a mixture, of which it may keep fewer."""
    known, mixture = catalog_model(name), None
    if known.experts:
        mixture = replace(known.experts, count=experts or known.experts.count, dense_layers=0)
        mixture = replace(mixture, router_groups=0, router_top_groups=0)
    sizes: dict[str, Any] = {
        "layers": layers,
        "vocab": vocab or known.vocab,
        "seq": seq or min(known.seq, 8192),
        "mtp_layers": 0,
    }
    short = replace(known, experts=mixture, **sizes)
    return replace(short, name=f"{name}-{layers}-layers" + f"-{experts}-experts" * bool(experts))


def repeated(planned: Sequence[PlannedRow]) -> list[PlannedRow]:
    """Return the rows to repeat: an even selection of those predicted to fit, and the first predicted not to."""
    fitting = [each for each in planned if each.estimate[1] and each.topology.offload == "none"]
    step = len(fitting) // (REPEATED - 1)
    over = next(each for each in planned if not each.estimate[1])
    return [*fitting[::step][: REPEATED - 1], over]


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
        made.setdefault(wanted, replace(each, workload=workload, topology=replace(topology, micro_batch=2)))
    first = next(iter(made.values()))
    huge = replace(first.workload, model=Model(**_HUGE, **LLAMA_LIKE))
    return unique([*made.values(), replace(first, workload=huge)])
