"""Log finished trials to MLflow or Weights & Biases through Optuna's integrations, which are separate packages.

The study's storage stays the single source of truth. If the tracker fails, the study continues without it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import optuna

from tuner.core.errors import InputError, MissingDependency, UnknownName
from tuner.study.store.storage import understood
from tuner.study.store.storage_url import without_secrets
from tuner.study.store.trial_store import TrialStore

TRACKERS: Final = ("mlflow", "wandb")
METRIC: Final = "days"
"""Name of the objective in the tracker."""
_SERVERS: Final = ("MLFLOW_TRACKING_URI", "WANDB_BASE_URL")
"""Variables with the URL of a tracker's server, which may contain a password."""
_MLFLOW_WAITS: Final = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""MLflow's defaults, seven retries and 120 s, would stop the search, and the supervision of its jobs, for minutes."""


class Tracker:
    """An experiment tracker, opened for one study."""

    def __init__(self, name: str, study: str) -> None:
        if name not in TRACKERS:
            raise UnknownName("tracker", name, TRACKERS)
        self.name = name
        self._study: optuna.Study | None = None
        try:
            with warnings.catch_warnings():
                # Optuna warns that version 6 drops its integrations.
                warnings.simplefilter("ignore")
                self._log: Callable[..., None] = _mlflow() if name == "mlflow" else _wandb(study)
        except ImportError:
            raise MissingDependency(
                f"--track {name} needs {name} and Optuna's integration: pip install optuna-integration {name}."
            ) from None
        except Exception as error:  # whatever a server, an account or a file has to say
            raise InputError(f"--track {name} cannot start: {_first_line(error)}.") from None

    def log(self, store: TrialStore, number: int) -> str | None:
        """Log a finished trial; return the problem as a sentence if that fails, else None."""
        with understood(store.url):
            if self._study is None:
                self._study = optuna.load_study(study_name=store.name, storage=store.storage)
            trial = next(frozen for frozen in self._study.get_trials(deepcopy=False) if frozen.number == number)
        try:
            self._log(self._study, trial)
        except Exception as error:  # whatever the tracker raises, the study continues
            return f"{self.name} failed, and the study continues without it: {_first_line(error)}"
        return None

    def close(self) -> None:
        """Send buffered data."""
        if self.name == "wandb":
            import wandb

            with suppress(Exception):
                wandb.finish()


def _mlflow() -> Callable[..., None]:
    """Return a callback that logs one run per trial into an experiment per study, at `MLFLOW_TRACKING_URI`."""
    from optuna_integration.mlflow import MLflowCallback

    callback: Callable[..., None] = MLflowCallback(metric_name=METRIC)

    def logged(*parts: Any) -> None:
        added = {name: value for name, value in _MLFLOW_WAITS.items() if name not in os.environ}
        os.environ.update(added)
        try:
            callback(*parts)
        finally:
            for name in added:  # jobs, which inherit the environment, log as the user has it
                os.environ.pop(name, None)

    return logged


def _wandb(study: str) -> Callable[..., None]:
    """Return a callback that logs a search as one run; `WANDB_MODE`, `WANDB_PROJECT` and the like configure wandb."""
    from optuna_integration.wandb import WeightsAndBiasesCallback

    settings: dict[str, Any] = {"console": "off", "silent": True}
    callback: Callable[..., None] = WeightsAndBiasesCallback(
        metric_name=METRIC, wandb_kwargs={"name": study, "settings": settings}
    )
    return callback


def _first_line(error: Exception) -> str:
    """Return the first line of a message, without the secrets of the server's URL."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    for name in _SERVERS:
        line = without_secrets(line, os.environ.get(name, ""))
    return line
