"""The search from Python: `tuner.optimize` begins a study or goes on with it, `tuner.open_study` reads one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from tuner.core.errors import UnknownName
from tuner.costmodel.calibration import Calibration
from tuner.space.space import Space
from tuner.study.limits import Limits
from tuner.study.loop import StudyEvent, StudyLoop
from tuner.study.result import StudyResult, reopened
from tuner.study.setup import Request, begin, iterations_of
from tuner.tables import Table, read_table


def optimize(
    space: Space,
    *,
    budget: int = 40,
    node_hours: float | None = None,
    deadline: float | None = None,
    patience: int | None = None,
    launcher: str | None = None,
    table: str | Path | Table | None = None,
    study: str | None = None,
    runs: str | Path = "runs",
    calibration: Calibration | None = None,
    observe: Callable[[StudyEvent], None] | None = None,
    **more: Any,
) -> StudyResult:
    """Search a space and return the study, read again; the same call goes on with a study that was interrupted.

    The arguments are those of the command line: `budget` is jobs, `deadline` seconds, and `more` the fields of
    `tuner.study.setup.Request` that are not named here, such as `seed`, `sampler`, `jobs`, `storage`, `group`,
    `command` and `slurm_site`. With no launcher named the cluster is SIMULATED, or is the `table` of measurements that
    answers.
    `observe` is told what happens while it happens. Ctrl-C leaves what runs to the next call.

    >>> import tempfile, tuner
    >>> space = tuner.space_for(model="gpt-1.3b", nodes=4, settings=["tp=1,2,4", "recompute=none"], exact_nodes=True)
    >>> with tempfile.TemporaryDirectory() as runs:
    ...     study = tuner.optimize(space, budget=6, study="small", runs=runs)
    ...     again = tuner.open_study("small", runs=runs)
    >>> study.simulated, len(study.launched) <= 6, study.best.key == again.best.key
    (True, True, True)
    """
    rows = table if table is None or isinstance(table, Table) else read_table(Path(table))
    known = {each.name for each in fields(Request)} - {"space", "limits"}
    for name in more:
        if name not in known:
            raise UnknownName("argument", name, sorted(known))
    for name in ("slurm_site", "hostfile"):
        if more.get(name) is not None:
            more[name] = Path(more[name])
    if isinstance(more.get("iterations"), str | int):
        more["iterations"] = iterations_of(str(more["iterations"]))
    request = Request(
        space=space,
        limits=Limits(budget=budget, node_hours=node_hours, deadline=deadline, patience=patience),
        launcher=launcher or ("simulated" if rows is None else "replay"),
        table=rows,
        study=study,
        runs=Path(runs),
        calibration=calibration,
        **more,
    )
    with begin(request, observe or _quiet) as begun:
        tuning = StudyLoop(begun.setup)
        try:
            tuning.run()
        except KeyboardInterrupt:
            tuning.interrupt()
            raise
        name = begun.setup.study.name
    return open_study(name, runs=runs, storage=request.storage)


def open_study(name: str, *, runs: str | Path = "runs", storage: str | None = None) -> StudyResult:
    """The study of that name as it stands; nothing is launched."""
    return reopened(name, runs=Path(runs), storage=storage)


def _quiet(_event: StudyEvent) -> None:
    """Who wants to hear of it passes `observe`."""
