"""A small study with a scripted launcher."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.study.scripted import Scripted
from tuner.space.build import space_for
from tuner.study.limits import Limits
from tuner.study.loop import StudyLoop
from tuner.study.settings import StudyEvent, StudySettings
from tuner.study.setup import open_loop

SMALL = ("nodes=2,4", "tp=1,4", "zero=1", "recompute=none", "cp=1", "micro_batch=1,2")


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """A function that opens a small study with a scripted launcher and returns its loop, launcher and events."""
    opened: list[Any] = []

    def open_study(limits: Limits | None = None, **settings: Any) -> tuple[StudyLoop, Scripted, list[StudyEvent]]:
        space = space_for(model="gpt-1.3b", nodes=4, settings=SMALL)
        events: list[StudyEvent] = []
        given = StudySettings(space=space, limits=limits or Limits(budget=9), runs=tmp_path, **settings)
        context = open_loop(replace(given, on_event=events.append))
        made = context.__enter__()
        opened.append(context)
        launcher = Scripted()
        made.launcher = launcher  # type: ignore[assignment]
        return made, launcher, events

    yield open_study
    for context in opened:
        context.__exit__(None, None, None)
