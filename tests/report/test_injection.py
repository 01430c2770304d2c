"""Text from a job's log is literal text in tables and Markdown: not a formula, HTML or a link."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.export.test_export import example, exported
from tests.found_studies import opened
from tuner.core.outcomes import Failure, Outcome
from tuner.launch.contract import JobResult
from tuner.report.dashboard import trial_note
from tuner.report.tables import measurements, pipe_lines
from tuner.study.leaderboard import rows_of
from tuner.study.result import StudyResult
from tuner.tables import table_of

FORMULAS = ("=HYPERLINK(1)", "+1+1", "-1+1", "@SUM(A1)", "\t=1", " =1")
HTML = "<script>alert(1)</script> ![x](http://host/x) [y](http://host)"


def crashed_with(evidence: str) -> StudyResult:
    """Return a study whose last job crashed with this line in its log."""
    study = opened("replayed")
    result = JobResult(outcome=Outcome.CRASHED, failure=Failure(kind="", evidence=evidence))
    return replace(study, trials=(*study.trials[:-1], replace(study.trials[-1], result=result)), ranking=())


@pytest.mark.parametrize("formula", FORMULAS)
def test_no_cell_of_the_measurements_is_a_formula(formula: str) -> None:
    """Spreadsheets evaluate cells that start with = + - @, also after a tab or space; numbers stay numbers."""
    text = measurements(crashed_with(formula))
    rows = list(csv.DictReader(io.StringIO(text)))
    assert rows[-1]["note"] == f"'{formula}"
    assert rows[0]["sec_per_iter"]
    float(rows[0]["sec_per_iter"])
    assert len(table_of(text, "read again").rows) == len(rows)


def test_a_data_frame_has_no_formula() -> None:
    """`to_csv` and `to_excel` write the cells of the frame unchanged."""
    pytest.importorskip("pandas")
    study = opened("replayed")
    proposal = replace(study.trials[0].proposal, key="=1+1", params={"tp": -1, "shape": "@A1"})
    frame = replace(study, trials=(replace(study.trials[0], proposal=proposal),)).trials_dataframe()
    assert frame["key"][0] == "'=1+1"
    assert frame["params_shape"][0] == "'@A1"
    assert frame["params_tp"][0] == -1


def test_a_row_of_measure_is_no_formula(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source of the row is the name of the log."""
    monkeypatch.chdir(tmp_path)
    Path("=cmd.log").write_text(Path(__file__).parents[2].joinpath("docs/example.log").read_text())
    said = run("measure", "=cmd.log", "tp8-pp12-dp4-mbs1-z1", "--csv")
    assert said.code == 0, said.err
    assert next(csv.DictReader(io.StringIO(said.out)))["source"] == "'=cmd.log"


def test_markdown_has_no_html_or_links_from_a_log() -> None:
    """The table of report.md and the notes of the dashboard show the line literally."""
    study = crashed_with(HTML)
    lines = "\n".join(pipe_lines(study, rows_of(study)))
    assert "&lt;script>" in lines
    assert "[y]" not in lines
    proposal = replace(study.trials[0].proposal, why=HTML)
    note = trial_note(replace(study.trials[-1], proposal=proposal))
    why, evidence = note.split("Evidence: ")
    assert "<script>" not in why
    assert "[y]" not in why
    assert evidence.startswith(f"`{HTML}`")  # code is shown literally


def test_the_readme_of_an_export_shows_the_model_name_literally() -> None:
    """The name comes from a Hugging Face config."""
    made = example("torchrun")
    model = replace(made.workload.model, name=HTML)
    readme = exported(replace(made, workload=replace(made.workload, model=model)), "torchrun")["README.md"]
    assert "<script" not in readme
    assert "&lt;script>" in readme
    assert "&#91;y](" in readme
