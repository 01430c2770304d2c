"""Overhead of jobs on this machine: medians over whole jobs with real processes.

python benchmarks/jobs.py              # seconds from the last line to the end of all processes; the tuner's own time
python benchmarks/jobs.py --deepspeed  # start of the ranks by tuner's forks, by torchrun and by DeepSpeed's launcher
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.core.assignment import Assignment
from tuner.core.domain import Topology, Workload
from tuner.core.model import Model
from tuner.launch.contract import Job, JobState
from tuner.launch.ds_config import ds_config
from tuner.launch.local.launcher import LocalLauncher
from tuner.launch.program import CommandTemplate
from tuner.space.build import space_for
from tuner.study.limits import Limits
from tuner.study.settings import StudySettings
from tuner.study.setup import open_loop

ROOT = Path(__file__).resolve().parent.parent
REPEATS = 9
TRAINER = f"{sys.executable} -I -S {ROOT / 'tests/trainer.py'} good"
RANKS = Topology(nodes=1, tp=2, pp=1, dp=2, micro_batch=1, zero=1, recompute="none")
TINY = Workload(
    model=Model(layers=4, hidden=64, heads=4, vocab=128, seq=32), global_batch=8, precision="fp32", attention="eager"
)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--deepspeed", action="store_true")
    os.environ["DS_ACCELERATOR"] = "cpu"
    os.environ["OMP_NUM_THREADS"] = "1"
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as name:
        if parser.parse_args().deepspeed:
            starts(Path(name))
        else:
            farewells(Path(name))
            overhead(Path(name))


def farewells(folder: Path) -> None:
    """Print the seconds from a job's last line until none of its processes is left."""
    program = CommandTemplate.parse(TRAINER, configure=lambda _: {}, cwd=folder)
    space = space_for(model="tiny", nodes=1, gpus_per_node=4)
    launcher, took = LocalLauncher(program, ranks=4), []
    for number in range(REPEATS):
        job = Job(
            number=number,
            tag=f"bench-{number}-{os.getpid()}",
            folder=folder / "farewells" / str(number),
            workload=TINY,
            cluster=space.cluster,
            topology=RANKS,
        )
        handle = launcher.submit(job)
        while launcher.poll([handle])[handle].state is not JobState.ENDED:
            launcher.wait(20)
        ended = json.loads((job.folder / "ended.json").read_text())["ended"]
        took.append(ended - (job.folder / "stdout.log").stat().st_mtime)
    launcher.close()
    print(f"from the last line to the end of all processes: {_said(took)}")


def overhead(folder: Path) -> None:
    """Print the tuner's own seconds per job: total time less the time of the jobs themselves."""
    space = space_for(model="tiny", nodes=1, gpus_per_node=4, settings=["cp=1", "vpp=1"], precision="fp32")
    limits = Limits(budget=REPEATS)
    settings = StudySettings(space=space, limits=limits, launcher="local", command=TRAINER, runs=folder / "runs")
    with open_loop(settings) as loop:
        began, busy = time.perf_counter(), time.process_time()
        loop.run()
        whole, worked = time.perf_counter() - began, time.process_time() - busy
        jobs = loop.state.launched
        held = loop.state.node_hours * 3600
    print(
        f"the tuner's own time: {(whole - held) / jobs:.2f} s a job by the clock, {worked / jobs:.2f} s of a processor "
        f"({jobs} jobs in {whole:.1f} s, of which they held the machine {held:.1f} s)"
    )


def starts(folder: Path) -> None:
    """Print the seconds of a four-rank job until its first line and until its end, for each way to start the ranks."""
    worker = ("--job", str(folder / "job.json"))
    (folder / "ds_config.json").write_text(json.dumps(ds_config(TINY, RANKS)))
    Assignment(
        workload=TINY, topology=RANKS, gpus_per_node=4, ds_config="ds_config.json", result="result.json", timeout=60
    ).write(folder / "job.json")
    python, deepspeed = sys.executable, "deepspeed.launcher.runner"
    torchrun = ("torch.distributed.run", "--standalone", "--nproc-per-node", "4", "-m", "tuner.worker")
    ways = {
        "own forks": (python, "-m", "tuner.worker.ranks", *worker),
        "torchrun": (python, "-m", *torchrun, *worker),
        "deepspeed": (
            python,
            "-m",
            deepspeed,
            "--num_gpus",
            "4",
            "--module",
            "--no_local_rank",
            "tuner.worker",
            *worker,
        ),
    }
    for name, arguments in ways.items():
        first, whole = [], []
        for _ in range(3):
            began = time.perf_counter()
            with (
                subprocess.Popen(
                    arguments,
                    cwd=folder,
                    env={**os.environ, "PYTHONPATH": str(ROOT)},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                ) as process,
                _limit(process),
            ):
                lines: Iterable[str] = process.stdout or ()
                first += [time.perf_counter() - began for line in lines if " iteration        1/" in line]
            whole.append(time.perf_counter() - began)
        print(f"{name}: first line after {_said(first)}, over after {_said(whole)}")


@contextmanager
def _limit(process: subprocess.Popen[str]) -> Iterator[None]:
    timer = threading.Timer(150, process.kill)
    timer.start()
    yield
    timer.cancel()


def _said(values: list[float]) -> str:
    if not values:
        return "never"
    return f"{statistics.median(values):.2f} s ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()
