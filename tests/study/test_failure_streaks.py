"""A search ends after three jobs in a row that failed for the same reason, if no other topology would help."""

from __future__ import annotations

import pytest

from tuner.core.outcomes import Failure, Outcome
from tuner.launch.contract import JobResult
from tuner.logs.signature import NOT_A_NUMBER
from tuner.logs.signatures import REMEDIES, SEE_LOGS
from tuner.study.failure_streaks import Streaks

MISSING, RAISED = "a dependency is missing", "an exception ended a rank"


def crashed(meaning: str, evidence: str = "No module named x", outcome: Outcome = Outcome.CRASHED) -> JobResult:
    if not meaning:
        return JobResult(outcome=Outcome.MEASURED)
    return JobResult(outcome=outcome, failure=Failure(kind=outcome.value, evidence=evidence, meaning=meaning))


@pytest.mark.parametrize(
    ("reasons", "jobs"),
    [
        ([MISSING] * 3, 3),
        ([MISSING, "", MISSING, MISSING], None),
        ([MISSING, "the disk is full", "the disk is full", "the disk is full"], 4),
        (["", MISSING, MISSING, MISSING], 4),
        ([RAISED] * 3, 3),
        (["", *[RAISED] * 4], None),
        ([RAISED, RAISED, MISSING, RAISED], None),
    ],
)
def test_three_equal_failures_in_a_row_end_the_search(reasons: list[str], jobs: int | None) -> None:
    """Three equal failures in a row end the search; an exception counts only if no job was measured before."""
    streaks = Streaks(keep_going=False)
    ends = [streaks.after(crashed(reason)) for reason in reasons]
    assert [number for number, end in enumerate(ends, start=1) if end] == ([] if jobs is None else [jobs])
    if jobs is not None:
        remedy = REMEDIES.get(reasons[-1], SEE_LOGS)
        assert ends[-1] == (
            "the last 3 jobs failed in the same way, whatever the topology: "
            f"{reasons[-1]} (No module named x); {remedy}; to continue anyway, pass --keep-going"
        )


def test_an_exception_with_varying_figures_does_not_end_the_search() -> None:
    streaks = Streaks(keep_going=False)
    assert not any(streaks.after(crashed(RAISED, f"{heads} heads are not divisible by 3")) for heads in (4, 8, 16, 32))
    assert not any(streaks.after(crashed(RAISED, "")) for _ in range(4))
    assert not any(streaks.after(crashed(MISSING, outcome=Outcome.OOM)) for _ in range(4))


@pytest.mark.parametrize(
    "lines",
    [
        [f"2026-11-26 15:38:{second},123 ERROR unknown dataset my-data" for second in (10, 20, 30)],
        [f"[rank0]:[W1126 15:3{second}:48.123 pid={second}41] cannot connect" for second in range(3)],
        [f"ERROR [pid {number}] object at 0x7f{number}a4 has no loss" for number in (31, 412, 5513)],
    ],
    ids=["logging", "glog", "pid"],
)
def test_time_stamps_and_process_ids_do_not_make_a_failure_another_one(lines: list[str]) -> None:
    streaks = Streaks(keep_going=False)
    ends = [streaks.after(crashed("exit code 1", line)) for line in lines]
    assert ends[:2] == ["", ""]
    assert "the last 3 jobs failed in the same way" in ends[2]


def test_losses_that_are_not_numbers_are_the_same_failure_until_a_job_is_measured() -> None:
    lines = [f"iteration 2 | loss nan | elapsed {milliseconds} ms" for milliseconds in (101.5, 202.25, 303.125)]
    streaks = Streaks(keep_going=False)
    assert [bool(streaks.after(crashed(NOT_A_NUMBER, line))) for line in lines] == [False, False, True]
    streaks = Streaks(keep_going=False)
    assert not any(streaks.after(result) for result in [crashed(""), *[crashed(NOT_A_NUMBER, "nan")] * 4])


def test_keep_going_ends_only_a_search_that_measures_nothing() -> None:
    streaks = Streaks(keep_going=True)
    assert not any(streaks.after(crashed(MISSING)) for _ in range(4))
    unreadable = [streaks.after(crashed("x", "no line", Outcome.UNREADABLE)) for _ in range(3)]
    assert unreadable == ["", "", "the last 3 jobs succeeded, but none could be measured: no line"]


@pytest.mark.parametrize(
    ("degrees", "reason", "searched", "job", "what"),
    [
        ([1, 1, 2], RAISED, 2, 3, "whatever the topology"),
        ([1] * 6, RAISED, 1, 3, "whatever the topology"),
        ([1] * 7, RAISED, 2, 6, "all with tp 1"),
        ([1, 1, 1, 1, 2], RAISED, 2, 5, "whatever the topology"),
        ([1] * 3, MISSING, 2, 3, "whatever the topology"),
    ],
)
def test_a_failure_at_one_tensor_parallel_degree_may_depend_on_it(
    degrees: list[int], reason: str, searched: int, job: int, what: str
) -> None:
    """An assertion of Megatron-LM that holds at tp 1 only must not end a study that also searches tp 2."""
    streaks = Streaks(keep_going=False, tensor_degrees=searched)
    ends = [streaks.after(crashed(reason), tp) for tp in degrees]
    assert next(number for number, end in enumerate(ends, start=1) if end) == job
    assert f"the last {job} jobs failed in the same way, {what}: {reason} " in ends[job - 1]
    assert ("; to search other degrees only, leave 1 out of --set tp=...; " in ends[job - 1]) == what.startswith("all")


def test_another_failure_starts_the_degrees_anew() -> None:
    streaks = Streaks(keep_going=False, tensor_degrees=2)
    results = [(RAISED, "a", 2), (RAISED, "b", 1), (RAISED, "b", 1), (RAISED, "b", 1)]
    assert not any(streaks.after(crashed(reason, evidence), tp) for reason, evidence, tp in results)


def test_evidence_is_cut_after_200_characters() -> None:
    streaks = Streaks(keep_going=False)
    line = "a" * 199 + "bcd"
    assert f"({'a' * 199}b); " in [streaks.after(crashed(MISSING, line)) for _ in range(3)][-1]
