"""Compare topologies of one model: the largest batch of each, its throughput, and the terms that differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tuner.core.columns import Columns
from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.model import Model
from tuner.core.outcomes import Estimate, TermSum
from tuner.costmodel.estimate import CostModel
from tuner.sizing.max_batch import MaxBatchResult, answer
from tuner.sizing.options import distinguishing
from tuner.sizing.probes import (
    EstimateProbe,
    TableProbe,
    grid_for,
    one_batch,
    pipeline_steps,
    series,
    usable_bytes,
)
from tuner.sizing.strategies import BatchSearch, look_for
from tuner.space.axes import Axes
from tuner.tables import MeasuredRun, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way to train one model."""

    label: str
    """The axes in which it differs from the others: `tp=4`."""
    topology: Topology
    workload: Workload
    cluster: Cluster
    answer: MaxBatchResult

    @property
    def model(self) -> Model:
        """Return its model."""
        return self.workload.model

    @property
    def title(self) -> str:
        """Return the model's name, heads and size."""
        name = "" if self.model.name == "unnamed" else f"{self.model.name}, "
        return f"{name}{self.model.heads} heads, {self.model.parameters / 1e9:.2f}B"

    @property
    def best(self) -> Any:
        """Return the throughput of its largest batch; None if nothing fits."""
        return next((batch for batch in self.answer.worth if batch.micro_batch == self.answer.found.largest), None)

    @property
    def fastest(self) -> Any:
        """Return the batch with the most tokens a second."""
        timed = [batch for batch in self.answer.worth if batch.tokens_per_second]
        return max(timed, key=lambda batch: batch.tokens_per_second or 0.0, default=None)

    @property
    def next_would_fit(self) -> int | None:
        """Return twice the largest batch of all ranks if the line predicts that it fits and it was not tried."""
        line, found = self.answer.fit, self.answer.found
        if not found.open_end or line is None or not found.largest:
            return None
        twice = 2 * found.largest
        return twice * self.topology.dp if line.at(twice) <= self.answer.usable * _SAFE_SHARE else None


_SAFE_SHARE = 0.95
"""Fraction of the usable memory that a predicted batch may need: the figures leave out the context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result of `tuner.compare`."""

    source: Literal["estimate", "table"]
    models: tuple[tuple[Option, ...], ...]
    """The options of each model, smaller models first."""
    cost_model: CostModel
    global_batch: int | None
    """The global batch that the user gave."""
    fixed: Axes = field(default_factory=dict)
    """The values of axes that are neither compared nor given by the user."""
    chose_recompute: bool = False
    """Whether each option has the recompute with which it is fastest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """Two options with the same number of sequences a step."""

    step_batch: int
    seconds: tuple[float | None, float | None]
    memory: tuple[float | None, float | None]

    @property
    def slower(self) -> float | None:
        """Return the second's time over the first's."""
        first, second = self.seconds
        return second / first if first and second else None

    @property
    def fuller(self) -> float | None:
        """Return the second's memory over the first's."""
        first, second = self.memory
        return second / first if first and second else None


def label_of(topology: Topology, axes: Sequence[str]) -> str:
    """Return the values of the compared axes: `tp=4`."""
    return ", ".join(f"{axis}={str(getattr(topology, axis)).lower()}" for axis in axes)


def by_estimate(
    topology: Topology,
    workload: Workload,
    cluster: Cluster,
    model: CostModel,
    *,
    axes: Sequence[str],
    batches: Sequence[int],
    global_batch: int | None,
    margin: float,
) -> Option:
    """Return a topology with its largest batch by the cost model."""
    probe = EstimateProbe(workload=workload, cluster=cluster, topology=topology, model=model, global_batch=global_batch)
    grid = grid_for(batches, start=1, strategy="ramp", increment=1, room=usable_bytes(cluster))
    run = MeasuredRun(workload=workload, cluster=cluster, topology=topology)
    found = look_for("ramp", grid, probe)
    return _option(run, found, "estimate", axes=axes, batches=batches, global_batch=global_batch, margin=margin)


def fastest(options: Iterable[Option]) -> Option:
    """Return the option with the most tokens a second; the first of equals, or the last if nothing fits."""
    *_, last = made = list(options)
    timed = [option for option in made if option.fastest]
    return max(timed, key=lambda option: option.fastest.tokens_per_second, default=last)


def with_recompute(options: Sequence[Option], axes: Sequence[str]) -> list[Option]:
    """Return the options with their recompute in their labels, unless none recomputes anything."""
    if all(option.topology.recompute == "none" for option in options):
        return list(options)
    return [replace(option, label=label_of(option.topology, [*axes, "recompute"])) for option in options]


def by_table(rows: Iterable[Row], *, axes: Sequence[str], global_batch: int | None, margin: float) -> list[Option]:
    """Return every series of a table with its largest batch, labelled by these axes and those that tell them apart."""
    probes = series(rows).values()
    axes = distinguishing([probe.first.topology for probe in probes], axes or ["tp"])
    return [
        _option(
            *(probe.first, _all_rows(probe), "table"),
            axes=axes,
            batches=probe.batches,
            global_batch=global_batch,
            margin=margin,
        )
        for probe in probes
    ]


def _all_rows(probe: TableProbe) -> BatchSearch:
    attempts = tuple(probe(batch) for batch in probe.batches)
    return BatchSearch(attempts=attempts, open_end=attempts[-1].fits)


def _option(
    run: MeasuredRun,
    found: BatchSearch,
    source: Literal["estimate", "table"],
    *,
    axes: Sequence[str],
    batches: Sequence[int],
    global_batch: int | None,
    margin: float,
) -> Option:
    """Return the topology of a run as an option, with what was found about its batches."""
    topology, workload, cluster = run.topology, run.workload, run.cluster
    largest = answer(
        found,
        source=source,
        strategy="ramp",
        batches=batches,
        card=cluster.gpu.memory,
        usable=usable_bytes(cluster),
        margin=margin,
        topology=topology,
        workload=workload,
        global_batch=global_batch,
    )
    label = label_of(topology, axes)
    return Option(label=label, topology=topology, workload=workload, cluster=cluster, answer=largest)


def matched(first: Option, second: Option) -> list[Matched]:
    """Return both options at each number of sequences a step that both ran."""
    one, other = (
        {result.micro_batch * option.topology.dp: result for result in option.answer.found.attempts if result.fits}
        for option in (first, second)
    )
    return [
        Matched(
            step_batch=batch,
            seconds=(one[batch].seconds, other[batch].seconds),
            memory=(one[batch].peak_memory, other[batch].peak_memory),
        )
        for batch in sorted(one.keys() & other.keys())
    ]


def reasons(
    first: Option, second: Option, step_batch: int, model: CostModel, *, global_batch: int | None = None
) -> tuple[Estimate, Estimate]:
    """Return the estimates of both options at one number of sequences an accumulation step."""
    return (
        estimate_at(first, step_batch, model, global_batch=global_batch),
        estimate_at(second, step_batch, model, global_batch=global_batch),
    )


def estimate_at(option: Option, step_batch: int, model: CostModel, *, global_batch: int | None = None) -> Estimate:
    """Return the estimate of an option at a number of sequences an accumulation step.

    The time of a pipeline is that of a step of the global batch, divided by its accumulation steps.
    """
    micro_batch = max(1, step_batch // option.topology.dp)
    steps = pipeline_steps(option.topology, micro_batch, global_batch) or 1
    topology = one_batch(option.topology, micro_batch, acc_steps=steps)
    found = model.score(Columns.of([topology], option.workload, option.cluster)).estimate(0)
    return replace(found, time=TermSum(terms={name: value / steps for name, value in found.time.terms.items()}))


def apart(one: Mapping[str, float], other: Mapping[str, float]) -> list[tuple[str, float, float]]:
    """Return the terms that differ, the largest difference first."""
    pairs = [(name, value, other[name]) for name, value in one.items() if value != other[name]]
    return sorted(pairs, key=lambda pair: -abs(pair[2] - pair[1]))


def by_model(options: Iterable[Option]) -> tuple[tuple[Option, ...], ...]:
    """Group the options by model, smaller models first."""
    groups: dict[tuple[int, int, int], list[Option]] = {}
    for option in options:
        model = option.model
        groups.setdefault((model.parameters, model.layers, model.heads), []).append(option)
    return tuple(tuple(groups[key]) for key in sorted(groups))
