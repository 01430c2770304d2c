"""The page of a report, the columns of its table of jobs, and its names of outcomes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.report.test_report_arithmetic import LEADER, study, trial
from tests.study.test_sizes_arithmetic import SMALL, ended
from tuner.core.outcomes import Failure, Measurement, Outcome
from tuner.report import dashboard, tables, write
from tuner.report.style import COLOURS
from tuner.report.tables import HEADERS, _line
from tuner.study.store.trial import Proposal, Trial
from tuner.study.store.trial_store import TrialStore
from tuner.tables import OPTIONAL_COLUMNS


@pytest.mark.parametrize(("count", "shown", "omitted"), [(250, 250, 0), (251, 250, 1), (253, 250, 3)])
def test_a_page_has_the_first_250_rows(count: int, shown: int, omitted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def render(**fields: Any) -> str:
        given.update(fields)
        return "page"

    template = SimpleNamespace(render=render)
    monkeypatch.setattr(write, "Environment", lambda **_: SimpleNamespace(get_template=lambda _: template))
    monkeypatch.setattr(write, "headers", lambda _: ["Topology", "Notes", "Outcome", "Sec/it"])
    monkeypatch.setattr(write, "table", lambda _study, rows: list(rows))
    monkeypatch.setattr(write, "footnote", lambda *_: "foot")
    assert write._page(study(), list(range(count)), ["s"], []) == "page"  # type: ignore[arg-type]
    assert (len(given["lines"]), given["rows_omitted"]) == (shown, omitted)
    assert [(column["text"], column["style"]) for column in given["columns"]] == [
        (True, "word key"),
        (True, "word long"),
        (True, "word"),
        (False, "number"),
    ]


def test_optional_columns_are_those_that_some_job_has(monkeypatch: pytest.MonkeyPatch) -> None:
    optional = OPTIONAL_COLUMNS
    jobs = iter([{optional[0]: "1"}, {optional[2]: "2"}])
    written: list[Any] = []
    monkeypatch.setattr(tables, "_cells", lambda _study, _trial: next(jobs))
    monkeypatch.setattr(tables, "write_csv", lambda names, rows: written.append((names, rows)))
    running = replace(trial(1.0), result=None)
    tables.measurements(study(launched=[trial(1.0), running, trial(2.0)]))
    ((names, rows),) = written
    assert len(rows) == 2
    assert [name for name in names if name in optional] == [optional[0], optional[2]]


@pytest.mark.parametrize(
    ("outcome", "simulated", "extrapolated", "word"),
    [
        ("TIMED_OUT", False, None, "timed out"),
        ("MEASURED", False, False, "measured"),
        ("MEASURED", True, False, "simulated"),
        ("EXTRAPOLATED", True, True, "extrapolated"),
        ("OOM", True, None, "OOM"),
    ],
)
def test_an_outcome_has_a_word(outcome: str, simulated: bool, extrapolated: bool | None, word: str) -> None:
    ranked = None if extrapolated is None else replace(LEADER, extrapolated=extrapolated, runs=1)
    model = SimpleNamespace(parameters=1e9)
    row: Any = SimpleNamespace(
        topology=SimpleNamespace(nodes=2, dp=3, tp=4, pp=5, micro_batch=6),
        workload=SimpleNamespace(model=model, global_batch=7),
        ranked=ranked,
        extrapolated=ranked if extrapolated else None,
        outcome=outcome,
        memory=None,
        flops=None,
        notes="n",
        era="era 1",
        key="t0",
        why="w",
        ended="",
    )
    cells = dict(zip(HEADERS, _line(study(simulated=simulated), row, 1.0), strict=True))
    assert (cells["Outcome"], cells["Notes"], cells["Mem"], cells["TFLOPs"], cells["Why"]) == (word, "n", "", "", "w")


COST = "Cost: 1.25 node-hours.\n"


@pytest.mark.parametrize(
    ("given", "paragraphs"),
    [
        ({}, ["Measured: 10.00 s per iteration; training takes 2.5 days."]),
        (
            {"simulated": True, "measurement": Measurement(seconds=4.0, peak_memory=3 * 2.0**30, note="a_b")},
            ["SIMULATED: 4.00 s per iteration (a_b), 3.0 GiB; training takes 2.5 days."],
        ),
        (
            {"fidelity": SMALL, "forecast": 12.0},
            [
                f"Runs at a reduced size: {SMALL}.",
                "Measured at the reduced size: 10.00 s per iteration. Extrapolated to the full size, not measured: "
                "12.00 s.",
            ],
        ),
        (
            {
                "outcome": Outcome.OOM,
                "failure": Failure(kind="OOM", evidence="a `b`\nc", meaning="too large"),
                "retried": "r",
            },
            ["Outcome: OOM. too large", "Retried: r.", "Evidence: `a 'b' c`"],
        ),
        (
            {"outcome": Outcome.PRUNED, "simulated": True, "failure": Failure.because("late"), "forecast": 9.0},
            ["SIMULATED: PRUNED. late"],
        ),
    ],
)
def test_the_note_of_a_trial_explains_its_result(given: dict[str, Any], paragraphs: list[str]) -> None:
    one = ended(**{"node_hours": 1.25, "objective": 2.5, **given})
    one = replace(one, proposal=replace(one.proposal, kind="final", why="a <b>"))
    assert dashboard.trial_note(one) == "\n\n".join(["**t0** (final): a &lt;b>", *paragraphs, COST])


def test_the_note_of_a_running_trial_has_its_estimate() -> None:
    proposal = Proposal(
        key="t0",
        params={},
        topology={},
        why="w",
        estimate_sec=5.0,
        estimate_low=4.0,
        estimate_high=7.0,
        out_of_memory=0.25,
    )
    note = dashboard.trial_note(Trial(number=0, proposal=proposal))
    estimate = "Estimate: 5.00 s per iteration (80% interval 4.00 to 7.00), 25% likely to run out of memory."
    assert note == f"**t0** (search): w\n\n{estimate}\n\nRunning.\n"
    lacks: list[dict[str, Any]] = [{"estimate_sec": None}, {"estimate_low": None}, {"estimate_high": None}]
    for lacking in lacks:
        note = dashboard.trial_note(Trial(number=0, proposal=replace(proposal, **lacking)))
        assert note == "**t0** (search): w\n\nRunning.\n"


@pytest.mark.parametrize(
    ("index", "colour", "shape"), [(0, 0, None), (7, 7, None), (8, 0, "/"), (17, 1, "x"), (24, 0, "."), (32, 0, "/")]
)
def test_colours_repeat_with_patterns(index: int, colour: int, shape: str | None) -> None:
    pattern = {"pattern": {"shape": shape}} if shape else {}
    assert dashboard._marker(index) == {"color": COLOURS[colour], **pattern}


@pytest.mark.parametrize("best", [True, False])
def test_a_study_is_annotated_with_its_trials_and_figures(
    best: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link names the leader's runs, a trial has the files of its job's folder, and the storage is closed."""
    calls: list[Any] = []
    publisher = SimpleNamespace(
        study_id=7,
        name_objective=lambda name: calls.append(name),
        note=lambda *given: calls.append(given),
        files=lambda number, paths, store: calls.append((number, [str(path) for path in paths], store)),
        graph=lambda *given: calls.append(given),
    )
    trials = SimpleNamespace(close=lambda: calls.append("closed"))

    def existing(*given: str) -> Any:
        calls.append(given)
        return trials

    monkeypatch.setattr(TrialStore, "existing", existing)
    monkeypatch.setattr(dashboard, "DashboardPublisher", lambda given: publisher if given is trials else None)
    monkeypatch.setattr(dashboard, "rows_of", lambda _: ["row"])
    monkeypatch.setattr(dashboard, "study_note", lambda _study, rows: f"note of {rows}")
    monkeypatch.setattr(dashboard, "trial_note", lambda trial: f"note of {trial.number}")
    monkeypatch.setattr(dashboard, "graphs", lambda _study, rows: {"figure": rows})
    made: Any = SimpleNamespace(
        url="url",
        name="s",
        best=LEADER if best else None,
        trials=[ended(number=12, candidate=3)],
        folder=tmp_path,
    )
    assert dashboard.annotate(made, Path("store")) == 7
    link = "\nLeader: [t0](/dashboard/studies/7/trials?numbers=3,5)\n" if best else ""
    files = [str(tmp_path / "jobs/0012-t3" / name) for name in dashboard.FILES]
    assert calls == [
        ("url", "s"),
        dashboard.OBJECTIVE,
        (f"note of ['row']{link}",),
        ("note of 12", 12),
        (12, files, Path("store")),
        ("figure", ["row"]),
        "closed",
    ]


def test_the_note_of_a_study_is_its_summary_and_its_first_ten_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "summary", lambda *given: ["a <b>.", f"{len(given[1])} rows."])
    monkeypatch.setattr(dashboard, "pipe_lines", lambda _study, rows: [f"| {row} |" for row in rows])
    monkeypatch.setattr(dashboard, "footnote", lambda _study, rows: f"{len(rows)} in all")
    rows: Any = list(range(12))
    note = dashboard.study_note(study(), rows)
    assert note == "\n".join(
        ["a &lt;b>.", "", "12 rows.", "", *(f"| {row} |" for row in range(10)), "", "12 in all", ""]
    )


def test_only_the_progress_is_drawn_without_a_measured_topology(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_progress", "_estimates", "_terms", "_memory"):
        monkeypatch.setattr(dashboard, name, lambda *given, name=name: (name, *given[1:]))
    row, failed = (SimpleNamespace(ranked=ranked) for ranked in (LEADER, None))
    some: Any = [row, failed]
    figures: Any = dashboard.graphs(study(), some)
    assert figures == {
        "best-so-far": ("_progress",),
        "estimate-against-measurement": ("_estimates",),
        "where-the-time-goes": ("_terms", some),
        "memory-by-stage": ("_memory", row),
    }
    for none in ([], [failed]):
        rows: Any = none
        figures = dashboard.graphs(study(), rows)
        assert figures == {"best-so-far": ("_progress",)}
