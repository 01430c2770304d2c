"""A report as Markdown, in the BLOOM report's own layout."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.core.text import pipe_table
from tuner.report.cells import HEADERS, WORDS, headers, table
from tuner.study.leaderboard import Row
from tuner.study.result import Reopened


def markdown(study: Reopened, rows: Sequence[Row], said: Sequence[str], plots: Sequence[tuple[str, str, str]]) -> str:
    """The page; `plots` are file, title and what each shows."""
    label = " (SIMULATED)" if study.simulated else ""
    lines = [f"# Study {study.name}{label}", "", *_spaced(said), "## Topologies", ""]
    lines += pipe_table(headers(rows), table(study, rows), WORDS)
    lines += ["", f"* {footnote(study, rows)}", ""]
    for file, title, alt in plots:
        lines += [f"## {title}", "", f"![{alt}]({file})", "", alt, ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def footnote(study: Reopened, rows: Sequence[Row]) -> str:
    """What the figures of the table are."""
    word = "simulated" if study.simulated else "measured"
    unit = headers(rows)[HEADERS.index("Days")]
    eras = "; all are as the cluster was in the last era" if study.eras else ""
    return (
        f"Sec/it: what the topology's own runs and all others make likely{eras}; each run as it was {word} stands in "
        f"measurements.csv. {unit}: until the training is finished, at equal compute. Mem: the fullest GPU."
    )


def _spaced(sentences: Sequence[str]) -> list[str]:
    return [part for sentence in sentences for part in (sentence, "")]
