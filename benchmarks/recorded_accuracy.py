"""The recorded accuracy: figures of each source in the corpus, and which of them got worse since the recording.

`python -m benchmarks.accuracy --record` writes `benchmarks/accuracy.json`; `--check` compares with it, as CI does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from tuner.audit import audit, fixed
from tuner.costmodel.evaluation import Summary, evaluate
from tuner.tables import Row, Table, read_table, table_of

ROOT: Final = Path(__file__).resolve().parent.parent
CORPUS: Final = ROOT / "corpus"
RECORD: Final = ROOT / "benchmarks" / "accuracy.json"
SOURCES: Final = (
    *("aleph-13b-a100", "bloom-a100", "enoki-h100", "megatron-2021-a100", "mpt-fsdp-a100", "tr3m-1b3-v100"),
    *("tr8-104b-v100", "vtrain-single-a100", "modern/fms-fsdp", "modern/internevo-zero1-groups", "modern/kempner-h200"),
)
"""Sources of dense transformers without FP8; E1 is not a transformer."""
SEEDS: Final = range(3)
CALIBRATION_ROWS: Final = 5
TOLERANCE: Final = 1e-4
"""How much worse a figure (a fraction) may be, because floating point differs between machines."""
NOMINAL_COVERAGE: Final = 0.80

LOWER_IS_BETTER: Final = {
    "sec_median_ape": "median error of time",
    "top1_regret": "regret",
    "mem_mape": "mean error of memory",
}
HIGHER_IS_BETTER: Final = {
    "pairs_in_order": "share of pairs in order",
    "balanced_accuracy": "balanced accuracy of fits or not",
}
COVERAGE: Final = {"within_interval": "share of measurements within the 80% interval"}
LABELS: Final = {**LOWER_IS_BETTER, **HIGHER_IS_BETTER, **COVERAGE}

Figures = dict[str, dict[str, dict[str, float]]]
"""Source, then `uncalibrated` or `calibrated`, then figure."""


def measure(sources: Iterable[str]) -> Figures:
    """Return the figures of some sources; calibrated figures are means over several draws of calibration rows."""
    figures: Figures = {}
    for source in sources:
        table = cleaned(read_table(CORPUS / f"{source}.csv"))
        figures[source] = {"uncalibrated": _mean([evaluate(table).summary])}
        grouped = regrouped(table)
        if _leaves_rows_to_score(grouped):
            runs = [evaluate(grouped, calibrate_rows=CALIBRATION_ROWS, seed=seed).summary for seed in SEEDS]
            figures[source]["calibrated"] = _mean(runs)
    return figures


def worse(recorded: Figures, measured: Figures) -> list[str]:
    """Return one sentence for each figure that is worse than recorded, or missing on either side."""
    sentences = []
    for source in recorded.keys() | measured.keys():
        before, now = (_flat(figures.get(source, {})) for figures in (recorded, measured))
        for setting, name in before.keys() | now.keys():
            title = f"{source}, {setting}: the {LABELS[name]}"
            was, is_now = before.get((setting, name)), now.get((setting, name))
            if is_now is None:
                sentences.append(f"{title} is recorded and no longer computed.")
            elif was is None:
                sentences.append(f"{title} is not recorded; run: python -m benchmarks.accuracy --record")
            elif badness(name, is_now) > badness(name, was) + TOLERANCE:
                sentences.append(f"{title} got worse: {100 * is_now:.2f}%, recorded {100 * was:.2f}%.")
    return sorted(sentences)


def badness(name: str, value: float) -> float:
    """Convert a figure so that lower is better; for coverage, return the distance from 80%."""
    if name in COVERAGE:
        return abs(value - NOMINAL_COVERAGE)
    return value if name in LOWER_IS_BETTER else -value


def read_record(path: Path = RECORD) -> Figures:
    """Return the recorded figures."""
    sources: Figures = json.loads(path.read_text(encoding="utf-8"))["sources"]
    return sources


def write_record(figures: Figures, path: Path = RECORD) -> None:
    """Write figures as the record."""
    document = {"schema": "tuner/accuracy/1", "sources": figures}
    path.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def cleaned(table: Table) -> Table:
    """Return the table with the repairs that the audit suggests, if it is BLOOM's; no other table needs repairs."""
    return table_of(fixed(table, audit(table)), table.name) if table.name.startswith("bloom") else table


def regrouped(table: Table) -> Table:
    """Group BLOOM's rows by day and Enoki's by tensor parallel degree, the units in which they are calibrated."""

    def group(row: Row) -> str:
        if table.name.startswith("enoki") and row.run:
            return f"tp{row.run.topology.tp}"
        day = re.search(r"\d\d-\d\d", row.group) if table.name.startswith("bloom") else None
        return day[0] if day else row.group

    return replace(table, rows=tuple(replace(row, group=group(row)) for row in table.rows))


def _leaves_rows_to_score(table: Table) -> bool:
    groups = [row.group for row in table.rows if row.timed]
    return any(groups.count(group) > CALIBRATION_ROWS for group in set(groups))


def _mean(summaries: Sequence[Summary]) -> dict[str, float]:
    values = {name: [getattr(summary, name) for summary in summaries] for name in LABELS}
    known = {name: [value for value in of_name if value is not None] for name, of_name in values.items()}
    return {name: round(float(np.mean(of_name)), 9) for name, of_name in known.items() if of_name}


def _flat(figures: Mapping[str, Mapping[str, float]]) -> dict[tuple[str, str], float]:
    return {(setting, name): value for setting, named in figures.items() for name, value in named.items()}
