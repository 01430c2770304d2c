"""A report describes a study in words, tables and images, and its table can be read back."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from benchmarks.report import long_study
from tests.conftest import ROOT, Run
from tests.found_studies import opened, study_in
from tuner.core.outcomes import Outcome
from tuner.report.summary import _lead, cost_breakdown, summary
from tuner.report.tables import HEADERS, measurements, table
from tuner.report.write import write_report
from tuner.study.leaderboard import rows_of
from tuner.study.result import StudyResult, incidents, open_study
from tuner.study.store.storage import sqlite_url
from tuner.study.store.trial_store import TrialStore
from tuner.tables import table_of, unused_columns

GOLDEN = ROOT / "tests" / "data" / "golden"


STUDIES = ("bloom-48", "drifting", "reduced", "replayed")


@pytest.fixture(params=STUDIES)
def study(request: pytest.FixtureRequest) -> StudyResult:
    return opened(request.param)


@pytest.fixture
def without_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Omit the plots, which take most of a report's time."""
    monkeypatch.setattr("tuner.report.write.plots", lambda *_: [])


@pytest.mark.usefixtures("without_plots")
def test_a_study_read_later_has_the_ranking_of_its_search(run: Run, tmp_path: Path) -> None:
    """The posterior over the tried topologies is that over all topologies, restricted to them."""
    arguments = ("--nodes", "48", "--budget", "8", "--set", "tp=8", "--set", "heads=64", "--study", "s")
    document = json.loads(run("optimize", *arguments, "--runs", str(tmp_path), "--json").out)
    said = json.loads(run("report", "s", "--runs", str(tmp_path), "--json").out)
    measured = [row for row in said["rows"] if row["days"]]
    assert [row["key"] for row in measured] == [place["key"] for place in document["standings"]]
    for row, place in zip(measured, document["standings"], strict=True):
        assert row["days"] == pytest.approx(place["days"], rel=1e-6)
        assert row["days_low"] == pytest.approx(place["days_low"], rel=1e-6)


@pytest.mark.usefixtures("without_plots")
def test_a_study_that_started_with_a_calibration_is_read_with_it(run: Run, tmp_path: Path) -> None:
    table = str(ROOT / "corpus/bloom-a100.csv")
    arguments = ("--budget", "6", "--set", "tp=8", "--set", "heads=64", "--from", table, "--study", "s")
    document = json.loads(run("optimize", *arguments, "--runs", str(tmp_path), "--json").out)
    said = json.loads(run("report", "s", "--runs", str(tmp_path), "--json").out)
    assert said["rows"][0]["days"] == pytest.approx(document["best"]["days"], rel=1e-3)


def test_a_very_long_study_keeps_its_whole_ranking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topologies beyond the best few hundred are ranked by their own runs only: same winner, about the same days."""
    whole = opened("drifting")
    monkeypatch.setattr("tuner.study.result.MAX_SURROGATE_TOPOLOGIES", 4)
    cut = opened("drifting")
    assert {place.key for place in cut.ranking} == {place.key for place in whole.ranking}
    assert cut.ranking[0].key == whole.ranking[0].key
    days = {place.key: place.days for place in whole.ranking}
    assert all(place.days == pytest.approx(days[place.key], rel=0.05) for place in cut.ranking)


@pytest.mark.usefixtures("without_plots")
def test_the_answer_and_the_report_show_failed_nodes_and_retried_trials(run: Run, tmp_path: Path) -> None:
    arguments = ("optimize", "--nodes", "4", "--model", "gpt-1.3b", "--budget", "3", "--study", "s")
    assert "Failed nodes are excluded" not in run(*arguments, "--runs", str(tmp_path)).out
    (tmp_path / "s" / "slurm-excluded.json").write_text('{"n7": "down, not responding"}')
    sentence = "Failed nodes are excluded: n7 (down, not responding)."
    assert sentence in run(*arguments, "--runs", str(tmp_path)).out
    assert sentence in run("report", "s", "--runs", str(tmp_path)).out
    assert sentence in (tmp_path / "s" / "report" / "report.md").read_text()
    document = json.loads(run(*arguments, "--runs", str(tmp_path), "--json").out)
    assert document["excluded"] == {"n7": "down, not responding"}
    assert [trial["again"] for trial in document["trials"]] == ["", "", ""]
    kept = TrialStore.existing(sqlite_url(tmp_path / "s" / "study.db"), "s")
    trials = [
        replace(trial, result=replace(trial.result, retried="n7 failed")) if trial.result else trial
        for trial in kept.trials()
    ]
    kept.close()
    assert incidents({}, trials[1:2]) == "Jobs were retried: trial 1 (n7 failed)."
    assert incidents({}, []) == ""


def test_the_summary_states_winner_lead_reason_certainty_and_cost(study: StudyResult) -> None:
    said = summary(study, rows_of(study))
    assert len(said) == 5
    assert study.ranking[0].key in said[0]
    assert study.ranking[1].key in said[1]
    assert "the cost model predicts" in said[2]
    assert "80% interval" in said[3]
    assert "node-hours" in said[4]
    assert said[0].startswith("SIMULATED: ") == study.simulated
    assert all(sentence.endswith(".") for sentence in said)


def test_no_ratio_is_rounded_to_a_meaningless_value(study: StudyResult) -> None:
    """The slowest topology never takes "1 times as long", and launched jobs never cost 0.00%."""
    by_how_much, cost = summary(study, rows_of(study))[1], summary(study, rows_of(study))[4]
    assert not re.search(r"takes (1|0) times as long", by_how_much)
    assert " 0.00% of" not in cost
    if (ratio := study.ranking[-1].days / study.ranking[0].days) < 2 and "the slowest of" in by_how_much:
        assert f"takes {ratio - 1:.1%} longer" in by_how_much


def test_the_stated_reason_sums_to_the_predicted_difference(study: StudyResult) -> None:
    rows = rows_of(study)
    leader, other = cost_breakdown(study, rows[0]), cost_breakdown(study, rows[1])
    assert sum(leader.estimate.time.terms.values()) == pytest.approx(leader.seconds)
    assert f"{abs(other.seconds - leader.seconds):.2f} s" in summary(study, rows)[2]


def test_every_launched_topology_has_one_row_with_the_best_first(study: StudyResult) -> None:
    rows = rows_of(study)
    assert sorted(number for row in rows for number in row.trials) == [trial.number for trial in study.launched]
    days = [row.ranked.days for row in rows if row.ranked]
    assert days == sorted(days)
    assert all(row.ranked is None for row in rows[len(days) :])


def test_the_table_starts_with_the_columns_of_the_bloom_report(study: StudyResult) -> None:
    assert " ".join(HEADERS[:11]) == "Nodes Size DP TP PP MBS GBS Mem Sec/it TFLOPs Notes"
    lines = table(study, rows_of(study))
    assert all(len(line) == len(HEADERS) for line in lines)
    if study.simulated:
        assert {line[HEADERS.index("Outcome")] for line in lines}.isdisjoint({"measured"})


def test_the_csv_is_read_back_as_the_same_runs(study: StudyResult) -> None:
    """Workload, topology, seconds, memory and outcome are the same; other rows are marked to be skipped."""
    table = table_of(measurements(study), "report.csv")
    assert unused_columns(table) == (), "of what a report writes, nothing is warned of"
    read = table.rows
    ended = [trial for trial in study.launched if trial.result]
    assert len(read) == len(ended)
    for row, trial in zip(read, ended, strict=True):
        (workload, cluster), topology, ending = study.setting(trial), study.topology(trial), trial.result
        if trial.proposal.fidelity is not None:
            topology = trial.proposal.fidelity.topologies(topology)[-1]
        assert ending is not None
        assert row.run is not None, row.skipped
        asked = workload.as_in(topology)
        theirs = row.run.workload.as_in(row.run.topology)
        for name in ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq"):
            assert getattr(theirs.model, name) == getattr(asked.model, name)
        for name in ("tp", "pp", "dp", "vpp", "cp", "zero", "micro_batch", "recompute", "partition", "nodes"):
            assert getattr(row.run.topology, name) == getattr(topology, name)
        assert (theirs.global_batch, theirs.precision) == (asked.global_batch, asked.precision)
        assert row.run.cluster.gpu == cluster.gpu
        assert row.run.cluster.inter_node.bandwidth == pytest.approx(cluster.inter_node.bandwidth)
        measured = trial.measured or trial.measured_reduced
        assert row.timed == measured
        if measured:
            assert row.seconds == pytest.approx(ending.seconds, rel=1e-8)
        assert (row.skipped is not None) == (ending.outcome in (Outcome.PRUNED, Outcome.CANCELLED, Outcome.PREEMPTED))


def test_other_commands_accept_the_csv(run: Run, tmp_path: Path) -> None:
    """`evaluate`, `calibrate`, `audit` and a new search read it."""
    file = tmp_path / "measurements.csv"
    file.write_text(measurements(opened("bloom-48")))
    assert json.loads(run("evaluate", str(file), "--json").out)["summary"]["timed_rows"] >= 5
    assert run("calibrate", str(file), "-o", str(tmp_path / "site.toml")).code == 0
    assert "no findings" in run("audit", str(file)).out
    said = run("optimize", "--budget", "1", "--set", "tp=8", "--from", str(file), "--runs", str(tmp_path / "runs"))
    assert said.code == 0


def test_progress_counts_the_plots(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    write_report(opened("replayed"), tmp_path, on_progress=lambda done, total: calls.append((done, total)))
    assert calls == [(done, len(calls)) for done in range(len(calls))]
    assert len(calls) == 6


class Outline(HTMLParser):
    """Elements by name with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_page_needs_no_network_and_is_accessible(tmp_path: Path) -> None:
    """It has landmarks, one h1, column headers and alternative texts, and embedded styles for dark, print and phone."""
    write_report(opened("bloom-48"), tmp_path)
    text = (tmp_path / "report.html").read_text()
    assert len(text) < 2_000_000
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "https://" not in text
    outline = Outline()
    outline.feed(text)
    tags = [tag for tag, _ in outline.found]
    assert [tags.count(tag) for tag in ("header", "nav", "main", "footer", "h1", "table")] == [1] * 6
    assert "script" not in tags
    assert all(attributes.get("alt") for tag, attributes in outline.found if tag == "img")
    assert all(attributes.get("scope") == "col" for tag, attributes in outline.found if tag == "th")
    ids = [attributes["id"] for _, attributes in outline.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in outline.found:
        assert attributes.get("aria-labelledby", ids[0]) in ids
        target = attributes.get("href") or "#"
        assert target == "#" or target[1:] in ids
    assert ("lang", "en") in outline.found[0][1].items()
    for word in ("prefers-color-scheme: dark", "@media print", 'name="viewport"'):
        assert word in text


@pytest.mark.slow
def test_the_page_of_a_thousand_jobs_stays_small(tmp_path: Path) -> None:
    """The page has at most 2 MB; every measured topology is ranked, and the CSV has every job."""
    long_study(tmp_path)
    study = open_study("thousand", runs=tmp_path)
    made = write_report(study, tmp_path / "report")
    assert (tmp_path / "report" / "report.html").stat().st_size <= 2_000_000
    assert len(study.ranking) == len({trial.proposal.candidate for trial in study.launched if trial.measured}) == 900
    assert len(made.rows) == 1000
    assert len((tmp_path / "report" / "measurements.csv").read_text().splitlines()) == 1001


def test_colours_of_the_page_have_enough_contrast() -> None:
    """The contrast of text is at least 4.5:1, light and dark (WCAG 2.1, 1.4.3)."""
    style = (ROOT / "templates" / "report.html.j2").read_text()
    for block in re.findall(r":root \{([^}]*)\}", style):
        colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{3,6})", block))
        for ink in ("ink", "link", "mark"):
            for paper in ("paper", "soft"):
                assert _contrast(colours[ink], colours[paper]) >= 4.5, (ink, paper, block)


def _contrast(one: str, other: str) -> float:
    def light(colour: str) -> float:
        digits = colour[1:] if len(colour) == 7 else "".join(2 * each for each in colour[1:])
        parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
        red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_the_files_of_a_replayed_study_match_the_golden_files(tmp_path: Path) -> None:
    """The files are Markdown, CSV and the page without images; `TUNER_GOLDEN=1` rewrites them."""
    write_report(opened("replayed"), tmp_path)
    page = re.sub(r"base64,[A-Za-z0-9+/=]+", "base64,...", (tmp_path / "report.html").read_text())
    found = {
        "report.md": (tmp_path / "report.md").read_text(),
        "measurements.csv": (tmp_path / "measurements.csv").read_text(),
        "report.html": page,
    }
    for name, text in found.items():
        if os.environ.get("TUNER_GOLDEN"):
            (GOLDEN / name).write_text(text)
        assert text == (GOLDEN / name).read_text(), name


@pytest.mark.usefixtures("without_plots")
def test_a_training_of_hours_is_shown_in_hours(run: Run, tmp_path: Path) -> None:
    """Report and search use hours; the CSV stays in days."""
    small = ("--model", "gpt-1.3b", "--nodes", "4", "--tokens", "2e10", "--budget", "4")
    kept = ("--runs", str(tmp_path))
    searched = run("optimize", *small, "--study", "s", *kept).out
    found = re.search(r"per iteration, ([0-9.]+ hours) \(([0-9.]+ to [0-9.]+)\)", searched)
    assert found, searched
    said = run("report", "s", *kept).out
    assert f"{found[1]} for 20 billion tokens" in said
    assert f"its 80% interval is {found[2]} hours" in said
    folder = tmp_path / "s" / "report"
    assert all(
        each in (folder / "report.md").read_text()
        for each in ("| Hours |", "Hours: time to train on 20 billion tokens", found[2])
    )
    assert " days" not in said
    assert '<th scope="col">Days' not in (folder / "report.html").read_text()
    (row, *_) = list(csv.DictReader(io.StringIO((folder / "measurements.csv").read_text())))
    assert float(row["days"]) < 1
    assert found[1] in run("export", "s", *kept).out
    assert "| hours | " in (tmp_path / "s" / "production" / "README.md").read_text()
    shown = open_study("s", runs=tmp_path)._repr_markdown_()
    assert "| Hours |" in shown
    assert found[2] in shown


def test_a_study_without_measurements_has_a_report(run: Run, tmp_path: Path) -> None:
    """The report lists the jobs and their outcomes."""
    pinned = (
        "--set",
        "tp=1",
        "--set",
        "pp=1",
        "--set",
        "micro_batch=8",
        "--set",
        "recompute=none",
        "--set",
        "heads=64",
    )
    arguments = ("--allow", "tp-in-node", "--budget", "1", "--study", "none", "--runs", str(tmp_path))
    run("optimize", *pinned, *arguments)
    said = run("report", "none", "--runs", str(tmp_path))
    assert said.code == 0
    drawn = len(list((tmp_path / "none" / "report" / "plots").glob("*.png")))
    assert (
        f"wrote {drawn} plot{'s' * (drawn != 1)} to {tmp_path / 'none/report/plots'}, each as PNG and SVG" in said.out
    )
    assert "No topology was measured." in said.out
    assert "next:" not in said.out


def test_an_unknown_study_is_refused_with_the_existing_ones(run: Run, tmp_path: Path) -> None:
    said = run("report", "nobody", "--runs", str(study_in(tmp_path)))
    assert said.code == 2
    assert ": bloom-48." in said.err


@pytest.mark.usefixtures("without_plots")
def test_an_unwritable_report_is_an_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = run("report", "bloom-48", "--runs", str(study_in(tmp_path)), "-o", str(tmp_path / "file"))
    assert said.code == 2
    assert "cannot be written" in said.err


def test_a_study_is_evaluated_and_calibrated_from_by_name(run: Run, tmp_path: Path) -> None:
    """The rows are those of its CSV."""
    study_in(tmp_path)
    named = run("evaluate", "bloom-48", "--runs", str(tmp_path), "--json")
    (tmp_path / "measurements.csv").write_text(measurements(opened("bloom-48")))
    by_file = run("evaluate", str(tmp_path / "measurements.csv"), "--json")
    assert json.loads(named.out)["summary"] == json.loads(by_file.out)["summary"]
    assert run("calibrate", "bloom-48", "--runs", str(tmp_path), "-o", str(tmp_path / "site.toml")).code == 0


@pytest.mark.usefixtures("without_plots")
def test_the_printed_next_command_finds_the_study(run: Run, tmp_path: Path) -> None:
    """This includes another folder of studies whose name needs quoting."""
    elsewhere = tmp_path / "my $(runs)"
    study_in(elsewhere)
    said = run("report", "bloom-48", "--runs", str(elsewhere))
    command = said.out.splitlines()[-1].removeprefix("next: ")
    assert run(*shlex.split(command)[1:]).code == 0


def test_the_lead_over_the_first_topology_measured_is_a_share_of_its_days() -> None:
    """1 - leader / first."""
    study = opened("replayed")
    candidate = next(trial for trial in study.launched if trial.measured).proposal.candidate
    first = replace(next(ranked for ranked in study.ranking if ranked.candidate == candidate), days=2000.0)
    others = [replace(ranked, days=days) for ranked, days in zip(study.ranking[1:3], (1000.0, 1250.0), strict=True)]
    sentence = _lead(replace(study, ranking=(*others, first)))
    assert "takes 20.0% (250.0 days) less time than the runner-up" in sentence
    assert f"and 50.0% less than {first.key}, the first topology measured" in sentence


def test_a_study_of_trials_at_a_reduced_size_alone_is_reported(tmp_path: Path, run: Run) -> None:
    """As with --trial-nodes: no topology was measured at full size."""
    size = ("--nodes", "8", "--trial-nodes", "2", "--set", "tp=4,8", "--set", "micro_batch=1,2")
    model = ("--model", "llama-3-8b", "--gpu", "A100-80GB-SXM", "--global-batch", "512")
    place = ("--study", "small", "--runs", str(tmp_path))
    assert run("optimize", *model, *size, "--budget", "3", *place).code == 0
    said = run("report", "small", "--runs", str(tmp_path))
    assert said.code == 0, said.err
    assert "The result is extrapolated from trials at a reduced size." in said.out
    assert "less time than the runner-up" in said.out
