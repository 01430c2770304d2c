"""Figures that cannot be true, found by general laws, and what would mend them. Pure over the rows of a table
or the runs of a log."""

from tuner.audit.checks import STAGES, audit
from tuner.audit.logged import UNEXPLAINED_TFLOPS, Contradiction, audit_run
from tuner.audit.repair import Finding, Repair, Severity, fixed
from tuner.audit.speed_periods import eras

__all__ = [
    "STAGES",
    "UNEXPLAINED_TFLOPS",
    "Contradiction",
    "Finding",
    "Repair",
    "Severity",
    "audit",
    "audit_run",
    "eras",
    "fixed",
]
