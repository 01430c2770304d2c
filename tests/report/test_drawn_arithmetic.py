"""Contents of plots, read from their axes: the curves of batches, the map of degrees and the speed of the cluster."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("matplotlib")

import matplotlib as mpl

mpl.use("Agg")

from tests.workers import ONE
from tuner.core.shape import Shape
from tuner.report import batch_plots, maps, plot_data
from tuner.report.batch_plots import Curve, Panel
from tuner.report.style import GREY, ORANGE
from tuner.report.summary import days_label
from tuner.sizing.max_batch import MaxBatchResult

CURVE = Curve(
    label="a",
    points=((2, 10.0), (4, 20.0)),
    failed=(8, 16),
    line=(0.0, 5.0),
    rates=((2, 1000.0), (4, 3000.0)),
)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Draw panels, and return the open figure and its file."""

    def draw(panels: list[Panel], **rest: Any) -> tuple[Any, Path]:
        kept: list[Any] = []
        save = batch_plots._save

        def noted(figure: Any, path: Path) -> None:
            kept.append(figure)
            save(figure, path)

        monkeypatch.setattr(batch_plots, "_save", noted)
        path = tmp_path / "new" / "plot.png"
        batch_plots.draw(panels, path, **rest)
        return kept[0], path

    return draw


def points(line: Any) -> list[tuple[float, float]]:
    """Return the points of a line."""
    return [(float(x), float(y)) for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)]


def test_memory_is_drawn_with_its_fit_the_limit_and_failures(drawn: Any) -> None:
    """The fit is 5 GiB per sample; of the failures at 40 and 48 GiB, the second is above the axis."""
    figure, path = drawn([Panel(title="m", usable=40.0, curves=(CURVE,))], axis="sequences")
    memory, rates = figure.axes
    limit, fit, measured, first, second = memory.get_lines()
    assert set(limit.get_ydata()) == {40.0}
    assert points(fit) == [(0, 0.0), (16, 80.0)]
    assert points(measured) == [(2, 10.0), (4, 20.0)]
    assert (points(first), first.get_marker()) == ([(8, 40.0)], "x")
    assert (points(second), second.get_marker()) == ([(16, 48.0)], "^")
    assert memory.get_ylim() == (0.0, 50.0)
    assert memory.get_xlim()[0] == 0.0
    assert memory.get_title() == "m"
    assert [line.get_markersize() for line in memory.get_lines()[2:]] == [5, 8, 8]
    assert [line.get_markeredgewidth() for line in memory.get_lines()[2:]] == [1, 2, 2]
    assert [line.get_linewidth() for line in (limit, fit, rates.get_lines()[0])] == [1.0] * 3
    assert (fit.get_alpha(), rates.get_lines()[0].get_markersize()) == (0.6, 4)
    (label,) = memory.texts
    assert (label.get_text(), label.xy, label.xycoords) == ("limit", (0.02, 40.0), ("axes fraction", "data"))
    assert (label.get_fontsize(), label.get_va()) == (8, "bottom")
    (legend,) = figure.legends
    assert {text.get_fontsize() for text in legend.get_texts()} == {8}
    assert memory.title.get_fontsize() == 10
    assert [text.get_text() for text in legend.get_texts()] == [
        "a",
        "a, out of memory",
        "a, out of memory, off the scale",
    ]
    assert not any(legend.get_window_extent().overlaps(axes.get_tightbbox()) for axes in figure.axes)
    (speed,) = rates.get_lines()
    assert points(speed) == [(2, 1.0), (4, 3.0)]
    assert rates.get_ylim() == pytest.approx((0.0, 3.24))
    assert (memory.get_ylabel(), rates.get_ylabel()) == ("GiB per GPU", "thousand tokens per second")
    assert (memory.get_xlabel(), rates.get_xlabel()) == ("", "sequences")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_batches_without_times_or_fits_have_one_row_of_axes(drawn: Any) -> None:
    """Failures are drawn at the limit, and one legend below has the labels of all panels, each once."""
    plain = Curve(label="b", points=((2, 10.0),), failed=(), line=None, rates=())
    failed = Curve(label="c", points=((2, 10.0),), failed=(4,), line=None, rates=())
    panels = [Panel(title="m", usable=40.0, curves=(plain,)), Panel(title="n", usable=30.0, curves=(plain, failed))]
    figure, _ = drawn(panels)
    first, second = figure.axes
    assert points(second.get_lines()[-1]) == [(4, 30.0)]
    assert second.get_lines()[-1].get_marker() == "x"
    assert [axis.get_legend() for axis in (first, second)] == [None, None]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["b", "c", "c, out of memory"]
    assert [axis.get_xlabel() for axis in figure.axes] == ["micro-batch size"] * 2
    assert tuple(figure.get_size_inches()) == pytest.approx((6.2, 3.6))


def cell(tp: int, pp: int, days: float | None, outcome: str = "MEASURED", *, extrapolated: float | None = None) -> Any:
    """Return a cell of the map."""
    return SimpleNamespace(tp=tp, pp=pp, days=days, extrapolated=extrapolated, tried=3, outcome=outcome)


def test_the_map_has_a_cell_per_tp_and_pp_and_frames_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shades range from dark for the fastest to light for 1.5 times its time."""
    cells = [cell(1, 1, 10.0), cell(2, 1, 12.0), cell(2, 4, 30.0), cell(1, 4, None, "OOM")]
    monkeypatch.setattr(plot_data, "degree_cells", lambda _: cells)
    monkeypatch.setattr(maps, "days_label", lambda *_: "days")
    made = maps.degree_map(SimpleNamespace(), [])  # type: ignore[arg-type]
    assert made is not None
    axes: Any = made.figure.axes[0]
    boxes = [(patch.get_x(), patch.get_y(), patch.get_facecolor()[:3]) for patch in axes.patches]
    corners = [(round(x + 0.47, 6), round(y + 0.45, 6)) for x, y, _ in boxes]
    assert corners == [(0, 0), (0, 0), (0, 1), (1, 1), (1, 0)]
    assert boxes[0][2] == pytest.approx((0.0, 0.27, 0.46))
    assert boxes[3][2] == pytest.approx((0.90, 0.93, 0.96))
    share = 0.4496  # log 1.2 / log 1.5
    assert boxes[2][2][0] == pytest.approx(0.9 * share, abs=1e-3)
    assert axes.patches[1].get_edgecolor()[:3] == pytest.approx(mpl.colors.to_rgb(ORANGE))
    assert axes.patches[0].get_edgecolor()[:3] == pytest.approx(mpl.colors.to_rgb(GREY))
    assert [patch.get_linestyle() for patch in axes.patches] == ["-", "-", "-", "-", "--"]
    assert [text.get_position() for text in axes.texts] == [(0, 0), (0, 1), (1, 1), (1, 0)]
    assert [text.get_text() for text in axes.texts][:3] == ["10.00\n3 tried", "12.00\n3 tried", "30.00\n3 tried"]
    assert axes.texts[3].get_text().endswith("\n3 tried")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "4"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "2"]
    assert "has tp 1 and pp 1" in made.alt
    assert tuple(made.figure.get_size_inches()) == pytest.approx((6.0, 3.3))
    monkeypatch.setattr(plot_data, "degree_cells", lambda _: cells[:1])
    assert maps.degree_map(SimpleNamespace(), []) is None  # type: ignore[arg-type]


def test_an_extrapolated_cell_of_the_map_is_not_a_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """An extrapolated cell is never the fastest, and a measured topology of the same cell takes precedence."""
    cells = [cell(1, 1, 10.0, extrapolated=8.0), cell(2, 1, None, "EXTRAPOLATED", extrapolated=9.0)]
    monkeypatch.setattr(plot_data, "degree_cells", lambda _: cells)
    monkeypatch.setattr(maps, "days_label", lambda *_: "days to train on 13.7 trillion tokens")
    made = maps.degree_map(SimpleNamespace(), [])  # type: ignore[arg-type]
    assert made is not None
    axes: Any = made.figure.axes[0]
    assert [text.get_text() for text in axes.texts] == ["10.00\n3 tried", "~9.000\n3 tried"]
    assert [patch.get_linestyle() for patch in axes.patches] == ["-", "-", "--"]
    assert "has tp 1 and pp 1" in made.alt
    assert axes.get_title().endswith("darker is faster; ~: extrapolated")
    made.figure.draw_without_rendering()
    assert made.figure.bbox.containsx(axes.title.get_window_extent().x0)
    assert made.figure.bbox.containsx(axes.title.get_window_extent().x1)


def test_ticks_that_would_overlap_are_omitted() -> None:
    """A tick is kept if it is more than 7% of the axis beyond the previous one."""
    assert maps._spaced([32, 64, 104, 112, 120, 128]) == [32, 64, 104, 120]
    assert maps._spaced([12288, 13824, 14336]) == [12288, 13824, 14336]
    assert maps._spaced([]) == []


def test_the_speed_of_the_cluster_is_drawn_with_repeats_as_separate_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dashed line half a trial before its first marks each period."""
    series = SimpleNamespace(
        numbers=[0, 1, 2], ratios=[1.0, 1.1, 0.9], repeats=[False, True, False], periods=[(2, 0.95)]
    )
    monkeypatch.setattr(plot_data, "cluster_speed", lambda _: series)
    made = maps.speed_plot(SimpleNamespace())  # type: ignore[arg-type]
    assert made is not None
    axes: Any = made.figure.axes[0]
    first, second, level, period = axes.get_lines()
    assert points(first) == [(0, 1.0), (2, 0.9)]
    assert points(second) == [(1, 1.1)]
    assert [line.get_label() for line in (first, second)] == [
        "relative to its estimate",
        "relative to the topology's first run",
    ]
    assert set(level.get_ydata()) == {1.0}
    assert set(period.get_xdata()) == {1.5}
    label = axes.texts[0]
    assert label.get_text() == "from trial 2: 0.950 x the time"
    assert (label.xy, label.get_position(), label.get_va()) == ((1.5, 1.0), (5, -2), "top")
    assert (label.xycoords, label.anncoords) == (("data", "axes fraction"), "offset points")
    assert axes.margins() == (pytest.approx(mpl.rcParams["axes.xmargin"]), 0.2)
    assert [line.get_marker() for line in (first, second)] == ["o", "D"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("trial", "relative seconds per iteration")
    assert tuple(made.figure.get_size_inches()) == pytest.approx((8.0, 4.2))
    assert "from trial 2 on, iterations took 0.950 times as long" in made.alt


@pytest.mark.parametrize("axis", ["heads", "hidden"])
def test_an_axis_of_the_model_has_the_prediction_and_all_measurements(
    axis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maps, "ranked_word", lambda _: "measured")
    monkeypatch.setattr(maps, "days_label", lambda *_: "days")
    series = SimpleNamespace(axis=axis, predicted=[(16, 12.0), (32, 10.0)], measured=[(16, 13.0), (32, 11.0)])
    made = maps.model_axis_plot(SimpleNamespace(), series)  # type: ignore[arg-type]
    assert made is not None
    axes: Any = made.figure.axes[0]
    predicted, measured = axes.get_lines()[:2]
    assert points(predicted) == [(16, 12.0), (32, 10.0)]
    assert points(measured) == [(16, 13.0), (32, 11.0)]
    assert axes.get_xlabel() == ("attention heads" if axis == "heads" else "hidden size")
    assert made.title == f"Training time by {axes.get_xlabel()}"
    assert ("32 heads" if axis == "heads" else "hidden size 32") in made.alt
    assert axes.get_xscale() == "log"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["16", "32"]
    series.predicted, series.measured = [(16, 12.0)], [(16, 13.0)]
    assert maps.model_axis_plot(SimpleNamespace(), series) is None  # type: ignore[arg-type]


def attempt(batch: int, memory: float | None, *, fits: bool = True, too_large: bool = False) -> Any:
    """Return a batch that was tried."""
    return SimpleNamespace(micro_batch=batch, peak_memory=memory, fits=fits, too_large=too_large)


def test_a_search_is_drawn_by_sequences_on_all_ranks() -> None:
    """On 4 ranks, a micro batch of 2 is 8 sequences; memory is in GiB, and its slope per sequence on all ranks."""
    gib = 2.0**30
    attempts = [
        attempt(4, 20 * gib),
        attempt(2, 10 * gib),
        attempt(8, None, fits=False, too_large=True),
        attempt(3, None),
    ]
    worth = [
        SimpleNamespace(micro_batch=2, tokens_per_second=100.0),
        SimpleNamespace(micro_batch=4, tokens_per_second=None),
    ]
    fit = SimpleNamespace(at_zero=2 * gib, per_sample=4 * gib)
    made: Any = SimpleNamespace(found=SimpleNamespace(attempts=attempts), fit=fit, worth=worth)
    assert batch_plots.curve(made, "a", scale=4) == Curve(
        label="a",
        points=((8, 10.0), (16, 20.0)),
        failed=(32,),
        line=(2.0, 1.0),
        rates=((8, 100.0),),
    )
    made.fit = None
    assert batch_plots.curve(made, "a").line is None
    assert batch_plots.curve(made, "a").failed == (8,)


def batches(usable: float, micro_batch: int, memory: float, source: str = "jobs") -> Any:
    """Return the result of a search that tried one batch."""
    found = SimpleNamespace(attempts=[attempt(micro_batch, memory)])
    given: dict[str, Any] = {"usable": usable, "source": source, "worth": (), "found": found}
    return MaxBatchResult(**{**{field.name: None for field in fields(MaxBatchResult)}, **given})


def test_a_search_has_one_panel_and_a_comparison_one_per_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is in GiB; compared layouts are drawn by the sequences on all ranks."""
    gib, drawn = 2.0**30, list[Any]()
    monkeypatch.setattr(batch_plots, "draw", lambda panels, path, **axis: drawn.append((panels, path, axis)))
    batch_plots.plot_batches(batches(40 * gib, 2, 10 * gib), "a.png")
    ((panels, path, axis),) = drawn
    own = Curve(label="jobs", points=((2, 10.0),), failed=(), line=None, rates=())
    assert (panels, path, axis) == ([Panel(title="", usable=40.0, curves=(own,))], Path("a.png"), {})
    models: Any = [
        [
            SimpleNamespace(
                title=f"model {model}",
                label=f"tp={tp}",
                topology=SimpleNamespace(dp=8 // tp),
                answer=batches((40 + model + tp) * gib, tp, 10 * gib),
            )
            for tp in (2, 4)
        ]
        for model in (1, 2)
    ]
    compared: Any = SimpleNamespace(models=models)
    batch_plots.plot_batches(compared, Path("b.png"))
    panels, path, axis = drawn[1]
    assert (path, axis) == (Path("b.png"), {"axis": "sequences per step, all ranks"})
    assert [(panel.title, panel.usable) for panel in panels] == [("model 1", 43.0), ("model 2", 44.0)]
    assert [(curve.label, curve.points) for curve in panels[1].curves] == [
        ("tp=2", ((8, 10.0),)),
        ("tp=4", ((8, 10.0),)),
    ]


@pytest.mark.parametrize(
    ("searched", "axes"),
    [
        ({}, []),
        ({"heads": [16], "shape": ["2048x24"]}, []),
        ({"heads": [16, 32], "shape": ["2048x24"]}, [("heads", [(16, None), (32, None)])]),
        (
            {"heads": [16], "shape": ["2048x24", "1024x96"]},
            [("hidden", [(None, Shape(hidden=2048, layers=24)), (None, Shape(hidden=1024, layers=96))])],
        ),
    ],
)
def test_an_axis_of_the_model_is_drawn_if_it_was_searched(
    searched: dict[str, Any], axes: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plot has the leader's layout at each value, and does not exist before the first measurement."""
    drawn: list[Any] = []
    monkeypatch.setattr(plot_data, "_model_axis", lambda _study, _rows, *given: drawn.append(given))
    leader: Any = SimpleNamespace(topology=ONE, ranked=object())
    plot_data.model_axes(SimpleNamespace(searched=searched), [leader])  # type: ignore[arg-type]
    assert [(axis, [(one.heads, one.shape) for one in variants]) for axis, variants in drawn] == axes
    assert all(replace(one, heads=None, shape=None) == ONE for _, variants in drawn for one in variants)
    leader.ranked = None
    for rows in ([], [leader]):
        assert plot_data.model_axes(SimpleNamespace(searched=searched), rows) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shapes", "label"),
    [
        ([None, None], "hours to train on 1 trillion tokens"),
        ([None, [8192, 40]], "hours, with the compute of 1 trillion tokens"),
    ],
)
def test_several_models_are_compared_at_equal_compute(shapes: list[Any], label: str) -> None:
    launched = [SimpleNamespace(proposal=SimpleNamespace(topology={"tp": 1, "shape": shape})) for shape in shapes]
    study: Any = SimpleNamespace(workload=SimpleNamespace(training_tokens=1e12), launched=launched)
    assert days_label(study, "hours") == label
