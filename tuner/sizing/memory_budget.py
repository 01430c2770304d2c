"""The memory budget of a GPU, for `tuner memory`: what is used before the first sample, and how many samples fit.

Frozen models need memory for weights only, trainable parameters also for gradients and optimizer state. Activations
get what these and an overhead leave: `batch = (card * target - fixed) / sample`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, get_args

import numpy as np

from tuner.core.catalog import catalog
from tuner.core.catalog import gpu as catalog_gpu
from tuner.core.catalog import model as catalog_model
from tuner.core.columns import Columns
from tuner.core.domain import Cluster, Gpu, Link, Optimizer, Precision, Topology, Workload
from tuner.core.errors import InputError, UnknownName
from tuner.core.model import Model
from tuner.core.quantity import texts_of
from tuner.core.text import either, shown
from tuner.costmodel.constants import FRAGMENT_SHARE, OPTIMIZER_STATE_BYTES
from tuner.costmodel.memory import memory_terms
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stages import Stages
from tuner.space.build import model_of

OVERHEAD: Final = 0.08
"""Fraction of the GPU for the CUDA context, kernels, communicators and fragmentation, as in the LatentWire budget.
The cost model counts 1.6e9 bytes and 8% of the activations instead."""

BATCH_MULTIPLE: Final = 8
"""A recommended batch is a multiple of it, which 16-bit matrix products need for full speed (NVIDIA, Deep Learning
Performance Guide)."""

COMPONENTS: Final = ("frozen", "trainable", "gradients", "optimizer", "overhead")

CLAIMS: Final = (*COMPONENTS, "left", "batch", "used")
"""Figures of a published budget that can be checked."""

_RELATIVE_TOLERANCE: Final = 0.02
"""Relative difference between a claim and its figure that rounding explains."""

_ABSOLUTE_TOLERANCE_GB: Final = 0.05
"""Difference in GB that rounding to one decimal explains."""

_UNITS: Final = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_BYTES: Final = {"b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 2**10, "mib": 2**20, "gib": 2**30}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A frozen model: its number of parameters, and its shape if known."""

    name: str
    parameters: float
    model: Model | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRequest:
    """The training to budget."""

    frozen: tuple[Part, ...]
    trainable: float
    """Number of trainable parameters."""
    optimizer: Optimizer = "adam"
    precision: Precision = "bf16"
    checkpointing: bool = True
    sample: float = 0.0
    """Bytes of activations of one sample; 0: estimated from the shapes of the frozen models."""
    overhead: float = OVERHEAD
    zero: int = 0
    multiple: int = BATCH_MULTIPLE


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBudget:
    """The memory of one GPU, in bytes."""

    gpu: str
    ranks: int
    """Number of data-parallel GPUs."""
    card: float
    target: float
    """Fraction of the GPU to use at most."""
    components: Mapping[str, float]
    sample: float
    multiple: int = BATCH_MULTIPLE

    @property
    def fixed(self) -> float:
        """Return the bytes used before the first sample."""
        return sum(self.components.values())

    @property
    def left(self) -> float:
        """Return the bytes left for activations."""
        return self.card - self.fixed

    def largest(self, share: float | None = None) -> int:
        """Return the most samples that fit into a fraction of the GPU, by default its target."""
        room = self.card * (self.target if share is None else share) - self.fixed
        return max(0, int(room / self.sample * (1 + 1e-12))) if self.sample else 0

    @property
    def recommended(self) -> int:
        """Return the largest batch rounded down to a multiple of `multiple`, or below it to a power of two."""
        most = self.largest()
        return most - most % self.multiple if most >= self.multiple else 1 << most.bit_length() >> 1

    @property
    def margin(self) -> float:
        """Return the fraction by which the recommended batch is below the largest."""
        return 1 - self.recommended / self.largest() if self.largest() else 0.0

    def used(self, batch: int) -> float:
        """Return the fraction of the GPU in use with a batch."""
        return (self.fixed + batch * self.sample) / self.card


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimCheck:
    """Whether a published figure is consistent with its components."""

    claim: str
    closes: bool
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """The answer of `tuner memory`."""

    request: MemoryRequest
    budgets: tuple[MemoryBudget, ...]
    """One for each GPU and number of data-parallel GPUs."""
    claims: tuple[ClaimCheck, ...]

    def fragments(self) -> dict[str, str]:
        """Return a YAML fragment of a training config for each GPU that fits a batch, by the GPU's name."""
        rows: dict[str, list[tuple[int, int]]] = {}
        for one in self.budgets:
            if one.recommended:
                rows.setdefault(one.gpu, []).append((one.ranks, one.recommended))
        return {name: batch_fragment(name, self.budgets[0].target, own) for name, own in rows.items()}


def memory(
    *,
    frozen: Sequence[str] = (),
    trainable: str = "0",
    optimizer: Optimizer = "adam",
    precision: Precision = "bf16",
    checkpointing: bool = True,
    gpu: str = "H100-80GB-SXM",
    gpus: int = 4,
    zero: int = 0,
    target: float = 0.80,
    seq: int | None = None,
    sample: str | None = None,
    overhead: float = OVERHEAD,
    multiple: int = BATCH_MULTIPLE,
    decimal: bool = False,
    claims: Iterable[str] = (),
) -> MemoryPlan:
    """Budget a GPU's memory for frozen models and trained parameters, and find the batch that fits.

    Every argument is the option of `tuner memory` with the same name.

    >>> import tuner
    >>> found = tuner.memory(frozen=["llama-3-8b"], trainable="100M", gpus=2)
    >>> [(budget.ranks, budget.recommended) for budget in found.budgets]
    [(1, 2), (2, 2)]
    """
    _check(
        optimizer=optimizer,
        precision=precision,
        gpus=gpus,
        zero=zero,
        target=target,
        overhead=overhead,
        multiple=multiple,
    )
    request = MemoryRequest(
        frozen=tuple(part(text, seq) for text in texts_of("frozen", frozen)),
        trainable=parameters_of(trainable),
        optimizer=optimizer,
        precision=precision,
        checkpointing=checkpointing,
        sample=bytes_of(sample) if sample is not None else 0.0,
        overhead=overhead,
        zero=zero,
        multiple=multiple,
    )
    budgets = tuple(
        budget(request, catalog_gpu(name.strip()), ranks=ranks, target=target, decimal=decimal)
        for name in gpu.split(",")
        for ranks in range(1, gpus + 1)
    )
    made = MemoryPlan(request=request, budgets=budgets, claims=tuple(judged(claimed(claims), request, budgets[0])))
    if not request.frozen and not request.trainable:
        raise InputError("nothing to budget: pass --frozen MODEL, such as llama-3-8b or 7b, or --trainable SIZE.")
    return made


def _check(
    *, optimizer: str, precision: str, gpus: int, zero: int, target: float, overhead: float, multiple: int
) -> None:
    """Check values that the command line has checked already."""
    if optimizer not in get_args(Optimizer):
        raise UnknownName("optimizer", optimizer, get_args(Optimizer))
    if precision not in get_args(Precision):
        raise UnknownName("precision", precision, get_args(Precision))
    if zero not in range(4):
        raise InputError(f"zero must be 0, 1, 2 or 3 (got {zero}).")
    if not 0 < target <= 1:
        raise InputError(f"target must be above 0 and at most 1 (got {target}).")
    if not 0 <= overhead < 1:
        raise InputError(f"overhead must be at least 0 and below 1 (got {overhead}).")
    for name, count in (("gpus", gpus), ("multiple", multiple)):
        if count < 1:
            raise InputError(f"{name} must be at least 1 (got {count}).")


def claimed(texts: Iterable[str]) -> dict[str, float]:
    """Parse published figures such as `frozen=32`, in GB, and `used=80%`."""
    found: dict[str, float] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        try:
            number = float(value.removesuffix("%")) / (100 if value.endswith("%") else 1)
        except ValueError:
            number = -1.0
        if not sign or name not in CLAIMS or not 0 <= number < 1e6:
            raise InputError(
                f"--claim {shown(text)} is not NAME=GB; NAME is {either(CLAIMS)}, and 'used' takes a share such as 80%."
            )
        found[name] = number
    return found


def part(text: str, seq: int | None = None) -> Part:
    """Parse a preset such as `llama-3-8b`, or a size such as `7b`, which gets the shape of the nearest preset.

    Its samples have `seq` tokens, by default the model's own sequence length.
    """
    if size := re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([kmbt])", text.strip().lower()):
        number = float(size[1]) * _UNITS[size[2]]
        if not 0 < number < 1e15:
            raise InputError(f"--frozen {shown(text)} is not a size such as 7b or 350M.")
        nearest = min(_presets(), key=lambda preset: abs(np.log(preset.parameters / number)))
        alike = 0.5 < nearest.parameters / number < 2
        return Part(name=text.strip(), parameters=number, model=model_of(nearest, seq) if alike else None)
    try:
        model = model_of(text, seq)
    except UnknownName as error:
        raise InputError(f"{error} Or give a size: --frozen 7b.") from None
    return Part(name=model.name, parameters=float(model.parameters), model=model)


def parameters_of(text: str) -> float:
    """Parse a number of parameters such as `100M`."""
    found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([kmbt]?)", text.strip().lower())
    number = float(found[1]) * _UNITS[found[2]] if found else -1.0
    if not 0 <= number < 1e15:
        raise InputError(f"{shown(text)} is not a number of parameters such as 100M or 1.5B.")
    return number


def bytes_of(text: str) -> float:
    """Parse a size such as `0.4GB` or `380MiB` into bytes."""
    found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([kmgt]?i?b)", text.strip().lower())
    size = float(found[1]) * _BYTES.get(found[2], 0.0) if found else 0.0
    if not 0 < size < 1e15:
        raise InputError(f"{shown(text)} is not a size such as 0.4GB or 380MiB.")
    return size


def budget(
    request: MemoryRequest, gpu: Gpu, *, ranks: int = 1, target: float = 0.80, decimal: bool = False
) -> MemoryBudget:
    """Return the budget of one of `ranks` GPUs; `decimal` counts 80 GiB as 80 GB, as data sheets do."""
    if request.precision not in gpu.peak_flops:
        raise InputError(f"{gpu.name} does not support {request.precision}; choose another --precision or --gpu.")
    card = gpu.memory / 2**30 * 1e9 if decimal else gpu.memory
    size = 4.0 if request.precision == "fp32" else 2.0
    master = 4.0 if size < 4 else 0.0  # the fp32 copy of the weights in 16-bit training
    shards = [ranks if request.zero >= stage else 1 for stage in range(4)]
    return MemoryBudget(
        gpu=gpu.name,
        ranks=ranks,
        card=card,
        target=target,
        components={
            "frozen": size * sum(part.parameters for part in request.frozen) / shards[3],
            "trainable": size * request.trainable / shards[3],
            "gradients": size * request.trainable / shards[2],
            "optimizer": (master + OPTIMIZER_STATE_BYTES[request.optimizer]) * request.trainable / shards[1],
            "overhead": request.overhead * card,
        },
        sample=request.sample or sample_bytes(request, gpu),
        multiple=request.multiple,
    )


def sample_bytes(request: MemoryRequest, gpu: Gpu) -> float:
    """Return the bytes of activations of one sample in all models of known shape; gradients pass frozen layers too."""
    models = [part.model for part in request.frozen if part.model]
    return sum(_activations(model, request, gpu) for model in models)


def _activations(model: Model, request: MemoryRequest, gpu: Gpu) -> float:
    attention = "eager" if request.precision == "fp32" else gpu.attention
    workload = Workload(
        model=model, global_batch=1, precision=request.precision, attention=attention, parallel_loss=False
    )
    one = Topology(
        nodes=1, tp=1, pp=1, dp=1, micro_batch=1, zero=0, recompute="full" if request.checkpointing else "none"
    )
    wire = Link(bandwidth=1.0, latency=0.0)
    alone = Cluster(name="one", nodes=1, gpus_per_node=1, gpu=gpu, intra_node=wire, inter_node=wire)
    terms = memory_terms(Stages.first(Columns.of([one], workload, alone)), SiteFactors())
    return float(sum(terms[name][0] for name in ("activations", "working", "logits")) * (1 + FRAGMENT_SHARE))


def judged(claims: Mapping[str, float], request: MemoryRequest, budget: MemoryBudget) -> list[ClaimCheck]:
    """Check each published figure, in GB, against its components; `used` is a fraction of the GPU."""
    gb, found = 1e9, []
    for name, claim in claims.items():
        if name == "used":
            found.append(_used(claim, budget))
            continue
        if name == "batch":
            share = budget.used(int(claim))
            fits = budget.sample > 0 and int(claim) <= budget.largest()
            sentence = (
                f"{int(claim)} samples use {100 * share:.1f}% of the card"
                if budget.sample
                else "the memory of a sample is unknown; give --sample"
            )
            room = f"; {budget.largest()} fit into {100 * budget.target:.0f}%" if budget.sample else ""
            found.append(ClaimCheck(claim=name, closes=fits, sentence=f"{sentence}{room}"))
            continue
        figure = (budget.left if name == "left" else budget.components[name]) / gb
        closes = abs(claim - figure) <= max(_RELATIVE_TOLERANCE * figure, _ABSOLUTE_TOLERANCE_GB) + 1e-9
        parts = _arithmetic(name, request, budget)
        word = ": OK" if closes else f" ({claim - figure:+.1f} GB)"
        found.append(ClaimCheck(claim=name, closes=closes, sentence=f"claimed {claim:g} GB, computed {parts}{word}"))
    return found


def _used(claim: float, budget: MemoryBudget) -> ClaimCheck:
    """Check a fraction of the GPU in use, which is at least what is used before the first sample."""
    stated, frozen = claim * budget.card / 1e9, budget.components["frozen"] / 1e9
    closes = stated >= budget.fixed / 1e9
    holds = f"{100 * claim:.0f}% of {budget.card / 1e9:.4g} GB is {stated:.1f} GB"
    if stated < frozen:
        return ClaimCheck(
            claim="used", closes=False, sentence=f"{holds}, less than the frozen models alone ({frozen:.1f} GB)"
        )
    more = "at least" if closes else "less than"
    return ClaimCheck(
        claim="used", closes=closes, sentence=f"{holds}, {more} the {budget.fixed / 1e9:.1f} GB before any sample"
    )


def _arithmetic(name: str, request: MemoryRequest, budget: MemoryBudget) -> str:
    """Return the arithmetic of a component."""
    gb = 1e9
    if name == "frozen":
        size = 4 if request.precision == "fp32" else 2
        parts = [part.parameters * size / gb for part in request.frozen]
        sizes = " + ".join(f"{value:.1f} ({part.name})" for part, value in zip(request.frozen, parts, strict=True))
        return f"{sizes} = {sum(parts):.1f} GB" if parts else "0 GB"
    if name == "left":
        return f"{budget.card / gb:.4g} - {budget.fixed / gb:.1f} = {budget.left / gb:.1f} GB"
    return f"{budget.components[name] / gb:.2f} GB"


def _presets() -> list[Model]:
    """Return the LLaMA presets, whose shapes are close to those of other models of their size."""
    return [catalog_model(name) for name in catalog().model if name.startswith("llama-")]


def batch_fragment(gpu: str, target: float, rows: Iterable[tuple[int, int]]) -> str:
    """Return YAML for a training config that sets batch sizes; `rows` are numbers of GPUs and the batch on each."""
    lines = [f"# {gpu}: generated by tuner memory", "training:", "  batch_config:"]
    for ranks, batch in rows:
        lines += [
            f"    gpus_{ranks}:",
            f"      batch_size: {batch}",
            f"      effective_batch_size: {batch * ranks}",
            f"      elastic_target_util: {target:.2f}",
        ]
    return "\n".join([*lines, ""])
