"""Studies started by earlier versions of tuner can be continued."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Sequence, Set
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import ROOT, Run
from tuner.core.errors import OtherStudy, StudyError
from tuner.space.build import space_for
from tuner.space.rules import RuleSet
from tuner.study.api import study_settings
from tuner.study.leaderboard import rows_of
from tuner.study.limits import Limits
from tuner.study.result import open_study
from tuner.study.settings import StudySettings
from tuner.study.setup import open_loop


def test_a_study_that_predates_a_policy_continues_without_it(tmp_path: Path) -> None:
    """A study that was started before a policy existed continues without it and keeps its numbering of topologies."""
    space = space_for(settings=["tp=8", "pp=12", "vpp=1", "zero=1", "recompute=full"], exact_nodes=True)
    settings = StudySettings(space=space, limits=Limits(budget=1), study="old", runs=tmp_path)
    with open_loop(settings) as loop:
        before = len(loop.pool)
        stored = loop.store.settings
        del stored["rules"]["policies"]
        loop.store.set_attribute("settings", stored)
    with open_loop(settings) as loop:
        pool = loop.pool
    assert len(pool) == replace(space, rules=RuleSet(allowed=frozenset(["head-size"]))).count() > before


def test_a_study_that_predates_nvlink_domains_continues_if_the_domain_is_the_node(tmp_path: Path) -> None:
    """A study that names the old policy tp-in-node and has no fp4 rate continues; another NVLink domain is refused."""
    pinned = ["tp=8", "pp=4", "vpp=1", "zero=1", "cp=1", "recompute=full"]
    described: dict[str, Any] = {"model": "llama-3-70b", "gpu": "B200", "nodes": 16, "settings": pinned}
    space = space_for(**described, allow=["tp-in-node"])
    settings = StudySettings(space=space, limits=Limits(budget=1), study="old", runs=tmp_path)
    with open_loop(settings) as loop:
        before, stored = len(loop.pool), loop.store.settings
        assert "nvlink_domain" not in stored["cluster"]
        stored["rules"] = json.loads(json.dumps(stored["rules"]).replace("tp-in-nvlink-domain", "tp-in-node"))
        del stored["cluster"]["gpu"]["peak_flops"]["fp4"]
        loop.store.set_attribute("settings", stored)
    with open_loop(settings) as loop:
        assert len(loop.pool) == before
    wider = space_for(**described, allow=["tp-in-node"], nvlink_domain=16)
    with (
        pytest.raises(StudyError, match=r"was started with --nvlink-domain none, not 16"),
        open_loop(replace(settings, space=wider)),
    ):
        pass


def test_a_study_of_other_laws_knows_its_topologies_by_their_names(tmp_path: Path) -> None:
    """If a version has other legal topologies, trials refer to the same ones as before, or to none that is proposed."""
    space = space_for(settings=["tp=8", "pp=12", "vpp=1", "zero=1", "recompute=full"], exact_nodes=True)
    settings = StudySettings(space=space, limits=Limits(budget=3), study="old", runs=tmp_path)
    with open_loop(settings) as loop:
        loop.run()
        tried = sorted(trial.proposal.candidate for trial in loop.state.trials)
        keys = {number: loop.pool.topology(number).key for number in tried}
    points = np.concatenate(list(space.blocks()))
    forbidden = tried[0]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(space), "blocks", lambda *_: iter([np.delete(points, forbidden)]))
        with open_loop(replace(settings, limits=Limits(budget=5))) as loop:
            loop.read()
            known = [trial.proposal for trial in loop.state.trials]
            assert {one.key for one in known if one.candidate < 0} == {keys.pop(forbidden)}
            found = {loop.pool.topology(one.candidate).key: one.key for one in known if one.candidate >= 0}
            assert found == {key: key for key in keys.values()}
            loop.run()
            assert [trial.launched for trial in loop.state.trials] == [True] * 5


STORED = ROOT / "tests" / "data" / "studies" / "half"
"""A study of an earlier version as an SQL dump, and the report of that version."""


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A folder with the stored study of 6 jobs, which predates the policy `head-size` and uses earlier field names."""
    shutil.copytree(STORED / "jobs", tmp_path / "half" / "jobs")
    with closing(sqlite3.connect(tmp_path / "half" / "study.db")) as database:
        database.executescript((STORED / "study.sql").read_text())
    return tmp_path


BELIEVED = {"sec_per_iter", "days", "days_low", "days_high", "tflops"}
"""Figures of a topology that depend on the surrogate, and therefore on the version of the search."""


def agree(
    found: Sequence[dict[str, Any]], expected: Sequence[dict[str, Any]], *, believed: Set[str] = frozenset()
) -> None:
    """Check every field of every expected row; numbers agree to 1e-9, believed ones to a tenth of the interval."""
    assert len(found) == len(expected)
    for row, wanted in zip(found, expected, strict=True):
        for name, value in wanted.items():
            close = 0.1 * (wanted["days_high"] - wanted["days_low"]) / wanted["days"] if name in believed else 1e-9
            same = pytest.approx(value, rel=close) if isinstance(value, float) else value
            assert row[name] == same, (name, wanted)


def test_an_earlier_study_is_reported_as_by_its_own_version(earlier: Path) -> None:
    """An earlier study has the trials, outcomes and memory of its own report, and its times to a tenth of its interval.

    The search has changed since, so its estimates of repeated and similar topologies differ a little.
    """
    expected = json.loads((STORED / "expected.json").read_text())["report"]
    found = [
        {
            "key": row.key,
            "outcome": row.outcome,
            "sec_per_iter": row.ranked.seconds if row.ranked else None,
            "days": row.ranked.days if row.ranked else None,
            "days_low": row.ranked.low if row.ranked else None,
            "days_high": row.ranked.high if row.ranked else None,
            "memory_gib": row.memory / 2**30 if row.memory else None,
            "tflops": row.flops / 1e12 if row.flops else None,
            "trials": list(row.trials),
        }
        for row in rows_of(open_study("half", runs=earlier))
    ]
    by_key = {row["key"]: row for row in found}
    agree([by_key[row["key"]] for row in expected], expected, believed=BELIEVED)
    assert len(by_key) == len(found) == len(expected)


def test_an_earlier_study_continues_with_the_current_search(earlier: Path, run: Run) -> None:
    """With a larger budget, an earlier study keeps its six trials and adds new ones.

    The new trials follow the current search and simulated cluster; the winner is at most 1% slower than the best of
    the six.
    """
    stored = json.loads((STORED / "expected.json").read_text())
    expected = stored["continued"]
    words = ("--nodes", "48", "--seed", "5", "--budget", "12", "--study", "half", "--runs", str(earlier), "--json")
    found = json.loads(run("optimize", *words).out)
    agree(found["trials"][:6], expected["trials"][:6])
    assert 6 < len(found["trials"]) <= len(expected["trials"]) == 12
    assert found["standings"][0]["days"] <= min(row["days"] for row in stored["report"]) * 1.01


MEGATRON = (
    "--num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 128 --max-position-embeddings 128 "
    "--global-batch-size 16 --micro-batch-size 1 --bf16 --vocab-size 1024"
)


def test_a_workload_that_the_command_no_longer_describes_is_refused_with_its_origin(tmp_path: Path) -> None:
    """If the files of a command describe another model, the refusal names the file's role and what keeps the runs.

    A difference that is no part of the workload is refused as for any other study.
    """
    arguments = tmp_path / "args.txt"

    def opened(model: str, seed: int = 0) -> None:
        arguments.write_text(model)
        found = study_settings(
            launcher="local",
            command=f"train @{arguments}",
            seed=seed,
            gpus_per_node=2,
            trainer="megatron-lm",
            study="old",
            runs=tmp_path,
        )
        with open_loop(found):
            pass

    opened(MEGATRON)
    with pytest.raises(OtherStudy, match=r"workload\.model\.layers 4, not 8; --trainer megatron-lm .* --from old"):
        opened(MEGATRON.replace("layers 4", "layers 8"))
    with pytest.raises(OtherStudy, match="seed 0, not 1: repeat the original arguments"):
        opened(MEGATRON, seed=1)
    opened(MEGATRON)


def test_a_study_of_other_axes_names_the_setting_that_continues_it(tmp_path: Path) -> None:
    def opened(*settings: str) -> None:
        described: dict[str, Any] = {"model": "gpt-1.3b", "nodes": 1, "settings": ["tp=1,2", *settings]}
        with open_loop(study_settings(**described, launcher="simulated", study="old", runs=tmp_path)):
            pass

    opened("recompute=none,selective")
    with pytest.raises(OtherStudy, match="continue it with --set recompute=none,selective, or choose"):
        opened()
    opened("recompute=none,selective")


def test_a_model_that_is_read_differently_names_both_causes(tmp_path: Path) -> None:
    """The file has changed, or this version of tuner reads more of it than the one that started the study."""

    def opened(**keys: Any) -> None:
        config = {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, **keys}
        file = tmp_path / "m.json"
        file.write_text(json.dumps({**config, "vocab_size": 1024, "intermediate_size": 512}))
        with open_loop(study_settings(model=str(file), nodes=1, launcher="simulated", study="old", runs=tmp_path)):
            pass

    opened()
    with pytest.raises(OtherStudy, match=r"not_understood .* If they are the same, this version .* --from old"):
        opened(novel_attention=True)
    opened()
