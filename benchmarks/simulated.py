"""Distance of the simulated clusters from the cost model that guides the search, and speed of computing their truth.

    python benchmarks/simulated.py

Prints, for each of 20 seeds of the 48-node study: the model's median error and Kendall's tau over 300 random legal
topologies; tau over 300 random topologies that run, and over the 300 fastest; the share of topologies that run; the
share of those predicted to fit that run out of memory; and how much slower than the true best the model's favourite is,
that is, the first topology in the model's order that runs.
"""

from __future__ import annotations

import time

import numpy as np

from tuner.core.columns import IntArray
from tuner.costmodel.estimate import CostModel
from tuner.costmodel.evaluation import kendall_tau
from tuner.launch.virtual.ground_truth import GroundTruth
from tuner.space.build import space_for

SEEDS = range(20)
FEW = 300


def main() -> None:
    """Print the table."""
    space = space_for(framework="any")
    columns = space.columns(np.concatenate(list(space.blocks())))
    expected = CostModel().score(columns)
    chosen = np.flatnonzero(expected.fits)
    chosen = chosen[np.argsort(expected.seconds[chosen], kind="stable")]
    rows = len(columns.tp)
    print(f"{rows:,} legal topologies\nseed  error    tau  tau runs  tau fastest  runs    OOM  regret  seconds  best")
    table = []
    for seed in SEEDS:
        started = time.perf_counter()
        truth = GroundTruth(seed)
        found, runs = truth.seconds(columns), truth.fits(columns)
        took = time.perf_counter() - started
        alive = np.flatnonzero(runs)
        alive = alive[np.argsort(found[alive], kind="stable")]
        random = np.random.default_rng(seed)

        def tau(places: IntArray, found: np.ndarray[tuple[int], np.dtype[np.float64]] = found) -> float:
            return kendall_tau(found[places], expected.seconds[places])

        any_row = random.choice(rows, FEW, replace=False)
        favourite = chosen[runs[chosen]][0]
        table.append(
            (
                float(np.median(np.abs(expected.seconds / found - 1)[any_row])),
                tau(any_row),
                tau(random.choice(alive, FEW, replace=False)),
                tau(alive[:FEW]),
                float(runs.mean()),
                float(1 - runs[chosen].mean()),
                float(found[favourite] / found[alive[0]] - 1),
                took,
            )
        )
        best = columns.topology(int(alive[0]))
        print(f"{seed:>4}  {_shown(table[-1])}  {best.key}, {found[alive[0]]:.1f} s")
    print(f" 50%  {_shown(tuple(np.median(table, axis=0)))}")
    print(f"least {_shown(tuple(np.min(table, axis=0)))}")
    print(f"most  {_shown(tuple(np.max(table, axis=0)))}")


def _shown(figures: tuple[float, ...]) -> str:
    error, tau, runs, fastest, share, out, regret, took = figures
    return (
        f"{error:>5.1%}  {tau:>5.2f}  {runs:>8.2f}  {fastest:>11.2f}  {share:>4.1%}  {out:>5.1%}  {regret:>6.1%}  "
        f"{took:>7.2f}"
    )


if __name__ == "__main__":
    main()
