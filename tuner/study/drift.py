"""Drift: whether the cluster has changed its speed in mid-study, since when and by how much.

A topology that is run again tells: a difference from its earlier runs of the present era that noise does not explain
opens a new one, or moves the last one's beginning. It began between the two runs, at the trial that makes all that was
measured most likely.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tuner.search.surrogate import REPEAT
from tuner.study.ranking import noise
from tuner.study.store.trial import Trial

SURE: Final = 3.0
"""Deviations of noise beyond which a repeat opens a new era."""

SUSPECT: Final = 2.0
"""Deviations beyond which another repeat is asked for."""

LEAST: Final = 0.015
"""Of a shift's logarithm: less is no drift, however sure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedPeriod:
    """From one trial on the cluster takes `factor` times as long as in the era before."""

    first: int
    factor: float

    def document(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {"first": self.first, "factor": self.factor}


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftFinding:
    """What repeats say: a change, or the wish for another repeat."""

    eras: tuple[SpeedPeriod, ...] | None
    """All of them, where a change was seen."""
    suspected: bool


def eras_of(documents: Sequence[Mapping[str, Any]]) -> list[SpeedPeriod]:
    """The eras that a study has noted."""
    return [SpeedPeriod(first=int(each["first"]), factor=float(each["factor"])) for each in documents]


_LATER: Final = 1 << 60
"""The number of a trial that is yet to come."""


def label(number: int, eras: Sequence[SpeedPeriod], first: str) -> str:
    """The era of a trial; `first` is the name of the one in which the study began."""
    later = sum(era.first <= number for era in eras)
    return first if not later else f"{first or 'era'} {later + 1}"


def present(eras: Sequence[SpeedPeriod], first: str) -> str:
    """The era of a trial that is yet to come."""
    return label(_LATER, eras, first)


def labels(trials: Sequence[Trial], eras: Sequence[SpeedPeriod], first: str = "") -> dict[int, str]:
    """The era of each trial."""
    return {trial.number: label(trial.number, eras, first) for trial in trials}


Likely = Callable[[Sequence[int]], float]
"""The logarithm of how likely all figures are, were eras to begin at these trials."""


def shift(
    trials: Sequence[Trial], eras: Sequence[SpeedPeriod], likely: Likely, *, usual: float = REPEAT
) -> DriftFinding:
    """What the repeats of the present era say."""
    since = eras[-1].first if eras else 0
    own = [trial for trial in trials if trial.measured and trial.number >= since]
    spread = noise(_earlier_repeats(own), labels(own, eras), usual=usual)
    differences = _differences(own, spread)
    if not differences:
        return DriftFinding(eras=None, suspected=False)
    # repeats are looked at from the last one backwards: a change concerns all that came after it
    for many in (1, 2, 3):
        last = differences[-many:]
        if len(last) < many:
            break
        weight, mean = sum(1 / deviation**2 for _, _, _, deviation in last), _mean(last)
        if abs(mean) * math.sqrt(weight) > SURE and abs(mean) > LEAST:
            start = max(before for before, _, _, _ in last)
            end = min(after for _, after, _, _ in last)
            window = (start if start < end else end - 1, end)
            return DriftFinding(eras=tuple(_placed(trials, eras, own, window, likely)), suspected=False)
    _, _, difference, deviation = differences[-1]
    return DriftFinding(eras=None, suspected=abs(difference) > SUSPECT * deviation and abs(difference) > LEAST)


def _mean(differences: Sequence[tuple[int, int, float, float]]) -> float:
    """Of the differences, the sure ones counting more."""
    weight = sum(1 / deviation**2 for _, _, _, deviation in differences)
    return sum(difference / deviation**2 for _, _, difference, deviation in differences) / weight


def _earlier_repeats(own: Sequence[Trial]) -> list[Trial]:
    """All but the last repeat: a shift must not pass for noise."""
    repeats = [trial for trial in own if trial.proposal.repeat]
    last = {trial.number for trial in repeats[-3:]}
    return [trial for trial in own if trial.number not in last]


def _differences(own: Sequence[Trial], spread: float) -> list[tuple[int, int, float, float]]:
    """For each repeat: the trial of the run before it, its own, by how much it differs, and the noise of that."""
    runs: dict[int, list[Trial]] = {}
    found = []
    for trial in own:
        before = runs.setdefault(trial.proposal.candidate, [])
        if before:
            mean = sum(math.log(each.seconds) for each in before) / len(before)
            deviation = spread * math.sqrt(1 + 1 / len(before))
            found.append((before[-1].number, trial.number, math.log(trial.seconds) - mean, deviation))
        before.append(trial)
    return found


def _placed(
    trials: Sequence[Trial], eras: Sequence[SpeedPeriod], own: Sequence[Trial], window: tuple[int, int], likely: Likely
) -> list[SpeedPeriod]:
    """The eras that make all that was measured most likely, one of them begun after the first of two runs and not after
    the second: a new one, or the last one, which was then misplaced by some trials.

    Of several places between which nothing was measured it is the first.
    """
    firsts, (start, end) = [era.first for era in eras], window
    places = [trial.number for trial in own if start < trial.number <= end] or [end]
    options = [[*firsts[:keep], place] for keep in {len(firsts), max(0, len(firsts) - 1)} for place in places]
    best = max(sorted(options, key=len), key=likely)
    since = eras[len(best) - 2].first if len(best) > 1 else 0
    span = [trial for trial in trials if trial.measured and trial.number >= since]
    return [*eras[: len(best) - 1], SpeedPeriod(first=best[-1], factor=_factor(span, best[-1]))]


def _factor(span: Sequence[Trial], first: int) -> float:
    """By what topologies that were run before a trial and from it on take longer."""
    runs: dict[int, tuple[list[float], list[float]]] = {}
    for trial in span:
        runs.setdefault(trial.proposal.candidate, ([], []))[trial.number >= first].append(math.log(trial.seconds))
    both = [(before, after) for before, after in runs.values() if before and after]
    weights = [1 / (1 / len(before) + 1 / len(after)) for before, after in both]
    moved = [sum(after) / len(after) - sum(before) / len(before) for before, after in both]
    return math.exp(sum(map(math.prod, zip(weights, moved, strict=True))) / sum(weights))
