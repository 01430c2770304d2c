"""User errors of `tuner optimize` give one sentence and an exit code, and lose no data."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Run, Said
from tests.disks import small_disk
from tests.studies import SMALL, assert_lawful, kept, optimize, url_of

ROWS = """group,gpu,nodes,gpus_per_node,layers,hidden,heads,seq,vocab,tp,pp,dp,mbs,gbs,zero,sec_per_iter,status
A,A100-80GB-SXM,4,8,24,2048,16,2048,50257,1,1,32,1,256,1,1.5,OK
A,A100-80GB-SXM,4,8,24,2048,16,2048,50257,2,1,16,1,256,1,,OOM
B,A100-80GB-SXM,4,8,24,2048,16,2048,50257,4,1,8,1,256,1,1.9,OK
"""


@pytest.fixture
def wrong(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A function that runs `tuner optimize` in an empty folder and expects an error."""
    monkeypatch.chdir(tmp_path)

    def wrong(*arguments: str, small: bool = True) -> Said:
        said = run("optimize", *(SMALL if small else ()), "--budget", "2", *arguments)
        assert said.code in (1, 2, 3), said
        assert "Traceback" not in said.err
        assert said.out == ""
        assert len(said.err.splitlines()) == 1, said.err
        assert said.err.startswith("tuner: ")
        assert said.err.rstrip().endswith((".", "?"))
        return said

    return wrong


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--sampler", "foo"), "no sampler called 'foo'"),
        (("--memory-filter",), "--memory-filter is unnecessary with --sampler guided"),
        (("--budget", "0"), "--budget must be at least 1 (got 0)"),
        (("--budget", "-3"), "--budget must be at least 1 (got -3)"),
        (("--jobs", "0"), "--jobs must be at least 1 (got 0)"),
        (("--patience", "0"), "--patience must be at least 1 (got 0)"),
        (("--node-hours", "0"), "not a positive number"),
        (("--node-hours", "nan"), "not a positive number"),
        (("--node-hours", "1e308"), "'1e308' is too large; give a number below 1e+30."),
        (("--node-hours", "inf"), "'inf' is too large"),
        (("--node-hours", "1e-300"), "'1e-300' is too small; give a number of at least 1e-30."),
        (("--default", "gpu=H100-80GB-SXM"), "--default completes the rows of a table"),
        (("--deadline", "soon"), "is not a duration"),
        (("--deadline", "0s"), "--deadline must be greater than 0"),
        (("--seed", "-1"), "--seed must be between 0 and 4,294,967,295 (got -1)"),
        (("--seed", "9" * 40), "--seed must be between 0 and"),
        (("--drift", "1.05"), "is not FACTOR@JOBS"),
        (("--drift", "...@3"), "is not FACTOR@JOBS"),
        (("--drift", "0@3"), "is impossible"),
        (("--drift", "nan@3"), "is not FACTOR@JOBS"),
        (("--iterations", "1"), "begin with 2"),
        (("--iterations", "5-2"), "--iterations: the range 5-2 runs backwards; write 2-5."),
        (("--iterations", "two"), "neither a number nor a range"),
        (("--iterations", "2-100000"), "--iterations 2-100000 must end at iteration 9,999 or before."),
        (("--study", "../elsewhere"), "is not a valid name"),
        (("--study", "a b"), "is not a valid name"),
        (("--study", "a\nb"), "is not a valid name"),
        (("--study", ""), "is not a valid name"),
        (("--study", "x" * 101), "is not a valid name"),
        (("--study", "..", "--runs", "r"), "is not a valid name"),
        (("--storage", "nonsense"), "is not a URL"),
        (("--storage", ""), "is not a URL"),
        (("--storage", "foo://x"), "cannot be used"),
        (("--storage", "sqlite://"), "would lose the study"),
        (("--storage", "sqlite:///:memory:"), "would lose the study"),
        (("--hostfile", ""), "invalid value for '--hostfile': an empty path"),
        (("--table", ""), "invalid value for '--table': an empty path"),
        (("--site-profile", ""), "invalid value for '--site-profile' / '--slurm-site': an empty path"),
        (("--calibration", " "), "invalid value for '--calibration': an empty path"),
        (("--launcher", "abacus"), "no launcher called 'abacus'"),
        (("--launcher", "replay"), "--table FILE"),
        (("--from", "nothing"), "neither a file nor a study"),
        (("--track", "abacus"), "no tracker called 'abacus'"),
        (("--from", "/"), "'/' is a folder, not a table or a study's name; "),
    ],
)
def test_invalid_usage_is_refused_in_one_sentence(arguments: tuple[str, ...], words: str, wrong: Run) -> None:
    """Invalid usage exits with code 2 and creates no study."""
    said = wrong(*arguments)
    assert words in said.err
    assert said.code == 2
    assert not list(Path().glob("**/study.db"))


def test_an_empty_space_is_explained(wrong: Run) -> None:
    """A space without a legal topology exits with code 1 and names the rules that removed all topologies."""
    said = wrong("--model", "gpt-1.3b", "--nodes", "4", "--set", "tp=3", small=False)
    assert said.code == 1
    assert "none of" in said.err
    assert "removed by" in said.err


def test_if_nothing_can_fit_no_job_is_launched(run: Run, tmp_path: Path) -> None:
    """If no topology is likely to fit, the search exits with code 1 before any job and names the closest topology."""
    few = ("--nodes", "4", "--set", "heads=64", "--set", "tp=8")
    for number, words in enumerate((few, ("--nodes", "2"))):
        said = run("optimize", *words, "--runs", str(tmp_path / str(number)))
        assert said.code == 1
        assert re.search(
            r"no topology is likely to fit: even tp\S+ would need [0-9.]+ times the memory of a GPU",
            said.err.splitlines()[-1],
        )
        assert "none was launched" in said.out
        assert said.err.count("likely to fit") == said.out.count("likely to fit") == 1


def test_an_unreachable_storage_is_reported_in_the_drivers_words(wrong: Run) -> None:
    """An unreachable server and a file that is no database are reported in the driver's words."""
    pytest.importorskip("psycopg")
    for url in ("postgresql://localhost:1/x", "postgresql://me:secret@localhost:1/x"):
        said = wrong("--storage", url)
        assert said.code == 1
        assert "refused" in said.err
        assert "secret" not in said.err
    Path("hello.db").write_text("hello, this is no database, and it is long enough to see\n" * 20)
    assert "not a database" in wrong("--storage", "sqlite:///hello.db").err
    assert "there is no folder nowhere" in wrong("--storage", "sqlite:///nowhere/x.db").err


def test_a_missing_driver_is_named(wrong: Run) -> None:
    """A database whose driver is not installed exits with code 3 and names the package to install."""
    said = wrong("--storage", "mysql://localhost/x")
    assert said.code == 3
    assert "pip install" in said.err


def test_an_unwritable_folder_is_named(wrong: Run) -> None:
    """A folder that cannot be created or written exits with code 1."""
    Path("file").touch()
    assert wrong("--runs", "file").code == 1
    Path("runs/blocked/study.db").mkdir(parents=True)
    assert wrong("--study", "blocked").code == 1


def test_an_unusable_table_is_refused_with_the_reason(wrong: Run) -> None:
    """A table without usable rows, with several groups, or without the given group is refused with the reason."""
    Path("two.csv").write_text(ROWS)
    Path("none.csv").write_text("\n".join(line for line in ROWS.splitlines() if "OK" not in line))
    Path("other.csv").write_text("a,b\n1,2\n")
    Path("empty.csv").touch()
    replay = ("--launcher", "replay", "--table")
    several = wrong(*replay, "two.csv", small=False)
    assert several.code == 2
    assert "2 groups; choose one with --group: A or B" in several.err
    assert "no group 'C'; it has A and B" in wrong(*replay, "two.csv", "--group", "C", small=False).err
    nothing = wrong(*replay, "none.csv", small=False)
    assert nothing.code == 1
    assert "no timed row" in nothing.err
    assert "none of the columns" in wrong(*replay, "other.csv", small=False).err
    assert "no table with rows" in wrong(*replay, "empty.csv", small=False).err


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        (("--gpu", "H100-80GB-SXM"), "started with --gpu A100-80GB-SXM, not H100-80GB-SXM"),
        (("--cluster", "hgx-a100"), "started with the cluster bloom-48, not hgx-a100"),
        (("--model", "llama-3-8b"), "started with --model gpt-1.3b, not llama-3-8b"),
        (("--seq", "1024"), "started with --seq 2048, not 1024"),
        (("--tokens", "1T"), "started with --tokens at the default of 20 per parameter, not 1T"),
        (("--ramp", "192,16"), "started with --ramp none, not 192,16"),
        (("--global-batch", "1024"), "started with --global-batch 2048, not 1024"),
        (("--set", "micro_batch=1,2"), "started with --set micro_batch="),
        (("--allow", "dp-multiple-of-4"), "started with --allow none, not dp-multiple-of-4"),
        (("--seed", "3"), "started with --seed 0, not 3"),
        (("--iterations", "2-3"), "started with --iterations 2, not 2,3"),
        (("--drift", "1.05@3"), "started with --drift none"),
    ],
)
def test_an_existing_study_of_something_else_is_refused(
    changed: tuple[str, ...], difference: str, wrong: Run, run: Run, tmp_path: Path
) -> None:
    """An existing study with another workload, cluster or rules is refused and stays unchanged."""
    assert run("optimize", *SMALL, "--budget", "1", "--study", "mine", "--seed", "0").code == 0
    before = kept(url_of(tmp_path, "mine"), "mine")
    said = wrong("--study", "mine", *changed)
    assert said.code == 2
    assert difference in said.err
    assert "another name with --study" in said.err
    assert kept(url_of(tmp_path, "mine"), "mine") == before


@pytest.mark.slow
def test_a_full_disk_loses_no_measurement(tmp_path: Path) -> None:
    """A disk that fills up during a study exits with code 1 and a remedy; with free space, the study continues."""
    with small_disk(tmp_path / "runs", "640k") as disk:
        said = optimize("--budget", "40", "--study", "full", folder=tmp_path)
        assert said.code == 1, said.err
        assert "Traceback" not in said.err
        assert "full" in said.err.splitlines()[-1] or "No space left" in said.err.splitlines()[-1]
        subprocess.run(["/bin/mount", "-o", "remount,size=16m", str(disk)], check=True)
        before = {trial.number: trial for trial in kept(url_of(tmp_path, "full"), "full") if trial.result}
        assert before, "the disk was to fill up in mid-study"
        again = optimize("--budget", "40", "--study", "full", folder=tmp_path)
        assert again.code == 0, again.err
        after = kept(url_of(tmp_path, "full"), "full")
        assert {trial.number: trial for trial in after if trial.number in before} == before
        assert_lawful(after, budget=40)


def test_a_folder_that_sqlite_cannot_name_is_refused_in_one_sentence(tmp_path: Path, run: Run) -> None:
    folder = f"{tmp_path}/caf\udce9"
    said = run("optimize", "--nodes", "8", "--budget", "1", "--runs", folder)
    assert said.code == 2
    assert "is not UTF-8, which SQLite requires; choose another --runs DIR." in said.err
