"""Studies under test: real `tuner optimize` processes, and the trials in their storage."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import optuna

from tests.conftest import ROOT, Said
from tuner.core.outcomes import Outcome
from tuner.study.limits import Limits
from tuner.study.store.storage import sqlite_url
from tuner.study.store.trial import Trial
from tuner.study.store.trial_store import TrialStore

SMALL = ("--model", "gpt-1.3b", "--nodes", "4", "--set", "nodes=4", "--set", "tp=1,2,4", "--set", "recompute=none")
"""A space of some hundred topologies, which is searched in moments."""

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def start(
    *arguments: str, folder: Path, space: Sequence[str] = SMALL, environment: Mapping[str, str] = ENVIRONMENT
) -> subprocess.Popen[str]:
    """Start a process that searches a space, with studies in `folder/runs`."""
    command = [sys.executable, "-m", "tuner", "optimize", *space, "--runs", str(folder / "runs"), *arguments]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        # if the tests run in the background, SIGINT is ignored and children would inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(process: subprocess.Popen[str], seconds: float = 300) -> Said:
    """Wait for a process to end and return its output; kill it after a timeout."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"still running after {seconds} s: {err[-2000:]}") from None
    return Said(process.returncode, out, err)


def run_tuner(*words: str, folder: Path, environment: Mapping[str, str] = ENVIRONMENT) -> Said:
    """Run a tuner command in a new process."""
    call = [sys.executable, "-m", "tuner", *words]
    done = subprocess.run(call, cwd=folder, env=environment, text=True, capture_output=True, check=False)
    return Said(done.returncode, done.stdout, done.stderr)


def optimize(*arguments: str, folder: Path) -> Said:
    """Run `tuner optimize` to its end."""
    return finish(start(*arguments, folder=folder))


def url_of(folder: Path, name: str) -> str:
    """Return the storage URL of a study started by `start`."""
    return sqlite_url(folder / "runs" / name / "study.db")


def kept(url: str, name: str) -> list[Trial]:
    """Return the stored trials of a study."""
    study = TrialStore.existing(url, name)
    try:
        return study.trials()
    finally:
        study.close()


def over(url: str, name: str) -> dict[int, Trial]:
    """Return the ended trials by number; empty if there is no study yet."""
    with suppress(Exception):
        return {trial.number: trial for trial in kept(url, name) if trial.result is not None}
    return {}


def states(url: str, name: str) -> Counter[str]:
    """Return the number of trials in each of Optuna's states."""
    study = TrialStore.existing(url, name)
    try:
        return Counter(
            trial.state.name for trial in optuna.load_study(study_name=name, storage=study.storage).get_trials()
        )
    finally:
        study.close()


def assert_lawful(trials: list[Trial], *, budget: int) -> None:
    """Assert that no launched trial is duplicated or still running, and that the budget is kept."""
    launched = [trial for trial in trials if trial.launched]
    claims = Counter(trial.proposal.claim for trial in launched)
    twice = [trial for trial in launched if claims[trial.proposal.claim] > 1]
    assert not twice, twice
    assert all(trial.result is not None for trial in trials)
    assert len(launched) <= budget


def outcomes(trials: list[Trial]) -> Counter[Outcome]:
    """Return the number of launched trials by outcome."""
    return Counter(trial.result.outcome for trial in trials if trial.launched and trial.result)


def together(many: int, url: str, folder: Path, name: str, *arguments: str) -> int:
    """Run several processes on one study, check its laws, and return how many processes launched a job."""
    budget = 15 * many
    given = ("--study", name, "--budget", str(budget), "--sampler", "grid", *arguments)  # grid never stops early
    processes = [start(*given, folder=folder) for _ in range(many)]
    for process in processes:
        said = finish(process)
        assert said.code == 0, said.err
        assert "Traceback" not in said.err
    trials = kept(url, name)
    assert_lawful(trials, budget=budget)
    assert sum(trial.launched for trial in trials) >= budget - Limits(budget=budget).final  # it may be skipped
    assert states(url, name)["RUNNING"] == 0
    return len({trial.proposal.worker["pid"] for trial in trials if trial.launched})
