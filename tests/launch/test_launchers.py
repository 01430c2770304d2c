"""The contract of launchers, one test per law, run with every launcher of `tests/stages.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stages import MARKED, OUTCOMES, STAGES, Behaviour, Stage
from tuner.core.errors import LaunchError
from tuner.core.outcomes import Outcome
from tuner.launch import JobResult, JobState, JobStatus, Launcher


@pytest.fixture(params=[pytest.param(name, marks=MARKED.get(name, ())) for name in STAGES])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    return STAGES[request.param](tmp_path)


@pytest.fixture
def launcher(stage: Stage) -> Iterator[Launcher]:
    opened = stage.open()
    yield opened
    opened.close()


def at(launcher: Launcher, handle: str) -> JobStatus:
    return launcher.poll([handle])[handle]


def ended(stage: Stage, launcher: Launcher, handle: str) -> JobStatus:
    """Wait until the job has ended by itself, and return its status."""
    for _ in range(stage.looks):
        if (status := at(launcher, handle)).state is JobState.ENDED:
            return status
        launcher.wait(stage.look)
    raise AssertionError(f"the job has not ended: {status}")


def started(stage: Stage, launcher: Launcher, handle: str) -> JobStatus:
    for _ in range(stage.looks):
        if (status := at(launcher, handle)).state is not JobState.WAITING:
            return status
        launcher.wait(stage.look)
    raise AssertionError(f"the job has not begun: {status}")


def test_submit_returns_at_once_with_a_unique_handle(stage: Stage, launcher: Launcher) -> None:
    before = launcher.now()
    first, second = launcher.submit(stage.job()), launcher.submit(stage.job())
    assert launcher.now() - before <= 2 * stage.slack
    assert first != second
    assert all(isinstance(handle, str) and handle.isprintable() and handle for handle in (first, second))
    assert at(launcher, first).state in (JobState.WAITING, JobState.RUNNING)


def test_a_job_that_cannot_start_raises_and_leaves_nothing_behind(stage: Stage, launcher: Launcher) -> None:
    (stage.folder / "file").write_text("in the way")
    job = stage.job(folder=stage.folder / "file" / "job")
    with pytest.raises(LaunchError, match="cannot"):
        launcher.submit(job)
    assert [path.name for path in stage.folder.iterdir()] == ["file"]
    assert launcher.adopt(job, None) is None
    assert stage.open().adopt(job, None) is None
    ended(stage, launcher, launcher.submit(stage.job()))


def test_one_poll_answers_for_any_number_of_jobs(stage: Stage, launcher: Launcher) -> None:
    handles = [launcher.submit(stage.job()) for _ in range(6)]
    before = stage.queries()
    statuses = launcher.poll(handles)
    asked = stage.queries()
    assert before is None or asked is None or asked - before <= 1
    assert list(statuses) == handles
    assert launcher.poll([]) == {}


def test_a_waiting_job_does_not_run(stage: Stage, launcher: Launcher) -> None:
    """A waiting job has a reason but no iterations, and its time counts only from when it has nodes."""
    hanging = [launcher.submit(stage.job("hang")) for _ in range(launcher.nodes)]
    waits = launcher.submit(stage.job())
    for _ in range(3):
        status = at(launcher, waits)
        assert (status.state, status.began, status.iterations, status.seconds_in) == (JobState.WAITING, None, 0, 0.0)
        launcher.wait(stage.look)
    assert at(launcher, waits).reason
    freed = launcher.now()
    launcher.cancel(hanging[0])
    began = started(stage, launcher, waits).began
    assert began is not None
    assert began >= freed
    assert ended(stage, launcher, waits).iterations == 2
    assert launcher.collect(waits).elapsed <= launcher.now() - freed
    for handle in hanging:
        launcher.cancel(handle)


def test_running_jobs_never_exceed_the_nodes(stage: Stage, launcher: Launcher) -> None:
    handles = [launcher.submit(stage.job()) for _ in range(2 * launcher.nodes + 1)]
    for _ in range(stage.looks):
        states = [status.state for status in launcher.poll(handles).values()]
        assert states.count(JobState.RUNNING) <= launcher.nodes
        if set(states) == {JobState.ENDED}:
            return
        launcher.wait(stage.look)
    raise AssertionError(f"they have not all ended: {states}")


def test_a_job_ends_by_itself_after_its_last_iteration(stage: Stage, launcher: Launcher) -> None:
    handle = launcher.submit(stage.job(iterations=(2, 3)))
    assert ended(stage, launcher, handle).iterations == 3
    result = launcher.collect(handle)
    assert result.outcome is Outcome.MEASURED
    assert result.failure is None
    assert result.measurement is not None
    assert result.measurement.simulated is launcher.simulated
    assert result.elapsed >= 3 * 0.5 * result.measurement.seconds


def test_progress_never_decreases(stage: Stage, launcher: Launcher) -> None:
    handle, seen = launcher.submit(stage.job(iterations=(3,))), []
    for _ in range(1000 * stage.looks):
        seen.append(at(launcher, handle))
        if seen[-1].state is JobState.ENDED:
            break
        launcher.wait(stage.look / 1000)
    ran = [status for status in seen if status.began is not None]
    assert len({status.began for status in ran}) == 1
    assert [status.iterations for status in ran] == sorted(status.iterations for status in ran)
    moved = [status.moved for status in ran if status.moved is not None]
    assert moved == sorted(moved)
    assert all(status.seconds_in >= 0 for status in seen)
    assert all(0 <= status.share <= 1 for status in seen if status.share is not None)


def test_collect_always_returns_the_same_result(stage: Stage, launcher: Launcher) -> None:
    """`collect` always returns the same result, even after a cancel that came too late."""
    handle = launcher.submit(stage.job())
    ended(stage, launcher, handle)
    first = launcher.collect(handle)
    launcher.cancel(handle)
    launcher.wait(stage.look)
    assert launcher.collect(handle) == launcher.collect(handle) == first
    assert at(launcher, handle).state is JobState.ENDED


def test_the_median_of_the_requested_iterations_is_measured(stage: Stage, launcher: Launcher) -> None:
    handle = launcher.submit(stage.job(iterations=(2, 3, 4, 5)))
    assert ended(stage, launcher, handle).iterations == 5
    measurement = launcher.collect(handle).measurement
    assert measurement is not None
    assert measurement.iterations == (2, 3, 4, 5)
    assert measurement.seconds > 0


def test_a_job_can_be_cancelled_in_any_state_and_twice(stage: Stage, launcher: Launcher) -> None:
    hanging = [launcher.submit(stage.job("hang")) for _ in range(launcher.nodes)]
    waits = launcher.submit(stage.job())
    started(stage, launcher, hanging[0])
    for handle in (waits, *hanging):
        for _ in range(2):
            launcher.cancel(handle)
            assert at(launcher, handle).state in (JobState.ENDED, JobState.LOST)
    begun = launcher.submit(stage.job())
    ended(stage, launcher, begun)
    launcher.cancel("no such job")


@pytest.mark.parametrize("behaviour", ["oom", "crash"])
def test_a_failed_job_has_the_line_that_explains_it(behaviour: Behaviour, stage: Stage, launcher: Launcher) -> None:
    handle = launcher.submit(stage.job(behaviour))
    assert ended(stage, launcher, handle).iterations < 2
    result = launcher.collect(handle)
    assert result.outcome is OUTCOMES[behaviour]
    assert result.measurement is None
    assert result.failure is not None
    assert result.failure.kind
    assert result.failure.evidence
    assert "\n" not in result.failure.evidence
    assert ("SIMULATED" in result.failure.evidence) is launcher.simulated


def test_a_hung_job_does_not_end_by_itself(stage: Stage, launcher: Launcher) -> None:
    handle = launcher.submit(stage.job("hang"))
    started(stage, launcher, handle)
    for _ in range(10):
        launcher.wait(stage.look)
    first = at(launcher, handle)
    launcher.wait(stage.look)
    later = at(launcher, handle)
    assert first.state is later.state is JobState.RUNNING
    assert (later.iterations, later.moved) == (first.iterations, first.moved)
    launcher.cancel(handle)
    assert at(launcher, handle).state is not JobState.RUNNING


@pytest.mark.parametrize("written_down", [True, False])
@pytest.mark.parametrize("behaviour", ["good", "oom", "crash"])
def test_another_process_adopts_a_job_with_the_same_result(
    behaviour: Behaviour, written_down: bool, stage: Stage, launcher: Launcher
) -> None:
    """Another process adopts a job, with or without its handle, and gets the same result."""
    job = stage.job(behaviour)
    handle = launcher.submit(job)
    if not launcher.outlives:
        ended(stage, launcher, handle)  # otherwise it would end with this process
    other = stage.open()
    adopted = other.adopt(job, handle if written_down else None)
    assert adopted is not None
    assert other.adopt(job, adopted) == adopted
    there = ended(stage, other, adopted)
    here = ended(stage, launcher, handle)
    assert (there.iterations, there.state) == (here.iterations, here.state)
    assert _same(other.collect(adopted), launcher.collect(handle))
    last = stage.open()
    again = last.adopt(job, None)
    assert again is not None
    ended(stage, last, again)
    assert _same(last.collect(again), launcher.collect(handle))


def test_a_job_that_was_never_submitted_is_not_adopted(stage: Stage, launcher: Launcher) -> None:
    handle = launcher.submit(stage.job())
    assert launcher.adopt(stage.job(), None) is None
    assert stage.open().adopt(stage.job(), "no such job") is None
    assert stage.open().adopt(stage.job(), handle) is None, "the handle is another job's"


def test_a_cancelled_job_is_not_running_for_later_processes(stage: Stage, launcher: Launcher) -> None:
    job = stage.job("hang")
    handle = launcher.submit(job)
    launcher.cancel(handle)
    other = stage.open()
    adopted = other.adopt(job, handle)
    assert adopted is None or at(other, adopted).state in (JobState.ENDED, JobState.LOST)


def test_an_unknown_handle_is_lost(stage: Stage, launcher: Launcher) -> None:
    known = launcher.submit(stage.job())
    statuses = launcher.poll(["no such job", known, ""])
    assert statuses["no such job"].state is statuses[""].state is JobState.LOST
    assert statuses[known].state is not JobState.LOST


def test_the_clock_is_monotonic_and_waits_are_never_too_long(stage: Stage, launcher: Launcher) -> None:
    handles, clocks = [launcher.submit(stage.job()) for _ in range(3)], [launcher.now()]
    for share in (0.0, 0.001, 0.01, 0.003, -1.0, 0.02, 0.0005):
        before = launcher.now()
        launcher.wait(share * stage.look)
        assert launcher.now() - before <= max(0.0, share * stage.look) + stage.slack + 1e-6
        launcher.poll(handles)
        clocks.append(launcher.now())
    launcher.cancel(handles[0])
    clocks.append(launcher.now())
    assert clocks == sorted(clocks)


HOSTILE = [
    "with spaces",
    'it\'s "quoted"',
    "a;b&&c|d",
    "$(touch x) `y` $HOME",
    "two\nlines",
    "é 模型 🚀",
    "-rf",
    "back\\n",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_folder_may_have_any_name(name: str, stage: Stage, launcher: Launcher) -> None:
    job = stage.job(folder=stage.folder / name / "0001")
    handle = launcher.submit(job)
    ended(stage, launcher, handle)
    assert launcher.collect(handle).outcome is Outcome.MEASURED
    assert stage.open().adopt(job, None) is not None
    assert [path.name for path in stage.folder.iterdir()] == [name]


def test_many_jobs_may_be_queued_at_once(stage: Stage, launcher: Launcher) -> None:
    handles = [launcher.submit(stage.job()) for _ in range(stage.many)]
    assert len(set(handles)) == stage.many
    states = [status.state for status in launcher.poll(handles).values()]
    assert states.count(JobState.RUNNING) <= launcher.nodes
    assert set(states) <= {JobState.RUNNING, JobState.WAITING, JobState.ENDED}
    for handle in reversed(handles):
        launcher.cancel(handle)
    assert not {JobState.RUNNING, JobState.WAITING} & {status.state for status in launcher.poll(handles).values()}


def _same(one: JobResult, other: JobResult) -> bool:
    """Whether two results agree, except in elapsed times, which depend on when a launcher polled."""
    return (one.outcome, one.measurement, one.failure) == (other.outcome, other.measurement, other.failure)
