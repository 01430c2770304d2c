"""The table of all rules, and the subset that a study applies.

The table lists laws, then policies, then advice.

Each condition is one expression over columns, so that the same code evaluates one topology or a million.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tuner.core.columns import Columns
from tuner.core.domain import Workload
from tuner.core.errors import InputError, UnknownName
from tuner.core.outcomes import Violation
from tuner.space.rules import policies
from tuner.space.rules.advice import ADVICE
from tuner.space.rules.delta_laws import DELTA_LAWS
from tuner.space.rules.expert_laws import EXPERT_LAWS
from tuner.space.rules.framework_laws import FRAMEWORK_LAWS
from tuner.space.rules.laws import GENERAL_LAWS
from tuner.space.rules.recompute_laws import RECOMPUTE_LAWS
from tuner.space.rules.rule import Rule

FORMER_NAMES: Final = {"tp-in-node": "tp-in-nvlink-domain"}
"""Former names of rules, which stored studies and scripts may use, and their current names."""

_A: Final = {"law": "a law", "policy": "a policy", "advice": "advice, which never rejects,"}


def current_name(rule: str) -> str:
    """Return the present name of a rule, which may be given by a former one."""
    return FORMER_NAMES.get(rule, rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSet:
    """The rules of a study: all laws, and the policies that are not disabled."""

    allowed: frozenset[str] = frozenset()
    """Names of the disabled policies."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "allowed", frozenset(map(current_name, self.allowed)))
        for name in self.allowed:
            rule = BY_NAME.get(name)
            if rule is None:
                raise UnknownName("policy", name, POLICIES, remedy="See `tuner rules`.")
            if rule.level != "policy":
                raise InputError(
                    f"{name} is {_A[rule.level]} and cannot be allowed; policies are {', '.join(POLICIES)}."
                )

    @classmethod
    def only_laws(cls) -> RuleSet:
        """Return the rules that apply at any site: the laws without policies."""
        return cls(allowed=frozenset(POLICIES))

    def in_force(self, workload: Workload) -> tuple[Rule, ...]:
        """Return the rules that can reject topologies of a workload, in the order of the table."""
        rejecting = (rule for rule in RULES if rule.level != "advice" and rule.name not in self.allowed)
        return tuple(rule for rule in rejecting if rule.binding(workload))

    def violations(self, columns: Columns) -> list[Violation]:
        """Return all violations of the only row of `columns`."""
        results = (rule.violation(columns) for rule in self.in_force(columns.workload))
        return [violation for violation in results if violation]


LAWS: Final[tuple[Rule, ...]] = (*GENERAL_LAWS, *EXPERT_LAWS, *DELTA_LAWS, *RECOMPUTE_LAWS, *FRAMEWORK_LAWS)
RULES: Final[tuple[Rule, ...]] = (*LAWS, *policies.POLICIES, *ADVICE)
BY_NAME: Final = {rule.name: rule for rule in RULES}
POLICIES: Final = tuple(rule.name for rule in policies.POLICIES)
"""The names that `--allow` accepts."""

FIRST_POLICIES: Final = tuple(name for name in POLICIES if name != "head-size")
"""The policies of documents written before policies were listed in them."""
