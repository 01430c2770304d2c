"""A report and the dashboard in a real Chromium, without a window.

These tests need Debian's Chromium, or the one that `TUNER_CHROMIUM` names, and axe-core from npm, or the `axe.min.js`
that `TUNER_AXE` names; `.ci/run` installs both.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.browser import DESK, PHONE, Browser, Page, browser, chromium
from tests.found_studies import opened, study_in
from tuner.launch.dashboard_server import dashboard
from tuner.report.dashboard import annotate
from tuner.report.write import write_report
from tuner.study.result import open_study

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="no Chromium: apt-get install chromium, or set TUNER_CHROMIUM"),
]

AXE = Path(os.environ.get("TUNER_AXE", "node_modules/axe-core/axe.min.js"))
STUDIES = ("bloom-48", "replayed")
SEEN = "[...document.images].every(each => each.complete && each.naturalWidth > 0)"


@pytest.fixture(scope="module")
def reader() -> Iterator[Browser]:
    with browser() as running:
        yield running


@pytest.fixture(params=[(DESK, False), (DESK, True), (PHONE, False), (PHONE, True)], ids=str)
def page(reader: Browser, request: pytest.FixtureRequest) -> Page:
    """A page of desktop or phone size, light or dark."""
    size, dark = request.param
    opened = reader.page()
    opened.resize(size, dark=dark)
    return opened


@pytest.fixture(scope="module", params=STUDIES)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_report(opened(request.param), folder)
    return folder / "report.html"


def test_a_report_opens_without_requests_or_errors(page: Page, report: Path) -> None:
    """All images are visible, and the page does not scroll sideways; wide content scrolls in its own frame."""
    page.open(report.as_uri())
    assert page.evaluate(SEEN)
    assert page.evaluate("document.images.length") >= 6
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.drain_events()
    assert set(page.requests) == {report.as_uri()}
    assert page.complaints == []


WIDTHS = (1920, 1280, 390)
OUTSIDE = """[...document.querySelectorAll('td')].filter(cell => cell.offsetParent && cell.textContent).filter(cell => {
  const box = cell.getBoundingClientRect();
  return box.left < 0 || box.right > window.innerWidth || cell.scrollWidth > cell.clientWidth + 1;
}).map(cell => cell.dataset.label)"""
WITHOUT_CUE = """[...document.querySelectorAll('figure')].filter(figure => {
  const frame = figure.querySelector('.scroll');
  return frame.scrollWidth > frame.clientWidth && !figure.querySelector('.swipe').offsetHeight;
}).length"""


@pytest.mark.parametrize("width", WIDTHS)
def test_no_column_or_plot_is_cut_off_without_a_hint(reader: Browser, report: Path, width: int) -> None:
    """Every table cell is inside the window; a plot wider than its frame has a hint that it scrolls."""
    page = reader.page()
    page.resize((width, 900))
    page.open(report.as_uri())
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate("document.querySelectorAll('td').length") > 17
    assert page.evaluate(WITHOUT_CUE) == 0
    labelled = page.evaluate("getComputedStyle(document.querySelector('td'), '::before').content") != "none"
    assert labelled == (width < 1200)


BROKEN = """[...document.querySelectorAll('td:not(.long):not(.key)')].filter(cell => {
  const range = document.createRange();
  range.selectNodeContents(cell);
  return !cell.textContent.includes(' ') && range.getClientRects().length > 1;
}).map(cell => cell.textContent)"""


@pytest.mark.parametrize("width", [320, 375, 800, 1280])
def test_no_word_of_a_narrow_cell_is_broken(reader: Browser, report: Path, width: int) -> None:
    page = reader.page()
    page.resize((width, 900))
    page.open(report.as_uri())
    assert page.evaluate(BROKEN) == []


def test_a_report_follows_the_colour_scheme_of_the_browser(reader: Browser, report: Path) -> None:
    seen = []
    for dark in (False, True):
        page = reader.page()
        page.resize(dark=dark)
        page.open(report.as_uri())
        seen.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert seen == ["rgb(255, 255, 255)", "rgb(22, 25, 28)"]


@pytest.mark.skipif(not AXE.is_file(), reason="no axe-core: npm install axe-core, or set TUNER_AXE to its axe.min.js")
def test_axe_finds_no_accessibility_violation(page: Page, report: Path) -> None:
    """This includes rules of every impact."""
    page.open(report.as_uri())
    page.evaluate(f"{AXE.read_text()};0")
    violations = "found => found.violations.map(each => [each.impact, each.id, each.nodes[0].html])"
    found = page.evaluate(f"axe.run().then({violations})")
    assert found == []


@pytest.mark.skipif(find_spec("optuna_dashboard") is None, reason="pip install '.[dashboard]'")
def test_the_dashboard_shows_the_best_trial_with_its_note_and_tuners_plots(reader: Browser, tmp_path: Path) -> None:
    """The pages of the study show them, and no other host is contacted."""
    study = open_study("bloom-48", runs=study_in(tmp_path))
    annotate(study, tmp_path / "artifacts")
    page = reader.page()
    page.resize(DESK)
    best = study.ranking[0]
    with dashboard(study.url, tmp_path / "artifacts") as running:
        page.open(running.url)
        page.until("document.body.innerText.includes('bloom-48')")

        page.open(f"{running.url}studies/1")
        page.until("document.body.innerText.includes('Best Trial')")
        page.until("document.body.innerText.includes('SIMULATED: Best so far')")
        page.until("document.querySelectorAll('.js-plotly-plot').length >= 4")
        for title in ("Estimate vs. measurement", "Where the time goes", f"Memory of {best.key}"):
            assert f"SIMULATED: {title}" in page.text()

        page.open(f"{running.url}studies/1/note")
        page.until(f"document.body.innerText.includes('{best.key} is the fastest topology')")

        page.open(f"{running.url}studies/1/trials?numbers={best.trials[0]}")
        page.until(f"document.body.innerText.includes('{best.key} (search)')")
        assert "node-hours" in page.text()
        assert "job.json" in page.text()

        page.drain_events()
        assert all(each.startswith(running.url.removesuffix("dashboard/")) for each in page.requests)
        assert page.complaints == []
