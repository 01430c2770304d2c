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
from tuner.core.columns import Columns
from tuner.core.keys import parse_key
from tuner.costmodel.estimate import CostModel
from tuner.launch.dashboard_server import dashboard
from tuner.report.dashboard import annotate
from tuner.report.figures import stacked_bars
from tuner.report.style import figure, legend_below
from tuner.report.summary import term_label
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
    _expert_parallel()


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


def _expert_parallel() -> None:
    """Draw where the estimated time of Qwen3-235B goes, by expert parallel degree."""
    degrees = (8, 16, 32)
    space = space_for(model="qwen3-235b", gpu="H100-80GB-SXM", nodes=32)
    keys = [f"tp2-pp8-dp16-mbs1-z1-vpp4-sp-rsel-emb-ep{degree}-deepep" for degree in degrees]
    topologies = [parse_key(key, workload=space.workload, cluster=space.cluster) for key in keys]
    terms = CostModel().score(Columns.of(topologies, space.workload, space.cluster)).time_terms
    drawn = figure(9.0)
    axes = drawn.subplots()
    seconds = {name: values.tolist() for name, values in terms.items()}
    stacked_bars(axes, seconds, {name: term_label(name) for name in seconds}, horizontal=True)
    axes.set_yticks(range(len(degrees)), [f"ep {degree}" for degree in degrees])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("seconds per iteration, estimated")
    drawn.set_figheight(2.4 + legend_below(drawn, 4, *axes.get_legend_handles_labels()))
    made = io.BytesIO()
    drawn.savefig(made, format="png", dpi=110)
    _save(made.getvalue(), "expert-parallel")


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
