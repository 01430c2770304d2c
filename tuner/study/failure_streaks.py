"""When to stop a search: its last jobs failed in the same way, for a reason independent of the topology."""

from __future__ import annotations

import re
from typing import Final

from tuner.core.outcomes import Outcome
from tuner.launch.contract import JobResult
from tuner.logs.signature import NOT_A_NUMBER
from tuner.logs.signatures import NOT_TOPOLOGICAL, REMEDIES, SEE_LOGS

MAX_ALIKE: Final = 3
"""Consecutive jobs with the same failure after which the study ends."""

_MAX_AT_ONE_TP: Final = 6
"""The same where all have the same tensor parallel degree and others are searched, which may not fail."""

_MAX_EVIDENCE_CHARS: Final = 200

_STAMP: Final = re.compile(
    r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}T?|[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?(?:[.,][0-9]+)?|\bpid\W{0,2}[0-9]+"
    r"|\b[IWEF][0-9]{4}\b|\b0x[0-9a-f]+",
    re.IGNORECASE,
)
"""What differs between the same messages of two jobs: timestamps, process ids, addresses."""


class Streaks:
    """Consecutive jobs whose logs have no measurement, or that failed in the same way."""

    def __init__(self, *, keep_going: bool, tensor_degrees: int = 1) -> None:
        """`tensor_degrees` is the number of tensor parallel degrees that the study searches."""
        self._keep_going = keep_going
        self._searches_tp = tensor_degrees > 1
        self._failed_tp = set[int]()
        self._unreadable = self._alike = 0
        self._last = ""
        self._any_measured = False

    def after(self, result: JobResult, tp: int = 1) -> str:
        """Return why the search ends after the next job; empty if it goes on."""
        self._any_measured |= result.outcome is Outcome.MEASURED
        self._unreadable = self._unreadable + 1 if result.outcome is Outcome.UNREADABLE else 0
        cause = self._cause(result)
        self._alike = 0 if not cause else self._alike + 1 if cause == self._last else 1
        self._failed_tp = {*(self._failed_tp if cause == self._last else ()), tp}
        self._last = cause
        if self._unreadable >= MAX_ALIKE:
            why = f": {result.evidence}" if result.evidence else ""
            return f"the last {self._unreadable} jobs succeeded, but none could be measured{why}"
        may_depend = self._searches_tp and len(self._failed_tp) == 1 and result.reason not in NOT_TOPOLOGICAL
        if self._alike < (_MAX_AT_ONE_TP if may_depend else MAX_ALIKE) or self._keep_going:
            return ""
        remedy = REMEDIES.get(result.reason, SEE_LOGS)
        if may_depend:
            remedy += f"; to search other degrees only, leave {tp} out of --set tp=..."
        return (
            f"the last {self._alike} jobs failed in the same way, "
            f"{f'all with tp {tp}' if may_depend else 'whatever the topology'}: {result.reason} "
            f"({result.evidence[:_MAX_EVIDENCE_CHARS]}); {remedy}; to continue anyway, pass --keep-going"
        )

    def _cause(self, result: JobResult) -> str:
        """Return the reason for which other topologies would fail too; empty if one may not.

        An unknown failure counts where its message names nothing of the topology: it is the same in each job, but for
        timestamps and process ids, and no job has been measured.
        """
        if result.outcome is not Outcome.CRASHED:
            return ""
        if result.reason in NOT_TOPOLOGICAL:
            return result.reason
        if self._any_measured or not result.evidence:
            return ""
        message = "" if result.reason == NOT_A_NUMBER else _STAMP.sub("", result.evidence)
        return f"{result.reason}: {message}"
