"""docs/troubleshooting.md explains every outcome and failure meaning, and quotes messages correctly."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT, Run
from tests.found_studies import study_in
from tuner.core import errors
from tuner.core.outcomes import Outcome
from tuner.logs.signatures import REMEDIES, SIGNATURES

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
BLOOM = "corpus/bloom-a100.csv"
WRONG = [
    (("plan", "--model", "bloom-14400x80", "--exact-nodes"), "none of 691,200 topologies is legal", 1),
    (("plan", "--model", "nobody"), "there is no model called", 2),
    (("report", "nobody"), "there is no study called", 2),
    (("report", "pyproject.toml"), "not a study's name", 2),
    (("optimize", "--nodes", "4", "--from", "nobody"), "neither a file nor a study called", 2),
    (("optimize", "--nodes", "4", "--study", "bloom-48", "--budget", "1"), "was started with", 2),
    (("optimize", "--launcher", "replay", "--table", BLOOM, "--budget", "1"), "choose one with --group", 2),
    (("plan", "--model", "bloom-176b", "--set", "heads=5"), "topologies is legal", 1),
    (("export", "bloom-48", "--format", "megatron-deepspeed"), "does not support sequence parallelism", 2),
]
"""Failing commands, and the quoted messages and exit codes."""


def _first_cells() -> list[str]:
    return [line.split("|")[1].strip() for line in PAGE.splitlines() if line.startswith("|")]


def test_every_outcome_and_every_exit_code_is_explained() -> None:
    cells = _first_cells()
    assert {f"`{outcome.value}`" for outcome in Outcome} <= set(cells)
    found = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.TunerError)]
    assert {str(each.exit_code) for each in found} | {"0", "130"} <= set(cells)


def test_every_meaning_that_a_log_can_have_or_that_has_a_remedy_is_explained() -> None:
    assert {signature.meaning for signature in SIGNATURES} | set(REMEDIES) <= set(_first_cells())


@pytest.mark.parametrize(("arguments", "sentence", "code"), WRONG)
def test_a_sentence_that_the_page_quotes_is_said(
    arguments: tuple[str, ...], sentence: str, code: int, run: Run, tmp_path: Path
) -> None:
    study_in(tmp_path)
    runs = ["--runs", str(tmp_path)] if arguments[0] in ("report", "optimize", "export") else []
    said = run(*arguments, *runs)
    assert sentence in " ".join(said.err.split())
    assert said.code == code
    assert sentence in PAGE


def test_every_sentence_that_the_page_quotes_stands_in_the_product() -> None:
    """Every message quoted on the page exists in the source, apart from its numbers."""
    source = " ".join(re.sub(r'"\s*\n\s*f?"', "", path.read_text()) for path in sorted((ROOT / "tuner").rglob("*.py")))
    quoted = [line.split("|")[1] for line in PAGE.split("## Messages")[1].split("##")[0].splitlines() if "`" in line]
    said = {sentence for _, sentence, _ in WRONG}
    for sentence in (each for line in quoted for each in re.findall(r"`([^`]+)`", line) if each not in said):
        parts = re.split(r"[0-9][0-9,]*", sentence)
        assert all(part.strip() in source for part in parts), sentence
