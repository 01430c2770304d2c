"""A report's tables as texts: the BLOOM report's columns and what its author wished for, and the measurement format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tuner.core.outcomes import Outcome
from tuner.core.text import column, seconds
from tuner.study.leaderboard import GIB, LeaderboardRow, size
from tuner.study.result import StudyResult
from tuner.study.store.trial import Trial
from tuner.tables import COLUMNS, write_csv

HEADERS: Final = (
    *("Nodes", "Size", "DP", "TP", "PP", "MBS", "GBS", "Mem", "Sec/it", "TFLOPs", "Notes"),
    *("Days", "80% between", "Era", "Outcome", "Topology", "Why"),
)
"""The first eleven are the BLOOM report's own, in its order; `Days` is the unit of a training of days."""

WORDS: Final = frozenset({"Notes", "Era", "Outcome", "Topology", "Why", "80% between"})
"""Columns that are text; the others are numbers."""


def headers(rows: Sequence[LeaderboardRow]) -> list[str]:
    """The columns, with the unit of time that fits these rows."""
    unit, _ = _unit(rows)
    return [unit if header == "Days" else header for header in HEADERS]


def table(study: StudyResult, rows: Sequence[LeaderboardRow]) -> list[list[str]]:
    """One line for each topology."""
    _, each = _unit(rows)
    return [_line(study, row, each) for row in rows]


def _unit(rows: Sequence[LeaderboardRow]) -> tuple[str, float]:
    return column([row.place.days for row in rows if row.place])


def _line(study: StudyResult, row: LeaderboardRow, each: float) -> list[str]:
    """Its cells; `each` is how many of the unit of time a day has."""
    topology, place = row.topology, row.place
    outcome = row.outcome.lower().replace("_", " ")
    if place and study.simulated:
        outcome = "simulated"
    runs = f", {place.runs} runs" if place and place.runs > 1 else ""
    return [
        str(topology.nodes),
        size(row.workload.model.parameters),
        *(
            str(degree)
            for degree in (topology.dp, topology.tp, topology.pp, topology.micro_batch, row.workload.global_batch)
        ),
        f"{row.memory / GIB:.1f}GiB" if row.memory else "",
        seconds(place.seconds) if place else "",
        f"{row.flops / 1e12:.2f}" if row.flops else "",
        row.notes + runs,
        f"{place.days * each:,.1f}" if place else "",
        f"{place.low * each:,.1f} to {place.high * each:,.1f}" if place else "",
        row.era,
        outcome,
        row.key,
        f"{row.why}; {row.ended}" if row.ended else row.why,
    ]


_STATUS: Final = {
    Outcome.MEASURED: "OK",
    Outcome.OOM: "OOM",
    Outcome.HUNG: "HANG",
    Outcome.CRASHED: "FAIL",
    Outcome.TIMED_OUT: "FAIL",
}

_UNTOLD: Final = {
    Outcome.PRUNED: "stopped by the search, it could no longer win",
    Outcome.PREEMPTED: "its job was taken off the machine",
    Outcome.CANCELLED: "its job was cancelled",
}
"""What says nothing of a topology's own end: kept in the table, and skipped by every command that reads it."""

_MORE: Final = (
    *("partition", "parallel_loss", "audit", "era", "trial", "topology", "outcome", "days", "node_hours", "why"),
    "simulated",
)


def measurements(study: StudyResult) -> str:
    """Every job that has ended as a row of the measurement table."""
    rows = [_cells(study, trial) for trial in study.launched if trial.ending]
    return write_csv((*COLUMNS, *_MORE), rows)


def _cells(study: StudyResult, trial: Trial) -> dict[str, str]:
    (workload, cluster), topology = study.setting(trial), study.topology(trial)
    workload, ending, era = workload.as_in(topology), trial.ending, study.labels[trial.number]
    assert ending is not None  # noqa: S101 - the caller has asked
    model, proposal = workload.model, trial.proposal
    outcome = "simulated" if ending.simulated and trial.measured else ending.outcome.value.lower()
    return {
        "group": " ".join(filter(None, (study.name, era))),
        "gpu": cluster.gpu.name,
        "gpus_per_node": str(cluster.gpus_per_node),
        "nodes": str(topology.nodes),
        "node_gbit_s": f"{cluster.inter_node.bandwidth * 8 / 1e9:.9g}",
        "layers": str(model.layers),
        "hidden": str(model.hidden),
        "heads": str(model.heads),
        "kv_heads": str(model.kv_heads),
        "ffn": str(model.ffn),
        "gated_mlp": str(int(model.gated_mlp)),
        "seq": str(model.seq),
        "vocab": str(model.vocab),
        "tp": str(topology.tp),
        "pp": str(topology.pp),
        "vpp": str(topology.vpp),
        "cp": str(topology.cp),
        "dp": str(topology.dp),
        "sequence_parallel": str(int(topology.sequence_parallel)),
        "zero": str(topology.zero),
        "mbs": str(topology.micro_batch),
        "gbs": str(workload.global_batch),
        "recompute": topology.recompute,
        "attention": workload.attention,
        "fused_norm": str(int(workload.fused_norms)),
        "precision": workload.precision,
        "sec_per_iter": f"{ending.seconds:.9g}" if ending.seconds else "",
        "tflops": f"{ending.tflops:.6g}" if ending.tflops else "",
        "mem_gib": f"{ending.peak_memory / GIB:.6g}" if ending.peak_memory else "",
        "mem_kind": "smi" if ending.peak_memory else "",
        "status": _STATUS.get(ending.outcome, "FAIL"),
        "note": ending.evidence or ending.reason,
        "source": f"{'SIMULATED, ' if ending.simulated else ''}study {study.name}",
        "partition": topology.partition,
        "parallel_loss": str(int(workload.parallel_loss)),
        "audit": f"exclude: {_UNTOLD[ending.outcome]}" if ending.outcome in _UNTOLD else "",
        "era": era or "1",
        "trial": str(trial.number),
        "topology": proposal.key,
        "outcome": outcome,
        "days": f"{ending.objective:.9g}" if ending.objective else "",
        "node_hours": f"{ending.node_hours:.6g}",
        "why": proposal.why,
        "simulated": str(int(ending.simulated)),
    }
