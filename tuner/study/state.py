"""What one process knows of a study: all trials, what they teach, who is ahead, and whether the cluster has changed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from tuner.core.outcomes import Outcome
from tuner.costmodel.calibration import Calibration
from tuner.search.candidates import CandidatePool
from tuner.search.parameter_space import ParameterSpace
from tuner.search.samplers import Proposer, proposer
from tuner.search.surrogate import Observation, Surrogate, Trust
from tuner.study import drift
from tuner.study.ranking import DAY, RankedTrial, standings
from tuner.study.store.trial import Trial
from tuner.study.store.trial_store import TrialStore


class StudyState:
    """A study, read and learnt from."""

    def __init__(
        self, pool: CandidatePool, study: TrialStore, calibration: Calibration, *, sampler: str, seed: int, trust: Trust
    ) -> None:
        self.pool, self.study = pool, study
        self.era = calibration.era
        """In which the study began."""
        self.belief = Surrogate(pool, calibration, era=self.era, trust=trust)
        self.space = ParameterSpace(pool)
        self.proposer: Proposer = proposer(sampler, self.belief, self.space, seed=seed)
        self.trials: list[Trial] = []
        self.eras: list[drift.SpeedPeriod] = []
        self.places: list[RankedTrial] = []
        self.suspected = False
        """Whether the last repeat of a topology differed more than noise does, and not enough to be sure."""
        self.open = np.ones(len(pool), dtype=np.bool_)
        """Which candidates may be proposed."""
        self._learnt: dict[int, None] = {}

    def read(self) -> drift.SpeedPeriod | None:
        """Learn from all trials that are over, whoever ran them; answers with an era where a new one was found."""
        self.trials = self.study.trials()
        known = drift.eras_of(self.study.attributes.get("eras", []))
        if known != self.eras:
            self.eras = known
            self._relabel()
        fresh = [trial for trial in self.trials if trial.ending is not None and trial.number not in self._learnt]
        for trial in fresh:
            self._learn(trial)
        self._close()
        if not fresh:
            return None
        self.places = standings(self.belief, self.trials)
        return self._changed()

    @property
    def launched(self) -> int:
        """Jobs that count in the budget."""
        return sum(trial.launched for trial in self.trials)

    @property
    def node_hours(self) -> float:
        """What the study's jobs have cost so far."""
        return sum(trial.ending.node_hours for trial in self.trials if trial.ending)

    @property
    def best(self) -> float | None:
        """Logarithm of the seconds in which the best one known finishes."""
        return math.log(self.places[0].days * DAY) if self.places else None

    def starts(self, iterations: int) -> list[float]:
        """Seconds until the first iteration was over, of the jobs that were measured."""
        endings = [trial.ending for trial in self.trials if trial.measured and trial.ending is not None]
        return [max(0.0, each.elapsed - (each.seconds or 0.0) * (iterations - 1)) for each in endings]

    def ours(self, trial: Trial) -> bool:
        """Whether the trial's candidate is one of this pool; it is unless the study was tampered with."""
        return 0 <= trial.proposal.candidate < len(self.pool)

    def _close(self) -> None:
        """No candidate is searched twice, but for one whose job said nothing of it."""
        spent: Counter[int] = Counter()
        for trial in self.trials:
            if trial.launched and self.ours(trial):
                outcome = trial.ending.outcome if trial.ending else None
                spent[trial.proposal.candidate] += 0 if outcome in UNTOLD else 1 if outcome in BY_CHANCE else CHANCES
        for candidate, times in spent.items():
            self.open[candidate] = times < CHANCES

    def _learn(self, trial: Trial) -> None:
        self._learnt[trial.number] = None
        if trial.ending is None or not self.ours(trial) or not trial.launched:
            return
        self.belief.learn(self._seen(trial))
        self.proposer.told(trial.proposal.params, trial.ending.objective if trial.measured else None)

    def _seen(self, trial: Trial) -> list[Observation]:
        """What the end of a job shows of its topology."""
        if not self.ours(trial):
            return []
        return seen_in(trial, drift.label(trial.number, self.eras, self.era))

    def _relabel(self) -> None:
        """Tell the belief which era each observation is of."""
        self.belief.relabel(self._labels(self.eras), drift.present(self.eras, self.era))
        self.places = standings(self.belief, self.trials)

    def _labels(self, eras: Sequence[drift.SpeedPeriod]) -> list[str]:
        """The era of each observation that the belief was told."""
        by_number = {trial.number: trial for trial in self.trials}
        return [drift.label(number, eras, self.era) for number in self._learnt for _ in self._seen(by_number[number])]

    def _likely(self, firsts: Sequence[int]) -> float:
        """How likely all figures are, were eras to begin at these trials."""
        return self.belief.evidence(self._labels([drift.SpeedPeriod(first=first, factor=1.0) for first in firsts]))

    def _changed(self) -> drift.SpeedPeriod | None:
        found = drift.shift(self.trials, self.eras, self._likely, usual=self.belief.trust.repeat)
        self.suspected = found.suspected
        if found.eras is None or list(found.eras) == self.eras:
            return None
        self.eras = list(found.eras)
        self.study.note("eras", [era.document() for era in self.eras])
        self._relabel()
        return self.eras[-1]


def seen_in(trial: Trial, era: str) -> list[Observation]:
    """What the end of a trial's job shows of its topology."""
    ending = trial.ending
    if ending is None or not trial.launched:
        return []
    one = Observation(candidate=trial.proposal.candidate, era=era)
    if ending.outcome is Outcome.MEASURED:
        return [replace(one, seconds=ending.seconds, memory=ending.peak_memory if ending.fullest else None, fits=True)]
    if ending.outcome is Outcome.OOM:
        return [replace(one, fits=False)]
    if ending.outcome is Outcome.PRUNED:
        return [replace(one, seconds=ending.forecast, forecast=True, fits=True)]
    return []


UNTOLD: Final = frozenset({Outcome.CANCELLED, Outcome.PREEMPTED})
"""Outcomes that say nothing of a topology: its job was lost, or stopped from outside."""

BY_CHANCE: Final = frozenset({Outcome.HUNG, Outcome.CRASHED, Outcome.TIMED_OUT})
"""Outcomes that may be the machines' and not the topology's."""

CHANCES: Final = 2
"""Times that a topology may end so."""
