"""Run planned rows in one shared process, or as separate jobs under the product's launcher."""

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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu.plan import ITERATIONS, PlannedRow
from benchmarks.gpu.worker import nvidia_smi
from tuner.core.atomic_write import read_object
from tuner.core.outcomes import Outcome
from tuner.launch.contract import Job, JobResult, JobState
from tuner.launch.ds_config import ds_config
from tuner.launch.local.launcher import LocalLauncher
from tuner.launch.memory_probe import memory_of
from tuner.launch.outcome import outcome_of
from tuner.launch.program import WorkerProgram

ROOT: Final = Path(__file__).resolve().parent.parent.parent
FIRST_ROW_SECONDS: Final = 180.0
"""Time limit of a process's first row without its iterations: imports, and compiling DeepSpeed's Adam if needed."""
ROW_LIMIT: Final = 60.0
"""Time limit of every other row without its iterations."""
MAX_LEFT: Final = 64 * 2**20
"""Bytes that may stay allocated after a row of the shared process; more would count towards the next row."""
MAX_GROWTH: Final = 2**30
"""Bytes by which the GPU memory in use between rows may grow before the shared process is replaced."""
STATUS: Final[Mapping[Outcome, str]] = {
    Outcome.MEASURED: "OK",
    Outcome.OOM: "OOM",
    Outcome.HUNG: "HANG",
    Outcome.TIMED_OUT: "HANG",
}
"""Status of each outcome in the measurement table; every other outcome is FAIL."""


@dataclass(slots=True)
class Runner:
    """Runs rows one after the other; their output goes below a folder."""

    folder: Path
    accelerator: str
    torch_adam: bool = False
    """Whether to use torch's fused Adam, because DeepSpeed's does not compile."""
    _process: subprocess.Popen[str] | None = None
    _answers: queue.Queue[str | None] = field(default_factory=queue.Queue)
    _first_use: float | None = None
    _count: int = 0

    @property
    def on_host(self) -> bool:
        """Whether rows run on the CPU."""
        return self.accelerator == "cpu"

    # -- in the shared process

    def shared(self, row: PlannedRow) -> dict[str, Any]:
        """Run a row in the shared process, which is restarted after a failure other than OOM; return the entry."""
        job = self.job(row, row.name)
        job.folder.mkdir(parents=True, exist_ok=True)
        for name in ("result.json", "stdout.log", "stderr.log"):
            (job.folder / name).unlink(missing_ok=True)
        self.program.prepare(job)
        started = self._process is None
        if self._process is None:
            self._start()
        assert self._process is not None  # noqa: S101 - `_start` sets it
        assert self._process.stdin is not None  # noqa: S101 - a pipe
        limit = 10 * row.estimate[0] + (FIRST_ROW_SECONDS if started else ROW_LIMIT)
        asked = time.time()
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{job.folder.resolve() / 'assignment.json'}\n")
            self._process.stdin.flush()
        try:
            line = self._answers.get(timeout=limit)
        except queue.Empty:
            self.close()
            late = {"status": "HANG", "outcome": "TIMED_OUT", "meaning": f"no answer within {limit:.0f} s"}
            return {**late, "how": "shared", "took": time.time() - asked, "cells": row.cells}
        if line is None:  # killed by the kernel or by a signal
            code = self._process.wait()
            self.close()
            answer: dict[str, Any] = {"exit": code, "began": asked, "ended": time.time()}
        else:
            answer = json.loads(line)
        ended = {"why": "exited", **{name: answer[name] for name in ("exit", "began", "ended")}}
        result = outcome_of(job.folder, ended, (2,), on_host=self.on_host)
        entry = self._entry(row, job, result) | {"how": "shared", "took": time.time() - asked, "process": answer}
        if "peak" in answer and "smi" in answer["peak"]:
            entry["smi_gib"] = answer["peak"]["smi"] / 2**30
        if (
            result.outcome not in (Outcome.MEASURED, Outcome.OOM)
            or self._leaks(answer)
            or row.topology.offload != "none"
        ):
            self.close()
        return entry

    def _leaks(self, answer: Mapping[str, Any]) -> bool:
        """Whether the process still holds memory of its last row, or uses more memory than after its first."""
        after = answer.get("after", {})
        if not after:
            return False
        self._first_use = after["in_use"] if self._first_use is None else self._first_use
        return bool(after["allocated"] > MAX_LEFT or after["in_use"] > self._first_use + MAX_GROWTH)

    def _start(self) -> None:
        self._answers, self._first_use = queue.Queue(), None
        environment = {"DS_ACCELERATOR": self.accelerator, "PYTHONUNBUFFERED": "1", "PYTHONPATH": python_path()}
        if self.on_host:
            environment["OMP_NUM_THREADS"] = "1"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gpu.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=ROOT,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        threading.Thread(target=_read, args=(self._process, self._answers), daemon=True).start()

    def close(self) -> None:
        """End the shared process and its children."""
        if self._process is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        self._process = None

    # -- as a separate job

    def alone(self, row: PlannedRow, name: str) -> dict[str, Any]:
        """Run a row under the product's launcher, as a study does; return the entry."""
        self.close()
        job, began = self.job(row, name), time.time()
        launcher = LocalLauncher(self.program, ranks=1)
        limit = FIRST_ROW_SECONDS + 10 * row.estimate[0]
        peak = 0.0
        try:
            handle = launcher.submit(job)
            while launcher.poll([handle])[handle].state is not JobState.ENDED and time.time() - began < limit:
                peak = max(peak, memory_of(job.tag, on_host=self.on_host))
                launcher.wait(0.2)
            launcher.cancel(handle)
            result = launcher.collect(handle)
        finally:
            launcher.close()
        entry = self._entry(row, job, result) | {"how": "alone", "took": time.time() - began}
        if peak and not self.on_host:
            entry["smi_gib"] = peak / 2**30
        return entry

    # -- both

    @property
    def program(self) -> WorkerProgram:
        """Return the program of the shipped worker."""
        return WorkerProgram(configure=self._configure, accelerator=self.accelerator, timeout=300)

    def _configure(self, job: Job) -> dict[str, Any]:
        config = ds_config(job.workload, job.topology)
        if self.torch_adam and config["optimizer"]["type"] == "AdamW" and job.topology.offload == "none":
            config["optimizer"]["params"] |= {"torch_adam": True, "fused": True}
        return config

    def job(self, row: PlannedRow, name: str) -> Job:
        """Return the job of a row."""
        self._count += 1
        return Job(
            number=self._count,
            tag=f"gpu-{os.getpid()}-{time.time_ns()}",
            folder=self.folder / "jobs" / name,
            workload=row.workload,
            cluster=row.cluster,
            topology=row.topology,
            iterations=tuple(range(2, ITERATIONS + 1)),
        )

    def _entry(self, row: PlannedRow, job: Job, result: JobResult) -> dict[str, Any]:
        """Return the entry of a row: its cells, outcome, times and memory."""
        document = read_object(job.folder / "result.json") or {}
        entry: dict[str, Any] = {
            "status": STATUS.get(result.outcome, "FAIL"),
            "outcome": result.outcome.value,
            "adam": "torch" if self.torch_adam else "deepspeed",
            "cells": row.cells,
            "estimate": {"seconds": row.estimate[0], "fits": row.estimate[1]},
        }
        if result.failure:
            entry |= {"meaning": result.failure.meaning, "evidence": result.failure.evidence[:400]}
        if result.measurement is None:
            return entry
        iterations = document.get("iterations", [])
        peak = (document.get("peak_memory") or [{}])[0]
        return entry | {
            "seconds": [each["seconds"] for each in iterations],
            "loss": [each["loss"] for each in iterations],
            "skipped": iterations[-1]["skipped"] if iterations else 0,
            "memory_kind": document.get("memory_kind"),
            "allocated_gib": peak.get("allocated", 0) / 2**30,
            "reserved_gib": peak.get("reserved", 0) / 2**30,
            "versions": document.get("versions"),
            "device": document.get("device"),
        }


def idle_memory() -> float | None:
    """Return the GiB in use on the GPU while no job of this benchmark runs; None without a GPU."""
    mib = nvidia_smi("memory.used")
    return None if mib is None else mib / 1024


def _read(process: subprocess.Popen[str], answers: queue.Queue[str | None]) -> None:
    """Put each output line of a process into the queue, and None at its end."""
    with suppress(ValueError, OSError):  # the stream was closed meanwhile
        for line in process.stdout or ():
            answers.put(line)
    answers.put(None)


def python_path() -> str:
    """Return a PYTHONPATH with this checkout and the entries of the current PYTHONPATH."""
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
