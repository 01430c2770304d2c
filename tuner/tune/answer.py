"""What a study has found: the winner, how sure it is, what it is worth and what it cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.core.outcomes import Outcome
from tuner.launch.excluded_nodes import excluded_nodes
from tuner.search.record import Trial
from tuner.tune.eras import Era
from tuner.tune.loop import Tuning
from tuner.tune.mishaps import mishaps
from tuner.tune.standing import Place, rivals


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Of a study as it stands."""

    study: str
    launcher: str
    simulated: bool
    trials: tuple[Trial, ...]
    places: tuple[Place, ...]
    """All measured topologies, the best first."""
    equals: tuple[Place, ...]
    """Those that cannot be told apart from the best."""
    first: Place | None
    """The first topology that was measured."""
    favourite: Trial | None
    """The first one proposed: what the model alone would have chosen."""
    outcomes: dict[str, int]
    jobs: int
    node_hours: float
    eras: tuple[Era, ...]
    ended: str
    """Why nothing more is launched; empty where it was interrupted."""
    running: tuple[Trial, ...]
    excluded: dict[str, str]
    """Nodes that have failed and are left out, and why."""

    @property
    def mishaps(self) -> str:
        """A sentence about these, and about jobs that were run again; empty where there are none."""
        return mishaps(self.excluded, self.trials)

    @property
    def best(self) -> Place | None:
        """The winner."""
        return self.places[0] if self.places else None


def answer(tuning: Tuning) -> Answer:
    """What is known now."""
    known = tuning.known
    launched = [trial for trial in known.trials if trial.launched]
    measured = [trial for trial in launched if trial.measured]
    return Answer(
        study=tuning.study.name,
        launcher=tuning.launcher.name,
        simulated=tuning.launcher.simulated,
        trials=tuple(known.trials),
        places=tuple(known.places),
        equals=tuple(rivals(known.places)),
        first=_place_of(known.places, measured[0]) if measured else None,
        favourite=launched[0] if launched else None,
        outcomes=dict(Counter(trial.ending.outcome.value for trial in launched if trial.ending).most_common()),
        jobs=len(launched),
        node_hours=known.node_hours,
        eras=tuple(known.eras),
        ended=tuning.chooser.finished or "",
        running=tuple(trial for trial in launched if trial.ending is None),
        excluded=excluded_nodes(tuning.setup.folder),
    )


def gain(answer: Answer, over: Place | None) -> float | None:
    """By what share the winner finishes sooner than another one."""
    if answer.best is None or over is None:
        return None
    return 1 - answer.best.days / over.days


def favourite_place(answer: Answer) -> Place | None:
    """Where the model's own favourite has ended; None where it was not measured."""
    trial = answer.favourite
    if trial is None or trial.ending is None or trial.ending.outcome is not Outcome.MEASURED:
        return None
    return _place_of(answer.places, trial)


def _place_of(places: Sequence[Place], trial: Trial) -> Place | None:
    return next((place for place in places if place.candidate == trial.proposal.candidate), None)
