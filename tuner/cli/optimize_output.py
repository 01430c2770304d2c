"""How `tuner optimize` prints what it has found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tuner.cli.arguments import study_command

if TYPE_CHECKING:
    from tuner.study.ranking import RankedTrial
    from tuner.study.result import Answer
    from tuner.study.setup import Begun
    from tuner.study.store.trial import Trial

SHOWN: Final = 5
"""Runners-up and the winner."""


def print_answer(found: Answer, begun: Begun) -> None:
    """The winner, how sure it is, what it is worth, what it cost, and what to type next."""
    from tuner.cli.output import print_table
    from tuner.core.text import column, counted, node_time

    label = "SIMULATED: " if found.simulated else ""
    ended = found.ended or "interrupted"
    print(f"{label}study {found.study}: {counted(found.jobs, 'job')}, {node_time(found.node_hours)}; {ended}")
    for trial in found.running:
        print(f"{label}still running: trial {trial.number}, {trial.proposal.key}")
    if found.mishaps:
        print(f"{label}{found.mishaps}")
    spent = found.jobs >= begun.setup.limits.budget
    again = "a larger --budget goes on with it" if spent else "the same command shows this again"
    again = again if found.ended else "the same command goes on with it"
    if found.best is None:
        print(f"{label}nothing was measured: {_outcomes(found)}")
        print(f"kept in {begun.setup.folder}; {again}")
        return
    _print_winner(found, label)
    unit, each = column([place.days for place in found.places])
    headers = ("Topology", "Sec/it", unit, "80% between", "Runs", "P(sooner)", "Trials")
    rows = [_row(place, each) for place in found.places[:SHOWN]]
    print()
    print_table(headers, rows, left=("Topology",), spare=("Trials", "Runs", "80% between"))
    print()
    print(f"{label}{_outcomes(found)}{_refused(begun)}")
    for era in found.eras:
        change = "slower" if era.factor > 1 else "faster"
        print(
            f"{label}from trial {era.first} on the cluster was {abs(era.factor - 1):.1%} {change}; the table says now"
        )
    print(f"kept in {begun.setup.folder}; {again}")
    print(f"next: {study_command('report', found.study)}, {study_command('export', found.study)}")


def _print_winner(found: Answer, label: str) -> None:
    from tuner.core.text import between, seconds
    from tuner.study.result import favourite_place, gain

    best = found.best
    assert best is not None  # noqa: S101 - the caller has asked
    print(
        f"{label}{best.key} finishes soonest: {seconds(best.seconds)} s an iteration, "
        f"{between(best.days, best.low, best.high)}"
    )
    if found.equals:
        names = ", ".join(place.key for place in found.equals[:3])
        more = f" and {len(found.equals) - 3} more" if len(found.equals) > 3 else ""
        print(f"{label}it cannot be told apart from {names}{more}")
    favourite, first = favourite_place(found), found.first
    if favourite is None and found.favourite is not None and found.favourite.ending is not None:
        print(
            f"{label}the model's own favourite {found.favourite.proposal.key}: {found.favourite.ending.outcome.value}"
        )
    other, whose = (favourite, "the model's own favourite") if favourite else (first, "the first one measured")
    gained = gain(found, other)
    if other is None or gained is None:
        return
    if other.candidate == best.candidate:
        print(f"{label}it was {whose}")
    else:
        print(f"{label}{gained:.1%} sooner than {whose}, {other.key}")


def _row(place: RankedTrial, each: float) -> tuple[object, ...]:
    """A row of the standings; `each` is how many of the column's unit a day has."""
    from tuner.core.text import seconds

    return (
        place.key,
        seconds(place.seconds),
        f"{place.days * each:,.1f}",
        f"{place.low * each:,.1f} to {place.high * each:,.1f}",
        place.runs,
        f"{place.rival:.0%}" if place.rival else "-",
        ",".join(map(str, place.trials)),
    )


def _outcomes(found: Answer) -> str:
    return ", ".join(f"{count} {outcome.lower()}" for outcome, count in found.outcomes.items()) or "no job was launched"


def _refused(begun: Begun) -> str:
    """How much of the grid the rules have taken away, and which did most."""
    tally = begun.tally
    if tally is None:
        return ""
    most = sorted(((count, name) for name, count in tally.removed.items() if count), reverse=True)[:3]
    names = ", ".join(f"{name} {count:,}" for count, name in most)
    return f"; of {tally.grid:,} grid points {tally.legal:,} were legal (refused most by {names})"


def answer_document(found: Answer) -> dict[str, Any]:
    """The answer, for JSON."""
    best = found.best
    return {
        "study": found.study,
        "launcher": found.launcher,
        "simulated": found.simulated,
        "trials": [trial_document(trial) for trial in found.trials],
        "best": None if best is None else _place_document(best, found.trials),
        "equals": [place.key for place in found.equals],
        "standings": [_place_document(place, found.trials) for place in found.places],
        "eras": [era.document() for era in found.eras],
        "outcomes": found.outcomes,
        "jobs_launched": found.jobs,
        "node_hours": found.node_hours,
        "ended": found.ended,
        "running": [trial.number for trial in found.running],
        "excluded": found.excluded,
    }


def trial_document(trial: Trial) -> dict[str, Any]:
    """One trial, for JSON."""
    proposal, ending = trial.proposal, trial.ending
    return {
        "number": trial.number,
        "key": proposal.key,
        "topology": dict(proposal.topology),
        "kind": proposal.kind,
        "outcome": ending.outcome.value if ending else "RUNNING",
        "sec_per_iter": ending.seconds if ending else None,
        "estimate_sec": proposal.estimate_sec,
        "estimate_low": proposal.estimate_low,
        "estimate_high": proposal.estimate_high,
        "out_of_memory": proposal.out_of_memory,
        "objective": ending.objective if ending else None,
        "reason": proposal.why,
        "ended": ending.reason if ending else "",
        "evidence": ending.evidence if ending else "",
        "again": ending.retried if ending else "",
        "tflops": ending.tflops if ending else None,
        "peak_memory_gib": ending.peak_memory / 2**30 if ending and ending.peak_memory else None,
        "node_hours": ending.node_hours if ending else 0.0,
    }


def _place_document(place: RankedTrial, trials: tuple[Trial, ...]) -> dict[str, Any]:
    topology = next((trial.proposal.topology for trial in trials if trial.number == place.trials[0]), {})
    return {
        "key": place.key,
        "topology": dict(topology),
        "sec_per_iter": place.seconds,
        "days": place.days,
        "days_low": place.low,
        "days_high": place.high,
        "runs": place.runs,
        "chance_sooner": place.rival,
        "trials": list(place.trials),
    }
