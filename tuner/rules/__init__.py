"""What a topology must satisfy.

A **law** is what DeepSpeed, Megatron or arithmetic refuses. A **policy** is this site's choice and can be switched
off by its name. **Advice** marks what is slow and never rejects.
"""

from tuner.rules.rule import Level, Rule
from tuner.rules.ruleset import RuleSet
from tuner.rules.table import BY_NAME, POLICIES, RULES

__all__ = ["BY_NAME", "POLICIES", "RULES", "Level", "Rule", "RuleSet"]
