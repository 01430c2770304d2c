"""A process that answers each line of its input with a line of JSON."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent


class Answering:
    """A Python module that runs as a process and answers requests, one at a time."""

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self.began = time.time()
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": python_path(), **environment},
            start_new_session=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, request: str, limit: float) -> dict[str, Any] | None:
        """Return the answer to a request, with the exit code alone if the process has died; None if it is late."""
        asked = time.time()
        assert self._process.stdin is not None  # noqa: S101 - a pipe
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{request}\n")
            self._process.stdin.flush()
        try:
            line = self._answers.get(timeout=limit)
        except queue.Empty:
            return None
        if line is None:  # killed by the kernel or by a signal
            return {"exit": self._process.wait(), "began": asked, "ended": time.time(), "died": True}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process and its children."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _read(self) -> None:
        """Put each line of the output into the queue, and None at its end."""
        with suppress(ValueError, OSError):  # the stream was closed meanwhile
            for line in self._process.stdout or ():
                self._answers.put(line)
        self._answers.put(None)


def python_path() -> str:
    """Return a PYTHONPATH with this checkout and the entries of the current PYTHONPATH."""
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
