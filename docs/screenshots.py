"""Draw the pictures of README and docs: in a real browser, the report and dashboard of the README's 48-node study.

    python -m docs.screenshots

Needs Chromium (on the path or in `TUNER_CHROMIUM`) and `pip install '.[dashboard]' in tuner's checkout`.
"""

from __future__ import annotations

import io
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

import tuner
from tests.browser import DESK, Browser, browser
from tuner.launch.dashboard_server import dashboard
from tuner.report.dashboard import annotate
from tuner.report.write import write_report
from tuner.space.build import space_for
from tuner.study.limits import Limits
from tuner.study.result import StudyResult, open_study
from tuner.study.settings import StudySettings
from tuner.study.setup import open_loop

PLOTS = Path(__file__).resolve().parent / "plots"
CORPUS = PLOTS.parent.parent / "corpus"
COLOURS = 128
MAX_BYTES = 300_000
"""Largest size of a screenshot."""


def main() -> None:
    """Write the screenshots."""
    with TemporaryDirectory() as folder:
        runs = Path(folder)
        settings = StudySettings(space=space_for(nodes=48), limits=Limits(budget=40), study="bloom-48", runs=runs)
        with open_loop(settings) as loop:
            loop.run()
        study = open_study("bloom-48", runs=runs)
        with browser() as reader:
            _report(reader, study, runs / "report")
            _dashboard(reader, study, runs / "artifacts")
        _batches(runs)


def _report(reader: Browser, study: StudyResult, folder: Path) -> None:
    write_report(study, folder)
    page = reader.page()
    page.resize(DESK)
    page.open((folder / "report.html").as_uri())
    _save(page.screenshot(), "report")
    _save((folder / "plots" / "progress.png").read_bytes(), "progress")
    _save((folder / "plots" / "terms.png").read_bytes(), "terms")


def _dashboard(reader: Browser, study: StudyResult, store: Path) -> None:
    annotate(study, store)
    page = reader.page()
    page.resize((1400, 1060))
    with dashboard(study.url, store) as running:
        page.open(f"{running.url}studies/1")
        page.until("document.querySelectorAll('.js-plotly-plot').length >= 4")
        page.until("document.body.innerText.includes('Best Trial')")
        page.evaluate(_SHOW)
        page.until("!document.querySelector('.MuiSkeleton-root')")
        page.evaluate("new Promise(done => setTimeout(done, 2000))")  # Plotly draws in its own time
        _save(page.screenshot(), "dashboard")
        page.open(f"{running.url}studies/1/trials?numbers={study.ranking[0].trials[0]}")
        page.until(f"document.body.innerText.includes('{study.ranking[0].key} (')")
        page.evaluate("new Promise(done => setTimeout(done, 500))")
        _save(page.screenshot(), "dashboard-trial")


def _batches(folder: Path) -> None:
    """Draw the batches of two published tables."""
    table = CORPUS / "e1-400m-ada.csv"
    found = {
        "e1-batches": tuner.max_batch(launcher="replay", table=table, strategy="ramp", step=16),
        "enoki-batches": tuner.compare(table=CORPUS / "enoki-h100.csv", settings=["tp=1,4"], global_batch=512),
    }
    for name, made in found.items():
        tuner.plot_batches(made, folder / f"{name}.png")
        _save((folder / f"{name}.png").read_bytes(), name)


_SHOW = (
    "[...document.querySelectorAll('.js-plotly-plot')]"
    ".find(plot => plot.textContent.includes('SIMULATED')).scrollIntoView(); window.scrollBy(0, -90)"
)
"""Scroll to the first of our plots."""


def _save(png: bytes, name: str) -> None:
    """Save a screenshot in few colours, which halves the size of mostly plain pictures."""
    picture = Image.open(io.BytesIO(png)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    path = PLOTS / f"{name}.png"
    picture.save(path, optimize=True)
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise SystemExit(f"{path} takes {size:,} bytes, more than {MAX_BYTES:,}.")
    print(f"wrote {path.name}: {size:,} bytes")


if __name__ == "__main__":
    main()
