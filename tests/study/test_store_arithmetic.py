"""Storing, comparing, publishing and cancelling in a study, with a small database or stand-ins."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy
from optuna.trial import TrialState

from tests.workers import ONE
from tuner.core.documents import topology_document
from tuner.core.errors import InputError, StudyError
from tuner.core.outcomes import Failure, Measurement, Outcome
from tuner.launch.contract import JobResult
from tuner.study.store import optuna_dashboard
from tuner.study.store.optuna_dashboard import LONGEST, DashboardPublisher
from tuner.study.store.settings_difference import difference_of
from tuner.study.store.stored import SCHEMA, settings_of, state_of
from tuner.study.store.trial import Proposal, result_document, result_of
from tuner.study.store.trial_store import TrialStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TrialStore]:
    """An empty study."""
    opened = TrialStore.open(f"sqlite:///{tmp_path / 'study.db'}", "s", {"launcher": "local"})
    yield opened
    opened.close()


def proposal(key: str = "key", **fields: Any) -> Proposal:
    """Return a proposal of candidate 5."""
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


def test_only_studies_are_kept_in_wal_mode(store: TrialStore, tmp_path: Path) -> None:
    """A study's database is in WAL mode; that of another program in the same process keeps its own."""
    own = sqlalchemy.create_engine(store.url)
    other = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'other.db'}")
    modes = []
    for engine in (own, other):
        with engine.connect() as connection:
            modes.append(connection.exec_driver_sql("PRAGMA journal_mode").scalar())
        engine.dispose()
    assert modes == ["wal", "delete"]


def test_a_study_has_one_folder_per_machine(store: TrialStore, tmp_path: Path) -> None:
    """A study is refused in another folder on the same machine, unless it moved together with its database."""
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
def test_optuna_completes_trials_measured_at_full_size(
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
                seconds=6.0, batch_seconds=(4.0, 6.0), iterations=(2, 3), tflops=5.0, peak_memory=7.0, memory_kind="smi"
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


@pytest.mark.parametrize(("fullest", "kind"), [(True, None), (False, "reserved")])
def test_a_memory_figure_of_an_earlier_version_is_complete_or_of_an_allocator(fullest: bool, kind: str | None) -> None:
    document = {"outcome": "MEASURED", "seconds": 2.0, "peak_memory": 5.0, "fullest": fullest}
    found = result_of(document).measurement
    assert found is not None
    assert (found.peak_memory, found.memory_kind) == (5.0, kind)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("tuner/study/2", "started by a later version"),
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
        ({"workload": {"stack": {"old": 1}}}, {"workload": {"stack": {"old": 1, "new": None}}}, ""),
        (
            {"workload": {"stack": {"old": 1}}},
            {"workload": {"stack": {"old": 1, "new": 2}}},
            "workload.stack.new none, not 2",
        ),
        ({"workload": {"seq": 1}}, {"workload": {"seq": 1, "stack": {"new": 2}}}, "workload.stack.new none, not 2"),
        (
            {"workload": {"stack": {"a": None, "b": True}}},
            {"workload": {"stack": None}},
            "workload.stack.b true, not none",
        ),
        (
            {"cluster": {"gpu": {"peak_flops": {"bf16": 1}}}},
            {"cluster": {"gpu": {"peak_flops": {"bf16": 1, "fp8": 2}}}},
            "",
        ),
        ({"parts": [{"workload": {"seq": 4}}]}, {"parts": [{"workload": {"seq": 4, "new": 1}}]}, ""),
        (
            {"parts": [{"workload": {"seq": 4}}]},
            {"parts": [{"workload": {"seq": 4}}, {"workload": {"seq": 5}}]},
            "a table of 1 workload, not 2",
        ),
        ({"rules": {"policies": ["a"], "allowed": []}}, {"rules": {"policies": ["b"], "allowed": []}}, ""),
        ({"rules": {"allowed": ["b", "a"]}}, {"rules": {"allowed": ["a", "b"]}}, ""),
        ({"rules": {"allowed": ["a"]}}, {"rules": {"allowed": ["a", "b"]}}, "rules.allowed a, not a,b"),
        (
            {"axes": {"sequence_parallel": [True]}},
            {"axes": {"sequence_parallel": [False, True]}},
            "axes.sequence_parallel on, not off,on",
        ),
        ({}, {"noise": 0.01}, "noise 0, not 0.01"),
        (
            {"workload": {"tokens": 0.0}},
            {"workload": {"tokens": 1e9}},
            "workload.tokens at the default of 20 per parameter, not 1B",
        ),
        (
            {"workload": {"tokens": 1234567890123.0}},
            {"workload": {"tokens": 1e12}},
            "workload.tokens 1.234567890123T, not",
        ),
        (
            {"workload": {"ramp": {"start": 192, "increment": 16}}},
            {"workload": {"ramp": {"start": 192, "increment": 32}}},
            "workload.ramp 192,16, not 192,32",
        ),
        (
            {"cluster": {"name": "a", "gpu": {"name": "x"}}},
            {"cluster": {"name": "b", "gpu": {"name": "y"}}},
            "cluster.gpu.name x, not y",
        ),
        (
            {"workload": {"attention": "a", "model": {"max_positions": 8, "seq": 8}}},
            {"workload": {"attention": "b", "model": {"max_positions": 4, "seq": 4}}},
            "workload.model.seq 8, not 4",
        ),
    ],
)
def test_the_first_difference_between_two_settings_is_named(
    begun: dict[str, Any], asked: dict[str, Any], words: str
) -> None:
    found = difference_of(begun, asked)
    assert found.startswith(words)
    assert bool(found) == bool(words)
    assert difference_of(begun, begun) == ""


def published(monkeypatch: pytest.MonkeyPatch) -> tuple[DashboardPublisher, dict[str, Any]]:
    """Return a publisher and the attributes that it writes."""
    kept: dict[str, Any] = {}
    storage = SimpleNamespace(
        get_study_id_from_name=lambda _: 4,
        get_study_system_attrs=lambda _: dict(kept),
        get_all_trials=lambda *_, **__: [SimpleNamespace(number=2, _trial_id=9)],
        set_study_system_attr=lambda _id, name, value: kept.__setitem__(name, value),
    )
    study: Any = SimpleNamespace(url="sqlite:///x", storage=storage, name="s")
    assert optuna_dashboard.LARGEST == 5_000_000
    monkeypatch.setattr(optuna_dashboard, "LARGEST", 5)
    return DashboardPublisher(study), kept


def test_a_note_is_stored_in_parts_with_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_an_artifact_store_that_cannot_be_written_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = published(monkeypatch)
    (tmp_path / "small").write_text("12345")
    (tmp_path / "store").write_text("no folder")
    remedy = rf"store cannot be written: .*; make {tmp_path} writable or use a copy of it\.$"
    with pytest.raises(InputError, match=remedy):
        made.files(2, [tmp_path / "small"], tmp_path / "store")
