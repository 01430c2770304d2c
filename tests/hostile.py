"""A trainer that tampers with the files of its job: `hostile.py pipe FOLDER`. A program for launchers, not a test."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path


def pipe(folder: Path) -> None:
    """Replace the log by a pipe that has no writer."""
    (folder / "stdout.log").unlink()
    os.mkfifo(folder / "stdout.log")


def device(folder: Path) -> None:
    """Replace the logs by an endless device."""
    for name in ("stdout.log", "stderr.log"):
        (folder / name).unlink()
        (folder / name).symlink_to("/dev/zero")


def report_pipe(folder: Path) -> None:
    """Put pipes in place of the supervisor's files."""
    for name in ("ended.json", "job.json", "start.json"):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)


def report(folder: Path) -> None:
    """Write the supervisor's report and the result with invalid numbers."""
    (folder / "ended.json").write_text('{"why": "exited", "exit": 1e999, "began": "yesterday", "ended": [1]}')
    (folder / "result.json").write_text('{"iterations": [{"number": 1e999, "seconds": 1e999, "loss": 1e999}]}')


def gone(folder: Path) -> None:
    """Delete the job's folder."""
    shutil.rmtree(folder)


def long_line(_folder: Path) -> None:
    """Print 50 MB without a line break."""
    for _ in range(50):
        sys.stdout.write("NCCL WARN " * 100_000)


def backwards(folder: Path) -> None:
    """Date the files one day ahead, as if the clock had been set back."""
    tomorrow = time.time() + 86400
    for path in folder.iterdir():
        os.utime(path, (tomorrow, tomorrow))


if __name__ == "__main__":
    tampering: dict[str, Callable[[Path], None]] = {
        tampered.__name__: tampered for tampered in (pipe, device, report_pipe, report, gone, long_line, backwards)
    }
    tampering[sys.argv[1]](Path(sys.argv[2]))
    for number in range(1, 4):
        said = "elapsed time per iteration (ms): 50.0 | lm loss: 1.1E+01"
        sys.stdout.write(f" iteration {number:8d}/  1000 | consumed samples: {64 * number} | {said} |\n")
    sys.stdout.flush()
