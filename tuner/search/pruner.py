"""Prune running jobs that can no longer beat the best one, whatever the noise."""

from __future__ import annotations

import optuna
from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial, TrialState


class CannotWin(BasePruner):
    """Prunes a trial whose last reported value, a bound on its days, is worse than the best by more than the noise."""

    def __init__(self, allowance: float) -> None:
        self.allowance = allowance

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Return whether the trial can no longer be the best one."""
        complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        done = [measured.value for measured in complete if measured.value]
        if not done or not trial.intermediate_values:
            return False
        last = trial.intermediate_values[max(trial.intermediate_values)]
        return last > min(done) * (1 + self.allowance)


class Referee:
    """Applies the pruner to running jobs."""

    def __init__(self, allowance: float) -> None:
        self._pruner = CannotWin(allowance)
        self._best: float | None = None
        self._study = optuna.create_study(pruner=self._pruner)

    def measured(self, days: float, *, allowance: float) -> None:
        """Set the days in which the best topology finishes, and the share by which others may be behind."""
        self._pruner.allowance = allowance
        if days != self._best:
            self._best = days
            self._study = optuna.create_study(pruner=self._pruner)
            self._study.add_trial(optuna.create_trial(value=days))

    def stops(self, least_days: float, step: int) -> bool:
        """Return whether a job that needs at least this many days should be stopped."""
        trial = optuna.create_trial(state=TrialState.RUNNING, intermediate_values={step: least_days})
        return self._pruner.prune(self._study, trial)
