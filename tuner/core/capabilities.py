"""The record of what a training framework can run, every capability with its source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Generic, Literal, TypeVar

from tuner.core.domain import (
    EXPERT_AXES,
    Attention,
    Dispatcher,
    Framework,
    Optimizer,
    Partition,
    Precision,
    PrecisionRecipe,
    Topology,
    Workload,
)
from tuner.core.model import Model
from tuner.core.offload import Offload
from tuner.core.recompute import is_among

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Capability(Generic[T]):
    """A framework's support of one property, with its source."""

    value: T
    source: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkRecord:
    """The capabilities of one framework."""

    name: Framework
    upstream: str
    """The version that the sources describe."""
    tp: Capability[bool]
    pp: Capability[bool]
    cp: Capability[bool]
    vpp: Capability[bool]
    sequence_parallel: Capability[bool]
    zero: Capability[tuple[int, ...]]
    """Stages of ZeRO; full sharding is 3, and 2 without resharding after the forward pass."""
    sharding_with_pp: Capability[bool]
    """Whether ZeRO 2 and 3 run with a pipeline."""
    tied_embeddings_with_pp: Capability[bool]
    """Whether a model whose embedding and output layer share weights runs in a pipeline."""
    partition: Capability[tuple[Partition, ...]]
    recompute: Capability[tuple[str, ...]]
    """Granularities, and the modules that it can select."""
    offload: Capability[tuple[Offload, ...]]
    hsdp: Capability[bool]
    """Whether several groups of ranks may each hold a set of shards."""
    ep: Capability[bool]
    etp: Capability[bool]
    """Whether several ranks may share each expert."""
    zero_with_ep: Capability[tuple[int, ...]]
    """Stages of ZeRO that run with ep > 1; empty if the framework has no expert parallelism."""
    dispatcher: Capability[tuple[Dispatcher, ...]]
    """Empty where the framework has no expert parallelism."""
    moe_overlap: Capability[bool]
    """Whether the exchange of tokens overlaps with another microbatch's pass."""
    precision: Capability[tuple[Precision, ...]]
    precision_recipe: Capability[tuple[PrecisionRecipe, ...]]
    """Recipes for fp8, the default first, and for fp4."""
    optimizer: Capability[tuple[Optimizer, ...]]
    attention: Capability[tuple[Attention, ...]]
    delta_net: Capability[tuple[Literal["tp", "cp"], ...]]
    """Degrees whose ranks share the heads of Gated DeltaNet instead of computing all of them."""
    alibi_attention: tuple[Attention, ...] | None = None
    """The attention kernels that take ALiBi's biases; None: all of them."""
    formats: tuple[str, ...]
    """Formats of `tuner export`."""
    log: str
    """The log that its jobs write."""
    forks: tuple[Fork, ...] = ()
    """Variants, one of which must run the whole topology; empty: a single one."""

    def capabilities(self) -> Iterator[tuple[str, Capability[Any]]]:
        """Yield every capability with its name, in order."""
        for each in fields(self):
            if isinstance(value := getattr(self, each.name), Capability):
                yield each.name, value

    @property
    def separates_sharding_and_pp(self) -> bool:
        """Whether it has both a pipeline and ZeRO 2 and 3, but not together."""
        return self.pp.value and not self.sharding_with_pp.value

    def pipelines(self, model: Model) -> bool:
        """Return whether it runs the model in a pipeline."""
        return self.pp.value and (self.tied_embeddings_with_pp.value or not model.tied_embeddings)

    def has_fork_for(self, model: Model) -> bool:
        """Return whether one of its forks, if it has any, can train the model."""
        return not self.forks or bool(self._forks_for(model))

    def whole_delta_net(self, model: Model) -> list[str]:
        """Return the degrees whose ranks would each compute all heads of the model's Gated DeltaNet."""
        if model.delta_net is None:
            return []
        return [degree for degree in ("tp", "cp") if degree not in self.delta_net.value]

    def document(self) -> dict[str, Any]:
        """Return the record as a JSON document."""
        return {
            "name": self.name,
            "upstream": self.upstream,
            "formats": list(self.formats),
            "log": self.log,
            "capabilities": {
                name: {"value": capability.value, "source": capability.source, "note": capability.note}
                for name, capability in self.capabilities()
            },
            "forks": [{"name": fork.name, "source": fork.source} for fork in self.forks],
        }

    def kernels(self, model: Model) -> list[Attention]:
        """Return the attention kernels with which a fork can train the model."""
        forks = self._forks_for(model)
        return [
            kernel
            for kernel in self._kernels_for(model)
            if not forks or any(kernel in fork.attention for fork in forks)
        ]

    def _forks_for(self, model: Model) -> list[Fork]:
        return [fork for fork in self.forks if not fork.model_lacks(model)]

    def _kernels_for(self, model: Model) -> tuple[Attention, ...]:
        biased = model.positions == "alibi" and self.alibi_attention is not None
        return self.alibi_attention or () if biased else self.attention.value

    def missing_of_topology(self, workload: Workload, topology: Topology) -> list[str]:
        """Return the properties of a topology that the framework lacks."""
        lacks = {
            "tp": topology.tp > 1 and not self.tp.value,
            "pp": topology.pp > 1 and not self.pipelines(workload.model),
            "cp": topology.cp > 1 and not self.cp.value,
            "delta-net": any(getattr(topology, degree) > 1 for degree in self.whole_delta_net(workload.model)),
            "vpp": topology.vpp > 1 and not self.vpp.value,
            "partition": topology.partition == "layout" and "layout" not in self.partition.value,
            "sequence-parallel": topology.sequence_parallel and not self.sequence_parallel.value,
            "zero": topology.zero not in self.zero.value,
            "zero-with-pp": topology.zero > 1 and topology.pp > 1 and self.separates_sharding_and_pp,
            "recompute": not is_among(topology.recompute, self.recompute.value),
            "hsdp": topology.hsdp > 1 and not self.hsdp.value,
            "ep": topology.ep > 1 and not self.ep.value,
            "zero-with-ep": topology.ep > 1 and self.ep.value and topology.zero not in self.zero_with_ep.value,
            "etp": topology.etp > 1 and not self.etp.value,
            "dispatcher": (
                (topology.ep > 1 or topology.dispatcher != EXPERT_AXES["dispatcher"])
                and topology.dispatcher not in self.dispatcher.value
            ),
            "moe-overlap": topology.moe_overlap and not self.moe_overlap.value,
            "offload": topology.offload not in self.offload.value,
            "fork": bool(self.forks) and all(fork.lacks(workload, topology) for fork in self.forks),
        }
        return [name for name, missing in lacks.items() if missing]

    def missing_of_workload(self, workload: Workload) -> dict[str, str]:
        """Return the properties of a workload that the framework lacks, by name, as words of a sentence."""
        found = {}
        if workload.precision not in self.precision.value:
            found["precision"] = f"{workload.precision} training"
        if workload.precision_recipe and workload.precision_recipe not in self.precision_recipe.value:
            found["precision_recipe"] = f"{workload.precision_recipe} recipe"
        if workload.optimizer not in self.optimizer.value:
            found["optimizer"] = f"optimizer {workload.optimizer}"
        if workload.attention not in self.attention.value:
            found["attention"] = f"{workload.attention} attention"
        elif workload.attention not in self._kernels_for(workload.model):
            found["attention"] = f"{workload.attention} attention with ALiBi"
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A variant of a framework, by what it lacks."""

    name: str
    model_lacks: Callable[[Model], bool]
    """Returns whether it lacks something that the model has."""
    attention: tuple[Attention, ...]
    partition: tuple[Partition, ...]
    recompute: tuple[str, ...]
    zero: tuple[int, ...]
    offload: tuple[Offload, ...]
    source: str

    def lacks_workload(self, workload: Workload) -> bool:
        """Return whether it cannot train the workload in any topology."""
        return self.model_lacks(workload.model) or workload.attention not in self.attention

    def lacks(self, workload: Workload, topology: Topology) -> bool:
        """Return whether it cannot run the topology."""
        return (
            self.lacks_workload(workload)
            or topology.partition not in self.partition
            or not is_among(topology.recompute, self.recompute)
            or topology.zero not in self.zero
            or topology.offload not in self.offload
        )
