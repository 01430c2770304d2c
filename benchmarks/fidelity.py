"""Trials at a reduced size: the node-hours they save, and the accuracy they cost.

    python -m benchmarks.fidelity [--clusters N] [--processes N] [--plot FILE]   # simulated clusters, full and auto
    python -m benchmarks.fidelity --drawn 200                      # other clusters, drawn with seeds from 200 on
    python -m benchmarks.fidelity --model llama-7b --nodes 4       # other sizes
    python -m benchmarks.fidelity --tables corpus                  # measured tables with several GPU counts

The simulated clusters have terms that the cost model lacks: network contention that grows with the number of nodes,
stragglers (an iteration waits for the slowest of all ranks) and slow start-up. On the misleading clusters, contention
triples the network time at full size, so that small jobs look too fast.
"""

from __future__ import annotations

import argparse
import math
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.judging import BUDGET, Judged, judged_study, median, percent
from tuner.core.columns import Columns, FloatArray
from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.fidelity import FidelityMode
from tuner.core.text import DAY
from tuner.costmodel.estimate import INTERVAL
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.time import seconds, time_terms
from tuner.launch.virtual.ground_truth import GroundTruth
from tuner.launch.virtual.simulated import START_UP, SimulatedLauncher
from tuner.report.style import BLUE, VERMILLION, figure, look
from tuner.search.candidates import CandidatePool
from tuner.search.constants import REPEAT_DEVIATION
from tuner.search.extrapolation import ReducedSize, gap_covariance
from tuner.space.build import space_for
from tuner.tables import read_table

SITE: Final = SiteFactors()
NETWORK: Final = ("data_parallel", "pipeline", "sharding")
"""Time terms that use the network between nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTruth:
    """How a simulated cluster differs from the ground truth of its seed."""

    seed: int
    contention: float
    """Relative increase of the network terms on all nodes; it grows with the logarithm of the number of nodes."""
    straggling: float
    """Standard deviation of the logarithm of a rank's seconds."""
    start_up: float
    """Factor on the seconds before the first iteration."""

    @property
    def misleads(self) -> bool:
        """Whether the network takes three times as long at full size."""
        return self.contention >= 2.0


CLUSTERS: Final = (
    *(
        ClusterTruth(seed=seed, contention=contention, straggling=straggling, start_up=start_up)
        for seed, contention, straggling, start_up in (
            (100, 0.0, 0.000, 1.0),
            (101, 0.1, 0.002, 1.0),
            (102, 0.2, 0.004, 1.0),
            (103, 0.3, 0.006, 1.0),
            (104, 0.4, 0.008, 1.0),
            (105, 0.5, 0.010, 1.0),
            (106, 0.6, 0.002, 2.0),
            (107, 0.7, 0.004, 2.0),
            (108, 0.8, 0.006, 2.0),
            (109, 0.9, 0.008, 2.0),
            (110, 1.0, 0.010, 2.0),
            (111, 0.0, 0.010, 2.0),
            (112, 0.1, 0.008, 3.0),
            (113, 0.2, 0.006, 3.0),
            (114, 0.3, 0.004, 3.0),
            (115, 0.4, 0.002, 3.0),
            (116, 0.5, 0.000, 3.0),
            (117, 0.6, 0.010, 1.5),
            (118, 0.7, 0.008, 1.5),
            (119, 0.8, 0.006, 1.5),
        )
    ),
    *(ClusterTruth(seed=seed, contention=2.0, straggling=0.005, start_up=1.0) for seed in (120, 121, 122, 123)),
)
"""These clusters were fixed before the scheduler was tuned on any of them."""


def drawn(seed: int) -> ClusterTruth:
    """Return a cluster drawn from a seed, not from `CLUSTERS`; every sixth one is misleading."""
    if seed % 6 == 5:
        return ClusterTruth(seed=seed, contention=2.0, straggling=0.005, start_up=1.0)
    chance = random.Random(seed)  # noqa: S311 - clusters, not secrets
    return ClusterTruth(
        seed=seed,
        contention=round(chance.uniform(0.0, 1.0), 2),
        straggling=round(chance.uniform(0.0, 0.01), 3),
        start_up=round(chance.uniform(1.0, 3.0), 1),
    )


MODES: Final[tuple[FidelityMode, ...]] = ("full", "auto")


class ContendedTruth(GroundTruth):
    """The ground truth of a seed, with contention and stragglers."""

    def __init__(self, cluster: ClusterTruth, nodes: int) -> None:
        super().__init__(cluster.seed)
        self._cluster, self._nodes = cluster, nodes

    def _seconds(self, columns: Columns) -> FloatArray:
        terms = time_terms(columns, self._site)
        network = sum((terms[name] * self._overlap.get(name, 1.0) for name in NETWORK), np.zeros(len(columns.tp)))
        grown = self._cluster.contention * np.log2(np.maximum(1, columns.nodes)) / math.log2(max(2, self._nodes))
        ranks = columns.tp * columns.pp * columns.cp * columns.dp
        slowest = np.exp(self._cluster.straggling * np.sqrt(2 * np.log(np.maximum(1, ranks))))
        found: FloatArray = (super()._seconds(columns) + network * grown) * slowest
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One study."""

    cluster: ClusterTruth
    mode: FidelityMode
    model: str | None
    nodes: int
    budget: int


def study(case: Case) -> Judged:
    """Run one study and judge it by the truth at full size."""
    pool, truth = _pool(case.model, case.nodes), ContendedTruth(case.cluster, case.nodes)
    columns = pool.parts[0]
    days = np.where(truth.fits(columns), truth.seconds(columns) * np.exp(pool.work) / DAY, np.nan)
    fewest, most = (bound * case.cluster.start_up for bound in START_UP)
    launcher = SimulatedLauncher(case.nodes, seed=case.cluster.seed, truth=truth, start_up=(fewest, most))
    return judged_study(
        pool, days, launcher, sampler="guided", seed=case.cluster.seed, fidelity=case.mode, budget=case.budget
    )


@cache
def _pool(model: str | None, nodes: int) -> CandidatePool:
    return CandidatePool.of_space(space_for(model=model, nodes=nodes, framework="any"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One topology at two data parallel degrees, both measured."""

    table: str
    cut: int
    by_model: float
    """Logarithm of the larger job's seconds over the cost model's estimate."""
    gap: float
    """Logarithm of the larger job's seconds over the extrapolation from the smaller job."""
    size: ReducedSize


def pairs_of(path: Path) -> list[Pair]:
    """Return all pairs of rows of a table that differ only in data parallel degree and batch."""
    alike: dict[str, list[tuple[Workload, Cluster, Topology, float]]] = {}
    for row in read_table(path).rows:
        if row.timed and row.run is not None and row.seconds:
            workload, cluster, topology = row.run.workload, row.run.cluster, row.run.topology
            kept = replace(topology, nodes=1, dp=1, global_batch=None)
            own = (replace(workload, global_batch=1), cluster.gpu.name, cluster.gpus_per_node, kept)
            alike.setdefault(repr(own), []).append((workload, cluster, topology, row.seconds))
    found = []
    for rows in alike.values():
        for (workload, cluster, small, first), (larger, whole, full, second) in permutations(rows, 2):
            if full.dp % small.dp or full.dp == small.dp:
                continue
            size = ReducedSize(full=Columns.of([full], larger, whole), small=Columns.of([small], workload, cluster))
            by_model = math.log(second / float(seconds(size.full, SITE)[0]))
            gap = by_model - math.log(first / float(size.seconds(SITE)[0]))
            found.append(Pair(table=path.stem, cut=full.dp // small.dp, by_model=by_model, gap=gap, size=size))
    return found


def _print_pairs(folder: Path) -> None:
    """Print the extrapolation errors; each extrapolation uses an offset learnt from the other pairs of its table."""
    print("| table | dp cut by | pairs | model alone, median | spread | extrapolated, median | spread | in interval |")
    print(f"|{'---|' * 8}")
    for path in sorted(folder.rglob("*.csv")):
        found = pairs_of(path)
        errors = {id(pair): _left_out(pair, found) for pair in found}
        for cut in sorted({pair.cut for pair in found}):
            own = [pair for pair in found if pair.cut == cut]
            model, gaps = [pair.by_model for pair in own], [errors[id(pair)][0] for pair in own]
            inside = sum(abs(error) <= INTERVAL * deviation for error, deviation in (errors[id(pair)] for pair in own))
            print(
                f"| {path.stem} | {cut} | {len(own)} | {median(map(abs, model)):.1%} | {np.std(model):.1%} | "
                f"{median(map(abs, gaps)):.1%} | {np.std(gaps):.1%} | {inside / len(own):.0%} |"
            )


def _left_out(pair: Pair, pairs: Sequence[Pair]) -> tuple[float, float]:
    """Return the error of a pair's extrapolation and its expected deviation, learnt from the other pairs."""
    others = [other for other in pairs if other is not pair]
    sizes, noise = [other.size for other in others], 2 * REPEAT_DEVIATION**2
    alone = float(gap_covariance([pair.size], [pair.size])[0, 0]) + pair.size.variance + noise
    if not others:
        return pair.gap, math.sqrt(alone)
    own = np.diag([size.variance + noise for size in sizes])
    across = gap_covariance([pair.size], sizes)[0]
    weights = np.linalg.solve(gap_covariance(sizes, sizes) + own, across)
    return pair.gap - float(weights @ [other.gap for other in others]), math.sqrt(alone - float(weights @ across))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, help="measured tables, extrapolated from their smaller jobs")
    parser.add_argument("--clusters", type=int, default=len(CLUSTERS))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--drawn", type=int, metavar="SEED", help="clusters drawn by seeds from this one on")
    parser.add_argument("--model", help="model preset; its default is BLOOM, whose heads are searched")
    parser.add_argument("--nodes", type=int, default=48)
    parser.add_argument("--budget", type=int, default=BUDGET)
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="picture of node-hours against regret")
    given = parser.parse_args()
    if given.tables:
        _print_pairs(given.tables)
        return
    clusters = CLUSTERS[given.first : given.first + given.clusters]
    if given.drawn is not None:
        clusters = tuple(drawn(seed) for seed in range(given.drawn, given.drawn + given.clusters))
    cases = [
        Case(cluster=cluster, mode=mode, model=given.model, nodes=given.nodes, budget=given.budget)
        for cluster in clusters
        for mode in MODES
        if mode in given.modes
    ]
    with ProcessPoolExecutor(given.processes, mp_context=get_context("spawn")) as workers:
        found = list(_printed(zip(cases, workers.map(study, cases), strict=True)))
    for title, misleads in (("Clusters", False), ("Clusters where small jobs mislead", True)):
        own = [(case, judged) for case, judged in found if case.cluster.misleads == misleads]
        if own:
            _print_summary(title, own)
    if given.plot:
        plot(found, given.plot)


def plot(found: Sequence[tuple[Case, Judged]], path: Path) -> None:
    """Draw the node-hours of each study against the regret of its winner."""
    looks: dict[FidelityMode, tuple[str, str]] = {"full": (BLUE, "o"), "auto": (VERMILLION, "^")}
    with look():
        drawn = figure(8.0, 4.5)
        axes = drawn.subplots()
        for mode, (colour, mark) in looks.items():
            for misleads, filled in ((False, colour), (True, "none")):
                own = [judged for case, judged in found if (case.mode, case.cluster.misleads) == (mode, misleads)]
                axes.scatter(
                    [judged.node_hours for judged in own],
                    [100 * judged.end for judged in own],
                    marker=mark,
                    facecolors=filled,
                    edgecolors=colour,
                    label=f"{mode}{', small jobs mislead' if misleads else ''}",
                )
            usual = [judged.node_hours for case, judged in found if case.mode == mode and not case.cluster.misleads]
            if usual:
                axes.axvline(median(usual), color=colour, linestyle=":", linewidth=1)
        axes.set_xlim(left=0.0)
        axes.set_xlabel("node-hours of the study (dotted: median)")
        axes.set_ylabel("winner slower than the best (%)")
        axes.set_title("Trials at a reduced size: cost against regret, simulated clusters")
        axes.legend()
        drawn.savefig(path, dpi=110)


def _printed(found: Iterable[tuple[Case, Judged]]) -> Iterator[tuple[Case, Judged]]:
    """Print a line for each study as it ends."""
    print(
        "| seed | contention | mode | jobs | at a reduced size | node-hours | of these reduced | regret | in interval |"
    )
    print(f"|{'---|' * 9}")
    for case, judged in found:
        print(
            f"| {case.cluster.seed} | {case.cluster.contention:.1f} | {case.mode} | {judged.jobs} | "
            f"{judged.reduced_jobs} | {judged.node_hours:.1f} | {judged.reduced_node_hours:.1f} | "
            f"{percent(judged.end)} | {judged.confirmed_inside} of {judged.confirmed} |",
            flush=True,
        )
        yield case, judged


def _print_summary(title: str, found: Sequence[tuple[Case, Judged]]) -> None:
    print(f"\n## {title}\n\n| mode | node-hours, median | least to most | regret, median | 95% | worst | in interval |")
    print(f"|{'---|' * 7}")
    for mode in dict.fromkeys(case.mode for case, _ in found):
        own = [judged for case, judged in found if case.mode == mode]
        hours, regret = [judged.node_hours for judged in own], [judged.end for judged in own]
        confirmed = sum(judged.confirmed for judged in own)
        inside = f"{sum(judged.confirmed_inside for judged in own) / confirmed:.0%}" if confirmed else "-"
        print(
            f"| {mode} | {median(hours):.1f} | {min(hours):.1f} to {max(hours):.1f} | {percent(median(regret))} | "
            f"{percent(float(np.quantile(regret, 0.95)))} | {percent(max(regret))} | {inside} |"
        )


if __name__ == "__main__":
    main()
