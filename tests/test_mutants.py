"""Mutation testing: the operators make the named edits, and survivors are mutants that no test detects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import mutants
from benchmarks.forked_tests import exchange
from benchmarks.mutation import function_at, mutations, parses
from tuner.logs import signature

MODULE = '''"""Docstring + 1."""

__all__ = ["price"]
LIMIT: int = 3


def price(count: int, each: float) -> float:
    """Return count - each."""
    if count < 0:
        raise ValueError(f"{count + 1} items")
    discount = 0.5 if count > LIMIT else 0.0
    return count * each - discount


def idle(count: int) -> int:
    return count + 7
'''

TESTS = """from tuner.core.shop import idle, price

def test_price():
    assert price(2, 3.0) == 6.0
    assert price(4, 3.0) == 11.5

def test_idle():
    assert idle(1)
"""


def edits(source: str) -> set[str]:
    return {mutation.apply(source) for mutation in mutations(source)}


@pytest.mark.parametrize(
    ("source", "mutant"),
    [
        ("x = a - b\n", "x = a + b\n"),
        ("x = (a + b) * c\n", "x = (a + b) / c\n"),
        ("x = a * (b + c)\n", "x = a / (b + c)\n"),
        ("x += 2\n", "x -= 2\n"),
        ("x = -a\n", "x = a\n"),
        ("x = a + b * c\n", "x = (b * c)\n"),
        ("x = a and b and c\n", "x = (a and c)\n"),
        ("x = n[1]\n", "x = n[2]\n"),
        ("x = f(a, b)\n", "x = f(b, a)\n"),
        ("x = a <= b\n", "x = a < b\n"),
        ("x = a in b\n", "x = a not in b\n"),
        ("while a:\n    b()\n", "while (not a):\n    b()\n"),
        ("x = 'é' if a > 1 else 'è'\n", "x = 'é' if a >= 1 else 'è'\n"),
    ],
)
def test_an_operator_makes_the_edit_that_it_names(source: str, mutant: str) -> None:
    assert mutant in edits(source)


@pytest.mark.parametrize(
    "source",
    [
        '"""1 + 1"""\n',
        "__all__ = ['a', 'b']\n",
        "raise ValueError(1 + 1)\n",
        "print(a + 1, b)\n",
        "x = f'{a + 1}'\n",
        "import a\n\nif TYPE_CHECKING:\n    x = 1 + 1\n",
        "def f(a: Literal[1]) -> Literal[2]: ...\n",
        "x = True\n",
        "x = 'a' + b\n",
        "x = max(a, b)\n",
    ],
)
def test_what_no_test_should_pin_is_left_alone(source: str) -> None:
    assert edits(source) == set()


def test_a_mutant_knows_its_function() -> None:
    source = "class A:\n    def f(self):\n        return 1\n\nx = 2\n"
    assert [function_at(source, line) for line in (1, 3, 5)] == ["A", "A.f", ""]
    assert not parses("x = (")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A checkout with one module and two tests."""
    root = tmp_path / "checkout"
    for folder in ("tuner/core", "tests/core"):
        (root / folder).mkdir(parents=True)
        for package in (folder, folder.split("/")[0]):
            (root / package / "__init__.py").touch()
    (root / "tuner/core/shop.py").write_text(MODULE)
    (root / "tests/core/test_shop.py").write_text(TESTS)
    (root / "pyproject.toml").write_text(
        "[tool.pytest.ini_options]\nmarkers = ['slow', 'cluster']\ntestpaths = ['tests']\n"
    )
    return root


def test_a_draw_repeats_with_its_seed(shop: Path) -> None:
    first, second, other = (mutants.draw(shop, seed=seed, count=4) for seed in (1, 1, 2))
    assert [mutant.diff for mutant in first] == [mutant.diff for mutant in second]
    assert [mutant.diff for mutant in first] != [mutant.diff for mutant in other]
    assert {mutant.package for mutant in first} == {"core"}
    assert mutants.draw(shop, seed=1, count=9, packages=["study"]) == []


@pytest.mark.slow
def test_survivors_are_what_no_test_notices(shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only mutants of lines that no test checks survive, and a second run resumes the first."""
    pytest.importorskip("pytest_cov")
    before = (shop / "tuner/core/shop.py").read_text()
    output = tmp_path / "results.jsonl"
    command = ["--root", str(shop), "--map", str(tmp_path / "map.json"), "-o", str(output), "--count", "9"]
    mutants.main([*command, "--count", "3"])
    mutants.main(command)
    results = [json.loads(line) for line in output.read_text().splitlines()]
    assert [result["number"] for result in results] == list(range(len(results)))
    assert {result["function"]: result["survived"] for result in results}["idle"]
    assert any(not result["survived"] for result in results if result["function"] == "price")
    killed = [result for result in results if not result["survived"]]
    assert all(result["killer"].startswith("tests/core/test_shop.py::test_price") for result in killed)
    assert (shop / "tuner/core/shop.py").read_text() == before
    shown = capsys.readouterr().out
    assert "| core |" in shown
    assert "-    return count + 7" in shown


@pytest.mark.parametrize(("path", "exchanged"), [(signature.__file__, False), ("/not/imported.py", True)])
def test_what_ran_on_import_is_exchanged_only_in_a_file_that_is_not_imported_yet(path: str, exchanged: bool) -> None:
    """An edit of import-time code can be exchanged only in a file that is not imported, even without functions."""
    assert exchange("LIMIT = 3\n", "LIMIT = 4\n", path, []) == exchanged


def test_tests_that_pytest_does_not_know_judge_nothing(tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    with pytest.raises(RuntimeError, match="pytest does not take these tests"):
        mutants.first_failure(tmp_path / "copy", ["tests/test_nothing.py::test_nothing"], limit=60)
