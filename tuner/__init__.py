"""Find the topology that finishes training soonest.

`space_for` describes the model and the cluster, `plan` ranks it by estimate, `plan_frameworks` compares training
frameworks, `explain` checks one topology, `flops` counts its operations. `optimize` searches with jobs, `open_study`
reads a study, `write_report` and `write_export` write its files, `list_studies`, `stop_study` and `recover_study`
manage studies. `measure` reads a log, `read_table`, `evaluate` and `calibrate` work on tables of measurements, and
`audit_file` finds what cannot be true in either. `memory` budgets a GPU, `max_batch` finds the largest batch that fits,
and `compare` compares topologies by it; `plot_batches` and `write_comparison` write files of their results.

Names are imported when they are first used, so that `import tuner` costs nothing.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # `typing` takes longer to import than the rest of this file
if TYPE_CHECKING:
    from typing import Any

    from tuner.audit.api import audit_file
    from tuner.audit.measure import measure
    from tuner.core.domain import Cluster, Gpu, Link, Topology, Workload
    from tuner.core.keys import parse_key
    from tuner.core.model import Model
    from tuner.core.shape import Shape
    from tuner.costmodel.evaluation import evaluate
    from tuner.export.api import write_export
    from tuner.export.fsdp import write_comparison
    from tuner.planning.explain import explain
    from tuner.planning.flop_count import flops
    from tuner.planning.frameworks import plan_frameworks
    from tuner.planning.plan import plan
    from tuner.report.batch_plots import plot_batches
    from tuner.report.write import write_report
    from tuner.sizing.api import compare, max_batch
    from tuner.sizing.memory_budget import memory
    from tuner.space.build import space_for
    from tuner.space.rules import RuleSet
    from tuner.space.space import Space
    from tuner.study.api import optimize
    from tuner.study.manage import list_studies, stop_study
    from tuner.study.result import open_study
    from tuner.study.store.recover import recover_study
    from tuner.study.warm_start import calibrate
    from tuner.tables import read_table

__version__ = "0.1.0"

__all__ = [
    "Cluster",
    "Gpu",
    "Link",
    "Model",
    "RuleSet",
    "Shape",
    "Space",
    "Topology",
    "Workload",
    "audit_file",
    "calibrate",
    "compare",
    "evaluate",
    "explain",
    "flops",
    "list_studies",
    "max_batch",
    "measure",
    "memory",
    "open_study",
    "optimize",
    "parse_key",
    "plan",
    "plan_frameworks",
    "plot_batches",
    "read_table",
    "recover_study",
    "space_for",
    "stop_study",
    "write_comparison",
    "write_export",
    "write_report",
]

_HOME = {
    **dict.fromkeys(("Cluster", "Gpu", "Link", "Topology", "Workload"), "core.domain"),
    "Model": "core.model",
    "Shape": "core.shape",
    "RuleSet": "space.rules",
    "Space": "space.space",
    "audit_file": "audit.api",
    "calibrate": "study.warm_start",
    "compare": "sizing.api",
    "evaluate": "costmodel.evaluation",
    "explain": "planning.explain",
    "flops": "planning.flop_count",
    "list_studies": "study.manage",
    "max_batch": "sizing.api",
    "measure": "audit.measure",
    "memory": "sizing.memory_budget",
    "open_study": "study.result",
    "optimize": "study.api",
    "parse_key": "core.keys",
    "plan": "planning.plan",
    "plan_frameworks": "planning.frameworks",
    "plot_batches": "report.batch_plots",
    "read_table": "tables",
    "recover_study": "study.store.recover",
    "space_for": "space.build",
    "stop_study": "study.manage",
    "write_comparison": "export.fsdp",
    "write_export": "export.api",
    "write_report": "report.write",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tuner' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tuner.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
