"""Notes and plots for Optuna Dashboard: Markdown, and Plotly figures as JSON (written without Plotly)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tuner.core.quantity import GIB
from tuner.core.text import markdown_text, seconds, span
from tuner.report import plot_data
from tuner.report.style import BLACK, BLUE, COLOURS, GREEN, GREY, ORANGE, VERMILLION, wrapped
from tuner.report.summary import days_label, measured_word, memory_label, simulated_label, summary, term_label
from tuner.report.tables import footnote, pipe_lines
from tuner.study.leaderboard import LeaderboardRow, rows_of
from tuner.study.result import StudyResult
from tuner.study.store.optuna_dashboard import DashboardPublisher
from tuner.study.store.trial import Trial
from tuner.study.store.trial_store import TrialStore

MAX_NOTE_ROWS: Final = 10
"""Topologies in the table of the study's note."""

KEY_CHARACTERS: Final = 16
"""Characters in each line of a topology's key, which leave room for the bars in a narrow frame."""

FILES: Final = (
    "stdout.log",
    "stderr.log",
    "steps.log",
    "trainer.log",
    "ds_config.json",
    "job.json",
    "script.sh",
    "job.sh",
)
"""Files of a job that are attached to its trial."""

Figure = dict[str, Any]


OBJECTIVE: Final = "training time (days)"


def annotate(study: StudyResult, store: Path) -> int:
    """Write notes and plots into the study, copy the jobs' files into the artifact store, and return the study's id."""
    rows = rows_of(study)
    trials = TrialStore.existing(study.url, study.name)
    try:
        publisher = DashboardPublisher(trials)
        publisher.name_objective(OBJECTIVE)
        publisher.note(study_note(study, rows) + _leader_link(study, publisher.study_id))
        for trial in study.trials:
            publisher.note(trial_note(trial), trial.number)
            folder = trial.job_folder(study.folder)
            publisher.files(trial.number, [folder / name for name in FILES], store)
        for name, figure in graphs(study, rows).items():
            publisher.graph(name, figure)
        return publisher.study_id
    finally:
        trials.close()


def _leader_link(study: StudyResult, study_id: int) -> str:
    """Return a link to the leader's trials; the dashboard's own "best trial" is the fastest single run."""
    if study.best is None:
        return ""
    numbers = ",".join(str(number) for number in study.best.trials)
    return f"\nLeader: [{study.best.key}](/dashboard/studies/{study_id}/trials?numbers={numbers})\n"


def study_note(study: StudyResult, rows: Sequence[LeaderboardRow]) -> str:
    """Return the summary and the fastest topologies as Markdown."""
    paragraphs = [part for sentence in summary(study, rows) for part in (markdown_text(sentence), "")]
    return "\n".join([*paragraphs, *pipe_lines(study, rows[:MAX_NOTE_ROWS]), "", footnote(study, rows)]) + "\n"


def trial_note(trial: Trial) -> str:
    """Return why a trial was proposed, its estimate, its outcome and the evidence, as Markdown."""
    proposal, result = trial.proposal, trial.result
    paragraphs = [f"**{markdown_text(proposal.key)}** ({proposal.kind}): {markdown_text(proposal.why)}"]
    if proposal.fidelity is not None:
        paragraphs.append(f"Runs at a reduced size: {proposal.fidelity}.")
    if proposal.estimate_sec and proposal.estimate_low and proposal.estimate_high:
        paragraphs.append(
            f"Estimate: {proposal.estimate_sec:.2f} s per iteration (80% interval {proposal.estimate_low:.2f} to "
            f"{proposal.estimate_high:.2f}), {proposal.out_of_memory or 0.0:.0%} likely to run out of memory."
        )
    if result is None:
        return "\n\n".join([*paragraphs, "Running."]) + "\n"
    measured = trial.measured or trial.measured_reduced
    label = "SIMULATED" if result.simulated else "Measured" if measured else "Outcome"
    if trial.measured:
        memory = f", {result.peak_memory / GIB:,.1f} GiB" if result.peak_memory else ""
        training = f"training takes {span(result.objective or 0.0)}"
        note = f" ({markdown_text(result.note)})" if result.note else ""
        paragraphs.append(f"{label}: {seconds(trial.seconds)} s per iteration{note}{memory}; {training}.")
    elif trial.measured_reduced and result.forecast:
        paragraphs.append(
            f"{label} at the reduced size: {seconds(result.seconds or 0.0)} s per iteration. Extrapolated to the full "
            f"size, not measured: {seconds(result.forecast)} s."
        )
    else:
        paragraphs.append(f"{label}: {result.outcome.value}. {markdown_text(result.reason)}")
    if result.retried:
        paragraphs.append(f"Retried: {markdown_text(result.retried)}.")
    if result.evidence:
        evidence = " ".join(result.evidence.splitlines()).replace("`", "'")
        paragraphs.append(f"Evidence: `{evidence}`")
    paragraphs.append(f"Cost: {result.node_hours:,.2f} node-hours.")
    return "\n\n".join(paragraphs) + "\n"


def graphs(study: StudyResult, rows: Sequence[LeaderboardRow]) -> dict[str, Figure]:
    """Return the Plotly figures by name."""
    figures = {"best-so-far": _progress(study)}
    if rows and rows[0].ranked:
        figures |= {
            "estimate-against-measurement": _estimates(study),
            "where-the-time-goes": _terms(study, rows),
            "memory-by-stage": _memory(study, rows[0]),
        }
    return figures


def _figure(
    study: StudyResult,
    *,
    title: str,
    x_title: str,
    y_title: str,
    data: list[Figure],
    yaxis: Mapping[str, Any] = MappingProxyType({}),
    **layout: Any,
) -> Figure:
    return {
        "data": data,
        "layout": {
            "title": {"text": simulated_label(study) + title},
            "xaxis": {"title": {"text": x_title}},
            "yaxis": {"title": {"text": y_title}, "automargin": True, **yaxis},
            "template": {},
            **layout,
        },
    }


def _scatter(name: str, x: Sequence[float], y: Sequence[float | None], *, mode: str = "markers", **more: Any) -> Figure:
    return {"type": "scatter", "mode": mode, "name": name, "x": list(x), "y": list(y), **more}


def _leader(study: StudyResult, x: Sequence[float], y: Sequence[float]) -> list[Figure]:
    """Mark the jobs of the leading topology."""
    if not x or study.best is None:
        return []
    marker = {"color": ORANGE, "symbol": "star", "size": 14, "line": {"color": BLACK, "width": 1}}
    return [_scatter(f"leader: {study.best.key}", x, y, marker=marker)]


def _progress(study: StudyResult) -> Figure:
    series = plot_data.progress(study)
    jobs, keys = list(range(1, len(series.days) + 1)), list(series.keys)
    leader = [
        (job, days) for job, days, own in zip(jobs, series.days, series.leader, strict=True) if own and days is not None
    ]
    open_marker = {"color": GREEN, "symbol": "triangle-up-open"}
    extrapolated = _scatter("extrapolated", jobs, series.extrapolated, text=keys, marker=open_marker)
    data: list[Figure] = [
        _scatter(f"{measured_word(study)} job", jobs, series.days, text=keys, marker={"color": BLUE}),
        *[extrapolated] * any(series.extrapolated),
        _scatter("leader's mean so far", jobs, series.best, mode="lines", line={"shape": "hv", "color": BLACK}),
        *_leader(study, [job for job, _ in leader], [days for _, days in leader]),
    ]
    known = [days for days in (*series.days, *series.extrapolated) if days is not None]
    shown = [days for days in known if days <= plot_data.MAX_SHOWN * min(known)]
    slower = len(shown) < len(known)
    return _figure(
        study,
        title=f"Best so far{' (zoom out for slower jobs)' * slower}",
        x_title="jobs",
        y_title=f"objective: {days_label(study)}",
        data=data,
        yaxis={"range": [0.98 * min(shown), 1.02 * max(shown)]} if slower else {},
        legend={"orientation": "h", "y": -0.3},
    )


def _estimates(study: StudyResult) -> Figure:
    points = plot_data.predictions(study)
    ends = [min(point.measured for point in points), max(point.measured for point in points)] if points else [0, 1]
    leader = [point for point in points if point.leader]
    data: list[Figure] = [
        _scatter(
            "job",
            [point.measured for point in points],
            [point.estimate for point in points],
            text=[point.key for point in points],
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [point.high - point.estimate for point in points],
                "arrayminus": [point.estimate - point.low for point in points],
            },
            marker={"color": BLUE},
        ),
        _scatter("estimate = measurement", ends, ends, mode="lines", line={"color": GREY, "dash": "dash"}),
        *_leader(study, [point.measured for point in leader], [point.estimate for point in leader]),
    ]
    return _figure(
        study,
        title="Estimate vs. measurement",
        x_title=f"{measured_word(study)} seconds per iteration",
        y_title="estimated seconds per iteration",
        data=data,
        legend={"orientation": "h", "y": -0.3},
    )


def _terms(study: StudyResult, rows: Sequence[LeaderboardRow]) -> Figure:
    topologies = plot_data.time_breakdowns(study, rows)
    names = [name for name in topologies[0].terms if max(topology.terms[name] for topology in topologies) > 0]
    data: list[Figure] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": term_label(name),
            "y": [topology.key for topology in topologies],
            "x": [topology.terms[name] for topology in topologies],
            "marker": _marker(index),
        }
        for index, name in enumerate(names)
    ]
    return _figure(
        study,
        title="Where the time goes",
        x_title="seconds per iteration (cost model)",
        y_title="",
        data=data,
        barmode="stack",
        yaxis={
            "autorange": "reversed",  # the leader on top
            "tickvals": [topology.key for topology in topologies],
            "ticktext": [wrapped(topology.key, KEY_CHARACTERS, "<br>") for topology in topologies],
        },
        legend={"traceorder": "normal"},
    )


def _memory(study: StudyResult, row: LeaderboardRow) -> Figure:
    breakdown = plot_data.memory_breakdown(study, row)
    terms = [(name, values) for name, values in breakdown.terms.items() if max(values) > 0]
    data: list[Figure] = [
        {
            "type": "bar",
            "name": memory_label(name),
            "x": list(range(row.topology.pp)),
            "y": list(values),
            "marker": _marker(index),
        }
        for index, (name, values) in enumerate(terms)
    ]
    limit: Figure = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": breakdown.usable, "y1": breakdown.usable}
    return _figure(
        study,
        title=f"Memory of {row.key}",
        x_title="pipeline stage",
        y_title="GiB per GPU; dashed: usable",
        data=data,
        barmode="stack",
        shapes=[{**limit, "line": {"color": VERMILLION, "dash": "dash"}}],
    )


def _marker(index: int) -> Figure:
    """Return a colour, with a pattern once the colours repeat."""
    repeat = index // len(COLOURS)
    pattern = {"pattern": {"shape": "/x."[repeat % 3 - 1]}} if repeat else {}
    return {"color": COLOURS[index % len(COLOURS)], **pattern}
