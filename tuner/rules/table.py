"""All rules, one table: laws, then policies, then advice.

Each condition is one expression over columns, so that it judges a million topologies or one and cannot disagree with
itself.
"""

from __future__ import annotations

from typing import Final

from tuner.rules import policies
from tuner.rules.advice import ADVICE
from tuner.rules.laws import LAWS
from tuner.rules.rule import Rule

RULES: Final[tuple[Rule, ...]] = (*LAWS, *policies.POLICIES, *ADVICE)
BY_NAME: Final = {rule.name: rule for rule in RULES}
POLICIES: Final = tuple(rule.name for rule in policies.POLICIES)
"""The names that `--allow` takes."""
