"""When a study ends, how much of it is reserved for the final round, and how far it trusts model and single runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tuner.core.errors import InputError
from tuner.core.text import shown
from tuner.core.validation import plain
from tuner.search.observations import Trust

FINAL_SHARE: Final = 0.15
"""Share of the budget that is reserved for separating the leader from its rivals."""

MIN_LEADER_RUNS: Final = 2
"""Measured runs that the leader has before the study ends."""

SEARCH_OVER: Final = "{0.search} of {0.budget} jobs are used; the other {0.final} are reserved for repeats"
NO_REPEAT: Final = "no further repeat is worth its cost; {0.final} of the {0.budget} jobs were reserved for repeats"
"""Why the search ends when its share of the budget is used, and why the study then ends without using the rest."""

LEADER_RAN_ONCE: Final = "repeated because the leader has run only once"
"""Why a leader with fewer runs is repeated, as stored with the trial."""

REFERENCE_RUNS: Final = 4
"""Reference runs in a search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a study; the first one reached ends it."""

    budget: int = 40
    """Launched jobs."""
    node_hours: float | None = None
    deadline: float | None = None
    """Seconds since the study began, by the launcher's clock."""
    patience: int | None = None
    """Consecutive jobs without an improvement."""
    stop_when_unprofitable: bool = False
    """Whether to stop when the next job would cost more node-hours than it is expected to save."""

    def __post_init__(self) -> None:
        for name in ("budget", "node_hours", "deadline", "patience"):
            object.__setattr__(self, name, plain(getattr(self, name)))
        for name, count in (("budget", self.budget), ("patience", self.patience)):
            if type(count) is not int and (name == "budget" or count is not None):
                raise InputError(f"--{name} must be a whole number, not {shown(count)}.")
        for name, amount in (("node-hours", self.node_hours), ("deadline", self.deadline)):
            if isinstance(amount, bool) or not isinstance(amount, int | float | None):
                raise InputError(f"--{name} must be a number, not {shown(amount)}.")
        if self.budget < 1:
            raise InputError(f"--budget must be at least 1 (got {self.budget}); use tuner plan to launch nothing.")
        if self.patience is not None and self.patience < 1:
            raise InputError(f"--patience must be at least 1 (got {self.patience}).")
        for name, value in (("node-hours", self.node_hours), ("deadline", self.deadline)):
            if value is not None and not 0 < value < math.inf:
                raise InputError(f"--{name} must be greater than 0.")

    def document(self) -> dict[str, Any]:
        """Return the limits as JSON, under the names that studies store."""
        return {
            "budget": self.budget,
            "node_hours": self.node_hours,
            "deadline": self.deadline,
            "patience": self.patience,
            "worth": self.stop_when_unprofitable,
        }

    @property
    def final(self) -> int:
        """Jobs that are reserved for the final round."""
        return 0 if self.budget <= 6 else max(2, round(FINAL_SHARE * self.budget))

    @property
    def search(self) -> int:
        """Jobs after which the search ends."""
        return self.budget - self.final

    @property
    def reference_interval(self) -> int:
        """Jobs from one reference run to the next."""
        return max(6, self.search // REFERENCE_RUNS)


CPU_TRUST: Final = Trust(repeat=0.10, unsure=4.0, factors=4.0)
"""On a machine's processors, which other programs share: eight runs of one topology have differed by a third, and the
cost model was not made for them."""


def trust_for(settings: Mapping[str, Any]) -> Trust:
    """Return how far a study may rely on the cost model and on a single run."""
    return CPU_TRUST if settings.get("accelerator") == "cpu" else Trust()
