"""Mutation testing: checks whether the fast tests detect small wrong edits.

    python -m benchmarks.mutants --seed 1 --count 100 -o runs/mutants.jsonl
    python -m benchmarks.mutants -o runs/mutants.jsonl --report

Draws lines of tuner/ at random and makes one seeded edit to each, in a temporary copy of the checkout;
benchmarks/mutation.py lists the operators. Each mutant is first run against the tests that execute its line: those of
its own package, then the others, fast ones first, up to the first failure. They run in a fork of a process that has
already collected them, which takes about a second. A survivor is then run against the whole fast suite in a new
process, because a fork keeps the state that imports created before the edit. A run that exceeds its time limit counts
as killed. `--quick 20 --count 500` finds suspects in minutes.

The map from lines to tests is made once with coverage.py (about ten minutes); lines of a file that has changed since
are looked up by function. Results are appended to the output file one by one, and the same command resumes a run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from benchmarks.coverage_map import (
    FAST,
    NO_TESTS,
    PASSED,
    RUNNING,
    USAGE_ERROR,
    CoverageMap,
    collect,
    end,
    make_map,
    pytest,
)
from benchmarks.forked_tests import ForkedTests
from benchmarks.mutation import Mutation, function_at, mutations, parses

ROOT: Final = Path(__file__).resolve().parent.parent
RUNS: Final = ROOT / "runs"
TIME_LIMIT_FACTOR: Final = 10.0
TIME_LIMIT_BASE: Final = 120.0
TIME_LIMIT_OF_TEST: Final = 20.0
"""A time limit, in seconds, is a base (of a whole run, or of one test) plus a factor times the recorded duration."""
DOUBTFUL: Final = 0.5
"""Seconds above which a failing test is run again, because slow tests may also fail under load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One randomly drawn edit of one file."""

    number: int
    path: str
    function: str
    mutation: Mutation
    diff: str

    @property
    def package(self) -> str:
        """The package of tuner/ that contains the file."""
        parts = Path(self.path).parts
        return parts[1] if len(parts) > 2 else ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw, run and report mutants."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw")
    parser.add_argument("--count", type=int, default=100, help="mutants to draw")
    parser.add_argument("--first", type=int, default=0, help="skip the mutants of the draw before this one")
    parser.add_argument("--jobs", type=int, default=1, help="mutants to run at the same time")
    parser.add_argument("--package", action="append", help="draw from this package of tuner/ only (repeatable)")
    parser.add_argument("--nearest", action="store_true", help="do not run the whole fast suite on survivors")
    parser.add_argument(
        "--quick", type=float, metavar="SECONDS", help="run only the fastest tests of those that execute a line"
    )
    parser.add_argument("--map", type=Path, default=RUNS / "mutants-map.json", help="coverage map, made if absent")
    parser.add_argument("--root", type=Path, default=ROOT, help="checkout to mutate")
    parser.add_argument("-o", "--output", type=Path, default=RUNS / "mutants.jsonl")
    parser.add_argument("--report", action="store_true", help="print the report of the output file and exit")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that pytest is killed too
    done = [json.loads(line) for line in given.output.read_text().splitlines()] if given.output.exists() else []
    if not given.report:
        seen = {(result["seed"], result["number"], result["diff"]) for result in done}
        drawn = draw(given.root, seed=given.seed, count=given.count, packages=given.package)[given.first :]
        waiting = [mutant for mutant in drawn if (given.seed, mutant.number, mutant.diff) not in seen]
        given.output.parent.mkdir(parents=True, exist_ok=True)
        with given.output.open("a", encoding="utf-8") as output:
            whole = not given.nearest and given.quick is None
            for result in run(given.root, waiting, map_path=given.map, jobs=given.jobs, whole=whole, quick=given.quick):
                result["seed"] = given.seed
                done.append(result)
                output.write(json.dumps(result) + "\n")
                output.flush()
                killer = result["killer"] or "SURVIVED"
                title = f"{result['number']:4} {result['path']}:{result['line']} {result['operator']}"
                print(f"{title}: {killer}", flush=True)
    print(report(done))


def draw(root: Path, *, seed: int, count: int, packages: Iterable[str] | None = None) -> list[Mutant]:
    """Draw mutable lines of tuner/ uniformly at random, and one edit for each."""
    chance = random.Random(seed)  # noqa: S311 - a reproducible draw, not a secret
    by_line: dict[tuple[str, int], list[Mutation]] = {}
    sources: dict[str, str] = {}
    for path in sorted((root / "tuner").rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if packages and not name.startswith(tuple(f"tuner/{package}/" for package in packages)):
            continue
        sources[name] = path.read_text(encoding="utf-8")
        for mutation in mutations(sources[name]):
            by_line.setdefault((name, mutation.line), []).append(mutation)
    lines = list(by_line)
    chance.shuffle(lines)
    drawn: list[Mutant] = []
    for name, line in lines:
        if len(drawn) == count:
            break
        options = by_line[name, line]
        chance.shuffle(options)
        source = sources[name]
        for mutation in [option for option in options if parses(option.apply(source))][:1]:
            diff, function = mutation.diff(source, name), function_at(source, line)
            drawn.append(Mutant(number=len(drawn), path=name, function=function, mutation=mutation, diff=diff))
    return drawn


def run(
    root: Path, mutants: Sequence[Mutant], *, map_path: Path, jobs: int, whole: bool, quick: float | None = None
) -> Iterable[dict[str, Any]]:
    """Yield the result of each mutant in order; the checkout itself is never modified."""
    if not mutants:
        return
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ExitStack() as opened:
        copies = [copy_checkout(root, Path(folder) / str(job)) for job in range(jobs)]
        if not map_path.exists():
            make_map(copies[0], map_path)
        coverage = CoverageMap(**json.loads(map_path.read_text(encoding="utf-8")))
        collected = [test for test in collect(copies[0]) if test not in coverage.failing]
        benches: SimpleQueue[Bench] = SimpleQueue()
        for copy in copies:
            forked = opened.enter_context(closing(ForkedTests(copy, FAST)))
            benches.put(Bench(copy=copy, forked=forked, coverage=coverage, collected=collected))

        def work(mutant: Mutant) -> dict[str, Any]:
            bench = benches.get()
            try:
                return judge(bench, mutant, whole=whole, quick=quick)
            finally:
                benches.put(bench)

        with ThreadPoolExecutor(jobs) as pool:
            try:
                yield from pool.map(work, mutants)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for process in list(RUNNING):
                    end(process)
                opened.close()
                raise


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A copy of the checkout with a pytest process that has collected its tests."""

    copy: Path
    forked: ForkedTests
    coverage: CoverageMap
    collected: Sequence[str]

    def first_failure(self, path: str, mutation: Mutation | None, tests: Sequence[str], *, fresh: bool = False) -> str:
        """Run tests in the given order, with or without an edit, up to the first failure; return the failed test.

        A new pytest process is used if `fresh`, or if the edit changes code that runs on import.
        """
        seconds = [self.coverage.seconds.get(test, 0.05) for test in tests]
        file = self.copy / path
        source = file.read_text(encoding="utf-8")
        with mutated(file, mutation):
            if not fresh:
                limits = [TIME_LIMIT_OF_TEST + TIME_LIMIT_FACTOR * each for each in seconds]
                edited = mutation.apply(source) if mutation else source
                ending, test = self.forked.run(path, source, edited, list(zip(tests, limits, strict=True)))
                if ending != "unable":
                    return test if ending == "failed" else ""
            return first_failure(self.copy, tests, TIME_LIMIT_BASE + TIME_LIMIT_FACTOR * sum(seconds))

    def close(self) -> None:
        """End the process."""
        self.forked.close()


def judge(bench: Bench, mutant: Mutant, *, whole: bool, quick: float | None = None) -> dict[str, Any]:
    """Run the tests on one mutant and return its result, with the test that killed it, if any."""
    path, coverage, collected = bench.copy / mutant.path, bench.coverage, bench.collected
    stages = stages_of(mutant, path.read_text(encoding="utf-8"), coverage, collected)
    if quick is not None:
        stages = [_within(quick, [test for stage in stages for test in stage], coverage)]
    started, killer = time.monotonic(), ""
    unreliable: set[str] = set()
    fresh_run = [(list(collected), True)] if whole else []
    for stage, fresh in [*((stage, False) for stage in stages), *fresh_run]:
        while not killer and (tests := [test for test in stage if test not in unreliable]):
            failure = bench.first_failure(mutant.path, mutant.mutation, tests, fresh=fresh)
            if failure in collected and coverage.seconds.get(failure, 1.0) > DOUBTFUL:
                fails_again = bench.first_failure(mutant.path, mutant.mutation, [failure], fresh=fresh)
                if not fails_again or bench.first_failure(mutant.path, None, [failure], fresh=fresh):
                    unreliable.add(failure)  # it also passes with the mutant, or also fails without it
                    continue
            killer = failure
            break
        if killer:
            break
    return {
        "number": mutant.number,
        "package": mutant.package,
        "path": mutant.path,
        "line": mutant.mutation.line,
        "function": mutant.function,
        "operator": mutant.mutation.operator,
        "diff": mutant.diff,
        "survived": not killer,
        "killer": killer,
        "tests": sum(map(len, stages)),
        "whole_suite": whole,
        "unreliable": sorted(unreliable),
        "seconds": round(time.monotonic() - started, 1),
    }


def _within(seconds: float, tests: Sequence[str], coverage: CoverageMap) -> list[str]:
    """Return the longest prefix of the tests that takes at most so many seconds in total."""
    totals = accumulate(coverage.seconds.get(test, 0.05) for test in tests)
    return [test for test, total in zip(tests, totals, strict=True) if total <= seconds]


@contextmanager
def mutated(path: Path, mutation: Mutation | None) -> Iterator[None]:
    """Apply an edit to a file within the context; each change gets a new mtime so that no stale bytecode is used."""
    if mutation is None:
        yield
        return
    source = path.read_text(encoding="utf-8")
    stamp = path.stat().st_mtime
    path.write_text(mutation.apply(source), encoding="utf-8")
    os.utime(path, (stamp + 1, stamp + 1))
    try:
        yield
    finally:
        path.write_text(source, encoding="utf-8")
        os.utime(path, (stamp + 2, stamp + 2))


def stages_of(mutant: Mutant, source: str, coverage: CoverageMap, collected: Sequence[str]) -> list[list[str]]:
    """Return the tests for a mutant: those of its own package, including tests newer than the map; then all others."""
    executing = coverage.executing(mutant.path, mutant.mutation.line, mutant.function, source)
    own = f"tests/{mutant.package}/"
    known = set(coverage.tests)
    near = [test for test in collected if test.startswith(own)]
    if executing:  # otherwise the file is new, or runs in processes that coverage.py does not follow
        near = [test for test in near if test in executing or test not in known]
    far = [test for test in collected if not test.startswith(own) and test in executing]
    return [sorted(stage, key=lambda test: coverage.seconds.get(test, 0.05)) for stage in (near, far)]


def first_failure(copy: Path, tests: Sequence[str], limit: float) -> str:
    """Run tests in the given order up to the first failure; return the failed test, or an empty string."""
    listed = copy.parent / f"{copy.name}.tests"
    listed.write_text("\n".join(tests), encoding="utf-8")
    code, text = pytest(copy, ["-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", f"@{listed}"], limit)
    if code is None:
        return f"no end within {limit:.0f} s"
    if code in (PASSED, NO_TESTS):
        return ""
    if code == USAGE_ERROR and "ImportError while loading conftest" not in text:
        raise RuntimeError(f"pytest does not take these tests: {text[-1000:]}")
    failed = re.search(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", text, re.MULTILINE)
    return failed[1] if failed else f"pytest ended with code {code}"


def copy_checkout(root: Path, folder: Path) -> Path:
    """Copy the files that are tracked or not ignored by git, or the whole folder if it is no repository."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if listed.returncode or not (root / ".git").exists():
        shutil.copytree(root, folder, symlinks=True)
        return folder
    for name in filter(None, listed.stdout.split("\0")):
        if (root / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name, follow_symlinks=False)
    return folder


def report(results: Sequence[dict[str, Any]]) -> str:
    """Return the survivors by package, each with its diff."""
    drawn = Counter(result["package"] or "tuner" for result in results)
    survivors = [result for result in results if result["survived"]]
    survived = Counter(result["package"] or "tuner" for result in survivors)
    lines = ["", "| package | drawn | killed | survived |", "|---|---|---|---|"]
    lines += [f"| {name} | {n} | {n - survived[name]} | {survived[name]} |" for name, n in sorted(drawn.items())]
    total, left = len(results), len(survivors)
    lines += [f"| all | {total} | {total - left} | {left} ({100 * left / max(total, 1):.0f}%) |"]
    for result in sorted(survivors, key=lambda result: (result["package"], result["path"], result["line"])):
        place = f"{result['path']}:{result['line']} in {result['function'] or 'the module'}"
        lines += [
            "",
            f"{place}: {result['operator']} (seed {result['seed']}, number {result['number']})",
            result["diff"],
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
