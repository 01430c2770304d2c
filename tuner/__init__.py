"""Find the topology that finishes training soonest.

`space_for` describes what is to be trained on what, `plan` ranks it by estimate, `explain` judges one topology,
`optimize` searches with jobs, `open_study` reads a study, `write_report` and `write_export` write its files, and
`list_studies` and `stop_study` manage studies. `read_table`, `evaluate` and `calibrate` work on measurements.

Names are imported when they are first used, so that `import tuner` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.core.domain import Cluster, Gpu, Link, Model, Shape, Topology, Workload
    from tuner.core.keys import parse_key
    from tuner.costmodel.evaluation import evaluate
    from tuner.export.api import write_export
    from tuner.planning.explain import explain
    from tuner.planning.plan import plan
    from tuner.report.write import write_report
    from tuner.space.build import space_for
    from tuner.space.rules import RuleSet
    from tuner.space.space import Space
    from tuner.study.api import optimize
    from tuner.study.manage import list_studies, stop_study
    from tuner.study.result import open_study
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
    "calibrate",
    "evaluate",
    "explain",
    "list_studies",
    "open_study",
    "optimize",
    "parse_key",
    "plan",
    "read_table",
    "space_for",
    "stop_study",
    "write_export",
    "write_report",
]

_HOME = {
    **dict.fromkeys(("Cluster", "Gpu", "Link", "Model", "Shape", "Topology", "Workload"), "core.domain"),
    "RuleSet": "space.rules",
    "Space": "space.space",
    "calibrate": "study.warm_start",
    "evaluate": "costmodel.evaluation",
    "explain": "planning.explain",
    "list_studies": "study.manage",
    "open_study": "study.result",
    "optimize": "study.api",
    "parse_key": "core.keys",
    "plan": "planning.plan",
    "read_table": "tables",
    "space_for": "space.build",
    "stop_study": "study.manage",
    "write_export": "export.api",
    "write_report": "report.write",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tuner' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tuner.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
