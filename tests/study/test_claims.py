"""Each proposal becomes one trial, even if a process dies or the database stores a claim twice."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.distributions import CategoricalDistribution

from tests.conftest import Run
from tests.found_studies import settings, study_in
from tests.studies import assert_lawful, kept, url_of
from tuner.core.errors import StudyError
from tuner.core.interrupts import remember_interrupts
from tuner.core.outcomes import Outcome
from tuner.study.setup import open_loop
from tuner.study.store.owner import this_worker
from tuner.study.store.trial import Proposal, Trial
from tuner.study.store.trial_store import TrialStore

NAME = "bloom-48"


class DiedError(Exception):
    """Stands for the death of the process."""


def second_claim(store: TrialStore) -> Trial:
    """Return a second trial of a proposal, left by a process that died before it could withdraw it."""
    proposal = replace(store.trials()[0].proposal, params={}, tag="second", worker={**this_worker(), "born": 1})

    def die(_store: TrialStore, _trial: Trial) -> bool:
        raise DiedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrialStore, "withdraw_second", die)
        with pytest.raises(DiedError):
            store.claim(proposal, {})
    return store.trials()[-1]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TrialStore]:
    """The store of a study of twelve jobs."""
    study_in(tmp_path / "runs")
    opened = TrialStore.existing(url_of(tmp_path, NAME), NAME)
    yield opened
    opened.close()


@pytest.mark.parametrize("by", ["stop", "optimize"])
def test_the_second_claim_of_a_dead_process_is_withdrawn(
    by: str, store: TrialStore, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = second_claim(store)
    budget = sum(trial.launched for trial in store.trials())
    store.close()
    assert left.result is None
    if by == "stop":
        assert run("stop", NAME, "--runs", str(tmp_path / "runs")).code == 0
    else:
        monkeypatch.chdir(tmp_path)
        with open_loop(replace(settings()[NAME], study=NAME)) as loop:
            loop.reconcile()
    trials = kept(url_of(tmp_path, NAME), NAME)
    assert_lawful(trials, budget=budget - 1)
    result = trials[left.number].result
    assert result is not None
    assert result.outcome is Outcome.REJECTED
    assert "another process" in result.reason


def test_a_claim_stored_twice_is_one_trial(store: TrialStore) -> None:
    """A claim that was committed without a reply is made again, and still is one trial."""
    proposal, before = _new(store), sum(trial.launched for trial in store.trials())
    first = store.claim(proposal, {})
    assert first is not None
    assert store.claim(proposal, {}) == first
    assert sum(trial.launched for trial in store.trials()) == before + 1


def test_a_claim_stored_twice_that_came_second_is_withdrawn_whole(store: TrialStore) -> None:
    proposal = _new(store)
    assert store.claim(replace(proposal, tag="theirs"), {}) is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrialStore, "withdraw_second", lambda _store, _trial: False)
        assert store.claim(proposal, {}) is not None
    assert store.claim(proposal, {}) is None
    running = [trial.proposal.tag for trial in store.trials() if trial.result is None]
    assert running == ["theirs"]


def _new(store: TrialStore) -> Proposal:
    """Return a proposal that the study does not have yet."""
    return replace(store.trials()[0].proposal, params={}, repeat=9, tag="mine", worker=this_worker())


def test_ctrl_c_during_a_claim_waits_for_its_decision(store: TrialStore) -> None:
    """Ctrl-C during a claim takes effect only after the claim is accepted or withdrawn."""
    create = store.storage.create_new_trial

    def interrupted(*given: Any) -> int:
        made = create(*given)
        signal.raise_signal(signal.SIGINT)
        return made

    proposal = replace(store.trials()[0].proposal, params={}, tag="second", worker=this_worker())
    with pytest.MonkeyPatch.context() as patch, remember_interrupts():
        patch.setattr(store.storage, "create_new_trial", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.claim(proposal, {})
    assert all(trial.result is not None for trial in store.trials())


def test_an_axis_with_other_values_than_at_the_start_is_refused_with_a_remedy(store: TrialStore) -> None:
    """A version of tuner may search topologies that the one that started the study did not."""
    proposal = replace(_new(store), params={"x": 1})
    assert store.claim(proposal, {"x": CategoricalDistribution((1, 2))})
    with pytest.raises(StudyError, match=r"was started by a version of tuner that searches other .* --from "):
        store.claim(replace(proposal, tag="other", repeat=10), {"x": CategoricalDistribution((1, 2, 4))})
