"""The plots of a report and their data."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.found_studies import opened
from tuner.core.quantity import GIB
from tuner.core.text import node_time, token_count, unit_for
from tuner.costmodel.constants import USABLE_SHARE
from tuner.report import plot_data
from tuner.report.dashboard import graphs
from tuner.report.figures import MIN_TICK_DISTANCE, _log_ticks, plots
from tuner.report.plot_data import (
    cluster_speed,
    degree_cells,
    memory_breakdown,
    micro_batch_series,
    model_axes,
    predictions,
    progress,
    time_breakdowns,
)
from tuner.report.style import Plot, look
from tuner.study.drift import SpeedPeriod
from tuner.study.leaderboard import rows_of
from tuner.study.result import StudyResult

STUDIES = ("bloom-48", "drifting", "replayed")


GOLDEN = ROOT / "tests" / "data" / "golden"


@pytest.fixture(params=STUDIES)
def study(request: pytest.FixtureRequest) -> StudyResult:
    return opened(request.param)


def test_plot_data_include_every_job(study: StudyResult) -> None:
    rows = rows_of(study)
    found = progress(study)
    ended = [trial for trial in study.launched if trial.result]
    assert len(found.days) == len(found.best) == len(found.node_hours) == len(ended)
    assert found.node_hours[-1] == pytest.approx(study.node_hours)
    measured = [each for each in found.days if each is not None]
    assert found.best[-1] == pytest.approx(min(place.days for place in study.ranking), rel=0.1)
    assert all(min(measured) <= each <= max(measured) for each in found.best if each is not None)
    assert len(predictions(study)) == sum(trial.measured for trial in study.launched)
    assert all(each.low <= each.estimate <= each.high for each in predictions(study))
    assert len(time_breakdowns(study, rows)) == min(5, len(study.ranking))
    stages = memory_breakdown(study, rows[0])
    assert {len(values) for values in stages.terms.values()} == {rows[0].topology.pp}
    assert sum(cell.tried for cell in degree_cells(rows)) == len(rows)
    assert (cluster_speed(study) is None) == (not study.speed_periods)


def rounded(value: Any) -> Any:
    """Return plot data as JSON, rounded to six digits."""
    if is_dataclass(value) and not isinstance(value, type):
        return rounded({field.name: getattr(value, field.name) for field in fields(value)})
    if isinstance(value, Mapping):
        return {name: rounded(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


@pytest.mark.parametrize("name", ["replayed", "bloom-48"])
def test_plot_data_match_the_golden_file(name: str) -> None:
    """`TUNER_GOLDEN=1` rewrites the golden file."""
    study = opened(name)
    rows = rows_of(study)
    found = {
        "progress": progress(study),
        "predictions": predictions(study),
        "time_breakdowns": time_breakdowns(study, rows),
        "memory_breakdown": memory_breakdown(study, rows[0]),
        "micro_batch_series": micro_batch_series(rows),
        "degree_cells": degree_cells(rows),
        "model_axes": model_axes(study, rows),
    }
    path = GOLDEN / f"plot-data-{name}.json"
    if os.environ.get("TUNER_GOLDEN"):
        path.write_text(json.dumps(rounded(found), indent=1) + "\n")
    expected = json.loads(path.read_text())
    leaves, golden = flattened(rounded(found)), flattened(expected)
    assert leaves.keys() == golden.keys()
    for leaf, value in leaves.items():
        assert value == (pytest.approx(golden[leaf], rel=1e-5) if isinstance(value, float) else golden[leaf]), leaf


def drawn_as(plot: Plot) -> dict[str, Any]:
    """Return sizes, markers, limits and texts of a plot."""
    figure: Any = plot.figure
    return {
        "title": plot.title,
        "size": list(figure.get_size_inches()),
        "texts": [
            [
                *(text.get_text(), text.get_fontsize(), text.get_weight(), text.get_position()),
                *(text.get_ha(), text.get_va(), text.get_rotation(), text.get_alpha(), text.get_zorder()),
            ]
            for text in figure.texts
        ],
        "legends": [[legend._ncols, [text.get_fontsize() for text in legend.get_texts()]] for legend in figure.legends],
        "axes": [
            {
                "title": [
                    [text.get_text(), text.get_fontsize()]
                    for text in axes.findobj(type(axes.title))
                    if text.get_text() and text.get_text() == axes.get_title(loc="left")
                ],
                "labels": [axes.get_xlabel(), axes.get_ylabel(), axes.xaxis.labelpad],
                "scales": [axes.get_xscale(), axes.get_yscale()],
                "limits": [axes.get_xlim(), axes.get_ylim()],
                "lines": [
                    [
                        line.get_marker(),
                        line.get_markersize(),
                        line.get_linestyle(),
                        line.get_linewidth(),
                        line.get_color(),
                        [float(np.sum(line.get_xdata())), float(np.sum(line.get_ydata()))],
                    ]
                    for line in axes.get_lines()
                ],
                "patches": sorted({(patch.get_linewidth(), patch.get_hatch() or "") for patch in axes.patches}),
                "texts": sorted({(text.get_fontsize(), text.get_ha(), text.get_va()) for text in axes.texts}),
                "annotations": [
                    [text.get_text(), text.xy, text.get_position()] for text in axes.texts if hasattr(text, "xy")
                ],
                "legend": [text.get_text() for text in axes.get_legend().get_texts()] if axes.get_legend() else None,
            }
            for axes in figure.axes
        ],
    }


@pytest.mark.parametrize("name", ["bloom-48", "drifting"])
def test_plots_match_the_golden_file(name: str) -> None:
    """`TUNER_GOLDEN=1` rewrites the golden file."""
    study = opened(name)
    with look():
        found = rounded({plot.name: drawn_as(plot) for plot in plots(study, rows_of(study))})
    path = GOLDEN / f"plot-looks-{name}.json"
    if os.environ.get("TUNER_GOLDEN"):
        path.write_text(json.dumps(found, indent=1) + "\n")
    assert flattened(found) == flattened(json.loads(path.read_text()))


def test_figures_of_the_dashboard_match_the_golden_file() -> None:
    """`TUNER_GOLDEN=1` rewrites the golden file."""
    study = opened("replayed")
    found = rounded(graphs(study, rows_of(study)))
    path = GOLDEN / "dashboard-replayed.json"
    if os.environ.get("TUNER_GOLDEN"):
        path.write_text(json.dumps(found, indent=1) + "\n")
    leaves, golden = flattened(found), flattened(json.loads(path.read_text()))
    assert leaves.keys() == golden.keys()
    for leaf, value in leaves.items():
        assert value == (pytest.approx(golden[leaf], rel=1e-5) if isinstance(value, float) else golden[leaf]), leaf


def test_the_number_of_drawn_topologies_is_limited(study: StudyResult) -> None:
    """The plot of terms has the first five topologies, and that of micro batches the five longest series."""
    (row, *_) = [row for row in rows_of(study) if row.ranked]
    assert len(time_breakdowns(study, [row] * 6)) == 5
    assert len(time_breakdowns(study, [row] * 4)) == 4
    rows = [
        replace(row, topology=replace(row.topology, tp=2**tp, micro_batch=2**batch))
        for tp in range(7)
        for batch in range(3 if tp == 6 else 2 if tp else 1)
    ]
    series = micro_batch_series(rows)
    assert [len(each.micro_batches) for each in series] == [3, 2, 2, 2, 2]
    assert series[0].micro_batches == [1, 2, 4]


def flattened(value: Any, path: str = "") -> dict[str, Any]:
    """Return every leaf by its path."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        return {path: value}
    return {name: leaf for key, item in items for name, leaf in flattened(item, f"{path}.{key}").items()}


def test_best_so_far_is_the_lowest_mean_of_a_topologys_runs() -> None:
    """It rises if a repeat is slower than a lucky run."""
    study = opened("replayed")
    series = progress(study)
    runs: dict[str, list[float]] = {}
    for key, days, best in zip(series.keys, series.days, series.best, strict=True):
        if days is not None:
            runs.setdefault(key, []).append(days)
        assert best == pytest.approx(min(sum(own) / len(own) for own in runs.values()))
    assert [key for key, own in zip(series.keys, series.leader, strict=True) if own] == [study.ranking[0].key] * 2


def test_only_models_that_the_space_has_are_predicted() -> None:
    """A policy excludes 32 heads, whose size would be 448."""
    study = opened("bloom-48")
    rows = rows_of(study)
    (series,) = model_axes(study, rows)
    heads = [value for value, _ in series.predicted]
    assert all(study.pool.find(replace(rows[0].topology, heads=value)) is not None for value in heads)
    assert (min(study.searched["heads"]), min(heads)) == (32, 64)


def test_the_speed_of_the_cluster_is_relative_to_earlier_runs_or_estimates() -> None:
    study = opened("replayed")
    study = replace(study, speed_periods=(SpeedPeriod(first=4, factor=1.1),))
    series = cluster_speed(study)
    assert series is not None
    measured = [trial for trial in study.launched if trial.measured]
    assert series.numbers == [trial.number for trial in measured]
    assert series.periods == [(4, 1.1)]
    first: dict[str, float] = {}
    for trial, ratio, repeat in zip(measured, series.ratios, series.repeats, strict=True):
        assert repeat == (trial.proposal.key in first)
        expected = first.get(trial.proposal.key) or trial.proposal.estimate_sec
        assert expected is not None
        assert ratio == pytest.approx(trial.seconds / expected)
        first.setdefault(trial.proposal.key, trial.seconds)
    with look():
        (plot,) = [plot for plot in plots(study, rows_of(study)) if plot.name == "eras"]
    assert plot.title == "Cluster speed"
    assert "from trial 4 on, iterations took 1.100 times as long" in plot.alt


def test_every_plot_of_the_objective_states_its_unit_and_tokens(study: StudyResult) -> None:
    label = f"days to train on {token_count(study.workload.training_tokens)} tokens"
    with look():
        drawn = {plot.name: plot for plot in plots(study, rows_of(study))}
    assert drawn["progress"].figure.axes[0].get_ylabel() == label
    if "heads" in drawn:
        assert drawn["heads"].figure.axes[0].get_ylabel() == label
    figure = graphs(study, rows_of(study))["best-so-far"]
    assert figure["layout"]["yaxis"]["title"]["text"] == f"objective: {label}"


def test_the_progress_of_a_short_training_has_the_units_of_the_text(
    study: StudyResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousandths of a day and of a node-hour are minutes and node-seconds in the table and in the summary."""
    known = progress(study)
    shorter: dict[str, Any] = {
        name: [None if days is None else days / 86400 for days in getattr(known, name)]
        for name in ("days", "extrapolated", "best", "node_hours")
    }
    monkeypatch.setattr(plot_data, "progress", lambda _: replace(known, **shorter))
    with look():
        (plot,) = [plot for plot in plots(study, rows_of(study)) if plot.name == "progress"]
    fastest = min(days for days in known.days if days is not None)
    unit, per_day = unit_for(fastest / 86400)
    assert unit != "days"
    axes: Any = plot.figure.axes
    left, right = axes
    assert left.get_ylabel().startswith(f"{unit} to train on ")
    assert min(left.get_lines()[0].get_ydata()) == pytest.approx(fastest / 86400 * per_day)
    used, node_unit = right.get_xlabel().split()[0], node_time(known.node_hours[-1] / 86400).split()[1]
    assert used == node_unit != "node-hours"


def test_the_plots_of_the_dashboard_mark_the_leader(study: StudyResult) -> None:
    """Each run of the leader has a star at its measured value."""
    best = study.ranking[0]
    figures = graphs(study, rows_of(study))
    runs = [trial for trial in study.launched if trial.measured and trial.proposal.key == best.key]
    for name, axis in (("best-so-far", "y"), ("estimate-against-measurement", "x")):
        (star,) = [data for data in figures[name]["data"] if data["name"] == f"leader: {best.key}"]
        assert star["marker"]["symbol"] == "star"
        values = [trial.seconds if axis == "x" else trial.result.objective or 0.0 for trial in runs if trial.result]
        assert sorted(star[axis]) == pytest.approx(sorted(values))
    terms = figures["where-the-time-goes"]
    assert terms["data"][0]["y"][0] == terms["layout"]["yaxis"]["tickvals"][0] == best.key
    lines = terms["layout"]["yaxis"]["ticktext"][0].split("<br>")
    assert "".join(lines) == best.key
    assert len(lines) > 1
    assert max(map(len, lines)) <= 16


@settings(max_examples=300)
@given(low=st.floats(1e-2, 1e4), log_ratio=st.floats(0.06, 10.0))
def test_ticks_of_a_logarithmic_axis_lie_within_its_limits_and_their_labels_never_touch(
    low: float, log_ratio: float
) -> None:
    high = low * math.exp(log_ratio)
    ticks = _log_ticks((low, high))
    assert len(ticks) >= 2
    assert all(low <= tick <= high for tick in ticks)
    gaps = [math.log(after / before) for before, after in pairwise(ticks)]
    assert min(gaps) >= MIN_TICK_DISTANCE * log_ratio * (1 - 1e-9)


def test_the_plots_of_memory_draw_the_usable_memory_and_state_the_estimate() -> None:
    """A peak may lie below the bar of its estimate."""
    study = opened("bloom-48")
    rows = rows_of(study)
    with look():
        drawn: dict[str, Any] = {plot.name: plot.figure for plot in plots(study, rows)}
    usable = rows[0].cluster.gpu.memory * USABLE_SHARE / GIB
    for name, axes in (("memory", 0), ("micro-batch", 1)):
        (line,) = [line for line in drawn[name].axes[axes].lines if line.get_linestyle() == "--"]
        assert set(line.get_ydata()) == {usable}
    assert drawn["micro-batch"].axes[1].texts[0].get_text() == f"usable GPU memory, {usable:.1f} GiB"
    estimate = max(map(sum, zip(*memory_breakdown(study, rows[0]).terms.values(), strict=True)))
    (label,) = [text for text in drawn["memory"].axes[0].get_legend_handles_labels()[1] if "fullest" in text]
    assert (
        label == f"simulated on the fullest GPU, {(rows[0].memory or 0) / GIB:.1f} GiB\n(estimate: {estimate:.1f} GiB)"
    )
    assert "leader's mean so far" in drawn["progress"].axes[0].get_legend_handles_labels()[1]


def test_a_much_slower_job_is_drawn_at_the_edge(study: StudyResult, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that takes 1.5 times as long as the fastest would flatten the differences between all others."""
    known = progress(study)
    fastest = min(days for days in known.days[:-1] if days is not None)
    series = replace(known, days=[*known.days[:-1], 4 * fastest], extrapolated=[None] * len(known.days))
    monkeypatch.setattr(plot_data, "progress", lambda _: series)
    with look():
        (drawn,) = [plot.figure for plot in plots(study, rows_of(study)) if plot.name == "progress"]
    axes = drawn.axes[0]
    edge = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))[f"more than {1.5 * fastest:,.4g} days"]
    assert list(edge.get_xdata()) == [len(known.days)]
    assert axes.get_ylim()[1] < 1.6 * fastest
    layout = graphs(study, rows_of(study))["best-so-far"]["layout"]
    assert layout["title"]["text"].endswith("Best so far (zoom out for slower jobs)")
    assert layout["yaxis"]["range"][1] < 1.6 * fastest


def test_plots_are_watermarked_if_the_cluster_is_simulated(study: StudyResult) -> None:
    with look():
        drawn = plots(study, rows_of(study))
    assert {"progress", "estimates", "terms", "memory"} <= {plot.name for plot in drawn}
    timed = [row.topology for row in rows_of(study) if row.ranked]
    assert ("micro-batch" in {plot.name for plot in drawn}) == (len({each.micro_batch for each in timed}) > 1)
    assert ("map" in {plot.name for plot in drawn}) == (len(degree_cells(rows_of(study))) > 1)
    series = [{value for value, _ in (*each.measured, *each.predicted)} for each in model_axes(study, rows_of(study))]
    assert ("heads" in {plot.name for plot in drawn}) == any(len(values) > 1 for values in series)
    assert ("eras" in {plot.name for plot in drawn}) == bool(study.speed_periods)
    for plot in drawn:
        words = [text.get_text() for text in plot.figure.texts]
        assert ("SIMULATED" in words) == study.simulated
        assert plot.alt.endswith(".")
        for axes in plot.figure.axes:
            assert axes.get_xlabel()
            assert axes.get_ylabel() or axes is not plot.figure.axes[0] or plot.name == "terms"
