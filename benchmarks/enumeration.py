"""Speed of enumerating the legal space: grid points per second on one core, and a comparison with plain Python loops.

    python benchmarks/enumeration.py

A grid point counts as covered when it was checked, or when a rule removed all points that share its prefix. The second
part times both methods in this run over the same grid and requires them to find the same number of topologies.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace

from tuner.core.columns import AXES, Columns
from tuner.core.domain import Topology
from tuner.space.build import space_for
from tuner.space.rules import POLICIES
from tuner.space.space import Space, Tally

REPEATS = 7


def main() -> None:
    """Print the figures."""
    _report("default axes, 48 nodes", space_for(framework="any"))
    _report("all policies off", space_for(framework="any", allow=POLICIES, attention="flash2"))
    wide = ["micro_batch=1-32", "heads=16,32,64,112,128,256", "cp=1,2,4,8,16"]
    _report(
        "1,024 nodes, all policies off",
        space_for(
            framework="any", allow=POLICIES, attention="flash2", nodes=1024, global_batch=20160, seq=8192, settings=wide
        ),
    )
    _against_loops()


def _report(name: str, space: Space) -> None:
    tally = Tally()
    seconds = _best(lambda: sum(len(points) for points in space.blocks(tally)))
    print(
        f"{name}: {tally.grid:,} grid points, {tally.legal:,} legal, {seconds:.3f} s, "
        f"{tally.grid / seconds:,.0f} grid points a second, {tally.legal / seconds:,.0f} legal ones"
    )


def _against_loops() -> None:
    """Compare with the simplest program: plain loops that check the rules for one topology at a time."""
    narrow = {"nodes": (40, 48), "heads": (64,), "vpp": (1, 2), "cp": (1,), "micro_batch": (1, 2, 4), "pp": (4, 6, 12)}
    space = space_for(framework="any")
    space = replace(space, axes={**space.axes, **narrow})
    started = time.perf_counter()
    slow = _loops(space)
    loops = time.perf_counter() - started
    walk = _best(space.count)
    if slow != space.count():
        raise SystemExit(f"the loops found {slow:,} legal topologies and the walk {space.count():,}")
    print(
        f"{space.size:,} grid points by plain loops: {loops:.2f} s, {space.size / loops:,.0f} a second; by the walk: "
        f"{walk:.4f} s, {loops / walk:,.0f} times as fast"
    )


def _loops(space: Space) -> int:
    legal = 0
    for values in itertools.product(*(space.axes[axis] for axis in AXES)):
        at = dict(zip(AXES, values, strict=True))
        dp = max(1, at["nodes"] * space.cluster.gpus_per_node // (at["tp"] * at["pp"] * at["cp"]))
        columns = Columns.of([Topology(dp=dp, **at)], space.workload, space.cluster)
        legal += not any(rule.broken_rows(columns).item() for rule in space.in_force)
    return legal


def _best(call: Callable[[], object]) -> float:
    """Return the shortest of several runs, which is the least affected by other load on the machine."""
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return min(times)


if __name__ == "__main__":
    main()
