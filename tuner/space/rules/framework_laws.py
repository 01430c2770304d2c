"""Laws of the workload's framework: what it cannot run is not searched. They apply only if a framework is specified."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np

from tuner.core.capabilities import Fork, FrameworkRecord
from tuner.core.columns import Columns
from tuner.core.domain import DISPATCHERS, EXPERT_AXES, LAYOUT, PARTITION, Framework, Workload
from tuner.core.frameworks import RECORDS, capable, record_of
from tuner.core.model import Model
from tuner.core.offload import OFFLOAD
from tuner.core.precision import bf16_layers, recipe_of, stores_fp8_weights
from tuner.core.recompute import GRANULARITIES, MODULES, RECOMPUTE, is_among
from tuner.core.text import either, listed
from tuner.space.rules.rule import Rule

_SOURCE: Final = "`tuner catalog frameworks` lists the source for each framework"
_FP8_WEIGHTS: Final = "NVIDIA/Megatron-LM at d98e8a64, megatron/training/arguments.py: fp8_param_gather"


def _law(
    name: str,
    sentence: str,
    *,
    reads: tuple[str, ...],
    vary: tuple[str, ...],
    lacks: Callable[[FrameworkRecord, Workload], bool],
    broken: Callable[[Columns, FrameworkRecord], Any],
    numbers: Callable[[Columns, FrameworkRecord], str],
) -> Rule:
    """Return a law that applies if the workload's framework lacks a capability that the workload needs."""

    def binding(workload: Workload) -> bool:
        record = record_of(workload)
        return record is not None and lacks(record, workload)

    def breaks(columns: Columns) -> Any:
        record = record_of(columns.workload)
        return np.False_ if record is None else broken(columns, record)

    def message(columns: Columns) -> str:
        record = record_of(columns.workload)
        return f"{numbers(columns, record)}{elsewhere(columns)}" if record else ""

    return Rule(
        name=f"framework-{name}",
        level="law",
        sentence=sentence,
        source=_SOURCE,
        reads=reads,
        vary=vary,
        broken=breaks,
        numbers=message,
        binding=binding,
    )


def _has_no(axis: str, record: FrameworkRecord) -> bool:
    return not getattr(record, axis).value


def _degree_law(axis: str, sentence: str, lack: str) -> Rule:
    """Return the law that a degree is 1 in a framework that lacks this kind of parallelism."""
    return _law(
        axis,
        sentence,
        reads=(axis,),
        vary=(axis,),
        lacks=lambda record, _: _has_no(axis, record),
        broken=lambda columns, record: (getattr(columns, axis) > 1) & _has_no(axis, record),
        numbers=lambda columns, record: f"{record.name} {lack}, but {axis} is {getattr(columns, axis)}",
    )


def _switch_law(axis: str, sentence: str, *, over: str, lack: str) -> Rule:
    """Return the law that an axis is off in a framework that lacks it; the message ends with the ranks of a degree."""
    return _law(
        axis.replace("_", "-"),
        sentence,
        reads=(axis, over),
        vary=(axis,),
        lacks=lambda record, _: _has_no(axis, record),
        broken=lambda columns, record: (getattr(columns, axis) == 1) & _has_no(axis, record),
        numbers=lambda columns, record: f"{record.name} {lack} {over}={getattr(columns, over)} ranks",
    )


def _not_among(codes: Any, values: tuple[Any, ...], words: tuple[Any, ...]) -> Any:
    """Return whether each code stands for a word that is not among the values."""
    return ~np.isin(codes, [words.index(value) for value in values])


def _recomputes_else(columns: Columns, values: tuple[str, ...]) -> Any:
    """Return whether each row's recompute is none of these granularities, and selects none of these modules."""
    return ~np.isin(columns.recompute, _recompute_codes(values))


@cache
def _recompute_codes(values: tuple[str, ...]) -> list[int]:
    """Return the indices into `RECOMPUTE` of what a framework with these granularities and modules can recompute."""
    return [code for code, recompute in enumerate(RECOMPUTE) if is_among(recompute, values)]


def _fork_lacks(columns: Columns, fork: Fork) -> Any:
    if fork.lacks_workload(columns.workload):
        return np.True_
    return (
        _not_among(columns.partition, fork.partition, PARTITION)
        | _recomputes_else(columns, fork.recompute)
        | ~np.isin(columns.zero, fork.zero)
    )


def _no_fork(columns: Columns, record: FrameworkRecord) -> Any:
    lacks: Any = np.bool_(bool(record.forks))
    for fork in record.forks:
        lacks = lacks & _fork_lacks(columns, fork)
    return lacks


def _no_fork_offloads(columns: Columns, record: FrameworkRecord) -> Any:
    """Return whether each fork lacks either the row's offload or something else of it."""
    lacks: Any = np.bool_(bool(record.forks))
    for fork in record.forks:
        lacks = lacks & (_fork_lacks(columns, fork) | _not_among(columns.offload, fork.offload, OFFLOAD))
    return lacks


def _dispatchers(record: FrameworkRecord) -> str:
    """Return how a framework dispatches tokens, before the name of another dispatcher."""
    offered = record.dispatcher.value
    return f"tokens by {either(offered)}, not" if offered else "no tokens to experts, but the dispatcher is"


FRAMEWORK_LAWS: Final[tuple[Rule, ...]] = (
    _law(
        "pp",
        "the framework supports pipelines (pp > 1), and those of models with tied embeddings",
        reads=("pp",),
        vary=("pp",),
        lacks=lambda record, workload: not record.pipelines(workload.model),
        broken=lambda c, record: (c.pp > 1) & (not record.pipelines(c.workload.model)),
        numbers=lambda c, record: (
            f"{record.name} has no pipeline{' with tied embeddings' if record.pp.value else ''}, but pp is {c.pp}"
        ),
    ),
    _degree_law("cp", "the framework supports context parallelism (cp > 1)", "has no context parallelism"),
    _degree_law("vpp", "the framework supports interleaved pipelines (vpp > 1)", "does not interleave a pipeline"),
    _degree_law("ep", "the framework supports expert parallelism (ep > 1)", "has no expert parallelism"),
    _degree_law(
        "etp", "the framework supports expert tensor parallelism (etp > 1)", "has no expert tensor parallelism"
    ),
    _law(
        "zero-with-ep",
        "the framework supports the ZeRO stage with expert parallelism (ep > 1)",
        reads=("ep", "zero"),
        vary=("zero", "ep"),
        lacks=lambda record, _: record.ep.value and set(record.zero_with_ep.value) != set(record.zero.value),
        broken=lambda c, record: (c.ep > 1) & record.ep.value & ~np.isin(c.zero, record.zero_with_ep.value),
        numbers=lambda c, record: (
            f"{record.name} supports ZeRO {listed(record.zero_with_ep.value)} with ep={c.ep}, not {c.zero}"
        ),
    ),
    _law(
        "dispatcher",
        "the framework supports the dispatcher",
        reads=("dispatcher",),
        vary=("dispatcher",),
        lacks=lambda record, _: set(record.dispatcher.value) != set(DISPATCHERS),
        broken=lambda c, record: (
            _not_among(c.dispatcher, record.dispatcher.value, DISPATCHERS)
            & (c.dispatcher != DISPATCHERS.index(EXPERT_AXES["dispatcher"]))
        ),
        numbers=lambda c, record: f"{record.name} dispatches {_dispatchers(record)} {DISPATCHERS[int(c.dispatcher)]}",
    ),
    _switch_law(
        "moe_overlap",
        "the framework can overlap the exchange of tokens",
        over="ep",
        lack="cannot overlap the exchange of tokens, here among",
    ),
    _law(
        "partition",
        "the framework supports the partition of layers over stages",
        reads=("partition", "pp", "vpp"),
        vary=("partition", "pp"),
        lacks=lambda record, _: "layout" not in record.partition.value,
        broken=lambda c, record: (c.partition == LAYOUT) & ("layout" not in record.partition.value),
        numbers=lambda c, record: (
            f"{record.name} cannot give the last of pp x vpp = {c.pp} x {c.vpp} chunks fewer layers"
        ),
    ),
    _switch_law(
        "sequence_parallel",
        "the framework supports sequence parallelism",
        over="tp",
        lack="has no sequence parallelism over",
    ),
    _law(
        "zero",
        "the framework supports the ZeRO stage; full sharding is 3",
        reads=("zero",),
        vary=("zero",),
        lacks=lambda record, _: set(record.zero.value) != {0, 1, 2, 3},
        broken=lambda c, record: ~np.isin(c.zero, record.zero.value),
        numbers=lambda c, record: f"{record.name} supports ZeRO {listed(record.zero.value)}, not {c.zero}",
    ),
    _law(
        "recompute",
        "the framework supports the recompute granularity and modules",
        reads=("recompute", "layers"),
        vary=("recompute",),
        lacks=lambda record, _: set(record.recompute.value) != {*GRANULARITIES, *MODULES},
        broken=lambda c, record: _recomputes_else(c, record.recompute.value),
        numbers=lambda c, record: (
            f"{record.name} recomputes {either(record.recompute.value)} of its {c.layers} layers, "
            f"not {RECOMPUTE[int(c.recompute)]}"
        ),
    ),
    _degree_law("hsdp", "the framework supports hybrid sharding (hsdp > 1)", "has no hybrid sharding"),
    _law(
        "offload",
        "the framework supports the offload",
        reads=("offload", "partition", "zero", "recompute"),
        vary=("offload",),
        lacks=lambda record, _: set(record.offload.value) != set(OFFLOAD) or bool(record.forks),
        broken=lambda c, record: (
            _not_among(c.offload, record.offload.value, OFFLOAD) | ((c.offload > 0) & _no_fork_offloads(c, record))
        ),
        numbers=lambda c, record: (
            f"{record.name} supports offload {either(record.offload.value)}, not {OFFLOAD[int(c.offload)]}"
            + (f", with {PARTITION[int(c.partition)]} partition, ZeRO {c.zero} and this model" if record.forks else "")
        ),
    ),
    Rule(
        name="fp8-weights-need-zero",
        level="law",
        sentence="weights stored in fp8 need ZeRO 1",
        source=_FP8_WEIGHTS,
        reads=("zero",),
        vary=("zero",),
        broken=lambda c: c.zero < 1,
        numbers=lambda c: f"the distributed optimizer updates weights stored in fp8, but ZeRO is {c.zero}",
        binding=stores_fp8_weights,
    ),
    Rule(
        name="fp8-weights-without-offload",
        level="law",
        sentence="weights stored in fp8 exclude offload of the optimizer, except with delayed scaling",
        source=_FP8_WEIGHTS,
        reads=("offload",),
        vary=("offload",),
        broken=lambda c: c.offload > 0,
        numbers=lambda c: (
            f"with {recipe_of(c.workload)} scaling, weights stored in fp8 exclude offload {OFFLOAD[int(c.offload)]}"
        ),
        binding=lambda workload: stores_fp8_weights(workload) and recipe_of(workload) != "delayed",
    ),
    Rule(
        name="bf16-moments-need-zero",
        level="law",
        sentence="moments in bf16 need ZeRO 1 and exclude offload of the optimizer, whose moments are in fp32",
        source="NVIDIA/Megatron-LM at d98e8a64, megatron/core/optimizer/__init__.py: use_precision_aware_optimizer; "
        "core/optimizer/cpu_offloading/hybrid_optimizer.py: param_update_in_fp32",
        reads=("zero", "offload"),
        vary=("zero", "offload"),
        broken=lambda c: (c.zero < 1) | (c.offload > 0),
        numbers=lambda c: f"ZeRO {c.zero} with offload {OFFLOAD[int(c.offload)]} cannot keep moments in bf16",
        binding=lambda workload: workload.framework == "megatron-core" and workload.optimizer == "adam-bf16",
    ),
    Rule(
        name="muon-without-offload",
        level="law",
        sentence="Muon excludes offload of the optimizer",
        source="NVIDIA/Megatron-LM at d98e8a64, megatron/core/optimizer/__init__.py: only Adam and SGD are built with "
        "optimizer_cpu_offload",
        reads=("offload",),
        vary=("offload",),
        broken=lambda c: c.offload > 0,
        numbers=lambda c: f"Muon cannot be combined with offload {OFFLOAD[int(c.offload)]}",
        binding=lambda workload: workload.framework == "megatron-core" and workload.optimizer == "muon",
    ),
    Rule(
        name="bf16-layers-in-stage",
        level="law",
        sentence="at most as many first or last layers stay in bf16 as a pipeline stage has",
        source="NVIDIA/Megatron-LM at d98e8a64, megatron/core/transformer/transformer_config.py: "
        "max_bf16_layers_per_pipeline_stage",
        reads=("layers", "pp"),
        vary=("pp",),
        broken=lambda c: c.layers // c.pp < max(bf16_layers(c.workload)),
        numbers=lambda c: (
            f"{max(bf16_layers(c.workload))} layers stay in bf16 at one end, but a stage of pp={c.pp} has "
            f"{c.layers // c.pp}"
        ),
        binding=lambda workload: workload.precision == "fp8" and any(bf16_layers(workload)),
    ),
    _law(
        "delta-net",
        "tp and cp are 1 with Gated DeltaNet where the framework computes all its heads on each of their ranks",
        reads=("tp", "cp"),
        vary=("tp", "cp"),
        lacks=lambda record, workload: bool(record.whole_delta_net(workload.model)),
        broken=lambda c, record: np.logical_or.reduce(
            [getattr(c, degree) > 1 for degree in record.whole_delta_net(c.workload.model)]
        ),
        numbers=lambda c, record: (
            f"{record.name} computes all heads of Gated DeltaNet on each of "
            + " x ".join(
                f"{degree}={ranks}"
                for degree in record.whole_delta_net(c.workload.model)
                if (ranks := getattr(c, degree)) > 1
            )
            + " ranks"
        ),
    ),
    _law(
        "fork",
        "one of the framework's forks supports the partition, recompute, ZeRO stage, attention kernel and model",
        reads=("partition", "pp", "zero", "recompute"),
        vary=("recompute", "zero", "pp", "partition"),
        lacks=lambda record, _: bool(record.forks),
        broken=_no_fork,
        numbers=lambda c, record: (
            f"no fork of {record.name} ({listed(fork.name for fork in record.forks)}) has "
            f"{PARTITION[int(c.partition)]} partition over pp={c.pp}, ZeRO {c.zero} and "
            f"{RECOMPUTE[int(c.recompute)]} recompute for this model with {c.workload.attention} attention"
        ),
    ),
)

_OWN: Final[dict[str, Callable[[FrameworkRecord, Model], Any]]] = {
    "framework-pp": lambda record, model: record.pipelines(model),
    "framework-cp": lambda record, model: record.cp.value and "cp" not in record.whole_delta_net(model),
    "framework-vpp": lambda record, model: record.vpp.value and record.pipelines(model),
    "framework-ep": lambda record, _: record.ep.value,
    "framework-etp": lambda record, _: record.etp.value,
    "framework-zero-with-ep": lambda record, _: record.zero_with_ep.value,
    "framework-moe-overlap": lambda record, _: record.moe_overlap.value,
    "framework-dispatcher": lambda record, _: record.dispatcher.value,
    "framework-partition": lambda record, _: record.partition.value,
    "framework-sequence-parallel": lambda record, model: (
        record.sequence_parallel.value and "tp" not in record.whole_delta_net(model)
    ),
    "framework-zero": lambda record, _: record.zero.value,
    "framework-recompute": lambda record, _: record.recompute.value,
    "framework-hsdp": lambda record, _: record.hsdp.value,
    "framework-offload": lambda record, _: record.offload.value,
    "framework-delta-net": lambda record, _: record.delta_net.value,
    "framework-fork": lambda record, _: not record.forks,
    "zero-without-pipeline": lambda record, model: record.sharding_with_pp.value and record.pipelines(model),
}
"""A framework's values, for a model, of the property that a rule checks."""
OF_EXPERTS: Final = frozenset(
    f"framework-{feature}" for feature in ("ep", "etp", "zero-with-ep", "moe-overlap", "dispatcher")
)
"""Rules that a model without experts breaks under every framework."""


def frameworks_with_more(rule: str, workload: Workload) -> list[Framework]:
    """Return the other frameworks that support some of what a rule rejects for the workload's own framework."""
    own = record_of(workload)
    if own is None or rule not in _OWN:
        return []
    has, model = _OWN[rule], workload.model
    if rule in OF_EXPERTS and model.experts is None:
        return []

    def more(record: FrameworkRecord) -> bool:
        value = has(record, model)
        return bool(set(value) - set(has(own, model))) if isinstance(value, tuple) else bool(value)

    return capable(workload, more)


def elsewhere(columns: Columns) -> str:
    """Return which other frameworks run the topology of the only row, as the end of a sentence."""
    workload = columns.workload
    if workload.framework is None:
        return ""
    arrays = {name: np.atleast_1d(np.asarray(array)) for name, array in columns.arrays.items()}
    topology = Columns(workload, columns.cluster, arrays).topology(0)
    able = [
        name
        for name, record in RECORDS.items()
        if not record.missing_of_topology(workload, topology) and not record.missing_of_workload(workload)
    ]
    return f"; {either(able)} could run it (--framework)" if able else ""
