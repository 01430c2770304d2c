"""The search from Python: `tuner.optimize` starts a study or continues it.

`study_settings` builds the settings of a study for both the command line and `tuner.optimize`.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, cast

from tuner.core.errors import InputError, TunerWarning
from tuner.core.fidelity import FidelityMode
from tuner.core.quantity import duration, iterations_of, texts_of
from tuner.costmodel.calibration import Calibration
from tuner.costmodel.estimate import CostModel
from tuner.costmodel.evaluation import guess_rows, unit_doubts
from tuner.costmodel.site_file import read_site, warn_of_mismatch
from tuner.launch.machine_defaults import space_on
from tuner.launch.trainers.command import TrainerCommand
from tuner.launch.trainers.global_batch import with_batch
from tuner.launch.trainers.training_length import with_length
from tuner.launch.virtual.simulated import SpeedChange
from tuner.space.build import SpaceArguments, space_or
from tuner.space.space import Space
from tuner.study.limits import Limits
from tuner.study.result import StudyResult
from tuner.study.settings import StudyEvent, StudySettings, drift_of, ignore
from tuner.study.setup import open_loop
from tuner.study.warm_start import calibration_from_study, calibration_report
from tuner.tables import Defaults, Table, read_table

if TYPE_CHECKING:
    from typing_extensions import Unpack

_P = ParamSpec("_P")


def study_settings(
    space: Space | None = None,
    *,
    budget: int = 40,
    node_hours: float | None = None,
    deadline: float | str | None = None,
    patience: int | None = None,
    fidelity: FidelityMode | None = None,
    trial_nodes: int | None = None,
    sampler: str = "guided",
    memory_filter: bool = False,
    launcher: str | None = None,
    hostfile: str | Path | None = None,
    over: str = "pdsh",
    command: str | None = None,
    step_pattern: str | None = None,
    log: str | None = None,
    trainer: str | None = None,
    site_profile: str | Path | None = None,
    within_allocation: bool = False,
    table: str | Path | Table | None = None,
    group: str | None = None,
    defaults: Iterable[str] = (),
    start_from: str | Path | None = None,
    calibration: str | Path | Calibration | None = None,
    study: str | None = None,
    runs: str | Path = "runs",
    storage: str | None = None,
    jobs: int = 1,
    iterations: int | str | Iterable[int] = 2,
    retry_hang_sync: bool = False,
    keep_going: bool = False,
    seed: int = 0,
    track: str | None = None,
    drift: str | SpeedChange | None = None,
    noise: float = 0.0,
    on_event: Callable[[StudyEvent], None] | None = None,
    **description: Unpack[SpaceArguments],
) -> StudySettings:
    """Return the settings of a study; `optimize` explains the arguments.

    >>> found = study_settings(model="gpt-1.3b", nodes=4, budget=6, deadline="2h", iterations="2-4")
    >>> found.name, found.limits.deadline, found.iterations
    ('simulated-gpt-1.3b-4x8-seed0', 7200.0, (2, 3, 4))
    """
    description["settings"] = texts_of("settings", description.get("settings", ()))
    description["allow"] = texts_of("allow", description.get("allow", ()))
    fitted = TrainerCommand.parse(trainer, command) if trainer is not None and command is not None else None
    is_named = space is not None or description.get("model") is not None

    def describe(given: SpaceArguments) -> Space:
        return space_on(launcher, given, command=command, hostfile=hostfile, within_allocation=within_allocation)

    has_precision = True
    if fitted is not None and space is None:
        description = with_batch(fitted, cast("SpaceArguments", fitted.completed(description)), describe)
        has_precision = description["precision"] is not None
    space = space_or(space, description, describe)
    if not has_precision:
        _warn_of_precision(space)
    tokens_from = None
    if fitted is not None:
        space, tokens_from = with_length(fitted, space)
        space = _trained(fitted, space, compared=is_named)
    cells = Defaults.parse(defaults)
    known = _calibration(calibration, start_from, cells, Path(runs), storage)
    if cells.cells and table is None and start_from is None:
        raise InputError("--default completes the rows of a table: add --table or --from.")
    if table is not None and not isinstance(table, Table):
        table = read_table(Path(table), cells)
    if table is not None:
        usable = (row for row in table.rows if row.usable and group in (None, row.group))
        _warn_of_units(table, unit_doubts(guess_rows(usable, CostModel())), stacklevel=3)
    found = StudySettings(
        space=space,
        limits=Limits(
            budget=budget,
            node_hours=node_hours,
            deadline=duration(deadline, "--deadline") if isinstance(deadline, str) else deadline,
            patience=patience,
            stop_when_unprofitable=bool(space.workload.tokens),
        ),
        launcher=("simulated" if table is None else "replay") if launcher is None else launcher,
        table=table,
        group=group,
        study=study,
        runs=Path(runs),
        storage=storage,
        sampler=sampler,
        memory_filter=memory_filter,
        seed=seed,
        jobs=jobs,
        iterations=iterations_of(iterations),
        retry_hang_sync=retry_hang_sync,
        keep_going=keep_going,
        drift=drift_of(drift) if isinstance(drift, str) else drift,
        noise=noise,
        command=command,
        step_pattern=step_pattern,
        log=log,
        trainer=trainer,
        tokens_from=tokens_from,
        hostfile=None if hostfile is None else Path(hostfile),
        over=over,
        site_profile=None if site_profile is None else Path(site_profile),
        within_allocation=within_allocation,
        calibration=known,
        track=track,
        fidelity=fidelity,
        trial_nodes=trial_nodes,
        on_event=on_event or ignore,
    )
    found.check()
    if known is not None and table is None:
        warn_of_mismatch(known, [(space.workload, space.cluster)])
    return found


def _trained(command: TrainerCommand, space: Space, *, compared: bool) -> Space:
    """Return the space with what the command trains; raise if it contradicts a model that the user named."""
    workload = space.workload
    if compared:
        command.check(workload.model)
    trained = command.trained(workload)
    return space if trained == workload else replace(space, workload=trained)


def _warn_of_precision(space: Space) -> None:
    warnings.warn(
        TunerWarning(
            f"--command does not determine the precision, so {space.workload.precision} is assumed; set it with "
            "--precision."
        ),
        stacklevel=3,
    )


def _of_settings(
    build: Callable[_P, StudySettings],
) -> Callable[[Callable[[StudySettings], StudyResult]], Callable[_P, StudyResult]]:
    """Give a function of settings the arguments that they are built from."""

    def decorated(run: Callable[[StudySettings], StudyResult]) -> Callable[_P, StudyResult]:
        @wraps(run)
        def call(*arguments: _P.args, **keywords: _P.kwargs) -> StudyResult:
            return run(build(*arguments, **keywords))

        signature = inspect.signature(build).replace(return_annotation=inspect.signature(run).return_annotation)
        setattr(call, "__signature__", signature)  # noqa: B010 - not an attribute that functions declare
        return call

    return decorated


@_of_settings(study_settings)
def optimize(settings: StudySettings) -> StudyResult:
    """Search for the topology that finishes training soonest, and return the study.

    Calling it again with the same arguments continues a study that was interrupted. Describe the search with a `space`
    or with the arguments of `space_for`; with a launcher of real jobs, what is not given follows from the machine, the
    hostfile or the allocation. Without a `launcher` the cluster is SIMULATED, or the `table` is played back.

    Every argument is the option of `tuner optimize` with the same name; `settings` is `--set` and `start_from` is
    `--from`. `deadline` takes seconds or text such as "4h", `iterations` a number, a sequence or text such as "2-5".
    `on_event` is called with every `StudyEvent`. Ctrl-C leaves running jobs to the next call where the launcher allows
    it.

    >>> import tempfile, tuner
    >>> space = tuner.space_for(model="gpt-1.3b", nodes=4, settings=["tp=1,2,4", "recompute=none"], exact_nodes=True)
    >>> with tempfile.TemporaryDirectory() as runs:
    ...     study = tuner.optimize(space, budget=6, study="small", runs=runs)
    ...     again = tuner.open_study("small", runs=runs)
    >>> study.simulated, len(study.launched) <= 6, study.best.key == again.best.key
    (True, True, True)
    """
    with open_loop(settings) as loop:
        try:
            loop.run()
        except BaseException:  # also one of `on_event`, whose caller may call again
            loop.settings = replace(settings, on_event=ignore)
            loop.interrupt(release=True)
            raise
        return loop.result()


def _warn_of_units(table: Table, doubts: Iterable[str], *, stacklevel: int) -> None:
    for doubt in doubts:
        warnings.warn(TunerWarning(f"{table.name}: {doubt}."), stacklevel=stacklevel)


def _calibration(
    given: str | Path | Calibration | None,
    start_from: str | Path | None,
    cells: Defaults,
    runs: Path,
    storage: str | None,
) -> Calibration | None:
    """Return the prior information: a calibration, or the measurements of a table or another study."""
    if given is not None and start_from is not None:
        raise InputError("--calibration and --from exclude each other: both provide earlier measurements.")
    if given is not None:
        return given if isinstance(given, Calibration) else read_site(Path(given))
    if start_from is None:
        return None
    if Path(start_from).is_file():
        learnt = calibration_report(read_table(Path(start_from), cells))
        _warn_of_units(learnt.table, learnt.doubts, stacklevel=4)
        return learnt.calibration
    return calibration_from_study(str(start_from), runs=runs, storage=storage)
