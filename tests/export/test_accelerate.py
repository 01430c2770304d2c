"""The format accelerate starts the user's program, which must receive what the study chose."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.export.test_export import SITE, example, exported
from tuner.core.errors import InputError
from tuner.core.shape import Shape
from tuner.export.api import program_notes
from tuner.export.bundle import FORMATS

SITE_OF_FOUR = replace(SITE, hosts=("a", "b", "c", "d"))


@pytest.mark.parametrize("format_name", [name for name, one in FORMATS.items() if one.runs_command])
@pytest.mark.parametrize(
    ("chosen", "lacking", "passing"),
    [
        ({"heads": 16}, r"32 attention heads \(an axis of the study", "{heads}"),
        ({"shape": Shape(hidden=4096, layers=32)}, r"32 layers \(an axis of the study", "{layers} {hidden}"),
        ({"global_batch": 512}, r"global batch 512 \(an axis of the study", "{global_batch}"),
    ],
)
def test_no_format_starts_a_program_without_the_model_that_the_study_chose(
    format_name: str, chosen: dict[str, Any], lacking: str, passing: str
) -> None:
    """An axis of the study that the command has no field for is refused."""
    run = example("accelerate")
    run = replace(run, topology=replace(run.topology, **chosen))
    with pytest.raises(InputError, match=lacking):
        exported(run, format_name, command="python t.py {tp}", site=SITE_OF_FOUR)
    for words in (f"python t.py {{tp}} {passing}", "python t.py {key}"):
        assert exported(run, format_name, command=words, site=SITE_OF_FOUR)


@pytest.mark.parametrize(("command", "missing"), [("t.py", "micro_batch"), ("t.py {micro_batch}", ""), (None, "")])
def test_what_neither_the_config_nor_a_command_passes_is_noted(command: str | None, missing: str) -> None:
    """The config has ZeRO stage, recompute and replica groups, but no micro-batch size."""
    study: Any = SimpleNamespace(settings={}, name="s")
    run = example("accelerate")
    run = replace(run, topology=replace(run.topology, recompute="full", hsdp=2))
    notes = program_notes(study, run, FORMATS["accelerate"], command)
    assert [note.split(";")[0] for note in notes] == [f"--command has no field for {missing}"] * bool(missing)


def test_the_ranks_are_started_once() -> None:
    run = example("accelerate")
    with pytest.raises(InputError, match="torchrun in --command would start them again"):
        exported(run, "accelerate", command="torchrun train.py {key}")
    assert "train.py" in exported(run, "accelerate", command="train.py {key}")["launch.sh"]


@pytest.mark.parametrize("words", ["--config {ds_config}", "--config={ds_config}", "{folder}/ds_config.json"])
def test_a_config_that_is_not_exported_is_not_passed(words: str) -> None:
    """Only the formats of DeepSpeed have a ds_config.json."""
    run = example("accelerate")
    with pytest.raises(InputError, match=r"exports no ds_config\.json, which --command passes"):
        exported(run, "accelerate", command=f"train.py {words}")
    assert "ds_config.json" in exported(run, "slurm", command=f"train.py {words} {{tp}}")
