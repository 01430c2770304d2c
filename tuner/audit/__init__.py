"""Find impossible figures in a table or a log by general laws, and suggest repairs. Pure: no I/O."""

from tuner.audit.checks import STAGES, audit
from tuner.audit.log_checks import UNEXPLAINED_TFLOPS, Contradiction, audit_run
from tuner.audit.repair import Finding, Repair, Severity, fixed
from tuner.audit.speed_periods import period_labels

__all__ = [
    "STAGES",
    "UNEXPLAINED_TFLOPS",
    "Contradiction",
    "Finding",
    "Repair",
    "Severity",
    "audit",
    "audit_run",
    "fixed",
    "period_labels",
]
