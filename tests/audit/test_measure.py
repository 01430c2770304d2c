"""`tuner measure`: from a file to a measurement, its TFLOPs counted anew, and one sentence where there is none."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT, Run
from tuner.audit.measure import measure
from tuner.core.errors import InputError
from tuner.logs import parse_iterations
from tuner.logs.choice import spelt
from tuner.space.build import space_for
from tuner.tables import COLUMNS

LOGS = ROOT / "tests/data/logs"
EXAMPLE = str(ROOT / "docs/example.log")
KEY = "tp8-pp12-dp4-mbs1-z1"
BLOOM = 96 * 2048 * 2048 * 72 * 14336**2 * (1 + 2048 / (6 * 14336) + 250880 / (16 * 72 * 14336))
"""The published formula for one iteration of the BLOOM study's default model."""


def log(name: str) -> str:
    return str(LOGS / f"{name}.log")


def document(run: Run, *arguments: str, code: int = 0) -> dict[str, Any]:
    said = run("measure", *arguments, "--json")
    assert said.code == code
    found: dict[str, Any] = json.loads(said.out)
    return found


def test_measure_keeps_its_json_contract(run: Run) -> None:
    found = document(run, EXAMPLE, KEY)
    assert found["schema"] == "tuner/measure/1"
    assert [each["number"] for each in found["iterations"]] == [1, 2, 3, 4]
    second = found["iterations"][1]
    assert (second["sec_per_iter"], second["tflops_logged"], second["global_batch"]) == (143.31, 108.31, 2048)
    assert second["tflops"] == pytest.approx(BLOOM / 143.31 / 384 / 1e12)
    assert found["failure"] is None
    measurement = found["measurement"]
    assert (measurement["iteration"], measurement["sec_per_iter"]) == (2, 143.31)
    assert round(measurement["tflops"], 2) == 112.49
    assert measurement["peak_memory_gib"] == pytest.approx(52383 / 1024)


def test_both_tflops_are_shown_where_they_differ_with_the_reason(run: Run) -> None:
    """Line 278 of the BLOOM report: 112.49 by the corrected count."""
    said = run("measure", EXAMPLE, KEY)
    assert said.code == 0
    assert "measured, iteration 2: 143.31 s, 112.49 TFLOPs per GPU, 51.16 GiB reserved" in said.out
    assert (
        "iteration 2: the log prints 108.31 TFLOPs, but its time gives 112.49: the log uses Megatron-DeepSpeed's "
        in said.out
    )


def test_a_log_that_agrees_with_its_own_time_is_believed(run: Run) -> None:
    found = document(run, log("megatron-deepspeed"))
    assert found["key"] == "tp8-pp12-dp4-mbs1-z1-emb"
    assert found["difference"] is None
    assert found["measurement"]["tflops"] == pytest.approx(BLOOM / 131.72 / 384 / 1e12)


def test_without_a_topology_the_tflops_are_the_logs(run: Run) -> None:
    found = document(run, EXAMPLE)
    assert [each["tflops"] for each in found["iterations"]] == [None] * 4
    assert (found["measurement"]["tflops"], found["topology_lacks"] is None) == (108.31, False)
    assert "TFLOPs are not recomputed: the log does not print the arguments of its model" in run("measure", EXAMPLE).out


def test_megatron_lm_prints_the_models_own_operations(run: Run) -> None:
    """Without what selective recompute does once more."""
    found = document(run, log("megatron-lm"))
    assert found["difference"]["reason"] == "the log uses the model's own operations, without recompute"
    assert found["measurement"]["tflops_logged"] < found["measurement"]["tflops"]


def test_a_ramp_up_is_counted_by_the_batch_of_each_iteration(run: Run) -> None:
    found = document(run, log("ramp"), KEY, "--iterations", "2-5")
    for each in found["iterations"]:
        assert each["tflops"] == pytest.approx(each["tflops_logged"], abs=0.006)
    assert found["difference"] is None
    assert "the log's batch is 16, 32 and 64, not 2048; TFLOPs use the log's." in found["notes"]


def test_the_median_of_several_iterations_is_measured(run: Run) -> None:
    measurement = document(run, EXAMPLE, KEY, "--iterations", "2-4")["measurement"]
    assert (measurement["iteration"], measurement["iterations"]) == (2, [2, 3, 4])
    assert measurement["sec_per_iter"] == 143.31
    even = document(run, EXAMPLE, "--iterations", "2,4")["measurement"]
    assert even["sec_per_iter"] == pytest.approx((143.31 + 143.40) / 2)


SECOND = {
    "megatron-lm-older": 20,
    "deepspeed-timer": 4,
    "deepspeed-timer-older": 20,
    "restart": 4,
    "deepspeed-breakdown": 2,
}


@pytest.mark.parametrize("name", SECOND)
def test_the_second_iteration_of_the_log_is_measured(name: str, run: Run) -> None:
    """Of the last run, and the second line where a line stands for several."""
    assert document(run, log(name))["measurement"]["iteration"] == SECOND[name]


def test_an_iteration_that_is_the_first_is_not_measured(tmp_path: Path, run: Run) -> None:
    lines = (LOGS / "megatron-lm-older.log").read_text().splitlines()
    (tmp_path / "one.log").write_text("  log_interval .................................... 10\n" + lines[0] + "\n")
    found = document(run, str(tmp_path / "one.log"), code=1)
    assert found["measurement"] is None
    assert len(found["iterations"]) == 1
    assert "only iterations 1 to 10 in one line were found" in run("measure", str(tmp_path / "one.log")).err
    (tmp_path / "one.log").write_text(Path(EXAMPLE).read_text().splitlines()[1] + "\n")
    assert "only iteration 1 was found, which includes compilation" in run("measure", str(tmp_path / "one.log")).err


def test_times_that_contradict_their_time_stamps_are_not_measured(tmp_path: Path, run: Run) -> None:
    """Five iterations of 8 seconds within 4."""
    wrong, text = tmp_path / "wrong.log", (LOGS / "megatron-lm.log").read_text()
    for number in range(2, 6):
        text = text.replace(f"12:00:{8 * number:02d}] iteration", f"12:00:{7 + number:02d}] iteration")
    wrong.write_text(text)
    said = run("measure", str(wrong))
    assert (said.code, "a unit or the size of a step is misread" in said.out + said.err) == (1, True)


def test_a_log_whose_head_is_cut_off_still_has_its_second_iteration(tmp_path: Path, run: Run) -> None:
    lines = [line for line in Path(EXAMPLE).read_text().splitlines() if line.startswith(" iteration ")][1:]
    (tmp_path / "tail.log").write_text("\n".join(lines) + "\n")
    assert document(run, str(tmp_path / "tail.log"))["measurement"]["iteration"] == 2


MISSING = {
    "7": "the log has iterations 1 to 4, not 7.",
    "2-7": "the log has iterations 1 to 4, not 7.",
    "0-2": "the log has iterations 1 to 4, not 0.",
    "2,9,11": "the log has iterations 1 to 4, not 9 or 11.",
    "1-999999999999": "the log has iterations 1 to 4, not 999999999999.",
}


@pytest.mark.parametrize("asked", MISSING)
def test_iterations_that_are_not_there_leave_with_1_and_what_is_there(asked: str, run: Run) -> None:
    said = run("measure", EXAMPLE, "--iterations", asked)
    assert said.code == 1
    assert said.err == f"tuner: {MISSING[asked]}\n"


def test_a_range_takes_the_iterations_that_a_sparse_log_has(run: Run) -> None:
    assert document(run, log("megatron-lm-older"), "--iterations", "15-45")["measurement"]["iterations"] == [20, 30, 40]
    said = run("measure", log("megatron-lm-older"), "--iterations", "25")
    assert said.err == "tuner: the log has iterations 10 to 40 in steps of 10, not 25.\n"


@given(st.sets(st.integers(1, 40), min_size=1))
def test_what_is_there_is_spelt_out_in_full(numbers: set[int]) -> None:
    words = spelt(sorted(numbers), 1).removeprefix("iteration").removeprefix("s").replace(" and ", ", ").split(", ")
    if not any("more" in word for word in words):
        ends = [list(map(int, word.split(" to "))) for word in words]
        assert {number for span in ends for number in range(span[0], span[-1] + 1)} == numbers


@given(st.text("0123456789-, x", max_size=12))
def test_a_list_of_iterations_is_read_or_refused_in_one_sentence(text: str) -> None:
    try:
        spans = parse_iterations(text)
    except InputError as refused:
        spans, sentence = (), str(refused)
        assert "; write " in sentence
    assert all(first <= last for first, last in spans)


def test_a_run_of_several_can_be_asked_for(run: Run) -> None:
    last, first = document(run, log("restart")), document(run, log("restart"), "--run", "1")
    assert (last["runs"], last["run"], last["key"]) == (2, 2, "tp8-pp12-dp8-mbs1-z1-emb")
    assert (first["run"], first["key"], first["measurement"]["iteration"]) == (1, KEY + "-emb", 2)
    assert first["failure"]["kind"] == "PREEMPTED"
    assert last["notes"][0].startswith("the log has 2 runs, from line ")


def test_ranks_that_differ_are_told(run: Run) -> None:
    assert (
        "note: ranks differ by up to 2.1%, in iteration 2; the slowest is used."
        in run("measure", log("interleaved")).out
    )


def test_a_failure_after_good_iterations_leaves_the_measurement(run: Run) -> None:
    found = document(run, log("failure-oom-older"))
    assert found["measurement"]["sec_per_iter"] == 120.0
    assert (found["failure"]["kind"], found["failure"]["line"]) == ("OOM", 8)
    assert "OOM after iteration 2: a GPU ran out of memory; line 8: " in run("measure", log("failure-oom-older")).out


def test_a_pattern_without_a_positive_time_is_named(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"step {number} took 0 s\n" for number in range(1, 5)))
    said = run("measure", str(path), "--step-pattern", r"step (?P<iteration>\d+) took (?P<seconds>\S+) s")
    assert said.err == "tuner: --step-pattern matches no iteration with a positive time in this log.\n"


def test_a_pattern_that_matches_nothing_in_a_known_log_is_said_to_be_ignored(run: Run) -> None:
    words = "--step-pattern matches no iteration with a positive time in this log, so it is ignored: "
    assert words in run("measure", EXAMPLE, "--step-pattern", r"took (?P<ms>\S+) ms").out
    assert "--step-pattern" not in run("measure", EXAMPLE, "--step-pattern", r"iteration \(ms\): (?P<ms>[\d.]+)").out


def test_a_failure_before_the_second_iteration_leaves_with_1_and_the_evidence(run: Run) -> None:
    found = document(run, log("failure-oom"), code=1)
    assert (found["iterations"], found["measurement"]) == ([], None)
    assert found["failure"]["evidence"].startswith("torch.OutOfMemoryError: CUDA out of memory.")
    said = run("measure", log("failure-oom"))
    assert said.code == 1
    failure, remedy = said.out.splitlines()[-2:]
    assert failure.startswith("OOM: a GPU ran out of memory; line 13: torch.OutOfMemoryError")
    assert remedy == "remedy: use a smaller micro-batch size, more recompute or a higher ZeRO stage"
    assert said.err == "tuner: the log has no iterations: the job failed before the first one.\n"


def test_the_remedy_of_a_failed_node_holds_for_a_run_that_no_study_started(run: Run) -> None:
    """`tuner measure` excludes no node, so its remedy does not say that one is excluded."""
    said = run("measure", log("failure-node-failure"))
    assert said.out.splitlines()[-1] == "remedy: run again without the node; a study under Slurm excludes it"


def test_samples_a_second_become_seconds_by_the_batch(tmp_path: Path, run: Run) -> None:
    assert document(run, log("deepspeed-timer-older"))["measurement"]["sec_per_iter"] == 2.0
    lines = [line for line in Path(log("deepspeed-timer-older")).read_text().splitlines() if "Samples" in line]
    (tmp_path / "bare.log").write_text("\n".join(lines) + "\n")
    bare = str(tmp_path / "bare.log")
    assert "the log has samples per second but no batch; pass --global-batch." in run("measure", bare).err
    assert document(run, bare, "--global-batch", "512")["measurement"]["sec_per_iter"] == 4.0


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("step={} tok/s=64", ("--step-pattern", r"step=(?P<iteration>\d+) tok/s=(?P<tokens_per_sec>\d+)")),
        ("Step {} | loss:1.2 lr:2e-05 tokens_per_second_per_gpu:1234", ()),
    ],
)
def test_tokens_a_second_need_the_size_of_a_step(line: str, arguments: Sequence[str], tmp_path: Path, run: Run) -> None:
    (tmp_path / "own.log").write_text("\n".join(line.format(step) for step in (1, 2, 3)) + "\n")
    words = "the log has tokens per second but no step size; pass KEY, --global-batch and --seq."
    assert words in run("measure", str(tmp_path / "own.log"), *arguments).err


def test_a_share_of_the_card_becomes_memory_where_the_card_is_known(run: Run) -> None:
    arguments = (
        log("megatron-lm-mem-usages"),
        "tp2-pp1-dp8-mbs1-z1",
        "--model",
        "llama-3-8b",
        "--gpu",
        "H100-80GB-SXM",
    )
    found = document(run, *arguments)
    assert (found["measurement"]["peak_memory_gib"], found["measurement"]["memory_kind"]) == (60.0, "smi")
    assert document(run, arguments[0])["measurement"]["peak_memory_gib"] is None


def test_a_rate_beyond_the_card_says_that_something_else_was_run(run: Run) -> None:
    said = run("measure", log("megatron-lm-mem-usages"), KEY)
    assert "TFLOPs exceed the peak of a A100-80GB-SXM: the log is from a different job." in said.out


def test_a_key_that_is_not_the_logs_is_told(run: Run) -> None:
    found = document(run, log("megatron-deepspeed"), "tp4-pp12-mbs1-z1")
    assert found["key"] == "tp4-pp12-dp8-mbs1-z1"
    assert "the arguments in the log differ from the key: tp 8, not 4 and dp 4, not 8." in found["notes"]


def test_what_the_user_says_stands_before_what_the_log_says(run: Run) -> None:
    """The log's sequence is 2048; half of it is half the work, and less for the scores."""
    own = document(run, log("megatron-deepspeed"))["measurement"]["tflops"]
    shorter = document(run, log("megatron-deepspeed"), "--seq", "1024")
    assert 0.49 < shorter["measurement"]["tflops"] / own < 0.5
    assert shorter["difference"]["reason"] == "the log assumes a sequence of 2048, not 1024"


def test_a_row_of_the_measurement_table_comes_out(run: Run) -> None:
    said = run("measure", EXAMPLE, KEY, "--csv")
    columns = said.out.splitlines()[0].split(",")
    assert columns == [*COLUMNS, "fabric", "partition", "parallel_loss", "framework", "model"]
    (row,) = csv.DictReader(said.out.splitlines())
    expected = {"gpu": "A100-80GB-SXM", "nodes": "48", "tp": "8", "dp": "4", "gbs": "2048", "sec_per_iter": "143.31"}
    expected |= {
        "fabric": "omni-path",
        "tflops": "112.49",
        "mem_gib": "51.16",
        "mem_kind": "reserved",
        "status": "OK",
        "heads": "64",
    }
    assert expected.items() <= row.items()
    failed = run("measure", log("failure-oom"), KEY, "--csv")
    (row,) = csv.DictReader(failed.out.splitlines())
    assert (failed.code, row["status"], row["sec_per_iter"], row["gbs"]) == (1, "OOM", "", "2048")
    (row,) = csv.DictReader(run("measure", log("megatron-lm"), "--csv").out.splitlines())
    assert (row["gpu"], row["node_gbit_s"], row["nodes"], row["kv_heads"]) == ("", "", "2", "8")
    hung = run("measure", log("failure-hang-gloo"), KEY, "--csv").out.splitlines()
    assert next(csv.DictReader(hung))["status"] == "HANG"


def test_a_long_log_shows_a_part_and_says_so(tmp_path: Path, run: Run) -> None:
    line = Path(EXAMPLE).read_text().splitlines()[1]
    lines = [line.replace("iteration        1/", f"iteration {number:8d}/") for number in range(1, 101)]
    (tmp_path / "long.log").write_text("\n".join(lines) + "\n")
    said = run("measure", str(tmp_path / "long.log"), "--iterations", "70")
    assert "... 88 more; list them with --json" in said.out
    assert sum(line.strip().endswith("*") for line in said.out.splitlines()) == 1


BAD_INPUT = [
    (("measure", "no/such.log"), 2, "there is no file no/such.log."),
    (("measure", str(LOGS)), 2, "logs is a folder; give the file in it that has the iterations."),
    (
        ("measure", str(LOGS / "README.md")),
        1,
        "run with --explain to see which lines look like iterations, and match them with --step-pattern.",
    ),
    (("measure", "a\0b"), 2, "there is no file a b."),
    (("measure", EXAMPLE, "--iterations", "5-2"), 2, "the range 5-2 runs backwards; write 2-5."),
    (("measure", EXAMPLE, "--iterations", "5;2"), 2, "--iterations '5;2' is neither a range nor a list"),
    (("measure", EXAMPLE, "--run", "3"), 2, "--run 3 does not exist: the log has 1 run."),
    (("measure", EXAMPLE, "--csv"), 2, "--csv needs a topology: the log does not print the arguments of its model"),
    (("measure", EXAMPLE, KEY, "--csv", "--json"), 2, "--csv and --json exclude each other."),
    (("measure", EXAMPLE, "tp8"), 2, "invalid topology key 'tp8': pp, mbs and z missing"),
    (("measure",), 2, "missing argument 'LOG'"),
]


@pytest.mark.parametrize(("arguments", "code", "sentence"), BAD_INPUT)
def test_bad_input_is_answered_in_one_sentence(arguments: tuple[str, ...], code: int, sentence: str, run: Run) -> None:
    said = run(*arguments)
    assert (said.code, said.out) == (code, "")
    assert sentence in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(("printed", "differs"), [("113", False), ("115", True)])
def test_tflops_differ_beyond_half_a_percent_and_half_of_their_last_digits(
    printed: str, differs: bool, tmp_path: Path, run: Run
) -> None:
    """The time gives 112.49: 113 is 0.45% more, and 115 is 2.2% more, where rounding allows 0.43%."""
    text = Path(EXAMPLE).read_text()
    assert "108.31" in text
    (tmp_path / "printed.log").write_text(text.replace("108.31", printed))
    found = document(run, str(tmp_path / "printed.log"), KEY)
    assert (found["difference"] is not None) == differs


def test_a_bar_measures_where_the_rates_of_the_log_need_a_size(tmp_path: Path) -> None:
    """torchtune's lines have tokens a second, which the size of a step makes more precise than the bar."""
    path = tmp_path / "job.log"
    lines = ["1|0|Loss: 2.1:   1%|          | 1/100 [00:31<52:16, 31.70s/it]"]
    for step, clock, rate in ((2, "00:53", 25.99), (3, "01:15", 24.18), (4, "01:37", 23.31)):
        lines.append(f"1|{step}|Loss: 2.0:   {step}%|          | {step}/100 [{clock}<36:00, {rate:.2f}s/it]")
        lines.append(f"Step {step} | loss:2.0 lr:2e-05 tokens_per_second_per_gpu:1000.0 peak_memory_alloc:9.0")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    by_bar = measure(path).measurement
    space = space_for(model="llama-3-8b", seq=2048, global_batch=16, nodes=1, gpus_per_node=8)
    by_rate = measure(path, "tp1-pp1-dp8-mbs1-z1", space=space).measurement
    assert by_bar is not None
    assert by_rate is not None
    assert by_bar.seconds == pytest.approx(22.0, rel=0.02)
    assert by_rate.seconds == pytest.approx(16 * 2048 / 8000)
