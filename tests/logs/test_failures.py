"""Why a job ended: the root cause and its log line, without false alarms."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.logs.failures import FAILURES as CASES
from tests.logs.failures import HARMLESS
from tuner.core.outcomes import Outcome
from tuner.logs import Sighting, read_log
from tuner.logs.signatures import SIGNATURES

LOGS = ROOT / "tests/data/logs"

FAILURES = {
    "oom": (Outcome.OOM, 13, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB."),
    "oom-older": (Outcome.OOM, 8, "RuntimeError: CUDA out of memory. Tried to allocate 256.00 MiB (GPU 7;"),
    "oom-hip": (Outcome.OOM, 6, "torch.cuda.OutOfMemoryError: HIP out of memory."),
    "oom-nccl": (Outcome.OOM, 1, "n1:4242:4300 [2] include/alloc.h:103 NCCL WARN Cuda failure 2 'out of memory'"),
    "oom-nccl-calloc": (Outcome.OOM, 1, "n1:4242:4300 [2] NCCL WARN Failed to CUDA calloc"),
    "hang": (Outcome.HUNG, 3, "[rank2]:[E501 12:30:00.40827 ProcessGroupNCCL.cpp:607] [Rank 2] Watchdog caught"),
    "hang-gloo": (Outcome.HUNG, 6, "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81]"),
    "store-clients": (Outcome.CRASHED, 6, "torch.distributed.DistStoreError: Timed out after 601 seconds"),
    "assertion": (Outcome.CRASHED, 5, "AssertionError: the shards do not add up"),
    "traceback": (Outcome.CRASHED, 9, "ValueError: number of layers should be divisible by"),
    "time-limit": (Outcome.TIMED_OUT, 6, "slurmstepd: error: *** STEP 4242.0 ON node01 CANCELLED AT"),
    "preempted": (Outcome.PREEMPTED, 3, "slurmstepd: error: *** JOB 4242 ON node01 CANCELLED AT"),
    "node-failure": (Outcome.CRASHED, 4, "srun: error: Node failure on node03"),
    "cancelled": (Outcome.CANCELLED, 4, "slurmstepd: error: *** JOB 4242 ON node01 CANCELLED AT"),
    "bus-error": (Outcome.CRASHED, 1, "run.sh: line 12: 4242 Bus error (core dumped)"),
    "segmentation-fault": (Outcome.CRASHED, 3, "Fatal Python error: Segmentation fault"),
    "host-memory": (Outcome.CRASHED, 5, "exitcode : -9 (pid: 4242)"),
    "host-memory-slurm": (Outcome.CRASHED, 1, "slurmstepd: error: Detected 2 oom_kill events in StepId=4242.0."),
    "deepspeed-launcher": (Outcome.CRASHED, 2, "[2024-05-01 12:00:00,000] [ERROR] [launch.py:325:sigkill_handler]"),
    "not-a-number": (Outcome.CRASHED, 3, "iteration 3/ 95367 |"),
    "sigterm": (Outcome.CANCELLED, 3, "[2024-05-01 12:00:00] exiting program after receiving SIGTERM."),
    "worker-hang": (Outcome.HUNG, 58, "RuntimeError:"),
    "worker-refused": (Outcome.CRASHED, 29, "pydantic_core._pydantic_core.ValidationError: 1 validation"),
    "worker-not-a-number": (Outcome.CRASHED, 1, "worker: the loss of iteration 2 is nan: the job ends."),
    "worker-host-memory": (Outcome.CRASHED, 25, "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0."),
    "worker-killed": (Outcome.CRASHED, 36, "worker: rank 1 was killed by signal 9"),
}
"""Outcome of each log, and the number and beginning of the line that shows it."""


def failure_of(*lines: str) -> Sighting | None:
    """Return the failure of a log of these lines."""
    runs = read_log(lines).runs
    return runs[-1].failure if runs else None


def test_every_failure_log_has_a_test_case() -> None:
    assert {path.stem.removeprefix("failure-") for path in LOGS.glob("failure-*.log")} == set(FAILURES)


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_reported_with_the_line_that_proves_it(name: str) -> None:
    kind, line, evidence = FAILURES[name]
    lines = (LOGS / f"failure-{name}.log").read_text().splitlines()
    seen = failure_of(*lines)
    assert seen
    assert (seen.failure.kind, seen.line) == (kind.value, line)
    assert seen.failure.evidence.startswith(evidence)
    assert seen.failure.evidence in " ".join(lines[line - 1].split())


def test_host_out_of_memory_is_not_gpu_out_of_memory() -> None:
    """OOM means that the topology exceeds a GPU's memory; running out of host memory does not."""
    for name in ("host-memory", "host-memory-slurm"):
        seen = failure_of(*(LOGS / f"failure-{name}.log").read_text().splitlines())
        assert seen
        assert "the host ran out of memory" in seen.meaning


def test_a_healthy_log_with_alarming_words_has_no_failure() -> None:
    """The log has warnings, option names, skipped steps, an ignored exception and a caught one."""
    (run,) = read_log((LOGS / "healthy.log").read_text().splitlines()).runs
    assert len(run.iterations) == 4
    assert run.failure is None


SOUNDS_LIKE_ONE = [
    "W0228 warning: no error yet, error_feedback=True",
    "[INFO] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
    "UserWarning: CUDA out of memory may follow",
    "pytorch allocator cache flushes since last step. this happens when there is high memory pressure",
    "error: unknown flag in a config that nobody reads",
    "  timeout ......................................... 1800",
    "  distributed_timeout_minutes ..................... 10",
    "NCCL INFO NCCL_ASYNC_ERROR_HANDLING set to 1",
    "asserting AssertionErrors is what the tests of this program do",
]


def chained(first: str, bridge: str, second: str = "ValueError: second") -> list[str]:
    """Return the lines of two chained exceptions."""
    return [
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in <module>',
        "    raise RuntimeError('CUDA out of memory is only quoted here')",
        first,
        "",
        bridge,
        "",
        "Traceback (most recent call last):",
        '  File "a.py", line 3, in <module>',
        second,
    ]


HANDLED = "During handling of the above exception, another exception occurred:"


@pytest.mark.parametrize(
    ("first", "bridge"),
    [
        ("TypeError: first", HANDLED),
        ("KeyError: 'first' and more", HANDLED),
        ("KeyError: 'first'", "The above exception was the direct cause of the following exception:"),
        ("KeyError: 'first'", ""),
    ],
)
def test_the_last_line_of_the_first_traceback_is_the_evidence(first: str, bridge: str) -> None:
    seen = failure_of(*chained(first, bridge))
    assert seen
    assert (seen.failure.evidence, seen.line) == (first, 4)


@pytest.mark.parametrize("rank", ["", "[rank3]: "])
@pytest.mark.parametrize("first", ["KeyError: 'first'", "StopIteration", "_queue.Empty", "queue.Empty"])
def test_a_failed_lookup_is_explained_by_its_handler(first: str, rank: str) -> None:
    seen = failure_of(*(rank + line for line in chained(first, HANDLED)))
    assert seen
    assert (seen.failure.evidence, seen.line) == ("ValueError: second", 10)


def test_a_failed_lookup_is_the_cause_if_the_next_exception_is_far_or_missing() -> None:
    lookup = chained("KeyError: 'first'", HANDLED)
    far = failure_of(*lookup[:4], *("iteration 1" for _ in range(3)), *lookup[5:])
    cut = failure_of(*lookup[:6])
    assert far
    assert cut
    assert {far.failure.evidence, cut.failure.evidence} == {"KeyError: 'first'"}
    assert far.line == cut.line == 4


def test_an_unfinished_traceback_is_a_failure() -> None:
    seen = failure_of("Traceback (most recent call last):", '  File "a.py", line 1, in <module>')
    assert seen
    assert (seen.failure.kind, seen.failure.evidence) == ("CRASHED", "Traceback (most recent call last):")


@pytest.mark.parametrize("frames", [499, 500])
def test_an_exception_is_found_after_a_traceback_of_any_depth(frames: int) -> None:
    seen = failure_of(
        "Traceback (most recent call last):", *['  File "a.py", line 1, in f'] * frames, "ValueError: deep"
    )
    assert seen
    assert seen.failure.evidence == "ValueError: deep"


def test_a_killed_rank_explains_a_truncated_traceback() -> None:
    """The other rank was terminated while printing that its peer is gone."""
    lines = [
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in f',
        "worker: rank 1 was killed by signal 9",
    ]
    seen = failure_of(*lines)
    assert seen
    assert seen.meaning == "a rank was killed (SIGKILL)"


def test_a_loss_that_recovers_from_nan_is_no_failure() -> None:
    text = (LOGS / "failure-not-a-number.log").read_text()
    lines = text.splitlines()
    assert failure_of(*lines[:3]) is not None
    assert failure_of(*lines[:3], lines[3].replace("NAN", "1.1E+01")) is None


@given(st.permutations(["oom", "hang", "time-limit", "assertion", "cancelled", "host-memory", "sigterm"]))
def test_gpu_out_of_memory_takes_precedence_over_other_failures(names: list[str]) -> None:
    """The order of the lines of ranks, launcher and scheduler does not matter."""
    lines = [line for name in names for line in (LOGS / f"failure-{name}.log").read_text().splitlines()]
    failures = [run.failure.failure.kind for run in read_log(lines).runs if run.failure]
    assert "OOM" in failures


@given(st.randoms(use_true_random=False))
def test_interleaved_tracebacks_of_ranks_are_separated(dice: random.Random) -> None:
    ranks = [
        [f"[rank{rank}]: {line}" for line in ("Traceback (most recent call last):", '  File "a.py"', "    x", last)]
        for rank, last in enumerate(
            ["RuntimeError: Connection closed by peer [::1]:7", "ValueError: the cause", "OSError: Broken pipe"]
        )
    ]
    mixed = []
    while any(ranks):
        mixed.append(dice.choice([lines for lines in ranks if lines]).pop(0))
    seen = failure_of(*mixed)
    assert seen
    assert seen.failure.evidence == "ValueError: the cause"


LOST_PEERS = [
    "torch.distributed.DistBackendError: NCCL error in: ../x.cpp:9, remote process exited or there was a network error",
    "torch.distributed.DistBackendError: NCCL error in: ../x.cpp:9, unhandled system error, NCCL version 2.26.2",
    "torch.distributed.DistStoreError: Connection was likely closed. Did the remote server shutdown or crash?",
    "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.",
    "RuntimeError: [../pair.cc:534] Connection closed by peer [10.0.0.2]:23456",
    "RuntimeError: DataLoader worker (pid(s) 4242) exited unexpectedly",
]

ENDS = [
    "[rank3]: ValueError: the sequence length must be divisible by 128",
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=4.0.",
]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("lost", LOST_PEERS)
@pytest.mark.parametrize("first", [False, True])
def test_the_cause_of_a_lost_peer_takes_precedence_over_the_lost_connection(
    end: str, lost: str, *, first: bool
) -> None:
    raised = ["[rank3]: Traceback (most recent call last):", '[rank3]:   File "a.py"', end]
    other = ["[rank1]: Traceback (most recent call last):", '[rank1]:   File "a.py"', f"[rank1]: {lost}"]
    seen = failure_of(*other, *raised) if first else failure_of(*raised, *other)
    assert seen
    assert seen.failure.evidence == end.removeprefix("[rank3]: ")


def test_a_collective_that_times_out_after_an_nccl_failure_is_not_a_hang() -> None:
    failed = f"[rank1]: {LOST_PEERS[1]}"
    waits = "[rank0]:[E1 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(5)"
    in_order, reverse = failure_of(failed, waits), failure_of(waits, failed)
    assert in_order
    assert reverse
    assert (in_order.failure.kind, reverse.failure.kind) == ("CRASHED", "HUNG")


KILLED = (
    "E0601 10:00:05.0 4242 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -9) local_rank: 3"
)
WAITS = "[rank0]:[E1 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(5)"


def test_a_collective_that_times_out_after_a_killed_rank_is_not_a_hang() -> None:
    in_order, reverse = failure_of(KILLED, WAITS), failure_of(WAITS, KILLED)
    assert in_order
    assert reverse
    assert (in_order.failure.kind, reverse.failure.kind) == ("CRASHED", "HUNG")


@pytest.mark.parametrize("lost", LOST_PEERS)
@pytest.mark.parametrize("first", [False, True])
def test_the_signal_that_killed_a_rank_explains_lost_connections(lost: str, *, first: bool) -> None:
    peer = ["[rank1]: Traceback (most recent call last):", '[rank1]:   File "a.py"', f"[rank1]: {lost}"]
    seen = failure_of(KILLED, *peer) if first else failure_of(*peer, KILLED)
    assert seen
    assert seen.failure.evidence == KILLED


ABORTED = "[rank1]: RuntimeError: NCCL communicator was aborted on rank 1. Original reason for failure was: unknown"


@pytest.mark.parametrize("peer", [LOST_PEERS[0], ABORTED, "Fatal Python error: Aborted"])
@pytest.mark.parametrize("first", [False, True])
def test_an_exception_without_a_traceback_explains_an_abort(peer: str, *, first: bool) -> None:
    bare = "ValueError: the sequence length must be divisible by 128"
    seen = failure_of(bare, peer) if first else failure_of(peer, bare)
    assert seen
    assert seen.failure.evidence == bare


@pytest.mark.parametrize("name", CASES)
def test_each_wording_has_an_outcome_a_meaning_and_a_root_cause(name: str) -> None:
    text, outcome, meaning, evidence = CASES[name]
    seen = failure_of(*text.splitlines())
    assert seen
    assert (seen.failure.kind, seen.meaning) == (outcome, meaning)
    assert seen.failure.evidence.removeprefix("[rank0]: ").startswith(evidence)


@pytest.mark.parametrize("line", [*SOUNDS_LIKE_ONE, *HARMLESS])
def test_a_line_that_only_mentions_a_failure_is_not_one(line: str) -> None:
    assert failure_of(line) is None


def test_every_signature_shares_a_keyword_with_the_lines_it_matches() -> None:
    """Lines without any keyword of a signature are not compared with it."""
    lines = [line for text, *_ in CASES.values() for line in text.splitlines()]
    for signature in SIGNATURES:
        matched = filter(re.compile(signature.pattern).search, lines)
        wordless = [line for line in matched if not any(word in line for word in signature.words)]
        assert not wordless, signature.meaning


@pytest.mark.parametrize(
    ("lines", "evidence"),
    [
        (["RuntimeError: the following:", "", "  a  mismatch", "more"], "RuntimeError: the following: a mismatch"),
        (["RuntimeError:", "could not read shard 7"], "RuntimeError: could not read shard 7"),
        (["RuntimeError: the following:", " " + "x" * 600], f"RuntimeError: the following: {'x' * 471}"),
        (["RuntimeError: done", "an end"], "RuntimeError: done"),
        (["RuntimeError: the following:", "Traceback (most recent call last):"], "RuntimeError: the following:"),
        (["RuntimeError: the following:"], "RuntimeError: the following:"),
        (["RuntimeError: the following:", "=" * 60], "RuntimeError: the following:"),
        (["RuntimeError: the following:", " iteration 3/ 100 | lm loss: 1.0"], "RuntimeError: the following:"),
        (["RuntimeError: the following:", "srun: error: node1: task 0: Exited"], "RuntimeError: the following:"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "[rank0]: ", "3: "])
def test_an_exception_that_ends_in_a_colon_is_quoted_with_the_next_line(
    lines: list[str], evidence: str, prefix: str
) -> None:
    traceback = ["Traceback (most recent call last):", '  File "a.py", line 1, in <module>', *lines]
    seen = failure_of(*[prefix + line for line in traceback])
    assert seen
    assert (seen.failure.evidence, seen.line) == (evidence, 3)


def test_only_a_line_of_the_same_rank_continues_an_exception() -> None:
    traceback = ["[rank0]: Traceback (most recent call last):", '[rank0]:   File "a.py", line 1, in <module>']
    seen = failure_of(*traceback, "[rank0]: RuntimeError: the following:", "I0501 another program", "[rank0]: late")
    assert seen
    assert seen.failure.evidence == "RuntimeError: the following:"
    seen = failure_of("worker.errors.LoadError: the following:", "layer 3")
    assert seen
    assert seen.failure.evidence == "worker.errors.LoadError: the following: layer 3"
