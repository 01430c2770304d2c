"""Random faults on a shared study for minutes: `python -m tests.soak database|slurm --minutes 10 --seed 1`.

`database`: six tuners share a study on a PostgreSQL server, with simulated jobs. `slurm`: two tuners share a study
with jobs on a Slurm cluster of four nodes, as root. Random faults kill, interrupt and pause the tuners, restart the
server, kill the controller and nodes, cancel and requeue jobs, and make Slurm's commands fail. Afterwards no trial may
be lost or duplicated, and no process may be left running.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests import trainer
from tests.conftest import Said
from tests.postgres import Server, programs_of_server, restartable
from tests.slurm_cluster import NODES, SlurmCluster, installed
from tests.studies import ENVIRONMENT, assert_lawful, finish, kept, outcomes, run_tuner, start, states, url_of

NAME = "soak"
PAUSE = (0.5, 4.0)
"""Seconds between two faults."""


def had_begun(said: Said) -> bool:
    """Whether tuner's own code had begun to run; Ctrl-C a few milliseconds after its start ends Python before it."""
    return not said.err.rstrip().endswith("KeyboardInterrupt") or "tuner/__main__.py" in said.err


class Soak:
    """Tuners that share a study, and the faults that they suffer."""

    budget: int
    url: str
    patience = 60.0
    """Seconds in which an interrupted tuner must end."""

    def __init__(self, many: int, folder: Path, chance: random.Random) -> None:
        self.folder, self.chance = folder, chance
        self.workers = [self.start(self.budget) for _ in range(many)]
        self.said: list[Said] = []
        self.done: Counter[str] = Counter()
        self.pids: set[int] = {worker.pid for worker in self.workers}
        self.faults: list[Callable[[], None]] = [self.kill, self.kill, self.interrupt, self.pause]

    def start(self, budget: int) -> subprocess.Popen[str]:
        """Start a tuner on the study."""
        raise NotImplementedError

    def run(self, minutes: float) -> None:
        """Cause faults for so many minutes and restart ended tuners; finally interrupt all tuners."""
        deadline = time.monotonic() + 60 * minutes
        while time.monotonic() < deadline:
            time.sleep(self.chance.uniform(*PAUSE))
            chosen = self.chance.choice(self.faults)
            chosen()
            self.done[chosen.__name__] += 1
            for index, worker in enumerate(self.workers):
                if worker.poll() is not None:
                    self.said.append(finish(worker))
                    self.workers[index] = self.start(self.budget)
                    self.pids.add(self.workers[index].pid)
        for worker in self.workers:
            worker.send_signal(signal.SIGINT)
        self.said += [finish(worker, seconds=self.patience) for worker in self.workers]

    def kill(self) -> None:
        """Kill a tuner."""
        worker = self.chance.choice(self.workers)
        worker.kill()
        worker.wait()

    def interrupt(self) -> None:
        """Interrupt a tuner, as by Ctrl-C."""
        worker = self.chance.choice(self.workers)
        worker.send_signal(signal.SIGINT)
        worker.wait(self.patience)

    def pause(self) -> None:
        """Stop a tuner for a moment and continue it."""
        worker = self.chance.choice(self.workers)
        worker.send_signal(signal.SIGSTOP)
        time.sleep(self.chance.uniform(*PAUSE))
        worker.send_signal(signal.SIGCONT)

    def check(self, *expected: str) -> None:
        """Assert that the study is intact and no process is left; `expected` are allowed errors of a tuner."""
        codes = Counter(said.code for said in self.said)
        ended = [said for said in self.said if had_begun(said)]
        unexpected = [
            said
            for said in ended
            if said.code not in (0, 130, -signal.SIGINT, -signal.SIGKILL)
            and not (said.code == 1 and any(words in said.err for words in expected))
        ]
        assert not unexpected, unexpected[:3]
        tracebacks = [said.err for said in ended if "Traceback" in said.err]
        assert not tracebacks, tracebacks[0]
        storage = ("--storage", self.url)
        self.tuner("stop", NAME, *storage)
        launched = sum(trial.launched for trial in kept(self.url, NAME))
        last = finish(self.start(launched))  # reads the jobs that ended by themselves, and launches none
        assert last.code in (0, 1), last.err
        self.tuner("stop", NAME, *storage)
        trials = kept(self.url, NAME)
        assert sum(trial.launched for trial in trials) == launched
        assert_lawful(trials, budget=self.budget)
        assert states(self.url, NAME)["RUNNING"] == 0
        jobs = Counter(path.parent.name.split("-")[0] for path in self.jobs("job.json"))
        assert {f"{trial.number:04d}" for trial in trials if trial.launched and trial.handle} <= set(jobs)
        assert max(jobs.values()) == 1, "one folder, one job"
        assert not [pid for pid in self.pids if Path(f"/proc/{pid}/stat").exists()]
        assert json.loads(self.tuner("report", NAME, *storage, "--json", "-o", str(self.folder / "report")))
        sys.stdout.write(
            f"{len(trials)} trials, {dict(outcomes(trials))}; faults {dict(self.done)}; exit codes {dict(codes)}\n"
        )

    def jobs(self, name: str) -> list[Path]:
        """Return the files of this name in all job folders."""
        return list((self.folder / "runs" / NAME / "jobs").glob(f"*/{name}"))

    def tuner(self, *words: str) -> str:
        """Run a tuner command and return its output."""
        said = run_tuner(*words, "--runs", str(self.folder / "runs"), folder=self.folder, environment=self.environment)
        assert said.code == 0, said.err
        return said.out

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the tuners."""
        return ENVIRONMENT


class DatabaseSoak(Soak):
    """Six tuners with simulated jobs, and a database server that restarts."""

    budget = 2000
    space = ("--model", "gpt3-175b", "--nodes", "32")
    """A space of some ten thousand topologies, which no soak completes."""

    def __init__(self, server: Server, folder: Path, chance: random.Random) -> None:
        self._server, self.url = server, server.url
        super().__init__(6, folder, chance)
        self.faults.append(self.restart)

    def start(self, budget: int) -> subprocess.Popen[str]:
        """Start a tuner on the study."""
        given = ("--study", NAME, "--budget", str(budget), "--sampler", "grid", "--storage", self.url)
        return start(*given, folder=self.folder, space=self.space)

    def restart(self) -> None:
        """Restart the server, cleanly or as after a crash."""
        self._server.stop(self.chance.choice((signal.SIGINT, signal.SIGQUIT)))
        time.sleep(self.chance.uniform(*PAUSE))
        self._server.start()


WRAPPER = """#!/bin/sh
# A command of Slurm's that is slow or fails while a file says so.
case "$(cat {state} 2>/dev/null)" in
slow) sleep 2 ;;
fail) echo "{name}: error: Unable to contact slurm controller (connect failure)" >&2; exit 1 ;;
esac
exec {program} "$@"
"""


class SlurmSoak(Soak):
    """Two tuners with short jobs on a Slurm cluster with all kinds of failures, except of the disk."""

    budget = 400
    patience = 90.0
    space = ("--model", "tiny", "--nodes", "2", "--gpus-per-node", "1", "--set", "tp=1,2", "--launcher", "slurm")

    def __init__(self, cluster: SlurmCluster, folder: Path, chance: random.Random) -> None:
        self._cluster, self.url = cluster, url_of(folder, NAME)
        self._state = folder / "commands"
        (folder / "bin").mkdir()
        for name in ("sbatch", "squeue", "scancel", "sacct", "sinfo"):
            wrapper = folder / "bin" / name
            wrapper.write_text(WRAPPER.format(state=self._state, name=name, program=cluster.program(name)))
            wrapper.chmod(0o755)
        (folder / "site.toml").write_text('gres = ""\nsrun = ["--cpu-bind=none"]\n')
        super().__init__(2, folder, chance)
        self.faults += [self.controller, self.commands, self.cancel, self.requeue, self.node, self.drain]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the tuners, with wrappers in place of Slurm's commands."""
        path = os.pathsep.join([str(self.folder / "bin"), os.environ["PATH"]])
        return {**ENVIRONMENT, **self._cluster.environment, "DS_ACCELERATOR": "cpu", "PATH": path}

    def start(self, budget: int) -> subprocess.Popen[str]:
        """Start a tuner on the study."""
        command = f"{sys.executable} {trainer.__file__} {{key}} --mark {self.folder}"
        given = ("--study", NAME, "--budget", str(budget), "--sampler", "grid", "--jobs", "2", "--keep-going")
        site = ("--site-profile", str(self.folder / "site.toml"), "--command", command)
        environment = {**self.environment, "TRAINER": "good"}
        return start(*given, *site, folder=self.folder, space=self.space, environment=environment)

    def controller(self) -> None:
        """Kill the controller and start it again."""
        self._cluster.stop_controller(self.chance.choice((signal.SIGKILL, signal.SIGTERM)))
        time.sleep(self.chance.uniform(*PAUSE))
        self._cluster.start_controller()

    def commands(self) -> None:
        """Make Slurm's commands slow or fail for a moment."""
        self._state.write_text(self.chance.choice(("slow", "fail")))
        time.sleep(self.chance.uniform(*PAUSE))
        self._state.unlink()

    def cancel(self) -> None:
        """Cancel a job from outside."""
        self._on_a_job("scancel")

    def requeue(self) -> None:
        """Requeue a job."""
        self._on_a_job("scontrol", "requeue")

    def node(self) -> None:
        """Kill a node with all its processes, and start it again."""
        self._cluster.kill_node(self.chance.choice(NODES))
        time.sleep(self.chance.uniform(*PAUSE))
        self._cluster.revive()

    def drain(self) -> None:
        """Drain a node for a moment."""
        name = f"NodeName={self.chance.choice(NODES)}"
        self._cluster.said("scontrol", "update", name, "State=DRAIN", "Reason=soak")
        time.sleep(self.chance.uniform(*PAUSE))
        self._cluster.said("scontrol", "update", name, "State=RESUME")

    def _on_a_job(self, *command: str) -> None:
        jobs = self._cluster.said("squeue", "-h", "-o", "%i").split()
        if jobs:
            self._cluster.said(*command, self.chance.choice(jobs))

    def check(self, *expected: str) -> None:
        """Assert in addition that each trial is exactly one Slurm job, and that no job is left."""
        super().check(*expected)
        names = Counter(self._cluster.said("squeue", "--states=all", "-h", "-o", "%j").split())
        assert names, "jobs are remembered for a while"
        assert max(names.values()) == 1, "one trial, one job"
        deadline = time.monotonic() + self.patience
        while (self._cluster.queue() or self._processes()) and time.monotonic() < deadline:
            time.sleep(0.5)  # a job that has just ended may still be completing
        assert not self._cluster.queue(), self._cluster.said("squeue", "-o", "%i %j %T %r %V")
        assert not self._processes(), self._processes()

    def _processes(self) -> dict[str, str]:
        """Return the command lines of the jobs' processes by pid."""
        found = {}
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                command = path.read_bytes()
                if f"--mark\0{self.folder}".encode() in command:
                    found[path.parent.name] = command.replace(b"\0", b" ").decode(errors="replace")
        return found


def soak_database(minutes: float, chance: random.Random, folder: Path) -> None:
    """Run the soak on its own PostgreSQL server, then check the study."""
    programs = programs_of_server()
    if programs is None:
        sys.exit("no initdb here; install Debian's postgresql")
    with restartable(programs) as server:
        running = DatabaseSoak(server, folder, chance)
        running.run(minutes)
        # A tuner without a server at its start, or interrupted while waiting for it, ends with this error.
        running.check("the study's storage")


def soak_slurm(minutes: float, chance: random.Random, folder: Path) -> None:
    """Run the soak on its own Slurm cluster, then check the study."""
    if not installed() or os.geteuid() != 0:
        sys.exit("wants Slurm's programs, and to be root: make test-cluster installs them")
    cluster = SlurmCluster()
    folder.chmod(0o755)
    try:
        cluster.start()
        running = SlurmSoak(cluster, folder, chance)
        running.run(minutes)
        running.check("nable to contact slurm controller", "jobs in a row could not be started")
    finally:
        cluster.stop()


if __name__ == "__main__":
    kinds = {"database": soak_database, "slurm": soak_slurm}
    parser = argparse.ArgumentParser(description="Random faults on a shared study for minutes.")
    parser.add_argument("kind", choices=kinds)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
        kinds[options.kind](options.minutes, random.Random(options.seed), Path(temporary))  # noqa: S311 - no secret
