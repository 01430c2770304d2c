"""Run planned rows in one shared process, or as separate jobs under the product's launcher."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu.plan import ITERATIONS, MEGATRON_ITERATIONS, PlannedRow
from benchmarks.gpu.process import Answering
from benchmarks.gpu.worker import nvidia_smi
from tuner.core.assignment import Assignment
from tuner.core.atomic_write import read_object
from tuner.core.outcomes import Outcome
from tuner.launch.contract import Job, JobResult, JobState
from tuner.launch.ds_config import ds_config
from tuner.launch.local.launcher import LocalLauncher
from tuner.launch.memory_probe import memory_of
from tuner.launch.outcome import outcome_of
from tuner.launch.program import WorkerProgram

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
    _process: Answering | None = None
    _module: str = ""
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
        asked = time.time()
        answer = self._ask("benchmarks.gpu.worker", job, row)
        if answer is None:
            late = {"status": "HANG", "outcome": "TIMED_OUT", "meaning": "no answer within the time limit"}
            return {**late, "how": "shared", "took": time.time() - asked, "cells": row.cells}
        ended = {"why": "exited", **{name: answer[name] for name in ("exit", "began", "ended")}}
        result = outcome_of(job.folder, ended, (2,), on_host=self.on_host)
        entry = self._entry(row, job, result) | {"how": "shared", "took": time.time() - asked, "process": answer}
        if "peak" in answer:
            entry["smi_gib"] = answer["peak"].get("in_use", 0.0) / 2**30
        if (
            result.outcome not in (Outcome.MEASURED, Outcome.OOM)
            or self._leaks(answer)
            or row.topology.offload != "none"
        ):
            self.close()
        return entry

    def megatron(self, row: PlannedRow) -> dict[str, Any]:
        """Run a row with Megatron-Core in its own shared process; return the entry."""
        job = self.job(row, row.name)
        job.folder.mkdir(parents=True, exist_ok=True)
        assignment = Assignment(
            workload=job.workload,
            topology=job.topology,
            gpus_per_node=1,
            ds_config="none",
            result="none",
            iterations=MEGATRON_ITERATIONS,
        )
        assignment.write(job.folder / "assignment.json")
        asked = time.time()
        answer = self._ask("benchmarks.gpu.megatron", job, row) or {"status": "HANG", "died": True}
        if answer.get("status") not in ("OK", "OOM") or self._leaks(answer):
            self.close()
        entry = {"status": "FAIL", "cells": row.cells, "how": "shared", "took": time.time() - asked, **answer}
        return entry | {"estimate": {"seconds": row.estimate[0], "fits": row.estimate[1]}}

    def _ask(self, module: str, job: Job, row: PlannedRow) -> dict[str, Any] | None:
        """Have the process of a module run a prepared job; None if it took too long, after which it is gone."""
        if self._process is not None and self._module != module:
            self.close()
        started = self._process is None
        if self._process is None:
            self._first_use, self._module = None, module
            environment = {"DS_ACCELERATOR": self.accelerator} | ({"OMP_NUM_THREADS": "1"} if self.on_host else {})
            self._process = Answering(module, environment)
        limit = 10 * row.estimate[0] + (FIRST_ROW_SECONDS if started else ROW_LIMIT)
        answer = self._process.ask(str(job.folder.resolve() / "assignment.json"), limit)
        if answer is None or answer.get("died"):
            self.close()
        return answer

    def _leaks(self, answer: Mapping[str, Any]) -> bool:
        """Whether the process still holds memory of its last row, or uses more memory than after its first."""
        after = answer.get("after", {})
        if not after:
            return False
        self._first_use = after["in_use"] if self._first_use is None else self._first_use
        return bool(after["allocated"] > MAX_LEFT or after["in_use"] > self._first_use + MAX_GROWTH)

    def close(self) -> None:
        """End the shared process and its children."""
        if self._process is not None:
            self._process.close()
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
