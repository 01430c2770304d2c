"""Whether any format can export a model, for commands that plan or search before an export."""

from __future__ import annotations

from dataclasses import replace

from tuner.core.domain import Cluster, Framework, Topology, Workload
from tuner.core.frameworks import RECORDS
from tuner.core.text import either, listed
from tuner.export.bundle import FORMATS
from tuner.export.formats import ExportOptions
from tuner.export.identity import MODEL_PROPERTIES, PROPERTIES
from tuner.export.production import ExpectedPerformance, ProductionRun

MAX_NAMED = 3
"""Properties that a note names."""


def export_note(workload: Workload, cluster: Cluster, *, command: str | None = None) -> str:
    """Return that no format of the workload's framework trains its model; empty if one does or any framework may."""
    framework = workload.framework
    if framework is None or not (refusals := _fewest_refusals(framework, workload, cluster, command)):
        return ""
    able = [name for name in RECORDS if name != framework and _trains(name, workload, cluster, command)]
    remedy = f"; --framework {either(able)} can" if able else ""
    if sizes := next((reason for name, _, reason in refusals if name == "layers"), ""):
        return f"for {framework}, {sizes}, not this model{remedy}."
    rest = len(refusals) - MAX_NAMED
    reasons = [reason for _, _, reason in refusals]
    labels = [
        f"{label} ({reason})" if reason and reason not in reasons[:index] else label
        for index, (_, label, reason) in enumerate(refusals[:MAX_NAMED])
    ]
    named = listed([*labels, *([f"{rest} more"] if rest > 0 else [])])
    return f"tuner export cannot write this model for {framework}: no format expresses {named}{remedy}."


def _trains(framework: Framework, workload: Workload, cluster: Cluster, command: str | None) -> bool:
    """Return whether a format of a framework trains the model with one of the framework's attention kernels."""
    record = RECORDS[framework]
    others = (replace(workload, framework=framework, attention=kernel) for kernel in record.kernels(workload.model))
    return any(
        not record.missing_of_workload(other) and not _fewest_refusals(framework, other, cluster, command)
        for other in others
    )


def _fewest_refusals(
    framework: Framework, workload: Workload, cluster: Cluster, command: str | None
) -> list[tuple[str, str, str]]:
    """Return the properties of the model that the framework's best format refuses on one GPU, each with its label and
    the reason."""
    topology = Topology(nodes=1, tp=1, pp=1, dp=1, micro_batch=1)
    expected = ExpectedPerformance(
        sec_per_iter=1.0, low=1.0, high=1.0, memory=None, usable=0.0, days=1.0, tflops=0.0, source="estimated"
    )
    run = ProductionRun(name="any", workload=workload, cluster=cluster, topology=topology, expected=expected)
    options = ExportOptions(command=command)
    formats = [FORMATS[name] for name in RECORDS[framework].formats]
    refused = [[name for name in one.refused(run, options) if name in MODEL_PROPERTIES] for one in formats]
    fewest = min(refused, key=len)
    best = formats[refused.index(fewest)]
    return [(name, PROPERTIES[name].labelled(run), best.reason(name, run, options)) for name in fewest]
