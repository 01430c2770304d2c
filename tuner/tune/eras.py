"""Drift: whether the cluster has changed its speed in mid-study, since when and by how much.

A topology that is run again tells: a difference from its earlier runs of the present era that noise does not explain
opens a new one. Where between the two runs it began is the split at which the jobs in between surprise least.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tuner.physics.features import UNSEEN
from tuner.search.belief import REPEAT
from tuner.search.record import Trial
from tuner.tune.standing import noise

SURE: Final = 3.0
"""Deviations of noise beyond which a repeat opens a new era."""

SUSPECT: Final = 2.0
"""Deviations beyond which another repeat is asked for."""

LEAST: Final = 0.015
"""Of a shift's logarithm: less is no drift, however sure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Era:
    """From one trial on the cluster takes `factor` times as long as in the era before."""

    first: int
    factor: float

    def document(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {"first": self.first, "factor": self.factor}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """What repeats say: a change, or the wish for another repeat."""

    era: Era | None
    suspected: bool


def eras_of(documents: Sequence[Mapping[str, Any]]) -> list[Era]:
    """The eras that a study has noted."""
    return [Era(first=int(each["first"]), factor=float(each["factor"])) for each in documents]


def label(number: int, eras: Sequence[Era], first: str) -> str:
    """The era of a trial; `first` is the name of the one in which the study began."""
    later = sum(era.first <= number for era in eras)
    return first if not later else f"{first or 'era'} {later + 1}"


def labels(trials: Sequence[Trial], eras: Sequence[Era], first: str = "") -> dict[int, str]:
    """The era of each trial."""
    return {trial.number: label(trial.number, eras, first) for trial in trials}


def shift(trials: Sequence[Trial], eras: Sequence[Era], *, usual: float = REPEAT) -> Shift:
    """What the repeats of the present era say."""
    since = eras[-1].first if eras else 0
    own = [trial for trial in trials if trial.measured and trial.number >= since]
    spread = noise(_earlier_repeats(own), labels(own, eras), usual=usual)
    differences = _differences(own, spread)
    if not differences:
        return Shift(era=None, suspected=False)
    # repeats are looked at from the last one backwards: a change concerns all that came after it
    for many in (1, 2, 3):
        last = differences[-many:]
        if len(last) < many:
            break
        weight = sum(1 / deviation**2 for _, _, _, deviation in last)
        mean = sum(difference / deviation**2 for _, _, difference, deviation in last) / weight
        if abs(mean) * math.sqrt(weight) > SURE and abs(mean) > LEAST:
            start = max(before for before, _, _, _ in last)
            end = min(after for _, after, _, _ in last)
            first = _split(own, start, end, mean) if start < end else end
            return Shift(era=Era(first=first, factor=math.exp(mean)), suspected=False)
    _, _, difference, deviation = differences[-1]
    return Shift(era=None, suspected=abs(difference) > SUSPECT * deviation and abs(difference) > LEAST)


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


def _split(own: Sequence[Trial], start: int, end: int, moved: float) -> int:
    """The trial from which on the shift makes the jobs between two repeats most likely."""
    between = [trial for trial in own if start < trial.number < end and trial.proposal.estimate_sec]
    best, first, gain = 0.0, end, 0.0
    for trial in reversed(between):
        expected = trial.proposal.estimate_sec or trial.seconds
        low, high = trial.proposal.estimate_low, trial.proposal.estimate_high
        deviation = math.log(high / low) / 2.56 if low and high else UNSEEN
        surprise = math.log(trial.seconds / expected)
        gain += (surprise**2 - (surprise - moved) ** 2) / (2 * deviation**2)
        if gain > best:
            best, first = gain, trial.number
    return first
