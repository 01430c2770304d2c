"""Ways to spread a model side by side: the largest batch of each, its worth, and why one is better, term by term."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.core.columns import Columns
from tuner.core.domain import Cluster, Model, Topology, Workload
from tuner.core.outcomes import Estimate
from tuner.costmodel.estimate import CostModel as Physics
from tuner.sizing.max_batch import MaxBatchResult, answer
from tuner.sizing.probes import EstimateProbe, TableProbe, lattice_for, one_batch, series, usable_bytes
from tuner.sizing.strategies import Found, look_for
from tuner.tables import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way to train one model."""

    label: str
    """What tells it from the others: `tp=4`."""
    topology: Topology
    workload: Workload
    cluster: Cluster
    answer: MaxBatchResult

    @property
    def model(self) -> Model:
        """What is trained."""
        return self.workload.model

    @property
    def best(self) -> Any:
        """The worth of its largest batch; None where nothing fits."""
        return next((each for each in self.answer.worth if each.micro_batch == self.answer.found.largest), None)

    @property
    def fastest(self) -> Any:
        """The worth of the batch with the most tokens a second."""
        timed = [each for each in self.answer.worth if each.tokens_per_second]
        return max(timed, key=lambda each: each.tokens_per_second or 0.0, default=None)

    @property
    def next_would_fit(self) -> int | None:
        """Twice the largest batch of all ranks, where nobody tried it and the line says that it fits."""
        line, found = self.answer.fit, self.answer.found
        if not found.open_end or line is None or not found.largest:
            return None
        twice = 2 * found.largest
        return twice * self.topology.dp if line.at(twice) <= self.answer.usable * _SAFE else None


_SAFE = 0.95
"""A line of figures that lack the context is held against a little less than the card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """Two options at the same number of sequences a step."""

    step_batch: int
    seconds: tuple[float | None, float | None]
    memory: tuple[float | None, float | None]

    @property
    def slower(self) -> float | None:
        """How many times as long the second takes."""
        first, second = self.seconds
        return second / first if first and second else None

    @property
    def fuller(self) -> float | None:
        """How many times the memory of the first the second takes."""
        first, second = self.memory
        return second / first if first and second else None


def label_of(topology: Topology, axes: Sequence[str]) -> str:
    """`tp=4`: the values of the axes that are compared."""
    return ", ".join(f"{axis}={getattr(topology, axis)}" for axis in axes)


def by_estimate(
    topologies: Iterable[Topology],
    workload: Workload,
    cluster: Cluster,
    physics: Physics,
    *,
    axes: Sequence[str],
    batches: Sequence[int],
    global_batch: int | None,
    margin: float,
) -> list[Option]:
    """Every topology with its largest batch, as the model has it."""
    made = []
    for topology in topologies:
        probe = EstimateProbe(workload=workload, cluster=cluster, topology=topology, model=physics)
        usable = usable_bytes(cluster)
        found = look_for("ramp", lattice_for(batches, start=1, strategy="ramp", increment=1, room=usable), probe)
        own = _answered(found, topology, workload, cluster, batches, global_batch, margin, estimated=True)
        made.append(
            Option(label=label_of(topology, axes), topology=topology, workload=workload, cluster=cluster, answer=own)
        )
    return made


def by_table(rows: Iterable[Row], *, axes: Sequence[str], global_batch: int | None, margin: float) -> list[Option]:
    """Every series of a table with its largest batch: all its rows are taken in."""
    made = []
    for own in series(rows).values():
        run = own.first
        found = _whole(own)
        answered = _answered(
            found, run.topology, run.workload, run.cluster, own.batches, global_batch, margin, estimated=False
        )
        label = label_of(run.topology, axes)
        made.append(
            Option(label=label, topology=run.topology, workload=run.workload, cluster=run.cluster, answer=answered)
        )
    return made


def _whole(own: TableProbe) -> Found:
    attempts = tuple(own(batch) for batch in own.batches)
    return Found(attempts=attempts, open_end=attempts[-1].fits)


def _answered(
    found: Found,
    topology: Topology,
    workload: Workload,
    cluster: Cluster,
    batches: Sequence[int],
    global_batch: int | None,
    margin: float,
    *,
    estimated: bool,
) -> MaxBatchResult:
    return answer(
        found,
        source="estimate" if estimated else "table",
        strategy="ramp",
        batches=batches,
        card=cluster.gpu.memory,
        usable=usable_bytes(cluster),
        margin=margin,
        dp=topology.dp,
        seq=workload.model.seq,
        global_batch=global_batch,
        tokens=workload.training_tokens,
    )


def matched(first: Option, second: Option) -> list[Matched]:
    """Both at each number of sequences a step that both ran."""
    one, other = (
        {each.micro_batch * option.topology.dp: each for each in option.answer.found.attempts if each.fits}
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


def reasons(first: Option, second: Option, step_batch: int, physics: Physics) -> tuple[Estimate, Estimate]:
    """Both at one number of sequences a step by the model's terms, whoever measured them."""

    def of(option: Option) -> Estimate:
        topology = one_batch(option.topology, max(1, step_batch // option.topology.dp))
        return physics.score(Columns.of([topology], option.workload, option.cluster)).estimate(0)

    return of(first), of(second)


def apart(one: Mapping[str, float], other: Mapping[str, float]) -> list[tuple[str, float, float]]:
    """Terms that differ, the largest difference first."""
    pairs = [(name, value, other[name]) for name, value in one.items() if value != other[name]]
    return sorted(pairs, key=lambda each: -abs(each[2] - each[1]))


def by_model(options: Iterable[Option]) -> list[list[Option]]:
    """Options of one model together, smaller models first."""
    groups: dict[tuple[int, int, int], list[Option]] = {}
    for option in options:
        model = option.model
        groups.setdefault((model.parameters, model.layers, model.heads), []).append(option)
    return [groups[key] for key in sorted(groups)]
