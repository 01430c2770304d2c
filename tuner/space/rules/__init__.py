"""What a topology must satisfy.

A **law** is what DeepSpeed, Megatron or arithmetic refuses. A **policy** is this site's choice and can be switched
off by its name. **Advice** marks what is slow and never rejects.
"""

from tuner.space.rules.rule import Level, Rule
from tuner.space.rules.ruleset import BY_NAME, FIRST_POLICIES, POLICIES, RULES, RuleSet

__all__ = ["BY_NAME", "FIRST_POLICIES", "POLICIES", "RULES", "Level", "Rule", "RuleSet"]
