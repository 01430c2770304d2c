"""Print the result of `tuner optimize`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tuner.cli.arguments import study_command
from tuner.core.quantity import GIB

if TYPE_CHECKING:
    from tuner.core.model import Model
    from tuner.study.loop import StudyLoop
    from tuner.study.ranking import RankedTrial
    from tuner.study.result import StudyResult
    from tuner.study.store.trial import Trial

SHOWN_RANKS: Final = 5
"""Ranked topologies in the table."""

SHOWN_TIES: Final = 3
"""Tied topologies that the answer names."""


def print_answer(study: StudyResult, loop: StudyLoop) -> None:
    """Print the best topology, how certain it is, what the search cost, and what to run next."""
    from tuner.cli.output import print_table
    from tuner.core.text import counted, node_time
    from tuner.study.ranking import MARK_MEANING, ranking_table

    label = "SIMULATED: " if study.simulated else ""
    if study.best is not None and study.best.extrapolated:
        print(f"{label}The result is extrapolated from trials at a reduced size: nothing was measured at full size.")
    ended = f"Ended because {study.ended}." if study.ended else "Interrupted."
    print(f"{label}study {study.name}: {counted(len(study.launched), 'job')}, {node_time(study.node_hours)}. {ended}")
    for trial in study.running:
        print(f"{label}still running: trial {trial.number}, {trial.proposal.key}")
    if study.incidents:
        print(f"{label}{study.incidents}")
    if study.best is None:
        print(f"{label}No job was measured: {_outcomes(study)}.{_last_failure(study)}")
        print(_where(study, loop))
        return
    print()
    for line in _answer(study):
        print(f"{label}{line}")
    headers, rows = ranking_table(study.ranking, SHOWN_RANKS)
    lines = [(*row, ",".join(map(str, own.trials))) for row, own in zip(rows, study.ranking, strict=False)]
    print()
    print_table((*headers, "Trials"), lines, left=("Topology",), spare=("Trials", "Runs", "80% interval"))
    if any(ranked.extrapolated for ranked in study.ranking[:SHOWN_RANKS]):
        print(MARK_MEANING)
    if more := len(study.ranking) - len(lines):
        print(f"{more} more: {study_command('report', study.name)}")
    print()
    print(f"{label}Jobs: {_outcomes(study)}.{_removed(loop)}")
    for note in filter(None, (_unread(study), _replayed_again(study))):
        print(f"{label}{note}")
    for period in study.speed_periods:
        print(f"{label}{period.sentence()} The table shows times at the present speed.")
    print(_where(study, loop))
    print(f"Next: {study_command('report', study.name)} or {study_command('export', study.name)}")


def _last_failure(study: StudyResult) -> str:
    """Return in full why the last failed job failed; empty if none did, or if the search ended for that reason."""
    from tuner.core.outcomes import Outcome

    results = {trial.number: trial.result for trial in study.launched if trial.result is not None}
    failed = {key: one for key, one in results.items() if one.outcome in (Outcome.CRASHED, Outcome.HUNG)}
    if not failed:
        return ""
    number, last = failed.popitem()
    repeated = bool(last.reason) and last.reason in (study.ended or "")
    return "" if repeated else f" Trial {number}, {last.outcome.value}: {last.explanation.rstrip('.')}."


def _where(study: StudyResult, loop: StudyLoop) -> str:
    if not study.ended:
        next_step = "Rerun the same command to continue."
    elif len(study.launched) >= loop.settings.limits.budget:
        next_step = "Rerun with a larger --budget to continue."
    else:
        next_step = "Rerun the same command to print this summary again."
    return f"Saved to {study.folder}. {next_step}"


def _unread(study: StudyResult) -> str:
    """Return that topologies were left out of the comparison although their jobs ran; empty if none was."""
    from tuner.core.outcomes import Outcome
    from tuner.core.text import counted

    results = [trial.result for trial in study.launched if trial.result is not None]
    unread = [result for result in results if result.outcome is Outcome.UNREADABLE]
    if not unread:
        return ""
    return f"Not compared, because {counted(len(unread), 'job')} ran but could not be measured: {unread[-1].evidence}."


def _replayed_again(study: StudyResult) -> str:
    """Return how many jobs replayed a row that another one had replayed; empty if none did."""
    from tuner.core.text import counted

    runs = [(trial.proposal.key, trial.seconds) for trial in study.launched if trial.measured]
    again = len(runs) - len(set(runs))
    if study.launcher != "replay" or not again:
        return ""
    return (
        f"{counted(again, 'job')} replayed a row of the table again, which adds no information: the intervals of such "
        "topologies are too narrow."
    )


def _answer(study: StudyResult) -> list[str]:
    """Return the best topology of the specified model, the ones tied with it, its gain, and the gain of other
    models."""
    from tuner.cli.output import tokens_origin
    from tuner.core.quantity import format_count
    from tuner.core.text import between, listed, seconds

    own = study.best_of_own_model
    best = study.best
    assert best is not None  # noqa: S101 - the caller has asked
    tokens = f"{format_count(study.workload.training_tokens)} tokens{tokens_origin(study.workload)}"
    if own is None:
        lacking = _own_model(study, "shape (hidden {hidden}, {layers} layers)")
        lines = [f"No topology with the model's own {lacking} was measured."]
    else:
        model = _own_model(study, "hidden {hidden}, {layers} layers")
        which = f" with {model}" if study.trains_other_models else ""
        finishes = "is predicted to finish" if own.extrapolated else "finishes"
        lines = [
            f"{own.key} {finishes} soonest{which}: {seconds(own.seconds)} s per iteration, "
            f"{between(own.days, own.low, own.high)} for {tokens}."
        ]
    if own is best and study.ties:
        names = [ranked.key for ranked in study.ties]
        lines.append(f"It is statistically tied with {listed(names, limit=SHOWN_TIES)}.")
    if own is not None:
        lines += _gain(study, own)
    if own is not best:
        gain = f", {1 - best.days / own.days:.1%} sooner" if own is not None else ""
        takes = "is predicted to take" if best.extrapolated else "takes"
        lines.append(
            f"As another model: {best.key}, with {_model(study, best)}, {takes} "
            f"{seconds(best.seconds)} s per iteration, "
            f"{between(best.days, best.low, best.high)}{gain}."
        )
    return lines


def _gain(study: StudyResult, own: RankedTrial) -> list[str]:
    """Return by how much the best topology beats the first topology tried, or the first measured one."""
    first = study.launched[0]
    other = study.rank_of(first)
    name = "the first topology tried"
    lines = []
    if other is None:
        ended = f"ended as {first.result.outcome.value if first.result else 'RUNNING'}"
        ended = "was measured at a reduced size only" if first.measured_reduced else ended
        lines.append(f"The first topology tried, {first.proposal.key}, {ended}.")
        measured = next(trial for trial in study.launched if study.rank_of(trial) is not None)
        other, name = study.rank_of(measured), "the first measured topology"
    if other is None:
        return lines
    if other is own:
        return [*lines, f"{own.key if lines else 'It'} was {name}."]
    gain = 1 - own.days / other.days
    return [*lines, f"It finishes {abs(gain):.1%} {'sooner' if gain >= 0 else 'later'} than {name}, {other.key}."]


def _model(study: StudyResult, ranked: RankedTrial) -> str:
    """Return what distinguishes the model of a topology: its heads and its shape, each where it differs."""
    model, own = _trained(study, ranked), study.workload.model
    shape = f"hidden {model.hidden} and {model.layers} layers"
    return ", ".join([f"{model.heads} heads"] * (model.heads != own.heads) + [shape] * _reshaped(model, own))


def _own_model(study: StudyResult, shape: str) -> str:
    """Return the heads and the shape of the specified model, each where a measured topology changes it."""
    own, models = study.workload.model, [_trained(study, ranked) for ranked in study.ranking]
    heads = any(model.heads != own.heads for model in models)
    other_shapes = any(_reshaped(model, own) for model in models)
    return " and ".join(
        [f"{own.heads} heads"] * heads + [shape.format(hidden=own.hidden, layers=own.layers)] * other_shapes
    )


def _trained(study: StudyResult, ranked: RankedTrial) -> Model:
    return study.setting(ranked)[0].as_in(study.topology(ranked)).model


def _reshaped(model: Model, own: Model) -> bool:
    return (model.hidden, model.layers) != (own.hidden, own.layers)


def _outcomes(study: StudyResult) -> str:
    from tuner.study.result import outcome_counts

    counts = [outcome_counts(study.outcomes)] * bool(study.outcomes)
    counts += [f"{len(study.running)} running"] * bool(study.running)
    reduced = sum(trial.reduced and trial.launched for trial in study.trials)
    return (", ".join(counts) or "none was launched") + (f"; {reduced} at a reduced size" if reduced else "")


def _removed(loop: StudyLoop) -> str:
    """Return how much of the grid is legal, and which rules removed most of the rest."""
    tally = loop.tally
    if tally is None:
        return ""
    names = ", ".join(f"{name} {count:,}" for count, name in tally.removals()[:3])
    unused = f" {tally.advice()}" if tally.unused else ""
    return f" Legal: {tally.legal:,} of {tally.grid:,} grid points (top rules: {names}).{unused}"


def answer_document(study: StudyResult) -> dict[str, Any]:
    """Return the result as JSON."""
    from tuner.core.documents import model_notes

    topologies = {trial.number: trial.proposal.topology for trial in study.trials}
    own = study.best_of_own_model
    return {
        "study": study.name,
        "launcher": study.launcher,
        "simulated": study.simulated,
        "trials": [trial_document(trial) for trial in study.trials],
        "best": None if study.best is None else _ranked_document(study.best, topologies),
        "best_of_own_model": None if own is None else _ranked_document(own, topologies),
        "tokens": study.workload.training_tokens,
        "equals": [ranked.key for ranked in study.ties],
        "standings": [_ranked_document(ranked, topologies) for ranked in study.ranking],
        "eras": [period.document() for period in study.speed_periods],
        "outcomes": study.outcomes,
        "jobs_launched": len(study.launched),
        "node_hours": study.node_hours,
        "ended": study.ended,
        "running": [trial.number for trial in study.running],
        "excluded": dict(study.excluded_nodes),
        "notes": model_notes(study.workload.model),
    }


def trial_document(trial: Trial) -> dict[str, Any]:
    """Return one trial as JSON."""
    proposal, result = trial.proposal, trial.result
    return {
        "number": trial.number,
        "key": proposal.key,
        "topology": dict(proposal.topology),
        "kind": proposal.kind,
        "outcome": result.outcome.value if result else "RUNNING",
        "sec_per_iter": result.seconds if result else None,
        "estimate_sec": proposal.estimate_sec,
        "estimate_low": proposal.estimate_low,
        "estimate_high": proposal.estimate_high,
        "out_of_memory": proposal.out_of_memory,
        "objective": result.objective if result else None,
        "reason": proposal.why,
        "ended": result.reason if result else "",
        "evidence": result.evidence if result else "",
        "note": result.note if result else "",
        "again": result.retried if result else "",
        "tflops": result.tflops if result else None,
        "peak_memory_gib": result.peak_memory / GIB if result and result.peak_memory else None,
        "node_hours": result.node_hours if result else 0.0,
        **_fidelity(trial),
    }


def _fidelity(trial: Trial) -> dict[str, Any]:
    """Return the fields of a trial at a reduced size: none at full size."""
    result, fidelity = trial.result, trial.proposal.fidelity
    if fidelity is None:
        return {}
    seconds = list(result.measurement.batch_seconds) if result and result.measurement else []
    return {
        "fidelity": fidelity.document(),
        "batch_seconds": seconds,
        "extrapolated_sec": result.forecast if result else None,
    }


def _ranked_document(ranked: RankedTrial, topologies: dict[int, Any]) -> dict[str, Any]:
    return {
        "key": ranked.key,
        "topology": dict(topologies.get(ranked.trials[0], {})),
        "sec_per_iter": ranked.seconds,
        "days": ranked.days,
        "days_low": ranked.low,
        "days_high": ranked.high,
        "runs": ranked.runs,
        "chance_sooner": ranked.chance_sooner,
        **({"extrapolated": True} if ranked.extrapolated else {}),
        "trials": list(ranked.trials),
    }
