"""The rules that one study keeps.

All rules, one table: laws, then policies, then advice.

Each condition is one expression over columns, so that it judges a million topologies or one and cannot disagree with
itself.
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
from tuner.space.rules.laws import LAWS
from tuner.space.rules.rule import Rule

_A: Final = {"law": "a law", "policy": "a policy", "advice": "advice, which never rejects,"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSet:
    """The rules of a study: all laws, and the policies that the site keeps."""

    allowed: frozenset[str] = frozenset()
    """Policies that are switched off."""

    def __post_init__(self) -> None:
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
        """What holds anywhere: another site's policies are not this one's."""
        return cls(allowed=frozenset(POLICIES))

    def in_force(self, workload: Workload) -> tuple[Rule, ...]:
        """The rules that reject, in the order of the table."""
        rejecting = (rule for rule in RULES if rule.level != "advice" and rule.name not in self.allowed)
        return tuple(rule for rule in rejecting if rule.binding(workload))

    def violations(self, columns: Columns) -> list[Violation]:
        """Every rule that the one row of `columns` breaks."""
        found = (rule.violation(columns) for rule in self.in_force(columns.workload))
        return [violation for violation in found if violation]


RULES: Final[tuple[Rule, ...]] = (*LAWS, *policies.POLICIES, *ADVICE)
BY_NAME: Final = {rule.name: rule for rule in RULES}
POLICIES: Final = tuple(rule.name for rule in policies.POLICIES)
"""The names that `--allow` takes."""

FIRST_POLICIES: Final = tuple(name for name in POLICIES if name != "head-size")
"""The policies of a document that does not list them: those that there were before it did."""
