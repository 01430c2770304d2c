"""The summary at the top of a report: what is fastest, by how much, why, how certain, and at what cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tuner.core.outcomes import Outcome, outcome_word
from tuner.core.quantity import format_count
from tuner.core.text import TIMES_FROM, counted, ends, listed, node_time, seconds, span, token_count
from tuner.planning.cost import TopologyCost, cost_of, difference
from tuner.study.leaderboard import LeaderboardRow
from tuner.study.ranking import TIE_THRESHOLD
from tuner.study.result import StudyResult

MAX_NAMED: Final = 3
"""Terms or tied topologies that a sentence names."""

SMALLEST_SHARE: Final = 1e-4
"""Smaller shares are printed as less than this one."""

NEGLIGIBLE_CHANGE: Final = 0.0005
"""Changes of a term below this share of an iteration are not named."""

TERMS: Final = {
    "products": "matrix multiplication",
    "elementwise": "element-wise operations",
    "tensor_parallel": "tensor parallel communication",
    "context_parallel": "context parallel communication",
    "launch": "kernel launches",
    "upkeep": "per-layer overhead",
    "recompute": "recomputation",
    "head": "the output layer",
    "pipeline": "pipeline communication",
    "bubble": "the pipeline bubble",
    "stragglers": "waiting for the slowest GPU",
    "data_parallel": "data parallel communication",
    "sharding": "gathering sharded parameters",
    "optimizer": "the optimizer step",
    "host_link": "copies to and from main memory",
}
"""Time terms of the cost model, as a sentence names them."""

MEMORY_TERMS: Final = {
    "optimizer": "optimizer state",
    "step": "optimizer step",
    "logits": "logits and loss",
    "working": "working memory",
    "buckets": "communication buckets",
    "gathered": "gathered parameters",
    "fragments": "fragmentation",
    "context": "CUDA context and NCCL",
}
"""Memory terms of the cost model with a longer label than their name."""


def summary(study: StudyResult, rows: Sequence[LeaderboardRow]) -> list[str]:
    """Return one or two sentences per question; fewer if the study measured no topology or only one."""
    incidents = [study.incidents] if study.incidents else []
    if study.best is None:
        return [f"{simulated_label(study)}No topology was measured.", _cost(study), *incidents]
    comparison = [_lead(study)]
    if len(study.ranking) > 1:
        comparison.append(_reason(study, rows))
    return [
        *[_extrapolated(study)] * study.ranking[0].extrapolated,
        *(_fastest(study, rows[0]), *comparison, _certainty(study), _cost(study)),
        *confirmations(study),
        *incidents,
    ]


def _extrapolated(study: StudyResult) -> str:
    return f"{simulated_label(study)}The result is extrapolated from trials at a reduced size."


def confirmations(study: StudyResult) -> list[str]:
    """Return the prediction for each topology that was measured at full size after a reduced one."""
    sentences, reduced = [], set[int]()
    for trial in study.launched:
        proposal = trial.proposal
        if trial.measured and proposal.candidate in reduced and proposal.estimate_sec:
            reduced.discard(proposal.candidate)
            low, high = proposal.estimate_low or 0.0, proposal.estimate_high or 0.0
            inside = "inside" if low <= trial.seconds <= high else "outside"
            sentences.append(
                f"{simulated_label(study)}{proposal.key} was extrapolated to {seconds(proposal.estimate_sec)} s per "
                f"iteration ({seconds(low)} to {seconds(high)}) and {measured_word(study)} at full size in trial "
                f"{trial.number}: {seconds(trial.seconds)} s, {inside} the 80% interval."
            )
        elif trial.measured_reduced:
            reduced.add(proposal.candidate)
    return sentences


def cost_breakdown(study: StudyResult, row: LeaderboardRow) -> TopologyCost:
    """Return the time and memory terms of a topology, by the cost model fitted to the study."""
    workload, cluster = study.pool.setting(row.ranked.candidate) if row.ranked else (row.workload, row.cluster)
    return cost_of(workload, cluster, row.topology, study.model)


def term_label(name: str) -> str:
    """Return the label of a time term of the cost model."""
    return TERMS.get(name, name.replace("_", " "))


def memory_label(name: str) -> str:
    """Return the label of a memory term of the cost model."""
    return MEMORY_TERMS.get(name, name)


def simulated_label(study: StudyResult) -> str:
    """Return the prefix that marks simulated results; empty for measured ones."""
    return "SIMULATED: " if study.simulated else ""


def measured_word(study: StudyResult) -> str:
    """Return `simulated` or `measured`."""
    return "simulated" if study.simulated else "measured"


def ranked_word(study: StudyResult) -> str:
    """Return where the times of the ranked topologies come from, such as `measured or extrapolated`."""
    words = {"extrapolated" if ranked.extrapolated else measured_word(study) for ranked in study.ranking}
    return " or ".join(sorted(words, reverse=True))


def days_label(study: StudyResult, unit: str = "days") -> str:
    """Return the label of the objective, with its unit and the number of tokens, or the compute with several models."""
    tokens = f"{token_count(study.workload.training_tokens)} tokens"
    several = any(trial.proposal.topology.get("shape") for trial in study.launched)
    return f"{unit}, with the compute of {tokens}" if several else f"{unit} to train on {tokens}"


def _fastest(study: StudyResult, row: LeaderboardRow) -> str:
    leader, model = study.ranking[0], row.workload.model
    other = ""
    if row.other_model:
        own = study.workload.model
        changes = [f"{model.heads} heads instead of {own.heads}"] * (row.topology.heads is not None)
        changes += [f"{model.hidden} x {model.layers} instead of {own.hidden} x {own.layers}"] * bool(
            row.topology.shape
        )
        other = f" This is a different model from the one specified: {', '.join(changes)}."
    is_fastest = "is predicted to be the fastest topology" if leader.extrapolated else "is the fastest topology"
    return (
        f"{simulated_label(study)}{row.key} {is_fastest}: {seconds(leader.seconds)} s per iteration on "
        f"{counted(row.topology.nodes, 'node')} of {row.cluster.node_gpus}, "
        f"{span(leader.days)} for {token_count(study.workload.training_tokens)} tokens with "
        f"{format_count(model.parameters)} parameters.{other}"
    )


def _lead(study: StudyResult) -> str:
    leader, ranking = study.ranking[0], study.ranking
    if len(ranking) == 1:
        return "It is the only topology that was measured."
    second, slowest = ranking[1], ranking[-1]
    sentence = (
        f"It takes {1 - leader.days / second.days:.1%} ({span(second.days - leader.days)}) less time than the "
        f"runner-up {second.key}"
    )
    measured = [trial.proposal.candidate for trial in study.launched if trial.measured]
    measured += [trial.proposal.candidate for trial in study.launched if trial.measured_reduced]
    first = next(ranked for candidate in measured for ranked in ranking if ranked.candidate == candidate)
    if first not in (leader, second):
        sentence += f" and {1 - leader.days / first.days:.1%} less than {first.key}, the first topology measured"
    if slowest not in (leader, second, first):
        sentence += f"; the slowest of {len(ranking)} takes {_longer(slowest.days / leader.days)}"
    return f"{sentence}."


def _reason(study: StudyResult, rows: Sequence[LeaderboardRow]) -> str:
    """Compare the terms of the leader with those of the runner-up, as far as the cost model explains the difference."""
    leader, second = cost_breakdown(study, rows[0]), cost_breakdown(study, rows[1])
    changes = difference(leader, second)
    smallest = max(NEGLIGIBLE_CHANGE * leader.seconds, 0.005 if leader.seconds >= 1 else 0.00005)  # as printed
    phrases = [(change, f"{_more_or_less(change, leader.seconds)} for {term_label(name)}") for name, change in changes]
    named = [
        *[(change, phrase) for change, phrase in phrases if change > smallest][:MAX_NAMED],
        *[(change, phrase) for change, phrase in phrases if change < -smallest][:MAX_NAMED],
    ]
    if not named:
        return "Compared with the runner-up, the cost model predicts nearly the same time in every term."
    measured, predicted = study.ranking[1].seconds - study.ranking[0].seconds, second.seconds - leader.seconds
    rest = predicted - sum(change for change, _ in named)
    if abs(rest) > smallest:
        named.append((rest, f"{_more_or_less(rest, leader.seconds)} for the other terms"))
    gains, losses = ([phrase for change, phrase in named if (change > 0) is less] for less in (True, False))
    but = f", but {listed(losses)}" if gains and losses else ""
    unexplained = "" if predicted * measured > 0 else ", a difference that the cost model does not explain"
    word = "extrapolated" if any(ranked.extrapolated for ranked in study.ranking[:2]) else measured_word(study)
    return (
        f"Compared with the runner-up, the cost model predicts {listed(gains or losses)}{but}: "
        f"{_more_or_less(predicted, leader.seconds)} per iteration in total; {word}: "
        f"{_more_or_less(measured, leader.seconds)}{unexplained}."
    )


def _more_or_less(change: float, iteration: float) -> str:
    """Return `0.40 s less`, with as many digits as the seconds of the iteration."""
    size = f"{abs(change):.2f}" if iteration >= 1 else f"{abs(change):.4f}"
    return f"{size} s {'less' if change >= 0 else 'more'}"


def _certainty(study: StudyResult) -> str:
    leader, tied = study.ranking[0], study.ties
    interval = f"With {counted(leader.runs, 'run')}, its 80% interval is {ends(leader.days, leader.low, leader.high)}"
    if len(study.ranking) == 1:
        return f"{interval}."
    if not tied:
        return f"{interval}; no other measured topology is more than {TIE_THRESHOLD:.1%} likely to be faster."
    names = [f"{ranked.key} ({ranked.chance_sooner:.0%} likely to be faster)" for ranked in tied[:MAX_NAMED]]
    more = [f"{len(tied) - MAX_NAMED} more"] * (len(tied) > MAX_NAMED)
    return f"{interval}; it is statistically tied with {listed([*names, *more])}."


def _cost(study: StudyResult) -> str:
    words = {Outcome.MEASURED.value: measured_word(study)}
    outcomes = ", ".join(
        f"{count} {words.get(outcome, outcome_word(outcome))}" for outcome, count in study.outcomes.items()
    )
    used = (
        f"The study ran {counted(len(study.launched), 'job')}{f' ({outcomes})' if outcomes else ''} and used "
        f"{node_time(study.node_hours)}"
    )
    if study.best is None:
        return f"{used}."
    reduced = [trial.result for trial in study.launched if trial.reduced and trial.result]
    if reduced:
        hours = node_time(sum(result.node_hours for result in reduced))
        used += f" ({hours} in {counted(len(reduced), 'job')} at a reduced size)"
    share = study.node_hours / (study.best.days * 24 * study.topology(study.best).nodes)
    return f"{used}, {_share(share)} the training itself."


def _longer(ratio: float) -> str:
    """Return `4.1% longer` or `2.5 times as long`."""
    return f"{ratio - 1:.1%} longer" if ratio < TIMES_FROM else f"{ratio:,.2g} times as long"


def _share(share: float) -> str:
    """Return `0.35% of` or `2.5 times`."""
    if share >= 1:
        return f"{share:,.1f} times"
    return f"{share:.2%} of" if share >= SMALLEST_SHARE else f"less than {SMALLEST_SHARE:.2%} of"
