"""Plots can be read: no text is cut off or covered, and each outcome has a mark of its own."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from matplotlib.text import Text
from matplotlib.transforms import Bbox

from tests.found_studies import opened
from tuner.core.outcomes import Outcome
from tuner.report import maps, plot_data
from tuner.report.batch_plots import MODELS_ACROSS, Curve, Panel, _figure
from tuner.report.figures import plots
from tuner.report.plot_data import BestSoFar, MemoryBreakdown, TimeBreakdown
from tuner.report.style import OUTCOMES, Plot, look, wrapped
from tuner.study.drift import SpeedPeriod
from tuner.study.leaderboard import rows_of
from tuner.study.result import StudyResult

pytestmark = pytest.mark.slow

LONG = "tp4-pp16-dp16-mbs2-z1-vpp4-cp2-sp-rlayernorm+mla_up_proj+moe_act-lay-ep8-deepep"
UNMEASURED = [outcome.value for outcome in Outcome if outcome not in (Outcome.MEASURED, Outcome.REJECTED)]


def texts(figure: Any) -> list[Any]:
    """Return the drawn texts of a figure, except the watermark and ticks outside the axes."""
    hidden = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                margin = 1e-9 * (high - low)
                if not low - margin <= tick.get_loc() <= high + margin:
                    hidden |= {tick.label1, tick.label2}
    found = figure.findobj(lambda each: isinstance(each, Text) and each.get_visible() and each.get_text())
    return [text for text in found if text not in hidden and text.get_text() != "SIMULATED"]


def faults(figure: Any) -> list[str]:
    """Return the texts that are cut off or that overlap another text, a legend or a mark outside the axes."""
    figure.draw_without_rendering()
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts(figure)]
    found = [f"cut off: {name}" for name, box in boxes if any(not figure.bbox.contains(*at) for at in box.corners())]
    pairs = itertools.combinations(boxes, 2)
    found += [f"overlap: {first[0]} and {second[0]}" for first, second in pairs if first[1].overlaps(second[1])]
    found += [
        "legend over axes"
        for legend in (*figure.legends, *filter(None, (axes.get_legend() for axes in figure.axes)))
        if any(legend.get_window_extent().overlaps(axes.bbox) for axes in figure.axes)
    ]
    for axes in figure.axes:
        for line in axes.get_lines():
            if not line.get_clip_on():
                radius = line.get_markersize() / 2 / 72 * figure.dpi
                for x, y in line.get_transform().transform(line.get_xydata()):
                    mark = Bbox.from_extents(x - radius, y - radius, x + radius, y + radius)
                    found += [f"mark over {name}" for name, box in boxes if mark.overlaps(box)]
    return found


def drawn(study: StudyResult) -> list[Plot]:
    with look():
        return plots(study, rows_of(study))


def drawn_as(name: str, study: StudyResult) -> Any:
    (plot,) = [plot for plot in drawn(study) if plot.name == name]
    return plot.figure


@pytest.mark.parametrize("name", ["bloom-48", "reduced", "drifting", "replayed"])
def test_no_text_is_cut_off_or_covered(name: str) -> None:
    study = opened(name)
    with look():
        found = {plot.name: faults(plot.figure) for plot in plots(study, rows_of(study))}
    assert found == {name: [] for name in found}


def best_so_far(days: Sequence[float | None], outcomes: Sequence[str]) -> BestSoFar:
    """Return the progress of jobs of an hour each."""
    jobs = len(outcomes)
    return BestSoFar(
        days=days,
        extrapolated=[None] * jobs,
        outcomes=outcomes,
        best=[min((own for own in days[: job + 1] if own), default=None) for job in range(jobs)],
        node_hours=[float(job) for job in range(jobs)],
        keys=[LONG] * jobs,
        leader=[False] * jobs,
    )


@pytest.mark.parametrize(
    ("days", "outcomes"),
    [
        ([900.0], ["MEASURED"]),
        ([None], ["OOM"]),
        ([None] * 300, ["OOM"] * 300),
        ([None] * len(UNMEASURED), UNMEASURED),
        ([1e3, 2e4, *[None] * 8 * len(UNMEASURED), 950.0], ["MEASURED", "MEASURED", *UNMEASURED * 8, "MEASURED"]),
    ],
)
def test_every_job_of_any_outcome_is_drawn_and_covers_no_label(
    days: Sequence[float | None], outcomes: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plot_data, "progress", lambda _: best_so_far(days, outcomes))
    with look():
        figure = drawn_as("progress", opened("bloom-48"))
        assert faults(figure) == []
    for axes in figure.axes:
        lines = [line for line in axes.get_lines() if line.get_label() != "leader's mean so far"]
        assert sum(len(line.get_xdata()) for line in lines) == len(outcomes)
    assert bool(figure.axes[0].get_yticks().size) == any(days)


def test_each_outcome_without_a_measurement_has_its_own_mark() -> None:
    assert set(OUTCOMES) == set(UNMEASURED)
    assert len({mark for _, mark, _ in OUTCOMES.values()} | {"o", "^", "d"}) == len(OUTCOMES) + 3


@pytest.mark.parametrize("stages", [1, 2, 7, 16, 36, 72])
def test_the_ticks_of_the_memory_plot_are_stages(stages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    terms = ("weights", "gradients", "optimizer", "activations", "working", "logits", "buckets", "fragments", "context")
    breakdown = MemoryBreakdown(key=LONG, terms={name: [5.0] * stages for name in terms}, usable=78.8, measured=62.0)
    monkeypatch.setattr(plot_data, "memory_breakdown", lambda *_: breakdown)
    with look():
        figure = drawn_as("memory", opened("bloom-48"))
        assert faults(figure) == []
    low, high = figure.axes[0].get_xlim()
    ticks = [tick for tick in figure.axes[0].get_xticks() if low <= tick <= high]
    assert ticks
    assert set(ticks) <= set(range(stages))


def test_long_keys_and_many_terms_leave_room_for_the_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times that were extrapolated are not labeled as measured."""
    terms = dict.fromkeys((f"a_rather_long_name_of_term_{term}" for term in range(15)), 1.0)
    bars = [TimeBreakdown(key=LONG, terms=terms, seconds=16.0, extrapolated=bar > 0) for bar in range(5)]
    monkeypatch.setattr(plot_data, "time_breakdowns", lambda *_: bars)
    with look():
        figure = drawn_as("terms", opened("bloom-48"))
        assert faults(figure) == []
    axes = figure.axes[0]
    assert axes.bbox.width > 0.5 * figure.bbox.width
    assert {line.get_label(): len(line.get_xdata()) for line in axes.get_lines()} == {"simulated": 1, "extrapolated": 4}


def test_speed_periods_that_follow_each_other_have_separate_labels() -> None:
    study = opened("replayed")
    periods = tuple(SpeedPeriod(first=first, factor=1.1) for first in (5, 6, 7))
    with look():
        assert faults(drawn_as("eras", replace(study, speed_periods=periods))) == []


def test_the_ink_of_each_cell_of_the_map_contrasts_with_its_colour() -> None:
    """The ratio of luminances is at least the 4.5 of WCAG 2."""
    for percent in range(101):
        linear = [
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in maps._shade(percent / 100)
        ]
        light = sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True)) + 0.05
        assert (light / 0.05 if percent / 100 > maps.INK_SHARE else 1.05 / light) >= 4.5


@pytest.mark.parametrize("characters", [1, 16, 32])
def test_a_wrapped_text_is_complete_and_broken_between_its_parts(characters: int) -> None:
    for text in (LONG, "tp8", "a-b c--d", "-a", ""):
        lines = wrapped(text, characters).split("\n")
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")
        assert all(len(line) <= characters or line.count("-") + line.count(" ") <= 1 for line in lines)


@pytest.mark.parametrize("models", [1, 2, 4, 7])
def test_each_curve_of_each_model_is_drawn_in_its_own_look(models: int) -> None:
    """Micro-batch sizes are whole numbers, and few panels are beside each other."""
    curves = tuple(
        Curve(label=f"tp={n}, recompute=selective", points=((1, 10.0 + n),), failed=(2,), line=None, rates=((1, 1e6),))
        for n in range(8)
    )
    with look():
        figure: Any = _figure([Panel(title=f"model {n}", usable=80.0, curves=curves) for n in range(models)], "size")
        assert faults(figure) == []
    assert len(figure.axes) == 2 * models
    assert figure.get_figwidth() < 3.2 * MODELS_ACROSS
    for axes in figure.axes:
        shown = [line for line in axes.get_lines() if list(line.get_xdata()) == [1]]
        assert len({(line.get_color(), line.get_marker()) for line in shown}) == len(curves)
        assert all(tick == int(tick) for tick in axes.get_xticks())
