"""The table and data frame of a study's result, and the study's recovery file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from optuna.distributions import CategoricalDistribution

from tests.conftest import ROOT
from tests.found_studies import opened
from tests.study.test_decisions_arithmetic import ranked
from tests.study.test_sizes_arithmetic import SMALL, ended
from tuner.core.outcomes import Measurement
from tuner.space.build import space_for
from tuner.study import result
from tuner.study.api import optimize
from tuner.study.drift import slowdowns
from tuner.study.ranking import MARK_MEANING, rank_by_own_runs, ranking_table
from tuner.study.result import open_study
from tuner.study.store import recover
from tuner.study.store.trial import Trial


@pytest.mark.parametrize(
    ("count", "simulated", "notes"),
    [
        (3, False, ()),
        (11, False, ("1 more topology measured.",)),
        (12, True, ("2 more topologies were measured.",)),
    ],
)
def test_a_study_is_printed_with_its_first_ten_topologies(count: int, simulated: bool, notes: tuple[str, ...]) -> None:
    ranking = [
        replace(ranked(number, days=10.0 + number, runs=number + 1, chance=number / 40), seconds=number + 1.0)
        for number in range(count)
    ]
    stand_in: Any = SimpleNamespace(
        name="s",
        simulated=simulated,
        outcomes={"MEASURED": 3, "OOM": 1},
        ranking=ranking,
        launched=[0] * 4,
        ties=ranking[2:3],
        node_hours=5.0,
        best=ranking[0],
    )
    shown = result.StudyResult._shown(stand_in)
    label = "SIMULATED: " if simulated else ""
    assert shown.title == f"{label}study s: 4 jobs (3 measured, 1 OOM), 5.0 node-hours"
    assert shown.headers == ("Topology", "Sec/it", "Days", "80% interval", "Runs", "P(sooner)")
    assert len(shown.rows) == min(count, 10)
    assert shown.rows[0] == ("t0", "1.00", "10.0", "9.9 to 10.1", "1", "-")
    assert shown.rows[2] == ("t2", "3.00", "12.0", "11.9 to 12.1", "3", "5%")
    assert shown.notes == (*notes, "The leader is statistically tied with t2.")
    stand_in.ties, stand_in.outcomes = (), {}
    shown = result.StudyResult._shown(stand_in)
    assert shown.title == f"{label}study s: 4 jobs (none has ended), 5.0 node-hours"
    assert shown.notes == notes


def test_rows_of_a_ranking_are_in_the_unit_of_the_leader_which_alone_has_no_chance_of_its_own() -> None:
    ranking = [ranked(days=0.5), ranked(1, days=0.75, runs=2, chance=0.3), ranked(2, days=5.0), ranked(3, days=6.0)]
    headers, rows = ranking_table(ranking, 3)
    assert headers == ("Topology", "Sec/it", "Hours", "80% interval", "Runs", "P(sooner)")
    assert rows == [
        ("t0", "1.00", "12.0", "11.9 to 12.1", "1", "-"),
        ("t1", "1.00", "18.0", "17.8 to 18.2", "2", "30%"),
        ("t2", "1.00", "120.0", "118.8 to 121.2", "1", "0%"),
    ]
    quicker = [replace(ranked(), seconds=1.01), replace(ranked(1), seconds=0.981), replace(ranked(2), seconds=0.5)]
    assert [row[1] for row in ranking_table(quicker, 2)[1]] == ["1.0100", "0.9810"]


def test_extrapolated_times_are_marked_in_every_table() -> None:
    ranking = [ranked(), replace(ranked(1), extrapolated=True)]
    _, rows = ranking_table(ranking, 2)
    assert [row[1:3] for row in rows] == [("1.00", "10.0"), ("~1.00", "~10.0")]
    stand_in: Any = SimpleNamespace(
        name="s", simulated=True, launched=(), node_hours=5.0, outcomes={}, ties=(), ranking=ranking
    )
    assert MARK_MEANING in result.StudyResult._shown(stand_in).notes
    stand_in.ranking = ranking[:1]
    assert MARK_MEANING not in result.StudyResult._shown(stand_in).notes


def test_a_data_frame_has_a_row_per_trial() -> None:
    pytest.importorskip("pandas")
    figures = Measurement(seconds=2.0, peak_memory=3 * 2.0**30)
    measured_one = ended(number=1, measurement=figures, objective=4.0, node_hours=0.5, fidelity=SMALL)
    proposal = replace(measured_one.proposal, params={"tp": 8}, kind="final", estimate_sec=1.5)
    trials = (replace(measured_one, proposal=proposal), Trial(number=2, proposal=replace(proposal, params={"pp": 2})))
    stand_in: Any = SimpleNamespace(trials=trials, simulated=True)
    first, second = result.StudyResult.trials_dataframe(stand_in).to_dict("records")
    expected = {"number": 1, "key": "t0", "kind": "final", "outcome": "MEASURED", "sec_per_iter": 2.0, "days": 4.0}
    expected |= {"estimate_sec": 1.5, "peak_memory_gib": 3.0, "node_hours": 0.5, "simulated": True, "reduced": True}
    assert expected.items() <= first.items()
    assert first["params_tp"] == 8
    assert (second["number"], second["outcome"], second["node_hours"], second["params_pp"]) == (2, "RUNNING", 0.0, 2)


def test_topologies_beyond_the_limit_are_ranked_by_their_own_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topologies beyond the surrogate's limit are ranked by their own runs after the others, and none is lost."""
    whole = opened("replayed")
    monkeypatch.setattr(result, "MAX_SURROGATE_TOPOLOGIES", 2)
    few = opened("replayed")
    assert len(few.ranking) == len(whole.ranking) > 2
    assert {ranked.key for ranked in few.ranking} == {ranked.key for ranked in whole.ranking}
    others = [trial for trial in few.trials if trial.proposal.key not in {one.key for one in few.ranking[:2]}]
    assert few.ranking[2:] == tuple(rank_by_own_runs(few.pool, others, slowdowns(others, few.speed_periods), few.noise))


@pytest.mark.parametrize(
    ("attributes", "site", "others"),
    [({}, "", {}), ({"site": "[site]", "other": 1, "settings": {}, "folder": {}}, "[site]", {"other": 1})],
)
def test_the_recovery_file_has_the_contents_of_the_database(
    attributes: dict[str, Any], site: str, others: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recovery file has what only the database would contain; it is private and written only if it changes."""
    store: Any = SimpleNamespace(name="s", settings={"launcher": "local"}, attributes=attributes)
    axes = {"tp": CategoricalDistribution((1, 2))}
    recover.write_study_file(tmp_path, store, axes)
    path = tmp_path / "study.json"
    document = json.loads(path.read_text())
    assert json.loads(document.pop("distributions")["tp"])["attributes"] == {"choices": [1, 2]}
    expected = {"schema": "tuner/recovery/1", "name": "s", "settings": {"launcher": "local"}, "site": site}
    assert document == {**expected, "attributes": others}
    assert path.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(recover, "write_object", None)
    recover.write_study_file(tmp_path, store, axes)
    with pytest.raises(TypeError):
        recover.write_study_file(tmp_path, store, {})


def test_a_study_opened_later_has_the_ranking_of_its_search(tmp_path: Path) -> None:
    """A study opened later has the same ranking, to the last digit, as its search reported."""
    config = ROOT / "tests/data/huggingface/llama-3-70b.json"
    space = space_for(model=str(config), gpu="H100-80GB-SXM", nodes=16, global_batch=1024, tokens=15e12)
    found = optimize(space, budget=20, study="llama", runs=tmp_path)
    later = open_study("llama", runs=tmp_path)
    assert len(found.ranking) > 2
    assert [(each.key, each.days) for each in found.ranking] == [(each.key, each.days) for each in later.ranking]
