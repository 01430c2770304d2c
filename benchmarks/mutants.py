"""Mutation testing: do the fast tests notice small wrong edits?

    python -m benchmarks.mutants --seed 1 --count 100 -o runs/mutants.jsonl
    python -m benchmarks.mutants -o runs/mutants.jsonl --report

Draws lines of tuner/ at random and makes one seeded edit to each, in a temporary copy of the checkout;
benchmarks/mutation.py lists the operators. A mutant first meets the tests that execute its line: those of its own
package, then the others, fast ones first, up to the first failure. A mutant that passes them meets the whole fast
suite. A run that exceeds its time limit counts as killed.

The map from lines to tests is made once with coverage.py (some ten minutes); a file that changed since is looked up by
function. Results are appended to the output file as they come, and the same command continues where it stopped.
"""

from __future__ import annotations

import argparse
import hashlib
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
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from benchmarks.mutation import Mutation, function_at, mutations, parses

ROOT: Final = Path(__file__).resolve().parent.parent
RUNS: Final = ROOT / "runs"
FAST: Final = "not slow and not cluster"
TIME_LIMIT_FACTOR: Final = 10.0
TIME_LIMIT_BASE: Final = 120.0
"""Seconds allowed for a run of tests: the base, and the factor times what the tests took without a mutant."""
PASSED: Final = 0
FAILED: Final = 1
NO_TESTS: Final = 5
"""pytest's exit codes."""
RUNNING: Final[set[subprocess.Popen[Any]]] = set()
"""Runs of pytest at the moment, which are ended when this program is."""
MOST_FAILING: Final = 20
"""With more failures than these the map is refused: the checkout is broken."""
DOUBTFUL: Final = 0.5
"""A failure of a test that takes more seconds is confirmed: under load such tests may fail by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One drawn edit of one file."""

    number: int
    path: str
    function: str
    mutation: Mutation
    diff: str

    @property
    def package(self) -> str:
        """The package of tuner/ that holds the file."""
        parts = Path(self.path).parts
        return parts[1] if len(parts) > 2 else ""


@dataclass(slots=True, kw_only=True)
class CoverageMap:
    """Which tests execute which lines, and how long each test takes."""

    tests: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Per file: its hash, the tests of each line and of each function, as indices of `tests`."""
    failing: list[str] = field(default_factory=list)
    """Tests that failed while the map was made, without a mutant: they never judge one."""

    def executing(self, mutant: Mutant, source: str) -> set[str]:
        """Return the tests that execute a mutant's line; in a file that changed since, those that execute its function.

        A line that runs on import has the tests of its whole file.
        """
        known = self.files.get(mutant.path)
        if known is None:
            return set()
        found = known["lines"].get(str(mutant.mutation.line)) if known["hash"] == _hash(source) else None
        if not found:
            found = known["functions"].get(mutant.function)
        if not found:
            found = sorted({index for indices in known["functions"].values() for index in indices})
        return {self.tests[index] for index in found}


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw, run and report mutants."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw")
    parser.add_argument("--count", type=int, default=100, help="mutants to draw")
    parser.add_argument("--first", type=int, default=0, help="skip the mutants of the draw before this one")
    parser.add_argument("--jobs", type=int, default=1, help="mutants to run at the same time")
    parser.add_argument("--package", action="append", help="draw from this package of tuner/ only (repeatable)")
    parser.add_argument("--nearest", action="store_true", help="do not run the whole fast suite on survivors")
    parser.add_argument("--map", type=Path, default=RUNS / "mutants-map.json", help="coverage map, made if absent")
    parser.add_argument("--root", type=Path, default=ROOT, help="checkout to mutate")
    parser.add_argument("-o", "--output", type=Path, default=RUNS / "mutants.jsonl")
    parser.add_argument("--report", action="store_true", help="print the report of the output file and exit")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that pytest is ended too
    done = [json.loads(line) for line in given.output.read_text().splitlines()] if given.output.exists() else []
    if not given.report:
        seen = {(result["seed"], result["number"], result["diff"]) for result in done}
        drawn = draw(given.root, seed=given.seed, count=given.count, packages=given.package)[given.first :]
        waiting = [mutant for mutant in drawn if (given.seed, mutant.number, mutant.diff) not in seen]
        given.output.parent.mkdir(parents=True, exist_ok=True)
        with given.output.open("a", encoding="utf-8") as output:
            for result in run(given.root, waiting, map_path=given.map, jobs=given.jobs, whole=not given.nearest):
                result["seed"] = given.seed
                done.append(result)
                output.write(json.dumps(result) + "\n")
                output.flush()
                killer = result["killer"] or "SURVIVED"
                title = f"{result['number']:4} {result['path']}:{result['line']} {result['operator']}"
                print(f"{title}: {killer}", flush=True)
    print(report(done))


def draw(root: Path, *, seed: int, count: int, packages: Iterable[str] | None = None) -> list[Mutant]:
    """Draw lines of tuner/ that can be mutated, each line as likely as any other, and one edit for each."""
    chance = random.Random(seed)  # noqa: S311 - a reproducible draw, no secret
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


def run(root: Path, mutants: Sequence[Mutant], *, map_path: Path, jobs: int, whole: bool) -> Iterable[dict[str, Any]]:
    """Yield the result of each mutant as it comes; the checkout itself is never written to."""
    if not mutants:
        return
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for job in range(jobs):
            copies.put(copy_checkout(root, Path(folder) / str(job)))
        first = copies.get()
        if not map_path.exists():
            make_map(first, map_path)
        coverage = CoverageMap(**json.loads(map_path.read_text(encoding="utf-8")))
        collected = [test for test in collect(first) if test not in coverage.failing]
        copies.put(first)

        def work(mutant: Mutant) -> dict[str, Any]:
            copy = copies.get()
            try:
                return judge(copy, mutant, coverage, collected, whole=whole)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(jobs) as pool:
            try:
                yield from pool.map(work, mutants)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for process in list(RUNNING):
                    _end(process)
                raise


def judge(
    copy: Path, mutant: Mutant, coverage: CoverageMap, collected: Sequence[str], *, whole: bool
) -> dict[str, Any]:
    """Run the tests on one mutant and return what killed it, or that it survived."""
    path = copy / mutant.path
    source = path.read_text(encoding="utf-8")
    stages = stages_of(mutant, source, coverage, collected)
    started, killer = time.monotonic(), ""
    unreliable: set[str] = set()
    for stage in [*stages, *([list(collected)] if whole else [])]:
        while not killer and (tests := [test for test in stage if test not in unreliable]):
            limit = TIME_LIMIT_BASE + TIME_LIMIT_FACTOR * sum(coverage.seconds.get(test, 0.05) for test in tests)
            with mutated(path, mutant.mutation):
                failure = first_failure(copy, tests, limit)
            if failure in collected and coverage.seconds.get(failure, 1.0) > DOUBTFUL:
                with mutated(path, mutant.mutation):
                    fails_again = first_failure(copy, [failure], limit)
                if not fails_again or first_failure(copy, [failure], limit):
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


@contextmanager
def mutated(path: Path, mutation: Mutation) -> Iterator[None]:
    """Hold an edit in a file, which gets a new time at each change so that no stale bytecode stands in for it."""
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
    """Order the tests that execute a mutant: its own package's, with those newer than the map, then the others'."""
    executing = coverage.executing(mutant, source)
    own = f"tests/{mutant.package}/"
    known = set(coverage.tests)
    near = [test for test in collected if test.startswith(own)]
    if executing:  # else the file is new, or runs in processes that coverage.py does not follow
        near = [test for test in near if test in executing or test not in known]
    far = [test for test in collected if not test.startswith(own) and test in executing]
    return [sorted(stage, key=lambda test: coverage.seconds.get(test, 0.0)) for stage in (near, far)]


def first_failure(copy: Path, tests: Sequence[str], limit: float) -> str:
    """Run some tests in their order up to the first failure; return what failed, or an empty string."""
    listed = copy.parent / f"{copy.name}.tests"
    listed.write_text("\n".join(tests), encoding="utf-8")
    code, text = pytest(copy, ["-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", f"@{listed}"], limit)
    if code is None:
        return f"no end within {limit:.0f} s"
    if code in (PASSED, NO_TESTS):
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", text, re.MULTILINE)
    return failed[1] if failed else f"pytest ended with code {code}"


def pytest(copy: Path, arguments: Sequence[str], limit: float | None = None) -> tuple[int | None, str]:
    """Run pytest in a copy; return its exit code, None if it exceeded the limit, and its output."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "pytest", *arguments]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command, cwd=copy, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        RUNNING.add(process)
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
            process.wait()
            RUNNING.discard(process)
        output.seek(0)
        return code, output.read()


def _end(process: subprocess.Popen[Any]) -> None:
    """End what is left of a process group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def collect(copy: Path) -> list[str]:
    """Return the names of the fast tests."""
    code, text = pytest(copy, ["--collect-only", "-q", "-p", "no:cacheprovider", "-m", FAST])
    names = [line for line in text.splitlines() if "::" in line and line.startswith("tests/")]
    if code != PASSED or not names:
        sys.exit(f"the tests cannot be collected:\n{text[-2000:]}")
    return names


def make_map(copy: Path, map_path: Path) -> None:
    """Run the fast tests once under coverage.py and write which of them execute each line."""
    data = copy.parent / "coverage"
    settings = copy.parent / "coverage.ini"
    settings.write_text(f"[run]\nsource = {copy / 'tuner'}\ndata_file = {data}\n", encoding="utf-8")
    measure = ["--cov", f"--cov-config={settings}", "--cov-context=test", "--cov-report="]
    code, text = pytest(copy, [*measure, "-q", "-vv", "--durations=0", "-p", "no:cacheprovider", "-m", FAST])
    failing = re.findall(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", text, re.MULTILINE)
    if code not in (PASSED, FAILED) or len(failing) > MOST_FAILING:
        sys.exit(f"the fast tests fail without a mutant:\n{text[-2000:]}")
    if failing:
        print("These tests fail without a mutant and judge none:", *failing, sep="\n  ", file=sys.stderr)
    write_map(copy, data, text, map_path, failing)


def write_map(copy: Path, data_path: Path, durations: str, map_path: Path, failing: Sequence[str] = ()) -> None:
    """Write coverage.py's data file and pytest's table of durations as a map."""
    from coverage import CoverageData

    data = CoverageData(str(data_path))
    data.read()
    contexts = {context.rpartition("|")[0] for context in data.measured_contexts()} - {""}
    made = CoverageMap(tests=sorted(contexts), failing=sorted(set(failing)))
    index = {test: place for place, test in enumerate(made.tests)}
    for name in sorted(data.measured_files()):
        path = Path(name).relative_to(copy).as_posix()
        source = Path(name).read_text(encoding="utf-8")
        lines: dict[str, list[int]] = {}
        functions: dict[str, set[int]] = {}
        for line, on_line in data.contexts_by_lineno(name).items():
            tests = {index[context.rpartition("|")[0]] for context in on_line if context}
            if tests:
                lines[str(line)] = sorted(tests)
                functions.setdefault(function_at(source, line), set()).update(tests)
        entry = {function: sorted(tests) for function, tests in functions.items()}
        made.files[path] = {"hash": _hash(source), "lines": lines, "functions": entry}
    for seconds, test in re.findall(r"^\s*([0-9.]+)s (?:call|setup|teardown)\s+(\S.*)$", durations, re.MULTILINE):
        made.seconds[test] = round(made.seconds.get(test, 0.0) + float(seconds), 3)
    map_path.parent.mkdir(parents=True, exist_ok=True)
    map_path.write_text(json.dumps(asdict(made)), encoding="utf-8")


def copy_checkout(root: Path, folder: Path) -> Path:
    """Copy the files that git knows or does not ignore; the whole folder where there is no repository."""
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


def _hash(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:16]


if __name__ == "__main__":
    main()
