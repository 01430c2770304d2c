"""The documentation agrees with the product."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from docs.generate import PAGES
from tests.conftest import ROOT, Run, Said
from tuner.cli import app, main
from tuner.core import catalog
from tuner.space.rules import BY_NAME

PROSE = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (ROOT / "docs").glob("*.md")
)
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
MAX_README_WORDS = 1200
STUDY = "bloom-48"
"""The study that the README or a page starts with `tuner optimize` and that other pages read."""


@pytest.mark.parametrize("page", PAGES)
def test_a_generated_page_is_what_the_generator_writes(page: str) -> None:
    assert (ROOT / "docs" / page).read_text() == PAGES[page](), "run: make docs"


def test_every_command_stands_in_the_reference_and_in_the_readme() -> None:
    reference, readme = (ROOT / "docs/cli.md").read_text(), (ROOT / "README.md").read_text()
    for command in app.commands:
        assert f"## tuner {command}" in reference
        assert f"`tuner {command}`" in readme


def test_the_readme_opens_with_make_run_and_stays_short() -> None:
    readme = (ROOT / "README.md").read_text()
    first = BLOCK.search(readme)
    assert first
    assert first[2] == "make run\n"
    assert len(readme[: first.start()].split(".")) <= 3
    assert "\nmake test\n" in readme
    assert len(readme.split()) <= MAX_README_WORDS


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    for page in sorted((ROOT / "docs").glob("*.md")):
        assert page.name == "README.md" or f"]({page.name})" in index, page.name


def test_a_page_about_a_task_begins_with_its_command() -> None:
    """A page about a task has at most one sentence between its title and the first command."""
    index = (ROOT / "docs" / "README.md").read_text()
    tasks = re.findall(r"^\| \[.+?\]\((.+?)\) \| `tuner", index, re.MULTILINE)
    assert len(tasks) > 15
    for page in tasks:
        before = (ROOT / "docs" / page).read_text().split("```")[0].strip().splitlines()
        assert before[0].startswith("# "), page
        assert len(before) <= 3, page


def _blocks(page: Path) -> list[tuple[str, str]]:
    """Return the language and text of each fenced block."""
    return BLOCK.findall(page.read_text())


def _commands(block: str) -> list[str]:
    """Return the tuner commands of an `sh` block without comments."""
    lines = [line.split(" #")[0].strip() for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line.startswith("tuner ")]


def _all_commands(page: Path) -> list[str]:
    return [command for language, text in _blocks(page) if language == "sh" for command in _commands(text)]


LONG = [ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in ("tutorial", "search", "moe"))]
"""Pages whose commands are too slow for a fast test."""
RUNNABLE = [page for page in PROSE if _all_commands(page)]


SEARCH = ("optimize", "--nodes", "48", "--budget", "40")
"""The command of `make run`, the README and the search page; its output does not depend on the study's name."""


class BegunStudy(NamedTuple):
    """The study that the pages read: its folder, and the output of its command."""

    folder: Path
    said: Said

    def copy_to(self, folder: Path) -> None:
        """Copy the study to the folder where a page's commands run."""
        shutil.copytree(self.folder, folder / "runs" / STUDY)


@pytest.fixture(scope="session")
def begun_study(tmp_path_factory: pytest.TempPathFactory) -> BegunStudy:
    """The study, created once with the command shown on the pages."""
    folder, out, err = tmp_path_factory.mktemp("docs"), io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.MonkeyPatch.context() as here:
        here.chdir(folder)
        with pytest.raises(SystemExit) as left:
            main((*SEARCH, "--study", STUDY))
    assert left.value.code == 0
    return BegunStudy(folder / "runs" / STUDY, Said(0, out.getvalue(), err.getvalue()))


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow) if page in LONG else page for page in RUNNABLE],
    ids=lambda page: page.name,
)
def test_the_commands_of_a_page_run_in_order_and_print_what_it_shows(
    page: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The commands of a page succeed in order, in one folder with the repository's tables, its logs and the study.

    A `text` block shows the output of the last command before it; an ellipsis stands for omitted text.
    """
    for name in ("corpus", "docs", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tuner.study.doctor.probe", lambda **_: {"torch": "2.8", "accelerator": "cpu"})
    if STUDY in page.read_text() and not any(f"--study {STUDY}" in command for command in _all_commands(page)):
        request.getfixturevalue("begun_study").copy_to(tmp_path)
    printed = None
    for language, text in _blocks(page):
        if language == "text":
            assert printed is not None, f"{page.name} shows output of no command: {text}"
            position = 0
            for part in (" ".join(part.split()) for line in text.splitlines() for part in line.split("...")):
                found = printed.find(part, position)
                assert found >= 0, f"{page.name} shows, and the command does not print (or not in this order): {part}"
                position = found + len(part)
        commands = _commands(text) if language == "sh" else []
        for command in commands:
            words = tuple(shlex.split(command)[1:])
            if words[: len(SEARCH)] == SEARCH and words[len(SEARCH) :] in ((), ("--study", STUDY)):
                begun: BegunStudy = request.getfixturevalue("begun_study")
                begun.copy_to(tmp_path)
                said = begun.said
            else:
                said = run(*words)
            assert said.code == int("--exact-nodes" in command and "bloom-14400x80" in command), (
                f"{command}: {said.err}"
            )
            printed = " ".join((said.out + said.err).split())
        if not commands and language != "text":
            printed = None


def test_a_page_begins_its_study_or_takes_that_of_the_search_page() -> None:
    """A page that reads a study also starts it, or reads the one of the README and the search page."""
    for page in RUNNABLE:
        begun = set[str]() if page.name == "README.md" else {STUDY}
        for command in _all_commands(page):
            words = shlex.split(command)[1:]
            if "--study" in words:
                begun.add(words[words.index("--study") + 1])
            if words[0] in ("report", "export", "dashboard"):
                assert words[1] in begun, f"{page.name}: {command}"


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub derives them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_to_it_and_every_anchor_to_a_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", page.read_text()):
        if not target.startswith("http"):
            file = page.parent / target if target else page
            assert file.exists(), f"{page.name} links to {target}"
            assert not anchor or anchor in _anchors(file), f"{page.name} links to {target}#{anchor}"


def test_every_picture_is_shown_somewhere_and_small() -> None:
    """Every picture has at most 300 kB and an alternative text, and is shown on some page."""
    picture = re.compile(r"!\[([^\]]*)\]\((?:docs/)?(plots/[^)]+)\)")
    shown = [each for page in PROSE for each in picture.findall(page.read_text())]
    assert all(len(words) > 10 for words, _ in shown)
    pictures = sorted((ROOT / "docs" / "plots").glob("*.png"))
    assert {f"plots/{each.name}" for each in pictures} == {target for _, target in shown}
    assert all(each.stat().st_size <= 300_000 for each in pictures)


RECIPES = re.findall(
    r"^\| [^|]+ \| `(tuner [^|]+)` \| (.+) \|$", (ROOT / "docs/field-reports.md").read_text(), re.MULTILINE
)


def test_there_are_five_recipes() -> None:
    assert len(RECIPES) == 5


@pytest.mark.parametrize(("command", "answer"), RECIPES)
def test_a_recipe_answers_as_the_page_says(command: str, answer: str, run: Run, tmp_path: Path) -> None:
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


def test_the_files_shown_in_the_catalog_page_can_be_used(tmp_path: Path, run: Run) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/catalog.md").read_text(), re.DOTALL)
    cluster, model = block.split("# mine.toml")
    (tmp_path / "lab.toml").write_text(cluster)
    (tmp_path / "mine.toml").write_text("#" + model)
    said = run("plan", "--cluster", str(tmp_path / "lab.toml"), "--model", str(tmp_path / "mine.toml"))
    assert said.code == 0
    assert "16 nodes of 8 H100-80GB-SXM" in said.out
    mine, llama = catalog.model(str(tmp_path / "mine.toml")), catalog.model("llama-3.1-8b")
    sizes = ("name", "layers", "hidden", "heads", "ffn", "vocab", "seq", "max_positions", "embedding_size")
    assert replace(mine, **{size: getattr(llama, size) for size in sizes}) == llama


def test_the_table_shown_on_the_page_about_tables_is_read_without_warnings(tmp_path: Path, run: Run) -> None:
    (block,) = re.findall(r"```csv\n(.*?)```", (ROOT / "docs/tables.md").read_text(), re.DOTALL)
    (tmp_path / "runs.csv").write_text(block)
    said = run("evaluate", str(tmp_path / "runs.csv"))
    assert (said.code, said.err) == (0, "")
    assert "2 rows, 0 skipped" in said.out


def test_every_rule_that_prose_names_exists() -> None:
    for page in PROSE:
        for name in re.findall(r"--allow ([a-z0-9-]+)", page.read_text()):
            assert name in BY_NAME, f"{page.name} names {name}"
