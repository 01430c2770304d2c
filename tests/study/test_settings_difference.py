"""The difference between a study's settings and those that another command asks for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tuner
from tuner.core import catalog
from tuner.core.errors import OtherStudy
from tuner.launch.virtual.simulated import SpeedChange
from tuner.study.api import study_settings
from tuner.study.settings import StudySettings
from tuner.study.setup import open_loop
from tuner.study.store.settings_difference import as_options, difference_of
from tuner.tables import read_table


def test_a_command_is_quoted_in_a_difference() -> None:
    difference = difference_of({"command": "python a.py --tp {tp}"}, {"command": "env A=1 python a.py --tp {tp}"})
    assert as_options(difference) == "--command 'python a.py --tp {tp}', not 'env A=1 python a.py --tp {tp}'"


@pytest.mark.parametrize(
    ("begun", "asked", "difference"),
    [
        ("1.05@3", "1.1@20", "--drift 1.05@3, not 1.1@20"),
        ("2@3", None, "--drift 2@3, not none"),
        (None, SpeedChange(factor=1.05, after_jobs=3), "--drift none, not 1.05@3"),
        (SpeedChange(factor=1.5, at_seconds=300.0), "1.5@3", "--drift 1.5 from 300 s on, not 1.5@3"),
        (SpeedChange(factor=2, after_jobs=3), "2.0@3", None),
    ],
)
def test_a_drift_is_named_as_it_is_typed(begun: Any, asked: Any, difference: str | None, tmp_path: Path) -> None:
    given: dict[str, Any] = {"model": "gpt-1.3b", "nodes": 1, "settings": ["tp=1", "recompute=none"], "budget": 1}
    tuner.optimize(**given, study="s", runs=tmp_path, drift=begun)
    if difference is None:
        tuner.optimize(**given, study="s", runs=tmp_path, drift=asked)
        return
    with pytest.raises(OtherStudy) as refused:
        tuner.optimize(**given, study="s", runs=tmp_path, drift=asked)
    assert str(refused.value).startswith(f"study 's' was started with {difference}: repeat")


TABLE = """gpu,nodes,tp,pp,dp,hidden,layers,sec_per_iter,source
A100-80GB-SXM,1,8,1,1,2048,24,0.1,a log
A100-80GB-SXM,1,4,1,2,2048,24,0.12,a log
"""


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (TABLE.replace("2048", "1024"), "the table's workload.model.embedding_size 2048, not 1024"),
        (TABLE.replace("A100", "H100"), "the table's cluster.gpu.name A100-80GB-SXM, not H100-80GB-SXM"),
        (TABLE.replace("0.12", "0.125"), "other rows of the table"),
        (TABLE.replace("a log", "SIMULATED study x"), "simulated false, not true"),
    ],
)
def test_another_table_is_named_by_its_difference(other: str, difference: str, tmp_path: Path) -> None:
    for name, text in (("first", TABLE), ("second", other)):
        (tmp_path / f"{name}.csv").write_text(text)
    tuner.optimize(table=read_table(tmp_path / "first.csv"), budget=1, study="s", runs=tmp_path)
    with pytest.raises(OtherStudy) as refused:
        tuner.optimize(table=read_table(tmp_path / "second.csv"), budget=1, study="s", runs=tmp_path)
    assert str(refused.value).startswith(f"study 's' was started with {difference}: repeat")


def test_tables_of_different_numbers_of_workloads_differ_by_these() -> None:
    parts: list[Any] = [{"workload": {}}]
    assert difference_of({"parts": parts}, {"parts": parts * 3}) == "a table of 1 workload, not 3"


def test_a_boolean_is_not_written_in_python() -> None:
    begun, asked = ({"workload": {"model": {"gated_mlp": gated}}} for gated in (True, False))
    assert difference_of(begun, asked) == "workload.model.gated_mlp true, not false"


def test_another_group_of_a_table_is_named_by_its_option() -> None:
    assert as_options(difference_of({"group": "a"}, {"group": "b"})) == "--group a, not b"


def test_a_study_continues_with_a_preset_that_states_its_positions(tmp_path: Path) -> None:
    """Presets stated none before; learned positions have weights, so that another number of them is another model."""

    def settings(**fields: Any) -> StudySettings:
        model = replace(catalog.model("qwen3-8b"), **fields)
        return study_settings(model=model, nodes=1, gpu="H100-80GB-SXM", budget=1, study="s", runs=tmp_path)

    with open_loop(settings(max_positions=4096)):
        pass
    with open_loop(settings()) as loop:
        assert loop.settings.space.workload.model.max_positions == 40960
    begun, asked = ({"workload": {"model": {"positions": "learned", "max_positions": most}}} for most in (4096, 40960))
    assert difference_of(begun, asked) == "workload.model.max_positions 4096, not 40960"
