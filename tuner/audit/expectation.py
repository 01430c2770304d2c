"""The seconds that a row's neighbours lead one to expect.

For now by operations: time per operation among runs that differ little, each corrected for its pipeline's bubble. The
analytic model of a step can take this function's place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tuner.audit.flop_conventions import hardware
from tuner.audit.printed_row import PrintedRow

_WEIGHTS: Final = {
    "micro_batch": 0.5,
    "tp": 2.0,
    "pp": 0.4,
    "dp": 0.3,
    "batch": 0.15,
    "hidden": 1.5,
    "layers": 0.3,
    "heads": 1.0,
    "seq": 0.7,
    "zero": 0.3,
}
"""How far one doubling (of zero: one stage) takes two runs apart."""
_OTHER_KIND: Final = 1.0
"""As far apart are runs that differ in recompute, attention kernel, sequence parallelism or norms."""
_OTHER_GROUP: Final = 0.25
_FARTHEST: Final = 1.6
_LARGEST_POOL: Final = 4000
"""Rows of one machine that are compared each with each; a longer table is cut into such pieces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What the neighbours of a row say of its time."""

    seconds: float
    """As long for each operation as they take."""
    same: float
    """As long as they take, whatever their operations: what fixed costs alone would make."""
    spread: float
    """How well neighbours foretell each other in this table, as a standard deviation of logarithms."""
    nearest: float
    """How far the nearest of them is; 0 for a row of the very same run."""
    neighbours: int


def expected_seconds(cases: Mapping[int, PrintedRow]) -> dict[int, Expectation]:
    """Expected seconds of each timed row that has neighbours: rows of the same machine that differ little from it."""
    pools: dict[Any, list[int]] = {}
    for place, case in cases.items():
        if case.row.timed:
            run = case.run
            machine = (run.cluster.gpu.name, run.cluster.gpus_per_node, run.workload.precision)
            pools.setdefault(machine, []).append(place)
    found: dict[int, Expectation] = {}
    for places in pools.values():
        for start in range(0, len(places), _LARGEST_POOL):
            found |= _of_pool(places[start : start + _LARGEST_POOL], cases)
    return found


def log_work(case: PrintedRow) -> float:
    """Logarithm of the seconds that the operations of the fullest stage would take at the peak, bubble included."""
    return float(np.log(hardware(case.terms) / case.gpus / case.peak * case.bubble))


def _of_pool(places: Sequence[int], cases: Mapping[int, PrintedRow]) -> dict[int, Expectation]:
    if len(places) < 2:
        return {}
    members = [cases[place] for place in places]
    axes = np.array([_axes(case) for case in members])
    kinds = np.array([_kinds(case) for case in members])
    groups = np.array([case.row.group for case in members])
    work = np.array([log_work(case) for case in members])
    slowness = np.log([case.row.seconds or 1.0 for case in members]) - work
    numbered: dict[Any, int] = {}
    printed = [(case.identity, case.row.cells.get("sec_per_iter")) for case in members]
    same = np.array([numbered.setdefault(text, number) for number, text in enumerate(printed)])
    reprint = same != np.arange(len(same))
    guesses: dict[int, tuple[float, float, float, int]] = {}
    for number in range(len(places)):
        distance = np.abs(axes - axes[number]).sum(axis=1)
        distance += _OTHER_KIND * (kinds != kinds[number]).sum(axis=1) + _OTHER_GROUP * (groups != groups[number])
        distance[reprint | (same == same[number])] = np.inf
        near = distance <= _FARTHEST
        if near.any():
            weight = np.exp(-3.0 * distance[near])
            by_work, by_time = _median(slowness[near], weight), _median((slowness + work)[near], weight)
            guesses[number] = (by_work, by_time, float(distance[near].min()), int(near.sum()))
    off = np.array([slowness[number] - guess[0] for number, guess in guesses.items()])
    spread = 1.4826 * float(np.median(np.abs(off))) if len(off) else 0.0
    return {
        places[number]: Expectation(
            seconds=float(np.exp(by_work + work[number])),
            same=float(np.exp(by_time)),
            spread=spread,
            nearest=nearest,
            neighbours=neighbours,
        )
        for number, (by_work, by_time, nearest, neighbours) in guesses.items()
    }


def _axes(case: PrintedRow) -> list[float]:
    topology, workload = case.run.topology, case.run.workload
    model = workload.model
    sizes = {
        "micro_batch": topology.micro_batch,
        "tp": topology.tp,
        "pp": topology.pp,
        "dp": topology.dp * topology.cp,
        "batch": workload.global_batch,
        "hidden": model.hidden,
        "layers": model.layers,
        "heads": model.heads,
        "seq": model.seq,
        "zero": 2.0**topology.zero,
    }
    return [_WEIGHTS[name] * float(np.log2(size)) for name, size in sizes.items()]


def _kinds(case: PrintedRow) -> list[str]:
    topology, workload = case.run.topology, case.run.workload
    return [
        *(topology.recompute, workload.attention, str(topology.sequence_parallel), str(workload.fused_norms)),
        str(case.identity[-1]),
    ]


def _median(values: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]) -> float:
    order = values.argsort()
    share = weights[order].cumsum() / weights.sum()
    return float(values[order][int(np.searchsorted(share, 0.5))])
