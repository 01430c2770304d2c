"""The page of a report, the columns of its table of jobs, and its words for outcomes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.report.test_report_arithmetic import LEADER, study, trial
from tuner.report import tables, write
from tuner.report.tables import HEADERS, _line
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


def test_a_tables_optional_columns_are_those_that_a_job_has(monkeypatch: pytest.MonkeyPatch) -> None:
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
        ("OOM", True, None, "oom"),
    ],
)
def test_an_outcome_is_a_word(outcome: str, simulated: bool, extrapolated: bool | None, word: str) -> None:
    ranked = None if extrapolated is None else replace(LEADER, extrapolated=extrapolated, runs=1)
    model = SimpleNamespace(parameters=1e9)
    row: Any = SimpleNamespace(
        topology=SimpleNamespace(nodes=2, dp=3, tp=4, pp=5, micro_batch=6),
        workload=SimpleNamespace(model=model, global_batch=7),
        ranked=ranked,
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
