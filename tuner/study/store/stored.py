"""Read what a database stores of a study. An error names the trial whose content cannot be read."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from functools import cache
from types import NoneType
from typing import Any, Final, get_type_hints

from optuna.trial import FrozenTrial, TrialState

from tuner import __version__
from tuner.core.documents import cluster_of, topology_of, workload_of
from tuner.core.domain import Cluster, Workload
from tuner.core.errors import InputError, StudyError
from tuner.core.outcomes import Outcome
from tuner.core.text import shown
from tuner.launch.contract import JobResult
from tuner.study.store.trial import Trial, proposal_of, result_of

SCHEMA_VERSION: Final = 1
SCHEMA: Final = f"tuner/study/{SCHEMA_VERSION}"

UNREADABLE_ERRORS: Final = (AttributeError, InputError, KeyError, LookupError, TypeError, ValueError)
"""Exceptions raised by decoding content that tuner did not write."""


def settings_of(attribute: Any, study: str) -> dict[str, Any]:
    """Return a study's settings. Raise a `StudyError` if another program, or a later version of tuner, wrote them."""
    schema = attribute.get("schema") if isinstance(attribute, Mapping) else None
    version = re.fullmatch(r"tuner/study/([0-9]{1,9})", schema) if isinstance(schema, str) else None
    if version is None:
        raise StudyError(f"study {study!r} was not created by tuner.")
    if int(version[1]) > SCHEMA_VERSION:
        raise StudyError(
            f"study {study!r} was started by a later version of tuner, with schema {schema}; {__version__} reads up to "
            f"{SCHEMA}: pip install --upgrade tuner."
        )
    parts = ("workload", "cluster", "rules", "axes", "trainer_files")
    wrong = [name for name in parts if not isinstance(attribute.get(name, {}), dict)]
    if wrong or not isinstance(attribute.get("parts", []), list):
        command = shlex.join(["tuner", "recover", study])
        raise StudyError(
            f"the {(wrong or ['parts'])[0]} of study {study!r} cannot be read: restore its database from a backup, or "
            f"move it away and rebuild it with '{command}'."
        )
    return dict(attribute)


def parts_of(settings: Mapping[str, Any], name: str) -> list[tuple[Workload, Cluster]]:
    """Return the workload and the cluster of each part of the pool that the study searches."""
    parts = [settings] if "workload" in settings else settings.get("parts", [])
    if not parts:
        raise StudyError(f"the settings of study {name!r} cannot be read: they describe no workload.")
    try:
        return [(workload_of(part["workload"]), cluster_of(part["cluster"])) for part in parts]
    except (AttributeError, InputError, KeyError, TypeError) as error:
        raise StudyError(f"the settings of study {name!r} cannot be read: {error}") from None


STATES: Final[Mapping[Outcome, TrialState]] = {
    Outcome.MEASURED: TrialState.COMPLETE,
    Outcome.PRUNED: TrialState.PRUNED,
    Outcome.REJECTED: TrialState.PRUNED,
}
"""Optuna's trial state for an outcome; every other outcome is FAIL."""


def state_of(result: JobResult) -> tuple[TrialState, float | None]:
    """Return Optuna's state for a finished trial, and its objective if it has one."""
    state = STATES.get(result.outcome, TrialState.FAIL)
    if state is TrialState.COMPLETE and result.objective is None:
        return TrialState.PRUNED, None  # measured at a reduced size: Optuna's best value is of the full size
    return state, result.objective if state is TrialState.COMPLETE else None


def trial_of(frozen: FrozenTrial) -> Trial:
    """Return a stored trial. Raise a `ValueError` with the reason if it cannot be read."""
    attributes = frozen.user_attrs
    try:
        result = attributes.get("ending")
        if result is None and frozen.state.is_finished():  # closed by hand, as in the dashboard
            result = {"outcome": Outcome.CANCELLED.value, "reason": "closed outside of tuner"}
        proposal = proposal_of(attributes["proposal"], frozen.params)
        _check(proposal)
        topology_of(proposal.topology)
        trial = Trial(
            number=_checked_number(frozen.number),
            proposal=proposal,
            result=result_of(result) if result else None,
            handle=attributes.get("handle"),
            hung=result_of(attributes["hung"]) if "hung" in attributes else None,
        )
        if trial.result is not None:
            _check_result(trial)
    except UNREADABLE_ERRORS as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    return trial


def _check_result(trial: Trial) -> None:
    result = trial.result
    assert result is not None  # noqa: S101 - the caller has asked
    for part in (result, result.measurement, result.failure):
        if part is not None:
            _check(part)
    iterations = result.measurement.iterations if result.measurement else ()
    batches = result.measurement.batch_seconds if result.measurement else ()
    for time in (result.seconds, result.objective, result.forecast, result.least, *iterations, *batches):
        if time is not None and not 0 < time < math.inf:
            raise ValueError(f"a time is {shown(time)}")
    if (trial.measured or trial.measured_reduced) and result.seconds is None:
        raise ValueError("it is MEASURED without a time")


def _checked_number(number: Any) -> int:
    if not isinstance(number, int) or number < 0:
        raise ValueError(f"its number is {shown(number)}")
    return number


def _check(value: Any) -> None:
    """Raise a `ValueError` unless a dataclass's numbers are finite and its fields have the types that it declares."""
    for name, types in _types(value.__class__):
        given = getattr(value, name)
        if not isinstance(given, types) or (isinstance(given, float) and not math.isfinite(given)):
            raise ValueError(f"its {name} is {shown(given)}")


_TYPES: Final[Mapping[Any, tuple[type, ...]]] = {
    str: (str,),
    int: (int,),
    bool: (bool,),
    float: (int, float),
    float | None: (int, float, NoneType),
    Mapping[str, Any]: (Mapping,),
    Outcome: (Outcome,),
}
"""Types of the values of a field, by its annotation; fields with another one are not checked."""


@cache
def _types(owner: type) -> list[tuple[str, tuple[type, ...]]]:
    return [(name, _TYPES[hint]) for name, hint in get_type_hints(owner).items() if hint in _TYPES]
