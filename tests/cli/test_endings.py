"""Exit codes, error sentences, and output for scripts."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

import tuner
from tests.conftest import ROOT, Run
from tuner import cli
from tuner.cli import streams
from tuner.cli.commands import export
from tuner.core.errors import InputError
from tuner.core.outcomes import Failure, Outcome
from tuner.launch.contract import JobResult
from tuner.study.api import study_settings
from tuner.study.manage import CANCELLED_JOB
from tuner.study.store.trial import Proposal, Trial


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (streams.StdoutError(BrokenPipeError()), 0, ""),
        (streams.StdoutError(OSError(28, "No space left")), 1, "tuner: cannot write the output: No space left."),
        (OSError(13, "Permission denied", "a b"), 1, "tuner: 'a b': Permission denied."),
        (OSError(2, "No such file"), 1, "tuner: the current folder: No such file."),
        (OSError(11, "Try again"), 1, "tuner: a system call failed: Try again."),
        (KeyboardInterrupt(), 130, "tuner: interrupted."),
        (click.exceptions.Abort(), 130, "tuner: interrupted."),
        (click.exceptions.Exit(7), 7, ""),
        (click.ClickException("it failed."), 1, "tuner: it failed."),
        (click.UsageError("Missing it"), 2, "tuner: missing it."),
        (click.UsageError("Is it there?"), 2, "tuner: is it there?"),
        (InputError("wrong\nline."), 2, "tuner: wrong line."),
        (None, 0, ""),
    ],
)
def test_an_error_is_one_sentence_and_an_exit_code(
    error: BaseException | None,
    code: int,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    silenced: list[Any] = []

    def invoke(_context: Any) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(cli, "_silence", silenced.append)
    monkeypatch.setattr(cli.app, "invoke", invoke)
    assert cli._run(["rules"]) == code
    assert capsys.readouterr().err.strip() == sentence
    assert bool(silenced) == isinstance(error, streams.StdoutError)


def test_a_usage_error_refers_to_the_help_of_its_command() -> None:
    context: Any = SimpleNamespace(command_path="tuner plan", command=click.Command("plan"))
    error = click.UsageError("Got unexpected extra argument (x)")
    error.ctx = context
    assert cli._usage_message(error) == "got unexpected extra argument (x). Run 'tuner plan --help' for usage."


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("evaluate corpus/enoki-h100.csv --seed 3", "--seed requires --calibrate-rows, whose rows it draws."),
        ("doctor -o site.toml", "--output is the calibration file of --measure: add --measure."),
        ("measure docs/example.log --explain --csv", "--explain and --csv exclude each other."),
        ("compare --default gpu=H100-80GB-SXM", "--default completes the rows of a table: add --table."),
    ],
)
def test_an_option_without_its_prerequisite_is_refused(words: str, sentence: str, run: Run) -> None:
    said = run(*words.split())
    assert (said.code, said.out) == (2, "")
    assert sentence in said.err


def test_closed_streams_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a file that is opened later could take their descriptors."""
    opened: list[Any] = []
    monkeypatch.setattr("tuner.cli.os.open", lambda *given: opened.append(given))
    cli._open_streams()
    assert opened == []
    for name in ("stdin", "stderr"):
        monkeypatch.setattr(sys, name, None)
    cli._open_streams()
    assert opened == [(os.devnull, os.O_RDONLY)]
    assert sys.stderr.writable()
    assert sys.stderr.name == os.devnull
    sys.stderr.close()


def test_a_stream_is_silenced_by_its_descriptor(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as stream:
        cli._silence(stream)
        stream.write("lost")
    assert (tmp_path / "out").read_text() == ""


def test_frameworks_are_compared_with_the_same_figures_in_csv_and_json(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,234 of 5,678 topologies fit; the best takes 2 days and 30 GiB."""
    best = SimpleNamespace(topology=SimpleNamespace(key="k"), seconds=2.5, days=2.0, memory=30 * 2.0**30, fits=True)
    workload = SimpleNamespace(precision="bf16", attention="flash2")
    rows = [
        SimpleNamespace(framework="a", legal=5678, fitting=1234, best=best, workload=workload, reason=""),
        SimpleNamespace(framework="b", legal=0, fitting=0, best=None, workload=None, reason="why"),
    ]
    asked: list[dict[str, Any]] = []

    def planned(**given: Any) -> Any:
        asked.append(given)
        return SimpleNamespace(rows=rows, cluster="cluster")

    monkeypatch.setattr("tuner.planning.frameworks.plan_frameworks", planned)
    monkeypatch.setattr(
        "tuner.export.support.export_note", lambda *about: "no format." * (about == (workload, "cluster"))
    )
    found = ("plan", "--framework", "all", "--nodes", "2")
    first, second = json.loads(run(*found, "--json").out)["frameworks"]
    figures = ("key", "sec_per_iter", "days", "memory_gib", "fits", "precision", "attention", "reason", "export_note")
    assert [first[name] for name in figures] == ["k", 2.5, 2.0, 30.0, True, "bf16", "flash2", "", "no format."]
    assert [second[name] for name in figures] == [None, None, None, None, False, None, None, "why", ""]
    header, one, other = run(*found, "--csv").out.splitlines()
    assert header == "Framework,Legal,Fit,Best topology,Sec/it,Days,GiB,Precision,Attention"
    assert (one, other) == ("a,5678,1234,k,2.500,2.0,30.0,bf16,flash2", "b,0,0,none,,,,,")
    printed = run(*found).out
    assert "a          5,678  1,234  k " in printed
    model, machines, tokens, *_ = printed.splitlines()
    assert model.startswith("bloom-14336x72: 181.2B parameters, ")
    assert ", global batch 2048; searched: " in model  # each row has its own precision and kernel
    assert machines.startswith("2 nodes of 8 A100-80GB-SXM, ")
    assert machines.endswith(", all frameworks")
    assert tokens == "training on 3.62T tokens (20 per parameter; set with --tokens)"
    document = json.loads(run(*found, "--json").out)
    assert (document["model"]["layers"], document["cluster"]["nodes"], document["tokens"]) == (72, 2, 20 * 181209477120)
    assert "\nb: why\nNote: no format.\n" in printed
    assert all(given["nodes"] == 2 and "framework" not in given for given in asked)


def test_stopped_and_recovered_trials_are_listed_as_json(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    done = Trial(number=3, proposal=Proposal(key="k", params={}, topology={}))
    found = SimpleNamespace(trials=[done, done], open=[done], unreadable=[Path("a"), Path("b")])
    ran = replace(done, number=2, result=JobResult(outcome=Outcome.CANCELLED, failure=Failure.because(CANCELLED_JOB)))
    monkeypatch.setattr("tuner.study.manage.stop_study", lambda *_, **__: [ran, done])
    monkeypatch.setattr("tuner.study.store.recover.recover_study", lambda *_, **__: found)
    stopped = json.loads(run("stop", "s", "--json").out)
    jobs = {"cancelled": [{"number": 2, "key": "k"}], "closed": [{"number": 3, "key": "k"}]}
    assert stopped == {"schema": "tuner/stop/1", "study": "s", **jobs}
    recovered = json.loads(run("recover", "s", "--json").out)
    assert recovered == {"schema": "tuner/recover/1", "study": "s", "trials": [3, 3], "open": [3], "lost": 2}
    assert run("recover", "s").out.startswith("Study s: 2 trials rebuilt, 1 of them without a result.\n")
    found.open = []
    assert run("recover", "s").out.startswith("Study s: 2 trials rebuilt.\n")


@pytest.mark.parametrize(("options", "opened"), [((), True), (("--no-browser",), False)])
def test_a_dashboard_prints_its_address_and_opens_it(
    options: tuple[str, ...], opened: bool, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = SimpleNamespace(name="s", url="u", folder=tmp_path, trials=[1, 2, 3])
    shown: list[str] = []

    @contextmanager
    def serve(url: str, store: Path, *, port: int) -> Iterator[Any]:
        assert (url, store, port) == ("u", tmp_path / "artifacts", 0)
        yield SimpleNamespace(study_page=lambda number: f"page {number}", wait=lambda: 0)

    monkeypatch.setattr("tuner.launch.dashboard_server.dashboard", serve)
    monkeypatch.setattr("tuner.launch.dashboard_server.show", shown.append)
    monkeypatch.setattr("tuner.report.dashboard.annotate", lambda _study, _store: 7)
    monkeypatch.setattr("tuner.study.result.open_study", lambda *_, **__: study)
    given = ("dashboard", "s", *options)
    assert run(*given).out == "s: page 7 (stop with Ctrl-C)\n"
    assert shown == ["page 7"] * opened
    document = json.loads(run(*given, "--json").out)
    assert (document["study"], document["url"], document["trials"]) == ("s", "page 7", 3)
    document = json.loads(run(*given, "--check", "--json").out)
    assert (document["url"], document["trials"]) == (None, 3)
    assert run(*given, "--check").out == "s: wrote plots and the notes of 3 trials\n"


def test_the_explanation_of_a_log_is_available_as_json(run: Run, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(" iteration 1/ 9 | elapsed time per iteration (s): 2.0 | lm loss: 2.0 |\n")
    document = json.loads(run("measure", str(tmp_path / "log"), "--explain", "--json").out)
    assert document["log"] == str(tmp_path / "log")
    assert [reader["lines"] for reader in document["readers"]] == [1]


def test_a_measured_machine_is_written_as_a_calibration(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = SimpleNamespace(findings=(), speeds={}, calibration="calibration")
    written: list[Any] = []
    monkeypatch.setattr("tuner.study.doctor.examine", lambda *_, **__: found)
    monkeypatch.setattr("tuner.costmodel.site_file.write_site", lambda *given, source: written.append((*given, source)))
    file = tmp_path / "new" / "site.toml"
    assert (
        f"wrote {file}; pass it to other commands with --calibration" in run("doctor", "--measure", "-o", str(file)).out
    )
    assert json.loads(run("doctor", "--runs", str(tmp_path), "--json").out)["site"] == str(tmp_path / "site.toml")
    assert written == [
        (file, "calibration", "tuner doctor --measure"),
        (tmp_path / "site.toml", "calibration", "tuner doctor --measure"),
    ]


def test_a_search_has_the_same_defaults_in_python() -> None:
    for function in (tuner.optimize, study_settings):
        given = inspect.signature(function).parameters
        found = {name: given[name].default for name in ("budget", "jobs", "iterations", "seed")}
        assert found == {"budget": 40, "jobs": 1, "iterations": 2, "seed": 0}
    assert inspect.signature(tuner.plan).parameters["top"].default == 10
    assert inspect.signature(tuner.explain).parameters["most"].default == 3


def test_an_evaluation_is_printed_as_text_or_json(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    header = "gpu,gpus_per_node,nodes,layers,hidden,heads,tp,pp,dp,mbs,gbs,sec_per_iter"
    file.write_text(f"{header}\nA100-80GB-SXM,8,1,24,2048,16,8,1,1,4,64,1\n")
    assert run("evaluate", str(file)).out.startswith("t.csv: 1 row, 0 skipped\n")
    (row,) = json.loads(run("evaluate", str(file), "--json").out)["rows"]
    assert (row["line"], row["measured_sec"], row["skipped"]) == (2, 1.0, None)
    listed = run("evaluate", str(file), "--rows").out.splitlines()
    assert listed[0].startswith("Line ")
    assert listed[2].split()[0] == "2"


def test_a_calibration_is_printed_as_json(run: Run, tmp_path: Path) -> None:
    file, out = tmp_path / "t.csv", tmp_path / "site.toml"
    header = "gpu,gpus_per_node,nodes,layers,hidden,heads,tp,pp,dp,mbs,gbs,sec_per_iter"
    file.write_text(f"{header}\nA100-80GB-SXM,8,1,24,2048,16,8,1,1,4,64,1\n")
    document = json.loads(run("calibrate", str(file), "-o", str(out), "--json").out)
    assert (document["table"], document["output"], document["timed_rows"]) == ("t.csv", str(out), 1)
    assert out.is_file()
    assert run("calibrate", str(file), "-o", str(out)).out.splitlines()[-1].startswith(f"wrote {out}; ")
    said = run("calibrate", str(file), "-o", str(out), "--period", "month")
    assert (said.code, said.err) == (2, "tuner: t.csv has no column 'month'.\n")


def test_calibrate_warns_of_a_likely_wrong_unit(run: Run, tmp_path: Path) -> None:
    """Seconds that are really milliseconds take 1,000 times the estimate of 1.02 s."""
    file, out = tmp_path / "t.csv", tmp_path / "site.toml"
    header = "gpu,gpus_per_node,nodes,layers,hidden,heads,tp,pp,dp,mbs,gbs,sec_per_iter"
    for seconds, warned in ((1, False), (5, False), (1000, True)):
        file.write_text(f"{header}\nA100-80GB-SXM,8,1,24,2048,16,8,1,1,4,64,{seconds}\n")
        said = run("calibrate", str(file), "-o", str(out)).out
        assert ("times the estimates (median): check their unit with tuner audit" in said) == warned
        doubts = json.loads(run("calibrate", str(file), "-o", str(out), "--json").out)["doubts"]
        assert [doubt in said for doubt in doubts] == [True] * warned
    for memory, warned in ((12, False), (0.12, True)):
        file.write_text(f"{header},mem_gib\nH200,8,1,24,2048,16,8,1,1,4,64,1,{memory}\n")
        assert ("\nmeasured memory is " in run("calibrate", str(file), "-o", str(out)).out) == warned


def test_calibrate_skips_times_above_the_peak_of_the_gpu(run: Run, tmp_path: Path) -> None:
    """A time of 0.0001 s would be thousands of times the peak; alone, it cannot calibrate."""
    file, out = tmp_path / "t.csv", str(tmp_path / "site.toml")
    header = "gpu,gpus_per_node,nodes,layers,hidden,heads,tp,pp,dp,mbs,gbs,sec_per_iter"
    slow, fast = ("A100-80GB-SXM,8,1,24,2048,16,8,1,1,4,64,1", "A100-80GB-SXM,8,1,24,2048,16,8,1,1,4,64,0.0001")
    file.write_text(f"{header}\n{slow}\n")
    alone = json.loads(run("calibrate", str(file), "-o", out, "--json").out)
    file.write_text(f"{header}\n{slow}\n{fast}\n")
    both = json.loads(run("calibrate", str(file), "-o", out, "--json").out)
    assert (both["factors"], both["timed_rows"]) == (alone["factors"], 1)
    assert [row["line"] for row in both["skipped"]] == [3]
    assert both["skipped"][0]["reason"].startswith("sec_per_iter is 0.0001, which would mean ")
    assert "line 3 skipped: sec_per_iter is 0.0001, which" in run("calibrate", str(file), "-o", out).out
    file.write_text(f"{header}\n{fast}\n")
    said = run("calibrate", str(file), "-o", out)
    assert (said.code, ": sec_per_iter is 0.0001" in said.err) == (1, True)


def test_a_calibration_that_leaves_no_row_to_score_is_an_error(run: Run, tmp_path: Path) -> None:
    """A row that ran out of memory is not enough where others have a time."""
    file = tmp_path / "t.csv"
    header = "group,layers,hidden,heads,tp,mbs,sec_per_iter,status"
    rows = ["a,24,2048,16,1,4,1,OK", "b,24,2048,16,2,4,1,OK", "b,24,2048,16,1,8,,OOM"]
    takes_all = "tuner: no timed row of t.csv is left to score: --calibrate-rows {} takes all {}; {}.\n"
    for more, number, remedy in (
        ([], 1, "no group has two; use --calibration FILE"),
        (["b,24,2048,16,2,8,1,OK"], 5000, "use at most 1"),
    ):
        file.write_text("\n".join([header, *rows, *more]))
        said = run("evaluate", str(file), "--calibrate-rows", str(number))
        assert (said.code, said.out, said.err) == (1, "", takes_all.format(number, 2 + len(more), remedy))
    assert run("evaluate", str(file), "--calibrate-rows", "1").code == 0


def test_simulated_measurements_are_labelled_in_everything_derived_from_them(run: Run, tmp_path: Path) -> None:
    """The label is on a study, the file of its measurements, a plan, and a search that starts from the study."""
    where, site = ("--runs", str(tmp_path / "runs")), str(tmp_path / "site.toml")
    described = ("--model", "gpt-1.3b", "--nodes", "2", "--global-batch", "64")
    made = run("optimize", *described, "--launcher", "simulated", "--budget", "2", "--study", "invented", *where)
    assert made.code == 0, made.err
    assert "\nSIMULATED: invented: " in run("calibrate", "invented", *where, "-o", site).out
    assert json.loads(run("calibrate", "invented", *where, "-o", site, "--json").out)["simulated"] is True
    assert run("evaluate", "invented", *where).out.startswith("SIMULATED: invented: ")
    assert "(calibrated on SIMULATED measurements)" in run("plan", *described, "--calibration", site, "--top", "1").out
    assert run("report", "invented", *where).code == 0
    (table,) = (tmp_path / "runs" / "invented").rglob("measurements.csv")
    assert run("evaluate", str(table)).out.startswith("SIMULATED: measurements.csv: ")
    words = ("--launcher", "simulated", "--budget", "1", "--study", "next", "--from", "invented", *where)
    said = run("optimize", *described, *words)
    assert "the cost model is calibrated on SIMULATED measurements" in said.out + said.err


@pytest.mark.parametrize(
    ("options", "gpu", "rate", "domain"),
    [
        ((), "", "", None),
        (("--cluster", "bloom-48"), "A100-80GB-SXM", "400", None),
        (("--cluster", "bloom-48", "--nvlink-domain", "16"), "A100-80GB-SXM", "400", "16"),
    ],
)
def test_a_measured_log_is_written_as_a_row_of_a_table(
    options: tuple[str, ...], gpu: str, rate: str, domain: str | None, run: Run
) -> None:
    """The row has the machine only if one was specified."""
    log = str(ROOT / "tests" / "data" / "logs" / "megatron-lm.log")
    header, row = run("measure", log, "--csv", *options).out.splitlines()
    found = dict(zip(header.split(","), row.split(","), strict=True))
    assert (found["gpu"], found["node_gbit_s"], found["status"], found["source"]) == (gpu, rate, "OK", log)
    assert found.get("nvlink_domain") == domain


@pytest.mark.parametrize(
    ("log", "options", "framework"),
    [
        ("megatron-lm", "", "megatron-core"),
        ("megatron-lm", "--framework any", ""),
        ("megatron-lm", "--framework torchtitan", "torchtitan"),
        ("megatron-deepspeed", "", "megatron-deepspeed"),
        ("megatron-lm-2026", "tp8-pp12-dp4-mbs1-z1", "megatron-deepspeed"),  # the preset's
        ("megatron-lm-2026", "tp8-pp1-dp2-mbs1-z1 --model llama-3-8b", "megatron-core"),
        ("torchtitan", "tp1-pp1-dp8-mbs1-z3 --model llama-3-8b --nodes 1", "torchtitan"),
        ("deepspeed-timer", "tp1-pp1-dp8-mbs1-z3 --model llama-3-8b --nodes 1", "deepspeed"),
    ],
)
def test_a_measured_row_has_the_framework_named_or_of_the_log_or_by_default(
    log: str, options: str, framework: str, run: Run
) -> None:
    said = run("measure", str(ROOT / "tests" / "data" / "logs" / f"{log}.log"), *options.split(), "--csv")
    header, row = said.out.splitlines()
    found = dict(zip(header.split(","), row.split(","), strict=True))
    assert found.get("framework", "") == framework
    assert found.get("mem_stage") == ("first" if found["mem_kind"] == "allocated" else None)


def test_the_name_of_a_study_is_accepted_in_place_of_a_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A study is found by its database in the folder of studies or by --storage; a file takes precedence."""
    asked: list[Any] = []

    def table(*given: Any) -> Any:
        asked.append(given)
        raise InputError("a study.")

    monkeypatch.setattr("tuner.cli.arguments._study_table", table)
    monkeypatch.chdir(tmp_path)
    runs = tmp_path / "runs"
    for name in ("s", "both"):
        (runs / name).mkdir(parents=True)
        (runs / name / "study.db").touch()
    (tmp_path / "both").touch()
    (tmp_path / "s").mkdir()  # a folder is no table
    assert run("evaluate", "s").err == "tuner: a study.\n"
    assert run("evaluate", "t", "--storage", "url").err == "tuner: a study.\n"
    assert asked == [("s", Path("runs"), None), ("t", Path("runs"), "url")]
    for name in ("both", "t"):
        assert run("evaluate", name).err != "tuner: a study.\n"


def test_a_production_run_is_printed_without_the_schema_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.export.production.run_document", lambda run: {"schema": "x", "run": run})
    assert export._document("run") == {"run": "run"}  # type: ignore[arg-type]
