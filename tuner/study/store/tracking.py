"""Trials told to MLflow or Weights & Biases as they end, by Optuna's own integrations, which are installed apart.

A tracker is a looking-glass and never the truth: what it misses stands in the study, and a tracker that fails is left
alone while the study goes on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import optuna

from tuner.core.errors import InputError, MissingDependency, UnknownName
from tuner.study.store.trial_store import TrialStore

TRACKERS: Final = ("mlflow", "wandb")
METRIC: Final = "days"
"""What the objective is called there."""


class Tracker:
    """One of the two, opened for the study of a name."""

    def __init__(self, name: str, study: str) -> None:
        if name not in TRACKERS:
            raise UnknownName("tracker", name, TRACKERS)
        self.name = name
        self._study: optuna.Study | None = None
        try:
            with warnings.catch_warnings():
                # Optuna means to drop its integrations in version 6, which is not the user's to read in a search.
                warnings.simplefilter("ignore")
                self._tell: Callable[..., None] = _mlflow() if name == "mlflow" else _wandb(study)
        except ImportError:
            raise MissingDependency(
                f"--track {name} needs {name} and Optuna's integration: pip install optuna-integration {name}."
            ) from None
        except Exception as error:  # whatever a server, an account or a file has to say
            raise InputError(f"--track {name} cannot begin: {_first_line(error)}.") from None

    def tell(self, study: TrialStore, number: int) -> str | None:
        """Tell of a trial that has ended; why it could not be told, where it could not."""
        if self._study is None:
            self._study = optuna.load_study(study_name=study.name, storage=study.storage)
        trial = next(each for each in self._study.get_trials(deepcopy=False) if each.number == number)
        try:
            self._tell(self._study, trial)
        except Exception as error:  # a server that is away costs its own figures and not the study
            return f"{self.name} is told no more: {_first_line(error)}"
        return None

    def close(self) -> None:
        """Send what waits."""
        if self.name == "wandb":
            import wandb

            with suppress(Exception):
                wandb.finish()


def _mlflow() -> Callable[..., None]:
    """One experiment a study, one run a trial; `MLFLOW_TRACKING_URI` says where."""
    from optuna_integration.mlflow import MLflowCallback

    told: Callable[..., None] = MLflowCallback(metric_name=METRIC)
    return told


def _wandb(study: str) -> Callable[..., None]:
    """One run a search; `WANDB_MODE`, `WANDB_PROJECT` and the like are wandb's own."""
    from optuna_integration.wandb import WeightsAndBiasesCallback

    settings: dict[str, Any] = {"console": "off", "silent": True}
    told: Callable[..., None] = WeightsAndBiasesCallback(
        metric_name=METRIC, wandb_kwargs={"name": study, "settings": settings}
    )
    return told


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
