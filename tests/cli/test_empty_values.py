"""An empty value, as of an unset shell variable, is refused and never replaced by a default."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Run

SIMULATED = ("optimize", "--nodes", "48", "--budget", "1", "--set", "tp=4", "--set", "pp=12", "--study", "s")
NO_FOLDER = "an empty path names no folder; give a folder or leave out the option."
NO_FILE = "an empty path names no file; give a file or leave out the option."


@pytest.mark.parametrize("empty", ["", " "])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("report", "s", "-o"), NO_FOLDER),
        (("export", "s", "-o"), NO_FOLDER),
        (("calibrate", "t.csv", "-o"), "an empty path names no file; give a file. Run "),
        (("audit", "t.csv", "--fix", "-o"), NO_FILE),
        (("doctor", "--measure", "-o"), NO_FILE),
        (("memory", "--frozen", "llama-3-8b", "--export"), NO_FILE),
        (("compare", "--model", "llama-3-8b", "--export"), NO_FOLDER),
        (("compare", "--model", "llama-3-8b", "--plot"), NO_FILE),
        (("max-batch", "--model", "llama-3-8b", "--plot"), NO_FILE),
        (("list", "--runs"), NO_FOLDER),
        ((*SIMULATED, "--runs"), NO_FOLDER),
        ((*SIMULATED, "--launcher"), "there is no launcher called '"),
        ((*SIMULATED, "--track"), "there is no tracker called '"),
        (("max-batch", "--model", "llama-3-8b", "--launcher"), "there is no launcher called '"),
        (("report", "s", "--storage"), "' is not a URL such as sqlite:///study.db"),
        (("explain", "tp4-pp12-dp8-mbs2-z1", "--against"), "invalid topology key '"),
        (("memory", "--frozen", "llama-3-8b", "--sample"), "' is not a size such as 0.4GB"),
        (("measure",), "an empty path names no file; give a file. Run "),
        (("audit",), "an empty path names no file; give a file. Run "),
        (("evaluate",), "an empty path names no file; give a file. Run "),
    ],
)
def test_an_empty_value_is_refused(
    arguments: tuple[str, ...],
    message: str,
    empty: str,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    said = run(*arguments, empty)
    assert said.code == 2
    assert message in said.err
    assert not said.out
    assert not list(tmp_path.iterdir())
