"""The ranking of measured topologies, and how certain it is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuner.core.columns import FloatArray
from tuner.core.text import DAY, column, interval, seconds
from tuner.costmodel.estimate import INTERVAL
from tuner.costmodel.normal import below
from tuner.search.acquisition import improvement, moved_by_run
from tuner.search.constants import OUTLIER_DEVIATIONS, REPEAT_DEVIATION
from tuner.search.observations import Surprise
from tuner.search.surrogate import Surrogate
from tuner.study.store.trial import Trial

if TYPE_CHECKING:
    from tuner.search.candidates import CandidatePool

PRIOR_REPEATS: Final = 6.0
"""Repeats that the noise assumed beforehand counts for."""

TAIL_FREEDOM: Final = 3.0
"""Degrees of freedom of the Student distribution of runs that differ by more than the usual noise."""

NOISE_ROUNDS: Final = 5
"""Rounds in which the weights of such runs are estimated."""

TIE_THRESHOLD: Final = 0.025
"""Probability of being faster than the leader above which a topology is statistically tied with it. The leader is known
only afterwards, so either of two equal topologies may lead: both chances together are 5%."""

EXTRAPOLATES: Final = "extrapolates"
"""The study's attribute that marks that its result may be a topology that ran at a reduced size only."""

MARK_MEANING: Final = "~: extrapolated from trials at a reduced size, not measured."


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedTrial:
    """One measured topology, at the cluster's present speed."""

    candidate: int
    key: str
    seconds: float
    """Expected seconds per iteration, from its own runs and all others."""
    days: float
    """Days until training finishes, at equal compute."""
    low: float
    high: float
    """80% interval of `days`."""
    runs: int
    trials: tuple[int, ...]
    """Numbers of its measured trials."""
    chance_sooner: float = 0.0
    """Probability that it finishes sooner than the leader."""
    extrapolated: bool = False
    """Whether it ran at a reduced size only, so that its times are predicted."""

    @property
    def mark(self) -> str:
        """The mark of its times in tables: empty if they were measured."""
        return "~" * self.extrapolated


def rank(
    surrogate: Surrogate,
    trials: Sequence[Trial],
    periods: Mapping[int, str] | None = None,
    *,
    extrapolates: bool = False,
) -> list[RankedTrial]:
    """Return all measured topologies, the leader first; `periods` names the speed period of each trial.

    Where none was measured at full size, or if the study `extrapolates`, those of reduced sizes are ranked too. A
    topology whose only run was surprisingly slow ranks by that run, not by what the others predict, until it is
    repeated.
    """
    runs = _runs(trial for trial in trials if trial.measured)
    reduced = _runs(trial for trial in trials if trial.measured_reduced and trial.proposal.candidate not in runs)
    reduced = reduced if extrapolates or not runs else {}
    runs |= reduced
    if not runs:
        return []
    candidates, spread = list(runs), noise(trials, periods, usual=surrogate.usual_noise)
    mean, deviation = surrogate.time.measured(candidates)
    surprises = [found for found in surrogate.time.surprises() if found.deviations > OUTLIER_DEVIATIONS]
    slow = {found.candidate: found.mean + found.away for found in surprises}
    mean = np.maximum(mean, [slow.get(candidate, -math.inf) for candidate in candidates])
    counts = np.array([len(own) for own in runs.values()])
    finish = mean + surrogate.pool.work[candidates]
    predicted = np.array([candidate in reduced for candidate in candidates])
    spreads = np.where(predicted, deviation, spread / np.sqrt(counts))
    width = INTERVAL * np.maximum(deviation, spreads)
    order = np.lexsort((np.array([own[0].number for own in runs.values()]), finish))
    leader = order[0]
    distance = (finish - finish[leader]) / np.hypot(spreads, spreads[leader])
    chance = below(-distance)
    return [
        _ranked(
            runs[candidates[index]],
            *(mean[index], finish[index], width[index]),
            chance_sooner=0.0 if index == leader else float(chance[index]),
            extrapolated=candidates[index] in reduced,
        )
        for index in order.tolist()
    ]


def _ranked(
    own: Sequence[Trial],
    mean: float,
    finish: float,
    width: float,
    *,
    chance_sooner: float = 0.0,
    extrapolated: bool = False,
) -> RankedTrial:
    """Return the rank of a topology by its runs and the logarithms of its seconds, its finish and half its interval."""
    return RankedTrial(
        candidate=own[0].proposal.candidate,
        key=own[0].proposal.key,
        seconds=math.exp(mean),
        days=math.exp(finish) / DAY,
        low=math.exp(finish - width) / DAY,
        high=math.exp(finish + width) / DAY,
        runs=len(own),
        trials=tuple(trial.number for trial in own),
        chance_sooner=chance_sooner,
        extrapolated=extrapolated,
    )


def _runs(trials: Iterable[Trial]) -> dict[int, list[Trial]]:
    """Return the trials of each candidate."""
    runs: dict[int, list[Trial]] = {}
    for trial in trials:
        runs.setdefault(trial.proposal.candidate, []).append(trial)
    return runs


def rank_by_own_runs(
    pool: CandidatePool, trials: Sequence[Trial], slowdowns: Mapping[int, float], spread: float
) -> list[RankedTrial]:
    """Rank topologies by their own runs alone, each scaled to the present speed.

    `slowdowns` has the factor since each trial, `spread` is the noise of runs.
    """
    runs = _runs(trial for trial in trials if trial.measured)
    found = []
    for candidate, own in runs.items():
        mean = sum(math.log(trial.seconds * slowdowns[trial.number]) for trial in own) / len(own)
        finish, width = mean + float(pool.work[candidate]), INTERVAL * spread / math.sqrt(len(own))
        found.append(_ranked(own, mean, finish, width))
    return sorted(found, key=lambda ranked: (ranked.days, ranked.trials))


def rivals(ranking: Sequence[RankedTrial]) -> list[RankedTrial]:
    """Return the topologies that are statistically tied with the leader, the likeliest winner first."""
    tied = [ranked for ranked in ranking[1:] if ranked.chance_sooner >= TIE_THRESHOLD]
    return sorted(tied, key=lambda ranked: -ranked.chance_sooner)


def ranking_table(ranking: Sequence[RankedTrial], limit: int) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the headers and the first rows of the table of a ranking; durations are in the unit of the leader's."""
    unit, per_day = column([ranked.days for ranked in ranking])
    least = min((ranked.seconds for ranked in ranking[:limit]), default=None)
    rows: list[tuple[str, ...]] = [
        (
            ranked.key,
            f"{ranked.mark}{seconds(ranked.seconds, least=least)}",
            f"{ranked.mark}{ranked.days * per_day:,.1f}",
            interval(ranked.low * per_day, ranked.high * per_day, decimals=1),
            str(ranked.runs),
            f"{ranked.chance_sooner:.0%}" if index else "-",
        )
        for index, ranked in enumerate(ranking[:limit])
    ]
    return ("Topology", "Sec/it", unit, "80% interval", "Runs", "P(sooner)"), rows


def values_of_repeats(ranking: Sequence[RankedTrial], noise: float) -> list[float]:
    """Return the share of the time to finish that one more run of each is expected to save by a better choice.

    A run moves what is expected of its topology by so much that the leader may change (the knowledge gradient of
    Frazier, Powell and Dayanik 2008).
    """
    if len(ranking) < 2:
        return [0.0] * len(ranking)
    finish = np.log([ranked.days for ranked in ranking])
    variance = (np.log([ranked.high / ranked.low for ranked in ranking]) / (2 * INTERVAL)) ** 2
    moved = moved_by_run(variance, 0.0, noise**2)
    gaps = finish - finish[0]
    gaps[0] = finish[1] - finish[0]
    values: list[float] = improvement(gaps, moved, 0.0).tolist()
    return values


def best_repeat(ranking: Sequence[RankedTrial], noise: float) -> tuple[RankedTrial, float]:
    """Return the topology whose next run is worth most, and its value."""
    values = values_of_repeats(ranking, noise)
    top = int(np.argmax(values))
    return ranking[top], values[top]


def gain_of_repeat(surprise: Surprise, best: float, work: FloatArray) -> float:
    """Return the probability of an accident times the improvement on the best that is expected without it.

    Without the accident, the run would have taken less than it did.
    """
    if surprise.away <= 0:
        return 0.0
    mean, deviation = surprise.undisturbed
    finish, spread = np.array([mean + work[surprise.candidate]]), np.array([deviation])
    less = float(below(np.array([(surprise.mean + surprise.away - mean) / deviation]))[0])
    return surprise.accident * float(improvement(finish, spread, best)[0]) / less


def noise(
    trials: Sequence[Trial], periods: Mapping[int, str] | None = None, *, usual: float = REPEAT_DEVIATION
) -> float:
    """Return the standard deviation of log seconds between runs of one topology within one speed period.

    `noise^2 = (PRIOR_REPEATS * usual^2 + sum of w * squares) / (PRIOR_REPEATS + degrees of freedom)`, where `w` is the
    weight of a topology's mean square under a Student distribution, 1 within `OUTLIER_DEVIATIONS`.
    """
    runs: dict[tuple[int, str], list[float]] = {}
    for trial in trials:
        if trial.measured:
            period = (periods or {}).get(trial.number, "")
            runs.setdefault((trial.proposal.candidate, period), []).append(math.log(trial.seconds))
    repeated = [own for own in runs.values() if len(own) > 1]
    squares = np.array([float(np.var(own)) * len(own) for own in repeated])
    freedom = np.array([len(own) - 1 for own in repeated])
    found, limit = usual, OUTLIER_DEVIATIONS**2
    for _ in range(NOISE_ROUNDS):
        ratio = squares / freedom / found**2
        weight = (TAIL_FREEDOM + limit) / (TAIL_FREEDOM + np.maximum(ratio, limit))
        total = PRIOR_REPEATS * usual**2 + float((weight * squares).sum())
        found = math.sqrt(total / (PRIOR_REPEATS + float(freedom.sum())))
    return found
