"""How the search handles runs that its model did not expect, and jobs that are still running."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.search.stand_in import surrogate_of
from tests.search.test_search_arithmetic import pool
from tuner.core.domain import MemoryKind
from tuner.costmodel.memory import shown_bytes, worst_need
from tuner.costmodel.site_factors import SiteFactors
from tuner.search import memory_posterior
from tuner.search.acquisition import choose, improvement
from tuner.search.constants import ACCIDENT_CHANCE, MIN_EXPECTED_GAIN, NOISE_CHANCES, UNTRIED_DEGREE_CHANCE
from tuner.search.observations import Observation, Surprise
from tuner.search.surrogate import Surrogate


def expected(candidates: Sequence[int]) -> list[float]:
    """The model's predicted seconds of candidates."""
    return [float(seconds) for seconds in np.exp(Surrogate(pool()).time.log_seconds()[list(candidates)])]


def runs(candidates: Sequence[int], factors: Sequence[float]) -> list[Observation]:
    """Runs of candidates that took the given multiples of the predicted seconds."""
    return [
        Observation(candidate=candidate, seconds=seconds * factor, fits=True)
        for candidate, seconds, factor in zip(candidates, expected(candidates), factors, strict=True)
    ]


def posterior(**values: Any) -> Any:
    """A surrogate of two candidates; the second is probably much faster, but probably does not fit."""
    usual: dict[str, Any] = {
        "pool": SimpleNamespace(work=np.zeros(2), splits=np.array([1, 2])),
        "log_seconds": lambda: np.array([0.02, -0.10]),
        "out_of_memory": lambda: np.array([0.0, 0.65]),
        "most_deviation": np.array([0.01, 0.05]),
        "deviation": lambda candidates: np.array([0.01, 0.05])[candidates],
        "trust": SimpleNamespace(unsure=1.0, repeat=0.0),
        "soonest": lambda _work: None,
        "candidates_seen": np.array([0]),
        "error_sizes": ((1.0, 1.0),),
    }
    return surrogate_of(**usual | values)


def test_a_risky_promising_candidate_is_chosen_over_a_safe_useless_one() -> None:
    choice = choose(posterior(), best=0.0, open_to=np.ones(2, dtype=np.bool_))
    assert choice is not None
    assert choice.candidate == 1
    assert choice.gain == pytest.approx(0.10, abs=0.01)


def test_a_run_is_worth_what_it_reveals_beside_the_leader() -> None:
    """A run moves a candidate beside the leader by (v - c) / sqrt(v + n^2).

    v is the candidate's variance, c its covariance with the leader and n the noise of a run: errors that both share
    decide nothing, and a noisy run decides less. An error of twice the size scales v and c.
    """
    noise, shared = 0.03, 0.001
    choice = choose(
        posterior(
            trust=SimpleNamespace(unsure=1.0, repeat=noise),
            soonest=lambda _work: 0,
            shared=lambda candidates, leader: np.full(len(candidates), shared + leader),
            measured=lambda _candidates: (np.zeros(1), np.array([0.012])),
            error_sizes=((1.0, 0.75), (2.0, 0.25)),
        ),
        best=0.0,
        open_to=np.array([False, True]),
    )
    assert choice is not None
    moved = [ratio**2 * (0.05**2 - shared) / math.hypot(ratio * 0.05, noise) for ratio in (1.0, 2.0)]
    gains = [float(improvement(np.array([-0.10]), np.array([away]), 0.0)[0]) for away in moved]
    assert choice.gain == pytest.approx(0.75 * gains[0] + 0.25 * gains[1])


def test_what_a_candidate_shares_with_the_leader_is_their_covariance() -> None:
    """The covariance is that of the joint posterior, and the leader is the soonest candidate that has run."""
    believer = Surrogate(pool())
    assert believer.time.soonest(believer.pool.work) is None
    believer.learn(runs([3, 5, 9], [1.1, 0.8, 1.2]))
    finish = believer.time.log_seconds() + believer.pool.work
    leader = min((3, 5, 9), key=lambda candidate: float(finish[candidate]))
    assert believer.time.soonest(believer.pool.work) == leader
    others = [candidate for candidate in range(len(believer.pool)) if candidate != leader]
    _, joint = believer.time.joint([(candidate, None) for candidate in [leader, *others]])
    measured = [others.index(candidate) for candidate in (3, 5, 9) if candidate != leader]
    found, expected_ones = believer.time.shared(np.array(others), leader), joint[0, 1:]
    unmeasured = np.delete(np.arange(len(others)), measured)
    assert found[unmeasured] == pytest.approx(expected_ones[unmeasured], rel=1e-3, abs=1e-7)


@pytest.mark.parametrize(("larger", "worth"), [(0.12, True), (0.0, False)])
def test_a_candidate_far_behind_is_tried_if_the_model_may_be_twice_as_wrong(larger: float, worth: bool) -> None:
    """A candidate predicted 20% slow is worth a job if an error of twice the size has a probability of 12%.

    Without it, a search ends as soon as all others are three standard deviations away.
    """
    far = {"log_seconds": lambda: np.array([0.0, 0.18]), "out_of_memory": lambda: np.zeros(2)}
    wide = {"most_deviation": np.array([0.01, 0.2]), "deviation": lambda rows: np.array([0.001, 0.07])[rows]}
    sizes = ((0.8, 1 - larger), (2.0, larger))
    choice = choose(posterior(**far, **wide, error_sizes=sizes), best=0.0, open_to=np.array([False, True]))
    assert choice is not None
    away, wider = np.array([0.18]), np.array([0.07 * 2.0])
    narrow = float(improvement(away, np.array([0.07 * 0.8]), 0.0)[0])
    assert choice.gain == pytest.approx((1 - larger) * narrow + larger * float(improvement(away, wider, 0.0)[0]))
    assert choice.chance == pytest.approx(larger * 0.5 * math.erfc(0.18 / 0.14 / math.sqrt(2)), abs=1e-3)
    assert (choice.net_saving >= MIN_EXPECTED_GAIN) == worth


def test_a_new_split_goes_first_only_if_it_is_worth_a_job() -> None:
    """A new split is preferred only if its net saving is worth a job; otherwise the best known split is chosen."""
    values = {
        "log_seconds": lambda: np.array([-0.05, 0.0]),
        "out_of_memory": lambda: np.array([0.0, 0.9]),
        "trust": SimpleNamespace(unsure=2.0, repeat=0.0),
    }
    choice = choose(posterior(**values), best=0.0, open_to=np.ones(2, dtype=np.bool_))
    assert choice is not None
    assert choice.candidate == 0
    assert (choice.gain or 0) > MIN_EXPECTED_GAIN
    values["out_of_memory"] = lambda: np.zeros(2)
    safe = choose(posterior(**values), best=0.0, open_to=np.ones(2, dtype=np.bool_))
    assert safe is not None
    assert safe.candidate == 1


def of_degrees(untried: int, *, unsure: float, log_seconds: float = 0.7) -> Any:
    """A surrogate whose leader has tp 4; the second candidate was promising at first, but not after the runs so far."""
    return posterior(
        pool=SimpleNamespace(
            work=np.zeros(2), splits=np.array([1, 2]), column={"tp": np.array([4, untried])}.__getitem__
        ),
        log_seconds=lambda: np.array([0.0, log_seconds]),
        out_of_memory=lambda: np.zeros(2),
        most_deviation=np.array([0.1, 0.1]),
        deviation=lambda candidates: np.array([0.1, 0.1])[candidates],
        trust=SimpleNamespace(unsure=unsure, repeat=0.0),
        first_log_seconds=np.array([3.0, 3.1]),
        prior=SimpleNamespace(apart=0.2),
    )


def chosen_of(surrogate: Any) -> Any:
    return choose(surrogate, best=0.0, open_to=np.array([False, True]))


def test_a_distrusted_model_rules_out_no_promising_tensor_parallel_degree() -> None:
    """An untried degree that was promising at first keeps some expected gain while the model is distrusted.

    Without it, a search in which tp 4 and tp 8 are slower than predicted ends 8.7% slow without a run of tp 2.
    """
    untried = chosen_of(of_degrees(2, unsure=2.0))
    once = float(improvement(np.array([0.1]), np.array([0.2]), 0.0)[0])
    assert untried.gain == pytest.approx(UNTRIED_DEGREE_CHANCE * once, rel=1e-6)
    assert untried.net_saving > MIN_EXPECTED_GAIN
    assert untried.chance == pytest.approx(UNTRIED_DEGREE_CHANCE * 0.5 * math.erfc(0.5 / math.sqrt(2)), rel=1e-6)


@pytest.mark.parametrize(("degree", "unsure"), [(2, 1.0), (4, 2.0)], ids=["a model that is right", "a degree that ran"])
def test_an_estimate_is_kept_if_the_model_is_right_or_the_degree_has_run(degree: int, unsure: float) -> None:
    assert chosen_of(of_degrees(degree, unsure=unsure)).net_saving < 1e-9


def test_an_untried_degree_does_not_precede_a_better_estimate() -> None:
    paying = chosen_of(of_degrees(2, unsure=2.0, log_seconds=-0.05))
    assert paying.gain == pytest.approx(float(improvement(np.array([-0.05]), np.array([0.1]), 0.0)[0]))


def test_a_straggler_is_a_surprise_until_a_second_run_explains_it() -> None:
    """After a slow run and a fast repeat, the fast one is trusted; after two slow runs, the topology counts as slow."""
    believer = Surrogate(pool())
    believer.learn(runs([*range(8), 9], [*[1.0] * 8, 1.3]))
    surprise = max(believer.time.surprises(), key=lambda found: found.accident)
    assert surprise.candidate == 9
    assert surprise.deviations > 3
    assert surprise.accident > 0.5
    assert math.exp(surprise.mean) == pytest.approx(expected([9])[0], rel=0.03)
    for factor in (1.0, 1.3):
        twice = Surrogate(pool())
        twice.learn(runs([*range(8), 9, 9], [*[1.0] * 8, 1.3, factor]))
        assert 9 not in [found.candidate for found in twice.time.surprises()]
        assert math.exp(float(twice.time.measured([9])[0][0])) == pytest.approx(expected([9])[0] * factor, rel=0.06)
    right = Surrogate(pool())
    right.learn(runs(range(9), [1.0] * 9))
    assert max(found.accident for found in right.time.surprises()) < 0.02


def test_a_pending_job_counts_as_measured_for_the_next_choice() -> None:
    """A pending job reduces the deviations of related candidates, moves no mean, and leaves no trace afterwards."""
    believer = Surrogate(pool())
    believer.learn(runs([0, 5], [1.1, 1.05]))
    everything = np.arange(len(pool()))
    mean, deviation = believer.time.log_seconds(), believer.time.deviation(everything)
    with believer.imagining([9, 12]):
        assert believer.time.log_seconds() == pytest.approx(mean, abs=1e-5)
        assert (believer.time.deviation(everything) <= deviation + 1e-7).all()
        assert float(believer.time.measured([9])[1][0]) < 0.5 * float(deviation[9])
    assert believer.time.log_seconds() == pytest.approx(mean)
    assert believer.time.deviation(everything) == pytest.approx(deviation)
    believer.learn(runs([3], [1.0]))
    fresh = Surrogate(pool())
    fresh.learn(runs([0, 5], [1.1, 1.05]))
    fresh.learn(runs([3], [1.0]))
    assert believer.time.log_seconds() == pytest.approx(fresh.time.log_seconds(), abs=1e-5)


def test_an_unexpected_oom_raises_every_risk(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected OOM raises the estimated memory need of all candidates, and far more than an expected OOM."""
    risk = Surrogate(pool()).memory.out_of_memory()
    safe = np.flatnonzero(risk <= 0.05)
    full = int(safe[np.argmax(risk[safe])])
    learnt = {}
    for weight in (1.0, 10.0):
        monkeypatch.setattr(memory_posterior, "SURPRISED_MEMORY_WEIGHT", weight)
        believer = Surrogate(pool())
        believer.learn([Observation(candidate=full, fits=False)])
        learnt[weight] = believer.memory.least_need()[1]
    assert learnt[10.0] > learnt[1.0] * 1.02
    expected_failure = Surrogate(pool())
    expected_failure.learn([Observation(candidate=int(np.argmax(risk)), fits=False)])
    assert expected_failure.memory.least_need()[1] < learnt[1.0]


@pytest.mark.parametrize("kind", ["smi", "reserved", "allocated"])
def test_a_memory_figure_compares_with_what_its_tool_would_show(kind: MemoryKind) -> None:
    """A figure as expected changes no risk; a lower or higher one moves all, by less than a complete figure does."""
    columns = pool().parts[0].rows(np.array([9]))
    need, shown = (
        float(bytes_[0])
        for bytes_ in (worst_need(columns, SiteFactors()).total, shown_bytes(columns, SiteFactors(), kind))
    )
    least: dict[tuple[float, bool], float] = {}
    for share in (0.8, 1.0, 1.2):
        for whole in (False, True):
            believer = Surrogate(pool())
            memory, of_kind = (share * need, None) if whole else (share * min(need, shown), kind)
            believer.learn([Observation(candidate=9, memory=memory, memory_kind=of_kind, fits=True)])
            least[share, whole] = believer.memory.least_need()[1]
    assert least[1.0, False] == pytest.approx(least[1.0, True], rel=2e-3)
    assert least[0.8, True] < least[0.8, False] < least[1.0, False] < least[1.2, False] < least[1.2, True]


@pytest.mark.parametrize("share", [0.03, 0.3])
def test_a_figure_far_below_the_expected_one_is_a_lower_bound(share: float) -> None:
    """A log may print the memory before the optimizer has its states."""
    need = float(worst_need(pool().parts[0], SiteFactors()).total[9])
    partial, none = Surrogate(pool()), Surrogate(pool())
    partial.learn([Observation(candidate=9, memory=share * need, memory_kind="reserved", fits=True)])
    none.learn([Observation(candidate=9, fits=True)])
    assert partial.memory.out_of_memory() == pytest.approx(none.memory.out_of_memory(), abs=1e-3)


def test_figures_below_the_estimate_make_larger_topologies_worth_a_try() -> None:
    """An allocator's figures at 0.8 of the estimates open topologies that were sure to run out of memory."""
    believer = Surrogate(pool())
    before = believer.memory.out_of_memory()
    fitting = np.flatnonzero(before < 0.5)[:12]
    for candidate in fitting.tolist():
        columns, row = pool().at(candidate)
        shown = float(shown_bytes(columns.rows(np.array([row])), SiteFactors(), "reserved")[0])
        believer.learn([Observation(candidate=candidate, memory=0.8 * shown, memory_kind="reserved", fits=True)])
    after = believer.memory.out_of_memory()
    assert (after <= before + 1e-9).all()
    assert (after < 0.5).sum() > (before < 0.5).sum()


def test_scattered_runs_are_noise_and_exact_ones_confirm_the_model() -> None:
    chance = np.random.default_rng(3)
    candidates = list(range(0, min(60, len(pool())), 2))
    for deviation, noisy in ((0.1, True), (0.008, False)):
        believer = Surrogate(pool())
        believer.learn(runs(candidates, np.exp(deviation * chance.standard_normal(len(candidates))).tolist()))
        believer.adapt(lambda usual: usual)
        assert (believer.usual_noise > list(NOISE_CHANCES)[1] * believer.assumed.repeat) == noisy
        assert noisy or believer.trust.repeat == believer.assumed.repeat
        assert noisy or believer.trust.unsure < believer.assumed.unsure, "a model that is right is trusted more"


def test_a_model_that_is_wrong_about_a_split_is_trusted_less() -> None:
    """If one tp repeatedly takes twice as long as predicted, the surrogate's deviations grow."""
    tp = pool().column("tp")
    candidates = [*np.flatnonzero(tp == 1)[:4].tolist(), *np.flatnonzero(tp == 4)[:4].tolist()] * 2
    factors = [2.0 if tp[candidate] == 4 else 1.0 for candidate in candidates]
    believer = Surrogate(pool())
    believer.learn(runs(candidates, factors))
    before = believer.time.deviation(np.arange(len(pool())))
    believer.adapt(lambda usual: usual)
    assert believer.trust.unsure > believer.assumed.unsure
    assert (believer.time.deviation(np.arange(len(pool()))) > before).mean() > 0.9


def test_a_trend_of_the_models_error_is_extrapolated() -> None:
    """If each doubling of pp is 15% faster than predicted, the estimates of a larger, unseen pp follow this trend."""
    pp, wide = pool().column("pp"), int(pool().column("pp").max())
    narrow = [int(np.flatnonzero(pp == degree)[row]) for degree in (wide // 8, wide // 4, wide // 2) for row in (0, 5)]
    (unseen,) = np.flatnonzero(pp == wide)[:1].tolist()
    believer = Surrogate(pool())
    before = float(believer.time.log_seconds()[unseen])
    believer.learn(runs(narrow, [0.85 ** math.log2(pp[candidate]) for candidate in narrow]))
    short = float(believer.time.log_seconds()[unseen])
    believer.adapt(lambda usual: usual)
    away = math.log2(wide) * math.log(0.85)
    assert abs(float(believer.time.log_seconds()[unseen]) - before - away) < 0.5 * abs(short - before - away)


def test_a_fast_run_is_trusted_more_than_a_slow_one() -> None:
    """A run 30% faster than predicted moves the estimate more than an equally slow one, which may be an accident."""
    moved = {}
    for factor in (0.7, 1 / 0.7):
        believer = Surrogate(pool())
        believer.learn(runs([*range(8), 9], [*[1.0] * 8, factor]))
        moved[factor] = float(believer.time.measured([9])[0][0]) - math.log(expected([9])[0])
    assert moved[0.7] < 0.8 * math.log(0.7)
    assert moved[1 / 0.7] < -0.7 * moved[0.7]


def test_a_pending_job_that_may_not_fit_raises_related_risks() -> None:
    """A pending job that may not fit raises related risks while it runs, not afterwards; a safe job raises none."""
    believer = Surrogate(pool())
    risk = believer.memory.out_of_memory()
    doubtful = int(np.argmin(np.abs(risk - 0.3)))
    others = (risk > 0.05) & (risk < 0.95)
    with believer.imagining([doubtful]):
        assert believer.memory.out_of_memory()[others].mean() > risk[others].mean() + 0.1
    assert believer.memory.out_of_memory() == pytest.approx(risk)
    with believer.imagining([int(np.argmin(risk))]):
        assert believer.memory.out_of_memory() == pytest.approx(risk)


def test_the_chance_of_an_accident_grows_with_delay_and_falls_with_uncertainty() -> None:
    """The chance of an accident grows with the delay and falls with the prediction's uncertainty."""

    def accident(away: float, deviation: float) -> float:
        return Surprise(candidate=0, away=away, mean=0.0, deviation=deviation, noise=0.012).accident

    assert accident(-0.1, 0.03) < 1e-3
    assert accident(0.0, 0.03) < ACCIDENT_CHANCE
    assert accident(0.05, 0.03) < accident(0.1, 0.03) < accident(0.3, 0.03)
    assert accident(0.3, 0.03) > 0.99 > accident(0.3, 0.15) > ACCIDENT_CHANCE


@pytest.mark.parametrize("factors", [(1.3, 1.3), (1.0, 1.06), (1.06, 1.0), (1.0, 1.0)])
def test_a_repeat_corrects_the_first_run(factors: tuple[float, float]) -> None:
    """Learning a repeat gives the same posterior as learning all runs again from the start."""
    belief = Surrogate(pool())
    for run in runs([*range(8), 9, 9], [*[1.0] * 8, *factors]):
        belief.learn([run])

    def seen() -> list[float]:
        deviations = [float(values[0]) for values in belief.time.measured([9])]
        return [*belief.time.log_seconds().tolist(), *deviations, *(row.noise for row in belief.time._rows)]

    before = seen()
    belief.relabel([""] * 10, "")
    assert seen() == pytest.approx(before)
