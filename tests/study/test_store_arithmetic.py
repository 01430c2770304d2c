"""What a study stores, compares, publishes and cancels, over a small database or stand-ins of its parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import optuna
import pytest
import sqlalchemy
from optuna.trial import TrialState

from tests.stages import CLUSTER, WORKLOAD
from tests.study.test_arithmetic import trial as measured
from tests.study.test_decisions_arithmetic import ranked
from tests.study.test_sizes_arithmetic import SMALL, ended
from tests.workers import ONE
from tuner.core.columns import Columns
from tuner.core.documents import cluster_document, topology_document, workload_document
from tuner.core.errors import InputError, NothingUsable, StudyError, TunerWarning
from tuner.core.fidelity import Fidelity
from tuner.core.outcomes import Failure, Measurement, Outcome
from tuner.costmodel.calibration import Calibration
from tuner.launch.contract import JobResult, JobState, JobStatus
from tuner.launch.machine import Machine
from tuner.launch.preflight import CheckResult
from tuner.launch.slurm.allocation import Allocation
from tuner.search.candidates import CandidatePool
from tuner.study import doctor, drift, loop, manage, result, setup, warm_start
from tuner.study.limits import Limits
from tuner.study.manage import _job, _stop
from tuner.study.result import incidents
from tuner.study.settings import MAX_SEED, StudySettings, drift_of
from tuner.study.store import optuna_dashboard, recover, storage
from tuner.study.store.optuna_dashboard import LONGEST, DashboardPublisher
from tuner.study.store.settings_difference import difference_of
from tuner.study.store.stored import SCHEMA, settings_of
from tuner.study.store.trial import Proposal, Trial, proposal_document, result_document, result_of
from tuner.study.store.trial_store import _PATIENCE, TrialStore, state_of
from tuner.study.watchdog import Watchdog

# -- the database


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TrialStore]:
    """An empty study."""
    opened = TrialStore.open(f"sqlite:///{tmp_path / 'study.db'}", "s", {"launcher": "local"})
    yield opened
    opened.close()


def proposal(key: str = "key", **fields: Any) -> Proposal:
    """Topology 5 of a space."""
    return Proposal(key=key, params={}, topology=topology_document(ONE), candidate=5, tag=f"tag of {key}", **fields)


def test_a_trial_is_stored_taken_over_and_ended_once(store: TrialStore) -> None:
    assert store.settings == {"schema": "tuner/study/1", "launcher": "local"}
    first = store.claim(proposal(worker={"pid": 1}), {})
    assert first is not None
    assert (first.number, store.trials()) == (0, [first])
    assert store.claim(proposal(), {}) == first, "stored before an outage, by the same process"
    assert store.claim(replace(proposal(), tag="u"), {}) is None, "another process has it"
    second = store.claim(replace(proposal(setting=1), tag="v"), {})
    assert second is not None
    store.started(first, "handle")
    assert store.trials()[0].handle == "handle"
    assert store.owners() == {0: {"pid": 1}, second.number: {}}
    assert store.take_over(first, {"pid": 1}, {"pid": 2})
    assert not store.take_over(first, {"pid": 1}, {"pid": 3})
    assert store.owners()[0] == {"pid": 2}
    measured = JobResult(outcome=Outcome.MEASURED, measurement=Measurement(seconds=2.0), objective=3.5, elapsed=9.0)
    store.end(first, measured)
    store.end(first, JobResult(outcome=Outcome.OOM))
    ended_trial = store.trials()[0]
    assert (ended_trial.result, set(store.owners())) == (measured, {second.number})
    found = [trial.result.outcome for trial in store.trials() if trial.result]
    assert found == [Outcome.MEASURED, Outcome.REJECTED, Outcome.REJECTED]
    store.withdraw(second, "why")
    assert [trial.launched for trial in store.trials()] == [True, False, False, False]
    again = TrialStore.existing(store.url, "s")
    assert again.trials() == store.trials()
    assert again.changed == store.changed is not None
    again.close()
    with pytest.raises(StudyError, match="the storage has no study 't'; it has 's'"):
        TrialStore.existing(store.url, "t")


def test_a_study_keeps_its_folder_on_each_machine(store: TrialStore, tmp_path: Path) -> None:
    """One that moves with its database may be anywhere; the jobs of another machine are not sought here."""
    store.keep_folder(tmp_path / "a", moves=False)
    store.keep_folder(tmp_path / "a", moves=False)
    with pytest.raises(StudyError, match=f"are in {tmp_path}/a, not in {tmp_path}/b: pass --runs {tmp_path}"):
        store.keep_folder(tmp_path / "b", moves=False)
    store.keep_folder(tmp_path / "b", moves=True)
    assert store.attributes["folder"]["path"] == str(tmp_path / "b")
    store.set_attribute("folder", {"host": "elsewhere", "path": "/c"})
    store.keep_folder(tmp_path / "a", moves=False)
    assert store.attributes["folder"] == {"host": "elsewhere", "path": "/c"}


@pytest.mark.parametrize(
    ("outcome", "objective", "state", "value"),
    [
        (Outcome.MEASURED, 3.5, TrialState.COMPLETE, 3.5),
        (Outcome.MEASURED, None, TrialState.PRUNED, None),
        (Outcome.PRUNED, 3.5, TrialState.PRUNED, None),
        (Outcome.REJECTED, None, TrialState.PRUNED, None),
        (Outcome.OOM, 3.5, TrialState.FAIL, None),
        (Outcome.CRASHED, None, TrialState.FAIL, None),
    ],
)
def test_optuna_completes_what_was_measured_at_full_size(
    outcome: Outcome, objective: float | None, state: TrialState, value: float | None
) -> None:
    assert state_of(JobResult(outcome=outcome, objective=objective)) == (state, value)


@pytest.mark.parametrize(
    "stored",
    [
        JobResult(outcome=Outcome.OOM, failure=Failure(kind="", evidence="line", meaning="why"), elapsed=3.0),
        JobResult(outcome=Outcome.OOM, failure=Failure(kind="", evidence="line", meaning="")),
        JobResult(outcome=Outcome.OOM, failure=Failure(kind="", evidence="", meaning="why"), node_hours=2.0),
        JobResult(
            outcome=Outcome.MEASURED,
            measurement=Measurement(
                seconds=6.0, batch_seconds=(4.0, 6.0), iterations=(2, 3), tflops=5.0, peak_memory=7.0, fullest=False
            ),
            forecast=9.0,
            clock=11.0,
            retried="n1 failed",
        ),
        JobResult(outcome=Outcome.CANCELLED),
    ],
)
def test_a_result_is_read_as_it_was_stored(stored: JobResult) -> None:
    assert result_of(json.loads(json.dumps(result_document(stored)))) == stored


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("tuner/study/2", "begun by a later version"),
        ("other/1", "not created by tuner"),
        (None, "not created by tuner"),
    ],
)
def test_settings_of_another_program_or_a_later_version_are_refused(schema: str | None, words: str) -> None:
    assert settings_of({"schema": SCHEMA, "axes": {}}, "s") == {"schema": "tuner/study/1", "axes": {}}
    with pytest.raises(StudyError, match=words):
        settings_of({"schema": schema}, "s")
    for name in ("workload", "cluster", "rules", "axes", "parts"):
        with pytest.raises(StudyError, match=f"the {name} of study 's' cannot be read"):
            settings_of({"schema": SCHEMA, name: 3}, "s")


# -- settings of a resumed study


@pytest.mark.parametrize(
    ("begun", "asked", "words"),
    [
        ({"seed": 1}, {"seed": 2}, "seed 1, not 2"),
        ({"seed": 1}, {}, "seed 1, not none"),
        ({}, {"seed": 1}, "seed none, not 1"),
        ({"schema": "a"}, {"schema": "b"}, ""),
        (
            {"axes": {"tp": [1, 2]}, "cluster": {"nodes": 2}},
            {"axes": {"tp": [1]}, "cluster": {"nodes": 3}},
            "cluster.nodes 2, not 3",
        ),
        ({"axes": {"tp": list(range(9))}}, {"axes": {"tp": [1]}}, "axes.tp 0,1,2,3,4,5,6,7,..., not 1"),
        ({"axes": {"tp": list(range(8))}}, {"axes": {"tp": [1]}}, "axes.tp 0,1,2,3,4,5,6,7, not 1"),
        (
            {"cluster": {"gpu": {"memory": 1, "name": "a"}}},
            {"cluster": {"gpu": {"memory": 2, "name": "b"}}},
            "cluster.gpu.name a, not b",
        ),
        ({"workload": {"seq": 4}}, {"workload": {"seq": 4, "new": 1}}, ""),
        ({"workload": {"model": {"heads": 4}}}, {"workload": {"model": {"heads": 4, "new": 1}}}, ""),
        (
            {"workload": {"model": {"heads": 4}}},
            {"workload": {"model": {"heads": 5, "new": 1}}},
            "workload.model.heads 4, not 5",
        ),
        ({"cluster": {"nodes": 4}}, {"cluster": {"nodes": 4, "new": 1}}, "cluster.new none, not 1"),
        (
            {"cluster": {"gpu": {"peak_flops": {"bf16": 1}}}},
            {"cluster": {"gpu": {"peak_flops": {"bf16": 1, "fp8": 2}}}},
            "",
        ),
        ({"parts": [{"workload": {"seq": 4}}]}, {"parts": [{"workload": {"seq": 4, "new": 1}}]}, ""),
        (
            {"parts": [{"workload": {"seq": 4}}]},
            {"parts": [{"workload": {"seq": 4}}, {"workload": {"seq": 5}}]},
            "parts ",
        ),
        ({"rules": {"policies": ["a"], "allowed": []}}, {"rules": {"policies": ["b"], "allowed": []}}, ""),
        ({"rules": {"allowed": ["b", "a"]}}, {"rules": {"allowed": ["a", "b"]}}, ""),
        ({"rules": {"allowed": ["a"]}}, {"rules": {"allowed": ["a", "b"]}}, "rules.allowed a, not a,b"),
    ],
)
def test_the_first_difference_between_two_settings_is_named(
    begun: dict[str, Any], asked: dict[str, Any], words: str
) -> None:
    found = difference_of(begun, asked)
    assert found.startswith(words)
    assert bool(found) == bool(words)
    assert difference_of(begun, begun) == ""


# -- the dashboard


def published(monkeypatch: pytest.MonkeyPatch) -> tuple[DashboardPublisher, dict[str, Any]]:
    """A publisher, and the attributes that it writes."""
    kept: dict[str, Any] = {}
    storage = SimpleNamespace(
        get_study_id_from_name=lambda _: 4,
        get_study_system_attrs=lambda _: dict(kept),
        get_all_trials=lambda *_, **__: [SimpleNamespace(number=2, _trial_id=9)],
        set_study_system_attr=lambda _id, name, value: kept.__setitem__(name, value),
    )
    study: Any = SimpleNamespace(url="sqlite:///x", storage=storage, name="s")
    monkeypatch.setattr(optuna_dashboard, "LARGEST", 5)
    return DashboardPublisher(study), kept


def test_a_note_is_stored_in_parts_and_has_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    made, kept = published(monkeypatch)
    made.note("a" * LONGEST + "b")
    assert kept == {"dashboard:note_ver": 1, "dashboard:note_str:0": "a" * LONGEST, "dashboard:note_str:1": "b"}
    made.note("a" * LONGEST + "b")
    assert kept["dashboard:note_ver"] == 1
    made.note("c" * (2 * LONGEST + 1))
    assert [len(kept[f"dashboard:note_str:{part}"]) for part in range(3)] == [LONGEST, LONGEST, 1]
    made.note("short", 2)
    made.note("short")
    assert [kept[f"dashboard:note_str:{part}"] for part in range(3)] == ["short", "", ""]
    assert (kept["dashboard:note_ver"], kept["dashboard:9:note_ver"], kept["dashboard:9:note_str:0"]) == (3, 1, "short")
    assert (made.study_id, LONGEST) == (4, 2045)


def test_graphs_and_small_files_are_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, kept = published(monkeypatch)
    made.graph("g", {"a": 1})
    assert kept == {"dashboard:plot_data:g:0": '{"a": 1}'}
    for name, text in (("small", "12345"), ("large", "123456")):
        (tmp_path / name).write_text(text)
    made.files(2, [tmp_path / "small", tmp_path / "large", tmp_path / "none"], tmp_path / "store")
    (name,) = [name for name in kept if "artifacts" in name]
    assert name.startswith("dashboard:artifacts:9:")
    assert json.loads(kept[name])["filename"] == "small"
    (copy,) = (tmp_path / "store").iterdir()
    assert (copy.read_text(), copy.name) == ("12345", name.rpartition(":")[2])


# -- stopping


class Stopped:
    """A launcher and a store that a test looks at."""

    def __init__(self, found: str | None, state: JobState, *, second: bool = False) -> None:
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
            withdraw_second=lambda _: second,
            end=lambda trial, result: self.calls.append(("end", trial.number, result)),
        )

    def _adopt(self, job: Any, handle: str | None) -> str | None:
        self.calls.append(("adopt", job.tag, handle))
        return self.found


@pytest.mark.parametrize(
    ("found", "state", "second", "stopped", "reason"),
    [
        ("h", JobState.RUNNING, False, True, "cancelled by tuner stop"),
        ("h", JobState.ENDED, False, False, ""),
        (None, JobState.LOST, False, True, "stopped; its job is gone"),
        (None, JobState.LOST, True, True, ""),
    ],
)
def test_a_trial_is_stopped_with_its_job_unless_that_has_finished(
    found: str | None, state: JobState, second: bool, stopped: bool, reason: str, tmp_path: Path
) -> None:
    world = Stopped(found, state, second=second)
    trial = Trial(number=7, proposal=proposal(), handle="noted")
    assert _stop(world.store, world.launcher, trial, tmp_path) is stopped
    assert world.calls[0] == ("adopt", "tag of key", "noted")
    assert (("cancel", "h") in world.calls) == (state is JobState.RUNNING)
    ends = [call for call in world.calls if call[0] == "end"]
    assert len(ends) == bool(reason)
    for _, number, ending in ends:
        assert (number, ending.outcome, ending.reason, ending.clock) == (7, Outcome.CANCELLED, reason, 70.0)
    alone = Stopped(None, JobState.LOST)
    assert _stop(alone.store, None, trial, tmp_path)
    assert alone.calls[0][2].clock == 0.0


def test_a_stopped_trials_job_is_that_of_its_part_of_the_study(tmp_path: Path) -> None:
    world = Stopped(None, JobState.LOST)
    job = _job(world.store, Trial(number=7, proposal=proposal()), tmp_path)
    assert (job.number, job.tag, job.folder) == (7, "tag of key", tmp_path / "s/jobs/0007-key")
    assert (job.workload, job.cluster, job.topology, job.iterations) == (WORKLOAD, CLUSTER, ONE, (3, 4))
    parts = [{}, {"workload": workload_document(WORKLOAD), "cluster": cluster_document(CLUSTER)}]
    world.store.settings = {"parts": parts}
    job = _job(world.store, Trial(number=7, proposal=proposal(setting=1)), tmp_path)
    assert (job.cluster, job.iterations) == (CLUSTER, (2,))


@pytest.mark.parametrize(
    ("dead", "silent", "abandoned"), [(True, set(), True), (False, {3}, False), (None, {3}, True), (None, {4}, False)]
)
def test_an_owner_of_another_machine_is_gone_once_it_is_silent(
    dead: bool | None, silent: set[int], abandoned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manage, "gone", lambda owner: dead if owner == "owner" else None)
    store: Any = SimpleNamespace(silent=lambda: silent)
    assert manage._abandoned(store, 3, "owner") is abandoned


# -- opening a study


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
        forward(loop.StudyEvent(kind=kind, text=f"{kind} {number}", trial=trial))  # type: ignore[arg-type]
    forward(loop.StudyEvent(kind="ended", text="none"))
    assert logged == [1, 2]
    assert seen == ["started 1", "ended 1", "ended 2", "no network", "ended 3", "none"]


def test_a_command_that_passes_no_axis_that_varies_is_warned_of() -> None:
    columns = {"tp": [1, 2], "micro_batch": [1, 4], "zero": [1, 1], "nodes": [1, 2], "dp": [4, 2], "partition": [0, 1]}
    pool: Any = SimpleNamespace(column=lambda name: np.array(columns.get(name, [1, 1])))
    with pytest.warns(
        TunerWarning, match=r"passes no tp or micro_batch to its jobs.*varies them.*\{tp\} \{micro_batch\}"
    ):
        setup._warn_of_axes_not_passed("train", pool)
    with pytest.warns(TunerWarning, match=r"passes no micro_batch to its jobs.*varies it:"):
        setup._warn_of_axes_not_passed("train --tp {tp}", pool)
    setup._warn_of_axes_not_passed("train --tp {tp} --mbs {micro_batch}", pool)


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


# -- settings


def settings(**given: Any) -> StudySettings:
    """Settings for a cluster of 4 nodes of 8 GPUs."""
    cluster, workload = SimpleNamespace(nodes=4, gpus_per_node=8), SimpleNamespace(model=SimpleNamespace(name="a b/c"))
    space: Any = SimpleNamespace(cluster=cluster, workload=workload)
    return StudySettings(space=space, **{"limits": Limits(), **given})


def test_a_study_has_one_job_of_seed_0_that_measures_the_second_iteration() -> None:
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
        ({"trial_nodes": 2}, "give --fidelity auto with it"),
        ({"fidelity": "auto", "sampler": "tpe"}, "--fidelity auto needs the surrogate of --sampler guided"),
        ({"memory_filter": True}, "--memory-filter is unnecessary with --sampler guided"),
        ({"memory_filter": True, "sampler": "tpe"}, ""),
        ({"log": "x"}, "--log is about your own trainer"),
        ({"command": "x"}, "--command runs real jobs"),
        ({"command": "x", "launcher": "local", "log": "x"}, ""),
        ({"launcher": "replay"}, "needs a table of measurements"),
        ({"noise": 0.1}, "--noise requires --launcher replay"),
        ({"launcher": "hostfile"}, "give --hostfile FILE and no --command"),
        ({"launcher": "hostfile", "hostfile": Path("x")}, ""),
        ({"launcher": "local", "hostfile": Path("x")}, "--hostfile requires --launcher hostfile"),
    ],
)
def test_settings_work_together_or_are_refused(given: dict[str, Any], words: str) -> None:
    if words:
        with pytest.raises(Exception, match=words):
            settings(**given).check()
    else:
        settings(**given).check()


def test_a_drift_is_a_factor_and_the_jobs_before_it() -> None:
    assert (drift_of("1.05@20").factor, drift_of("1.05@20").after_jobs) == (1.05, 20)
    with pytest.raises(Exception, match="is not FACTOR@JOBS"):
        drift_of("1.05")


# -- results


def test_the_best_topologies_lead_and_those_of_reduced_sizes_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = [
        ended(candidate=0, objective=5.0),
        ended(candidate=1, objective=4.0),
        ended(candidate=1, objective=9.0),
        ended(candidate=2, fidelity=SMALL, forecast=1.0),
        ended(Outcome.OOM, candidate=3),
        ended(Outcome.PRUNED, candidate=4, forecast=2.0),
    ]
    for most, leading in ((6, {0, 1, 2, 4}), (2, {0, 1}), (1, {1})):
        monkeypatch.setattr(result, "MAX_SURROGATE_TOPOLOGIES", most)
        assert result._leading(trials) == leading


def test_a_run_of_a_reduced_size_calibrates_as_its_largest_batch() -> None:
    full = Trial(number=0, proposal=proposal())
    assert warm_start._as_run(full) == ONE
    size = Fidelity(nodes=2, dp=2, micro_batches=(3, 5))
    found = warm_start._as_run(Trial(number=0, proposal=proposal(fidelity=size)))
    assert (found.nodes, found.dp, found.global_batch) == (2, 2, 5 * 2 * ONE.micro_batch)


def test_incidents_are_failed_nodes_and_retried_jobs() -> None:
    trials = [ended(number=3, retried="n1 failed"), ended(number=4), ended(Outcome.OOM, number=5, retried="requeued")]
    assert incidents({}, trials[1:2]) == ""
    assert incidents({"n1": "down"}, trials[1:2]) == "Failed nodes are excluded: n1 (down)."
    assert incidents({"n1": "down"}, trials) == (
        "Failed nodes are excluded: n1 (down); jobs were retried: trial 3 (n1 failed) and trial 5 (requeued)."
    )


@pytest.mark.parametrize(("journal", "immutable"), [(None, True), ("", True), ("pages", False)])
def test_a_database_that_cannot_be_written_is_opened_read_only(
    journal: str | None, immutable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that nobody changes, unless its journal has what the database lacks."""
    file = tmp_path / "a b.db"
    file.touch()
    if journal is not None:
        (tmp_path / "a b.db-wal").write_text(journal)
    url = sqlalchemy.make_url(f"sqlite:///{file}")
    assert storage._read_only(url) is None
    monkeypatch.setattr("tuner.study.store.storage.os.access", lambda path, _mode: path != tmp_path)
    found = storage._read_only(url)
    assert found is not None
    assert dict(found.query) == {"uri": "true", "mode": "ro", **({"immutable": "1"} if immutable else {})}
    assert found.database == f"file:{tmp_path}/a%20b.db"
    assert storage._read_only(sqlalchemy.make_url(f"sqlite:///{tmp_path}/none.db")) is None


def test_tables_that_several_processes_create_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fails, pauses = [0], list[float]()

    def opened(url: str, **given: Any) -> tuple[str, Any]:
        fails[0] -= 1
        if fails[0] >= 0:
            raise sqlalchemy.exc.ProgrammingError("", {}, Exception())
        return url, given

    monkeypatch.setattr(storage, "_opened", opened)
    monkeypatch.setattr("tuner.study.store.storage.time.sleep", pauses.append)
    fails[0] = 4
    created: Any = storage._created("u", a=1)
    assert created == ("u", {"a": 1})
    assert len(pauses) == 4
    assert all(0.1 <= pause <= 0.5 for pause in pauses)
    fails[0] = 5
    with pytest.raises(sqlalchemy.exc.ProgrammingError):
        storage._created("u")


@pytest.mark.parametrize(("waited", "stored"), [(_PATIENCE, False), (_PATIENCE + 0.1, True)])
def test_settings_that_the_creator_of_a_study_did_not_store_are_completed(
    waited: float, stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while, for it may only be slow; a study with other content is another program's."""
    clock, kept, pauses = [100.0], dict[str, Any](), list[float]()
    made: Any = TrialStore.__new__(TrialStore)
    made.url, made._id, made.name = "sqlite:///x", 4, "s"
    made._frozen = list
    made.storage = SimpleNamespace(
        get_study_user_attrs=lambda _: kept, set_study_user_attr=lambda _id, name, value: kept.__setitem__(name, value)
    )

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock[0] += waited
        if len(pauses) == 3:
            raise TimeoutError

    monkeypatch.setattr("tuner.study.store.trial_store.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("tuner.study.store.trial_store.time.sleep", sleep)
    if waited > _PATIENCE:
        made._complete_creation({"launcher": "local"})
        assert list(kept.values()) == [{"schema": SCHEMA, "launcher": "local"}]
    else:
        clock[0] = 100.0
        pauses.append(0.0)
        pauses.append(0.0)
        with pytest.raises(TimeoutError):
            made._complete_creation({"launcher": "local"})
        assert kept == {}
    assert stored == bool(kept)
    kept.clear()
    kept["other"] = 1
    made._complete_creation({"launcher": "local"})
    assert kept == {"other": 1}
    kept.clear()
    made._frozen = lambda: [1]
    made._complete_creation({"launcher": "local"})
    assert kept == {}


def test_stopping_a_slurm_study_cancels_the_jobs_of_trials_that_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no job of a trial that is open."""
    calls: list[Any] = []

    class Launcher:
        def cancel_left(self, tags: Any) -> None:
            calls.append(list(tags))

        def close(self) -> None:
            calls.append("closed")

    done = replace(ended(number=3), proposal=proposal())
    store: Any = SimpleNamespace(
        close_finished=lambda: calls.append("finished"),
        owners=dict,
        settings={"launcher": "slurm"},
        keep_folder=lambda folder, moves: calls.append((folder, moves)),
        trials=lambda: [done, Trial(number=4, proposal=replace(proposal(), tag="open"))],
        close=lambda: calls.append("store closed"),
    )
    monkeypatch.setattr(manage, "existing", lambda *_, **__: store)
    monkeypatch.setattr(manage, "SlurmLauncher", Launcher)
    monkeypatch.setattr(manage, "_launcher", lambda *_: Launcher())
    assert manage.stop_study("s", runs=tmp_path, storage="url") == []
    assert calls == ["finished", (tmp_path / "s", False), ["tag of key"], "closed", "store closed"]


def test_a_study_is_described_in_one_line() -> None:
    best = SimpleNamespace(key="t0")
    made: Any = result.StudyResult.__new__(result.StudyResult)
    object.__setattr__(made, "name", "s")
    object.__setattr__(made, "launched", [1, 2])
    for ranking, words in (((best,), "<StudyResult 's': 2 jobs, best t0>"), ((), "<StudyResult 's': 2 jobs>")):
        object.__setattr__(made, "ranking", ranking)
        assert repr(made) == words


def test_a_proposal_of_nothing_else_is_a_first_search_job() -> None:
    made = Proposal(key="", params={}, topology={})
    assert (made.candidate, made.nodes, made.repeat, made.setting, made.kind) == (-1, 0, 0, 0, "search")
    watch = Watchdog(start=1.0, step=2.0)
    assert (watch.iterations, watch.number, watch.interval, watch.patience) == (0, 0, 1, 1.0)


@pytest.mark.parametrize(
    ("count", "notes"),
    [(10, ()), (11, ("1 more topology measured.",)), (12, ("2 more topologies were measured.",))],
)
def test_a_printed_study_has_ten_rows_and_counts_the_others(count: int, notes: tuple[str, ...]) -> None:
    made: Any = result.StudyResult.__new__(result.StudyResult)
    fields: dict[str, Any] = {
        "name": "s",
        "launcher": "simulated",
        "launched": [ended(), Trial(number=1, proposal=proposal())],
        "trials": [ended(node_hours=2.0), ended(node_hours=3.0)],
        "ranking": tuple(ranked(number, days=10.0 + number, chance=0.25) for number in range(count)),
        "ties": (),
    }
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    shown = made._table()
    assert shown.notes == notes
    assert shown.title == "SIMULATED: study s: 2 jobs (1 measured), 5.0 node-hours"
    assert len(shown.rows) == 10
    assert shown.rows[0][2:] == ("10.0", "9.9 to 10.1", "1", "-")
    assert shown.rows[1][5] == "25%"
    assert [trial.number for trial in made.running] == [1]
    object.__setattr__(made, "ties", made.ranking[1:3])
    assert made._table().notes[-1] == "The leader is statistically tied with t1 and t2."


def test_a_study_without_trials_has_an_empty_part() -> None:
    """The first, where the study has several; else those with a trial."""
    settings = (WORKLOAD, CLUSTER)
    pool, trials = result._tried([settings, settings], [])
    assert (len(pool.parts), trials) == (1, [])
    one = Trial(number=0, proposal=proposal(setting=1))
    other = Trial(number=1, proposal=proposal("b", setting=1))
    pool, trials = result._tried([settings, settings], [one, other, one])
    assert (len(pool.parts), [trial.proposal.candidate for trial in trials]) == (1, [0, 1, 0])
    pool, trials = result._tried([settings, settings], [one, Trial(number=2, proposal=proposal())])
    assert (len(pool.parts), [trial.proposal.candidate for trial in trials]) == (2, [1, 0])


def test_only_a_study_with_measured_trials_of_one_workload_calibrates(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str, Any] = {"workload": workload_document(WORKLOAD), "cluster": cluster_document(CLUSTER)}
    closed: list[str] = []
    store: Any = SimpleNamespace(settings={}, attributes={}, trials=list, close=lambda: closed.append("closed"))
    monkeypatch.setattr(warm_start, "existing", lambda *_, **__: store)

    def calibration() -> Any:
        return warm_start.calibration_from_study("s", runs=Path("runs"), storage=None)

    with pytest.raises(InputError, match="study s replayed a table"):
        calibration()
    store.settings = known
    with pytest.raises(NothingUsable, match="study s has no measured trial yet"):
        calibration()
    small = Fidelity(nodes=2, dp=2, micro_batches=(3,))
    store.trials = lambda: [
        replace(ended(number=0, seconds=2.0), proposal=proposal()),
        replace(ended(number=4, seconds=3.0), proposal=proposal(fidelity=small)),
        ended(Outcome.OOM, number=5),
    ]
    store.attributes = {"eras": [{"first": 3, "factor": 1.1}]}
    seen: list[Any] = []

    def fit(rows: Any) -> Calibration:
        seen.extend(rows)
        return Calibration()

    monkeypatch.setattr("tuner.study.warm_start.fit", fit)
    assert calibration().period == "era 2"
    (rows,) = seen
    assert (rows.seconds.tolist(), rows.period, rows.columns.dp.tolist()) == ([2.0, 3.0], ("", "era 2"), [ONE.dp, 2])
    assert closed == ["closed"] * 3


def test_a_machine_is_examined_and_calibrated_on_request(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine, found = (
        Machine(accelerator="cpu", cards=0, name="CPU", memory=1e9, cores=2),
        {"product_flops": 2e9, "x": 1},
    )
    asked: list[Any] = []
    monkeypatch.setattr(doctor, "this_machine", lambda: machine)
    monkeypatch.setattr(doctor, "probe", lambda measure: found if measure else {})
    monkeypatch.setattr(doctor, "_storage", lambda url: CheckResult(name="storage", verdict="ok", evidence=str(url)))
    monkeypatch.setattr(doctor, "_calibration", lambda *given: asked.append(given))
    plain = doctor.examine(tmp_path, storage="url")
    assert (plain.speeds, plain.calibration, asked) == ({}, None, [])
    assert plain.findings[-1].evidence == "url"
    measured = doctor.examine(tmp_path, measure=True)
    assert measured.speeds == {"product_flops": 2e9}
    assert asked == [(machine, found, {"product_flops": 2e9})]
    found.clear()
    with pytest.raises(NothingUsable, match="nothing could be timed: torch is missing"):
        doctor.examine(tmp_path, measure=True)


@pytest.mark.parametrize(("most", "rows"), [(60, [[5.0, 6.0], [7.0]]), (2, [[5.0], [7.0]]), (1, [[7.0]])])
def test_the_best_measurements_calibrate_the_model_that_explains_them(
    most: int, rows: list[list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each as a row of its own part: candidates 0 and 1 are of the first, 2 and 3 of the second."""
    seen: list[Any] = []

    def calibrate(measured: Any) -> Calibration:
        seen.extend(measured)
        return Calibration()

    monkeypatch.setattr("tuner.study.result.calibrate", calibrate)
    monkeypatch.setattr(result, "MAX_CALIBRATION_TOPOLOGIES", most)
    other = replace(ONE, micro_batch=2)
    part = Columns.of([ONE, other], WORKLOAD, CLUSTER)
    pool = CandidatePool(workload=WORKLOAD, parts=(part, part))
    trials = [
        ended(candidate=0, number=0, seconds=5.0),
        ended(candidate=1, number=1, seconds=6.0),
        ended(candidate=3, number=2, seconds=7.0),
        ended(Outcome.OOM, candidate=3, number=3),
    ]
    ranking = tuple(ranked(candidate) for candidate in (3, 0, 1))
    periods = (drift.SpeedPeriod(first=2, factor=1.1),)
    own = Calibration(period="own")
    made: Any = SimpleNamespace(ranking=ranking, pool=pool, trials=trials, speed_periods=periods, calibration=own)
    assert result._calibrated(made).calibration.period == "era 2"
    assert [each.seconds.tolist() for each in seen] == rows
    assert (seen[-1].columns.micro_batch.tolist(), seen[-1].period) == ([2], ("era 2",))
    assert seen[0].period[0] == ("" if len(rows) > 1 else "era 2")
    made.trials = trials[3:]
    assert result._calibrated(made).calibration is own


def test_a_recovered_study_has_its_calibration_and_its_numbers(tmp_path: Path) -> None:
    """A number whose file is lost stands for a trial that was never launched."""
    attributes = {"key": "k", "why": "", "proposal": proposal_document(proposal())}
    frozen = optuna.trial.create_trial(state=TrialState.RUNNING, user_attrs=attributes)
    trials = recover._write(tmp_path / "study.db", "s", {"launcher": "local"}, "the site", {2: frozen})
    assert [(trial.number, trial.proposal.key) for trial in trials] == [(2, "key")]
    made = TrialStore.existing(f"sqlite:///{tmp_path / 'study.db'}", "s")
    assert made.attributes["site"] == "the site"
    made.close()


def test_a_change_of_speed_lies_between_the_runs_that_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the later of the first runs, and not after the earlier of the repeats; or at that repeat."""
    asked: list[tuple[int, int]] = []

    def locate(_trials: Any, _periods: Any, _recent: Any, window: tuple[int, int], _likelihood: Any) -> Any:
        asked.append(window)
        return [drift.SpeedPeriod(first=window[1], factor=1.1)]

    monkeypatch.setattr(drift, "_locate", locate)
    monkeypatch.setattr(drift, "_is_noise", lambda *_, **__: True)
    monkeypatch.setattr(drift, "noise", lambda *_, **__: 0.01)
    runs = [measured(0, 1, 10.0), measured(1, 2, 10.0), measured(4, 1, 11.0, 1), measured(6, 2, 11.0, 1)]
    assert drift.detect(runs, [], lambda *_, **__: 0.0).suspected
    assert asked == [(1, 6), (1, 4)]
    asked.clear()
    crossed = [measured(0, 1, 10.0), measured(4, 1, 11.0, 1), measured(5, 2, 10.0), measured(9, 2, 11.0, 1)]
    drift.detect(crossed, [], lambda *_, **__: 0.0)
    assert asked == [(5, 9), (3, 4)]
    calm = [measured(0, 1, 10.0), measured(1, 2, 10.0), measured(4, 1, 10.3, 1), measured(6, 2, 10.0, 1)]
    assert not drift.detect(calm, [], lambda *_, **__: 0.0).suspected


def test_less_noise_than_assumed_sharpens_the_likelihood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift, "_locate", lambda *given: given[-1]([7], accident=3, noise=2.0))
    monkeypatch.setattr(drift, "noise", lambda *_, **__: 0.01)
    monkeypatch.setattr(drift, "_is_noise", lambda *_, **__: True)
    asked: list[Any] = []

    def likelihood(firsts: Any, /, *, accident: int | None = None, noise: float = 1.0) -> float:
        asked.append((firsts, accident, noise))
        return 0.0

    runs = [measured(0, 1, 10.0), measured(4, 1, 11.0, 1)]
    for assumed, factor in ((0.04, 0.25), (0.005, 1.0), (None, 1.0)):
        asked.clear()
        drift.detect(runs, [], likelihood, assumed=assumed)
        assert asked == [([7], 3, 2.0 * factor)]
