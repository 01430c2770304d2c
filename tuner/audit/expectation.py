"""Predict the seconds of a row from its neighbours.

The prediction is the weighted median time per FLOP of runs that differ little, each corrected for its pipeline bubble.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tuner.audit.flop_conventions import hardware
from tuner.audit.printed_row import PrintedRow
from tuner.core.domain import Topology, Workload

_AXES: Final[tuple[tuple[float, Callable[[Topology, Workload], float]], ...]] = (
    (0.5, lambda topology, _: topology.micro_batch),
    (2.0, lambda topology, _: topology.tp),
    (0.4, lambda topology, _: topology.pp),
    (0.3, lambda topology, _: topology.dp * topology.cp),
    (0.15, lambda _, workload: workload.global_batch),
    (1.5, lambda _, workload: workload.model.hidden),
    (0.3, lambda _, workload: workload.model.layers),
    (1.0, lambda _, workload: workload.model.heads),
    (0.7, lambda _, workload: workload.model.seq),
    (0.3, lambda topology, _: 2.0**topology.zero),
)
"""Distance between two runs that differ by one doubling (for zero: by one stage), and the size that is doubled."""
_OTHER_KERNEL: Final = 1.0
"""Distance between runs that differ in recompute, attention kernel, sequence parallelism or norms."""
_OTHER_GROUP: Final = 0.25
_MAX_DISTANCE: Final = 1.6
_MAX_POOL: Final = 4000
"""Rows of one machine compared pairwise; a longer table is split into pools of this size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The time predicted for a row from its neighbours."""

    seconds: float
    """Prediction at equal time per FLOP."""
    same: float
    """Prediction at equal time, which fixed costs alone would give."""
    spread: float
    """Standard deviation of log(measured / predicted) in this table."""
    nearest: float
    """Distance of the nearest neighbour; 0 for the same run."""
    neighbours: int


def expected_seconds(cases: Mapping[int, PrintedRow]) -> dict[int, Expectation]:
    """Return the prediction for each timed row that has neighbours: similar rows of the same machine."""
    pools: dict[Any, list[int]] = {}
    for index, case in cases.items():
        if case.row.timed:
            run = case.run
            machine = (run.cluster.gpu.name, run.cluster.gpus_per_node, run.workload.precision)
            pools.setdefault(machine, []).append(index)
    found: dict[int, Expectation] = {}
    for indices in pools.values():
        for start in range(0, len(indices), _MAX_POOL):
            found |= _of_pool(indices[start : start + _MAX_POOL], cases)
    return found


def log_work(case: PrintedRow) -> float:
    """Return log(FLOPs / (GPUs x peak) x bubble): the logarithm of the time at peak speed."""
    return float(np.log(hardware(case.terms) / case.gpus / case.peak * case.bubble))


def _of_pool(indices: Sequence[int], cases: Mapping[int, PrintedRow]) -> dict[int, Expectation]:
    if len(indices) < 2:
        return {}
    members = [cases[index] for index in indices]
    axes = np.array([_axes(case) for case in members])
    kernels = np.array([_kernels(case) for case in members])
    groups = np.array([case.row.group for case in members])
    work = np.array([log_work(case) for case in members])
    slowness = np.log([case.row.seconds or 1.0 for case in members]) - work
    numbered: dict[Any, int] = {}
    printed = [(case.identity, case.row.cells.get("sec_per_iter")) for case in members]
    same = np.array([numbered.setdefault(text, number) for number, text in enumerate(printed)])
    reprint = same != np.arange(len(same))
    guesses: dict[int, tuple[float, float, float, int]] = {}
    for number in range(len(indices)):
        distance = np.abs(axes - axes[number]).sum(axis=1)
        distance += _OTHER_KERNEL * (kernels != kernels[number]).sum(axis=1) + _OTHER_GROUP * (groups != groups[number])
        distance[reprint | (same == same[number])] = np.inf
        near = distance <= _MAX_DISTANCE
        if near.any():
            weight = np.exp(-3.0 * distance[near])
            by_work, by_time = _median(slowness[near], weight), _median((slowness + work)[near], weight)
            guesses[number] = (by_work, by_time, float(distance[near].min()), int(near.sum()))
    off = np.array([slowness[number] - guess[0] for number, guess in guesses.items()])
    spread = 1.4826 * float(np.median(np.abs(off))) if len(off) else 0.0
    return {
        indices[number]: Expectation(
            seconds=float(np.exp(by_work + work[number])),
            same=float(np.exp(by_time)),
            spread=spread,
            nearest=nearest,
            neighbours=neighbours,
        )
        for number, (by_work, by_time, nearest, neighbours) in guesses.items()
    }


def _axes(case: PrintedRow) -> list[float]:
    return [weight * float(np.log2(size(case.run.topology, case.run.workload))) for weight, size in _AXES]


def _kernels(case: PrintedRow) -> list[str]:
    topology, workload = case.run.topology, case.run.workload
    return [
        *(topology.recompute, workload.attention, str(topology.sequence_parallel), str(workload.fused_norms)),
        str(case.identity[-1]),
    ]


def _median(values: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]) -> float:
    order = values.argsort()
    share = weights[order].cumsum() / weights.sum()
    return float(values[order][int(np.searchsorted(share, 0.5))])
