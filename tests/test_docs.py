"""The pages say what the product does."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from docs.generate import PAGES
from tests.conftest import ROOT, Run
from tests.found_studies import study_in
from tuner.cli import app
from tuner.space.rules import BY_NAME

PROSE = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (ROOT / "docs").glob("*.md")
)


@pytest.mark.parametrize("page", PAGES)
def test_a_generated_page_is_what_the_generator_writes(page: str) -> None:
    assert (ROOT / "docs" / page).read_text() == PAGES[page](), "run: make docs"


def test_every_command_stands_in_the_reference_and_in_the_readme() -> None:
    reference, readme = (ROOT / "docs/cli.md").read_text(), (ROOT / "README.md").read_text()
    for command in app.commands:
        assert f"## tuner {command}" in reference
        assert f"tuner {command}" in readme


def test_the_readme_opens_with_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    first = re.search(r"```sh\n(.*?)```", readme, re.DOTALL)
    assert first
    assert [line.split("#")[0].strip() for line in first[1].splitlines()] == ["make run", "make test"]


def _commands(text: str) -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = [line.split(" #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("tuner ")]


TUTORIAL = ROOT / "docs" / "tutorial.md"
"""Its commands build on one another and run as one test."""


@pytest.mark.parametrize(
    "command", sorted({c for page in PROSE if page != TUTORIAL for c in _commands(page.read_text())})
)
def test_every_command_shown_runs(command: str, run: Run, tmp_path: Path) -> None:
    words = shlex.split(command)[1:]
    options = {option for parameter in app.commands[words[0]].params for option in parameter.opts}
    if "bloom-48" in words and "--study" not in words and "--runs" in options:
        study_in(tmp_path)
    said = run(*words, *(["--runs", str(tmp_path)] if "--runs" in options else []))
    assert said.code in (0, 1)
    assert (said.code == 1) == ("--exact-nodes" in command and "bloom-14400x80" in command)


def test_a_study_that_the_readme_asks_for_is_begun_there_before() -> None:
    """Who follows it word by word finds the study."""
    begun: set[str] = set()
    for command in _commands((ROOT / "README.md").read_text()):
        words = shlex.split(command)[1:]
        if "--study" in words:
            begun.add(words[words.index("--study") + 1])
        if words[0] in ("report", "export", "dashboard"):
            assert words[1] in begun, command


@pytest.mark.slow
def test_the_tutorial_comes_out_as_it_stands(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command after the other in one folder, and what is shown beneath one is what it prints."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "data").symlink_to(ROOT / "tests" / "data")
    for name in ("corpus", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    printed = ""
    blocks = re.findall(r"```(sh|text)\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)
    assert len(blocks) > 12
    for kind, text in blocks:
        if kind == "text":
            for line in text.splitlines():
                assert " ".join(line.split()) in printed, line
            continue
        for command in text.splitlines():
            said = run(*shlex.split(command)[1:])
            assert said.code == 0, f"{command}: {said.err}"
            printed = " ".join((said.out + said.err).split())
    assert {"ds_config.json", "launch.sh", "README.md"} <= {path.name for path in Path("runs/llama").iterdir()}


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_picture_is_shown_somewhere_and_small() -> None:
    """At most 300 kB, and described in words for who cannot see it."""
    picture = re.compile(r"!\[([^\]]*)\]\((?:docs/)?(plots/[^)]+)\)")
    shown = [each for page in PROSE for each in picture.findall(page.read_text())]
    assert all(len(words) > 10 for words, _ in shown)
    pictures = sorted((ROOT / "docs" / "plots").glob("*.png"))
    assert {f"plots/{each.name}" for each in pictures} == {target for _, target in shown}
    assert all(each.stat().st_size <= 300_000 for each in pictures)


SHOWN = [
    ("SIMULATED: study", ("optimize", "--nodes", "48", "--budget", "40")),
    ("tuner: none of", ("plan", "--model", "bloom-14400x80", "--exact-nodes")),
    ("line 5: error, other-model", ("audit", "tests/data/reports/tr8-104b.md")),
    ("x law     fill-nodes", ("explain", "tp8-pp5-mbs2-z1")),
    ("docs/example.log: 4", ("measure", "docs/example.log", "tp8-pp12-dp4-mbs1-z1")),
]


@pytest.mark.parametrize(("start", "arguments"), SHOWN)
def test_the_output_shown_in_the_readme_is_what_the_command_prints(
    start: str, arguments: tuple[str, ...], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for times, and for what an ellipsis stands for."""
    blocks = re.findall(r"```text\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (block,) = [block for block in blocks if block.startswith(start)]
    for name in ("corpus", "docs", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    said = run(*arguments)
    printed = " ".join((said.out + said.err).split())
    for part in re.sub(r"counted in [0-9.]+ s", "...", block).split("..."):
        assert " ".join(part.split()) in printed


RECIPES = re.findall(r"^\| [^|]+ \| `(tuner [^|]+)` \| (.+) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)


def test_there_are_five_recipes() -> None:
    assert len(RECIPES) == 5


@pytest.mark.parametrize(("command", "answer"), RECIPES)
def test_a_recipe_answers_as_the_readme_says(command: str, answer: str, run: Run, tmp_path: Path) -> None:
    words = shlex.split(command)[1:]
    said = run(*words, *(["--runs", str(tmp_path)] if words[0] == "optimize" else []))
    figures = re.findall(r"`([^`]+)`", answer)
    assert figures
    assert all(figure in " ".join(said.out.split()) for figure in figures)


def test_the_python_shown_in_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, {})  # noqa: S102 - running what the page shows is the test
    assert capsys.readouterr().out.startswith("tp")


def test_the_files_shown_in_the_readme_can_be_used(tmp_path: Path, run: Run) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    cluster, model = block.split("# mine.toml")
    (tmp_path / "lab.toml").write_text(cluster)
    (tmp_path / "mine.toml").write_text("#" + model)
    said = run("plan", "--cluster", str(tmp_path / "lab.toml"), "--model", str(tmp_path / "mine.toml"))
    assert said.code == 0
    assert "16 nodes of 8 H100-80GB-SXM" in said.out


def test_every_rule_that_prose_names_exists() -> None:
    for page in PROSE:
        for name in re.findall(r"--allow ([a-z0-9-]+)", page.read_text()):
            assert name in BY_NAME, f"{page.name} names {name}"
