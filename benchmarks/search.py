"""Number of jobs that the search needs: a comparison of the samplers on measured tables and on simulated clusters.

    python benchmarks/search.py [--tables FOLDER] [--seeds N] [--baseline-seeds N] [--quick]
    python benchmarks/search.py --truths FOLDER [--seeds N] [--samplers NAMES] [--jobs 1,4,8] [--twists NAMES]

A study runs the product's own loop, one job at a time, in a folder of its own. It is judged by the true time of the
same amount of training: on a replay the mean over a topology's repeated rows, on a simulated cluster the time without
noise. The regret after a number of jobs is that of the topology with the best measurements so far. A study that never
came within 1% of the best counts as one job more than its budget. All figures of a sampler come from one run of this
program.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.judging import AFTER, BUDGET, FILTER, Judged, days_of, jobs_text, judged_study, median, percent
from benchmarks.truths import add_truth_options, print_truths
from tuner.core.columns import FloatArray
from tuner.core.text import DAY
from tuner.launch.virtual.cluster import VirtualLauncher
from tuner.launch.virtual.ground_truth import GroundTruth
from tuner.launch.virtual.replay import ReplayedRun, ReplayLauncher
from tuner.launch.virtual.simulated import SimulatedLauncher
from tuner.search.candidates import CandidatePool
from tuner.space.build import space_for
from tuner.study.replay_setup import replayed
from tuner.tables import Table, read_table

ROOT: Final = Path(__file__).resolve().parent.parent
SHIPPED: Final = ROOT / "tests" / "data" / "tables"
DAY_OF: Final = re.compile(r"\d\d-\d\d")
MIN_GROUP: Final = 8
"""Minimum number of timed rows of a group that is replayed."""

NEAR: Final = 0.01

MIXTURES: Final = {
    "qwen3-30b-a3b": ("H100-80GB-SXM", 4, 512),
    "gpt-oss-120b": ("B200-180GB-SXM", 8, 512),
    "qwen3-235b-a22b": ("H100-80GB-SXM", 32, 2048),
    "deepseek-v3": ("B200-180GB-SXM", 32, 2048),
}
"""GPU, nodes and global batch of simulated clusters that train a mixture of experts."""

FILTERED: Final = tuple(name + FILTER for name in ("tpe", "gp", "random"))
SAMPLERS: Final = ("guided", "tpe", "gp", "random", *FILTERED, "grid", "plan")
DRAWN: Final = ("tpe", "gp", "random", *FILTERED)
"""Samplers whose proposals depend on the seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One study: the table or simulated cluster, the sampler and the seed."""

    where: str
    """Path of the table, or an empty string for a simulated cluster."""
    group: str
    """Of the table; on a simulated cluster the mixture that is trained, or an empty string for BLOOM."""
    sampler: str
    seed: int
    silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(Judged):
    """The result of one study."""

    case: Case


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, help="more measured tables")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--baseline-seeds", type=int, default=20)
    parser.add_argument("--samplers", default=",".join(SAMPLERS))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", choices=("replays", "simulated"))
    parser.add_argument("--quick", action="store_true", help="guided, random and plan, the tables that ship, 3 seeds")
    parser.add_argument(
        "--model", choices=tuple(MIXTURES), default="", help="what simulated clusters train; else BLOOM"
    )
    parser.add_argument("--silent", action="store_true", help="logs show finished iterations only")
    add_truth_options(parser)
    given = parser.parse_args()
    if given.quick:
        given.seeds, given.baseline_seeds, given.samplers = 3, 3, "guided,random,plan"
    samplers = _available(given.samplers.split(","))
    if given.truths:
        print_truths(given, samplers)
        return
    print(f"{os.cpu_count()} cores, {given.processes} studies at a time\n")
    with ProcessPoolExecutor(given.processes, mp_context=get_context("spawn")) as workers:
        if given.only in (None, "replays"):
            _replays(list(workers.map(study, _replay_cases(given, samplers))))
        if given.only in (None, "simulated"):
            _simulated(list(workers.map(study, _simulated_cases(given, samplers))))


def _available(names: Sequence[str]) -> list[str]:
    """Return the samplers whose libraries are installed."""
    missing = [name for name in ("scipy", "torch") if importlib.util.find_spec(name) is None]
    if missing and any(name.startswith("gp") for name in names):
        print(f"gp is left out: {' and '.join(missing)} not installed.")
        return [name for name in names if not name.startswith("gp")]
    return list(names)


# -- one study


def study(case: Case) -> Found:
    """Run a study to its end and judge it by the truth."""
    pool, truth = _truth(case.where, case.group, case.seed)
    nodes = pool.parts[0].cluster.nodes
    launcher: VirtualLauncher = (
        SimulatedLauncher(nodes, seed=case.seed) if not case.where else ReplayLauncher(_table(case)[1])
    )
    judged = judged_study(pool, truth, launcher, sampler=case.sampler, seed=case.seed, silent=case.silent)
    return Found(case=case, **{field.name: getattr(judged, field.name) for field in fields(Judged)})


@cache
def _truth(where: str, group: str, seed: int) -> tuple[CandidatePool, FloatArray]:
    """Return the candidates and the true days of each, NaN if the candidate does not run."""
    if not where:
        pool = _whole(group)
        truth, columns = GroundTruth(seed), pool.parts[0]
        days = truth.seconds(columns) * np.exp(pool.work) / DAY
        return pool, np.where(truth.fits(columns), days, np.nan)
    pool, answers = _read(where, group)
    return pool, days_of(pool, answers)


@cache
def _whole(model: str) -> CandidatePool:
    if not model:
        return CandidatePool.of_space(space_for(framework="any"))
    gpu, nodes, global_batch = MIXTURES[model]
    return CandidatePool.of_space(space_for(model=model, gpu=gpu, nodes=nodes, global_batch=global_batch))


def _table(case: Case) -> tuple[CandidatePool, list[ReplayedRun]]:
    return _read(case.where, case.group)


@cache
def _read(where: str, group: str) -> tuple[CandidatePool, list[ReplayedRun]]:
    return replayed(_by_day(read_table(Path(where))), group)


def _by_day(table: Table) -> Table:
    """Group BLOOM's rows by day, because only rows of one day are comparable; each group's name contains its day."""
    days = [DAY_OF.search(row.group) if table.name.startswith("bloom") else None for row in table.rows]
    rows = (replace(row, group=day[0]) if day else row for row, day in zip(table.rows, days, strict=True))
    return replace(table, rows=tuple(rows))


def _groups(folders: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yield every group with enough timed rows; a table that is in two folders counts once."""
    tables = {path.name: path for folder in folders for path in sorted(folder.glob("*.csv"))}
    for _, path in sorted(tables.items()):
        rows = [row for row in _by_day(read_table(path)).rows if row.timed]
        names = [row.group for row in rows]
        for group in dict.fromkeys(names):
            if names.count(group) >= MIN_GROUP:
                yield str(path), group


def _replay_cases(given: argparse.Namespace, samplers: Sequence[str]) -> list[Case]:
    folders = [SHIPPED] + ([given.tables] if given.tables else [])
    return [
        Case(where=where, group=group, sampler=sampler, seed=seed, silent=given.silent)
        for where, group in _groups(folders)
        for sampler in samplers
        for seed in range(given.seeds if sampler in DRAWN else 1)
    ]


def _simulated_cases(given: argparse.Namespace, samplers: Sequence[str]) -> list[Case]:
    first = given.first_seed
    return [
        Case(where="", group=given.model, sampler=sampler, seed=seed, silent=given.silent)
        for sampler in samplers
        for seed in range(first, first + (given.baseline_seeds if sampler in DRAWN else given.seeds))
    ]


# -- the tables


def _replays(found: Sequence[Found]) -> None:
    samplers = list(dict.fromkeys(each.case.sampler for each in found))
    print(f"## Replays, budget {BUDGET}: jobs until within {NEAR:.0%} of the group's best, median over seeds\n")
    print(f"| group | {' | '.join(samplers)} |\n|---|{'---|' * len(samplers)}")
    for group in dict.fromkeys(each.case.group for each in found):
        of = [[each for each in found if (each.case.group, each.case.sampler) == (group, one)] for one in samplers]
        print(f"| {group} | {' | '.join(jobs_text(median(each.until[NEAR] for each in own)) for own in of)} |")
    _summary("Replays", found, samplers)
    until = {one: median(each.until[NEAR] for each in found if each.case.sampler == one) for one in samplers}
    wasted = _share(found, "guided")
    print("| | figure | target | |\n|---|---|---|---|")
    _line("jobs until within 1%, median", jobs_text(until["guided"]), "at most 3", until["guided"] <= 3)
    if "tpe" in until:
        ratio = until["guided"] / until["tpe"]
        _line("the same, beside TPE's in this run", f"{ratio:.2f}", "at most a third", ratio <= 1 / 3)
        large = [each for each in found if "aleph" in each.case.where]
        if large:
            ratio = _typical(large, "guided") / _typical(large, "tpe")
            _line("the same, LLaMA 13B alone", f"{ratio:.2f}", "at most a third", ratio <= 1 / 3)
    _line("jobs that end out of memory", f"{wasted:.1%}", "at most 10%", wasted <= 0.10)
    print()


def _simulated(found: Sequence[Found]) -> None:
    samplers = list(dict.fromkeys(each.case.sampler for each in found))
    seeds = {one: sum(each.case.sampler == one for each in found) for one in samplers}
    pool = _whole(found[0].case.group)
    nodes = pool.parts[0].cluster.nodes
    print(f"## Simulated {nodes}-node clusters, {len(pool):,} candidates, budget {BUDGET}\n")
    print("Clusters: " + ", ".join(f"{one} {many}" for one, many in seeds.items()) + ".")
    _summary("Simulated", found, samplers)
    own = [each for each in found if each.case.sampler == "guided"]
    end, early = [each.end for each in own], [each.regret[10] for each in own]
    wasted = _share(found, "guided")
    print("| | figure | target | |\n|---|---|---|---|")
    _line("regret at the end, median", f"{median(end):.2%}", "at most 0.5%", median(end) <= 0.005)
    _line(f"regret at the end, worst of {len(own)}", f"{max(end):.2%}", "at most 2%", max(end) <= 0.02)
    _line("regret after 10 jobs, median", f"{median(early):.2%}", "at most 1.5%", median(early) <= 0.015)
    _line("jobs that end out of memory", f"{wasted:.1%}", "at most 5%", wasted <= 0.05)
    if "tpe" in samplers:
        shared = {each.case.seed for each in found if each.case.sampler == "tpe"}
        both = [each for each in found if each.case.seed in shared]
        other = median(each.end for each in both if each.case.sampler == "tpe")
        guided = median(each.end for each in both if each.case.sampler == "guided")
        _line("regret at the end beside TPE's, same clusters", f"{guided:.2%} / {other:.2%}", "", None)
    print()


def _summary(title: str, found: Sequence[Found], samplers: Sequence[str]) -> None:
    heads = ["sampler", "jobs to 1%", *(f"after {after}" for after in AFTER), "winner", "worst"]
    heads += ["jobs", "node-hours", "out of memory", "s a study"]
    print(f"\n{title}: medians; regret after so many jobs and of the winner\n")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for sampler in samplers:
        own = [each for each in found if each.case.sampler == sampler]
        cells = [jobs_text(median(each.until[NEAR] for each in own))]
        cells += [percent(median(each.regret[after] for each in own)) for after in AFTER]
        cells += [percent(median(each.end for each in own)), percent(max(each.end for each in own))]
        cells += [f"{median(each.jobs for each in own):.0f}", f"{median(each.node_hours for each in own):.1f}"]
        cells += [f"{_share(found, sampler):.1%}", f"{median(each.seconds for each in own):.1f}"]
        print(f"| {sampler} | {' | '.join(cells)} |")
    print()


def _typical(found: Sequence[Found], sampler: str) -> float:
    return median(each.until[NEAR] for each in found if each.case.sampler == sampler)


def _share(found: Sequence[Found], sampler: str) -> float:
    """Return the share of launched jobs that ran out of memory."""
    own = [each for each in found if each.case.sampler == sampler]
    return sum(each.out_of_memory for each in own) / sum(each.jobs for each in own)


def _line(label: str, figure: str, target: str, met: bool | None) -> None:
    print(f"| {label} | {figure} | {target} | {'' if met is None else 'met' if met else 'MISSED'} |")


if __name__ == "__main__":
    main()
