"""Figures that cannot be true, found by general laws, and what would mend them. Pure over the rows of a table
or the runs of a log."""

from tuner.audit.checks import STAGES, audit
from tuner.audit.eras import eras
from tuner.audit.finding import Finding, Repair, Severity
from tuner.audit.fixing import fixed
from tuner.audit.logged import Contradiction, audit_run

__all__ = ["STAGES", "Contradiction", "Finding", "Repair", "Severity", "audit", "audit_run", "eras", "fixed"]
