"""What is shown while a search runs: a live view on a terminal, plain lines elsewhere; both on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tuner.study.loop import StudyEvent, StudyLoop
    from tuner.study.setup import Begun, Request
    from tuner.study.store.trial import Trial


EVIDENCE: Final = 90
"""Characters of a log's line that are shown; the whole of it is in the study."""


class EventLines:
    """One line for each thing that happens."""

    def __init__(self) -> None:
        self._label = ""

    def begin(self, begun: Begun, request: Request) -> None:
        """Say what is searched and where it is kept."""
        self._label = "SIMULATED " if begun.setup.launcher.simulated else ""
        for line in opening(begun, request):
            self._print(line)

    @contextmanager
    def live(self, tuning: StudyLoop) -> Iterator[None]:
        """Nothing more than the lines."""
        self._tuning = tuning
        yield

    def event(self, event: StudyEvent) -> None:
        """One line."""
        if event.kind != "started":
            self._print(f"{self._label}{described(event)}")

    def _print(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


class LiveView:
    """A few lines that are drawn anew whenever anything happens."""

    def __init__(self) -> None:
        self._tuning: StudyLoop | None = None
        self._live: Any = None
        self._last = self._next = ""
        self._label = ""

    def begin(self, begun: Begun, request: Request) -> None:
        """Say what is searched and where it is kept."""
        self._label = "SIMULATED " if begun.setup.launcher.simulated else ""
        for line in opening(begun, request):
            print(line, file=sys.stderr)

    @contextmanager
    def live(self, tuning: StudyLoop) -> Iterator[None]:
        """Draw until the end."""
        from rich.console import Console
        from rich.live import Live as Screen

        self._tuning = tuning
        with Screen(console=Console(stderr=True), refresh_per_second=8, transient=True) as self._live:
            yield
        self._live = None

    def event(self, event: StudyEvent) -> None:
        """Note what happened and draw."""
        line = described(event)
        if event.kind == "started" and event.trial is not None:
            self._next = f"{event.trial.proposal.key}: {event.text}"
        else:
            self._last = line
        if self._live is None:
            print(f"{self._label}{line}", file=sys.stderr)
            return
        with suppress(UnicodeEncodeError):
            self._live.update(self._picture())

    def _picture(self) -> Any:
        from rich.table import Table

        assert self._tuning is not None  # noqa: S101 - nothing is drawn before `live`
        known, limits = self._tuning.known, self._tuning.setup.limits
        from tuner.core.text import between, node_time

        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True, min_width=len(f"{self._label}best"))
        grid.add_column(overflow="ellipsis", no_wrap=True, ratio=1)
        best = known.places[0] if known.places else None
        grid.add_row(f"{self._label}best", best.key if best else "nothing measured yet")
        if best:
            grid.add_row("finishes in", between(best.days, best.low, best.high))
        grid.add_row("jobs", f"{known.launched} of {limits.budget}, {node_time(known.node_hours)}")
        grid.add_row("last", self._last)
        grid.add_row("next", self._next)
        return grid


def opening(begun: Begun, request: Request) -> list[str]:
    """What is searched, by whom, and where it is kept."""
    from tuner.cli.output import space_lines
    from tuner.core.text import counted

    setup = begun.setup
    lines = [] if request.table is not None else space_lines(request.space)
    where = {
        "simulated": f"on the SIMULATED cluster of seed {request.seed}: invented figures, no job runs",
        "replay": f"on what {request.table.name} says" if request.table else "",
    }.get(setup.launcher.name, f"by the launcher {setup.launcher.name}")
    lines.append(f"{len(setup.pool):,} legal topologies, at most {counted(setup.limits.budget, 'job')} {where}")
    if begun.resumed:
        lines.append(f"goes on with study {setup.study.name}: {counted(begun.resumed, 'trial')} so far")
    return lines


def described(event: StudyEvent) -> str:
    """An event in one line."""
    trial = event.trial
    if trial is None:
        return event.text
    if event.kind == "ended":
        return f"{trial.number:>4} {trial.proposal.key}: {ended(trial)}"
    return f"{trial.number:>4} {trial.proposal.key}: {event.kind}, {event.text}"


def ended(trial: Trial) -> str:
    """How a job ended, and what was learnt."""
    from tuner.core.text import seconds, span

    ending, proposal = trial.ending, trial.proposal
    if ending is None:
        return "running"
    if ending.seconds is None:
        line = (ending.evidence or ending.reason).removeprefix("SIMULATED ")
        return f"{ending.outcome.value} {line if len(line) <= EVIDENCE else line[: EVIDENCE - 3] + '...'}".strip()
    says = f"{seconds(ending.seconds)} s, {span(ending.objective or 0.0)}"
    if proposal.estimate_sec:
        off = ending.seconds / proposal.estimate_sec - 1
        says += f", {abs(off):.1%} {'more' if off > 0 else 'less'} than expected"
    if ending.reason:
        says += f"; {ending.reason}"
    if ending.retried:
        says += f"; run again, for {ending.retried}"
    return says if proposal.kind == "search" else f"{says} ({proposal.kind})"
