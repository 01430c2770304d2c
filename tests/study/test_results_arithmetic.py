"""The contents, the printed form and the calibration of a study's result, with stand-ins for its parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
import sqlalchemy
from optuna.trial import TrialState

from tests.stages import CLUSTER, WORKLOAD
from tests.study.test_arithmetic import trial as measured
from tests.study.test_decisions_arithmetic import ranked
from tests.study.test_sizes_arithmetic import SMALL, ended
from tests.study.test_store_arithmetic import proposal
from tests.workers import ONE
from tuner.core.columns import Columns
from tuner.core.documents import cluster_document, workload_document
from tuner.core.errors import InputError, NothingUsable
from tuner.core.fidelity import Fidelity
from tuner.core.outcomes import Outcome
from tuner.costmodel.calibration import Calibration
from tuner.launch.machine import Machine
from tuner.launch.preflight import CheckResult
from tuner.search.candidates import CandidatePool
from tuner.study import doctor, drift, manage, result, warm_start
from tuner.study.result import incidents
from tuner.study.store import recover, storage
from tuner.study.store.stored import SCHEMA
from tuner.study.store.trial import Proposal, Trial, proposal_document
from tuner.study.store.trial_store import _PATIENCE, TrialStore
from tuner.study.watchdog import Watchdog


def test_full_size_topologies_precede_reduced_ones(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_reduced_run_calibrates_as_its_largest_batch() -> None:
    full = Trial(number=0, proposal=proposal())
    assert warm_start._as_run(full) == ONE
    size = Fidelity(nodes=2, dp=2, micro_batches=(3, 5))
    found = warm_start._as_run(Trial(number=0, proposal=proposal(fidelity=size)))
    assert (found.nodes, found.dp, found.global_batch) == (2, 2, 5 * 2 * ONE.micro_batch)


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "nothing"), (2, "t0 and t1"), (5, "t0, t1, t2, t3 and t4"), (7, "t0, t1, t2, t3, t4 and 2 more")],
)
def test_a_topology_that_was_not_measured_is_refused_with_the_ones_that_were(count: int, words: str) -> None:
    stand_in: Any = SimpleNamespace(name="s", ranking=[ranked(number) for number in range(count)])
    with pytest.raises(NothingUsable, match=f"^study s has not measured tp1; it has measured {words}\\.$"):
        result.StudyResult.ranked(stand_in, "tp1")


def test_incidents_are_failed_nodes_and_retried_jobs() -> None:
    trials = [ended(number=3, retried="n1 failed"), ended(number=4), ended(Outcome.OOM, number=5, retried="requeued")]
    assert incidents({}, trials[1:2]) == ""
    assert incidents({"n1": "down"}, trials[1:2]) == "Failed nodes are excluded: n1 (down)."
    assert incidents({"n1": "down"}, trials) == (
        "Failed nodes are excluded: n1 (down); jobs were retried: trial 3 (n1 failed) and trial 5 (requeued)."
    )


@pytest.mark.parametrize(("journal", "immutable"), [(None, True), ("", True), ("pages", False)])
def test_an_unwritable_database_is_opened_read_only(
    journal: str | None, immutable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database in a read-only folder is opened as immutable, unless its journal has content."""
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


def test_the_creation_of_tables_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_settings_not_stored_by_the_creator_are_completed(
    waited: float, stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing settings of a study are stored after a wait, unless the study has other content."""
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


def test_stopping_a_slurm_study_cancels_leftover_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopping a Slurm study cancels leftover jobs of ended trials, but not those of open trials."""
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


def test_a_study_is_listed_in_one_line() -> None:
    best = SimpleNamespace(key="t0")
    made: Any = result.StudyResult.__new__(result.StudyResult)
    object.__setattr__(made, "name", "s")
    object.__setattr__(made, "launched", [1, 2])
    for ranking, words in (((best,), "<StudyResult 's': 2 jobs, best t0>"), ((), "<StudyResult 's': 2 jobs>")):
        object.__setattr__(made, "ranking", ranking)
        assert repr(made) == words


def test_a_proposal_without_a_kind_is_a_first_search_job() -> None:
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
    shown = made._shown()
    assert shown.notes == notes
    assert shown.title == "SIMULATED: study s: 2 jobs (1 measured), 5.0 node-hours"
    assert len(shown.rows) == 10
    assert shown.rows[0][2:] == ("10.0", "9.9 to 10.1", "1", "-")
    assert shown.rows[1][5] == "25%"
    assert [trial.number for trial in made.running] == [1]
    object.__setattr__(made, "ties", made.ranking[1:3])
    assert made._shown().notes[-1] == "The leader is statistically tied with t1 and t2."


def test_a_study_without_trials_has_an_empty_part() -> None:
    """A result has the parts of the study that have trials, or the first part if there are no trials."""
    settings = (WORKLOAD, CLUSTER)
    pool, trials = result.pool_of_tried([settings, settings], [])
    assert (len(pool.parts), trials) == (1, [])
    one = Trial(number=0, proposal=proposal(setting=1))
    other = Trial(number=1, proposal=proposal("b", setting=1))
    pool, trials = result.pool_of_tried([settings, settings], [one, other, one])
    assert (len(pool.parts), [trial.proposal.candidate for trial in trials]) == (1, [0, 1, 0])
    pool, trials = result.pool_of_tried([settings, settings], [one, Trial(number=2, proposal=proposal())])
    assert (len(pool.parts), [trial.proposal.candidate for trial in trials]) == (2, [1, 0])


def test_only_a_measured_study_of_one_workload_calibrates(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_the_best_measurements_calibrate_the_model_of_a_result(
    most: int, rows: list[list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best measurements calibrate the model of a result, each as a row of its candidate's part."""
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


def test_a_recovered_study_keeps_its_calibration_and_numbers(tmp_path: Path) -> None:
    """A recovered study keeps its calibration and trial numbers; numbers without a file become unlaunched trials."""
    attributes = {"key": "k", "why": "", "proposal": proposal_document(proposal())}
    frozen = optuna.trial.create_trial(state=TrialState.RUNNING, user_attrs=attributes)
    trials = recover._write(tmp_path / "study.db", "s", {"launcher": "local"}, {"site": "the site"}, {2: frozen})
    assert [(trial.number, trial.proposal.key) for trial in trials] == [(2, "key")]
    made = TrialStore.existing(f"sqlite:///{tmp_path / 'study.db'}", "s")
    assert made.attributes["site"] == "the site"
    made.close()


def test_a_change_of_speed_lies_between_the_runs_that_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start of a period is sought between the first runs and the repeats that show the change of speed."""
    asked: list[tuple[int, int]] = []

    def locate(_trials: Any, _periods: Any, _recent: Any, window: tuple[int, int], _likelihood: Any) -> Any:
        asked.append(window)
        return [drift.SpeedPeriod(first=window[1], factor=1.1)]

    monkeypatch.setattr(drift, "_locate", locate)
    monkeypatch.setattr(drift, "_is_noise", lambda *_, **__: True)
    monkeypatch.setattr(drift, "noise", lambda *_, **__: 0.01)
    runs = [measured(0, 1, 10.0), measured(1, 2, 10.0), measured(4, 1, 11.0, 1), measured(6, 2, 11.0, 1)]
    assert drift.detect(runs, [], lambda *_, **__: 0.0).suspected
    assert asked == [(1, 4)]
    asked.clear()
    crossed = [measured(0, 1, 10.0), measured(4, 1, 11.0, 1), measured(5, 2, 10.0), measured(9, 2, 11.0, 1)]
    drift.detect(crossed, [], lambda *_, **__: 0.0)
    assert asked == [(3, 4)]
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

    runs = [measured(0, 1, 10.0), measured(4, 1, 11.0, 1), measured(5, 1, 12.0, 2)]
    for assumed, factor in ((0.04, 0.25), (0.005, 1.0), (None, 1.0)):
        asked.clear()
        drift.detect(runs, [], likelihood, assumed=assumed)
        assert asked == [([7], 3, 2.0 * factor)]
