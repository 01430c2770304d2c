"""What a probe makes of a table's row and of a job, and which topologies the axes leave, at exact values."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.audit.tables_of import evidence_of
from tests.workers import ONE, WORKLOAD
from tuner.core.atomic_write import write_object
from tuner.core.catalog import cluster
from tuner.core.domain import Topology
from tuner.core.errors import InputError, LaunchError, NothingUsable
from tuner.core.outcomes import Failure, Measurement, Outcome
from tuner.costmodel.site_file import cost_model
from tuner.launch.contract import Job, JobResult, JobState, JobStatus
from tuner.sizing import probes
from tuner.sizing.options import asked_rows, only_option, options, stacked
from tuner.sizing.probes import EstimateProbe, JobProbe, only_series, series
from tuner.space.build import space_for

GIB = 2.0**30


class Scripted:
    """A launcher of one job that is in these states, one second apart, and ends so."""

    nodes, name, simulated, outlives = 1, "scripted", False, True

    def __init__(self, states: Sequence[JobState], result: JobResult) -> None:
        self.states, self.result = list(states), result
        self.clock = 0.0
        self.jobs: list[Job] = []
        self.ended: Any = None
        self.cancelled: list[str] = []

    def now(self) -> float:
        """The clock."""
        return self.clock

    def wait(self, _most: float) -> None:
        """A second passes."""
        self.clock += 1.0

    def submit(self, job: Job) -> str:
        """Note it; it leaves `ended` in its folder."""
        self.jobs.append(job)
        if self.ended is not None:
            write_object(job.folder / "ended.json", self.ended)
        return "h"

    def poll(self, handles: Sequence[str]) -> Mapping[str, JobStatus]:
        """The next state; the last one stays."""
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return dict.fromkeys(handles, JobStatus(state=state))

    def cancel(self, handle: str) -> None:
        """Note it."""
        self.cancelled.append(handle)

    def collect(self, _handle: str) -> JobResult:
        """The result."""
        return self.result


@pytest.fixture
def probed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Probe a micro batch of 3 with a job; return the result, the launcher and what was attempted."""

    def probe(
        states: Sequence[JobState],
        result: JobResult,
        *,
        seen: Sequence[float] = (0.0,),
        ended: Any = None,
        topology: Topology = ONE,
        global_batch: int | None = None,
    ) -> tuple[Any, Scripted, list[Any]]:
        memory, attempts = list(seen), list[Any]()
        launcher: Any = Scripted(states, result)
        monkeypatch.setattr(
            probes, "memory_of", lambda _tag, on_host: memory.pop(0) if len(memory) > 1 or on_host else memory[0]
        )
        made = JobProbe(
            launcher=launcher,
            workload=WORKLOAD,
            cluster=cluster("bloom-48"),
            topology=topology,
            global_batch=global_batch,
            folder=tmp_path / "batches",
            iterations=(2,),
            timeout=3.0,
            on_host=False,
            on_attempt=attempts.append,
        )
        launcher.ended = ended
        return made(3), launcher, attempts

    return probe


RUNNING, ENDED, WAITING, UNKNOWN = JobState.RUNNING, JobState.ENDED, JobState.WAITING, JobState.UNKNOWN
GOOD = JobResult(outcome=Outcome.MEASURED, measurement=Measurement(seconds=2.0, peak_memory=5 * GIB))


def test_a_probe_is_a_job_of_one_micro_batch_on_each_replica(probed: Callable[..., Any]) -> None:
    made, launcher, attempts = probed([RUNNING, ENDED], GOOD)
    (job,) = launcher.jobs
    assert (job.number, job.folder.name) == (1, "0001-mbs3")
    assert (job.topology.micro_batch, job.topology.global_batch) == (3, 3)
    assert (made.micro_batch, made.outcome, made.peak_memory, made.seconds) == (3, "MEASURED", 5 * GIB, 2.0)
    assert attempts == [made]
    assert launcher.cancelled == ["h"]


@pytest.mark.parametrize(
    ("pp", "global_batch", "ran", "steps"), [(1, 24, 3, None), (4, None, 12, 4), (4, 24, 24, 8), (4, 25, 27, 9)]
)
def test_a_job_of_a_pipeline_runs_a_whole_step(
    pp: int, global_batch: int | None, ran: int, steps: int | None, probed: Callable[..., Any]
) -> None:
    """At micro batch 3 on one replica; 2 s a step are 2 s over its microbatches for one of them."""
    made, launcher, attempts = probed([RUNNING, ENDED], GOOD, topology=replace(ONE, pp=pp), global_batch=global_batch)
    assert (launcher.jobs[0].topology.micro_batch, launcher.jobs[0].topology.global_batch) == (3, ran)
    assert (made.seconds, made.acc_steps, made.peak_memory) == (2.0 / (steps or 1), steps, 5 * GIB)
    assert attempts == [made]


def test_two_searches_in_one_folder_share_no_job(probed: Callable[..., Any]) -> None:
    """Another search, or a later one, with the same folder of runs leaves the files of earlier jobs as they are."""
    folders = [probed([RUNNING, ENDED], GOOD)[1].jobs[0].folder for _ in range(2)]
    assert [folder.name for folder in folders] == ["0001-mbs3", "0002-mbs3"]
    for folder in folders:
        shutil.rmtree(folder)
    folders[0].parent.rmdir()
    folders[0].parent.touch()
    with pytest.raises(LaunchError, match=r"/0001-mbs3 cannot be created: .*; choose a folder with --runs\.$"):
        probed([RUNNING, ENDED], GOOD)


@pytest.mark.parametrize(
    ("own", "seen", "peak"), [(5 * GIB, [7 * GIB], 5 * GIB), (None, [3.0, 9.0, 4.0], 9.0), (None, [0.0], None)]
)
def test_memory_is_the_jobs_own_figure_or_the_most_that_was_seen(
    own: float | None, seen: list[float], peak: float | None, probed: Callable[..., Any]
) -> None:
    result = JobResult(outcome=Outcome.MEASURED, measurement=Measurement(seconds=2.0, peak_memory=own))
    made, _, _ = probed([RUNNING, RUNNING, ENDED], result, seen=seen)
    assert made.peak_memory == peak


@pytest.mark.parametrize(
    ("states", "timed_out"),
    [
        ([RUNNING] * 4 + [ENDED], False),
        ([RUNNING] * 5 + [ENDED], True),
        ([WAITING] * 20 + [RUNNING] * 4 + [ENDED], False),
        ([RUNNING] * 3 + [WAITING] + [RUNNING] * 4 + [ENDED], False),
        ([RUNNING] * 3 + [UNKNOWN] * 9 + [RUNNING] * 2 + [ENDED], False),
        ([RUNNING] * 3 + [UNKNOWN] * 9 + [RUNNING] * 3 + [ENDED], True),
    ],
)
def test_a_probe_has_its_time_while_it_runs(
    states: list[JobState], timed_out: bool, probed: Callable[..., Any]
) -> None:
    """More than 3 s between looks that both see it running; a requeued job begins anew."""
    made, _, _ = probed(states, GOOD)
    assert made.outcome == ("TIMED_OUT" if timed_out else "MEASURED")
    assert made.evidence == ("not finished after 3 s" if timed_out else "")


def failed(outcome: Outcome, meaning: str = "", evidence: str = "") -> JobResult:
    """A result without a measurement."""
    return JobResult(outcome=outcome, failure=Failure(kind="", evidence=evidence, meaning=meaning))


WELL = {"why": "exited", "exit": 0}


@pytest.mark.parametrize(
    ("result", "ended", "outcome", "evidence"),
    [
        (failed(Outcome.OOM, "out of memory", "line"), None, "OOM", "out of memory: line"),
        (failed(Outcome.HUNG, "hung", "stacks"), None, "HUNG", "hung: stacks"),
        (failed(Outcome.PREEMPTED, "preempted", "x"), None, "CRASHED", "preempted: x"),
        (failed(Outcome.UNREADABLE, "no times"), None, "MEASURED", ""),
        (failed(Outcome.CRASHED, "ended without a result", "x"), WELL, "MEASURED", ""),
        (failed(Outcome.CRASHED, "ended without a result", "x"), None, "CRASHED", "ended without a result: x"),
        (failed(Outcome.CRASHED, "ended without a result", "x"), {**WELL, "exit": 1}, "CRASHED", None),
        (failed(Outcome.CRASHED, "ended without a result", "x"), {**WELL, "why": "killed"}, "CRASHED", None),
        (failed(Outcome.CRASHED, "a traceback", "x"), WELL, "CRASHED", "a traceback: x"),
        (failed(Outcome.OOM, "ended without a result", "x"), WELL, "OOM", None),
        (JobResult(outcome=Outcome.CRASHED), WELL, "MEASURED", ""),
        (JobResult(outcome=Outcome.CRASHED), None, "CRASHED", ""),
    ],
)
def test_a_probe_without_a_measurement_has_run_only_where_it_exited_well(
    result: JobResult, ended: Any, outcome: str, evidence: str | None, probed: Callable[..., Any]
) -> None:
    made, _, _ = probed([ENDED], result, seen=[4.0], ended=ended)
    assert made.outcome == outcome
    if evidence is not None:
        assert made.evidence == evidence
    assert made.peak_memory == (4.0 if outcome == "MEASURED" else None)


def test_rows_that_differ_in_their_batches_alone_are_a_series() -> None:
    rows = [{"mbs": mbs, "gbs": gbs} for mbs, gbs in (("1", "16"), ("4", "64"), ("2", "16"))]
    failing = {"mbs": "8", "gbs": "64", "status": "OOM", "sec_per_iter": "", "mem_gib": "70"}
    table = evidence_of(*(row | {"mem_gib": "10", "mem_kind": "reserved"} for row in rows), failing).table
    made = only_series(table, table.rows)
    assert made.batches == (1, 2, 4, 8)
    assert (made.kind, made.first) == ("reserved", table.rows[0].run)
    good, bad = made(4), made(8)
    assert (good.outcome, good.peak_memory, good.seconds, good.evidence) == ("MEASURED", 10 * GIB, 1.25 / 8, "")
    assert (bad.outcome, bad.peak_memory, bad.seconds) == ("OOM", None, None)
    assert bad.evidence == "status OOM in line 5 of the table"
    assert [made(batch).seconds for batch in (1, 2)] == [1.25 / 8, 1.25 / 4]  # dp 2, and the table's global batches
    others = evidence_of({}, {"zero": "2"}, {"seq": "2048"}, {"gpu": "A100-40GB-SXM"}).table
    assert len(series(others.rows)) == 4
    with pytest.raises(InputError, match=r"has 4 series of batches.*tp=2, dp=2, zero=1 or"):
        only_series(others, others.rows)
    with pytest.raises(NothingUsable, match="has no row that matches the model, group and settings"):
        only_series(others, [])


def test_without_a_usable_row_the_line_of_a_skipped_one_is_named() -> None:
    """The first that matches, or the table's if no row of it is usable; other rows of the table do not count."""
    usable, broken, overfull = {"tp": "2"}, {"tp": "many"}, {"mem_gib": "900"}
    for cells, matching, message in [
        ((usable, overfull), [1], r"can be used: line 3: mem_gib is 900"),
        ((broken, overfull), [1], r"can be used: line 3: mem_gib is 900"),
        ((broken,), [], r"can be used: line 2: tp must be"),
        ((usable, broken), [], r"has no row that matches"),
    ]:
        table = evidence_of(*cells).table
        with pytest.raises(NothingUsable, match=message):
            only_series(table, [table.rows[index] for index in matching])


def test_axes_that_are_not_pinned_are_fully_sharded_on_all_gpus() -> None:
    """bloom-48 has 48 nodes of 8 GPUs."""

    def of(*settings: str, **more: Any) -> list[Any]:
        return options(space_for(model="gpt-1.3b", nodes=2, settings=settings, framework="any"), **more)

    (plain,) = of()
    assert (plain.tp, plain.pp, plain.cp, plain.vpp, plain.zero) == (1, 1, 1, 1, 3)
    assert (plain.dp, plain.nodes, plain.micro_batch) == (16, 2, 1)
    assert (plain.recompute, plain.sequence_parallel) == ("none", False)
    assert of(zero=1)[0].zero == 1
    assert [(one.tp, one.dp) for one in of("tp=2,4")] == [(2, 8), (4, 4)]
    (half,) = of("tp=2", "dp=3")
    assert (half.dp, half.nodes) == (3, 1)
    assert of("tp=2", "dp=5")[0].nodes == 2
    with pytest.raises(InputError, match=r"= 18 GPUs, but the cluster has 16"):
        of("tp=2", "dp=9")
    space = space_for(model="gpt-1.3b", nodes=2, settings=("tp=2,4",), framework="any")
    with pytest.raises(InputError, match="pin tp and dp to one value"):
        only_option(space)


@pytest.mark.parametrize(
    ("framework", "zero", "stage"), [("megatron-core", 3, 1), ("torchtitan", 0, 2), ("deepspeed", 3, 3)]
)
def test_the_stage_of_zero_is_the_nearest_that_the_framework_has(framework: Any, zero: int, stage: int) -> None:
    space = space_for(model="gpt-1.3b", nodes=2, framework=framework)
    assert [one.zero for one in options(space, zero=zero)] == [stage]
    assert stacked(space.workload, None, zero=stage) == space.workload
    with pytest.raises(InputError, match=f"--stack fsdp and --framework {framework} both"):
        stacked(space.workload, "fsdp", zero=stage)


def test_an_estimate_includes_gradients_that_are_accumulated() -> None:
    """ZeRO 2 frees them in a step of one micro batch: 4 bytes of each parameter on 16 GPUs."""
    space = space_for(model="gpt-1.3b", nodes=2, framework="torchtitan")
    (topology,) = options(space)
    given: dict[str, Any] = {
        "workload": space.workload,
        "cluster": space.cluster,
        "topology": topology,
        "model": cost_model(None),
    }
    alone, accumulated = (EstimateProbe(**given, global_batch=batch)(1) for batch in (16, 17))
    assert accumulated.seconds == alone.seconds
    more = (accumulated.peak_memory or 0) - (alone.peak_memory or 0)
    assert more == pytest.approx(space.workload.model.parameters * 4 / 16, rel=0.1)


def test_rows_are_asked_for_by_group_model_and_axes() -> None:
    table = evidence_of({"group": "a"}, {"group": "b"}, {"group": "b", "tp": "4", "dp": "1"}, {"layers": "5"}).table
    model: Any = table.rows[0].run and table.rows[0].run.workload.model

    def lines(**asked: Any) -> list[int]:
        given: dict[str, Any] = {"group": None, "model": None, "settings": ()}
        return [row.line for row in asked_rows(table.rows, **given | asked)]

    assert lines() == [2, 3, 4, 5]
    assert lines(group="b") == [3, 4]
    assert lines(model=model) == [2, 3, 4]
    assert lines(settings=("tp=4",)) == [4]
    assert lines(settings=("tp=2,4",), group="b") == [3, 4]


@pytest.mark.parametrize(
    ("stack", "zero", "plain"),
    [(None, 3, True), (None, 1, False), ("fsdp", 1, True), ("megatron", 3, False)],
)
def test_zero_3_stands_for_plain_layers_unless_a_stack_is_named(stack: Any, zero: int, plain: bool) -> None:
    made = stacked(WORKLOAD, stack, zero=zero)
    assert (made.plain_layers, made.parallel_loss) == (plain, not plain)
