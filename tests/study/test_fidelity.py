"""Studies with trials at a reduced size: the jobs that they launch, their storage and their results."""

from __future__ import annotations

import csv
import io
import json
import math
import random
import time
from pathlib import Path

import pytest

from tests.conftest import Said
from tests.studies import assert_lawful, finish, kept, over, run_tuner, start, states, url_of
from tuner.core.errors import InputError
from tuner.core.fidelity import Fidelity
from tuner.core.text import DAY
from tuner.costmodel.residual_features import SMOOTH
from tuner.report.dashboard import graphs
from tuner.report.plot_data import progress
from tuner.report.summary import confirmations, summary
from tuner.report.tables import measurements
from tuner.study.api import optimize as run_study
from tuner.study.api import study_settings
from tuner.study.leaderboard import EXTRAPOLATED, rows_of
from tuner.study.result import StudyResult, open_study
from tuner.study.store.storage import sqlite_url
from tuner.study.store.trial import Proposal, Trial, proposal_document, proposal_of
from tuner.study.warm_start import calibration_from_study

PLACE = ("--model", "gpt-1.3b", "--nodes", "8", "--set", "nodes=8", "--set", "recompute=none", "--fidelity", "auto")
BUDGET = 16


def cheap(folder: Path, **given: object) -> StudyResult:
    """Run a study with reduced trials on the simulated cluster."""
    described = {"model": "gpt-1.3b", "nodes": 8, "settings": ["nodes=8", "recompute=none"], "budget": BUDGET}
    return run_study(**{**described, "runs": folder, "study": "cheap", "fidelity": "auto", **given})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    """A study with reduced trials, shared by several tests."""
    return cheap(tmp_path_factory.mktemp("studies"))


def search(*arguments: str, folder: Path) -> Said:
    """Run `tuner optimize` to its end."""
    return finish(start(*arguments, folder=folder, space=PLACE))


def reduced(trials: list[Trial]) -> list[Trial]:
    """Return the trials at a reduced size."""
    return [trial for trial in trials if trial.reduced]


def test_the_answer_is_measured_at_full_size(study: StudyResult) -> None:
    """The search uses small jobs, but the winner and at least one other topology are measured at full size."""
    full = {trial.proposal.candidate for trial in study.trials if trial.measured}
    assert len(reduced(study.launched)) >= 3
    assert len(full) >= 2
    assert study.best is not None
    assert not study.best.extrapolated
    assert study.best.candidate in full
    assert {ranked.candidate for ranked in study.ranking} == full
    assert len(study.launched) <= BUDGET


def test_reduced_jobs_cost_only_their_own_nodes(study: StudyResult) -> None:
    for trial in reduced(study.launched):
        fidelity, result = trial.proposal.fidelity, trial.result
        assert fidelity is not None
        assert result is not None
        assert trial.proposal.nodes == fidelity.nodes
        assert result.node_hours == pytest.approx(result.elapsed * fidelity.nodes / 3600)
    small = [trial.result.node_hours for trial in study.launched if trial.measured_reduced and trial.result]
    whole = [trial.result.node_hours for trial in study.launched if trial.measured and trial.result]
    assert sum(small) / len(small) < 0.5 * sum(whole) / len(whole)


def test_a_reduced_trial_measures_each_batch_and_predicts_the_full_size(study: StudyResult) -> None:
    """A reduced trial stores the seconds of each batch and its extrapolation, but has no objective."""
    several = 0
    for trial in study.launched:
        if not trial.measured_reduced:
            continue
        result, fidelity = trial.result, trial.proposal.fidelity
        assert result is not None
        assert result.measurement is not None
        assert fidelity is not None
        seconds = result.measurement.batch_seconds
        if len(fidelity.micro_batches) > 1:
            several += 1
            assert len(seconds) == len(fidelity.micro_batches)
            assert seconds[0] < seconds[-1] == result.seconds
        assert result.objective is None
        assert result.forecast is not None
        assert not trial.measured
    assert several


def test_a_study_is_read_as_it_ended(study: StudyResult) -> None:
    """Fidelities, results and the ranking are the same after reading the study from storage."""
    read = open_study("cheap", runs=study.folder.parent)
    assert [trial.proposal.fidelity for trial in read.trials] == [trial.proposal.fidelity for trial in study.trials]
    assert [trial.result for trial in read.trials] == [trial.result for trial in study.trials]
    assert study.best is not None
    assert read.best is not None
    assert read.best.key == study.best.key
    assert read.best.seconds == pytest.approx(study.best.seconds, rel=0.001)
    counts = states(sqlite_url(study.folder / "study.db"), "cheap")
    assert counts["COMPLETE"] == sum(trial.measured for trial in study.trials)


def test_full_fidelity_launches_no_reduced_job_and_is_kept(tmp_path: Path) -> None:
    study = cheap(tmp_path, fidelity="full", budget=8)
    assert not reduced(study.launched)
    assert all("fidelity" not in proposal_document(trial.proposal) for trial in study.trials)
    later = cheap(tmp_path, fidelity=None, budget=10)
    assert len(later.launched) > len(study.launched)
    assert not reduced(later.launched)


@pytest.mark.slow
def test_a_study_continues_at_its_original_sizes(tmp_path: Path) -> None:
    begun = cheap(tmp_path, budget=8)
    later = cheap(tmp_path, fidelity=None, budget=BUDGET)
    assert any(trial.reduced for trial in later.launched[len(begun.launched) :])


def test_a_study_without_a_final_round_runs_at_full_size(tmp_path: Path) -> None:
    """A study without a final round has no reduced trials, because it could not confirm them at full size."""
    assert not reduced(cheap(tmp_path, budget=6).launched)


def test_a_stored_proposal_without_fidelity_is_of_full_size() -> None:
    """A stored proposal without a fidelity, as in studies of earlier versions, is read as full size."""
    plain = Proposal(key="tp1", params={}, topology={"tp": 1}, nodes=1)
    document = proposal_document(plain)
    assert "fidelity" not in document
    assert proposal_of(document, {}) == plain
    small = Proposal(
        key="tp1", params={}, topology={"tp": 1}, nodes=1, fidelity=Fidelity(nodes=1, dp=2, micro_batches=(4, 8))
    )
    assert proposal_of(json.loads(json.dumps(proposal_document(small))), {}) == small


@pytest.mark.slow
def test_an_extrapolated_answer_is_labelled_first(tmp_path: Path) -> None:
    said = search("--trial-nodes", "2", "--budget", "10", folder=tmp_path)
    assert said.code == 0, said.err
    first = said.out.splitlines()[0]
    assert first.startswith("SIMULATED: The result is extrapolated from trials at a reduced size")
    assert "is predicted to" in said.out
    assert "reserved" not in said.out + said.err  # for confirmations, of which there are none
    (folder,) = (tmp_path / "runs").iterdir()
    trials = kept(url_of(tmp_path, folder.name), folder.name)
    assert all(trial.proposal.nodes <= 2 for trial in trials if trial.launched)
    study = open_study(folder.name, runs=tmp_path / "runs")
    assert study.best is not None
    assert study.best.extrapolated
    production = tmp_path / "production"
    exported = run_tuner("export", folder.name, "-o", str(production), folder=tmp_path)
    assert "extrapolated from trials at a reduced size" in exported.out
    assert "nothing ran at full size" in (production / "README.md").read_text()
    assert json.loads((production / "topology.json").read_text())["expected"]["extrapolated"] is True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nodes", "ended"),
    [
        (12, "no job is expected to shorten the training"),
        (6, "no topology is likely to fit on 6 nodes"),
        (1, "on 1 node"),
    ],
)
def test_topologies_that_do_not_fit_on_the_trial_nodes_are_skipped(tmp_path: Path, nodes: int, ended: str) -> None:
    """Topologies that do not fit on the trial nodes are skipped; if none fits, as on 6 nodes, no job is launched."""
    study = run_study(nodes=48, budget=10, trial_nodes=nodes, runs=tmp_path)
    assert ended in study.ended
    assert bool(study.ranking) == bool(study.launched) == (nodes == 12)
    assert all(trial.proposal.nodes <= nodes for trial in study.launched)


@pytest.mark.slow
def test_json_marks_a_reduced_trial_and_its_prediction(tmp_path: Path) -> None:
    given = ("--budget", str(BUDGET), "--json", "--study", "marked")
    document = json.loads(search(*given, folder=tmp_path).out)
    small = [trial for trial in document["trials"] if "fidelity" in trial]
    assert small
    for trial in small:
        assert set(trial["fidelity"]) == {"nodes", "dp", "micro_batches"}
        assert trial["objective"] is None
        if trial["outcome"] == "MEASURED":
            assert 0 < trial["extrapolated_sec"] != trial["sec_per_iter"]
    assert "extrapolated" not in document["best"]
    assert all("extrapolated_sec" not in trial for trial in document["trials"] if trial not in small)


@pytest.mark.slow
def test_node_hours_are_reserved_for_the_confirmation(tmp_path: Path) -> None:
    """With a limit of node-hours, the search ends early enough to measure the leaders at full size."""
    unlimited = cheap(tmp_path / "a", budget=30)
    limit = 0.6 * unlimited.node_hours
    study = cheap(tmp_path / "b", budget=30, node_hours=limit)
    assert study.best is not None
    assert not study.best.extrapolated
    assert study.node_hours < unlimited.node_hours


@pytest.mark.slow
def test_kills_at_any_moment_keep_trials_of_all_sizes(tmp_path: Path) -> None:
    """After SIGKILL and a rerun, ended trials are unchanged, and the winner is that of an undisturbed run."""
    same = ("--budget", str(BUDGET), "--json", "--seed", "3")
    undisturbed = json.loads(search("--study", "undisturbed", *same, folder=tmp_path).out)
    chance, url = random.Random(7), url_of(tmp_path, "killed")  # noqa: S311 - random moments, not secrets
    before: dict[int, Trial] = {}
    for _ in range(4):
        process = start("--study", "killed", *same, folder=tmp_path, space=PLACE)
        assert process.stderr is not None
        for _ in range(5):
            process.stderr.readline()
        time.sleep(chance.uniform(0.0, 0.4))
        process.kill()
        process.communicate()
        after = over(url, "killed")
        assert {number: after.get(number) for number in before} == before
        before = after
    last = search("--study", "killed", *same, folder=tmp_path)
    assert last.code == 0, last.err
    trials = kept(url, "killed")
    assert {trial.number: trial for trial in trials if trial.number in before} == before
    assert_lawful(trials, budget=BUDGET)
    assert {trial.reduced for trial in trials if trial.launched} == {False, True}
    assert json.loads(last.out)["best"]["key"] == undisturbed["best"]["key"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"fidelity": "half"}, "fidelity"),
        ({"fidelity": "auto", "sampler": "tpe"}, "--sampler guided"),
        ({"trial_nodes": 2, "fidelity": "full"}, "drop --fidelity full"),
        ({"fidelity": "auto", "trial_nodes": 9}, "between 1 and the cluster's 8 nodes"),
        ({"fidelity": "auto", "trial_nodes": 0}, "between 1 and the cluster's 8 nodes"),
    ],
)
def test_invalid_settings_are_refused(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        study_settings(model="gpt-1.3b", nodes=8, **given)  # type: ignore[arg-type]


def test_the_report_compares_extrapolations_with_confirmations(study: StudyResult) -> None:
    """The report lists each confirmed topology's extrapolation, and shows no extrapolated time as measured."""
    rows = rows_of(study)
    lines = summary(study, rows)
    assert any("at a reduced size" in line for line in lines)
    confirmed = {t.proposal.candidate for t in study.launched if t.measured} & {
        t.proposal.candidate for t in study.launched if t.measured_reduced
    }
    found = confirmations(study)
    assert len(found) == len(confirmed) > 0
    assert all("was extrapolated to" in line and "80% interval" in line for line in found)
    measured = {ranked.candidate for ranked in study.ranking}
    for row in rows:
        candidate = study.pool.find(row.topology)
        assert (row.outcome == EXTRAPOLATED) <= (candidate not in measured)
        assert (row.ranked is None) == (candidate not in measured)
    table = {row["trial"]: row for row in csv.DictReader(io.StringIO(measurements(study)))}
    for trial in study.launched:
        if trial.proposal.fidelity is not None:
            assert table[str(trial.number)]["nodes"] == str(trial.proposal.fidelity.nodes)
            assert table[str(trial.number)]["dp"] == str(trial.proposal.fidelity.dp)
            assert table[str(trial.number)]["days"] == ""


def test_extrapolated_topologies_are_listed_apart_from_measured_ones(study: StudyResult) -> None:
    """The report lists topologies measured at full size first, then extrapolated ones by days, then all others.

    The plot of progress shows extrapolated jobs as a series of their own.
    """
    rows, data = rows_of(study), progress(study)
    measured = {trial.proposal.key for trial in study.launched if trial.measured}
    only_reduced = {trial.proposal.key for trial in study.launched if trial.measured_reduced} - measured
    assert measured
    assert only_reduced
    keys = [row.key for row in rows]
    assert sorted(keys) == sorted({trial.proposal.key for trial in study.launched})
    assert {row.key for row in rows if row.ranked} == measured == set(keys[: len(measured)])
    predicted = rows[len(measured) :][: len(only_reduced)]
    assert {row.key for row in rows if row.extrapolated} == only_reduced == {row.key for row in predicted}
    assert {row.outcome for row in predicted} == {EXTRAPOLATED}
    assert [row.memory for row in predicted] == [None] * len(predicted)
    for row in rows[: len(measured)]:  # a reduced job shards its states less, so its peak does not count
        whole = [trial.result for trial in study.launched if trial.proposal.key == row.key and trial.measured]
        assert row.memory == max(result.peak_memory or 0.0 for result in whole if result)
    days = [row.extrapolated.days for row in predicted if row.extrapolated]
    assert days == sorted(days)
    by_clock = sorted(study.launched, key=lambda trial: trial.result.clock if trial.result else math.inf)
    work = [math.exp(study.pool.work[trial.proposal.candidate]) for trial in by_clock]
    expected = [
        trial.result.forecast * own / DAY if trial.measured_reduced and trial.result and trial.result.forecast else None
        for trial, own in zip(by_clock, work, strict=True)
    ]
    assert [shown is None for shown in data.extrapolated] == [not trial.measured_reduced for trial in by_clock]
    assert data.extrapolated == pytest.approx(expected)
    assert [shown is None for shown in data.days] == [not trial.measured for trial in by_clock]
    names = [mark["name"] for mark in graphs(study, rows)["best-so-far"]["data"]]
    assert names.count("extrapolated") == 1


def test_reduced_jobs_of_an_earlier_study_calibrate_a_new_one(study: StudyResult) -> None:
    """Reduced trials of an earlier study calibrate a new one as rows of their own size."""
    rows = sum(trial.measured or trial.measured_reduced for trial in study.trials)
    found = calibration_from_study("cheap", runs=study.folder.parent, storage=None)
    assert found.known is not None
    assert len(found.known) == rows
    doublings = set(found.known.smooth[:, SMOOTH.index("dp")].tolist())
    assert {math.log2(t.proposal.fidelity.dp) for t in study.trials if t.measured_reduced and t.proposal.fidelity} <= (
        doublings
    )
