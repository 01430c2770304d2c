"""The scheduler: the next job, jobs to stop, and the end of a study."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import shown
from tests.study.test_drift import small_space
from tuner.core.outcomes import Outcome
from tuner.costmodel.normal import below, density
from tuner.launch.contract import JobResult, JobState, JobStatus
from tuner.launch.virtual.ground_truth import GroundTruth
from tuner.search.acquisition import choose
from tuner.search.candidates import CandidatePool
from tuner.search.constants import FIRST_EVALUATED, OOM_COST
from tuner.search.observations import Observation, Trust
from tuner.search.samplers import SAMPLERS
from tuner.search.surrogate import Surrogate
from tuner.space.build import space_for
from tuner.study.limits import CPU_TRUST, Limits
from tuner.study.result import StudyResult
from tuner.study.settings import StudySettings
from tuner.study.setup import open_loop
from tuner.study.store.trial import Proposal, Trial, next_repeat
from tuner.study.watchdog import MAX_STALLED_ITERATIONS, MAX_START_RATIO, Watchdog, verdict

ANY_SITE = ("dp-multiple-of-4", "batch-multiple-of-32")
LARGE = CandidatePool.of_space(space_for(model="gpt-1.3b", nodes=4))


def test_on_an_unfamiliar_machine_every_promising_split_runs_once_first() -> None:
    """With CPU_TRUST the first jobs all have different splits; with the usual trust they have the best acquisition."""
    pool = CandidatePool.of_space(space_for(model="tiny", nodes=1, gpus_per_node=4, global_batch=16, allow=ANY_SITE))
    found = {}
    for trust in (Trust(), CPU_TRUST):
        belief, tried = Surrogate(pool, trust=trust), list[int]()
        seconds = np.exp(belief.time.log_seconds())
        for _ in range(5):
            best = min((math.log(seconds[each]) + pool.work[each] for each in tried), default=None)
            choice = choose(belief, best=best, open_to=~np.isin(np.arange(len(pool)), tried))
            assert choice is not None
            tried.append(choice.candidate)
            belief.learn([Observation(candidate=choice.candidate, seconds=float(seconds[choice.candidate]), fits=True)])
        found[trust] = len({int(pool.splits[each]) for each in tried})
    assert found[CPU_TRUST] == 5 > found[Trust()]


@given(shown(len(LARGE)), st.floats(-0.2, 0.1), st.integers(0, 2**31))
@settings(max_examples=6)
def test_the_choice_is_the_best_of_all_candidates(
    jobs: list[tuple[int, float | None]], ahead: float, seed: int
) -> None:
    """Evaluating only the most promising candidates gives the same choice as evaluating all of them."""
    assert len(LARGE) > FIRST_EVALUATED
    belief = Surrogate(LARGE)
    expected = belief.time.log_seconds()
    belief.learn(
        [
            Observation(candidate=place, fits=False)
            if off is None
            else Observation(candidate=place, seconds=math.exp(expected[place] + off), fits=True)
            for place, off in jobs
        ]
    )
    open_to = np.random.default_rng(seed).random(len(LARGE)) < 0.9
    mean, risk = belief.time.log_seconds() + LARGE.work, belief.memory.out_of_memory()
    best = float(mean.min()) + ahead
    deviation = belief.time.deviation(np.arange(len(LARGE)))
    z = (best - mean) / deviation
    worth = deviation * (z * below(z) + density(z)) * (1 - risk) - OOM_COST * risk
    worth[~open_to | (risk >= 1)] = -np.inf
    choice = choose(belief, best=best, open_to=open_to)
    assert choice is not None
    assert worth[choice.candidate] == pytest.approx(worth.max(), rel=1e-4)
    assert open_to[choice.candidate]


def searched(folder: Path, limits: Limits, seed: int = 2, sampler: str = "guided") -> StudyResult:
    """Run a study of a thousand topologies to its end."""
    settings = StudySettings(space=small_space(), limits=limits, seed=seed, runs=folder, sampler=sampler)
    with open_loop(settings) as loop:
        loop.run()
        return loop.result()


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    """A study that is shared by several tests."""
    return searched(tmp_path_factory.mktemp("study"), Limits(budget=40))


def _of(found: StudyResult, kind: str) -> list[Trial]:
    return [trial for trial in found.trials if trial.launched and trial.proposal.kind == kind]


def test_the_leader_and_its_rivals_are_repeated(study: StudyResult) -> None:
    """Search and final round repeat leaders only, the final round within its share of the budget."""
    found = study
    final = _of(found, "final")
    repeats = final + [trial for trial in _of(found, "search") if trial.proposal.repeat]
    assert repeats
    assert len(final) <= Limits(budget=40).final
    for trial in repeats:
        assert trial.proposal.repeat > 0
        assert any(each.measured and each.number < trial.number for each in _runs(found, trial))
    ahead = {place.candidate for place in found.ranking[:5]}
    assert {trial.proposal.candidate for trial in repeats} <= ahead


def _runs(found: StudyResult, trial: Trial) -> list[Trial]:
    return [each for each in found.trials if each.proposal.candidate == trial.proposal.candidate]


def test_reference_runs_keep_their_interval(study: StudyResult) -> None:
    """Reference runs are never further apart than the reference interval."""
    found = study
    stretch = Limits(budget=40).reference_interval
    references = [trial.number for trial in _of(found, "reference")]
    last = max(trial.number for trial in _of(found, "search"))
    marks = [0, *references, last]
    assert references
    assert all(after - before <= stretch + 1 for before, after in pairwise(marks))


def test_a_pruned_job_was_really_slower(study: StudyResult) -> None:
    """By the cluster's truth, every pruned job was slower than the winner."""
    found, pool = study, study.pool
    truth = GroundTruth(2)
    seconds = np.concatenate([truth.seconds(part) for part in pool.parts]) * np.exp(pool.work)
    pruned = [trial for trial in found.trials if trial.result and trial.result.outcome is Outcome.PRUNED]
    assert pruned
    assert found.best is not None
    for trial in pruned:
        assert seconds[trial.proposal.candidate] > seconds[found.best.candidate]


def test_a_search_ends_without_an_expected_saving(study: StudyResult) -> None:
    """A search ends within its budget because no job is expected to pay off."""
    found = study
    assert any(
        why in found.ended for why in ("no job is expected to shorten", "final round", "statistically separated")
    )
    assert len(found.launched) <= 40


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (Limits(budget=40, patience=2), "no improvement in 2 consecutive jobs"),
        (Limits(budget=40, node_hours=0.5), "node-hours are used"),
        (Limits(budget=40, deadline=600.0), "the deadline of 10.0 minutes has passed"),
        (Limits(budget=5), "the budget of 5 jobs is used up"),
    ],
)
def test_each_limit_ends_a_study_with_its_reason(limits: Limits, why: str, tmp_path: Path) -> None:
    """Each limit ends a study with its reason; the same command again launches nothing and ends the same way."""
    found = searched(tmp_path, limits)
    assert why in found.ended
    assert len(found.launched) < 40
    again = searched(tmp_path, limits)
    assert (len(again.launched), again.ended) == (len(found.launched), found.ended)
    if limits.node_hours:
        assert sum(trial.result.node_hours for trial in found.trials[:-1] if trial.result) < limits.node_hours


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_space_of_one_topology_is_measured(sampler: str, tmp_path: Path) -> None:
    one = ("nodes=4", "tp=1", "pp=1", "zero=1", "recompute=none", "micro_batch=1", "cp=1", "vpp=1")
    space = space_for(model="gpt-1.3b", nodes=4, settings=one)
    settings = StudySettings(space=space, limits=Limits(budget=1), runs=tmp_path, sampler=sampler)
    with open_loop(settings) as loop:
        assert len(loop.pool) == 1
        loop.run()
        found = loop.result()
    assert (len(found.launched), found.ended) == (1, "the budget of 1 job is used up")


def test_a_short_training_justifies_few_jobs(tmp_path: Path) -> None:
    """With --stop-when-unprofitable, a study ends once the next job costs more node-hours than it would save."""
    found = searched(tmp_path, Limits(budget=40, stop_when_unprofitable=True), seed=7)
    longest = searched(tmp_path / "without", Limits(budget=40), seed=7)
    assert len(found.launched) <= len(longest.launched)
    words = r"the best remaining trial, \S+, (is expected to save .* node-hours and costs|by 0\.)"
    assert re.search(words, found.ended)


def test_repeating_the_command_of_a_finished_study_launches_nothing(tmp_path: Path) -> None:
    """Repeating the command of a finished study launches no job and gives the same ranking."""
    first = searched(tmp_path, Limits(budget=40), seed=4)
    again = searched(tmp_path, Limits(budget=40), seed=4)
    assert len(again.launched) == len(first.launched)
    named = [[(place.key, place.trials) for place in found.ranking] for found in (first, again)]
    assert named[0] == named[1]
    # learning all trials at once or one by one differs in the last digits
    assert [place.days for place in again.ranking] == pytest.approx([place.days for place in first.ranking])


def test_a_larger_budget_has_final_repeats_of_its_own(tmp_path: Path) -> None:
    """A study that used its two final repeats and finds another leader with a larger budget repeats that one too."""
    first = searched(tmp_path, Limits(budget=8), seed=4, sampler="random")
    assert len(_of(first, "final")) == Limits(budget=8).final == Limits(budget=16).final
    more = searched(tmp_path, Limits(budget=16), seed=4, sampler="random")
    assert first.best
    assert more.best
    assert (more.best.key != first.best.key, more.best.runs) == (True, 2)


@given(st.floats(1.0, 1000.0), st.floats(1.0, 600.0))
@settings(max_examples=30)
def test_a_job_counts_as_hung_by_its_own_estimate(seconds: float, start: float) -> None:
    """The limit is six estimated iterations, and before the first one also three times the longest start."""
    watch = Watchdog.of(seconds, [start / 2, start])
    allowed = max(30.0, MAX_STALLED_ITERATIONS * seconds)
    assert watch.start == pytest.approx(allowed + MAX_START_RATIO * start)
    for iterations, patience in ((0, watch.start), (1, allowed)):
        for still, hung in ((patience * 0.99, False), (patience * 1.01, True)):
            status = JobStatus(
                state=JobState.RUNNING, began=0.0, iterations=iterations, moved=0.0, seconds_in=still * iterations
            )
            decided = verdict(watch.seen(status, still), math.inf, (2,))
            assert (decided is not None) == hung
            if decided:
                assert decided.outcome is Outcome.HUNG


def test_a_job_is_pruned_only_during_a_measured_iteration() -> None:
    """A job is not pruned during its first iteration, which is a warm-up."""
    watch = Watchdog.of(10.0, [60.0])
    for iterations, pruned in ((0, False), (1, True)):
        status = JobStatus(state=JobState.RUNNING, began=0.0, iterations=iterations, seconds_in=20.0, moved=19.0)
        decided = verdict(watch.seen(status, 20.0), 15.0, (2,))
        assert (decided is not None and decided.outcome is Outcome.PRUNED) == pruned


@pytest.mark.parametrize(("repeats", "following"), [([], 0), ([0], 1), ([0, 1], 2), ([0, 2], 3)])
def test_a_repeat_has_a_number_that_no_launched_trial_has(repeats: list[int], following: int) -> None:
    """The next repeat number is one that no launched trial has; the number of a withdrawn trial is free again."""
    proposal = Proposal(key="tp1", params={}, topology={}, candidate=7)
    trials = [
        Trial(number=number, proposal=replace(proposal, repeat=repeat))
        for number, repeat in enumerate(repeats, start=1)
    ]
    withdrawn = Trial(number=8, proposal=replace(proposal, repeat=9), result=JobResult(outcome=Outcome.REJECTED))
    other = Trial(number=9, proposal=replace(proposal, candidate=8, repeat=5))
    assert next_repeat(7, [*trials, withdrawn, other]) == following
