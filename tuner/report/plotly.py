"""Our plots for Optuna Dashboard: Plotly's figures as JSON, which needs no Plotly to be written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tuner.report import series
from tuner.report.sentences import term
from tuner.report.style import BLACK, BLUE, COLOURS, GREY, VERMILLION
from tuner.study.leaderboard import LeaderboardRow
from tuner.study.result import StudyResult

Figure = dict[str, Any]


def graphs(study: StudyResult, rows: Sequence[LeaderboardRow]) -> dict[str, Figure]:
    """Each by its name."""
    made = {"best-so-far": _progress(study)}
    if rows and rows[0].place:
        made |= {
            "estimate-against-measurement": _guesses(study),
            "where-the-time-goes": _accounts(study, rows),
            "memory-by-stage": _memory(study, rows[0]),
        }
    return made


def _figure(
    study: StudyResult,
    title: str,
    across: str,
    up: str,
    data: list[Figure],
    *,
    upwards: Mapping[str, Any] = MappingProxyType({}),
    **layout: Any,
) -> Figure:
    label = "SIMULATED: " if study.simulated else ""
    return {
        "data": data,
        "layout": {
            "title": {"text": label + title},
            "xaxis": {"title": {"text": across}},
            "yaxis": {"title": {"text": up}, "automargin": True, **upwards},
            "template": {},
            **layout,
        },
    }


def _progress(study: StudyResult) -> Figure:
    found = series.progress(study)
    at = list(range(1, len(found.days) + 1))
    data: list[Figure] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "each job",
            "x": at,
            "y": list(found.days),
            "marker": {"color": BLUE},
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": "best so far",
            "x": at,
            "y": list(found.best),
            "line": {"shape": "hv", "color": BLACK},
        },
    ]
    return _figure(study, "Best so far", "jobs", "days until trained, at equal compute", data)


def _guesses(study: StudyResult) -> Figure:
    found = series.guesses(study)
    ends = [min(each.measured for each in found), max(each.measured for each in found)] if found else [0, 1]
    data: list[Figure] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "a job",
            "text": [each.key for each in found],
            "x": [each.measured for each in found],
            "y": [each.estimate for each in found],
            "error_y": {
                "type": "data",
                "symmetric": False,
                "array": [each.high - each.estimate for each in found],
                "arrayminus": [each.estimate - each.low for each in found],
            },
            "marker": {"color": BLUE},
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": "estimate = measurement",
            "x": ends,
            "y": ends,
            "line": {"color": GREY, "dash": "dash"},
        },
    ]
    word = "simulated" if study.simulated else "measured"
    return _figure(study, "Estimate against measurement", f"{word}, s an iteration", "estimated, s an iteration", data)


def _accounts(study: StudyResult, rows: Sequence[LeaderboardRow]) -> Figure:
    found = series.accounts(study, rows)
    keys = [each.key for each in found]
    shown = [name for name in found[0].terms if max(each.terms[name] for each in found) > 0]
    data: list[Figure] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": term(name),
            "y": keys,
            "x": [each.terms[name] for each in found],
            "marker": _look(place),
        }
        for place, name in enumerate(shown)
    ]
    return _figure(
        study,
        "Where the time goes",
        "s an iteration, by the model",
        "",
        data,
        barmode="stack",
        upwards={"autorange": "reversed"},  # the best on top
        legend={"traceorder": "normal"},
    )


def _look(place: int) -> Figure:
    """A colour, and from the ninth on a pattern too: no two terms look alike."""
    again = place // len(COLOURS)
    return {"color": COLOURS[place % len(COLOURS)], **({"pattern": {"shape": "/x."[again % 3 - 1]}} if again else {})}


def _memory(study: StudyResult, row: LeaderboardRow) -> Figure:
    found = series.memory(study, row)
    stages = list(range(row.topology.pp))
    shown = [(name, values) for name, values in found.terms.items() if max(values) > 0]
    data: list[Figure] = [
        {
            "type": "bar",
            "name": name,
            "x": stages,
            "y": list(values),
            "marker": _look(place),
        }
        for place, (name, values) in enumerate(shown)
    ]
    line = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": found.usable, "y1": found.usable}
    shape = {**line, "line": {"color": VERMILLION, "dash": "dash"}}
    return _figure(
        study,
        f"Memory of {row.key}",
        "pipeline stage",
        "GiB on a GPU, by the model",
        data,
        barmode="stack",
        shapes=[shape],
    )
