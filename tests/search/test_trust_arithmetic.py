"""Trust in the model, in closed form: the likelihood of a record, the average over all cases, and what the rows of a
calibration teach."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tests.search.test_search_arithmetic import pool
from tuner.costmodel.calibration import Calibration, prior_deviations, slopes_of
from tuner.costmodel.residual_features import Likeness
from tuner.costmodel.site_factors import TIME_FACTORS, SiteFactors
from tuner.search.constants import (
    FACTOR_CHANCES,
    LENGTH_CHANCES,
    LEVEL_CHANCES,
    MEMORY_FIGURE_DEVIATION,
    MEMORY_MARGIN,
    NOISE_CHANCES,
    OWN_CHANCES,
    REPEAT_DEVIATION,
    SHARE_STEP,
    TERM_DEVIATIONS,
    TRUST_STEP,
    UNSURE_CHANCES,
)
from tuner.search.model_error import Record, averaged
from tuner.search.observations import Observation, Trust
from tuner.search.surrogate import Surrogate
from tuner.search.time_prior import FACTORS, logarithms

CHANCES = (NOISE_CHANCES, UNSURE_CHANCES, OWN_CHANCES, FACTOR_CHANCES, LENGTH_CHANCES, LEVEL_CHANCES)


def record(rows: int) -> Record:
    """A record of several topologies' runs; the first two are of the same topology."""
    features, _ = pool().groups
    random = np.random.default_rng(5)
    chosen = [0, 0, 7, 20, len(features) - 1][:rows]
    known = features.rows(np.array(chosen, dtype=np.int64))
    same = np.equal.outer(chosen, chosen)
    return Record(
        features=known,
        slopes=random.normal(size=(rows, FACTORS)),
        residual=random.normal(size=rows) / 10,
        own=0.02**2 * same,
        gaps=0.01**2 * np.ones((rows, rows)),
        variances=np.linspace(1e-4, 5e-4, rows),
    )


def test_the_likelihood_of_a_record_is_gaussian() -> None:
    """The log-likelihood is -(r' K^-1 r + log det K) / 2, where K sums residual, factors, terms and noise."""
    known = record(5)
    likeness = Likeness.of(known.features, known.features)
    trusts = [
        Trust(repeat=0.03, unsure=2.0, factors=0.5, lengths=((2.0, 0.25), (8.0, 0.75)), level=0.5, own=0.4),
        Trust(repeat=0.01, unsure=0.5, factors=3.0, lengths=((4.0, 1.0),)),
    ]
    assumed = np.diag([*prior_deviations() ** 2, *np.ones(len(TERM_DEVIATIONS))])
    for trust, found in zip(trusts, known.likelihoods(trusts), strict=True):
        whole = trust.unsure**2 * (likeness.shared + sum(share * likeness.near(far) for far, share in trust.lengths))
        whole = whole + trust.own**2 * known.own + known.gaps + np.diag(known.variances) + trust.repeat**2 * np.eye(5)
        whole += trust.factors**2 * known.slopes @ assumed @ known.slopes.T + trust.level**2
        expected = -0.5 * (known.residual @ np.linalg.solve(whole, known.residual) + np.linalg.slogdet(whole)[1])
        assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("rows", [0, 5])
def test_trust_is_the_root_mean_square_over_all_cases(rows: int) -> None:
    """Trust is the root mean square over all cases, weighted by prior chance and likelihood and rounded to steps.

    Noise and level are those of the most likely case instead. The sizes are the larger ratio of residual and factors
    to these means: the root mean square of those up to 1 and of those above, each with its probability.
    """
    known, assumed = record(rows), Trust(repeat=0.02, unsure=3.0, factors=0.25)
    cases = list(product(*CHANCES))
    trusts = [
        replace(
            Trust(repeat=0.02 * noise, unsure=3.0 * unsure, factors=0.25 * factors, lengths=((length, 1.0),)),
            own=own,
            level=level,
        )
        for noise, unsure, own, factors, length, level in cases
    ]
    chances = [math.prod(each[value] for each, value in zip(CHANCES, case, strict=True)) for case in cases]
    if rows:
        likely = known.likelihoods(trusts)
        chances = [chance * math.exp(one - max(likely)) for chance, one in zip(chances, likely, strict=True)]
    weights = [chance / sum(chances) for chance in chances]

    def step(place: int) -> float:
        mean = math.sqrt(sum(weight * case[place] ** 2 for weight, case in zip(weights, cases, strict=True)))
        return float(TRUST_STEP ** round(math.log(mean, TRUST_STEP)))

    def share(place: int, value: float) -> float:
        return sum(weight for weight, case in zip(weights, cases, strict=True) if case[place] == value)

    found, sizes = averaged(known, assumed)
    assert found.repeat == pytest.approx(0.02 * max(NOISE_CHANCES, key=lambda noise: share(0, noise)))
    assert found.unsure == pytest.approx(3.0 * step(1))
    assert found.own == pytest.approx(step(2))
    assert found.factors == pytest.approx(0.25 * step(3))
    shares = {length: round(share(4, length) / SHARE_STEP) for length in LENGTH_CHANCES}
    assert dict(found.lengths) == pytest.approx({length: n / sum(shares.values()) for length, n in shares.items()})
    assert found.level == max(LEVEL_CHANCES, key=lambda level: share(5, level))
    means = [
        math.sqrt(sum(weight * case[place] ** 2 for weight, case in zip(weights, cases, strict=True)))
        for place in (1, 3)
    ]
    ratios = [max(case[1] / means[0], case[3] / means[1]) for case in cases]
    for (ratio, probability), above in zip(sizes, (False, True), strict=True):
        part = [(weight, one) for weight, one in zip(weights, ratios, strict=True) if (one > 1 + 1e-9) == above]
        assert probability == pytest.approx(sum(weight for weight, _ in part))
        assert ratio == pytest.approx(math.sqrt(sum(weight * one**2 for weight, one in part) / probability))


def test_the_residuals_of_calibration_rows_follow_the_site_factors() -> None:
    """A calibration row's residual falls by its slopes times the distance of the factors from the calibration's."""
    features, _ = pool().groups
    random = np.random.default_rng(2)
    slopes = random.random(size=(2, len(TIME_FACTORS)))
    calibration = Calibration(
        site=SiteFactors(products=1.2, network=0.7),
        known=features.rows(np.array([3, 9])),
        slopes=slopes,
        residual=np.array([0.03, -0.05]),
        noise=np.array([0.1**2, 0.2**2]),
    )
    belief = Surrogate(pool(), calibration=calibration)
    rows, own = belief.time._rows, belief.time.prior.own
    assert [row.residual for row in rows] == pytest.approx([0.03, -0.05])
    assert [row.candidate for row in rows] == [-1, -2]
    assert [row.noise for row in rows] == pytest.approx([0.1**2 - own, 0.2**2 - own])
    moved = replace(calibration.site, products=1.2 * 1.5, network=0.7 / 1.5)
    other = belief._posterior(belief._nearest(moved))
    away = (other.model.reference - logarithms(calibration.site))[: len(TIME_FACTORS)]
    assert np.abs(away).max() > 0.3
    assert [row.residual for row in other._rows] == pytest.approx(np.array([0.03, -0.05]) - slopes @ away)


def twice_as_slow() -> Calibration:
    """A calibration in which three topologies of the pool take twice as long as modelled."""
    features, group = pool().groups
    (part,) = pool().parts
    chosen = [3, 9, 20]
    return Calibration(
        known=features.rows(group[chosen]),
        slopes=slopes_of(part, SiteFactors())[chosen],
        residual=np.full(3, math.log(2.0)),
        noise=np.full(3, 0.02**2),
    )


@pytest.mark.parametrize("ratio", [0.5, 1.0, 4.0])
def test_a_first_run_that_contradicts_the_calibration_replaces_it(ratio: float) -> None:
    """A first run that contradicts the calibration replaces it, and the other candidates move along with the run."""
    modelled = Surrogate(pool()).time.log_seconds()
    belief = Surrogate(pool(), twice_as_slow())
    assert belief.time.measured([3])[0] == pytest.approx(modelled[3] + math.log(2.0), abs=0.05)
    seen = Observation(candidate=3, seconds=ratio * math.exp(modelled[3]), fits=True)
    belief.learn([seen])
    assert belief._elsewhere
    away = [belief.time.measured([candidate])[0][0] - modelled[candidate] for candidate in (3, 9, 20)]
    assert away[0] == pytest.approx(math.log(ratio), abs=0.005)
    assert away[1:] == pytest.approx([math.log(ratio)] * 2, abs=0.15)
    assert belief.time.measured([3])[1] < REPEAT_DEVIATION


def test_a_first_run_close_to_the_calibration_is_averaged_with_it() -> None:
    belief = Surrogate(pool(), twice_as_slow())
    before, deviation = (float(figure[0]) for figure in belief.time.measured([3]))
    spread = math.hypot(deviation, REPEAT_DEVIATION)
    far, near = (run_of_three(before - share * spread) for share in (3.1, 2.9))
    belief.learn([near])
    assert not belief._elsewhere
    assert before - 2.9 * spread < belief.time.measured([3])[0] < before
    other = Surrogate(pool(), twice_as_slow())
    other.learn([far])
    assert other._elsewhere


def run_of_three(log_seconds: float) -> Observation:
    """A run of candidate 3."""
    return Observation(candidate=3, seconds=math.exp(log_seconds), fits=True)


def test_a_memory_figure_far_below_the_limit_moves_the_need_by_its_share_of_the_variance() -> None:
    """Only the figure itself, with a noise of 1.5%, moves the need; that the job fitted adds no information.

    A figure eight deviations away makes the residual four times as uncertain, which is the most.
    """
    belief = Surrogate(pool())
    candidate = int(np.argmin(np.abs(belief.memory.out_of_memory() - 0.4)))
    deviation = float(belief.memory._deviation[belief.pool.groups[1][candidate]])
    need = float(belief.memory._need[candidate])
    belief.learn([Observation(candidate=candidate, fits=True, memory=math.exp(need - 8 * deviation))])
    beyond, _ = belief.memory._overfull()
    gain = 1 / (1 + (MEMORY_FIGURE_DEVIATION / (4 * deviation)) ** 2)
    expected = need - float(pool().room[candidate]) + MEMORY_MARGIN[0] - 8 * deviation * gain
    assert float(beyond[candidate]) == pytest.approx(expected, abs=1e-5)
