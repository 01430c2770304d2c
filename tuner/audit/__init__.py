"""Figures that cannot be true, found by general laws, and what would mend them. Pure over the rows of a table."""

from tuner.audit.checks import STAGES, audit
from tuner.audit.eras import eras
from tuner.audit.finding import Finding, Repair, Severity
from tuner.audit.fixing import fixed

__all__ = ["STAGES", "Finding", "Repair", "Severity", "audit", "eras", "fixed"]
