"""Drift: when the cluster changed speed during a study, and by how much.

Repeats of topologies show it: a difference from their earlier runs of the present speed period that noise does not
explain starts a new period, or moves the start of the last one. One repeat alone only raises a suspicion, because a run
may be slow for another reason. The change lies between the runs, at the trial that maximises the likelihood of all
measurements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from tuner.core.errors import StudyError
from tuner.search.constants import NOISE_CHANCES, REPEAT_DEVIATION
from tuner.study.ranking import noise
from tuner.study.store.trial import Trial

DETECTION_THRESHOLD: Final = 3.0
"""Standard deviations of noise beyond which repeats start a new speed period."""

SUSPICION_THRESHOLD: Final = 2.0
"""Standard deviations beyond which another repeat is run."""

CONFIRMED_BY: Final = (2, 3)
"""Numbers of last repeats whose mean difference may start a new speed period."""

DRIFT_ODDS: Final = math.log(20)
"""Natural logarithm of the odds against a change of speed in a study, one in twenty; each repeat has an equal share."""

MIN_LOG_CHANGE: Final = 0.015
"""Logarithm of the smallest change of speed that counts as drift, however significant."""

_NEXT_TRIAL: Final = 1 << 60
"""A number beyond that of any trial."""


class LogLikelihood(Protocol):
    """Returns the log-likelihood of all measurements if speed periods began at these trials.

    The run of the trial `accident`, if any, was slow for another reason; noise is larger by the factor `noise`.
    """

    def __call__(self, firsts: Sequence[int], /, *, accident: int | None = None, noise: float = 1.0) -> float:
        """Return the logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedPeriod:
    """A period of constant cluster speed: from trial `first` on, jobs take `factor` times as long as before it."""

    first: int
    factor: float

    def document(self) -> dict[str, Any]:
        """Return the period as JSON."""
        return {"first": self.first, "factor": self.factor}

    def sentence(self) -> str:
        """Return the change as one sentence."""
        change = "slower" if self.factor > 1 else "faster"
        return f"The cluster became {abs(self.factor - 1):.1%} {change} at trial {self.first}."


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftFinding:
    """The evidence of repeats: a change of speed, or a suspicion that needs another repeat."""

    speed_periods: tuple[SpeedPeriod, ...] | None
    """All speed periods, where a change was found."""
    suspected: bool


class RepeatDifference(NamedTuple):
    """By how much a repeat differs from the earlier runs of its topology."""

    earlier: int
    """Number of the run before it."""
    repeat: int
    """Its own number."""
    log_ratio: float
    deviation: float
    """Standard deviation of `log_ratio` by noise alone."""


STORED_AS: Final = "eras"
"""The study's attribute with its speed periods, whose name has not changed since the first release."""


def stored_periods(attributes: Mapping[str, Any]) -> list[SpeedPeriod]:
    """Return the speed periods among a study's attributes."""
    return periods_of(attributes.get(STORED_AS, []))


def periods_of(documents: Sequence[Mapping[str, Any]]) -> list[SpeedPeriod]:
    """Return the speed periods that a study has stored. Raise a `StudyError` if they cannot be read."""
    try:
        return [SpeedPeriod(first=int(period["first"]), factor=float(period["factor"])) for period in documents]
    except (KeyError, TypeError, ValueError):
        raise StudyError(
            "the study's speed periods cannot be read: restore its database from a backup, or move it away and rebuild "
            "it with 'tuner recover STUDY'."
        ) from None


def label(number: int, periods: Sequence[SpeedPeriod], first: str) -> str:
    """Return the name of a trial's speed period; `first` names the one in which the study began."""
    later = sum(period.first <= number for period in periods)
    return first if not later else f"{first or 'era'} {later + 1}"


def present(periods: Sequence[SpeedPeriod], first: str) -> str:
    """Return the name of the speed period of the next trial."""
    return label(_NEXT_TRIAL, periods, first)


def labels(trials: Sequence[Trial], periods: Sequence[SpeedPeriod], first: str = "") -> dict[int, str]:
    """Return the name of each trial's speed period, by trial number."""
    return {trial.number: label(trial.number, periods, first) for trial in trials}


def slowdowns(trials: Sequence[Trial], periods: Sequence[SpeedPeriod]) -> dict[int, float]:
    """Return by what factor the cluster has slowed down since each trial, by trial number."""
    return {
        trial.number: math.prod(period.factor for period in periods if period.first > trial.number) for trial in trials
    }


def detect(
    trials: Sequence[Trial],
    periods: Sequence[SpeedPeriod],
    log_likelihood: LogLikelihood,
    *,
    usual: float = REPEAT_DEVIATION,
    assumed: float | None = None,
) -> DriftFinding:
    """Return the evidence of the current speed period's repeats.

    `usual` is the noise before any repeat, `assumed` the one of the likelihood, for which drift may have passed.
    """
    since = periods[-1].first if periods else 0
    recent = [trial for trial in trials if trial.measured and trial.number >= since]
    spread = noise(_without_last_repeats(recent), labels(recent, periods), usual=usual)
    differences = _differences(recent, spread)
    ratio = 1.0 if assumed is None else min(1.0, spread / assumed)

    def likelihood(firsts: Sequence[int], /, *, accident: int | None = None, noise: float = 1.0) -> float:
        return log_likelihood(firsts, accident=accident, noise=noise * ratio)

    if not differences:
        return DriftFinding(speed_periods=None, suspected=False)
    # From the last repeat backwards: a change concerns every run after it.
    for count in CONFIRMED_BY:
        last = differences[-count:]
        if len(last) < count:
            break
        weight, mean = sum(1 / difference.deviation**2 for difference in last), _weighted_mean(last)
        if abs(mean) * math.sqrt(weight) > DETECTION_THRESHOLD and abs(mean) > MIN_LOG_CHANGE:
            start = max(difference.earlier for difference in last)
            end = min(difference.repeat for difference in last)
            window = (start if start < end else end - 1, end)
            found = _locate(trials, periods, recent, window, likelihood)
            if not _is_noise(last, found, periods, likelihood, looks=len(differences)):
                return DriftFinding(speed_periods=tuple(found), suspected=False)
    change, deviation = abs(differences[-1].log_ratio), differences[-1].deviation
    return DriftFinding(
        speed_periods=None, suspected=change > SUSPICION_THRESHOLD * deviation and change > MIN_LOG_CHANGE
    )


def _is_noise(
    differences: Sequence[RepeatDifference],
    found: Sequence[SpeedPeriod],
    periods: Sequence[SpeedPeriod],
    log_likelihood: LogLikelihood,
    *,
    looks: int,
) -> bool:
    """Whether one slow run, or more noise, explains the measurements better than a change of the cluster's speed.

    So does the usual noise unless another period outweighs its prior odds, those of `looks` repeats that might have
    shown one.
    """
    firsts = [period.first for period in periods]
    runs = {number for difference in differences for number in (difference.earlier, difference.repeat)}
    accidents = [log_likelihood(firsts, accident=number) for number in sorted(runs)]
    noisier = [log_likelihood(firsts, noise=factor) for factor in list(NOISE_CHANCES)[1:]]
    changed = log_likelihood([period.first for period in found])
    odds = DRIFT_ODDS + math.log(looks) if len(found) > len(periods) else 0.0
    unchanged = log_likelihood(firsts) + odds
    return max(*accidents, *noisier, unchanged) > changed


def _weighted_mean(differences: Sequence[RepeatDifference]) -> float:
    """Return the mean log ratio, weighted by 1 / deviation^2."""
    weight = sum(1 / difference.deviation**2 for difference in differences)
    return sum(difference.log_ratio / difference.deviation**2 for difference in differences) / weight


def _without_last_repeats(recent: Sequence[Trial]) -> list[Trial]:
    """Return all but the last repeats, so that drift is not mistaken for noise."""
    repeats = [trial for trial in recent if trial.proposal.repeat]
    last = {trial.number for trial in repeats[-3:]}
    return [trial for trial in recent if trial.number not in last]


def _differences(recent: Sequence[Trial], spread: float) -> list[RepeatDifference]:
    """Return the difference of each repeat from the mean of the earlier runs of its topology."""
    runs: dict[int, list[Trial]] = {}
    found = []
    for trial in recent:
        before = runs.setdefault(trial.proposal.candidate, [])
        if before:
            mean = sum(math.log(run.seconds) for run in before) / len(before)
            deviation = spread * math.sqrt(1 + 1 / len(before))
            found.append(RepeatDifference(before[-1].number, trial.number, math.log(trial.seconds) - mean, deviation))
        before.append(trial)
    return found


def _locate(
    trials: Sequence[Trial],
    periods: Sequence[SpeedPeriod],
    recent: Sequence[Trial],
    window: tuple[int, int],
    log_likelihood: LogLikelihood,
) -> list[SpeedPeriod]:
    """Return the likeliest speed periods, with one that starts after `window[0]` and not after `window[1]`.

    It is a new period, or the last one moved. Where nothing was measured between two starts, the first is taken.
    """
    firsts, (start, end) = [period.first for period in periods], window
    starts = [trial.number for trial in recent if start < trial.number <= end] or [end]
    options = [[*firsts[:keep], first] for keep in {len(firsts), max(0, len(firsts) - 1)} for first in starts]
    best = max(sorted(options, key=len), key=log_likelihood)
    since = periods[len(best) - 2].first if len(best) > 1 else 0
    measured = [trial for trial in trials if trial.measured and trial.number >= since]
    return [*periods[: len(best) - 1], SpeedPeriod(first=best[-1], factor=_factor(measured, best[-1]))]


def _factor(measured: Sequence[Trial], first: int) -> float:
    """Return by what factor topologies that ran before and after trial `first` slowed down.

    `log factor = sum(w * (mean log after - mean log before)) / sum(w)` with `w = 1 / (1 / n_before + 1 / n_after)`.
    """
    runs: dict[int, tuple[list[float], list[float]]] = {}
    for trial in measured:
        runs.setdefault(trial.proposal.candidate, ([], []))[trial.number >= first].append(math.log(trial.seconds))
    both = [(before, after) for before, after in runs.values() if before and after]
    weights = [1 / (1 / len(before) + 1 / len(after)) for before, after in both]
    changes = [sum(after) / len(after) - sum(before) / len(before) for before, after in both]
    return math.exp(sum(map(math.prod, zip(weights, changes, strict=True))) / sum(weights))
