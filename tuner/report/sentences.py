"""The sentences at the top of a report: what won, by how much, why, how sure, what it cost; which nodes failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tuner.core.text import counted, ends, listed, node_time, seconds, span
from tuner.planning.cost import TopologyCost, cost_of, difference
from tuner.study.leaderboard import LeaderboardRow, size
from tuner.study.ranking import UNLIKELY
from tuner.study.result import StudyResult

SAID: Final = 3
"""Terms that are named."""

DOUBLE: Final = 2.0
"""From where on a ratio is told as so many times, and below as a percentage."""

SMALLEST: Final = 1e-4
"""The smallest share that has digits."""

TERMS: Final = {
    "products": "matrix products",
    "elementwise": "element-wise work",
    "tensor_parallel": "tensor parallel exchanges",
    "context_parallel": "context parallel exchanges",
    "launch": "launching kernels",
    "upkeep": "upkeep of layers",
    "recompute": "recomputing",
    "head": "the output layer",
    "pipeline": "sends from stage to stage",
    "bubble": "the pipeline's bubble",
    "data_parallel": "data parallel exchanges",
    "sharding": "gathering shards",
    "optimizer": "the optimizer's step",
}


def sentences(study: StudyResult, rows: Sequence[LeaderboardRow]) -> list[str]:
    """One for each question; fewer where nothing, or but one topology, was measured."""
    best = study.best
    failed = [study.mishaps] if study.mishaps else []
    if best is None:
        return [f"{_label(study)}Nothing was measured.", _cost(study), *failed]
    said = [_won(study, rows[0]), _by_how_much(study)]
    if len(study.places) > 1:
        said.append(_why(study, rows))
    return [*said, _how_sure(study), _cost(study), *failed]


def account(study: StudyResult, row: LeaderboardRow) -> TopologyCost:
    """Where the time and memory of a topology go, by the model as the study has taught it."""
    workload, cluster = study.pool.setting(row.place.candidate) if row.place else (row.workload, row.cluster)
    return cost_of(workload, cluster, row.topology, study.model)


def term(name: str) -> str:
    """A term of time as people say it."""
    return TERMS.get(name, name.replace("_", " "))


def _label(study: StudyResult) -> str:
    return "SIMULATED: " if study.simulated else ""


def _won(study: StudyResult, row: LeaderboardRow) -> str:
    place, model = study.places[0], row.workload.model
    nodes = counted(row.topology.nodes, "node")
    other = ""
    if row.other_model:
        own = study.workload.model
        parts = [f"{model.heads} heads in place of {own.heads}"] * (row.topology.heads is not None)
        parts += [f"{model.hidden} x {model.layers} in place of {own.hidden} x {own.layers}"] * bool(row.topology.shape)
        other = f"; it trains another model than the one described ({', '.join(parts)})"
    return (
        f"{_label(study)}{row.key} finishes soonest: {seconds(place.seconds)} s an iteration on {nodes} of "
        f"{row.cluster.gpus_per_node} {row.cluster.gpu.name}, {span(place.days)} for "
        f"{_tokens(study.workload.training_tokens)} tokens of a {size(model.parameters)} model{other}."
    )


def _by_how_much(study: StudyResult) -> str:
    best, places = study.places[0], study.places
    if len(places) == 1:
        return "It is the only one that was measured."
    second = places[1]
    sooner = f"{1 - best.days / second.days:.1%} or {span(second.days - best.days)} sooner"
    said = f"That is {sooner} than the runner-up {second.key}"
    first = next(trial for trial in study.launched if trial.measured)
    other = next(place for place in places if place.candidate == first.proposal.candidate)
    if other not in (best, second):
        said += f", and {1 - best.days / other.days:.1%} sooner than {other.key}, the first one measured"
    worst = places[-1]
    if worst not in (best, second, other):
        said += f"; the slowest of {len(places)} takes {_longer(worst.days / best.days)}"
    return f"{said}."


def _why(study: StudyResult, rows: Sequence[LeaderboardRow]) -> str:
    """Term by term against the runner-up, as far as the model can tell."""
    ours, other = account(study, rows[0]), account(study, rows[1])
    changes = difference(ours, other)
    floor = 0.0005 * ours.seconds
    told_of = [(change, f"{_more_or_less(change, ours.seconds)} on {term(name)}") for name, change in changes]
    gains = [said for change, said in told_of if change > floor][:SAID]
    losses = [said for change, said in told_of if change < -floor][:SAID]
    measured, told = study.places[1].seconds - study.places[0].seconds, other.seconds - ours.seconds
    if not gains and not losses:
        return "By the model's account the two spend their time alike."
    against = f", against {listed(losses)}" if gains and losses else ""
    unexplained = "" if told * measured > 0 else ", which the model therefore does not explain"
    measured_as = "simulated" if study.simulated else "measured"
    return (
        f"By the model's account it spends {listed(gains or losses)}{against}: "
        f"{_more_or_less(told, ours.seconds)} in all, where {_more_or_less(measured, ours.seconds)} was "
        f"{measured_as}{unexplained}."
    )


def _more_or_less(change: float, whole: float) -> str:
    """`0.40 s less`, with the digits that the seconds of the whole iteration have."""
    size = f"{abs(change):.2f}" if whole >= 1 else f"{abs(change):.4f}"
    return f"{size} s {'less' if change >= 0 else 'more'}"


def _how_sure(study: StudyResult) -> str:
    best, equals = study.places[0], study.equals
    said = f"With {counted(best.runs, 'run')} it takes {ends(best.days, best.low, best.high)} with 80% probability"
    if not equals:
        return f"{said}, and no other one that was measured has more than {UNLIKELY:.0%} to be sooner."
    names = [f"{place.key} ({place.rival:.0%} to be sooner)" for place in equals[:SAID]]
    more = [f"{len(equals) - SAID} more"] * (len(equals) > SAID)
    return f"{said}; it cannot be told apart from {listed([*names, *more])}."


def _cost(study: StudyResult) -> str:
    jobs = len(study.launched)
    outcomes = ", ".join(f"{count} {outcome.lower().replace('_', ' ')}" for outcome, count in study.outcomes.items())
    said = f"It took {counted(jobs, 'job')}{f' ({outcomes})' if outcomes else ''} and {node_time(study.node_hours)}"
    best = study.best
    if best is None:
        return f"{said}."
    share = study.node_hours / (best.days * 24 * study.topology(best).nodes)
    return f"{said}, {_share(share)} what the training itself takes."


def _longer(ratio: float) -> str:
    """`4.1% longer`, `2.5 times as long`."""
    return f"{ratio - 1:.1%} longer" if ratio < DOUBLE else f"{ratio:,.2g} times as long"


def _share(share: float) -> str:
    """`0.35% of`, `2.5 times`."""
    if share >= 1:
        return f"{share:,.1f} times"
    return f"{share:.2%} of" if share >= SMALLEST else f"less than {SMALLEST:.2%} of"


def _tokens(tokens: float) -> str:
    for unit, scale in (("trillion", 1e12), ("billion", 1e9), ("million", 1e6)):
        if tokens >= scale:
            return f"{tokens / scale:.3g} {unit}"
    return f"{tokens:,.0f}"
