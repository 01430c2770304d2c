"""Stopping and opening a study, and combinations of settings, with stand-ins for the parts of a study."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.stages import CLUSTER, WORKLOAD
from tests.study.test_store_arithmetic import proposal
from tests.workers import ONE
from tuner.core.documents import cluster_document, workload_document
from tuner.core.errors import InputError, StudyError, TunerWarning
from tuner.core.outcomes import Outcome
from tuner.costmodel.calibration import Calibration
from tuner.launch.contract import JobResult, JobState, JobStatus
from tuner.launch.slurm.allocation import Allocation
from tuner.launch.virtual.simulated import SpeedChange
from tuner.study import api, manage, setup
from tuner.study.limits import Limits
from tuner.study.manage import _job, _stop
from tuner.study.settings import MAX_SEED, StudyEvent, StudySettings, drift_of
from tuner.study.store.stopped import record_stop
from tuner.study.store.trial import Trial, write_job_file
from tuner.tables import Defaults

OWNER = {"host": "elsewhere"}


class Stopped:
    """A stand-in launcher and store that record calls."""

    def __init__(self, found: str | None, state: JobState) -> None:
        self.calls: list[Any] = []
        self.found = found
        self.launcher: Any = SimpleNamespace(
            adopt=self._adopt,
            now=lambda: 70.0,
            poll=lambda handles: {handle: JobStatus(state=state) for handle in handles},
            cancel=lambda handle: self.calls.append(("cancel", handle)),
        )
        settings = {"workload": workload_document(WORKLOAD), "cluster": cluster_document(CLUSTER), "iterations": [3, 4]}
        self.store: Any = SimpleNamespace(
            name="s",
            settings=settings,
            close_gone=lambda trial, _folder, reason, *, clock: self.calls.append(
                ("gone", trial.number, reason, clock)
            ),
            end=lambda trial, result: self.calls.append(("end", trial.number, result)),
        )

    def _adopt(self, job: Any, handle: str | None) -> str | None:
        self.calls.append(("adopt", job.tag, handle))
        return self.found


@pytest.mark.parametrize(
    ("found", "state", "stopped", "reason"),
    [
        ("h", JobState.RUNNING, True, "cancelled by tuner stop"),
        ("h", JobState.ENDED, False, ""),
        (None, JobState.LOST, True, ""),
    ],
)
def test_a_trial_is_stopped_with_its_job_unless_that_has_ended(
    found: str | None, state: JobState, stopped: bool, reason: str, tmp_path: Path
) -> None:
    world = Stopped(found, state)
    trial = Trial(number=7, proposal=proposal(), handle="noted")
    assert _stop(world.store, world.launcher, trial, tmp_path) is stopped
    assert world.calls[0] == ("adopt", "tag of key", "noted")
    assert (("cancel", "h") in world.calls) == (state is JobState.RUNNING)
    ends = [call for call in world.calls if call[0] == "end"]
    assert len(ends) == bool(reason)
    for _, number, ending in ends:
        assert (number, ending.outcome, ending.reason, ending.clock) == (7, Outcome.CANCELLED, reason, 70.0)
    gone = ("gone", 7, "stopped; its job is gone", 70.0)
    assert (gone in world.calls) == (found is None)
    alone = Stopped(None, JobState.LOST)
    assert _stop(alone.store, None, trial, tmp_path)
    assert alone.calls == [("gone", 7, "stopped; its job is gone", 0.0)]


def test_a_trial_that_a_killed_tuner_was_stopping_is_stored_as_it_decided(tmp_path: Path) -> None:
    world, trial = Stopped("h", JobState.RUNNING), Trial(number=7, proposal=proposal())
    job = _job(world.store, trial, tmp_path)
    write_job_file(job, trial.proposal)
    record_stop(job.folder, JobResult(outcome=Outcome.PRUNED, elapsed=36.0))
    assert _stop(world.store, world.launcher, trial, tmp_path)
    assert world.calls[-2] == ("cancel", "h")
    ending = world.calls[-1][2]
    assert (ending.outcome, ending.clock, ending.node_hours) == (Outcome.PRUNED, 70.0, trial.proposal.nodes / 100)


def test_the_job_of_a_stopped_trial_is_that_of_its_part(tmp_path: Path) -> None:
    world = Stopped(None, JobState.LOST)
    job = _job(world.store, Trial(number=7, proposal=proposal()), tmp_path / "s")
    assert (job.number, job.tag, job.folder) == (7, "tag of key", tmp_path / "s/jobs/0007-key")
    assert (job.workload, job.cluster, job.topology, job.iterations) == (WORKLOAD, CLUSTER, ONE, (3, 4))
    parts = [
        {"workload": workload_document(WORKLOAD), "cluster": cluster_document(one)}
        for one in (replace(CLUSTER, nodes=9), CLUSTER)
    ]
    world.store.settings = {"parts": parts}
    job = _job(world.store, Trial(number=7, proposal=proposal(setting=1)), tmp_path)
    assert (job.cluster, job.iterations) == (CLUSTER, (2,))


@pytest.mark.parametrize(
    ("dead", "silent", "abandoned"), [(True, set(), True), (False, {3}, False), (None, {3}, True), (None, {4}, False)]
)
def test_an_owner_on_another_machine_is_gone_once_it_is_silent(
    dead: bool | None, silent: set[int], abandoned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manage, "gone", lambda owner: dead if owner == OWNER else None)
    store: Any = SimpleNamespace(silent=lambda _: silent)
    assert manage._abandoned(store, 3, OWNER) is abandoned


def test_a_tracker_gets_every_ended_trial_until_it_fails() -> None:
    seen: list[str] = []
    logged: list[int] = []
    answers: dict[int, str | None] = {1: None, 2: "no network", 3: None}
    store: Any = object()

    def log(given: Any, number: int) -> str | None:
        assert given is store
        logged.append(number)
        return answers[number]

    tracker: Any = SimpleNamespace(log=log)
    forward = setup._tracked(lambda event: seen.append(event.text), tracker, store)
    for number, kind in ((1, "started"), (1, "ended"), (2, "ended"), (3, "ended")):
        trial = Trial(number=number, proposal=proposal())
        forward(StudyEvent(kind=kind, text=f"{kind} {number}", trial=trial))  # type: ignore[arg-type]
    forward(StudyEvent(kind="ended", text="none"))
    assert logged == [1, 2]
    assert seen == ["started 1", "ended 1", "ended 2", "no network", "ended 3", "none"]


def test_a_command_without_varied_axes_is_warned_about() -> None:
    columns = {"tp": [1, 2], "micro_batch": [1, 4], "zero": [1, 1], "nodes": [1, 2], "dp": [4, 2], "partition": [0, 1]}
    pool: Any = SimpleNamespace(column=lambda name: np.array(columns.get(name, [1, 1])))
    with pytest.warns(
        TunerWarning, match=r"passes no tp or micro_batch to its jobs.*varies them.*\{tp\} \{micro_batch\}"
    ):
        setup._warn_of_axes_not_passed("train", pool)
    with pytest.warns(TunerWarning, match=r"passes no micro_batch to its jobs.*varies it:"):
        setup._warn_of_axes_not_passed("train --tp {tp}", pool)
    setup._warn_of_axes_not_passed("train --tp {tp} --mbs {micro_batch}", pool)


@pytest.mark.parametrize(
    ("log", "given", "refused"),
    [
        ("train.log", {}, True),
        ("{tp}/train.log", {}, True),
        ("{tp}-{micro_batch}.log", {}, False),
        ("{key}.log", {}, False),
        ("it's {number}.log", {}, False),
        ("train.log", {"within_allocation": True}, False),
        ("train.log", {"within_allocation": True, "jobs": 2}, True),
        (None, {}, False),
    ],
)
def test_slurm_jobs_that_may_run_at_once_have_logs_of_their_own(
    log: str | None, given: dict[str, Any], refused: bool
) -> None:
    """Any process may share a study on Slurm; inside an allocation, only `--jobs` runs jobs at once."""
    pool: Any = SimpleNamespace(column=lambda name: np.array([1, 2 if name in ("tp", "micro_batch") else 1]))
    usual = settings(launcher="slurm", command="train", log=log, **given)
    with pytest.raises(InputError, match="names the same file for several jobs") if refused else nullcontext():
        setup._refuse_shared_log(usual, pool)


@pytest.mark.parametrize(
    ("given", "warned"),
    [
        ({"command": "train"}, True),
        ({"command": "train", "limits": Limits(budget=2)}, True),
        ({"command": "train", "limits": Limits(budget=1)}, False),
        ({"command": "train", "trainer": "nemo"}, False),
        ({}, False),
    ],
)
def test_only_commands_of_several_jobs_are_checked(
    given: dict[str, Any], warned: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The warning about axes that a command does not use is skipped for one job and for known trainers."""
    warned_of: list[Any] = []
    closed: list[str] = []

    def refuse(_folder: Path) -> Any:
        raise StudyError("locked")

    launcher = SimpleNamespace(close=lambda: closed.append("launcher"))
    monkeypatch.setattr(setup, "_cluster", lambda *_: ("pool", launcher, {}))
    monkeypatch.setattr(setup, "_warn_of_axes_not_passed", lambda *given: warned_of.append(given))
    monkeypatch.setattr(setup, "_locked", refuse)
    usual: Any = settings(runs=tmp_path, **{"launcher": "local", **given})
    with pytest.raises(StudyError, match="locked"), setup.open_loop(usual):
        pass
    assert warned_of == ([("train", "pool")] if warned else [])
    assert closed == ["launcher"]


def test_a_study_inside_an_allocation_has_its_nodes_and_ranks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    checked: list[Any] = []

    class Steps:
        def __init__(self, _program: Any, **given: Any) -> None:
            checked.append(given)

        def check(self, ranks: int) -> None:
            checked.append(ranks)

    monkeypatch.setattr(setup, "SlurmCommands", lambda: "commands")
    monkeypatch.setattr(Allocation, "current", lambda environment, commands: ("PATH" in environment, commands))
    monkeypatch.setattr(setup, "SlurmStepLauncher", Steps)
    space: Any = SimpleNamespace(cluster=SimpleNamespace(nodes=3, gpus_per_node=8))
    settings = StudySettings(
        space=space, limits=Limits(), launcher="slurm", within_allocation=True, runs=tmp_path, study="s", seed=5
    )
    _, identity = setup._slurm(settings)
    given, ranks = checked
    assert (given["allocation"], given["commands"], given["nodes"]) == ((True, "commands"), "commands", 3)
    assert (given["notes"], ranks) == (tmp_path / "s", 8)
    assert (identity["seed"], identity["command"]) == (5, None)


def settings(**given: Any) -> StudySettings:
    """Return settings for a cluster of 4 nodes with 8 GPUs each."""
    cluster, workload = SimpleNamespace(nodes=4, gpus_per_node=8), SimpleNamespace(model=SimpleNamespace(name="a b/c"))
    space: Any = SimpleNamespace(cluster=cluster, workload=workload)
    return StudySettings(space=space, **{"limits": Limits(), **given})


def test_a_study_measures_the_second_iteration_with_one_job_and_seed_0_by_default() -> None:
    usual = settings()
    assert (usual.seed, usual.jobs, usual.iterations, usual.limits.budget) == (0, 1, (2,), 40)
    assert usual.name == "simulated-a-b-c-4x8-seed0"
    assert settings(study="s", runs=Path("r")).folder == Path("r/s")
    table: Any = SimpleNamespace(name="/x/y z.csv")
    assert settings(launcher="replay", table=table, group="g", seed=3).name == "replay-y-z-g-seed3"
    assert len(settings(launcher="replay", table=table, group="g" * 200).name) == 100


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, ""),
        ({"jobs": 0}, "--jobs must be at least 1"),
        ({"seed": MAX_SEED}, ""),
        ({"seed": MAX_SEED + 1}, "--seed must be between 0 and 4,294,967,295"),
        ({"seed": -1}, "--seed must be between"),
        ({"study": "a.b"}, ""),
        ({"study": ".b"}, "is not a valid name"),
        ({"fidelity": "half"}, "fidelity"),
        ({"fidelity": "auto", "trial_nodes": 1}, ""),
        ({"fidelity": "auto", "trial_nodes": 4}, ""),
        ({"fidelity": "auto", "trial_nodes": 0}, "--trial-nodes must be between 1 and the cluster's 4 nodes"),
        ({"fidelity": "auto", "trial_nodes": 5}, "--trial-nodes must be between 1"),
        ({"trial_nodes": 2}, ""),
        ({"trial_nodes": 2, "fidelity": "full"}, "at a reduced size: drop --fidelity full"),
        ({"trial_nodes": 2, "sampler": "tpe"}, "--trial-nodes needs the surrogate of --sampler guided, not tpe"),
        ({"fidelity": "auto", "sampler": "tpe"}, "--fidelity auto needs the surrogate of --sampler guided, not tpe"),
        ({"fidelity": "auto", "sampler": "tpe", "trial_nodes": 2}, "--trial-nodes needs"),
        ({"fidelity": "full", "sampler": "tpe"}, ""),
        ({"sampler": "tpe"}, ""),
        (
            {"fidelity": "auto", "launcher": "replay", "table": SimpleNamespace(name="t")},
            "a replay reads rows of a table: drop it",
        ),
        ({"launcher": "replay", "table": SimpleNamespace(name="t")}, ""),
        ({"fidelity": "auto", "command": "x {tp}", "launcher": "local"}, "add {global_batch} or drop it"),
        ({"trial_nodes": 1, "command": "x {tp}", "launcher": "local"}, "--trial-nodes runs smaller batches"),
        ({"fidelity": "auto", "command": "x {global_batch}", "launcher": "local"}, ""),
        ({"fidelity": "auto", "command": "x {microbatches}", "launcher": "local"}, ""),
        ({"fidelity": "auto", "command": "x {ds_config}", "launcher": "local"}, ""),
        ({"fidelity": "auto", "command": "x {folder}", "launcher": "local"}, ""),
        ({"command": "x {tp}", "launcher": "local"}, ""),
        ({"memory_filter": True}, "--memory-filter is unnecessary with --sampler guided"),
        ({"memory_filter": True, "sampler": "tpe"}, ""),
        ({"log": "x"}, "--log applies to your own trainer"),
        ({"command": "x"}, "--command runs real jobs"),
        ({"command": "x", "launcher": "local", "log": "x"}, ""),
        ({"launcher": "replay"}, "needs a table of measurements"),
        ({"noise": 0.1}, "--noise requires --launcher replay"),
        ({"group": "g"}, "--group requires --launcher replay"),
        ({"over": "openmpi"}, "--over requires --launcher hostfile"),
        ({"drift": SpeedChange(factor=1.05, after_jobs=2)}, ""),
        ({"drift": SpeedChange(factor=1.05, after_jobs=2), "launcher": "local"}, "--drift requires --launcher simul"),
        ({"launcher": "hostfile"}, "give --hostfile FILE and no --command"),
        ({"launcher": "hostfile", "hostfile": Path("x")}, ""),
        ({"launcher": "local", "hostfile": Path("x")}, "--hostfile requires --launcher hostfile"),
    ],
)
def test_combinations_of_settings_are_accepted_or_refused(given: dict[str, Any], words: str) -> None:
    if words:
        with pytest.raises(Exception, match=words):
            settings(**given).check()
    else:
        settings(**given).check()


def test_a_drift_is_parsed_as_a_factor_and_the_jobs_before_it() -> None:
    assert (drift_of("1.05@20").factor, drift_of("1.05@20").after_jobs) == (1.05, 20)
    with pytest.raises(Exception, match="is not FACTOR@JOBS"):
        drift_of("1.05")


def test_prior_knowledge_is_a_calibration_or_measurements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--from takes a table's file or another study's name, and excludes --calibration."""
    table = tmp_path / "t.csv"
    table.touch()
    monkeypatch.setattr(api, "read_site", lambda path: ("site", path))
    monkeypatch.setattr(api, "read_table", lambda path, cells: ("table", path, cells))
    monkeypatch.setattr(
        api,
        "calibration_report",
        lambda table: SimpleNamespace(table=table, doubts=(), calibration=("calibrated", table)),
    )
    monkeypatch.setattr(api, "calibration_from_study", lambda name, **where: (name, where))
    runs, cells, given = Path("runs"), Defaults.parse(()), Calibration()
    where: dict[str, Any] = {"cells": cells, "runs": runs, "storage": "url"}

    def known(calibration: Any = None, start_from: Any = None) -> Any:
        return api._calibration(calibration, start_from, **where)

    assert known() is None
    assert known(given) is given
    assert known("site.toml") == ("site", Path("site.toml"))
    assert known(start_from=str(table)) == ("calibrated", ("table", table, cells))
    assert known(start_from="other") == ("other", {"runs": runs, "storage": "url"})
    with pytest.raises(InputError, match="--calibration and --from exclude each other"):
        known(given, "other")
