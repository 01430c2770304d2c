"""When a study ends, and how much of it is kept for the final round.

How far a study may rely on the model and on a single run: whoever searches and whoever reads it believe the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tuner.core.errors import InputError
from tuner.search.surrogate import Trust

FINAL: Final = 0.15
"""Share of the budget for telling the best few apart."""

REFERENCES: Final = 4
"""Into how many stretches the search is cut by reference runs."""


NEGLIGIBLE: Final = 0.0002
"""Share of the time to finish that a job must be expected to save."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a study may use; whichever is reached first ends it."""

    budget: int = 40
    """Launched jobs."""
    node_hours: float | None = None
    deadline: float | None = None
    """Seconds since the study began, by the launcher's clock."""
    patience: int | None = None
    """Jobs in a row that may bring nothing better."""
    worth: bool = False
    """Whether to stop when the next job no longer pays."""

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise InputError(f"--budget {self.budget} launches nothing; give at least 1, or use tuner plan.")
        if self.patience is not None and self.patience < 1:
            raise InputError(f"--patience {self.patience} is less than one job.")
        for name, value in (("node-hours", self.node_hours), ("deadline", self.deadline)):
            if value is not None and not 0 < value < math.inf:
                raise InputError(f"--{name} must be more than 0.")

    @property
    def final(self) -> int:
        """Jobs that are kept for the final round."""
        return 0 if self.budget <= 6 else max(2, round(FINAL * self.budget))

    @property
    def search(self) -> int:
        """Jobs after which nothing more is searched for."""
        return self.budget - self.final

    @property
    def stretch(self) -> int:
        """Jobs from one reference run to the next."""
        return max(6, self.search // REFERENCES)


HOST: Final = Trust(repeat=0.10, unsure=4.0)
"""On a machine's processors, shared with everything else: eight runs of one topology have differed by a third, and the
model was not made for them."""


def trust_for(about: Mapping[str, Any]) -> Trust:
    """How far the model and a single run can be relied on in a study, by what it is about."""
    return HOST if about.get("accelerator") == "cpu" else Trust()
