"""The tables of a report: the leaderboard in the BLOOM report's columns, and the jobs as a measurement table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tuner.core.outcomes import Outcome, outcome_word
from tuner.core.quantity import GIB, format_count
from tuner.core.text import column, interval, markdown_cells, pipe_table, seconds, token_count
from tuner.report.summary import measured_word
from tuner.study.leaderboard import LeaderboardRow
from tuner.study.ranking import MARK_MEANING, RankedTrial
from tuner.study.result import StudyResult
from tuner.study.store.trial import Trial
from tuner.tables import STUDY_COLUMNS, columns_of, run_cells, write_csv

HEADERS: Final = (
    *("Nodes", "Size", "DP", "TP", "PP", "MBS", "GBS", "Mem", "Sec/it", "TFLOPs", "Notes"),
    *("Days", "80% interval", "Speed period", "Outcome", "Topology", "Why"),
)
"""The first eleven are the BLOOM report's, in its order; `Days` is replaced by the unit that fits."""

TEXT_COLUMNS: Final = frozenset({"Notes", "80% interval", "Speed period", "Outcome", "Topology", "Why"})


def headers(rows: Sequence[LeaderboardRow]) -> list[str]:
    """Return the headers of the leaderboard, with the unit of time that fits its rows."""
    unit, _ = _unit(rows)
    return [unit if header == "Days" else header for header in HEADERS]


def table(study: StudyResult, rows: Sequence[LeaderboardRow]) -> list[list[str]]:
    """Return the cells of the leaderboard, one line for each row."""
    _, units_per_day = _unit(rows)
    least = min((ranked.seconds for ranked in _times(rows)), default=None)
    return [_line(study, row, units_per_day, least) for row in rows]


def pipe_lines(study: StudyResult, rows: Sequence[LeaderboardRow]) -> list[str]:
    """Return the leaderboard as lines of Markdown."""
    return pipe_table(headers(rows), markdown_cells(table(study, rows)), TEXT_COLUMNS)


def footnote(study: StudyResult, rows: Sequence[LeaderboardRow]) -> str:
    """Return the footnote that explains the leaderboard's figures."""
    unit = headers(rows)[HEADERS.index("Days")]
    speed = ", at the cluster's latest speed" if study.speed_periods else ""
    return (
        f"Sec/it: mean seconds per iteration, inferred from the runs of this topology and of all others"
        f"{speed}; measurements.csv lists each run as {measured_word(study)}. {unit}: time to train on "
        f"{token_count(study.workload.training_tokens)} tokens, or with equal compute for a model of another size. "
        "Mem: peak memory of the fullest GPU."
        f"{f' {MARK_MEANING}' * any(ranked.extrapolated for ranked in _times(rows))}"
    )


def _times(rows: Sequence[LeaderboardRow]) -> list[RankedTrial]:
    """Return the times of the rows that have any, measured or extrapolated."""
    return [ranked for row in rows if (ranked := row.ranked or row.extrapolated)]


def _unit(rows: Sequence[LeaderboardRow]) -> tuple[str, float]:
    return column([row.ranked.days for row in rows if row.ranked])


def _shown(row: LeaderboardRow, units_per_day: float, least: float | None = None) -> tuple[str, str, str]:
    """Return seconds, time to train and its interval."""
    ranked = row.ranked or row.extrapolated
    if ranked is None:
        return "", "", ""
    bounds = interval(ranked.low * units_per_day, ranked.high * units_per_day, decimals=1)
    days = f"{ranked.mark}{ranked.days * units_per_day:,.1f}"
    return f"{ranked.mark}{seconds(ranked.seconds, least=least)}", days, bounds


def _line(study: StudyResult, row: LeaderboardRow, units_per_day: float, least: float | None = None) -> list[str]:
    topology, ranked = row.topology, row.ranked
    per_iteration, days, bounds = _shown(row, units_per_day, least)
    outcome = outcome_word(row.outcome)
    if ranked and study.simulated and not ranked.extrapolated:
        outcome = "simulated"
    runs = f", {ranked.runs} runs" if ranked and ranked.runs > 1 else ""
    return [
        str(topology.nodes),
        format_count(row.workload.model.parameters),
        *(
            str(degree)
            for degree in (topology.dp, topology.tp, topology.pp, topology.micro_batch, row.workload.global_batch)
        ),
        f"{row.memory / GIB:.1f}GiB" if row.memory else "",
        per_iteration,
        f"{row.flops / 1e12:,.2f}" if row.flops else "",
        row.notes + runs,
        days,
        bounds,
        row.era.replace("era ", ""),
        outcome,
        row.key,
        f"{row.why}; {row.ended}" if row.ended else row.why,
    ]


_STATUS: Final = {
    Outcome.MEASURED: "OK",
    Outcome.OOM: "OOM",
    Outcome.HUNG: "HANG",
    Outcome.CRASHED: "FAIL",
    Outcome.TIMED_OUT: "FAIL",
}

_EXCLUDED: Final = {
    Outcome.PRUNED: "pruned by the search",
    Outcome.PREEMPTED: "the job was preempted",
    Outcome.CANCELLED: "the job was cancelled",
    Outcome.UNREADABLE: "no iteration could be measured",
}
"""Outcomes that do not depend on the topology; commands that read the table skip these rows."""


def measurements(study: StudyResult) -> str:
    """Return every job that has ended as a row of a measurement table (CSV)."""
    rows = [_cells(study, trial) for trial in study.launched if trial.result]
    return write_csv((*columns_of(rows), *STUDY_COLUMNS), rows)


def _cells(study: StudyResult, trial: Trial) -> dict[str, str]:
    (workload, cluster), topology = study.setting(trial), study.topology(trial)
    if trial.proposal.fidelity is not None:  # of the job that ran
        topology = trial.proposal.fidelity.topologies(topology)[-1]
    ending, period, proposal = trial.result, study.period_labels[trial.number], trial.proposal
    assert ending is not None  # noqa: S101 - the caller filters
    simulated = ending.simulated and (trial.measured or trial.measured_reduced)
    outcome = "simulated" if simulated else ending.outcome.value.lower()
    return {
        "group": " ".join(filter(None, (study.name, period))),
        **run_cells(workload, cluster, topology),
        "sec_per_iter": f"{ending.seconds:.9g}" if ending.seconds else "",
        "tflops": f"{ending.tflops:.6g}" if ending.tflops else "",
        "mem_gib": f"{ending.peak_memory / GIB:.6g}" if ending.peak_memory else "",
        "mem_kind": "smi" if ending.peak_memory else "",
        "status": _STATUS.get(ending.outcome, "FAIL"),
        "note": ending.explanation,
        "source": f"{'SIMULATED, ' if ending.simulated else ''}study {study.name}",
        "audit": f"exclude: {_EXCLUDED[ending.outcome]}" if ending.outcome in _EXCLUDED else "",
        "era": period or "1",
        "trial": str(trial.number),
        "topology": proposal.key,
        "outcome": outcome,
        "days": f"{ending.objective:.9g}" if ending.objective else "",
        "node_hours": f"{ending.node_hours:.6g}",
        "why": proposal.why,
        "simulated": str(int(ending.simulated)),
    }
