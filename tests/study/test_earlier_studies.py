"""Studies that earlier versions of tuner started continue as they were."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tuner.space.build import space_for
from tuner.space.rules import RuleSet
from tuner.study.limits import Limits
from tuner.study.settings import StudySettings
from tuner.study.setup import open_loop


def test_a_study_begun_before_a_policy_goes_on_without_it(tmp_path: Path) -> None:
    """Its topologies are numbered as they were, and its settings do not differ from the same command's of today."""
    space = space_for(settings=["tp=8", "pp=12", "vpp=1", "zero=1", "recompute=full"], exact_nodes=True)
    settings = StudySettings(space=space, limits=Limits(budget=1), study="old", runs=tmp_path)
    with open_loop(settings, lambda _event: None) as loop:
        before = len(loop.pool)
        stored = loop.store.settings
        del stored["rules"]["policies"]
        loop.store.set_attribute("settings", stored)
    with open_loop(settings, lambda _event: None) as loop:
        pool = loop.pool
    assert len(pool) == replace(space, rules=RuleSet(allowed=frozenset(["head-size"]))).count() > before
