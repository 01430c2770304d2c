"""A map from each line of tuner/ to the fast tests that execute it, made with coverage.py; and a pytest subprocess."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.mutation import function_at

FAST: Final = "not slow and not cluster"
PASSED: Final = 0
FAILED: Final = 1
USAGE_ERROR: Final = 4
NO_TESTS: Final = 5
"""pytest's exit codes."""
RUNNING: Final[set[subprocess.Popen[Any]]] = set()
"""The pytest processes that are running; they are killed when this program ends."""
MAX_FAILING: Final = 20
"""Number of failing tests above which no map is made, because the checkout is broken."""


@dataclass(slots=True, kw_only=True)
class CoverageMap:
    """The map from lines to the tests that execute them, and the duration of each test."""

    tests: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Per file: its hash, and the tests of each line and of each function as indices into `tests`."""
    failing: list[str] = field(default_factory=list)
    """Tests that failed without a mutant while the map was made; they are not used to judge mutants."""

    def executing(self, path: str, line: int, function: str, source: str) -> set[str]:
        """Return the tests that execute a line, or its function if the file has changed since the map was made.

        For a line that runs on import, return the tests of its whole file.
        """
        known = self.files.get(path)
        if known is None:
            return set()
        found = known["lines"].get(str(line)) if known["hash"] == _hash(source) else None
        if not found:
            found = known["functions"].get(function)
        if not found:
            found = sorted({index for indices in known["functions"].values() for index in indices})
        return {self.tests[index] for index in found}


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
            end(process)
            process.wait()
            RUNNING.discard(process)
        output.seek(0)
        return code, output.read()


def end(process: subprocess.Popen[Any]) -> None:
    """Kill what is left of a process group."""
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
    """Run the fast tests once under coverage.py and write the map from lines to tests."""
    data = copy.parent / "coverage"
    settings = copy.parent / "coverage.ini"
    settings.write_text(f"[run]\nsource = {copy / 'tuner'}\ndata_file = {data}\n", encoding="utf-8")
    measure = ["--cov", f"--cov-config={settings}", "--cov-context=test", "--cov-report="]
    code, text = pytest(copy, [*measure, "-q", "-vv", "--durations=0", "-p", "no:cacheprovider", "-m", FAST])
    failing = re.findall(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", text, re.MULTILINE)
    if code not in (PASSED, FAILED) or len(failing) > MAX_FAILING:
        sys.exit(f"the fast tests fail without a mutant:\n{text[-2000:]}")
    if failing:
        print("These tests fail without a mutant and judge none:", *failing, sep="\n  ", file=sys.stderr)
    write_map(copy, data, text, map_path, failing)


def write_map(copy: Path, data_path: Path, durations: str, map_path: Path, failing: Sequence[str] = ()) -> None:
    """Write the map from coverage.py's data file and pytest's table of durations."""
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


def _hash(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:16]
