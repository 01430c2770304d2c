"""Output of a running search: a live view on a terminal, otherwise plain lines; both on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tuner.study.loop import StudyLoop
    from tuner.study.settings import StudyEvent
    from tuner.study.store.trial import Trial


MAX_EVIDENCE: Final = 90
"""Characters of a log line that are shown; the study stores all of it."""


FINISHES: Final = "finishes in"
"""Name of the line with the training time of the best topology."""


class EventLines:
    """Prints one line for each event."""

    def __init__(self) -> None:
        self._label = ""

    @contextmanager
    def live(self, loop: StudyLoop) -> Iterator[None]:
        """Print the opening lines; event lines follow."""
        self._label = "SIMULATED " if loop.launcher.simulated else ""
        for line in opening(loop):
            print(line, file=sys.stderr, flush=True)
        yield

    def event(self, event: StudyEvent) -> None:
        """Print an event."""
        if event.kind != "started":
            print(f"{self._label}{event_line(event)}", file=sys.stderr, flush=True)


class LiveView:
    """Redraws a few lines and a progress bar whenever anything happens."""

    def __init__(self) -> None:
        self._loop: StudyLoop | None = None
        self._screen: Any = None
        self._bar: Any = None
        self._last = self._next = ""
        self._label = ""

    @contextmanager
    def live(self, loop: StudyLoop) -> Iterator[None]:
        """Draw until the end."""
        from rich.console import Console
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._loop, self._began, self._done_before = loop, time.monotonic(), _done(loop.store.trials())
        self._label = "SIMULATED " if loop.launcher.simulated else ""
        for line in opening(loop):
            print(line, file=sys.stderr)
        console = Console(stderr=True)
        end = TextColumn("{task.fields[left]}")
        self._bar = Progress(
            TextColumn("trials"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), end, console=console
        )
        self._bar.add_task("", total=loop.settings.limits.budget, left="")
        with Live(console=console, refresh_per_second=8, transient=True) as self._screen:
            yield
        self._screen = None

    def event(self, event: StudyEvent) -> None:
        """Draw an event."""
        line = event_line(event)
        if event.kind == "started" and event.trial is not None:
            self._next = f"{event.trial.proposal.key}: {event.text}"
        else:
            self._last = line
        if self._screen is None:
            print(f"{self._label}{line}", file=sys.stderr)
            return
        with suppress(UnicodeEncodeError):
            self._screen.update(self._picture())

    def _picture(self) -> Any:
        from rich.console import Group
        from rich.table import Table

        from tuner.core.text import between, node_time

        assert self._loop is not None  # noqa: S101 - nothing is drawn before `live`
        state = self._loop.state
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True, min_width=max(map(len, (f"{self._label}best", FINISHES))))
        grid.add_column(overflow="ellipsis", no_wrap=True, ratio=1)
        best = state.ranking[0] if state.ranking else None
        grid.add_row(f"{self._label}best", best.key if best else "nothing measured yet")
        if best:
            extrapolated = " (extrapolated)" if best.extrapolated else ""
            grid.add_row(FINISHES, between(best.days, best.low, best.high) + extrapolated)
        grid.add_row("cost", node_time(state.node_hours))
        grid.add_row("last", self._last)
        grid.add_row("next", self._next)
        done = _done(state.trials)
        self._bar.update(self._bar.task_ids[0], completed=done, left=self._time_left(done))
        return Group(grid, self._bar)

    def _time_left(self, done: int) -> str:
        """Return when the budget would be used up at the present rate; the search may end sooner."""
        from datetime import timedelta

        assert self._loop is not None  # noqa: S101 - nothing is drawn before `live`
        fresh = done - self._done_before
        if fresh <= 0:
            return ""
        left = (time.monotonic() - self._began) / fresh * max(0, self._loop.settings.limits.budget - done)
        return f"at most {timedelta(seconds=round(left))} left"


def _done(trials: Sequence[Trial]) -> int:
    """Return how many jobs have ended."""
    return sum(trial.launched and trial.result is not None for trial in trials)


def opening(loop: StudyLoop) -> list[str]:
    """Return what is searched, on which launcher, and whether the study continues."""
    from tuner.cli.output import space_lines
    from tuner.core.text import counted
    from tuner.export.support import export_note

    settings = loop.settings
    lines: list[str] = []
    if settings.table is None:
        note = export_note(settings.space.workload, settings.space.cluster, command=settings.command)
        lines += [*space_lines(settings.space, tokens_from=settings.tokens_from), *([f"note: {note}"] if note else [])]
    where = {
        "simulated": f"on a SIMULATED cluster (seed {settings.seed}); nothing is launched",
        "replay": f"from {settings.table.name}" if settings.table else "",
    }.get(loop.launcher.name, f"with the {loop.launcher.name} launcher")
    verb = "replaying up to" if loop.launcher.name == "replay" else "up to"
    legal = counted(len(loop.pool), "legal topology")
    if loop.tally is not None and loop.pool.values is not None:
        legal = f"{loop.tally.legal:,} legal topologies, of which the {len(loop.pool):,} most promising are searched"
    lines.append(f"{legal}; {verb} {counted(settings.limits.budget, 'job')} {where}")
    if settings.calibration is not None and settings.calibration.simulated:
        lines.append("the cost model is calibrated on SIMULATED measurements")
    if loop.plan is not None and loop.plan.nodes is not None:
        final = "full size is extrapolated from them" if settings.trial_nodes else "the leaders run at full size"
        few, most = loop.plan.nodes
        nodes = counted(most, "node") if few == most else f"{few} to {most} nodes"
        lines.append(f"trials run at a reduced size ({nodes}) where that saves node-hours; {final}")
        if settings.trial_nodes is None and settings.fidelity is None:
            lines[-1] += " (--fidelity full runs every trial at full size)"
    if loop.resumed:
        lines.append(f"Continuing study {loop.store.name} with {counted(loop.resumed, 'trial')}")
    return lines


_PHRASES: Final = {"waits": "waiting: ", "adopted": "adopted: ", "lost": "lost: "}
"""The prefix of the line of an event about a trial."""


def event_line(event: StudyEvent) -> str:
    """Return an event as one line."""
    trial = event.trial
    if trial is None:
        return f"Search stopped: {event.text}" if event.kind == "stopping" else event.text
    text = result_text(trial) if event.kind == "ended" else f"{_PHRASES.get(event.kind, '')}{event.text}"
    return f"{trial.number:>4} {trial.proposal.key}: {text}"


def result_text(trial: Trial) -> str:
    """Return how a job ended, and how far the estimate was off."""
    from tuner.core.outcomes import Outcome
    from tuner.core.text import off_by, seconds, span

    result, proposal = trial.result, trial.proposal
    if result is None:
        return "running"
    if result.seconds is None:
        line = result.explanation.removeprefix("SIMULATED ")
        whole = len(line) <= MAX_EVIDENCE or result.outcome is Outcome.UNREADABLE  # its line is the remedy
        line = line if whole else line[: MAX_EVIDENCE - 3] + "..."
        return f"{result.outcome.value} {line}".strip()
    text = f"{seconds(result.seconds)} s per iteration, {span(result.objective or 0.0)}"
    if proposal.fidelity is not None:
        text = f"{seconds(result.seconds)} s per iteration ({proposal.fidelity})"
    if proposal.estimate_sec:
        text += f", {off_by(result.seconds / proposal.estimate_sec)} the estimate"
    for remark in filter(None, (result.note, result.reason)):
        text += f"; {remark}"
    if result.retried:
        text += f"; retried: {result.retried}"
    return text if proposal.kind == "search" else f"{text} ({proposal.kind})"
