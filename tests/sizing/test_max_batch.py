"""`tuner max-batch`: every strategy finds what a scan finds, in few runs: by table, by estimate, by real processes."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tuner
from tests import slurm_cluster
from tests.conftest import ROOT, Run
from tuner.core.errors import InputError
from tuner.launch.supervisor import members
from tuner.sizing import STRATEGIES, BatchGrid, BatchResult, fitted, look_for, pressures, ratio_at
from tuner.sizing.fit import BatchOutcome

E1 = ("max-batch", "--launcher", "replay", "--table", "corpus/e1-400m-ada.csv", "--step", "16")
ENOKI = ("max-batch", "--launcher", "replay", "--table", "corpus/enoki-h100.csv")


def _document(run: Run, *arguments: str) -> dict[str, Any]:
    said = run(*arguments, "--json")
    assert said.code == 0, said.err
    found: dict[str, Any] = json.loads(said.out)
    assert found["schema"] == "tuner/max-batch/1"
    return found


def monotone(limit: int, *, memory: Callable[[int], float] | None = None) -> Callable[[int], BatchResult]:
    """A machine on which everything up to `limit` runs."""

    def probe(batch: int) -> BatchResult:
        if batch > limit:
            return BatchResult(micro_batch=batch, outcome="OOM")
        peak = memory(batch) if memory else None
        return BatchResult(micro_batch=batch, outcome="MEASURED", peak_memory=peak, seconds=1.0)

    return probe


@given(
    st.sampled_from(sorted(STRATEGIES)),
    st.lists(st.integers(1, 5000), min_size=1, max_size=300, unique=True).map(sorted),
    st.integers(0, 6000),
    st.integers(1, 200),
    st.sampled_from(["none", "straight", "bent", "falling"]),
    st.floats(0.1, 4.0),
)
def test_every_strategy_finds_what_a_scan_finds_whatever_memory_shows(
    strategy: str, batches: list[int], limit: int, start: int, shows: str, off: float
) -> None:
    """On any monotone limit, with memory that tells the truth, a bent one, a wrong one or none; nothing is run twice.

    `model` and `bisect` need no more runs than two binary searches.
    """
    memories: dict[str, Callable[[int], float] | None] = {
        "none": None,
        "straight": lambda batch: 5.0 + 2.0 * batch,
        "bent": lambda batch: 5.0 + math.sqrt(batch),
        "falling": lambda batch: 1e6 - batch,
    }
    grid = BatchGrid(batches=batches, start=start, room=off * (5.0 + 2.0 * limit))
    found = look_for(strategy, grid, monotone(limit, memory=memories[shows]))
    assert found.largest == max((batch for batch in batches if batch <= limit), default=0)
    tried = [each.micro_batch for each in found.attempts]
    assert len(set(tried)) == len(tried)
    assert found.open_end == (batches[-1] <= limit)
    if strategy != "ramp":
        assert len(tried) <= 3 * math.ceil(math.log2(len(batches) + 1)) + 6
    assert len(tried) <= len(batches)


@given(st.integers(1, 2000), st.floats(0.01, 50.0), st.floats(0, 500.0), st.integers(1, 8))
def test_where_memory_is_a_line_the_model_needs_four_runs(limit: int, slope: float, base: float, start: int) -> None:
    """Two for the line, which run where the start is half the limit or less; one for the limit, and one above."""
    room = base + slope * (limit + 0.5)
    grid = BatchGrid(batches=range(1, 2001), start=max(1, min(start, limit // 2)), room=room)
    found = look_for("model", grid, monotone(limit, memory=lambda batch: base + slope * batch))
    assert found.largest == limit
    assert len(found.attempts) <= 4


@given(st.sampled_from(sorted(STRATEGIES)), st.integers(0, 9), st.sampled_from(["CRASHED", "HUNG", "TIMED_OUT"]))
def test_a_failure_that_is_not_memory_ends_the_search_and_is_never_a_limit(
    strategy: str, at: int, word: BatchOutcome
) -> None:
    """One that happens once is tried again; one that happens twice is reported."""

    def failing(times: float) -> Callable[[int], BatchResult]:
        count = {"asked": 0, "left": times}

        def probe(batch: int) -> BatchResult:
            count["asked"] += 1
            if count["asked"] > at and count["left"] > 0:
                count["left"] -= 1
                return BatchResult(micro_batch=batch, outcome=word, evidence="a node fell over")
            return monotone(100)(batch)

        return probe

    grid = BatchGrid(batches=range(1, 257))
    assert look_for(strategy, grid, failing(1)).largest == 100
    stopped = look_for(strategy, grid, failing(math.inf))
    if stopped.stopped is not None:
        assert stopped.stopped.outcome == word
        assert all(each.micro_batch <= 100 for each in stopped.attempts if each.fits)
        assert all(each.micro_batch > 100 for each in stopped.attempts if each.too_large)
    else:
        assert stopped.largest == 100


@pytest.mark.parametrize(("strategy", "most"), [("model", 4), ("bisect", 7), ("ramp", 10)])
def test_e1s_rows_answer_192_for_every_strategy(strategy: str, most: int, run: Run) -> None:
    found = _document(run, *E1, "--strategy", strategy)
    assert found["max_batch"] == 192
    assert found["runs"] <= most
    assert found["source"] == "table"
    assert not found["open_end"]
    last = max(each["micro_batch"] for each in found["attempts"])
    assert [each["outcome"] for each in found["attempts"] if each["micro_batch"] == last] == ["OOM"]


def test_ramp_takes_e1s_own_ten_runs_in_its_order(run: Run) -> None:
    found = _document(run, *E1, "--strategy", "ramp")
    assert [each["micro_batch"] for each in found["attempts"]] == list(range(64, 209, 16))


def test_e1s_slope_is_0_205_and_not_the_0_218_that_its_report_says(run: Run) -> None:
    """What the report printed is batch 128's whole memory over 128."""
    found = _document(run, *E1, "--strategy", "ramp")
    assert found["fit"]["gib_per_sample"] == pytest.approx(0.2051, abs=5e-5)
    assert found["fit"]["stderr"] < 1e-4
    assert found["headroom_gib"] == pytest.approx(6.94, abs=0.005)
    assert found["headroom_gib"] / found["card_gib"] == pytest.approx(0.145, abs=0.0005)
    said = run(*E1, "--strategy", "ramp", "--claim", "0.218").out
    assert "claimed 0.218 GiB per sample is 6.3% above the fitted slope; it is the total memory of batch 128" in said
    assert "matches the fitted slope" in run(*E1, "--strategy", "ramp", "--claim", "0.205").out


def test_a_safe_batch_keeps_its_margin_from_what_is_known_to_be_too_much(run: Run) -> None:
    """Of what 208 would have shown, 44.3 GiB: 10% less is 176's, none is 192's, 20% is 160's."""
    safe = {margin: _document(run, *E1, "--margin", margin)["safe_batch"] for margin in ("0", "0.1", "0.2")}
    assert safe == {"0": 192, "0.1": 176, "0.2": 160}


ACC_STEPS = {28: (8, 16), 32: (8, 16), 36: (8, 16), 40: (8, 16), 44: (4, 32), 48: (4, 32)}


@pytest.mark.parametrize("heads", ACC_STEPS)
def test_enokis_batches_reach_a_global_batch_of_512_in_the_reports_steps(heads: int, run: Run) -> None:
    found = _document(run, *ENOKI, "--model", f"enoki-{heads}", "--set", "tp=1", "--global-batch", "512")
    batch, steps = ACC_STEPS[heads]
    assert found["max_batch"] == batch
    (own,) = [each for each in found["worth"] if each["micro_batch"] == batch]
    assert (own["acc_steps"], own["exact"]) == (steps, True)


def test_the_enoki_row_near_the_limit_is_told_as_allocator_pressure(run: Run) -> None:
    """40 heads at local batch 8: 17% slower than its line at 88% of the memory; smaller models stay on theirs."""
    every = ("--strategy", "ramp", "--start", "1", "--increment", "1")
    found = _document(run, *ENOKI, "--model", "enoki-40", "--set", "tp=1", *every)
    (pressure,) = found["allocator_pressure"]
    assert (pressure["micro_batch"], pressure["near_limit"]) == (8, True)
    assert pressure["slower"] == pytest.approx(0.173, abs=0.001)
    assert ": possibly allocator pressure" in run(*ENOKI, "--model", "enoki-40", "--set", "tp=1", *every).out
    assert _document(run, *ENOKI, "--model", "enoki-36", "--set", "tp=1", *every)["allocator_pressure"] == []
    kink = _document(run, *ENOKI, "--model", "enoki-32", "--set", "tp=4", *every)["allocator_pressure"]
    assert [each["near_limit"] for each in kink] == [False]


def test_a_table_of_several_series_wants_to_be_told_which(run: Run) -> None:
    said = run(*ENOKI)
    assert said.code == 2
    assert "has 12 series of batches; choose one with --group, --model or --set tp=N" in said.err


def test_by_estimate_no_smaller_batch_runs_out_and_none_is_called_a_measurement(run: Run) -> None:
    own = ("max-batch", "--model", "enoki-40", "--cluster", "enoki-h100")
    answers = [_document(run, *own, "--strategy", strategy) for strategy in STRATEGIES]
    assert len({each["max_batch"] for each in answers}) == 1
    assert answers[0]["estimated"]
    assert {each["outcome"] for each in answers[0]["attempts"]} == {"ESTIMATED", "OOM"}
    assert run("max-batch", "--model", "llama-3-405b", "--nodes", "1").code == 1
    assert "estimates, not measurements" in run(*own).out


SCRIPT = """
import resource, sys, time
batch, limit = int(sys.argv[1]), 220 << 20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
if len(sys.argv) > 2 and batch >= int(sys.argv[2]):
    raise SystemExit("the loss went to the moon")
block = b"1" * (batch * (3 << 20))
time.sleep(0.3)
for step in (1, 2):
    print(f" iteration {step}/ 2 | elapsed time per iteration (ms): {10 + batch}.0 | lm loss: 1.0E+00 |", flush=True)
time.sleep(60)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def _fits(script: Path, batch: int) -> bool:
    import subprocess

    program = script.read_text().replace("time.sleep(60)", "")
    said = subprocess.run([sys.executable, "-c", program, str(batch)], capture_output=True, check=False)
    return said.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_real_processes_under_a_memory_limit_find_what_a_scan_finds(
    strategy: str, script: Path, tmp_path: Path, run: Run
) -> None:
    """The limit is the script's own RLIMIT_AS; the user's command is watched from outside, and nothing of it stays."""
    scanned = max(batch for batch in range(4, 97, 4) if _fits(script, batch))
    assert 8 < scanned < 96
    command = f"{sys.executable} {script} {{micro_batch}}"
    own = ("max-batch", "--command", command, "--gpus-per-node", "1", "--runs", str(tmp_path / "runs"))
    options = ("--step", "4", "--most", "96", "--start", "16", "--limit", "0.3", "--timeout", "60s")
    found = _document(run, *own, *options, "--strategy", strategy)
    assert found["max_batch"] == scanned
    assert found["source"] == "jobs"
    memories = {each["micro_batch"]: each["peak_memory_gib"] for each in found["attempts"] if each["peak_memory_gib"]}
    assert found["fit"] is None or found["fit"]["gib_per_sample"] == pytest.approx(3 / 1024, rel=0.2), memories
    assert not _processes_of(script)


@pytest.mark.cluster
def test_on_slurm_the_same_limit_is_found_and_no_job_is_left(
    script: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody sees a node's memory from here, so that only what ran and what did not says where the limit is."""
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    cluster = slurm_cluster.running()
    cluster.clear()
    scanned = max(batch for batch in range(4, 97, 4) if _fits(script, batch))
    (tmp_path / "site.toml").write_text('tasks = "once"\ngres = ""\n')
    own = ("max-batch", "--launcher", "slurm", "--slurm-site", str(tmp_path / "site.toml"), "--nodes", "1")
    command = ("--command", f"{sys.executable} {script} {{micro_batch}}", "--gpus-per-node", "1")
    options = ("--step", "4", "--most", "96", "--start", "16", "--timeout", "60s", "--runs", str(tmp_path / "runs"))
    found = _document(run, *own, *command, *options, "--strategy", "bisect")
    assert found["max_batch"] == scanned
    assert all(each["outcome"] in ("MEASURED", "OOM") for each in found["attempts"])
    assert not cluster.said("squeue", "-h")


def _processes_of(script: Path) -> list[str]:
    """Processes whose command line names the script."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(script) in line and "supervisor" not in line:
                found.append(line)
    return found


def test_a_script_that_crashes_is_no_limit(script: Path, tmp_path: Path, run: Run) -> None:
    command = f"{sys.executable} {script} {{micro_batch}} 2"
    own = ("max-batch", "--command", command, "--gpus-per-node", "1", "--runs", str(tmp_path / "runs"))
    said = run(*own, "--most", "8", "--timeout", "60s", "--json")
    assert said.code == 1
    document = json.loads(said.out)
    assert [each["outcome"] for each in document["attempts"]] == ["MEASURED", "CRASHED", "CRASHED"]
    assert "micro-batch size 2 failed twice for a reason other than memory (CRASHED: exit code 1: the loss went to" in (
        said.err
    )
    assert not members("maxbatch")


BAD = [
    (("--strategy", "guess"), "there is no strategy called 'guess'"),
    (("--launcher", "replay"), "--launcher replay and --table FILE require each other."),
    (("--launcher", "cloud"), "there is no launcher called 'cloud'"),
    (("--step", "x3"), "--step 'x3' is neither x2 nor a number from 1 to 4096."),
    (("--start", "9", "--most", "8"), "--start 9 is larger than --most 8."),
    (("--timeout", "soon"), "--timeout 'soon' is not a duration"),
    (("--group", "g"), "add --table."),
    (("--set", "tp=2,4"), "pin tp and dp to one value, or use tuner compare for several."),
    (("--command", "python train.py {batch}"), "unknown field {batch}"),
    (("--command", "python train.py"), "does not pass the micro-batch size"),
    (("--command", "python 'train.py"), "is not a valid shell command"),
]


@pytest.mark.parametrize(("arguments", "sentence"), BAD)
def test_bad_input_is_one_sentence(arguments: tuple[str, ...], sentence: str, run: Run) -> None:
    said = run("max-batch", *arguments)
    assert (said.code, said.out) == (2, "")
    assert sentence in said.err


def test_a_line_wants_two_batches_and_rises() -> None:
    def seen(batch: int, memory: float | None, seconds: float = 1.0) -> BatchResult:
        return BatchResult(micro_batch=batch, outcome="MEASURED", peak_memory=memory, seconds=seconds)

    assert fitted([]) is None
    assert fitted([seen(1, 2.0), seen(1, 3.0), seen(2, None)]) is None
    assert fitted([seen(1, 3.0), seen(2, 2.0)]) is None
    line = fitted([seen(1, 3.0), seen(3, 7.0)])
    assert line is not None
    assert (line.per_sample, line.at_zero, line.stderr, line.at(4)) == (2.0, 1.0, None, 9.0)
    assert pressures([seen(1, 1.0, 1.0), seen(2, 2.0, 2.0), seen(4, 4.0, 4.0)], 10.0) == []
    assert ratio_at(3.0, [seen(1, 3.0), seen(2, 5.0)], 0.1) == seen(1, 3.0)


def test_the_tables_that_the_examples_use_are_there() -> None:
    assert (ROOT / E1[4]).is_file()


@pytest.mark.parametrize(
    ("model", "setting", "sentence"),
    [
        (
            "llama-3-8b",
            "ep=2",
            "llama-3-8b has no experts, which ep=2 needs; correct the key or --set",
        ),
        ("qwen3-30b-a3b", "ep=3", "128 experts are not divisible by ep=3; correct the key or --set"),
        ("qwen3-30b-a3b", "ep=64", "= 32 ranks are not divisible by etp x ep = 1 x 64 = 64; correct the key or --set"),
        ("qwen3-30b-a3b", "ep=8", ""),
        ("llama-3-8b", "tp=3", "32 heads are not divisible by tp=3; correct the key or --set"),
        ("llama-3-8b", "pp=3", "32 layers cannot be divided into pp=3 stages; correct the key or --set"),
        ("llama-3-8b", "vpp=2", "vpp=2 .*; correct the key or --set"),
    ],
)
def test_what_no_program_can_run_is_refused(model: str, setting: str, sentence: str) -> None:
    where: dict[str, Any] = {"model": model, "gpu": "H100-80GB-SXM", "nodes": 4, "settings": (setting,), "most": 1}
    with pytest.raises(InputError, match=sentence) if sentence else nullcontext():
        tuner.max_batch(**where)


@pytest.mark.parametrize(
    ("model", "settings", "key"),
    [
        ("llama-3-8b", ("tp=4",), "tp4-pp1-dp8-mbs1-z3-rnone"),
        ("llama-3-8b", ("pp=2",), "tp1-pp2-dp16-mbs1-z1-rnone"),
        ("llama-3-8b", ("pp=2", "zero=0"), "tp1-pp2-dp16-mbs1-z0-rnone"),
        ("qwen3-30b-a3b", ("tp=2",), "tp2-pp1-dp16-mbs1-z3-sp-rnone"),
    ],
)
def test_axes_that_are_not_pinned_take_what_the_laws_require(model: str, settings: tuple[str, ...], key: str) -> None:
    found = tuner.max_batch(model=model, gpu="H100-80GB-SXM", nodes=4, settings=settings, most=1)
    assert found.topology.key == key


@pytest.mark.parametrize(
    ("launcher", "given", "expected"),
    [
        (
            "slurm",
            {"site_profile": "p.toml", "runs": "r"},
            {"site_profile": Path("p.toml"), "folder": Path("r/max-batch")},
        ),
        (
            "slurm",
            {"timeout": "2m", "iterations": "2-3"},
            {"site_profile": None, "timeout": 120.0, "iterations": (2, 3)},
        ),
        ("local", {"timeout": 7.0, "step_pattern": "s"}, {"timeout": 7.0, "iterations": (2,), "step_pattern": "s"}),
    ],
)
def test_jobs_are_run_as_they_are_asked_for(
    launcher: str, given: dict[str, Any], expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever follows no attempts misses nothing; the topology has ZeRO 0, and its layers are Megatron's."""
    asked: dict[str, Any] = {}

    def jobs_of(launcher: str, **rest: Any) -> Any:
        asked.update(rest, launcher=launcher)
        return nullcontext(lambda batch: BatchResult(micro_batch=batch, outcome="OOM", evidence="e"))

    monkeypatch.setattr("tuner.sizing.api.jobs_of", jobs_of)
    seen: list[Any] = []
    where: dict[str, Any] = {"model": "tiny", "nodes": 1, "gpu": "H100-80GB-SXM", "most": 1, "command": "train"}
    for follow in (None, seen.append):
        found = tuner.max_batch(**where, launcher=launcher, on_attempt=follow, **given)
        assert (found.source, found.found.largest) == ("jobs", 0)
        assert asked.items() >= {"launcher": launcher, "command": "train", **expected}.items()
        assert asked["topology"].zero == 0
        asked["on_attempt"]("result")
    assert seen == ["result"]
