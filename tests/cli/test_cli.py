"""The command line: help, plans, rules, catalog and errors; no heavy imports."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.found_studies import study_in
from tuner.cli import app

COMMANDS = sorted(app.commands)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_one_sentence_of_help_and_an_example(command: str, run: Run) -> None:
    said = run(command, "--help")
    assert said.code == 0
    assert f"Example: tuner {command}" in said.out
    sentence = app.commands[command].help or ""
    assert sentence.split("\n")[0].endswith(".")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_example_of_every_command_runs(
    command: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search runs only two jobs; `tuner doctor`, which probes the machine, has tests of its own."""
    monkeypatch.setattr("tuner.study.doctor.probe", lambda **_: {"torch": "2.8", "accelerator": "cpu"})
    example = app.commands[command].epilog or ""
    options = {option for parameter in app.commands[command].params for option in parameter.opts}
    kept = ["--runs", str(tmp_path)] if "--runs" in options else []
    kept += ["--budget", "2"] if "--budget" in options else []
    if "name" in {parameter.name for parameter in app.commands[command].params}:
        study_in(tmp_path)
    if command == "recover":
        (tmp_path / "bloom-48/study.db").unlink()
    assert run(*example.removeprefix("Example: tuner ").split(), *kept).code == 0


def test_the_help_lists_every_command_once_with_a_whole_sentence(run: Run) -> None:
    printed = run("--help").out
    for section in ("Search:", "Plan:", "Measure:", "Reference:"):
        assert f"\n{section}\n" in printed
    for name, command in app.commands.items():
        assert command.short_help
        assert command.short_help.endswith(".")
        (line,) = [line for line in printed.splitlines() if line.startswith(f"  {name} ")]
        assert line.split(name, 1)[1].strip() == command.short_help


def test_every_option_has_help() -> None:
    for name, command in app.commands.items():
        for parameter in command.params:
            assert parameter.param_type_name == "argument" or getattr(parameter, "help", None), (name, parameter.name)


def test_plan_prints_counts_and_rows(run: Run) -> None:
    said = run("plan", "--nodes", "48")
    assert said.code == 0
    assert said.err == ""
    assert "181.2B parameters, 72 layers, hidden 14336, 64 heads" in said.out
    assert "48 nodes of 8 A100-80GB-SXM" in said.out
    assert "grid points, " in said.out
    assert "Removed by rule: fill-nodes (" in said.out
    assert "Uncalibrated estimates, not measurements" in said.out
    assert sum(line.startswith("tp") for line in said.out.splitlines()) == 10


def test_plan_has_a_stable_json_schema(run: Run) -> None:
    document = json.loads(run("plan", "--nodes", "48", "--json").out)
    assert document["schema"] == "tuner/plan/1"
    assert document["legal"] == 14_538
    assert document["grid"] == document["legal"] + sum(document["removed"].values())
    assert 0 < document["seconds"] < 60
    first = document["top"][0]
    assert {"key", "topology", "sec_per_iter", "memory_gib", "tflops", "days", "terms"} <= set(first)
    topology = first["topology"]
    assert topology["tp"] * topology["pp"] * topology["cp"] * topology["dp"] == topology["nodes"] * 8
    assert 0 < document["fitting"] < document["legal"]
    assert sum(first["terms"].values()) == pytest.approx(first["sec_per_iter"])
    assert first["sec_per_iter"] == min(row["sec_per_iter"] for row in document["top"])
    assert topology["global_batch"] == 2048


def test_plan_prints_the_same_rows_as_csv(run: Run) -> None:
    arguments = ("plan", "--set", "tp=8", "--set", "micro_batch=1,2,4", "--top", "5")
    lines = run(*arguments, "--csv").out.splitlines()
    keys = [row["key"] for row in json.loads(run(*arguments, "--json").out)["top"]]
    header = "key,nodes,tp,pp,vpp,cp,dp,sequence_parallel,zero,mbs,recompute,partition,heads,layers,hidden,gbs"
    header += ",microbatches,bubble,advice,sec_per_iter,sec_per_iter_low,sec_per_iter_high,memory_gib"
    header += ",oom_probability,tflops,days,mfu"
    assert lines[0] == header
    assert [line.split(",")[0] for line in lines[1:]] == keys
    assert len(keys) == 5
    assert all(key.startswith("tp8-") for key in keys)


@pytest.mark.parametrize("tokens", ["1T", "1000B", "1e12", "1_000_000M"])
def test_days_are_proportional_to_the_tokens(tokens: str, run: Run) -> None:
    """The header states the number of tokens and, by default, the rule behind it."""
    arguments = ("plan", "--set", "tp=8", "--set", "heads=64")
    own, usual = (json.loads(run(*arguments, *more, "--json").out) for more in (("--tokens", tokens), ()))
    assert own["workload"]["tokens"] == 1e12
    ratio = usual["workload"]["tokens"] / 1e12
    assert usual["top"][0]["days"] / own["top"][0]["days"] == pytest.approx(ratio)
    assert "training on 1T tokens\n" in run(*arguments, "--tokens", tokens).out
    assert "training on 3.62T tokens (20 per parameter; set with --tokens)\n" in run(*arguments).out


def test_days_are_printed_without_an_exponent(run: Run) -> None:
    printed = run("plan", "--nodes", "4", "--tokens", "100T", "--set", "heads=64", "--top", "3").out
    assert "e+" not in printed
    assert "," in next(line for line in printed.splitlines() if line.startswith("tp")).split()[6]


def test_mfu_is_model_flops_over_peak_flops(run: Run) -> None:
    """MFU does not count recomputation: it equals TFLOPs over peak without recompute, and is lower otherwise."""
    document = json.loads(run("plan", "--set", "tp=8", "--set", "heads=64", "--top", "0", "--json").out)
    for row in document["top"]:
        share = row["tflops"] / 312
        assert row["mfu"] == pytest.approx(share) if row["topology"]["recompute"] == "none" else row["mfu"] < share


def test_topologies_that_are_unlikely_to_fit_are_listed_separately(run: Run) -> None:
    arguments = ("plan", "--model", "llama-3-8b", "--gpu", "H100-80GB-SXM", "--nodes", "1", "--set", "dp=4,8")
    sizes = ("--set", "tp=1,2", "--set", "micro_batch=4,8")
    printed = run(*arguments, *sizes, "--top", "20").out
    above, below = printed.split("Unlikely to fit in memory:")
    chances = [
        [int(chance) for chance in re.findall(r" ([0-9]+)% ", part.split("---\n")[-1])] for part in (above, below)
    ]
    assert max(chances[0]) < 50 <= min(chances[1])
    assert "Unlikely to fit" not in run(*arguments, *sizes, "--top", "2").out


def test_a_table_fits_a_narrow_terminal_and_names_hidden_columns() -> None:
    """The key contains the hidden columns."""
    width = 60
    said = in_a_terminal(width, "plan", "--nodes", "48")
    table = said[said.index("Key ") :].splitlines()
    rows = [line for line in table if line.startswith("tp")]
    assert len(rows) == 10
    assert all(len(row) <= width for row in rows)
    assert "(hidden at 60 columns: " in said
    assert "(hidden" not in in_a_terminal(200, "plan", "--nodes", "48")


@pytest.mark.slow
def test_long_texts_are_wrapped_between_words_on_a_narrow_terminal() -> None:
    narrow, wide = in_a_terminal(120, "doctor"), in_a_terminal(400, "doctor")
    assert len(narrow.splitlines()) > len(wide.splitlines())
    assert all(len(line) <= 120 for line in narrow.splitlines())
    assert {"accelerator", "storage", sys.executable} <= set(narrow.split())


def in_a_terminal(columns: int, *arguments: str) -> str:
    """Return what a command prints on a terminal of so many columns."""
    import pty

    outer, inner = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns)}
    command = [sys.executable, "-m", "tuner", *arguments]
    with subprocess.Popen(command, stdout=inner, env=environment) as process:
        os.close(inner)
        chunks = []
        while True:
            try:
                chunk = os.read(outer, 65536)
            except OSError:  # on Linux, the other end of the terminal is closed
                break
            if not chunk:
                break
            chunks.append(chunk)
    os.close(outer)
    assert process.returncode == 0
    return b"".join(chunks).decode().replace("\r\n", "\n")


def test_top_0_lists_all_rows(run: Run) -> None:
    arguments = ("--set", "tp=8", "--set", "recompute=full", "--set", "zero=1", "--set", "heads=64", "--exact-nodes")
    document = json.loads(run("plan", *arguments, "--top", "0", "--json").out)
    assert len(document["top"]) == document["legal"] > 10


def test_an_empty_plan_exits_with_1_and_suggests_a_change(run: Run) -> None:
    said = run("plan", "--model", "bloom-14400x80", "--exact-nodes")
    assert said.code == 1
    assert said.out == ""
    assert "try " in said.err
    assert "global batch 1920 (" in said.err
    assert said.err.count("\n") == 1


def test_allowing_a_policy_restores_the_topologies_that_it_removed(run: Run) -> None:
    settings = ("--set", "micro_batch=6", "--global-batch", "2016", "--set", "heads=64", "--json")
    assert run("plan", *settings).code == 1
    allowed = run("plan", *settings, "--allow", "micro-batch-power-of-two")
    assert allowed.code == 0
    assert json.loads(allowed.out)["legal"] > 0


def test_the_header_describes_the_planned_model(run: Run) -> None:
    """A fixed shape, batch or number of heads replaces the model's own, and is reported as another model."""
    pinned = ("--set", "heads=64", "--set", "global_batch=1024", "--set", "shape=5120x40")
    said = run("plan", "--model", "llama-3-8b", *pinned)
    assert "40 layers, hidden 5120, 64 heads" in said.out
    assert "global batch 1024" in said.out
    assert "train a different model" in said.out
    plain = run("plan", "--model", "llama-3-8b")
    assert "different model" not in plain.out
    assert "236.9K parameters" in run("plan", "--model", "tiny", "--nodes", "1").out


def test_an_empty_space_with_the_largest_batch_is_explained(run: Run) -> None:
    said = run("plan", "--global-batch", "99999999")
    assert said.code == 1
    assert "try " in said.err


def test_names_are_printable_and_escaped_for_an_ascii_terminal(tmp_path: Path, run: Run) -> None:
    text = '{"layers": 4, "hidden": 64, "heads": 4, "vocab": 99, "seq": 64, "name": "\\ud800"}'
    (tmp_path / "m.json").write_text(text)
    said = run("plan", "--model", str(tmp_path / "m.json"))
    assert said.code == 2
    assert "model field name must be a string of 1 to 200 printable characters" in said.err
    (tmp_path / "模.json").write_text(text.replace(', "name": "\\ud800"', ""))
    command = [sys.executable, "-m", "tuner", "plan", "--model", str(tmp_path / "模.json"), "--global-batch", "32"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ascii_only = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert ascii_only.returncode == 0
    assert ascii_only.stdout.startswith(b"\\u6a21: ")


def test_rules_and_catalog_are_listed(run: Run) -> None:
    names = {rule["name"] for rule in json.loads(run("rules", "--json").out)["rules"]}
    assert {"fill-nodes", "fused-softmax", "wave-quantization"} <= names
    gpus = json.loads(run("catalog", "gpus", "--json").out)["gpus"]
    assert {"name": "A100-80GB-SXM", "sms": 108, "memory_gib": 80.0}.items() <= gpus[3].items()
    assert "enoki-48" in run("catalog", "models").out
    assert "bloom-48" in run("catalog", "clusters").out


BAD_INPUT = [
    (("plan", "--nodes", "0"), "tuner: --nodes must be between 1 and 16,384, not 0."),
    (("plan", "--nodes", "-4"), "--nodes must be between 1 and 16,384, not -4."),
    (("plan", "--nodes", "1" + "0" * 40), "--nodes must be between 1 and 16,384, not a number of more than 40 digits."),
    (("plan", "--nodes", "9" * 20), "--nodes must be between 1 and 16,384, not 99,999,999,999,999,999,999."),
    (("plan", "--nodes", "many"), "'many' is not a whole number."),
    (("plan", "--top", "nan"), "invalid value for '--top': 'nan' is not a whole number."),
    (("memory", "--target", "most"), "'most' is not a number."),
    (("plan", "--gpus-per-node", "0"), "tuner: --gpus-per-node must be between 1 and 128, not 0."),
    (("plan", "--global-batch", "0"), "tuner: --global-batch must be between 1 and 100,000,000, not 0."),
    (("plan", "--seq", "-1"), "tuner: --seq must be between 1 and 100,000,000, not -1."),
    (("plan", "--gpu", "A100-80GB"), "there is no GPU called 'A100-80GB'; did you mean A100-80GB-PCIe, A100-80GB-SXM"),
    (("optimize", "--track", "foo"), "there is no tracker called 'foo'; choose from mlflow and wandb."),
    (("plan", "--gpu", ""), "there is no GPU called ''"),
    (("plan", "--model", "lama-7b"), "there is no model called 'lama-7b'; did you mean llama-7b"),
    (("plan", "--cluster", "blom"), "there is no cluster called 'blom'; did you mean bloom-48"),
    (("plan", "--model", "no/such/file.json"), "there is no file no/such/file.json."),
    (
        ("plan", "--allow", "dp-multiple-of-3"),
        "there is no policy called 'dp-multiple-of-3'; did you mean dp-multiple-of-4",
    ),
    (("plan", "--allow", "batch-by-dp"), "batch-by-dp is a law and cannot be allowed"),
    (("plan", "--allow", "uneven-stages"), "uneven-stages is advice, which never rejects, and cannot be allowed"),
    (("plan", "--ramp", "32"), "--ramp '32' is not START,INCREMENT"),
    (("plan", "--ramp", "0,32"), "ramp field start must be between 1 and"),
    (("plan", "--set", "tq=8"), "there is no axis 'tq'; axes are shape, global_batch, nodes, tp"),
    (("plan", "--set", "tp"), "--set 'tp' lacks a value; write tp=1,2,4."),
    (("plan", "--set", "tp=,"), "lacks a value"),
    (("plan", "--set", "tp=eight"), "'eight' is neither a whole number nor a range; write tp=1,2,4."),
    (("plan", "--set", "tp=8-4"), "the range 8-4 runs backwards"),
    (("plan", "--set", "tp=1-999999999"), "the range 1-999999999 has more than 100,000 values"),
    (("plan", "--set", "tp=8", "--set", "tp=4"), "--set names tp more than once; give all values at once: tp=A,B."),
    (("plan", "--set", "zero=4"), "zero must be between 0 and 3, not 4."),
    (("plan", "--set", "micro_batch=0"), "micro_batch must be between 1 and 1,000,000, not 0."),
    (("plan", "--set", "recompute=some"), "write recompute=none,layernorm+moe_act,full."),
    (("plan", "--set", "sequence_parallel=maybe"), "'maybe' is neither on nor off"),
    (
        ("plan", "--set", "shape=14336"),
        "'14336' is neither hidden x layers nor similar; write shape=14336x72,13824x78.",
    ),
    (("plan", "--gpu", "V100-32GB-SXM", "--precision", "bf16"), "V100-32GB-SXM supports fp32 and fp16, not bf16."),
    (("plan", "--gpu", "H200", "--precision", "fp4"), "H200-141GB-SXM supports fp32, fp16, bf16 and fp8, not fp4."),
    (("plan", "--gpu", "MI355X", "--precision", "fp4"), "multiplies in fp4, but tuner does not model mxfp4"),
    (("plan", "--gpu", "V100-32GB-SXM", "--attention", "flash2"), "V100-32GB-SXM does not run flash2 attention"),
    (("plan", "--set", "dp=0"), "dp must be between 1 and 2,097,152, not 0."),
    (("plan", "--cluster", ""), "there is no cluster called ''"),
    (("plan", "--model", "a/" * 3000), "cannot be read: File name too long."),
    (("plan", "--model", "a\nb\x1b[31m"), "there is no model called 'a\\nb"),
    (("catalog",), "missing argument '{gpus|clusters|models|frameworks}'"),
    (("plan", "--top", "0", "--set", "shape=similar"), "rows are too many to list; limit them with --top"),
    (("plan", "--exact-nodes", "--set", "nodes=40"), "--exact-nodes uses all nodes, but --set nodes selects others"),
    (("plan", "--csv", "--json"), "--csv and --json exclude each other."),
    (("plan", "--node", "4"), "no such option '--node'; did you mean '--nodes'"),
    (("plan", "--qqqq"), "no such option '--qqqq'. Run 'tuner plan --help' for usage."),
    (("plan", "--top", "-1"), "is not in the range"),
    (("explain",), "missing argument 'KEY'"),
    (("explain", "tp8"), "invalid topology key 'tp8': pp, mbs and z missing; expected a key like tp8-pp12-dp4-mbs2-z1"),
    (("explain", "nonsense"), "invalid topology key 'nonsense': unknown part 'nonsense'"),
    (("catalog", "cards"), "'cards' is not one of"),
    (("fly",), "no such command 'fly'"),
    (("resume",), "no such command 'resume': repeat the 'tuner optimize' command that began a study to resume it."),
    (("status",), "no such command 'status': 'tuner list' lists studies and their state."),
    (("audit",), "missing argument 'TABLE|LOG'"),
    (("audit", "no/such.csv"), "there is no file no/such.csv."),
    (("audit", ".gitignore"), ".gitignore has none of the columns of a measurement table"),
    (("audit", "corpus/bloom-a100.csv", "--fix"), "--fix and -o FILE require each other."),
    (("audit", "corpus/bloom-a100.csv", "-o", "x.csv"), "--fix and -o FILE require each other."),
    (("audit", "corpus/bloom-a100.csv", "--default", "gpu"), "--default 'gpu' is not COLUMN=VALUE"),
    (("audit", "corpus/bloom-a100.csv", "--fix", "-o", "LICENSE/x"), "x cannot be written: LICENSE is not a folder."),
]


@pytest.mark.parametrize(("arguments", "sentence"), BAD_INPUT, ids=lambda value: " ".join(value)[:40])
def test_bad_input_exits_with_2_and_one_sentence(arguments: tuple[str, ...], sentence: str, run: Run) -> None:
    said = run(*arguments)
    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith("tuner: ")
    assert said.err.count("\n") == 1
    assert sentence in said.err


def test_help_imports_no_heavy_packages() -> None:
    """`tuner --help` imports only click and the standard library, so that it is fast on a login node."""
    program = (
        "import sys\nfrom tuner.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'numpy', 'pandas', 'optuna', 'matplotlib', 'rich', 'jinja2', 'torch'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert "Find the parallelism topology that finishes training soonest." in said.stdout


def test_planning_imports_neither_torch_nor_optuna_nor_plotting() -> None:
    program = (
        "import sys\nfrom tuner.cli import main\n"
        "try:\n    main(['plan', '--json'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'pandas', 'optuna', 'matplotlib', 'torch', 'deepspeed'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr


@pytest.mark.slow
def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    """`tuner plan --top 0 | head` ends without a message."""
    errors = tmp_path / "stderr"
    command = [sys.executable, "-m", "tuner", "plan", "--top", "0", "--csv"]
    with errors.open("w") as stderr, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=60) == 0
    assert errors.read_text() == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("arguments", [["--help"], ["plan"], ["plan", "--json"], ["rules"]])
def test_unwritable_output_exits_with_1_and_one_sentence(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        said = subprocess.run(
            [sys.executable, "-m", "tuner", *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert said.returncode == 1
    assert said.stderr == "tuner: cannot write the output: No space left on device.\n"


def test_without_a_command_the_help_is_shown(run: Run) -> None:
    said = run()
    assert said.code == 2
    assert said.err.startswith("Usage: tuner [OPTIONS] COMMAND")


def test_an_interrupt_exits_with_130_and_one_sentence() -> None:
    program = (
        "import os, signal, sys, threading\nfrom tuner.cli import main\n"
        # SIGINT is ignored in background jobs of a shell, and child processes inherit that
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import tuner.planning.plan\n"
        "threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
        "main(['plan', '--nodes', '16384', '--gpus-per-node', '64', '--set', 'micro_batch=1-4000', '--set', "
        "'heads=64', '--global-batch', '2048'])"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert said.returncode == 130
    assert said.stderr == "tuner: interrupted.\n"
