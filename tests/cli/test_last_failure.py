"""The failure that the result of a search without a measurement repeats in full."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tuner.cli.optimize_output import _last_failure
from tuner.core.outcomes import Outcome

EVIDENCE = "x" * 200
"""Longer than what is printed while the search runs."""


def job(number: int, outcome: Outcome | None) -> Any:
    result = SimpleNamespace(outcome=outcome, reason="no module", explanation=f"no module: {EVIDENCE}{number}.")
    return SimpleNamespace(number=number, result=result if outcome else None)


@pytest.mark.parametrize("ended", ["the budget of 3 jobs is used up", None])
def test_the_last_failure_is_repeated_in_full(ended: str | None) -> None:
    jobs = [job(0, Outcome.CRASHED), job(1, Outcome.HUNG), job(2, Outcome.CANCELLED), job(3, None)]
    found: Any = SimpleNamespace(launched=jobs, ended=ended)
    assert _last_failure(found) == f" Trial 1, HUNG: no module: {EVIDENCE}1."


def test_nothing_is_repeated_without_a_failure_or_if_the_search_ended_for_it() -> None:
    ended: Any = SimpleNamespace(launched=[job(0, Outcome.CRASHED)], ended="the last 3 jobs failed: no module")
    cancelled: Any = SimpleNamespace(launched=[job(0, Outcome.OOM), job(1, Outcome.CANCELLED)], ended=None)
    assert _last_failure(ended) == _last_failure(cancelled) == ""
