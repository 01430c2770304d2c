"""Run tests on edited functions without starting pytest each time: collect once, then fork for each edit.

    python -m benchmarks.forked_tests REQUESTS ANSWERS

REQUESTS and ANSWERS are the descriptors of two pipes. Each request is a line of JSON: a file of the working directory,
its source before and after the edit, and the names of tests. A child process puts the edited code into the imported
functions and runs the tests in the given order up to the first failure. It writes a line for each test that it begins,
then "failed", "passed" or "unable"; the last means that the edit changes code that already ran on import.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from select import select
from types import CodeType, FunctionType
from typing import Any, Final, Literal, cast

import pytest
from _pytest.runner import runtestprotocol

ROOT: Final = Path(__file__).resolve().parent.parent
Ending = Literal["failed", "passed", "unable"]
START: Final = 600.0
"""Time limit for collecting the tests, in seconds."""


class ForkedTests:
    """A pytest process in a copy of the checkout that waits for edits."""

    def __init__(self, copy: Path, marker: str) -> None:
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        command = [sys.executable, "-m", "benchmarks.forked_tests", str(requests), str(answers), marker]
        environment = {**os.environ, "PYTHONPATH": f"{copy}{os.pathsep}{ROOT}", "PYTHONHASHSEED": "0"}
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # a fork has one thread
        self.process = subprocess.Popen(
            command,
            cwd=copy,
            env=environment,
            pass_fds=(requests, answers),
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(requests)
        os.close(answers)
        self._unread = b""
        if self._line(START) != "ready":
            raise RuntimeError(f"the tests in {copy} cannot be collected")

    def run(self, path: str, before: str, after: str, tests: Sequence[tuple[str, float]]) -> tuple[Ending, str]:
        """Run tests, each with its time limit in seconds, on an edited file; return the ending and the last test."""
        request = {"path": path, "before": before, "after": after, "tests": [test for test, _ in tests]}
        with os.fdopen(os.dup(self._requests), "w", encoding="utf-8") as pipe:
            pipe.write(json.dumps(request) + "\n")
        limits, limit, test = dict(tests), 60.0, ""
        ending: Ending = "failed"
        while (line := self._line(limit)) != "idle":
            if line is None:
                os.kill(self.process.pid, signal.SIGUSR1)
                limit = 60.0
                continue
            kind, _, name = line.partition(" ")
            if kind == "begin":
                test, limit = name, limits[name]
            else:
                ending, limit = cast("Ending", kind), 60.0
        return ending, test

    def close(self) -> None:
        """End the process and its child; a thread that waits for an answer gets an error.

        SIGTERM is repeated because Python may handle a signal that arrives just before a blocking read only at the
        next one.
        """
        while self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(1.0)

    def _line(self, limit: float) -> str | None:
        """Return the next answer, or None if there is none within `limit` seconds."""
        end = time.monotonic() + limit
        while b"\n" not in self._unread:
            if not select([self._answers], [], [], max(end - time.monotonic(), 0.0))[0]:
                return None
            read = os.read(self._answers, 65536)
            if not read:
                raise RuntimeError("pytest ended")
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()


class _Server:
    """A pytest plugin that answers requests instead of running all tests."""

    def __init__(self, requests: int, answers: int) -> None:
        self._requests, self._answers = requests, answers

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Answer requests until the other side closes its pipe."""
        items = {item.nodeid: item for item in session.items}
        functions = _functions(Path.cwd())
        for cache in gc.get_objects():
            if type(cache) is functools._lru_cache_wrapper:
                cache.cache_clear()
        gc.freeze()
        self._say("ready")
        with os.fdopen(self._requests, encoding="utf-8") as requests:
            for line in requests:
                self._fork(json.loads(line), items, functions)
        return True

    def _fork(
        self, request: Mapping[str, Any], items: Mapping[str, pytest.Item], functions: Mapping[str, list[FunctionType]]
    ) -> None:
        child = os.fork()
        if child == 0:
            os.setsid()
            ending = "failed"
            try:
                filename = str(Path.cwd() / request["path"])
                if exchange(request["before"], request["after"], filename, functions.get(filename, [])):
                    ending = self._run([items[test] for test in request["tests"] if test in items])
                else:
                    ending = "unable"
            finally:
                self._say(ending)
                os._exit(0)

        def end(number: int = 0, _: object = None) -> None:
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            if number == signal.SIGTERM:
                os._exit(1)

        signal.signal(signal.SIGUSR1, end)
        signal.signal(signal.SIGTERM, end)
        os.waitpid(child, 0)
        end()
        self._say("idle")

    def _run(self, items: Sequence[pytest.Item]) -> Ending:
        for item, following in zip(items, [*items[1:], None], strict=True):
            self._say(f"begin {item.nodeid}")
            reports = runtestprotocol(item, log=False, nextitem=following)
            if any(report.failed for report in reports):
                with suppress(BaseException):
                    item.session._setupstate.teardown_exact(None)  # tear down the test's fixtures
                return "failed"
        return "passed"

    def _say(self, line: str) -> None:
        os.write(self._answers, f"{line}\n".encode())


def exchange(before: str, after: str, filename: str, functions: Sequence[FunctionType]) -> bool:
    """Replace the code of a file's functions by the edited code; return whether this covers the whole edit.

    Nothing is replaced in a file that was not imported yet, because the import will read the edited file from disk.
    """
    changed: list[tuple[CodeType, CodeType]] = []
    try:
        old, new = (compile(source, filename, "exec", dont_inherit=True) for source in (before, after))
    except SyntaxError:
        return False
    imported = functions or any(getattr(module, "__file__", None) == filename for module in [*sys.modules.values()])
    if not imported or before == after:
        return True
    if not _compare(old, new, changed) or not changed:
        return False
    if not all(_replace(functions, was, becomes) for was, becomes in changed):
        return False
    while changed:  # inner functions created on import, such as those that a decorator returns
        changed = [
            (one, two)
            for was, becomes in changed
            for one, two in zip(_inner(was), _inner(becomes), strict=False)
            if one != two
        ]
        for was, becomes in changed:
            _replace(functions, was, becomes)
    return True


def _replace(functions: Sequence[FunctionType], was: CodeType, becomes: CodeType) -> bool:
    """Replace a code object in the functions that run it; return False if there are none or it fits not all of them."""
    found = [
        f for f in functions if (f.__code__.co_name, f.__code__.co_firstlineno) == (was.co_name, was.co_firstlineno)
    ]
    if not found or any(len(function.__code__.co_freevars) != len(becomes.co_freevars) for function in found):
        return False
    for function in found:
        function.__code__ = becomes
    return True


def _compare(old: CodeType, new: CodeType, changed: list[tuple[CodeType, CodeType]]) -> bool:
    """Collect the changed functions of a module and its classes; return whether nothing else changed."""
    mine, other = list(_inner(old)), list(_inner(new))
    if _own(old) != _own(new) or len(mine) != len(other):
        return False
    for one, two in zip(mine, other, strict=True):
        if _is_class(one):
            if not _compare(one, two, changed):
                return False
        elif one != two:
            changed.append((one, two))
    return True


def _inner(code: CodeType) -> Iterator[CodeType]:
    return (constant for constant in code.co_consts if isinstance(constant, CodeType))


def _own(code: CodeType) -> tuple[object, ...]:
    """Return the code of a module or class body, without that of its functions and classes."""
    constants = [None if isinstance(constant, CodeType) else (type(constant), constant) for constant in code.co_consts]
    return code.co_code, code.co_names, constants


def _is_class(code: CodeType) -> bool:
    return "__qualname__" in code.co_names and "__module__" in code.co_names


def _functions(folder: Path) -> dict[str, list[FunctionType]]:
    """Return the functions of tuner/ that are in memory, by the file that defines them."""
    found: dict[str, list[FunctionType]] = {}
    for function in gc.get_objects():
        if type(function) is FunctionType and function.__code__.co_filename.startswith(f"{folder}/tuner/"):
            found.setdefault(function.__code__.co_filename, []).append(function)
    return found


def main() -> None:
    """Collect the tests selected by a marker expression, and answer requests."""
    requests, answers, marker = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    temporary = Path.cwd().parent / f"{Path.cwd().name}.tmp"
    options = ["-q", "--tb=no", "--no-header", "-p", "no:cacheprovider", f"--basetemp={temporary}", "-m", marker]
    pytest.main(options, plugins=[_Server(requests, answers)])


if __name__ == "__main__":
    main()
