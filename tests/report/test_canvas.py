"""The user's matplotlib settings do not affect tuner's plots, and tuner does not change them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.found_studies import opened
from tests.studies import ENVIRONMENT
from tuner.report.write import write_report

DRAW = """
import io
from tuner.report.canvas import FigureCanvasAgg, FigureCanvasSVG
from tuner.report.style import figure, look

with look():
    drawn, image = figure(), io.BytesIO()
    drawn.subplots().plot([1, 2], label="seconds")
    FigureCanvasAgg(drawn).print_png(image)
    FigureCanvasSVG(drawn).print_svg(io.StringIO())
print(len(image.getvalue()))
import matplotlib.pyplot
print(matplotlib.get_backend(), matplotlib.rcParams["text.usetex"])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "rc", "own"),
    [
        ({"MPLBACKEND": "nonsense"}, "", "agg False"),
        ({"MPLBACKEND": "svg"}, "text.usetex: True\nfigure.dpi: 3000\n", "svg True"),
        ({"MPLBACKEND": "agg"}, "font.size: \xff\n", "agg False"),
    ],
)
def test_plots_do_not_depend_on_the_users_settings(
    variables: dict[str, str], rc: str, own: str, tmp_path: Path
) -> None:
    """The settings name an unknown backend or a LaTeX that is not installed, or are not text."""
    (tmp_path / "rc").write_bytes(rc.encode("latin-1"))

    def drawn(**given: str) -> list[str]:
        made = subprocess.run(
            [sys.executable, "-c", DRAW],
            env={**ENVIRONMENT, **given},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr
        return made.stdout.splitlines()

    size, _ = drawn(MPLBACKEND="agg")
    assert drawn(MATPLOTLIBRC=str(tmp_path / "rc"), **variables) == [size, own]


@pytest.mark.slow
def test_settings_of_a_notebook_do_not_apply(tmp_path: Path) -> None:
    """matplotlib is already imported, with LaTeX and 3,000 dots per inch."""
    matplotlib = pytest.importorskip("matplotlib")
    with matplotlib.rc_context({"text.usetex": True, "figure.dpi": 3000}):
        report = write_report(opened("replayed"), tmp_path)
        assert matplotlib.rcParams["text.usetex"]
    assert all(path.stat().st_size for path in report.files)
