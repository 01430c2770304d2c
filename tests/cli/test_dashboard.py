"""`tuner dashboard` until Ctrl-C."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import Run
from tests.found_studies import study_in


def test_ctrl_c_is_a_successful_end(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line that the command prints proposes it."""

    def interrupted() -> int:
        raise KeyboardInterrupt

    @contextmanager
    def server(*_: Any, **__: Any) -> Iterator[Any]:
        yield SimpleNamespace(study_page=lambda study_id: f"http://127.0.0.1/{study_id}", wait=interrupted)

    monkeypatch.setattr("tuner.launch.dashboard_server.dashboard", server)
    monkeypatch.setattr("tuner.report.dashboard.annotate", lambda *_: 1)
    said = run("dashboard", "bloom-48", "--runs", str(study_in(tmp_path)), "--no-browser")
    assert (said.code, said.out, said.err) == (0, "bloom-48: http://127.0.0.1/1 (stop with Ctrl-C)\n", "")
