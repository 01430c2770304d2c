"""What the dashboard tells of a study and of each trial, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tuner.core.text import pipe_table, seconds, span
from tuner.report.plotly import graphs
from tuner.report.sentences import sentences
from tuner.report.tables import WORDS, headers, table
from tuner.study.leaderboard import GIB, LeaderboardRow, rows_of
from tuner.study.result import StudyResult
from tuner.study.store.optuna_dashboard import DashboardPublisher
from tuner.study.store.trial import Trial
from tuner.study.store.trial_store import TrialStore

SHOWN = 10
FILES = ("stdout.log", "stderr.log", "ds_config.json", "job.json", "script.sh", "job.sh")


def annotate(study: StudyResult, store: Path) -> None:
    """Write notes, graphs and files into the study, where the dashboard finds them."""
    rows = rows_of(study)
    kept = TrialStore.existing(study.url, study.name)
    try:
        notebook = DashboardPublisher(kept)
        notebook.note(study_note(study, rows))
        for trial in study.trials:
            notebook.note(trial_note(trial), trial.number)
            folder = study.folder / "jobs" / f"{trial.number:04d}-{trial.proposal.key}"
            notebook.files(trial.number, [folder / name for name in FILES], store)
        for name, figure in graphs(study, rows).items():
            notebook.graph(name, figure)
    finally:
        kept.close()


def study_note(study: StudyResult, rows: Sequence[LeaderboardRow]) -> str:
    """The five sentences and the best few."""
    lines = [part for sentence in sentences(study, rows) for part in (sentence, "")]
    return "\n".join([*lines, *pipe_table(headers(rows), table(study, rows[:SHOWN]), WORDS)]) + "\n"


def trial_note(trial: Trial) -> str:
    """Why it was proposed, what was expected, what came of it, and the evidence."""
    proposal, ending = trial.proposal, trial.ending
    lines = [f"**{proposal.key}** ({proposal.kind}): {proposal.why}"]
    if proposal.estimate_sec and proposal.estimate_low and proposal.estimate_high:
        lines.append(
            f"Estimated: {proposal.estimate_sec:.2f} s an iteration ({proposal.estimate_low:.2f} to "
            f"{proposal.estimate_high:.2f} with 80%), {proposal.out_of_memory or 0.0:.0%} to run out of memory."
        )
    if ending is None:
        return "\n\n".join([*lines, "Running."]) + "\n"
    word = "SIMULATED" if ending.simulated else "Measured" if trial.measured else "Outcome"
    if trial.measured:
        memory = f", {ending.peak_memory / GIB:.1f} GiB" if ending.peak_memory else ""
        lines.append(f"{word}: {seconds(trial.seconds)} s an iteration, {span(ending.objective or 0.0)}{memory}.")
    else:
        lines.append(f"{word}: {ending.outcome.value}. {ending.reason}")
    if ending.retried:
        lines.append(f"Run again: {ending.retried}.")
    if ending.evidence:
        lines.append(f"Evidence: `{ending.evidence.replace('`', chr(39))}`")
    lines.append(f"{ending.node_hours:,.2f} node-hours.")
    return "\n\n".join(lines) + "\n"
