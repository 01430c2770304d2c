"""The Python API: examples of docstrings and docs/python.md are run, and results have notebook views."""

from __future__ import annotations

import doctest
import importlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tuner
from tests.conftest import ROOT
from tests.found_studies import opened
from tuner.core.errors import NothingUsable, TunerError
from tuner.core.text import ResultTable
from tuner.study.settings import StudyEvent

MODULES = (
    "tuner.planning.plan",
    "tuner.planning.explain",
    "tuner.study.api",
    "tuner.sizing.api",
    "tuner.audit.measure",
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_docstring_come_out_as_they_stand(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted > 0
    assert found.failed == 0


def test_the_page_about_python_comes_out_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples of docs/python.md give the printed results in a folder with the repository's tables and log."""
    for name in ("corpus", "tests", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    found = doctest.testfile(str(ROOT / "docs/python.md"), module_relative=False)
    assert found.attempted > 15
    assert found.failed == 0


class Balanced(HTMLParser):
    """A parser that fails on wrongly nested elements."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_result_shows_the_same_as_html_and_as_markdown() -> None:
    """The HTML and Markdown views of a plan, an explanation and a study contain all rows, and mark simulations."""
    space = tuner.space_for(model="llama-3-8b", gpu="H100-80GB-SXM", nodes=4, global_batch=512)
    plan = tuner.plan(space, top=3)
    explained = tuner.explain(space, tuner.parse_key("tp8-pp5-mbs1-z1", workload=space.workload, cluster=space.cluster))
    study = opened("bloom-48")
    for result, words in (
        (plan, [row.topology.key for row in plan.top]),
        (explained, [verdict.rule for verdict in explained.violations]),
        (study, [place.key for place in study.ranking] + ["SIMULATED"]),
    ):
        page = Balanced()
        page.feed(result._repr_html_())
        assert page.open == []
        for word in words:
            assert word in page.text
            assert word in result._repr_markdown_()
            assert word in str(result)


def test_what_a_notebook_shows_is_escaped() -> None:
    """Text in notebook views is escaped, because tables and studies may contain any text."""
    shown = ResultTable(
        title="<script>", headers=("a", "b"), words=frozenset("a"), rows=[("<b>|", "1\n2")], notes=("&",)
    )
    assert "<script>" not in shown.html()
    assert "<b>" not in shown.html()
    assert len(shown.markdown().splitlines()) == 7


def test_what_was_not_measured_is_not_exported(tmp_path: Path) -> None:
    with pytest.raises(NothingUsable, match="has not measured tp1"):
        tuner.write_export(opened("bloom-48"), tmp_path, key="tp1-pp1-dp1-mbs1-z0")


def test_what_cannot_be_meant_is_refused_before_anything_is_kept(tmp_path: Path) -> None:
    """Invalid arguments are refused before a study is created."""
    space = tuner.space_for(model="gpt-1.3b", nodes=4)
    runs = tmp_path / "runs"
    with pytest.raises(TunerError, match="--iterations 0-4"):
        tuner.optimize(space, budget=1, runs=runs, iterations="0-4")
    with pytest.raises(TunerError, match="no tracker called 'abacus'"):
        tuner.optimize(space, budget=1, runs=runs, track="abacus")
    with pytest.raises(TunerError, match=r"none\.toml"):
        tuner.optimize(space, budget=1, runs=runs, launcher="slurm", site_profile=tmp_path / "none.toml")
    with pytest.raises(TunerError, match="not both a space and nodes"):
        tuner.optimize(space, budget=1, runs=runs, nodes=2)
    assert not (tmp_path / "runs").exists()
    with pytest.raises(TunerError, match="got -1"):
        tuner.plan(space, top=-1)


def test_iterations_are_a_number_a_range_or_a_tuple(tmp_path: Path) -> None:
    space = tuner.space_for(model="gpt-1.3b", nodes=4, settings=["tp=1", "recompute=none"], exact_nodes=True)
    spellings: tuple[int | str | tuple[int, ...], ...] = (3, "2-3", (2, 3))
    for number, asked in enumerate(spellings):
        study = tuner.optimize(space, budget=1, runs=tmp_path, study=str(number), iterations=asked)
        result = study.launched[0].result
        assert result is not None
        assert result.measurement is not None
        assert result.measurement.iterations[-1] == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("at", ["started", "ended"])
def test_a_call_after_an_exception_in_on_event_continues_the_study(
    error: type[BaseException], at: str, tmp_path: Path
) -> None:
    """As in a notebook, whose process goes on."""
    space = tuner.space_for(model="gpt-1.3b", nodes=4, settings=["tp=1,2,4", "recompute=none"], exact_nodes=True)

    def fail(event: StudyEvent) -> None:
        if event.kind == at:
            raise error

    with pytest.raises(error):
        tuner.optimize(space, budget=4, study="s", runs=tmp_path, on_event=fail)
    assert len(tuner.optimize(space, budget=4, study="s", runs=tmp_path).launched) == 4


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    given: dict[str, Any] = {"model": "gpt-1.3b", "settings": ["tp=1,2", "recompute=none"], "exact_nodes": True}
    space = tuner.space_for(**given, nodes=np.int64(4), seq=np.int32(2048), tokens=np.float64(1e12))
    assert space == tuner.space_for(**given, nodes=4, seq=2048, tokens=1e12)
    assert tuner.optimize(space, budget=np.int64(2), study="n", runs=tmp_path).launched
    with pytest.raises(TunerError, match="either a space or its description, not both a space and nodes"):
        tuner.optimize(space, nodes=0, budget=2, study="m", runs=tmp_path)


@pytest.mark.parametrize(
    ("limit", "sentence"),
    [
        ({"budget": 2.5}, "--budget must be a whole number, not 2.5"),
        ({"budget": "6"}, "--budget must be a whole number, not '6'"),
        ({"budget": None}, "--budget must be a whole number, not None"),
        ({"patience": True}, "--patience must be a whole number, not True"),
        ({"node_hours": "x"}, "--node-hours must be a number, not 'x'"),
    ],
)
def test_limits_of_another_type_are_refused(limit: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(TunerError, match=sentence):
        tuner.optimize(model="gpt-1.3b", nodes=4, study="t", runs=tmp_path, **limit)


def test_results_of_tables_are_shown_without_their_rows() -> None:
    table = tuner.read_table(ROOT / "corpus/bloom-a100.csv")
    for result in (table, tuner.evaluate(table), tuner.calibrate(table)):
        assert len(repr(result)) < 3000
