"""What `tuner audit` finds in a training log."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.conftest import ROOT, Run
from tests.strategies import log_texts
from tuner.audit import Contradiction, Finding, audit_run
from tuner.logs import read_log

LOGS = ROOT / "tests" / "data" / "logs"
SOUND = ("healthy", "deepspeed-pipeline", "deepspeed-timer", "megatron-deepspeed", "interleaved", "ramp", "gpt-neox")


def log_of(*seconds: float, **more: str) -> str:
    """A log of a batch of 16, with what is named in the line of iteration 4."""
    fields = {"elapsed time per iteration (s)": "", "global batch size": "16", "lm loss": "5.0E+00"}
    lines = []
    for number, time in enumerate(seconds, start=1):
        own = fields | {"elapsed time per iteration (s)": f"{time:.4f}"}
        own |= {name.replace("_", " "): value for name, value in more.items()} if number == 4 else {}
        lines.append(f" iteration {number}/ 500 | {' | '.join(f'{name}: {value}' for name, value in own.items())} |\n")
    return "".join(lines)


def found_in(text: str) -> list[Finding]:
    return [finding for run in read_log(text.splitlines(keepends=True)).runs for finding in audit_run(run)]


STEADY = (9.0, 2.0, 2.01, 2.0, 1.99, 2.0, 2.02, 2.0)


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_log_has_no_findings(name: str, run: Run) -> None:
    """The first iteration is slow, batches grow and ranks differ in every log."""
    said = run("audit", str(LOGS / f"{name}.log"), "--json")
    assert said.code == 0
    assert json.loads(said.out)["findings"] == []


def test_steady_iterations_are_no_outliers_whatever_the_first_one_takes() -> None:
    assert found_in(log_of(*STEADY)) == []


@pytest.mark.parametrize(
    ("more", "check", "severity", "said"),
    [
        ({"lm_loss": "nan"}, "loss", "error", "iteration 4: the loss is NaN"),
        ({"number_of_skipped_iterations": "1"}, "skipped", "warning", "iteration 4: 1 step skipped"),
        (
            {"samples_per_second": "16.0"},
            "samples",
            "error",
            "16 samples per second x 2 s are 32 samples, but the batch",
        ),
        ({"elapsed_time_per_iteration_(s)": "6.5"}, "outlier", "warning", "iteration 4 took 6.5 s, but the median"),
        ({"elapsed_time_per_iteration_(s)": "0.02"}, "outlier", "warning", "iteration 4 took 0.02 s, but the median"),
    ],
)
def test_what_an_iteration_contradicts_is_found_at_its_line(
    more: dict[str, str], check: str, severity: str, said: str
) -> None:
    """One line among sound ones: that one is named, its line is right, and nothing else is found."""
    (finding,) = found_in(log_of(*STEADY, **more))
    assert (finding.check, finding.severity, finding.line) == (check, severity, 4)
    assert said in finding.message
    assert finding.suggestion


@pytest.mark.parametrize("sound", ["8.00", "7.95", "8.05"])
def test_samples_a_second_that_are_rounded_are_believed(sound: str) -> None:
    assert found_in(log_of(*STEADY, samples_per_second=sound)) == []


@pytest.mark.parametrize(("rate", "found"), [("8.27", []), ("8.29", ["samples"])])
def test_samples_a_second_may_be_off_by_a_percent_and_rounding(rate: str, found: list[str]) -> None:
    """2.0 s are known to 0.05 s, 2.5% of them, so that 8 samples a second are good up to 8.28."""
    more = {"samples_per_second": rate, "elapsed_time_per_iteration_(s)": "2.0"}
    assert [finding.check for finding in found_in(log_of(*STEADY, **more))] == found


def test_few_iterations_tell_no_outlier() -> None:
    """Of four after the first nobody knows what is usual."""
    assert found_in(log_of(9.0, 2.0, 2.0, 4.0, 2.0)) == []


def test_a_batch_that_grows_takes_longer_and_is_no_outlier() -> None:
    """Only iterations of one batch and sequence are compared."""
    grown = log_of(*STEADY[:-1], 4.0)
    assert [finding.check for finding in found_in(grown)] == ["outlier"]
    head, last = grown[: grown.index(" iteration 8")], grown[grown.index(" iteration 8") :]
    assert found_in(head + last.replace("batch size: 16", "batch size: 32")) == []


ARGUMENTS = """------------------------ arguments ------------------------
  tensor_model_parallel_size ...................... 8
  pipeline_model_parallel_size .................... 12
  data_parallel_size .............................. 4
  world_size ...................................... {world}
  micro_batch_size ................................ 2
  global_batch_size ............................... {batch}
-------------------- end of arguments ---------------------
"""


@pytest.mark.parametrize(
    ("world", "batch", "said"),
    [
        (384, 2048, []),
        (320, 2048, ["tp(8) x pp(12) x cp(1) x dp(4) = 384 GPUs, but a world size of 320"]),
        (384, 2047, ["batch of 2047 is not a multiple of micro_batch x dp = 2 x 4 = 8"]),
    ],
)
def test_degrees_that_do_not_make_the_world_or_share_the_batch_are_found(
    world: int, batch: int, said: list[str]
) -> None:
    line = " iteration 2/ 500 | elapsed time per iteration (s): 100.0 | lm loss: 5.0E+00 |\n"
    found = found_in(ARGUMENTS.format(world=world, batch=batch) + line)
    assert [finding.severity for finding in found] == ["error"] * len(said)
    assert all(words in finding.message for words, finding in zip(said, found, strict=True))


def test_tflops_by_another_formula_are_advice_and_by_none_an_error() -> None:
    """Each way to be off is reported once, at the first iteration that it has."""
    (run,) = read_log(log_of(*STEADY).splitlines(keepends=True)).runs
    known = [Contradiction(number, 90.0, 100.0, "it is an older formula") for number in (3, 5)]
    found = audit_run(run, [*known, Contradiction(4, 10.0, 100.0, "")])
    assert [(finding.line, finding.severity) for finding in found] == [(3, "advice"), (4, "error")]
    assert (
        "iteration 3 (and in 1 more) prints 90 TFLOPs, but its time gives 100.00: it is an older formula"
        in found[0].message
    )


def test_the_tflops_of_a_whole_log_are_counted_again(run: Run) -> None:
    """From the arguments that it prints: Megatron-LM leaves the recompute out."""
    said = run("audit", str(LOGS / "megatron-lm.log"))
    assert said.code == 0
    assert "the log uses the model's own operations, without recompute" in said.out
    assert "megatron-lm.log: 1 run, 1 suggestion" in said.out


def test_a_log_keeps_the_json_contract_of_a_table(run: Run, tmp_path: Path) -> None:
    """The same keys for each finding; a log that is compressed is read as well."""
    file = tmp_path / "log.gz"
    file.write_bytes(gzip.compress((LOGS / "failure-not-a-number.log").read_bytes()))
    said = run("audit", str(file), "--json")
    assert said.code == 0
    document = json.loads(said.out)
    assert document["schema"] == "tuner/audit/1"
    (finding,) = document["findings"]
    assert finding.keys() >= {"row", "line", "check", "severity", "message", "suggestion"}
    assert (finding["row"], finding["line"], finding["check"]) == (None, 3, "loss")


def test_a_log_has_nothing_to_fix(run: Run, tmp_path: Path) -> None:
    said = run("audit", str(LOGS / "healthy.log"), "--fix", "-o", str(tmp_path / "x.csv"))
    assert said.code == 2
    assert "is a log; --fix repairs tables only" in said.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.log")), ids=lambda path: path.stem)
def test_every_log_is_audited(path: Path, run: Run) -> None:
    """As a log and never as a table, in whatever format; one finding is one sentence at a line that is there."""
    said = run("audit", str(path), "--json")
    assert said.code == 0
    document = json.loads(said.out)
    assert "log" in document
    lines = path.read_bytes().count(b"\n") + 1
    assert all(1 <= finding["line"] <= lines and "\n" not in finding["message"] for finding in document["findings"])


@given(log_texts())
@settings(max_examples=100)
def test_no_text_whatever_makes_the_audit_raise(text: str) -> None:
    for finding in found_in(text):
        assert finding.message
