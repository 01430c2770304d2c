"""`tuner memory`: what stands on a GPU before the first sample, and how many samples fit beside it.

Frozen models have weights alone. A trainable part has weights, gradients and its optimizer's state. What is left of
the card after them and after an overhead belongs to the activations, and a sample takes so much of them.

The fragment of a training's config that fixes batch sizes, for each number of GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tuner.core.catalog import catalog
from tuner.core.catalog import model as catalog_model
from tuner.core.columns import Columns
from tuner.core.domain import Cluster, Gpu, Link, Model, Optimizer, Precision, Topology, Workload
from tuner.core.errors import InputError, UnknownName
from tuner.core.text import shown
from tuner.costmodel.memory import FRAGMENTS, STATES, memory_terms
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stages import Stages

OVERHEAD: Final = 0.08
"""Share of the card for CUDA's context, kernels, communicators and fragments: the LatentWire memory budget's 8%. Our
model counts 1.6e9 bytes and 8% of the activations in its place."""

MULTIPLE: Final = 8
"""A recommended batch is a multiple of it: matrix products in 16 bits want their sizes so (NVIDIA, Deep Learning
Performance Guide)."""

COMPONENTS: Final = ("frozen", "trainable", "gradients", "optimizer", "overhead")

CLAIMS: Final = (*COMPONENTS, "left", "batch", "used")
"""What a published budget may be held to."""

_ROUNDED: Final = 0.02
"""How far a claim may be from the figure and still close: reports round."""

_LEAST: Final = 0.05
"""In GB: a figure with one decimal is no nearer."""

_UNITS: Final = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_BYTES: Final = {"b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 2**10, "mib": 2**20, "gib": 2**30}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A model held in memory: its parameters, and its shape where that is known."""

    name: str
    parameters: float
    model: Model | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRequest:
    """What is to be trained, and how."""

    frozen: tuple[Part, ...]
    trainable: float
    """Parameters."""
    optimizer: Optimizer = "adam"
    precision: Precision = "bf16"
    checkpointing: bool = True
    sample: float = 0.0
    """Bytes of activations that a sample takes; 0: as the frozen models' shapes make it."""
    seq: int | None = None
    overhead: float = OVERHEAD
    zero: int = 0
    multiple: int = MULTIPLE


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBudget:
    """One card's memory, in bytes."""

    gpu: str
    ranks: int
    """Data-parallel GPUs."""
    card: float
    target: float
    """Share of the card that may be used."""
    components: Mapping[str, float]
    sample: float
    multiple: int = MULTIPLE

    @property
    def fixed(self) -> float:
        """What stands there before the first sample."""
        return sum(self.components.values())

    @property
    def left(self) -> float:
        """Of the whole card, for activations."""
        return self.card - self.fixed

    def largest(self, share: float | None = None) -> int:
        """Samples on one GPU that keep it within a share of the card, its target unless said."""
        room = self.card * (self.target if share is None else share) - self.fixed
        return max(0, int(room / self.sample * (1 + 1e-12))) if self.sample else 0

    @property
    def recommended(self) -> int:
        """The largest batch rounded down to a multiple that matrix products like, or to a power of two below that."""
        most = self.largest()
        return most - most % self.multiple if most >= self.multiple else 1 << most.bit_length() >> 1

    @property
    def margin(self) -> float:
        """By which share the recommended batch is smaller than the largest."""
        return 1 - self.recommended / self.largest() if self.largest() else 0.0

    def used(self, batch: int) -> float:
        """Share of the card in use with so many samples."""
        return (self.fixed + batch * self.sample) / self.card


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimCheck:
    """Whether a published figure is what its own parts make."""

    claim: str
    closes: bool
    sentence: str


def part(text: str) -> Part:
    """`llama-3-8b`, or a size such as `7b`: a size has the shape of the preset nearest to it."""
    if size := re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([kmbt])", text.strip().lower()):
        number = float(size[1]) * _UNITS[size[2]]
        if not 0 < number < 1e15:
            raise InputError(f"--frozen {shown(text)} is no size such as 7b or 350M.")
        near = min(_presets(), key=lambda known: abs(np.log(known.parameters / number)))
        return Part(name=text.strip(), parameters=number, model=near if 0.5 < near.parameters / number < 2 else None)
    try:
        model = catalog_model(text)
    except UnknownName as error:
        raise InputError(f"{error} A size does too: --frozen 7b.") from None
    return Part(name=model.name, parameters=float(model.parameters), model=model)


def parameters_of(text: str) -> float:
    """`100M` as a number of parameters."""
    found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([kmbt]?)", text.strip().lower())
    number = float(found[1]) * _UNITS[found[2]] if found else -1.0
    if not 0 <= number < 1e15:
        raise InputError(f"{shown(text)} is no number of parameters such as 100M or 1.5B.")
    return number


def bytes_of(text: str) -> float:
    """`0.4GB` or `380MiB` as bytes."""
    found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([kmgt]?i?b)", text.strip().lower())
    size = float(found[1]) * _BYTES.get(found[2], 0.0) if found else 0.0
    if not 0 < size < 1e15:
        raise InputError(f"{shown(text)} is no size such as 0.4GB or 380MiB.")
    return size


def budget(
    plan: MemoryRequest, gpu: Gpu, *, ranks: int = 1, target: float = 0.80, decimal: bool = False
) -> MemoryBudget:
    """The budget of one of `ranks` GPUs.

    `decimal` counts the card as data sheets print it, 80 GB for 80 GiB, which is what most people's budgets do.
    """
    if plan.precision not in gpu.peak_flops:
        raise InputError(f"{gpu.name} has no {plan.precision}; give another --precision or --gpu.")
    card = gpu.memory / 2**30 * 1e9 if decimal else gpu.memory
    size = 4.0 if plan.precision == "fp32" else 2.0
    copy = 4.0 if size < 4 else 0.0  # the fp32 weights that 16-bit training keeps
    shard = [ranks if plan.zero >= least else 1 for least in range(4)]
    return MemoryBudget(
        gpu=gpu.name,
        ranks=ranks,
        card=card,
        target=target,
        components={
            "frozen": size * sum(each.parameters for each in plan.frozen) / shard[3],
            "trainable": size * plan.trainable / shard[3],
            "gradients": size * plan.trainable / shard[2],
            "optimizer": (copy + STATES[plan.optimizer]) * plan.trainable / shard[1],
            "overhead": plan.overhead * card,
        },
        sample=plan.sample or sample_bytes(plan, gpu),
        multiple=plan.multiple,
    )


def sample_bytes(plan: MemoryRequest, gpu: Gpu) -> float:
    """Activations of one sample through every model whose shape is known: gradients pass frozen layers too."""
    known = [each.model for each in plan.frozen if each.model]
    return sum(_through(model, plan, gpu) for model in known)


def _through(model: Model, plan: MemoryRequest, gpu: Gpu) -> float:
    seq = plan.seq or model.seq
    attention = "eager" if plan.precision == "fp32" else gpu.attention
    workload = Workload(
        model=replace(model, seq=seq, max_positions=0 if model.max_positions == model.seq else model.max_positions),
        global_batch=1,
        precision=plan.precision,
        attention=attention,
        parallel_loss=False,
    )
    one = Topology(nodes=1, tp=1, pp=1, dp=1, micro_batch=1, zero=0, recompute="full" if plan.checkpointing else "none")
    wire = Link(bandwidth=1.0, latency=0.0)
    alone = Cluster(name="one", nodes=1, gpus_per_node=1, gpu=gpu, intra_node=wire, inter_node=wire)
    terms = memory_terms(Stages.first(Columns.of([one], workload, alone)), SiteFactors())
    return float(sum(terms[name][0] for name in ("activations", "working", "logits")) * (1 + FRAGMENTS))


def judged(claims: Mapping[str, float], plan: MemoryRequest, own: MemoryBudget) -> list[ClaimCheck]:
    """Each published figure beside what its own parts make, GB; `used` is a share of the card."""
    gb, found = 1e9, []
    for name, claim in claims.items():
        if name == "used":
            found.append(_used(claim, own))
            continue
        if name == "batch":
            share = own.used(int(claim))
            fits = own.sample > 0 and int(claim) <= own.largest()
            said = (
                f"{int(claim)} samples use {100 * share:.1f}% of the card"
                if own.sample
                else "nobody says what a sample takes; give --sample"
            )
            room = f", and {own.largest()} are what {100 * own.target:.0f}% holds" if own.sample else ""
            found.append(ClaimCheck(claim=name, closes=fits, sentence=f"{said}{room}"))
            continue
        figure = (own.left if name == "left" else own.components[name]) / gb
        closes = abs(claim - figure) <= max(_ROUNDED * figure, _LEAST) + 1e-9
        parts = _spelt(name, plan, own)
        word = "closes" if closes else f"does not close: {claim - figure:+.1f} GB"
        found.append(ClaimCheck(claim=name, closes=closes, sentence=f"{claim:g} GB claimed, {parts}: {word}"))
    return found


def _used(claim: float, own: MemoryBudget) -> ClaimCheck:
    """A share of the card in use: at least what stands there before the first sample."""
    stated, frozen = claim * own.card / 1e9, own.components["frozen"] / 1e9
    closes = stated >= own.fixed / 1e9
    holds = f"{100 * claim:.0f}% of {own.card / 1e9:.4g} GB is {stated:.1f} GB"
    if stated < frozen:
        return ClaimCheck(
            claim="used", closes=False, sentence=f"{holds}, less than the frozen models alone ({frozen:.1f} GB)"
        )
    more = "at least" if closes else "less than"
    return ClaimCheck(
        claim="used", closes=closes, sentence=f"{holds}, {more} the {own.fixed / 1e9:.1f} GB before any sample"
    )


def _spelt(name: str, plan: MemoryRequest, own: MemoryBudget) -> str:
    """A component by its own arithmetic."""
    gb = 1e9
    if name == "frozen":
        size = 4 if plan.precision == "fp32" else 2
        parts = [each.parameters * size / gb for each in plan.frozen]
        sizes = " + ".join(f"{value:.1f} ({each.name})" for each, value in zip(plan.frozen, parts, strict=True))
        return f"{sizes} = {sum(parts):.1f} GB" if parts else "0 GB"
    if name == "left":
        return f"{own.card / gb:.4g} - {own.fixed / gb:.1f} = {own.left / gb:.1f} GB"
    return f"{own.components[name] / gb:.2f} GB counted"


def _presets() -> list[Model]:
    """LLaMA's shapes, to which those of other models of their size are close."""
    return [catalog_model(name) for name in catalog().model if name.startswith("llama-")]


def side_by_side(
    plan: MemoryRequest, gpus: Sequence[Gpu], *, most: int = 4, target: float = 0.80, decimal: bool = False
) -> list[MemoryBudget]:
    """Every card with one to `most` data-parallel GPUs."""
    return [
        budget(plan, gpu, ranks=ranks, target=target, decimal=decimal) for gpu in gpus for ranks in range(1, most + 1)
    ]


def batch_fragment(gpu: str, target: float, rows: Iterable[tuple[int, int]]) -> str:
    """YAML: `rows` are numbers of GPUs and the batch on each."""
    lines = [f"# {gpu}: made by tuner memory", "training:", "  batch_config:"]
    for ranks, batch in rows:
        lines += [
            f"    gpus_{ranks}:",
            f"      batch_size: {batch}",
            f"      effective_batch_size: {batch * ranks}",
            f"      elastic_target_util: {target:.2f}",
        ]
    return "\n".join([*lines, ""])
