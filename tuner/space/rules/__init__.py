"""The rules for topologies.

A **law** is a constraint of DeepSpeed, Megatron or arithmetic. A **policy** is a choice of this site and can be
disabled by name. **Advice** marks slow topologies and never rejects.
"""

from tuner.space.rules.framework_laws import OF_EXPERTS, frameworks_with_more
from tuner.space.rules.rule import Level, Rule
from tuner.space.rules.ruleset import BY_NAME, FIRST_POLICIES, POLICIES, RULES, RuleSet, current_name

__all__ = [
    "BY_NAME",
    "FIRST_POLICIES",
    "OF_EXPERTS",
    "POLICIES",
    "RULES",
    "Level",
    "Rule",
    "RuleSet",
    "current_name",
    "frameworks_with_more",
]
