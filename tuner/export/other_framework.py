"""The note of an export whose framework is not the study's."""

from __future__ import annotations

from dataclasses import replace

from tuner.core.columns import Columns
from tuner.core.quantity import GIB
from tuner.core.text import seconds
from tuner.costmodel.estimate import CostModel
from tuner.costmodel.memory import limit
from tuner.export.formats import ExportOptions, Format
from tuner.export.production import ProductionRun


def other_framework_note(run: ProductionRun, chosen: Format, options: ExportOptions) -> str:
    """Return the estimate of the format's framework if the study ran another one.

    Empty if it is the same, if the user's command is exported, or if the GPU lacks the precision.
    """
    own, framework = run.workload.framework, chosen.framework
    runs_own_command = chosen.runs_command and options.command is not None
    if own in (None, framework) or runs_own_command or run.workload.precision not in run.cluster.gpu.peak_flops:
        return ""
    workload = replace(run.workload, framework=framework)
    columns = Columns.of([run.topology], workload, run.cluster)
    scores = CostModel().score(columns)
    time, needed, usable = seconds(float(scores.seconds[0])), float(scores.memory[0]) / GIB, limit(columns) / GIB
    fits = "" if scores.fits[0] else ", so it is likely to run out of memory"
    return (
        f"The study ran {own}, but these files start {framework}, for which the uncalibrated estimate is {time} s per "
        f"iteration and {needed:.1f} of {usable:.1f} GiB on the fullest GPU{fits}. Measure it with a study of "
        f"{framework}."
    )
