"""Random faults on a shared study for minutes: `python -m tests.soak --minutes 10 --seed 1`.

Six tuners share one study on a PostgreSQL server, with simulated jobs. A seeded list of faults kills, interrupts and
stops them and restarts the server; afterwards nothing may be lost, doubled or left running.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.conftest import Said
from tests.postgres import Server, programs_of_server, restartable
from tests.studies import assert_lawful, finish, kept, outcomes, run_tuner, start, states

WORKERS = 6
BUDGET = 2000
NAME = "soak"
SPACE = ("--model", "gpt3-175b", "--nodes", "32")
"""A space of some ten thousand topologies, which no soak is through."""

PAUSE = (0.5, 4.0)
"""Seconds between two faults."""


class Soak:
    """The workers, the server, and what is done to them."""

    def __init__(self, server: Server, folder: Path, chance: random.Random) -> None:
        self._server, self._folder, self._chance = server, folder, chance
        self._given = ("--study", NAME, "--budget", str(BUDGET), "--sampler", "grid", "--storage", server.url)
        self.workers = [self._start() for _ in range(WORKERS)]
        self.said: list[Said] = []
        self.done: Counter[str] = Counter()
        self.pids: set[int] = {worker.pid for worker in self.workers}
        self._faults: list[Callable[[], None]] = [self.kill, self.kill, self.interrupt, self.pause, self.restart]

    def _start(self) -> subprocess.Popen[str]:
        return start(*self._given, folder=self._folder, space=SPACE)

    def fault(self) -> None:
        """Do one of the faults, and start again what has ended."""
        chosen = self._chance.choice(self._faults)
        chosen()
        self.done[chosen.__name__] += 1
        for index, worker in enumerate(self.workers):
            if worker.poll() is not None:
                self.said.append(finish(worker))
                self.workers[index] = self._start()
                self.pids.add(self.workers[index].pid)

    def kill(self) -> None:
        """A worker is gone without a word."""
        worker = self._chance.choice(self.workers)
        worker.kill()
        worker.wait()

    def interrupt(self) -> None:
        """Somebody presses Ctrl-C."""
        worker = self._chance.choice(self.workers)
        worker.send_signal(signal.SIGINT)
        worker.wait(60)

    def pause(self) -> None:
        """A worker stands still for a moment."""
        worker = self._chance.choice(self.workers)
        worker.send_signal(signal.SIGSTOP)
        time.sleep(self._chance.uniform(*PAUSE))
        worker.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """The server restarts, in order or as after a crash."""
        self._server.stop(self._chance.choice((signal.SIGINT, signal.SIGQUIT)))
        time.sleep(self._chance.uniform(*PAUSE))
        self._server.start()

    def end(self) -> None:
        """Interrupt all workers."""
        for worker in self.workers:
            worker.send_signal(signal.SIGINT)
        self.said += [finish(worker, seconds=60) for worker in self.workers]


def soak(minutes: float, seed: int, folder: Path) -> None:
    """Run the faults, then check what is left."""
    programs = programs_of_server()
    if programs is None:
        sys.exit("no initdb here; install Debian's postgresql")
    chance = random.Random(seed)  # noqa: S311 - faults, not secrets
    with restartable(programs) as server:
        running = Soak(server, folder, chance)
        deadline = time.monotonic() + 60 * minutes
        while time.monotonic() < deadline:
            time.sleep(chance.uniform(*PAUSE))
            running.fault()
        running.end()
        _check(server.url, running, folder)


def _check(url: str, running: Soak, folder: Path) -> None:
    """Assert that the study is whole and nothing runs on."""
    codes = Counter(said.code for said in running.said)
    # A tuner that finds no server as it starts, or is interrupted while it waits for one, ends in one sentence.
    unexpected = [
        said
        for said in running.said
        if said.code not in (0, 130, -signal.SIGINT, -signal.SIGKILL)
        and not (said.code == 1 and "the study's storage" in said.err)
    ]
    assert not unexpected, unexpected[:3]
    assert not any("Traceback" in said.err for said in running.said)
    _tuner(folder, "stop", NAME, "--storage", url)
    trials = kept(url, NAME)
    assert_lawful(trials, budget=BUDGET)
    assert states(url, NAME)["RUNNING"] == 0
    jobs = Counter(path.parent.name.split("-")[0] for path in (folder / "runs" / NAME / "jobs").glob("*/job.json"))
    launched = {f"{trial.number:04d}" for trial in trials if trial.launched and trial.handle}
    assert launched <= set(jobs)
    assert max(jobs.values()) == 1, "one folder, one job"
    left = [pid for pid in running.pids if Path(f"/proc/{pid}/stat").exists()]
    assert not left
    report = json.loads(_tuner(folder, "report", NAME, "--storage", url, "--json", "-o", str(folder / "report")))
    assert report
    sys.stdout.write(
        f"{len(trials)} trials, {dict(outcomes(trials))}; faults {dict(running.done)}; exit codes {dict(codes)}\n"
    )


def _tuner(folder: Path, *words: str) -> str:
    said = run_tuner(*words, "--runs", str(folder / "runs"), folder=folder)
    assert said.code == 0, said.err
    return said.out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Random faults on a shared study for minutes.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
        soak(options.minutes, options.seed, Path(temporary))
